//! A storage that goes away while the results of a successful command are stored, and what of these is in doubt: nothing is lost in silence, and nothing that is in
//! doubt is published.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use elbow_file::double::{Operation, Plan};
use elbow_file::{Errno, RealStorage};

use crate::crash_test::{has_staging, recovered, seen_by_jobs};
use crate::options::Publish;
use crate::patch_files::{self, is_patch};
use crate::report::RecoverAction;
use crate::resume_test::{name_in, real};
use crate::saved_test::{Testbed, assert_goes_on, assert_same, end, is_saved, remove, stored};
use crate::schedule_test::{InJob, Op, snapshot};
use crate::staging::{MANIFEST, Manifest};
use crate::{Ino, Job, JobError, Keep, OnConflict, Outcome, SetIds, drop_saved, resume};

/// From some call on nothing is answered any more, as on a mount whose server, or whose process, is gone. What could be saved is not rolled back by the next
/// who finds the job, and all of it is there when the storage is.
#[test]
fn a_storage_that_goes_away_and_comes_back_has_all_of_it() {
    let (testbed, mut counts) = (Testbed::new(), BTreeMap::<&str, usize>::new());
    // What comes after the record is carried out by whoever finds it: `crash_test`.
    for n in (1..60).step_by(2).chain((60..).step_by(12)) {
        let what = format!("gone from call {n} on");
        let dir = testbed.fresh("gone");
        let before = seen_by_jobs(&dir);
        let gone = Plan::fail(Errno::NOTCONN).nth(n).times(u64::MAX);
        let ended = end(&testbed, &dir, Publish::Staged, Some(gone));
        if ended.fired == 0 {
            break;
        }
        let is_saved = is_saved(&ended.outcome);
        assert!(
            !is_saved || seen_by_jobs(&dir) == before,
            "{what}: something of it is seen"
        );
        let action = recovered(&dir, &real()).unwrap();
        let became = match (is_saved, action) {
            (true, _) => {
                assert_eq!(seen_by_jobs(&dir), before, "{what}");
                assert_goes_on(&testbed, &dir, &ended.shown, &what);
                "saved"
            }
            (false, RecoverAction::RolledBack) if has_same_names(&dir, &before) => {
                assert_eq!(seen_by_jobs(&dir), before, "{what}: {:?}", ended.outcome);
                "rolled back"
            }
            (false, RecoverAction::Kept) => {
                let root = RealStorage::open_root(&dir).unwrap();
                let resumed = resume(&real(), &root, &name_in(&dir), OnConflict::RollBack);
                assert!(matches!(resumed, Ok(Outcome::Committed)), "{what}: {resumed:?}");
                assert_same(&stored(&dir), &ended.shown, &what);
                "kept"
            }
            (false, _) => {
                assert_same(&stored(&dir), &ended.shown, &what);
                "finished"
            }
        };
        assert!(testbed.is_empty() && !has_staging(&dir), "{what}");
        remove(&dir);
        *counts.entry(became).or_default() += 1;
    }
    println!("{counts:?}");
    assert!(counts["saved"] >= 5 && counts["finished"] >= 5, "{counts:?}");
}

/// A disk of this machine that answers nothing any more may have lost what it had taken.
#[test]
fn a_disk_that_dies_is_not_believed() {
    let testbed = Testbed::new();
    for n in (1..50).step_by(7) {
        let dir = testbed.fresh("dead disk");
        let before = seen_by_jobs(&dir);
        let dead = Plan::fail(Errno::IO).nth(n).times(u64::MAX);
        let ended = end(&testbed, &dir, Publish::Staged, Some(dead));
        assert!(ended.fired > 0 && !is_saved(&ended.outcome), "{n}: {:?}", ended.outcome);
        assert_eq!(recovered(&dir, &real()).unwrap(), RecoverAction::RolledBack, "{n}");
        assert_eq!(seen_by_jobs(&dir), before, "{n}");
        assert!(testbed.is_empty(), "{n}");
        remove(&dir);
    }
}

/// Reads, and what is durable already, are as good as before, and nothing can be written, marked or removed any more: as when a disk is mounted read-only for
/// its errors.
#[test]
fn a_storage_that_becomes_read_only_keeps_all_of_it() {
    let (testbed, mut saved) = (Testbed::new(), 0);
    let changes = |call: &elbow_file::double::Call<'_>| {
        let syncs = matches!(call.operation, Operation::SyncAll | Operation::Sync | Operation::Close);
        !call.operation.only_reads() && !syncs
    };
    for n in (1..40).step_by(3) {
        let what = format!("read-only from change {n} on");
        let dir = testbed.fresh("read-only");
        let before = seen_by_jobs(&dir);
        let plan = Plan::fail(Errno::ROFS).when(changes).nth(n).times(u64::MAX);
        let ended = end(&testbed, &dir, Publish::Staged, Some(plan));
        assert!(ended.fired > 0, "{what}");
        let action = recovered(&dir, &real()).unwrap();
        assert_eq!(seen_by_jobs(&dir), before, "{what}: {:?}", ended.outcome);
        if is_saved(&ended.outcome) {
            saved += 1;
            assert_eq!(action, RecoverAction::Kept, "{what}");
            assert_goes_on(&testbed, &dir, &ended.shown, &what);
        }
        assert!(testbed.is_empty(), "{what}: {:?}", ended.outcome);
        remove(&dir);
    }
    assert!(saved >= 5, "{saved}");
}

/// What was saved is no proof that the rest is durable: a power cut, or a death, may have come before it was synced.
#[test]
fn who_dies_before_the_rest_is_known_to_be_durable_is_rolled_back() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("before");
    let before = seen_by_jobs(&dir);
    let gone = Plan::fail(Errno::NOTCONN).nth(5).times(u64::MAX);
    let ended = end(&testbed, &dir, Publish::Staged, Some(gone));
    assert!(is_saved(&ended.outcome), "{:?}", ended.outcome);
    let saved = testbed.saved(&dir).pop().unwrap();
    std::fs::remove_file(saved.path.join("left")).unwrap();
    assert_eq!(recovered(&dir, &real()).unwrap(), RecoverAction::RolledBack);
    assert_eq!(seen_by_jobs(&dir), before);
    let restored = testbed.restore(&real(), &dir);
    assert!(matches!(restored, Err(JobError::NotSaved { .. })), "{restored:?}");
    drop_saved(&saved.path).unwrap();
}

/// What cannot be read may be what was saved: such a job is left alone.
#[test]
fn a_job_whose_saved_part_cannot_be_read_is_not_rolled_back() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("unreadable");
    let gone = Plan::fail(Errno::NOTCONN).nth(5).times(u64::MAX);
    let ended = end(&testbed, &dir, Publish::Staged, Some(gone));
    assert!(is_saved(&ended.outcome), "{:?}", ended.outcome);
    let index = testbed.saved(&dir)[0].path.join("index");
    let bytes = std::fs::read(&index).unwrap();
    std::fs::write(&index, &bytes[1..]).unwrap();
    let root = RealStorage::open_root(&dir).unwrap();
    let recovery = || crate::recover::recover_jobs(&real(), &root, false, &|_| false).unwrap()[0].action;
    assert_eq!(recovery(), RecoverAction::Failed);
    std::fs::write(&index, &bytes).unwrap();
    assert_eq!(recovery(), RecoverAction::Kept);
    assert_goes_on(&testbed, &dir, &ended.shown, "it can be read again");
}

/// A laptop that got another name counted as another machine, where nothing can have been saved: the job was rolled back.
#[test]
fn what_was_saved_is_found_by_a_machine_that_has_another_name_or_number_now() {
    let testbed = Testbed::new();
    type Change = fn(&mut Manifest);
    let changes: [(&str, Change); 2] = [
        ("name", |manifest| manifest.host = "renamed".to_owned()),
        ("number", |manifest| {
            manifest.home.as_mut().unwrap().machine = "anew".to_owned();
        }),
    ];
    for (what, change) in changes {
        let dir = testbed.fresh(what);
        let gone = Plan::fail(Errno::NOTCONN).nth(5).times(u64::MAX);
        let ended = end(&testbed, &dir, Publish::Staged, Some(gone));
        assert!(is_saved(&ended.outcome), "{what}: {:?}", ended.outcome);
        let path = dir.join(name_in(&dir)).join(MANIFEST);
        let mut manifest = Manifest::decode(&std::fs::read(&path).unwrap()).unwrap();
        change(&mut manifest);
        std::fs::write(&path, manifest.encode()).unwrap();
        assert_eq!(recovered(&dir, &real()).unwrap(), RecoverAction::Kept, "{what}");
        assert_goes_on(&testbed, &dir, &ended.shown, what);
    }
}

/// A job in a directory of this name that was refused the creation of a file, and whose command has been told so of another one.
fn told_of_a_refusal(testbed: &Testbed, name: &str, errno: Errno) -> (PathBuf, Job) {
    let dir = testbed.fresh(name);
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    let refused = Plan::fail(errno).on(Operation::Create).named("victim");
    faulty.hook().arm(refused);
    InJob(&job).run(&Op::Create("victim".to_owned())).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while InJob(&job).run(&Op::Create("other".to_owned())) != Err(errno) {
        assert!(std::time::Instant::now() < until, "it is never told");
    }
    (dir, job)
}

fn assert_is_rolled_back(testbed: &Testbed, dir: &Path, job: &Job) {
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{outcome:?}");
    assert_eq!(snapshot(dir), snapshot(&testbed.fresh("untouched")));
    assert!(testbed.is_empty());
}

/// A command that was answered with somebody else's refusal, and went on, has not made what it should have.
#[test]
fn what_a_command_made_that_was_refused_something_is_not_kept() {
    let testbed = Testbed::new();
    let (dir, job) = told_of_a_refusal(&testbed, "told", Errno::PERM);
    assert_is_rolled_back(&testbed, &dir, &job);
}

/// A full disk refuses no removal. Who was refused one for want of room and went on was committed, with what it had removed still there.
#[test]
fn what_a_command_made_that_was_refused_a_removal_for_want_of_room_is_not_committed() {
    let testbed = Testbed::new();
    let (dir, job) = told_of_a_refusal(&testbed, "full", Errno::NOSPC);
    assert_eq!(InJob(&job).run(&Op::Unlink("dead".to_owned())), Err(Errno::NOSPC));
    assert_is_rolled_back(&testbed, &dir, &job);
}

/// A file that the command left open, and of which a part is stored: it is closed before anything is said of it.
#[test]
fn a_file_that_is_lost_while_another_is_refused_is_neither_committed_nor_kept() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("open");
    let before = snapshot(&dir);
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    InJob(&job).run(&Op::Create("open".to_owned())).unwrap();
    let ino = InJob(&job).walk("open").unwrap();
    job.insist(|job| job.open(ino, true, false)).unwrap();
    job.insist(|job| job.write(ino, 0, b"taken", SetIds::Stay)).unwrap();
    job.fsync(ino).unwrap();
    job.by_hand(true);
    InJob(&job).run(&Op::Mkdir("refused".to_owned())).unwrap();
    faulty
        .hook()
        .arm(Plan::fail(Errno::IO).on(Operation::Mkdir).named("refused"));
    faulty.hook().arm(Plan::fail(Errno::IO).on(Operation::Close));
    job.by_hand(false);
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    assert_eq!(faulty.hook().fired(), 2, "{outcome:?}");
    assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{outcome:?}");
    assert_eq!(snapshot(&dir), before);
    assert!(testbed.is_empty());
}

/// A disk that was full, and that says something else when it is tried once more. What it had never taken passed for lost, and all results went.
#[test]
fn what_the_storage_has_never_taken_is_saved_whatever_it_says_the_second_time() {
    for file in ["new", "keep/log"] {
        let testbed = Testbed::new();
        let dir = testbed.fresh("never");
        let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
        let is_content = |call: &elbow_file::double::Call<'_>| {
            let path = call.path();
            path.file_name().is_some_and(|name| name == "new" || is_patch(name))
        };
        let refused = |errno| Plan::fail(errno).on(Operation::Write).when(is_content);
        faulty.hook().arm(refused(Errno::NOSPC));
        faulty.hook().arm(refused(Errno::IO).nth(2).times(u64::MAX));
        if file == "new" {
            InJob(&job).run(&Op::Create("new".to_owned())).unwrap();
        }
        let write = Op::Write(file.to_owned(), 0, b"result".to_vec());
        InJob(&job).run(&write).unwrap();
        let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
        assert_eq!(faulty.hook().fired(), 2, "{file}: {outcome:?}");
        let is_saved = matches!(&outcome, Ok(Outcome::Kept(_, kept)) if kept.saved.is_some());
        assert!(is_saved, "{file}: {outcome:?}");
        let told: Vec<_> = job.deferred_errors().iter().map(|error| error.errno).collect();
        assert_eq!(told, [Errno::NOSPC, Errno::IO].map(Errno::raw_os_error), "{file}");
    }
}

/// fsync(2) with --durable was told to the command alone, and nothing tells of such an error twice.
#[test]
fn what_a_sync_within_the_job_has_told_to_be_lost_is_not_committed() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("synced");
    let before = snapshot(&dir);
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    InJob(&job).run(&Op::Create("new".to_owned())).unwrap();
    faulty.hook().arm(Plan::fail(Errno::IO).on(Operation::SyncAll));
    assert_eq!(job.fsync(Ino::ROOT), Err(Errno::IO));
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{outcome:?}");
    assert_eq!(snapshot(&dir), before);
}

/// The server has forgotten what it had taken: it was not on its disk when it went down.
#[test]
fn a_storage_that_comes_back_with_less_is_refused() {
    let testbed = Testbed::new();
    for lost in ["new", "patch", "link"] {
        let dir = testbed.fresh(lost);
        let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
        let run = |ops: &[Op]| ops.iter().for_each(|op| drop(InJob(&job).run(op).unwrap()));
        run(&[
            Op::Create("made".to_owned()),
            Op::Write("made".to_owned(), 0, vec![b'm'; 5000]),
            Op::Write("large".to_owned(), 100, vec![b'n'; 5000]),
            Op::Symlink("made".to_owned(), "link".to_owned()),
        ]);
        job.fsync(Ino::ROOT).unwrap();
        job.by_hand(true);
        run(&[Op::Create("late".to_owned())]);
        faulty.hook().arm(Plan::fail(Errno::NOTCONN).times(u64::MAX));
        job.by_hand(false);
        let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
        assert!(is_saved(&outcome), "{outcome:?}");
        assert_eq!(recovered(&dir, &real()).unwrap(), RecoverAction::Kept);
        let own = dir.join(name_in(&dir));
        let cut = match lost {
            "link" => {
                std::fs::remove_file(own.join("new/link")).unwrap();
                own.join("new/made")
            }
            "new" => own.join("new/made"),
            _ => {
                let is_patch = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == 5100);
                patch_files::below(&own)
                    .into_iter()
                    .find(is_patch)
                    .expect("the new content of the old file")
            }
        };
        let size = if lost == "link" { 5000 } else { 4096 };
        std::fs::File::options()
            .write(true)
            .open(&cut)
            .unwrap()
            .set_len(size)
            .unwrap();
        match testbed.restore(&real(), &dir) {
            Err(JobError::NotSaved { found, .. }) => assert!(found.contains("does not have any more"), "{found}"),
            other => panic!("{lost}: {other:?}"),
        }
    }
}

fn has_same_names(dir: &Path, before: &BTreeMap<PathBuf, String>) -> bool {
    seen_by_jobs(dir).keys().eq(before.keys())
}

/// A process that is started while somebody has it locked has the lock, too, until it runs its program.
#[test]
fn what_was_saved_is_waited_for_while_its_lock_is_let_go() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("locked");
    let gone = Plan::fail(Errno::NOTCONN).nth(5).times(u64::MAX);
    let ended = end(&testbed, &dir, Publish::Staged, Some(gone));
    assert!(is_saved(&ended.outcome), "{:?}", ended.outcome);
    let saved = testbed.saved(&dir).pop().unwrap();
    let data = std::fs::File::open(saved.path.join("data")).unwrap();
    rustix::fs::flock(&data, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(data);
        });
        drop_saved(&saved.path).unwrap();
    });
    recovered(&dir, &real()).unwrap();
    remove(&dir);
}
