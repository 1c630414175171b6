//! Jobs that are left in a directory: they are shown as they are, and one that is stuck is given up with all that stays named.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use elbow_file::double::{Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, Handle, RealStorage, Storage};

use crate::crash_test::{begin, has_file_of_job, has_staging, seen_by_jobs};
use crate::job_files::{RECORD, UNDO};
use crate::options::Publish;
use crate::report::RecoverAction;
use crate::resume_test::{Testbed, end, is_whole, late_refusal, name_in, real};
use crate::scenes_test::operations;
use crate::schedule_test::{InJob, Op, snapshot};
use crate::{JobState, UnfinishedJob, abandon, retry, show};

fn root(dir: &Path) -> Handle {
    RealStorage::open_root(dir).unwrap()
}

fn shown(dir: &Path) -> UnfinishedJob {
    let before = snapshot(dir);
    let mut all = show(&real(), &root(dir)).unwrap();
    assert_eq!(snapshot(dir), before, "it is only looked at");
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// The attributes of a file can be neither set nor put back.
fn stuck_on(name: &'static str) -> Plan {
    Plan::fail(Errno::IO).on(Operation::Chmod).named(name).times(u64::MAX)
}

#[test]
fn each_state_is_shown() {
    let testbed = Testbed::new();
    let dir = testbed.kept("kept");
    let left = shown(&dir);
    assert_eq!((left.state, left.is_whole), (JobState::Kept, true), "{left:?}");
    assert!(
        left.why
            .as_deref()
            .is_some_and(|why| why.contains("set attributes of one")),
        "{left:?}"
    );
    assert_eq!(left.pid, Some(std::process::id()));
    // new, new/a, keep/fresh, keep/replaced, dead, new/moved/more is in a directory that is old; three patches
    assert!(left.objects >= 8 && left.bytes > 50_000, "{left:?}");

    let dir = testbed.fresh("failed");
    let job = begin(real(), &dir, Publish::Staged);
    for op in operations() {
        InJob(&job).run(&op).unwrap();
    }
    job.shared.drain(&mut |_| {}).unwrap();
    assert_eq!(shown(&dir).state, JobState::Running);
    job.roll_back(true, &mut |_| {}).unwrap();
    let left = shown(&dir);
    assert_eq!((left.state, left.is_whole), (JobState::Kept, false), "{left:?}");

    let dir = testbed.fresh("stuck");
    assert!(end(&dir, Publish::Staged, stuck_on("one")).outcome.is_err());
    let left = shown(&dir);
    assert!(
        matches!(left.state, JobState::TakenBack | JobState::Running),
        "{left:?}"
    );
    let dir = testbed.fresh("committed");
    let late = Plan::stop_at(1).when({
        let is_dead = std::sync::atomic::AtomicBool::new(false);
        move |call| {
            let is_late = call.operation == Operation::Chmod && call.name.is_some_and(|name| name == "one");
            is_dead.fetch_or(is_late, std::sync::atomic::Ordering::Relaxed) || is_late
        }
    });
    assert!(end(&dir, Publish::Staged, late).outcome.is_err());
    assert!(matches!(shown(&dir).state, JobState::Committed | JobState::Running));
    let planted = testbed.temp.path().join("planted");
    std::fs::create_dir_all(planted.join(name_in(&dir))).unwrap();
    let left = shown(&planted);
    assert_eq!(left.state, JobState::NotOurs, "{left:?}");
}

/// What can be taken back is, and what cannot is named: nothing of that is silent, and nobody is blocked any more.
#[test]
fn a_job_that_is_given_up_names_what_stays() {
    let testbed = Testbed::new();
    type Make = fn() -> Plan;
    let cases: [(Make, &str); 4] = [
        (
            || {
                // It gets its new mode, and neither its time nor the old mode again.
                let plan = Plan::fail(Errno::IO).times(u64::MAX);
                plan.when(|call| {
                    let is_it = call.name.is_some_and(|name| name == "one");
                    let mode = |path| std::fs::metadata(path).map_or(0, |found| found.permissions().mode() & 0o777);
                    is_it
                        && (call.operation == Operation::SetTimes
                            || call.operation == Operation::Chmod && mode(call.path()) != 0o666)
                })
            },
            // That is what it was called before.
            "two",
        ),
        (
            || {
                // Before the commit it is tried whether it can be written, and it can.
                let plan = Plan::fail(Errno::IO).on(Operation::Write).times(u64::MAX);
                plan.when(|call| {
                    let path = call.path();
                    let root = path.ancestors().nth(2).filter(|_| path.ends_with("keep/cut"));
                    root.is_some_and(|root| has_file_of_job(root, &[&[RECORD], &UNDO[..]].concat()))
                })
            },
            "keep/cut",
        ),
        (
            || {
                // What has left its name cannot get it back.
                let plan = Plan::fail(Errno::IO).times(u64::MAX);
                plan.when(|call| {
                    let name = call
                        .path()
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned();
                    let is_late = call.operation == Operation::Chmod && name == "one";
                    is_late || call.operation == Operation::Rename && name.contains("-d")
                })
            },
            "gone",
        ),
        (late_refusal, ""),
    ];
    let mut logs = 0;
    for (plan, path) in cases {
        let dir = testbed.fresh("stuck");
        let refuses = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan()])));
        let ended = end(&dir, Publish::Staged, plan());
        if path.is_empty() {
            assert!(is_whole(&ended.outcome), "{ended:?}");
            assert!(abandon(&real(), &root(&dir), &name_in(&dir)).is_err());
            std::fs::remove_dir_all(&dir).unwrap();
            continue;
        }
        assert!(ended.outcome.is_err(), "{path}: {ended:?}");
        let refuses: Arc<dyn Storage> = refuses;
        let given_up = abandon(&refuses, &root(&dir), &name_in(&dir)).unwrap();
        assert_eq!(given_up.job.action, RecoverAction::Kept, "{given_up:?}");
        let named: Vec<&Path> = given_up.stays.iter().map(|(path, _)| &**path).collect();
        assert!(named.contains(&Path::new(path)), "{given_up:?}");
        for (_, what) in &given_up.stays {
            let Some((_, log)) = what.split_once("what it overwrote is in ") else {
                continue;
            };
            let log = log.split(" (").next().expect("a path");
            assert!(dir.join(log).is_file(), "{what}");
            logs += 1;
        }
        let (mut seen, mut before) = (seen_by_jobs(&dir), testbed.before.clone());
        for (path, _) in &given_up.stays {
            seen.retain(|found, _| !found.starts_with(path));
            before.retain(|found, _| !found.starts_with(path));
        }
        assert_eq!(seen, before, "{given_up:?}");
        let left = shown(&dir);
        assert_eq!(left.state, JobState::Kept);
        assert!(left.why.is_some_and(|why| why.contains(path)));
        // The next job works there.
        let job = begin(real(), &dir, Publish::Staged);
        InJob(&job).run(&Op::Mkdir("of the next job".into())).unwrap();
        assert!(matches!(job.commit(&mut |_| {}), Ok(crate::Outcome::Committed)));
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(logs > 0);
}

#[test]
fn a_job_that_is_not_stuck_is_not_given_up() {
    let testbed = Testbed::new();
    let dir = testbed.kept("kept");
    let error = abandon(&real(), &root(&dir), &name_in(&dir)).unwrap_err();
    assert!(error.to_string().contains("--drop"), "{error}");
    let error = abandon(&real(), &root(&dir), "keep".as_ref()).unwrap_err();
    assert!(error.to_string().contains("no job has such a name"), "{error}");
}

/// What was kept goes on, and what was stuck is ended, when it is tried again by name.
#[test]
fn a_job_that_is_tried_again_by_name_ends() {
    let testbed = Testbed::new();
    let dir = testbed.kept("kept");
    let refuses: Arc<dyn Storage> = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([late_refusal()])));
    let again = retry(&refuses, &root(&dir), &name_in(&dir), false).unwrap();
    assert!(
        again.action == RecoverAction::Kept && again.message.contains("No space"),
        "{again:?}"
    );
    let again = retry(&real(), &root(&dir), &name_in(&dir), false).unwrap();
    assert_eq!(again.action, RecoverAction::Finished, "{again:?}");
    assert!(snapshot(&dir) == testbed.after && !has_staging(&dir));

    let dir = testbed.fresh("stuck");
    let ended = end(&dir, Publish::Staged, stuck_on("one"));
    assert!(!is_whole(&ended.outcome) && ended.outcome.is_err());
    let again = retry(&real(), &root(&dir), &name_in(&dir), false).unwrap();
    assert_eq!(again.action, RecoverAction::Finished, "{again:?}");
    assert_eq!(snapshot(&dir), testbed.after);
    assert!(retry(&real(), &root(&dir), "keep".as_ref(), false).is_err());
}

/// Where nothing is refused any more, what is given up is gone.
#[test]
fn a_job_that_is_given_up_when_the_cause_is_gone_leaves_nothing() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("stuck");
    assert!(end(&dir, Publish::Staged, stuck_on("one")).outcome.is_err());
    let given_up = abandon(&real(), &root(&dir), &name_in(&dir)).unwrap();
    assert_eq!(
        (given_up.job.action, given_up.stays.len()),
        (RecoverAction::RolledBack, 0)
    );
    assert_eq!(snapshot(&dir), testbed.before);
}
