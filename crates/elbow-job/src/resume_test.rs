//! Jobs whose storage refuses to publish what they made: they are kept whole, go on when the cause is gone, and overwrite nothing of
//! what others did meanwhile.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elbow_file::double::{Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, RealStorage, Storage};

use crate::crash_test::{begin, fewest, has_staging, recovered, seen_by_jobs, with_fault};
use crate::options::Publish;
use crate::patch_files::is_patch_dir;
use crate::report::RecoverAction;
use crate::scenes_test::{Scene, old_tree, operations};
use crate::schedule_test::{InJob, Op, scratch, snapshot};
use crate::staging::is_job_name;
use crate::{Cause, JobError, Keep, OnConflict, Outcome};

type Snapshot = BTreeMap<PathBuf, String>;

const ERRORS: [Errno; 6] = [
    Errno::NOSPC,
    Errno::IO,
    Errno::XDEV,
    Errno::DQUOT,
    Errno::ROFS,
    Errno::STALE,
];

pub(crate) fn real() -> Arc<dyn Storage> {
    Arc::new(RealStorage)
}

/// Old trees, and what the operations make of them.
pub(crate) struct Testbed {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) before: Snapshot,
    pub(crate) after: Snapshot,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        rustix::process::umask(rustix::fs::Mode::empty());
        let mut testbed = Self {
            temp: scratch(),
            before: Snapshot::new(),
            after: Snapshot::new(),
        };
        let dir = testbed.fresh("whole");
        testbed.before = snapshot(&dir);
        let job = begin(real(), &dir, Publish::Staged);
        run(&job);
        assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
        testbed.after = snapshot(&dir);
        testbed
    }

    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        let dir = self.temp.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        old_tree(&dir);
        // A part of it is punched out of its patch when it has arrived.
        std::fs::write(dir.join("large"), vec![b'o'; 40_000]).unwrap();
        dir
    }

    /// A job that was kept, because the attributes of a file could not be set.
    pub(crate) fn kept(&self, name: &str) -> PathBuf {
        let dir = self.fresh(name);
        let ended = end(&dir, Publish::Staged, late_refusal());
        assert!(is_whole(&ended.outcome), "{ended:?}");
        dir
    }
}

/// What is refused late, so that much has to be taken back.
pub(crate) fn late_refusal() -> Plan {
    Plan::fail(Errno::NOSPC).on(Operation::Chmod).named("one")
}

/// From that call on nothing is done any more.
fn death_in_time_of_the_late_refusal() -> Plan {
    let is_dead = AtomicBool::new(false);
    Plan::stop_at(1).when(move |call| {
        let is_late = call.operation == Operation::Chmod && call.name.is_some_and(|name| name == "one");
        is_dead.fetch_or(is_late, Ordering::Relaxed) || is_late
    })
}

fn run(job: &crate::Job) {
    // So much that it leaves the patch when it has arrived.
    let large = Op::Write("large".into(), 5_000, vec![b'n'; 100_000]);
    for op in operations().into_iter().chain([large]) {
        InJob(job).run(&op).unwrap();
    }
}

#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Result<Outcome, JobError>,
    pub(crate) fired: u64,
    calls: u64,
}

/// Runs the operations, and commits through a storage with a fault that comes when all is drained.
pub(crate) fn end(dir: &Path, publish: Publish, fault: Plan) -> Ended {
    let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let job = begin(faulty.clone(), dir, publish);
    run(&job);
    job.shared.drain(&mut |_| {}).unwrap();
    let begun = faulty.hook().seen();
    faulty.hook().arm(fault);
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    Ended {
        outcome,
        fired: faulty.hook().fired(),
        calls: faulty.hook().seen() - begun,
    }
}

pub(crate) fn is_whole(outcome: &Result<Outcome, JobError>) -> bool {
    matches!(outcome, Ok(Outcome::Kept(_, kept)) if kept.is_whole)
}

pub(crate) fn name_in(dir: &Path) -> OsString {
    let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    names.into_iter().find(|name| is_job_name(name)).expect("a job")
}

fn resume(dir: &Path, storage: &Arc<dyn Storage>, on_conflict: OnConflict) -> Result<Outcome, JobError> {
    let root = RealStorage::open_root(dir).unwrap();
    crate::resume(storage, &root, &name_in(dir), on_conflict)
}

/// A kept job is left alone by recoveries, goes on, and leaves nothing behind.
fn assert_goes_on(testbed: &Testbed, dir: &Path, what: &str) {
    assert_eq!(recovered(dir, &real()).unwrap(), RecoverAction::Kept, "{what}");
    assert_eq!(seen_by_jobs(dir), testbed.before, "{what}");
    let ended = resume(dir, &real(), OnConflict::RollBack);
    assert!(matches!(ended, Ok(Outcome::Committed)), "{what}: {ended:?}");
    assert_eq!(snapshot(dir), testbed.after, "{what}");
    assert!(!has_staging(dir), "{what}");
}

/// Refuses each call of a commit once: what the job made is committed, or kept and goes on when the cause is gone.
fn enumerate(publish: Publish) {
    let testbed = Testbed::new();
    let calls = fewest(|name| end(&testbed.fresh(name), publish, Plan::fail(Errno::IO).nth(1 << 40)).calls);
    let (mut committed, mut kept, mut rolled_back, mut stuck) = (0, 0, 0, 0);
    for n in 1..=calls {
        for errno in [n, n + 1].map(|n| ERRORS[n as usize % ERRORS.len()]) {
            let what = format!("call {n} of {calls} refused with {errno}");
            let (dir, ended) = with_fault(
                &what,
                || testbed.fresh("refused"),
                |dir| {
                    let ended = end(dir, publish, Plan::fail(errno).nth(n));
                    (ended.fired == 1).then_some(ended)
                },
            );
            match &ended.outcome {
                Ok(Outcome::Committed) => {
                    committed += 1;
                    assert_eq!(snapshot(&dir), testbed.after, "{what}");
                }
                Ok(Outcome::Kept(..)) => {
                    kept += 1;
                    assert!(is_whole(&ended.outcome), "{what}");
                    assert_goes_on(&testbed, &dir, &what);
                }
                Ok(Outcome::RolledBack(cause)) => {
                    rolled_back += 1;
                    assert_eq!(snapshot(&dir), testbed.before, "{what}: {cause:?}");
                }
                Err(_) => {
                    stuck += 1;
                    match recovered(&dir, &real()).unwrap() {
                        RecoverAction::Kept => assert_goes_on(&testbed, &dir, &what),
                        // Or nothing was left but the time of the directory.
                        _ => assert_eq!(snapshot(&dir), testbed.after, "{what}"),
                    }
                }
            }
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    println!("{calls} calls: {committed} committed, {kept} kept, {rolled_back} rolled back, {stuck} stuck");
    // Only what cannot be made durable is lost, and what is refused while it is being kept.
    assert!(kept > calls && rolled_back <= 12, "{kept} {rolled_back} {calls}");
}

#[test]
fn a_step_that_is_refused_once_keeps_the_job_and_it_goes_on() {
    enumerate(Publish::Staged);
}

#[test]
fn a_step_that_is_refused_once_keeps_the_job_and_it_goes_on_when_published_eagerly() {
    enumerate(Publish::Eager);
}

/// What waits in a subvolume does so in the record of a kept job, too.
#[test]
fn a_job_that_is_kept_over_subvolumes_goes_on() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let (temp, scene) = (scratch(), Scene::subvolumes(Publish::Staged));
    let fresh = |name: &str| {
        let dir = temp.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        (scene.old_tree)(&dir);
        dir
    };
    let end = |dir: &Path, fault: Plan| {
        let faulty = Arc::new(Interposed::new(scene.storage.clone(), Faulty::new([fault])));
        let job = begin(faulty, dir, Publish::Staged);
        for op in (scene.operations)() {
            InJob(&job).run(&op).unwrap();
        }
        job.commit_or_keep(Keep::Complete, &mut |_| {})
    };
    let (untouched, whole, dir) = (fresh("untouched"), fresh("whole"), fresh("kept"));
    let committed = end(&whole, Plan::fail(Errno::IO).nth(1 << 40));
    assert!(matches!(committed, Ok(Outcome::Committed)), "{committed:?}");
    let kept = end(&dir, Plan::fail(Errno::NOSPC).on(Operation::Chmod).named("g"));
    assert!(is_whole(&kept), "{kept:?}");
    assert_eq!(seen_by_jobs(&dir), snapshot(&untouched));
    let ended = resume(&dir, &scene.storage, OnConflict::RollBack);
    assert!(matches!(ended, Ok(Outcome::Committed)), "{ended:?}");
    assert_eq!(snapshot(&dir), snapshot(&whole));
    assert!(!has_staging(&dir));
}

/// The same for calls that are refused as long as the cause lasts.
#[test]
fn steps_that_are_refused_until_the_cause_is_gone_keep_the_job_and_it_goes_on() {
    let testbed = Testbed::new();
    let (mut kept, mut rolled_back) = (0, 0);
    let steps = [
        (Operation::Chmod, "one"),
        (Operation::SetTimes, "one"),
        (Operation::Rename, "two"),
        (Operation::Rename, "fresh"),
        (Operation::Rename, "new"),
        (Operation::Rename, "gone"),
        (Operation::Link, "two"),
        (Operation::Truncate, "cut"),
        (Operation::Write, "log"),
        (Operation::Write, "large"),
        (Operation::Create, "departed"),
        (Operation::Create, "commit.draft"),
    ];
    for (operation, name) in steps {
        for errno in ERRORS {
            let what = format!("{operation:?} of {name} refused with {errno}");
            let dir = testbed.fresh("refused");
            let plan = Plan::fail(errno).on(operation).times(u64::MAX);
            let plan = plan.when(move |call| call.path().file_name().is_some_and(|found| found == name));
            let ended = end(&dir, Publish::Staged, plan);
            assert!(ended.fired > 0, "{what}: it never came");
            if is_whole(&ended.outcome) {
                kept += 1;
                assert_goes_on(&testbed, &dir, &what);
            } else {
                // The record of what is left cannot be written either, or the roll back needs the same.
                let action = recovered(&dir, &real()).unwrap();
                match (&ended.outcome, action) {
                    (Ok(Outcome::Committed), _) => assert_eq!(snapshot(&dir), testbed.after, "{what}"),
                    (Ok(Outcome::RolledBack(_)), _) => {
                        rolled_back += 1;
                        assert_eq!(snapshot(&dir), testbed.before, "{what}");
                    }
                    (Err(_), RecoverAction::Kept) => {
                        kept += 1;
                        assert_goes_on(&testbed, &dir, &what);
                    }
                    other => panic!("{what}: {other:?}"),
                }
            }
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    println!("{kept} kept, {rolled_back} rolled back");
    assert!(kept > 5 * rolled_back, "{kept} {rolled_back}");
}

/// Somebody works in the directory while a job waits there: the job names what they changed, and waits on.
#[test]
fn what_others_changed_meanwhile_is_named_and_not_overwritten() {
    let testbed = Testbed::new();
    type Change = fn(&Path);
    let changes: [(&str, Change); 8] = [
        ("keep/log", |dir| std::fs::write(dir.join("keep/log"), "later").unwrap()),
        ("keep/replaced", |dir| {
            std::fs::write(dir.join("keep/replaced"), "later").unwrap();
        }),
        ("gone", |dir| std::fs::write(dir.join("gone/later"), "later").unwrap()),
        ("gone/deep", |dir| {
            std::fs::write(dir.join("gone/deep/later"), "x").unwrap();
        }),
        ("gone/x", |dir| std::fs::write(dir.join("gone/x"), "later").unwrap()),
        ("new", |dir| std::fs::create_dir(dir.join("new")).unwrap()),
        ("dead", |dir| std::fs::remove_file(dir.join("dead")).unwrap()),
        ("one", |dir| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o604);
            std::fs::set_permissions(dir.join("one"), mode).unwrap();
        }),
    ];
    for (path, change) in changes {
        let dir = testbed.kept("kept");
        change(&dir);
        let seen = seen_by_jobs(&dir);
        for _ in 0..2 {
            match resume(&dir, &real(), OnConflict::RollBack) {
                Ok(Outcome::Kept(Cause::Conflict(found), kept)) => {
                    assert!(kept.is_whole, "{path}");
                    assert!(
                        found.iter().any(|(named, _)| named == Path::new(path)),
                        "{path}: {found:?}"
                    );
                }
                other => panic!("{path}: {other:?}"),
            }
            assert_eq!(seen_by_jobs(&dir), seen, "{path}");
            assert_eq!(recovered(&dir, &real()).unwrap(), RecoverAction::Kept, "{path}");
        }
        // A file that is written in part is not won.
        if !path.starts_with("gone") && path != "new" && path != "keep/log" {
            let ended = resume(&dir, &real(), OnConflict::Overwrite);
            assert!(matches!(ended, Ok(Outcome::Committed)), "{path}: {ended:?}");
            assert!(snapshot(&dir) == testbed.after || path == "one", "{path}");
            assert!(!has_staging(&dir), "{path}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Death at any call while a kept job goes on, and of the recovery after it: it is finished, or kept and can go on once more.
#[test]
fn death_while_a_kept_job_goes_on_leaves_it_kept_or_finished() {
    let testbed = Testbed::new();
    let (mut finished, mut kept) = (0, 0);
    for n in 1.. {
        let dir = testbed.kept("died");
        let dies = Arc::new(Interposed::new(
            Arc::new(RealStorage),
            Faulty::new([Plan::stop_at_change(n)]),
        ));
        let ended = resume(&dir, &(dies.clone() as Arc<dyn Storage>), OnConflict::RollBack);
        if dies.hook().fired() == 0 {
            assert!(matches!(ended, Ok(Outcome::Committed)), "{ended:?}");
            assert_eq!(snapshot(&dir), testbed.after);
            assert!(n > 40, "{n}");
            break;
        }
        let again = Interposed::new(Arc::new(RealStorage), Faulty::new([Plan::stop_at_change(n % 13 + 1)]));
        let again: Arc<dyn Storage> = Arc::new(again);
        let _ = recovered(&dir, &again);
        let what = format!("stop at change {n}");
        match recovered(&dir, &real()).unwrap_or_else(|error| panic!("{what}: {error}")) {
            RecoverAction::Kept => {
                kept += 1;
                assert_goes_on(&testbed, &dir, &what);
            }
            // By this recovery, or by the one that then died of something else.
            RecoverAction::Finished | RecoverAction::RolledBack => {
                finished += 1;
                assert_eq!(snapshot(&dir), testbed.after, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(kept > 3 && finished > 10, "{kept} {finished}");
}

/// Moves all patches into the job's own directory, where an older elbow has them.
fn as_of_an_older_elbow(own: &Path) -> usize {
    let entries = std::fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path());
    let is_dir = |path: &PathBuf| is_patch_dir(path.file_name().unwrap());
    let mut moved = 0;
    for dir in entries.into_iter().filter(is_dir) {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            std::fs::rename(entry.path(), own.join(entry.file_name())).unwrap();
            moved += 1;
        }
        std::fs::remove_dir(&dir).unwrap();
    }
    moved
}

#[test]
fn what_an_older_elbow_has_left_goes_on() {
    let testbed = Testbed::new();
    let dir = testbed.kept("kept");
    assert!(as_of_an_older_elbow(&dir.join(name_in(&dir))) > 0);
    assert_goes_on(&testbed, &dir, "kept");
    let (mut moved, mut finished) = (0, 0);
    for n in 1.. {
        let dir = testbed.fresh("died");
        if end(&dir, Publish::Staged, Plan::stop_at_change(n)).fired == 0 {
            assert!(n > 40, "{n}");
            break;
        }
        if has_staging(&dir) {
            moved += as_of_an_older_elbow(&dir.join(name_in(&dir)));
        }
        let what = format!("stop at change {n}");
        let _ = recovered(&dir, &real()).unwrap_or_else(|error| panic!("{what}: {error}"));
        let tree = snapshot(&dir);
        assert!(tree == testbed.before || tree == testbed.after, "{what}");
        finished += usize::from(tree == testbed.after);
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(moved > 40 && finished > 10, "{moved} {finished}");
}

/// A job that is refused again while it goes on is kept again, wherever that is.
#[test]
fn a_job_that_is_refused_once_more_is_kept_once_more() {
    let testbed = Testbed::new();
    let (mut kept, mut committed, mut stuck) = (0, 0, 0);
    for n in 1.. {
        let what = format!("change {n} refused");
        let dir = testbed.kept("again");
        let plan = Plan::fail(Errno::NOSPC)
            .when(|call| !call.operation.only_reads())
            .nth(n);
        let refuses = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
        let ended = resume(&dir, &(refuses.clone() as Arc<dyn Storage>), OnConflict::RollBack);
        let came = refuses.hook().fired() == 1;
        match ended {
            Ok(Outcome::Committed) => {
                committed += 1;
                assert_eq!(snapshot(&dir), testbed.after, "{what}");
            }
            Ok(Outcome::Kept(..)) => {
                kept += 1;
                assert_goes_on(&testbed, &dir, &what);
            }
            Ok(other) => panic!("{what}: {other:?}"),
            Err(_) => {
                stuck += 1;
                match recovered(&dir, &real()).unwrap() {
                    RecoverAction::Kept => assert_goes_on(&testbed, &dir, &what),
                    // Or nothing was left.
                    _ => assert_eq!(snapshot(&dir), testbed.after, "{what}"),
                }
            }
        }
        std::fs::remove_dir_all(&dir).unwrap();
        if !came {
            break;
        }
    }
    assert!(kept > 20 && committed > 1, "{kept} {committed} {stuck}");
}

/// A recovery that cannot finish a commit keeps the job, which then goes on.
#[test]
fn a_commit_that_a_recovery_takes_back_goes_on_later() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("died");
    let refuses: Arc<dyn Storage> = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([late_refusal()])));
    let ended = end(&dir, Publish::Staged, death_in_time_of_the_late_refusal());
    assert!(ended.fired > 0 && ended.outcome.is_err(), "{ended:?}");
    assert_eq!(recovered(&dir, &refuses).unwrap(), RecoverAction::Kept);
    assert_goes_on(&testbed, &dir, "taken back by a recovery");
}

#[test]
fn a_kept_job_that_is_dropped_leaves_the_old_tree() {
    let testbed = Testbed::new();
    let dir = testbed.kept("kept");
    let root = RealStorage::open_root(&dir).unwrap();
    let dropped = crate::drop_kept(&real(), &root, &[name_in(&dir)]).unwrap();
    assert_eq!(dropped[0].action, RecoverAction::Dropped);
    assert_eq!(snapshot(&dir), testbed.before);
}

/// What has left a patch for its file, and cannot come back, is lost: such a job is rolled back, and says what it lost.
#[test]
fn a_job_that_lost_content_when_it_was_taken_back_is_not_kept() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("torn");
    let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let job = begin(faulty.clone(), &dir, Publish::Staged);
    run(&job);
    job.shared.drain(&mut |_| {}).unwrap();
    faulty.hook().arm(late_refusal());
    let is_patch = |name: &str| {
        name.strip_prefix('p')
            .is_some_and(|digits| digits.parse::<u64>().is_ok())
    };
    // Undo logs of small patches are written there, too.
    let is_refill = move |call: &elbow_file::double::Call<'_>| {
        let path = call.path();
        let name = path.file_name();
        call.bytes > 50_000 && name.is_some_and(|name| is_patch(&name.to_string_lossy()))
    };
    faulty
        .hook()
        .arm(Plan::fail(Errno::NOSPC).on(Operation::Write).when(is_refill));
    match job.commit_or_keep(Keep::Complete, &mut |_| {}) {
        Ok(Outcome::RolledBack(Cause::Deferred(errors))) => {
            assert_eq!(errors.len(), 2, "{errors:?}");
            assert_eq!(errors[1].path, Path::new("large"), "{errors:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(faulty.hook().fired(), 2);
    assert_eq!(snapshot(&dir), testbed.before);
}

/// What failed is kept for inspection only, and what was told to be rolled back is.
#[test]
fn only_what_is_complete_goes_on() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("failed");
    let job = begin(real(), &dir, Publish::Staged);
    run(&job);
    assert!(matches!(job.roll_back(true, &mut |_| {}), Ok(Outcome::Kept(_, kept)) if !kept.is_whole));
    let error = resume(&dir, &real(), OnConflict::RollBack).unwrap_err();
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(seen_by_jobs(&dir), testbed.before);

    let dir = testbed.fresh("postponed");
    let job = begin(real(), &dir, Publish::Staged);
    run(&job);
    assert!(is_whole(&job.postpone("another directory", &mut |_| {})));
    assert_goes_on(&testbed, &dir, "postponed");

    let dir = testbed.fresh("conflict");
    let job = begin(real(), &dir, Publish::Staged);
    run(&job);
    std::fs::write(dir.join("keep/log"), "later").unwrap();
    let ended = job.commit_or_keep(Keep::Complete, &mut |_| {});
    assert!(
        matches!(ended, Ok(Outcome::RolledBack(Cause::Conflict(_)))),
        "{ended:?}"
    );
    assert!(!has_staging(&dir));
}

/// A copy of a kept job, of a user's own by now, is not the job: what somebody else has planted in a tree that root copied is not obeyed.
#[test]
fn a_copy_of_a_kept_job_is_not_gone_on_with() {
    let testbed = Testbed::new();
    let dir = testbed.kept("kept");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .arg(&dir)
        .arg(testbed.temp.path().join("copy"))
        .status();
    assert!(copied.unwrap().success());
    let error = resume(&testbed.temp.path().join("copy"), &real(), OnConflict::RollBack).unwrap_err();
    assert!(error.to_string().contains("copied"), "{error}");
    assert_eq!(seen_by_jobs(&testbed.temp.path().join("copy")), testbed.before);
    assert_goes_on(&testbed, &dir, "the original");
}

/// What was kept for inspection says what is not there.
#[test]
fn what_could_not_be_stored_of_a_kept_job_is_named() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("full");
    let plan = Plan::fail(Errno::NOSPC).on(Operation::Write).times(u64::MAX);
    let plan = plan.when(|call| call.path().file_name().is_some_and(|name| name == "a"));
    let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
    let job = begin(faulty.clone(), &dir, Publish::Staged);
    run(&job);
    match job.commit_or_keep(Keep::Everything, &mut |_| {}) {
        Ok(Outcome::Kept(Cause::Deferred(_), kept)) => {
            assert!(!kept.is_whole);
            assert!(kept.missing.contains(&"new/a".into()), "{kept:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(faulty.hook().fired() > 0);
    assert_eq!(seen_by_jobs(&dir), testbed.before);
}

/// The disk is full from the moment on that everything is staged: there is no room for any record, and yet nothing is lost.
#[test]
fn a_disk_that_is_full_when_all_is_staged_loses_nothing() {
    for publish in [Publish::Staged, Publish::Eager] {
        let testbed = Testbed::new();
        let dir = testbed.fresh("full");
        let is_full = AtomicBool::new(false);
        let plan = Plan::fail(Errno::NOSPC).times(u64::MAX).when(move |call| {
            is_full.fetch_or(call.operation == Operation::SyncAll, Ordering::Relaxed);
            let takes_room = [Operation::Create, Operation::Mkdir, Operation::Write].contains(&call.operation);
            // What is written in place takes none.
            let is_draft = call.operation == Operation::Write && call.path().ends_with("commit.draft");
            takes_room && !is_draft && is_full.load(Ordering::Relaxed)
        });
        let ended = end(&dir, publish, plan);
        assert!(ended.fired > 0);
        assert!(is_whole(&ended.outcome), "{publish:?}: {ended:?}");
        assert_goes_on(&testbed, &dir, "a full disk");
    }
}

/// There was no room while the command ran, or when all was to be stored; at the end there is: what was refused is still in memory.
#[test]
fn what_found_no_room_is_tried_once_more_at_the_end() {
    let testbed = Testbed::new();
    let calls = {
        let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
        let job = begin(faulty.clone(), &testbed.fresh("counted"), Publish::Staged);
        let begun = faulty.hook().seen();
        run(&job);
        job.shared.drain(&mut |_| {}).unwrap();
        faulty.hook().seen() - begun
    };
    let (mut committed, mut rolled_back) = (0, 0);
    for publish in [Publish::Staged, Publish::Eager] {
        for n in 1..=calls {
            let what = format!("call {n} of {calls}");
            let dir = testbed.fresh("refused");
            let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
            let job = begin(faulty.clone(), &dir, publish);
            job.by_hand(true);
            run(&job);
            let plan = Plan::fail(Errno::NOSPC)
                .when(|call| !call.operation.only_reads())
                .nth(n);
            faulty.hook().arm(plan);
            job.by_hand(false);
            match job.commit_or_keep(Keep::Complete, &mut |_| {}) {
                Ok(Outcome::Committed) => {
                    committed += u64::from(!job.overcome_errors().is_empty());
                    assert_eq!(snapshot(&dir), testbed.after, "{what}");
                    assert_eq!(job.deferred_errors(), [], "{what}");
                }
                Ok(Outcome::RolledBack(cause)) => {
                    rolled_back += 1;
                    assert_eq!(snapshot(&dir), testbed.before, "{what}: {cause:?}");
                    let words = cause.to_string();
                    assert!(words.contains("No space"), "{what}: {words}");
                }
                Ok(Outcome::Kept(..)) => assert_goes_on(&testbed, &dir, &what),
                Err(_) => {
                    let action = recovered(&dir, &real()).unwrap();
                    let found = snapshot(&dir);
                    match action {
                        RecoverAction::Kept => assert_goes_on(&testbed, &dir, &what),
                        _ => assert!(
                            found == testbed.after || found == testbed.before,
                            "{what}: {action:?}, {found:#?}"
                        ),
                    }
                }
            }
            drop(job);
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    println!("{calls} calls: {committed} in spite of a refusal, {rolled_back} rolled back");
    assert!(committed > 20, "{committed} {rolled_back}");
}
