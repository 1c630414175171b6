//! A storage that refuses a call of a job, any call, with any error: the tree is the old one or the new one, as the job says, and
//! the next job finds a directory to work in.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use elbow_file::double::{Faulty, Interposed, Operation, Plan, Recording};
use elbow_file::{Errno, RealStorage};

use crate::crash_test::{
    Cut, begin, fewest, fresh_for, has_staging, old_times, recovered, recovery_dies, seen_by_jobs, with_fault,
};
use crate::options::Publish;
use crate::report::RecoverAction;
use crate::scenes_test::Scene;
use crate::schedule_test::{InJob, Op, Snapshot, scratch, snapshot};
use crate::{JobError, Outcome};

const ERRORS: [Errno; 12] = [
    Errno::XDEV,
    Errno::PERM,
    Errno::ACCESS,
    Errno::ROFS,
    Errno::NOSPC,
    Errno::DQUOT,
    Errno::IO,
    Errno::OPNOTSUPP,
    Errno::BUSY,
    Errno::TXTBSY,
    Errno::STALE,
    Errno::MLINK,
];

/// How a job ended whose storage refused something.
#[derive(Debug)]
struct Ended {
    outcome: Result<Outcome, JobError>,
    /// The command was told of the refusal, and did something else then.
    was_told: bool,
    refused: u64,
    calls: u64,
}

/// Runs the operations and commits through a storage with a fault.
fn run(dir: &Path, scene: &Scene, fault: Option<Plan>) -> Ended {
    let faulty = Arc::new(Interposed::new(scene.storage.clone(), Faulty::default()));
    let job = begin(faulty.clone(), dir, scene.publish);
    let begun = faulty.hook().seen();
    fault.into_iter().for_each(|fault| faulty.hook().arm(fault));
    let was_told = (scene.operations)().iter().any(|op| InJob(&job).run(op).is_err());
    let outcome = job.commit(&mut |_| {});
    Ended {
        outcome,
        was_told,
        refused: faulty.hook().fired(),
        calls: faulty.hook().seen() - begun,
    }
}

/// Another job can work there, and leaves what it was told to.
fn assert_usable(dir: &Path, what: &str) {
    let job = begin(Arc::new(RealStorage), dir, Publish::Staged);
    InJob(&job).run(&Op::Mkdir("of the next job".into())).unwrap();
    let outcome = job.commit(&mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{what}: {outcome:?}");
    std::fs::remove_dir(dir.join("of the next job")).unwrap();
}

/// A commit that meets a fault leaves the old tree, without another one having to end it.
pub(crate) fn assert_is_taken_back(scene: &Scene, fault: Plan, what: &str) {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let dir = fresh_for(scene, temp.path(), "refused");
    let before = snapshot(&dir);
    let ended = run(&dir, scene, Some(fault));
    assert!(ended.refused > 0 && !ended.was_told, "{what}: {ended:?}");
    assert!(matches!(ended.outcome, Ok(Outcome::RolledBack(_))), "{what}: {ended:?}");
    assert_eq!(snapshot(&dir), before, "{what}");
}

/// The errors with which a call is refused. Not in a soak some in turn, so that all pairs of kinds of call and error come up in the two runs.
pub(crate) fn errors_of(n: u64) -> Vec<Errno> {
    match std::env::var_os("SOAK") {
        Some(_) => ERRORS.to_vec(),
        None => [n, n + 5, n + 7].map(|n| ERRORS[n as usize % ERRORS.len()]).to_vec(),
    }
}

/// Refuses each call once, with each error: what the job says is so.
pub(crate) fn enumerate(scene: &Scene) {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let before = snapshot(&fresh_for(scene, temp.path(), "untouched"));
    let mut after = None;
    let calls = fewest(|name| {
        let whole = fresh_for(scene, temp.path(), name);
        let calls = run(&whole, scene, None).calls;
        after = Some(snapshot(&whole));
        calls
    });
    let after = after.expect("five runs");
    let (mut committed, mut rolled_back) = (0, 0);
    for n in 1..=calls {
        for errno in errors_of(n) {
            let what = format!("call {n} of {calls} refused with {errno}");
            let fresh = || fresh_for(scene, temp.path(), "refused");
            let (dir, ended) = with_fault(&what, fresh, |dir| {
                let times = old_times(dir);
                let ended = run(dir, scene, Some(Plan::fail(errno).nth(n)));
                (ended.refused == 1).then_some((ended, times))
            });
            let (ended, times) = ended;
            let found = snapshot(&dir);
            match ended.outcome {
                Ok(Outcome::Committed) if ended.was_told => {}
                Ok(Outcome::Committed) => {
                    committed += 1;
                    assert!(found == after, "{what}: committed, {found:#?}");
                }
                Ok(Outcome::RolledBack(cause)) => {
                    rolled_back += 1;
                    assert!(found == before, "{what}: rolled back ({cause:?}), {found:#?}");
                    assert_eq!(old_times(&dir), times, "{what}: rolled back ({cause:?})");
                }
                other => {
                    // The roll back itself was refused, or the cleaning, and the next job does it.
                    let seen = seen_by_jobs(&dir);
                    assert!(
                        scene.may_be_seen(&seen, [&before, &after]),
                        "{what}: {other:?}, {seen:#?}"
                    );
                    let action = recovered(&dir, &scene.storage).unwrap();
                    assert!(
                        matches!(action, RecoverAction::RolledBack | RecoverAction::Finished),
                        "{what}"
                    );
                    let found = snapshot(&dir);
                    assert!(
                        found == before || found == after,
                        "{what}: {other:?}, {action:?}, {found:#?}"
                    );
                }
            }
            assert!(!has_staging(&dir), "{what}: nothing is left");
            assert_usable(&dir, &what);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    assert!(committed > 10 && rolled_back > calls, "{committed} {rolled_back}");
    println!("{calls} calls: {committed} committed, {rolled_back} rolled back");
}

#[test]
fn a_call_that_is_refused_once_leaves_the_old_tree_or_the_new_one() {
    enumerate(&Scene::usual(Publish::Staged));
}

#[test]
fn a_call_that_is_refused_once_leaves_the_old_tree_or_the_new_one_when_published_eagerly() {
    enumerate(&Scene::usual(Publish::Eager));
}

/// There a call that opens a directory, or closes it again, can be refused, too.
#[test]
fn a_call_that_is_refused_once_leaves_the_old_tree_or_the_new_one_where_directories_were_closed() {
    for publish in [Publish::Staged, Publish::Eager] {
        enumerate(&Scene::closed(publish));
    }
}

#[test]
fn a_call_that_is_refused_once_leaves_the_old_tree_or_the_new_one_where_old_directories_cannot_be_renamed() {
    enumerate(&Scene::lower_dirs());
}

#[test]
fn a_call_that_is_refused_once_leaves_the_old_tree_or_the_new_one_where_there_are_subvolumes() {
    enumerate(&Scene::subvolumes(Publish::Staged));
}

/// The answer to a call is lost: it was made, and the job is told that it failed, since a server died or a connection broke. A
/// request that came to a server twice finds the name taken.
pub(crate) fn enumerate_lost_answers(scene: &Scene) {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let before = snapshot(&fresh_for(scene, temp.path(), "untouched"));
    let whole = fresh_for(scene, temp.path(), "whole");
    run(&whole, scene, None);
    let after = snapshot(&whole);
    let (mut committed, mut rolled_back, mut left) = (0, 0, 0);
    for n in 1.. {
        let mut has_come = false;
        for errno in [Errno::IO, Errno::TIMEDOUT, Errno::EXIST] {
            let what = format!("answer {n} lost, {errno} instead");
            let dir = fresh_for(scene, temp.path(), "refused");
            let changes = Plan::fail(errno).when(move |call| match errno {
                Errno::EXIST => call.operation == Operation::Rename,
                _ => !call.operation.only_reads(),
            });
            let ended = run(&dir, scene, Some(changes.nth(n).but_made()));
            if ended.refused == 0 {
                std::fs::remove_dir_all(&dir).unwrap();
                continue;
            }
            has_come = true;
            let found = snapshot(&dir);
            match &ended.outcome {
                Ok(Outcome::Committed) => {
                    committed += 1;
                    assert!(ended.was_told || found == after, "{what}: committed, {found:#?}");
                }
                Ok(Outcome::RolledBack(cause)) => {
                    rolled_back += 1;
                    assert!(found == before, "{what}: rolled back ({cause:?}), {found:#?}");
                }
                other => {
                    left += 1;
                    let seen = seen_by_jobs(&dir);
                    assert!(
                        scene.may_be_seen(&seen, [&before, &after]),
                        "{what}: {other:?}, {seen:#?}"
                    );
                }
            }
            recovered(&dir, &scene.storage).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = snapshot(&dir);
            assert!(
                ended.was_told || found == before || found == after,
                "{what}: {:?}, {found:#?}",
                ended.outcome
            );
            assert!(!has_staging(&dir), "{what}: nothing is left");
            assert_usable(&dir, &what);
            std::fs::remove_dir_all(&dir).unwrap();
        }
        if !has_come {
            break;
        }
    }
    assert!(rolled_back > 50, "{committed} {rolled_back} {left}");
    println!("{committed} committed, {rolled_back} rolled back, {left} ended by the next recovery");
}

#[test]
fn a_lost_answer_leaves_the_old_tree_or_the_new_one() {
    enumerate_lost_answers(&Scene::usual(Publish::Staged));
}

#[test]
fn a_lost_answer_leaves_the_old_tree_or_the_new_one_when_published_eagerly() {
    enumerate_lost_answers(&Scene::usual(Publish::Eager));
}

#[test]
fn a_lost_answer_leaves_the_old_tree_or_the_new_one_where_directories_were_closed() {
    enumerate_lost_answers(&Scene::closed(Publish::Staged));
}

#[test]
fn a_lost_answer_leaves_the_old_tree_or_the_new_one_where_there_are_subvolumes() {
    enumerate_lost_answers(&Scene::subvolumes(Publish::Staged));
}

/// A changing call, and the name that it is made on.
type Kind = (Operation, Option<OsString>);

/// Kinds of calls that five whole jobs have in common: one that is slower for a moment stores things that it then moves, and a fault at those does not
/// come in the others.
fn kinds_of_calls(place: &Path, scene: &Scene) -> BTreeSet<Kind> {
    let runs = (0..5).map(|_| kinds_of_one(place, scene));
    runs.reduce(|common, found| &common & &found).expect("five runs")
}

fn kinds_of_one(place: &Path, scene: &Scene) -> BTreeSet<Kind> {
    let recording = Arc::new(Interposed::new(scene.storage.clone(), Recording::default()));
    let dir = fresh_for(scene, place, "refused");
    let job = begin(recording.clone(), &dir, scene.publish);
    for op in (scene.operations)() {
        InJob(&job).run(&op).unwrap();
    }
    assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    std::fs::remove_dir_all(&dir).unwrap();
    let calls = recording.hook().log();
    let changing = calls.into_iter().filter(|call| !call.operation.only_reads());
    changing
        .map(|call| (call.operation, visible_name(&call.path)))
        .collect()
}

/// What a call is made on, if it is not called after the job. Trials are numbered, in each job anew.
fn visible_name(path: &Path) -> Option<OsString> {
    let name = path.file_name().filter(|name| !crate::is_staging_name(name))?;
    let trial = name.to_str().filter(|name| name.starts_with("probe-"));
    let unnumbered = trial.map(|trial| trial.trim_end_matches(|c: char| c.is_ascii_digit()).into());
    Some(unnumbered.unwrap_or_else(|| name.to_owned()))
}

/// The same for calls that are refused each time that they are tried: an immutable file, a directory without rights.
pub(crate) fn enumerate_kinds(scene: &Scene, errors: fn(u64) -> Vec<Errno>) {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let before = snapshot(&fresh_for(scene, temp.path(), "untouched"));
    let whole = fresh_for(scene, temp.path(), "whole");
    run(&whole, scene, None);
    let after = snapshot(&whole);
    let kinds = kinds_of_calls(temp.path(), scene);
    assert!(kinds.len() > 30, "{kinds:?}");
    let (mut runs, mut rolled_back, mut stuck) = (0, 0, 0);
    for (nth, (operation, name)) in (0..).zip(kinds) {
        for errno in errors(nth) {
            let what = format!("{operation:?} of {name:?} always refused with {errno}");
            let fresh = || fresh_for(scene, temp.path(), "refused");
            let (dir, ended) = with_fault(&what, fresh, |dir| {
                let wanted = name.clone();
                let plan = Plan::fail(errno).on(operation).times(u64::MAX);
                let plan = plan.when(move |call| visible_name(&call.path()) == wanted);
                let times = old_times(dir);
                let ended = run(dir, scene, Some(plan));
                (ended.refused > 0).then_some((ended, times))
            });
            let (ended, times) = ended;
            runs += 1;
            let seen = seen_by_jobs(&dir);
            match &ended.outcome {
                Ok(Outcome::Committed) => assert!(ended.was_told || seen == after, "{what}: committed, {seen:#?}"),
                Ok(Outcome::RolledBack(cause)) => {
                    rolled_back += 1;
                    assert!(seen == before, "{what}: rolled back ({cause:?}), {seen:#?}");
                    assert_eq!(old_times(&dir), times, "{what}: rolled back ({cause:?})");
                }
                _ => stuck += 1,
            }
            recovered(&dir, &scene.storage).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = snapshot(&dir);
            assert!(
                ended.was_told || found == before || found == after,
                "{what}: {:?}, {found:#?}",
                ended.outcome
            );
            assert_usable(&dir, &what);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    assert!(rolled_back > 50, "{rolled_back} {stuck}");
    println!("{runs} runs: {rolled_back} rolled back, {stuck} ended by the next recovery");
}

#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_tree_or_the_new_one() {
    enumerate_kinds(&Scene::usual(Publish::Staged), |_| ERRORS.to_vec());
}

#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_tree_or_the_new_one_when_published_eagerly() {
    enumerate_kinds(&Scene::usual(Publish::Eager), errors_of);
}

/// It never ended: a job that was refused the trial of modes tried it again and again (`abilities`).
#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_tree_or_the_new_one_where_directories_were_closed() {
    enumerate_kinds(&Scene::closed(Publish::Staged), errors_of);
}

#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_tree_or_the_new_one_where_directories_were_closed_when_published_eagerly()
 {
    enumerate_kinds(&Scene::closed(Publish::Eager), errors_of);
}

#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_tree_or_the_new_one_where_old_directories_cannot_be_renamed() {
    enumerate_kinds(&Scene::lower_dirs(), |_| ERRORS.to_vec());
}

#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_tree_or_the_new_one_where_there_are_subvolumes() {
    enumerate_kinds(&Scene::subvolumes(Publish::Staged), errors_of);
}

/// A commit in which something is refused that comes late, so that there is much to be taken back. It dies at the `n`-th change of the
/// commit, and the recovery at the `at`-th of its own.
struct TakenBack<'a> {
    scene: &'a Scene,
    refused: fn() -> Plan,
    place: tempfile::TempDir,
    before: Snapshot,
    after: Snapshot,
    went_on: u64,
}

impl<'a> TakenBack<'a> {
    fn of(scene: &'a Scene, refused: fn() -> Plan) -> Self {
        rustix::process::umask(rustix::fs::Mode::empty());
        let place = scratch();
        let before = snapshot(&fresh_for(scene, place.path(), "untouched"));
        let whole = fresh_for(scene, place.path(), "whole");
        run(&whole, scene, None);
        Self {
            scene,
            refused,
            before,
            after: snapshot(&whole),
            place,
            went_on: 0,
        }
    }

    /// Runs the job until it dies; `false`: it has fewer changes, and ends by being taken back.
    fn run(&self, dir: &Path, n: u64) -> bool {
        let refused = Faulty::new([(self.refused)()]);
        let faulty = Arc::new(Interposed::new(self.scene.storage.clone(), refused));
        let job = begin(faulty.clone(), dir, self.scene.publish);
        for op in (self.scene.operations)() {
            InJob(&job).run(&op).unwrap();
        }
        job.shared.drain(&mut |_| {}).unwrap();
        faulty.hook().arm(Plan::stop_at_change(n));
        let outcome = job.commit(&mut |_| {});
        let has_died = faulty.hook().fired() > 1;
        assert!(has_died || matches!(outcome, Ok(Outcome::RolledBack(_))), "{outcome:?}");
        has_died
    }

    /// Whether the recovery died, or nothing if not even the job did.
    fn die(&mut self, n: u64, at: u64) -> Option<bool> {
        let dir = fresh_for(self.scene, self.place.path(), "died");
        let times = old_times(&dir);
        let has_died = self.run(&dir, n).then(|| recovery_dies(&dir, &self.scene.storage, at));
        let what = format!("stop at change {n}, and at {at} of the recovery");
        let is_undone = !has_staging(&dir);
        let action = recovered(&dir, &self.scene.storage).unwrap_or_else(|error| panic!("{what}: {error}"));
        self.went_on += u64::from(action == RecoverAction::RolledBack);
        let found = snapshot(&dir);
        assert!(
            found == self.before || has_died.is_some() && found == self.after,
            "{what}, {action:?}: {found:#?}"
        );
        if found == self.before {
            // A recovery that dies before its very last call loses the time of the root.
            let known = usize::from(is_undone);
            assert_eq!(old_times(&dir)[known..], times[known..], "{what}, {action:?}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        has_died
    }

    /// Returns the changes of the commit, and how many recoveries died.
    fn enumerate(&mut self, cut: Cut) -> (u64, u64) {
        let mut recoveries = 0;
        for n in 1.. {
            let mut has_come = false;
            recoveries += cut.each(n, 11, |at| {
                let died = self.die(n, at);
                has_come |= died.is_some();
                died == Some(true)
            });
            if !has_come {
                return (n - 1, recoveries);
            }
        }
        unreachable!("a commit has an end")
    }
}

pub(crate) fn enumerate_deaths_of_taking_back(scene: &Scene, refused: fn() -> Plan) {
    let mut taken_back = TakenBack::of(scene, refused);
    let (changes, recoveries) = taken_back.enumerate(Cut::usual());
    assert!(changes > 40 && recoveries > 20, "{changes} {recoveries}");
    assert!(taken_back.went_on > 20, "{}", taken_back.went_on);
    println!("{changes} deaths, {recoveries} of recoveries");
}

/// Death at any call while a refused commit is taken back, and of the recovery.
#[test]
fn death_while_a_commit_is_taken_back_leaves_the_old_tree_or_the_new_one() {
    let scene = Scene::usual(Publish::Staged);
    enumerate_deaths_of_taking_back(&scene, || Plan::fail(Errno::IO).on(Operation::Chmod).named("one"));
}

/// Files that are closed by then are opened once more to be written.
#[test]
fn death_while_a_commit_is_taken_back_leaves_the_old_tree_or_the_new_one_where_files_were_closed() {
    for scene in [Scene::sealed(Publish::Staged), Scene::closed(Publish::Staged)] {
        enumerate_deaths_of_taking_back(&scene, || Plan::fail(Errno::IO).on(Operation::SetTimes).named("sealed"));
        enumerate_deaths_of_taking_back(&scene, || Plan::fail(Errno::IO).on(Operation::SetTimes).named("shut"));
    }
}

#[test]
fn death_while_a_commit_is_taken_back_leaves_the_old_tree_or_the_new_one_where_there_are_subvolumes() {
    let scene = Scene::subvolumes(Publish::Staged);
    enumerate_deaths_of_taking_back(&scene, || Plan::fail(Errno::IO).on(Operation::Chmod).named("g"));
}

/// What was written under a late name is taken back where it waits.
#[test]
fn death_while_a_commit_is_taken_back_leaves_the_old_tree_or_the_new_one_where_old_directories_cannot_be_renamed() {
    let refused = || Plan::fail(Errno::IO).on(Operation::SetTimes).named("log");
    enumerate_deaths_of_taking_back(&Scene::lower_dirs(), refused);
}

fn operations_that_lengthen() -> Vec<Op> {
    vec![
        Op::Truncate("one".into(), 5000),
        Op::Write("one".into(), 0, b"longer than before".to_vec()),
    ]
}

/// A file that takes appends alone keeps what was appended. Any that could not be cut passed for one, and kept a part of what the job had written.
#[test]
fn what_cannot_be_cut_again_is_taken_back_later_where_the_job_did_not_only_append() {
    let scene = Scene {
        operations: operations_that_lengthen,
        ..Scene::usual(Publish::Staged)
    };
    let temp = scratch();
    let dir = fresh_for(&scene, temp.path(), "refused");
    let before = snapshot(&dir);
    let plan = Plan::fail(Errno::PERM).on(Operation::Truncate).times(u64::MAX);
    let plan = plan.when(|call| visible_name(&call.path()) == Some("one".into()));
    let ended = run(&dir, &scene, Some(plan));
    assert!(ended.refused > 1 && ended.outcome.is_err(), "{ended:?}");
    assert_eq!(recovered(&dir, &scene.storage).unwrap(), RecoverAction::RolledBack);
    assert_eq!(snapshot(&dir), before);
}
