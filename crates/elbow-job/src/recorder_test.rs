//! What a recorder is told: each action once, with what was merged into it, and each step of the end from its beginning to its end.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use elbow_file::RealStorage;
use elbow_file::double::{Delaying, Interposed};
use parking_lot::Mutex;

use crate::schedule_test::{InJob, Op, scratch};
use crate::{ActionRecord, EndStep, Job, Options, Outcome, Recorder, WaitRecord};

/// Every call takes so long.
const CALL: Duration = Duration::from_millis(2);
const IN_FLIGHT: usize = 2;
const FILES: u64 = 40;

/// Remembers all that it is told.
#[derive(Debug, Default)]
struct Remembered(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    actions: Vec<Action>,
    waits: Vec<&'static str>,
    open: Vec<(EndStep, Instant)>,
    steps: Vec<(EndStep, Duration)>,
}

#[derive(Debug)]
struct Action {
    operation: &'static str,
    bytes: u64,
    calls: u64,
    merged: u64,
    queued: Instant,
    began: Instant,
    ended: Instant,
}

impl Recorder for Remembered {
    fn action(&self, action: &ActionRecord<'_>) {
        self.0.lock().actions.push(Action {
            operation: action.operation,
            bytes: action.bytes,
            calls: action.calls,
            merged: action.merged,
            queued: action.queued,
            began: action.began,
            ended: action.ended,
        });
    }

    fn wait(&self, wait: &WaitRecord<'_>) {
        self.0.lock().waits.push(wait.reason.name());
    }

    fn step_begins(&self, step: EndStep) {
        self.0.lock().open.push((step, Instant::now()));
    }

    fn step_ends(&self, step: EndStep, _: u64, _: u64) {
        let mut heard = self.0.lock();
        let (begun, at) = heard.open.pop().expect("a step that has begun");
        assert_eq!(begun, step, "the innermost ends first");
        heard.steps.push((step, at.elapsed()));
    }
}

/// A job that makes files, ended by `end`, with what its recorder was told.
fn recorded(end: impl FnOnce(&Job) -> Outcome) -> (Job, Heard) {
    let dir = scratch();
    let storage = Interposed::new(Arc::new(RealStorage), Delaying::new(CALL, 2));
    let root = RealStorage::open_root(dir.path()).unwrap();
    let recorder = Arc::new(Remembered::default());
    let options = Options {
        in_flight: Some(IN_FLIGHT),
        recorder: Some(recorder.clone()),
        ..Options::default()
    };
    let job = Job::begin(Arc::new(storage), root, dir.path(), options).unwrap();
    for n in 0..FILES {
        InJob(&job).run(&Op::Create(format!("f{n}"))).unwrap();
        InJob(&job).run(&Op::Write(format!("f{n}"), 0, vec![1; 10])).unwrap();
    }
    end(&job);
    let heard = std::mem::take(&mut *recorder.0.lock());
    (job, heard)
}

#[test]
fn each_action_is_told_once_with_what_was_merged_into_it() {
    let (job, heard) = recorded(|job| job.commit(&mut |_| {}).unwrap());
    let (counts, actions) = (job.counts(), &heard.actions);
    let sum = |of: fn(&Action) -> u64| actions.iter().map(of).sum::<u64>();
    assert_eq!(sum(|action| action.calls), counts.storage_calls);
    assert_eq!(sum(|action| action.bytes), counts.bytes_written);
    assert_eq!(sum(|action| action.merged), counts.merged);
    let creations = actions.iter().filter(|action| action.operation == "create");
    assert_eq!(creations.count() as u64, FILES);
    for action in actions {
        assert!(
            action.queued <= action.began && action.began <= action.ended,
            "{action:?}"
        );
    }
    let at_once = |moment: Instant| {
        let covers = |action: &&Action| action.began <= moment && moment < action.ended;
        actions.iter().filter(covers).count()
    };
    let most = actions.iter().map(|action| at_once(action.began)).max();
    assert!(most.is_some_and(|most| (1..=IN_FLIGHT).contains(&most)), "{most:?}");
    assert!(
        heard.waits.contains(&"list"),
        "the root had to be looked into: {:?}",
        heard.waits
    );
}

#[test]
fn the_steps_of_a_commit_are_told_in_their_order() {
    let (_, heard) = recorded(|job| job.commit(&mut |_| {}).unwrap());
    assert!(heard.open.is_empty(), "{:?}", heard.open);
    let steps: Vec<EndStep> = heard.steps.iter().map(|(step, _)| *step).collect();
    let order = [
        EndStep::Drain,
        EndStep::Sync,
        EndStep::Turn,
        EndStep::Check,
        EndStep::Rehearse,
        EndStep::Record,
        EndStep::Publish,
        EndStep::CleanUp,
    ];
    let mut rest = steps.iter();
    assert!(order.iter().all(|step| rest.any(|found| found == step)), "{steps:?}");
    let sync = heard.steps.iter().find(|(step, _)| *step == EndStep::Sync);
    assert!(
        sync.is_some_and(|(_, took)| *took >= CALL),
        "it waits for the storage: {sync:?}"
    );
}

#[test]
fn a_roll_back_is_told() {
    let (_, heard) = recorded(|job| {
        // Until something is to be removed.
        while job.counts().storage_calls == 0 {
            std::thread::sleep(CALL);
        }
        job.roll_back(false, &mut |_| {}).unwrap()
    });
    assert!(heard.open.is_empty(), "{:?}", heard.open);
    let steps = heard.steps.iter();
    let rolled_back: Duration = steps
        .filter(|(step, _)| *step == EndStep::RollBack)
        .map(|(_, took)| *took)
        .sum();
    assert!(rolled_back >= CALL, "{:?}", heard.steps);
    assert!(
        heard.steps.iter().all(|(step, _)| *step != EndStep::Publish),
        "{:?}",
        heard.steps
    );
}
