//! What the events of a trace come to: how long the run took, and what it did in that time.
//!
//! ```text
//!   total  =  command            +  drain  +  commit (its steps)  +  rest
//!             computing, waiting
//!                        by reason
//! ```
//!
//! A moment in which several operations of the command wait is divided between their reasons. Steps that lie in others count for themselves alone.

use std::collections::BTreeMap;

use elbow_job::EndStep;
use serde::Serialize;

use super::event::{Begin, COMMAND, Category, Event, Phase, RUN};
use super::reader::End;
use super::spans::{Overlap, Spans};
use crate::names::CommandWords;

/// So many actions are named.
const SLOWEST: usize = 10;
/// So many are kept before the quickest of them go.
const SLOWEST_KEPT: usize = 1000;
const MICROSECONDS: f64 = 1e6;

/// See the module's header. Times in seconds; parts are of the whole.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    pub(super) elbow: String,
    #[serde(flatten)]
    pub(super) command: CommandWords,
    pub(super) started_unix_seconds: f64,
    /// The trace has an end: nobody killed `elbow run`, and it does not run still.
    pub(super) complete: bool,
    /// The last line is not whole.
    pub(super) torn: bool,
    /// What was being done where a trace ends that is not complete.
    pub(super) unfinished: Vec<String>,
    pub(super) jobs: usize,
    /// How often the command was run.
    pub(super) attempts: usize,
    pub(super) total_seconds: f64,
    pub(super) command_seconds: f64,
    /// Of these the command worked itself, or was answered from memory.
    pub(super) computing_seconds: f64,
    pub(super) waiting_seconds: f64,
    pub(super) waits: Vec<Wait>,
    pub(super) drain_seconds: f64,
    pub(super) commit_seconds: f64,
    pub(super) steps: Vec<Step>,
    pub(super) rest_seconds: f64,
    pub(super) actions: Actions,
    pub(super) slowest: Vec<Slow>,
    /// The directory in which most was made.
    pub(super) busiest: Option<Busiest>,
    /// What would be done about it.
    pub(super) advice: Vec<String>,
}

/// What operations of the command waited for.
#[derive(Debug, Serialize)]
pub(super) struct Wait {
    pub(super) reason: String,
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) longest_seconds: f64,
}

/// A step of the end.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) step: String,
    pub(super) seconds: f64,
}

/// What was done on the storage in the background.
#[derive(Debug, Default, Serialize)]
pub(super) struct Actions {
    pub(super) number: u64,
    pub(super) calls: u64,
    pub(super) bytes: u64,
    pub(super) merged: u64,
    pub(super) refused: u64,
    /// For so long any was under way.
    pub(super) busy_seconds: f64,
    pub(super) mean_parallel: f64,
    pub(super) max_parallel: usize,
    pub(super) kinds: Vec<Kind>,
}

/// Actions of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Kind {
    pub(super) operation: String,
    pub(super) number: u64,
    pub(super) calls: u64,
    pub(super) bytes: u64,
    pub(super) merged: u64,
    pub(super) refused: u64,
    /// One after the other.
    pub(super) seconds: f64,
}

/// One action.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Slow {
    pub(super) operation: String,
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// From the first change of the object until the action was begun.
    pub(super) queued_seconds: f64,
}

/// A directory in which objects were made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Busiest {
    pub(super) directory: String,
    pub(super) made: u64,
    /// Of all that were made.
    pub(super) share: f64,
}

/// Takes the events of a trace.
#[derive(Default)]
pub(super) struct Collector {
    begin: Option<Begin>,
    last: f64,
    jobs: BTreeMap<u32, OpenSteps>,
    /// When the command ran.
    command: Vec<(f64, f64)>,
    steps: BTreeMap<String, f64>,
    waits: BTreeMap<String, (usize, Wait)>,
    waiting: Spans,
    kinds: BTreeMap<String, Kind>,
    acting: Spans,
    /// How many objects were made in each directory.
    made: BTreeMap<String, u64>,
    slowest: Vec<Slow>,
}

/// The steps of a job that have begun, the last innermost.
type OpenSteps = Vec<OpenStep>;

struct OpenStep {
    name: String,
    began: f64,
    /// What was spent in steps within it.
    within: f64,
}

impl Collector {
    /// The next event.
    pub(super) fn take(&mut self, event: Event) {
        self.last = self.last.max(event.end());
        match (event.cat, event.ph) {
            (Category::Trace, _) => self.begin = event.args.begin.or(self.begin.take()),
            (Category::Step, Phase::Begin) => self.jobs.entry(event.pid).or_default().push(OpenStep {
                name: event.name,
                began: event.ts,
                within: 0.0,
            }),
            (Category::Step, Phase::End) => self.step_ends(event.pid, event.ts),
            (Category::Wait, _) => self.wait(&event),
            (Category::Action, _) => self.action(event),
            (Category::Metadata, _) => {
                self.jobs.entry(event.pid).or_default();
            }
            _ => {}
        }
    }

    fn step_ends(&mut self, pid: u32, at: f64) {
        let open = self.jobs.entry(pid).or_default();
        let Some(step) = open.pop() else { return };
        let took = at - step.began;
        if let Some(outer) = open.last_mut() {
            outer.within += took;
        }
        match (pid, &*step.name) {
            (RUN, COMMAND) => self.command.push((step.began, at)),
            _ => *self.steps.entry(step.name).or_default() += took - step.within,
        }
    }

    fn wait(&mut self, event: &Event) {
        let kind = self.waits.len();
        let seconds = event.dur.unwrap_or(0.0) / MICROSECONDS;
        let (kind, wait) = self.waits.entry(event.name.clone()).or_insert_with(|| {
            let reason = event.name.clone();
            (
                kind,
                Wait {
                    reason,
                    number: 0,
                    bytes: 0,
                    seconds: 0.0,
                    longest_seconds: 0.0,
                },
            )
        });
        wait.number += 1;
        wait.bytes += event.args.bytes.unwrap_or(0);
        wait.longest_seconds = wait.longest_seconds.max(seconds);
        self.waiting.push(event.ts, event.end(), *kind);
    }

    fn action(&mut self, event: Event) {
        let seconds = event.dur.unwrap_or(0.0) / MICROSECONDS;
        let args = &event.args;
        let kind = self.kinds.entry(event.name.clone()).or_insert_with(|| Kind {
            operation: event.name.clone(),
            ..Kind::default()
        });
        kind.number += 1;
        kind.calls += args.calls.unwrap_or(0);
        kind.bytes += args.bytes.unwrap_or(0);
        kind.merged += args.merged.unwrap_or(0);
        kind.refused += u64::from(args.errno.is_some());
        kind.seconds += seconds;
        self.acting.push(event.ts, event.end(), 0);
        if let Some(directory) = made_in(&event) {
            *self.made.entry(directory).or_default() += 1;
        }
        self.slowest.push(Slow {
            bytes: args.bytes.unwrap_or(0),
            queued_seconds: (event.ts - args.queued.unwrap_or(event.ts)).max(0.0) / MICROSECONDS,
            seconds,
            path: event.args.path.unwrap_or_default(),
            operation: event.name,
        });
        if self.slowest.len() >= SLOWEST_KEPT {
            keep_slowest(&mut self.slowest);
        }
    }

    /// What all of it comes to.
    pub(super) fn finish(mut self, end: End) -> Summary {
        let unfinished = self.close_steps();
        keep_slowest(&mut self.slowest);
        let waiting = self.waiting.within(&self.command).overlap(self.waits.len());
        let acting = self.acting.overlap(1);
        let (command_seconds, waiting_seconds) = (self.command_seconds(), waiting.busy / MICROSECONDS);
        let drain_seconds = self.steps.remove(EndStep::Drain.name()).unwrap_or(0.0) / MICROSECONDS;
        let steps = in_order(&self.steps);
        // The sum of nothing is -0.
        let commit_seconds = steps.iter().map(|step| step.seconds).sum::<f64>() + 0.0;
        let total_seconds = self.last / MICROSECONDS;
        let known = command_seconds + drain_seconds + commit_seconds;
        let begin = self.begin.unwrap_or_default();
        Summary {
            elbow: begin.elbow,
            command: begin.command,
            started_unix_seconds: begin.started_unix_seconds,
            complete: end == End::Whole,
            torn: end == End::Torn,
            unfinished,
            jobs: self.jobs.keys().filter(|pid| **pid != RUN).count(),
            attempts: self.command.len(),
            total_seconds,
            command_seconds,
            computing_seconds: (command_seconds - waiting_seconds).max(0.0),
            waiting_seconds,
            waits: waits_of(self.waits, &waiting),
            drain_seconds,
            commit_seconds,
            steps,
            rest_seconds: (total_seconds - known).max(0.0),
            actions: actions_of(self.kinds, &acting),
            slowest: self.slowest,
            busiest: busiest_of(&self.made),
            advice: Vec::new(),
        }
    }

    /// What has begun and not ended lasts until the end of the trace.
    fn close_steps(&mut self) -> Vec<String> {
        let mut unfinished = Vec::new();
        let pids: Vec<u32> = self.jobs.keys().copied().collect();
        for pid in pids {
            while let Some(step) = self.jobs.get(&pid).and_then(|open| open.last()) {
                unfinished.push(step.name.clone());
                self.step_ends(pid, self.last);
            }
        }
        unfinished
    }

    fn command_seconds(&self) -> f64 {
        let all = self.command.iter().map(|(began, ended)| ended - began);
        all.sum::<f64>() / MICROSECONDS
    }
}

/// The directory in which something is made.
fn made_in(event: &Event) -> Option<String> {
    let makes = matches!(&*event.name, "create" | "mkdir" | "symlink" | "mknod");
    let path = event.args.path.as_deref().filter(|_| makes)?;
    Some(path.rsplit_once('/').map_or(".", |(directory, _)| directory).to_owned())
}

fn busiest_of(made: &BTreeMap<String, u64>) -> Option<Busiest> {
    let all: u64 = made.values().sum();
    let (directory, most) = made.iter().max_by_key(|(_, count)| **count)?;
    Some(Busiest {
        directory: directory.clone(),
        made: *most,
        share: *most as f64 / all as f64,
    })
}

fn keep_slowest(slowest: &mut Vec<Slow>) {
    slowest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    slowest.truncate(SLOWEST);
}

/// The steps of a commit in the order in which they are taken, and others after them.
fn in_order(steps: &BTreeMap<String, f64>) -> Vec<Step> {
    const ORDER: [EndStep; 10] = [
        EndStep::Stage,
        EndStep::Sync,
        EndStep::Turn,
        EndStep::Check,
        EndStep::Rehearse,
        EndStep::Record,
        EndStep::Publish,
        EndStep::CleanUp,
        EndStep::Save,
        EndStep::RollBack,
    ];
    let place = |name: &str| ORDER.iter().position(|step| step.name() == name).unwrap_or(ORDER.len());
    let mut all: Vec<Step> = steps
        .iter()
        .map(|(name, microseconds)| Step {
            step: name.clone(),
            seconds: microseconds / MICROSECONDS,
        })
        .collect();
    all.sort_by_key(|step| place(&step.step));
    all
}

/// The longest first.
fn waits_of(waits: BTreeMap<String, (usize, Wait)>, waiting: &Overlap) -> Vec<Wait> {
    let mut all: Vec<Wait> = waits
        .into_values()
        .map(|(kind, wait)| Wait {
            seconds: waiting.of_kinds[kind] / MICROSECONDS,
            ..wait
        })
        .collect();
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    all
}

/// The kind that took most time first.
fn actions_of(kinds: BTreeMap<String, Kind>, acting: &Overlap) -> Actions {
    let mut kinds: Vec<Kind> = kinds.into_values().collect();
    kinds.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let sum = |of: fn(&Kind) -> u64| kinds.iter().map(of).sum();
    Actions {
        number: sum(|kind| kind.number),
        calls: sum(|kind| kind.calls),
        bytes: sum(|kind| kind.bytes),
        merged: sum(|kind| kind.merged),
        refused: sum(|kind| kind.refused),
        busy_seconds: acting.busy / MICROSECONDS,
        mean_parallel: if acting.busy > 0.0 {
            acting.sum / acting.busy
        } else {
            0.0
        },
        max_parallel: acting.most,
        kinds,
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::STEPS;
    use super::*;

    const SECOND: f64 = MICROSECONDS;

    fn step(name: &str, pid: u32, from: f64, to: f64) -> [Event; 2] {
        let event = |ph, at| Event::new(name, Category::Step, ph, pid, STEPS, at * SECOND);
        [event(Phase::Begin, from), event(Phase::End, to)]
    }

    fn span(name: &str, cat: Category, tid: u32, from: f64, to: f64) -> Event {
        let mut event = Event::new(name, cat, Phase::Complete, 2, tid, from * SECOND);
        event.dur = Some((to - from) * SECOND);
        event
    }

    fn summary(events: impl IntoIterator<Item = Event>, end: End) -> Summary {
        let mut collector = Collector::default();
        events.into_iter().for_each(|event| collector.take(event));
        collector.finish(end)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn the_parts_of_a_run_come_to_the_whole() {
        let mut events = Vec::new();
        events.extend(step(COMMAND, RUN, 1.0, 11.0));
        // Two at once count once; what a process does that is left behind is no wait of the command.
        events.push(span("read", Category::Wait, 50, 2.0, 4.0));
        events.push(span("list", Category::Wait, 51, 3.0, 5.0));
        events.push(span("read", Category::Wait, 50, 10.0, 14.0));
        events.extend(step("drain", 2, 11.0, 13.0));
        events.extend(step("sync", 2, 13.0, 17.0));
        events.extend(step("publish", 2, 17.0, 18.0));
        let found = summary(events, End::Whole);
        assert!(near(found.total_seconds, 18.0) && near(found.command_seconds, 10.0));
        assert!(near(found.waiting_seconds, 4.0) && near(found.computing_seconds, 6.0));
        assert_eq!(found.waits[0].reason, "read");
        assert!(near(found.waits[0].seconds, 2.5) && near(found.waits[1].seconds, 1.5));
        assert!(near(found.drain_seconds, 2.0) && near(found.commit_seconds, 5.0));
        assert!(near(found.rest_seconds, 1.0) && found.unfinished.is_empty());
    }

    #[test]
    fn a_step_within_another_counts_for_itself() {
        let [publish, published] = step("publish", 2, 0.0, 10.0);
        let [sync, synced] = step("sync", 2, 2.0, 5.0);
        let found = summary([publish, sync, synced, published], End::Whole);
        let seconds: Vec<_> = found.steps.iter().map(|step| (&*step.step, step.seconds)).collect();
        assert_eq!(seconds, [("sync", 3.0), ("publish", 7.0)]);
    }

    #[test]
    fn what_has_not_ended_lasts_until_the_end_of_the_trace() {
        let [begin, _] = step(COMMAND, RUN, 1.0, 2.0);
        let found = summary([begin, span("write", Category::Action, 7, 3.0, 5.0)], End::Torn);
        assert_eq!(found.unfinished, [COMMAND]);
        assert!(near(found.command_seconds, 4.0) && !found.complete && found.torn);
    }

    #[test]
    fn actions_are_counted_by_kind_and_the_slowest_are_named() {
        let mut events: Vec<Event> = (0..2000)
            .map(|i| {
                let length = f64::from(i % 500) / 1000.0;
                let mut event = span("write", Category::Action, 7, 0.0, length);
                (event.args.bytes, event.args.calls) = (Some(10), Some(2));
                event
            })
            .collect();
        events.push(span("mkdir", Category::Action, 8, 0.0, 2.0));
        let found = summary(events, End::Whole).actions;
        assert_eq!((found.number, found.bytes, found.calls), (2001, 20_000, 4000));
        // Those without a length are not under way.
        assert_eq!(found.max_parallel, 1997);
        assert_eq!(found.kinds[0].operation, "write");
    }

    #[test]
    fn the_directory_in_which_most_is_made_is_known() {
        let made = |operation: &str, path: &str| {
            let mut event = span(operation, Category::Action, 7, 0.0, 1.0);
            event.args.path = Some(path.to_owned());
            event
        };
        let events = [
            made("mkdir", "a"),
            made("create", "a/b/c"),
            made("symlink", "a/b/d"),
            made("create", "a/b/e"),
            made("write", "f"),
        ];
        let busiest = summary(events, End::Whole).busiest.expect("something was made");
        assert_eq!((&*busiest.directory, busiest.made, busiest.share), ("a/b", 3, 0.75));
    }

    #[test]
    fn the_slowest_survive_however_many_there_are() {
        let events = (0..5000).map(|i| span("write", Category::Action, 7, 0.0, f64::from((i * 37) % 5000)));
        let found = summary(events, End::Whole);
        let seconds: Vec<_> = found.slowest.iter().map(|slow| slow.seconds).collect();
        assert_eq!(seconds, (4990..5000).rev().map(f64::from).collect::<Vec<_>>());
    }
}
