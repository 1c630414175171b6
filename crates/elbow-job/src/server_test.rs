//! A server to which we are somebody else: what it will refuse is found out before the record, and the trials leave nothing, whatever is
//! refused, and whenever the job dies.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::path::Path;
use std::sync::Arc;

use elbow_file::double::{Call, Faulty, Interposed, Operation, Plan, Recorded, Recording};
use elbow_file::{Errno, RealStorage, RenameMode, Storage};

use crate::crash_test::{
    age_probes, begin, drop_kept_in, fresh_for, has_staging, kept_dir, old_times, recovered, recovery_dies,
};
use crate::job_files::RECORD;
use crate::options::Publish;
use crate::report::RecoverAction;
use crate::scenes_test::{Scene, operations_of_a_guest};
use crate::schedule_test::{InJob, Op, scratch, snapshot};
use crate::staging::{is_part_name, is_staging_name};
use crate::{Job, OnConflict, Options, Outcome, crash_test, refusal_test, resume};

#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one_where_a_server_knows_us_as_another() {
    for publish in [Publish::Staged, Publish::Eager] {
        crash_test::enumerate(&Scene::guest(publish));
    }
}

#[test]
fn a_call_that_is_refused_once_leaves_the_old_tree_or_the_new_one_where_a_server_knows_us_as_another() {
    for publish in [Publish::Staged, Publish::Eager] {
        refusal_test::enumerate(&Scene::guest(publish));
    }
}

#[test]
fn a_lost_answer_leaves_the_old_tree_or_the_new_one_where_a_server_knows_us_as_another() {
    refusal_test::enumerate_lost_answers(&Scene::guest(Publish::Staged));
}

#[test]
fn a_kind_of_call_that_is_always_refused_leaves_the_old_tree_or_the_new_one_where_a_server_knows_us_as_another() {
    refusal_test::enumerate_kinds(&Scene::guest(Publish::Staged), refusal_test::errors_of);
}

/// What such a server refuses, after enough that it grants.
fn refused(what: Vec<Op>) -> Vec<Op> {
    operations_of_a_guest().into_iter().chain(what).collect()
}

fn removal_in_a_closed_directory() -> Vec<Op> {
    refused(vec![Op::Unlink("closed/x".into()), Op::Rmdir("closed".into())])
}

fn removal_of_what_is_the_hosts() -> Vec<Op> {
    refused(vec![
        Op::Unlink("mixed/mine".into()),
        Op::Unlink("mixed/theirs".into()),
        Op::Rmdir("mixed".into()),
    ])
}

fn time_of_what_is_the_hosts() -> Vec<Op> {
    refused(vec![
        Op::Date("pool".into(), 1_000_000_000),
        Op::Date("shared".into(), 2_000),
    ])
}

const REFUSED: [fn() -> Vec<Op>; 3] = [
    removal_in_a_closed_directory,
    removal_of_what_is_the_hosts,
    time_of_what_is_the_hosts,
];

fn refused_scenes() -> impl Iterator<Item = Scene> {
    REFUSED.into_iter().map(|operations| Scene {
        operations,
        ..Scene::guest(Publish::Staged)
    })
}

fn job_over(storage: Arc<dyn Storage>, dir: &Path, operations: &[Op], on_conflict: OnConflict) -> Job {
    let root = RealStorage::open_root(dir).unwrap();
    let options = Options {
        on_conflict,
        in_flight: Some(1),
        ..Options::default()
    };
    let job = Job::begin(storage, root, dir, options).unwrap();
    for op in operations {
        let _ = InJob(&job).run(op);
    }
    job
}

/// Who asks to win conflicts wins them over other users of the directory, not over the server: the record was written, and could not be finished.
#[test]
fn what_a_server_refuses_fails_a_job_before_its_record() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    for (number, scene) in refused_scenes().enumerate() {
        for on_conflict in [OnConflict::RollBack, OnConflict::Overwrite] {
            let dir = fresh_for(&scene, temp.path(), "refused");
            let (before, times) = (snapshot(&dir), old_times(&dir));
            let recording = Arc::new(Interposed::new(scene.storage.clone(), Recording::default()));
            let job = job_over(recording.clone(), &dir, &(scene.operations)(), on_conflict);
            let outcome = job.commit(&mut |_| {});
            let what = format!("{number}, {on_conflict:?}");
            assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{what}: {outcome:?}");
            let log = recording.hook().log();
            let names_record = |call: &&Recorded| call.other.as_ref().is_some_and(|name| name == RECORD);
            assert_eq!(
                log.iter().filter(names_record).count(),
                0,
                "{what}: no record has its name"
            );
            assert_eq!((snapshot(&dir), old_times(&dir)), (before, times), "{what}");
            assert!(!has_staging(&dir), "{what}");
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}

/// It was looked for where it is not yet, and the job was refused: or what is the host's was tried in its place.
#[test]
fn the_time_of_a_new_directory_is_tried_on_nothing_old() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let s = str::to_owned;
    let sealed = |path: &str| {
        [
            Op::Mkdir(s(path)),
            Op::Chmod(s(path), 0o555),
            Op::Date(s(path), 1_000_000_000),
        ]
    };
    let in_what_moves =
        sealed("moves/new")
            .into_iter()
            .chain([Op::Rename(s("moves"), s("moved"), RenameMode::Replace)]);
    let instead = [
        Op::Mkdir(s("new")),
        Op::Rename(s("shared"), s("new/shared"), RenameMode::Replace),
    ]
    .into_iter()
    .chain(sealed("shared"));
    for operations in [in_what_moves.collect::<Vec<_>>(), instead.collect()] {
        let scene = Scene::guest(Publish::Staged);
        let dir = fresh_for(&scene, temp.path(), "new");
        let job = job_over(scene.storage.clone(), &dir, &operations, OnConflict::RollBack);
        let outcome = job.commit(&mut |_| {});
        assert!(matches!(outcome, Ok(Outcome::Committed)), "{operations:?}: {outcome:?}");
        let made = operations
            .iter()
            .any(|op| matches!(op, Op::Mkdir(path) if path == "shared"));
        let path = dir.join(if made { "shared" } else { "moved/new" });
        let modified = std::fs::metadata(path).unwrap().modified().unwrap();
        let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), 1_000_000_000);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Death at any call of a job that is refused, and of its recovery.
#[test]
fn death_at_any_call_of_a_job_that_a_server_refuses_leaves_the_old_tree() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let (mut deaths, mut recoveries) = (0, 0);
    for scene in refused_scenes() {
        let before = snapshot(&fresh_for(&scene, temp.path(), "untouched"));
        for n in 1.. {
            let dir = fresh_for(&scene, temp.path(), "died");
            let (_, has_died) = scene.run(&dir, Some(n));
            recoveries += u64::from(has_died && recovery_dies(&dir, &scene.storage, n % 7 + 1));
            age_probes(&dir);
            let action = recovered(&dir, &scene.storage).unwrap();
            assert_eq!(action, RecoverAction::RolledBack, "stop at change {n}");
            assert_eq!(snapshot(&dir), before, "stop at change {n}");
            std::fs::remove_dir_all(&dir).unwrap();
            if !has_died {
                break;
            }
            deaths += 1;
        }
        std::fs::remove_dir_all(temp.path().join("untouched")).unwrap();
    }
    assert!(deaths > 90 && recoveries > 40, "{deaths} {recoveries}");
    println!("{deaths} deaths, {recoveries} of recoveries");
}

/// A call of such a job is refused, too.
#[test]
fn a_call_that_is_refused_once_in_a_job_that_a_server_refuses_leaves_the_old_tree() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let mut refusals = 0;
    for scene in refused_scenes() {
        let before = snapshot(&fresh_for(&scene, temp.path(), "untouched"));
        for n in 1.. {
            let dir = fresh_for(&scene, temp.path(), "refused");
            let errno = [Errno::IO, Errno::ACCESS, Errno::BUSY, Errno::NOSPC][n as usize % 4];
            let faulty = Arc::new(Interposed::new(scene.storage.clone(), Faulty::default()));
            let job = begin(faulty.clone(), &dir, scene.publish);
            faulty.hook().arm(Plan::fail(errno).nth(n));
            let was_told = (scene.operations)().iter().any(|op| InJob(&job).run(op).is_err());
            let outcome = job.commit(&mut |_| {});
            let what = format!("call {n} refused with {errno}: {outcome:?}");
            assert!(was_told || !matches!(outcome, Ok(Outcome::Committed)), "{what}");
            let is_over = matches!(outcome, Ok(Outcome::RolledBack(_)));
            assert!(!is_over || snapshot(&dir) == before, "{what}");
            recovered(&dir, &scene.storage).unwrap();
            assert!(was_told || snapshot(&dir) == before, "{what}");
            assert!(!has_staging(&dir), "{what}");
            std::fs::remove_dir_all(&dir).unwrap();
            if faulty.hook().fired() == 0 {
                break;
            }
            refusals += 1;
        }
        std::fs::remove_dir_all(temp.path().join("untouched")).unwrap();
    }
    assert!(refusals > 300, "{refusals}");
    println!("{refusals} refusals");
}

/// Something of a trial is in a directory that the job removes.
fn has_trial(dir: &Path) -> bool {
    ["free", "free/deep"].iter().any(|sub| {
        let entries = std::fs::read_dir(dir.join(sub)).into_iter().flatten();
        entries
            .map(Result::unwrap)
            .any(|entry| is_staging_name(&entry.file_name()))
    })
}

/// It had a name that nobody knew of, and stayed for ever in a directory that was not the job's.
#[test]
fn a_trial_that_a_job_died_over_is_undone_by_the_next_recovery() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let scene = Scene::guest(Publish::Staged);
    let before = snapshot(&fresh_for(&scene, temp.path(), "untouched"));
    let mut trials = 0;
    for n in 1.. {
        let dir = fresh_for(&scene, temp.path(), "died");
        let (_, has_died) = scene.run(&dir, Some(n));
        if has_died && has_trial(&dir) {
            trials += 1;
            assert_eq!(recovered(&dir, &scene.storage).unwrap(), RecoverAction::RolledBack);
            assert_eq!(snapshot(&dir), before, "stop at change {n}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        if !has_died {
            break;
        }
    }
    assert!(trials >= 2, "{trials}");
}

/// The second half of a trial is refused, as often as it is tried, and then no more.
#[test]
fn a_trial_whose_end_is_refused_is_undone_with_the_job_or_by_the_next_recovery() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let scene = Scene::guest(Publish::Staged);
    // ESTALE was taken for that of a directory that somebody had removed: the journal went, and the rest stayed.
    for (times, errno) in [
        (1, Errno::IO),
        (u64::MAX, Errno::IO),
        (1, Errno::STALE),
        (u64::MAX, Errno::STALE),
    ] {
        let dir = fresh_for(&scene, temp.path(), "refused");
        let before = snapshot(&dir);
        let ends_trial = |call: &Call<'_>| call.operation == Operation::Rmdir && call.name.is_some_and(is_part_name);
        let plan = Plan::fail(errno).times(times).when(ends_trial);
        let faulty = Arc::new(Interposed::new(scene.storage.clone(), Faulty::new([plan])));
        let job = job_over(faulty.clone(), &dir, &(scene.operations)(), OnConflict::RollBack);
        let outcome = job.commit(&mut |_| {});
        assert!(faulty.hook().fired() >= 1);
        let is_undone = matches!(outcome, Ok(Outcome::RolledBack(_)));
        assert_eq!(is_undone, times == 1, "{outcome:?}");
        assert_eq!(has_staging(&dir), times > 1);
        drop(job);
        recovered(&dir, &scene.storage).unwrap();
        assert_eq!(snapshot(&dir), before);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// A job that waits, with all that it made.
fn postponed(scene: &Scene, dir: &Path) {
    let job = job_over(scene.storage.clone(), dir, &(scene.operations)(), OnConflict::RollBack);
    let outcome = job.postpone("another directory", &mut |_| {});
    assert!(
        matches!(&outcome, Ok(Outcome::Kept(_, kept)) if kept.is_whole),
        "{outcome:?}"
    );
}

fn resumed(storage: &Arc<dyn Storage>, dir: &Path) -> Result<Outcome, crate::JobError> {
    let root = RealStorage::open_root(dir).unwrap();
    let name = kept_dir(dir).file_name().unwrap().to_owned();
    resume(storage, &root, &name, OnConflict::RollBack)
}

/// Its manifest was looked for under the name that it had before the job was kept: no kept job could go on there.
#[test]
fn a_kept_job_goes_on_where_a_server_knows_us_as_another() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let scene = Scene::guest(Publish::Staged);
    let whole = fresh_for(&scene, temp.path(), "whole");
    scene.run(&whole, None);
    let after = snapshot(&whole);
    let dir = fresh_for(&scene, temp.path(), "kept");
    let before = snapshot(&dir);
    postponed(&scene, &dir);
    let outcome = resumed(&scene.storage, &dir);
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    assert_eq!(snapshot(&dir), after);
    for scene in refused_scenes() {
        let dir = fresh_for(&scene, temp.path(), "refused");
        postponed(&scene, &dir);
        let outcome = resumed(&scene.storage, &dir);
        assert!(matches!(outcome, Ok(Outcome::Kept(..))), "{outcome:?}");
        drop_kept_in(&dir, &scene.storage).unwrap();
        assert_eq!(snapshot(&dir), before);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Whoever dies while a kept job goes on leaves it kept, committed or as it was, and nothing of the trials when it is dropped.
#[test]
fn death_while_a_kept_job_goes_on_leaves_nothing_of_its_trials() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let scene = Scene::guest(Publish::Staged);
    let before = snapshot(&fresh_for(&scene, temp.path(), "untouched"));
    let whole = fresh_for(&scene, temp.path(), "whole");
    scene.run(&whole, None);
    let after = snapshot(&whole);
    let (mut deaths, mut trials, mut dropped, mut finished) = (0, 0, 0, 0);
    for n in 1.. {
        let dir = fresh_for(&scene, temp.path(), "kept");
        postponed(&scene, &dir);
        let dies = Faulty::new([Plan::stop_at_change(n)]);
        let dies = Arc::new(Interposed::new(scene.storage.clone(), dies));
        let _ = resumed(&(dies.clone() as Arc<dyn Storage>), &dir);
        let has_died = dies.hook().fired() > 0;
        trials += u64::from(has_trial(&dir));
        age_probes(&dir);
        if has_staging(&dir) && recovered(&dir, &scene.storage).unwrap() == RecoverAction::Kept {
            dropped += 1;
            drop_kept_in(&dir, &scene.storage).unwrap();
            assert_eq!(snapshot(&dir), before, "stop at change {n}");
        } else {
            finished += 1;
            assert_eq!(snapshot(&dir), after, "stop at change {n}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
        if !has_died {
            break;
        }
        deaths += 1;
    }
    assert!(
        trials >= 2 && dropped > 5 && finished > 20,
        "{trials} {dropped} {finished}"
    );
    println!("{deaths} deaths: {dropped} dropped, {finished} finished, {trials} over a trial");
}
