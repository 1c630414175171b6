//! The far end of a connection ends its own jobs, whatever a recovery that comes from elsewhere would say of them.

#![allow(clippy::disallowed_methods, reason = "the test looks at real directories")]

use std::ffi::OsStr;
use std::sync::Arc;

use elbow_file::double::{Call, Faulty, Interposed, Operation, Plan};
use elbow_file::{ACCESS_ACL, DEFAULT_ACL, Errno, FileType, RealStorage, RenameMode, Storage};

use crate::api::{Caller, Ino};
use crate::liveness::Lock;
use crate::recover::Recovery;
use crate::report::RecoverAction;
use crate::schedule_test::{InJob, Op};
use crate::{FarJobs, Job, Options};

/// Where files cannot be locked, the process of a job tells whether it lives: so one that ended its own job found that it was running, and left it.
#[test]
fn where_files_cannot_be_locked_a_process_ends_its_own_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan::fail(Errno::NOLCK)
        .when(|call: &Call<'_>| call.operation == Operation::TryLock)
        .times(u64::MAX);
    let lockless = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
    let storage: Arc<dyn Storage> = lockless.clone();
    let root = RealStorage::open_root(dir.path()).unwrap();
    let job = Job::begin(storage.clone(), root.clone(), dir.path(), Options::default()).unwrap();
    InJob(&job).run(&Op::Mkdir("new".into())).unwrap();
    job.shared.drain(&mut |_| {}).unwrap();
    let name = job.name().to_owned();
    drop(job);
    assert!(dir.path().join(&name).exists() && lockless.hook().fired() > 0);
    let ended = |recovery: Recovery<'_>| recovery.end(&name).unwrap().map(|ended| ended.action);
    let recovery = || Recovery::new(&*storage, &root, true).unwrap();
    assert_eq!(ended(recovery()), Some(RecoverAction::Running), "anybody's");
    assert_eq!(
        ended(recovery().of_own_jobs(&Lock::default())),
        Some(RecoverAction::RolledBack),
        "its own"
    );
    assert!(!dir.path().join(&name).exists());
}

/// The lock of a job used to be given up before its process ended it: a job beside it that began at this moment found it free, ended the job as
/// one that had died, and said so.
#[test]
fn who_ends_its_own_job_keeps_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage);
    let root = RealStorage::open_root(dir.path()).unwrap();
    let job = Job::begin(storage.clone(), root.clone(), dir.path(), Options::default()).unwrap();
    InJob(&job).run(&Op::Mkdir("new".into())).unwrap();
    job.shared.drain(&mut |_| {}).unwrap();
    let name = job.name().to_owned();
    let ended = |recovery: Recovery<'_>| recovery.end(&name).unwrap().map(|ended| ended.action);
    let recovery = || Recovery::new(&*storage, &root, true).unwrap();
    assert_eq!(ended(recovery()), Some(RecoverAction::Running), "anybody's");
    assert_eq!(
        ended(recovery().of_own_jobs(&job.shared.lock)),
        Some(RecoverAction::RolledBack),
        "its own, which has not been given up before"
    );
    assert!(!dir.path().join(&name).exists());
}

/// A version, and an entry for one user.
fn acl_of(user: u32) -> Vec<u8> {
    [&[2, 0, 0, 0, 2, 0, 6, 0][..], &user.to_le_bytes()].concat()
}

/// The record that is durable there has that machine's numbers.
#[test]
fn owners_of_a_record_are_translated_wherever_they_are() {
    use crate::action::NewAttrs;
    use crate::commit::{Record, RecordAttributes};
    let owned = |owner| NewAttrs {
        owner,
        ..NewAttrs::default()
    };
    let attributes = RecordAttributes {
        path: "old".into(),
        is_dir: false,
        attrs: owned(Some((1000, 7))),
        before: owned(Some((5005, 1000))),
    };
    let unset = RecordAttributes {
        path: "b".into(),
        is_dir: true,
        attrs: owned(None),
        before: NewAttrs {
            xattrs: vec![(ACCESS_ACL.into(), Some(acl_of(1000))), (DEFAULT_ACL.into(), None)],
            ..NewAttrs::default()
        },
    };
    let record = Record {
        attributes: vec![attributes, unset],
        ..Record::default()
    };
    let swap = |id| match id {
        1000 => 5005,
        5005 => 1000,
        id => id,
    };
    let there = record.with_owners(|(uid, gid)| (swap(uid), gid));
    let owners = |of: &RecordAttributes| (of.attrs.owner, of.before.owner);
    assert_eq!(owners(&there.attributes[0]), (Some((5005, 7)), Some((1000, 1000))));
    assert_eq!(owners(&there.attributes[1]), (None, None));
    let listed = &there.attributes[1].before.xattrs;
    assert_eq!(
        listed[0].1.as_deref(),
        Some(&acl_of(5005)[..]),
        "whom a list of rights names"
    );
    assert_eq!(listed[1].1, None);
}

#[test]
fn a_connection_without_jobs_ends_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("old"), "old").unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    let jobs = FarJobs::new(Arc::new(RealStorage), root);
    assert!(jobs.end().is_empty());
    assert_eq!(
        RealStorage::open_root(dir.path())
            .and_then(|root| RealStorage.stat(&root, OsStr::new("old")))
            .map(|stat| stat.size),
        Ok(3)
    );
}

/// They could be given to anything, were committed, and no later job saw them: nothing there could be removed, and a directory of the same name rolled
/// back the job that made it.
#[test]
fn names_of_directories_of_jobs_are_given_to_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("old"), "x").unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    let job = Job::begin(Arc::new(RealStorage), root, dir.path(), Options::default()).unwrap();
    let me = Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: 0,
    };
    let old = job.insist(|job| job.lookup(Ino::ROOT, OsStr::new("old"))).unwrap().ino;
    let refused = |made: Result<(), Errno>, what: &str| assert_eq!(made, Err(Errno::PERM), "{what}");
    for name in [".elbow-0123456789abcdef-1.000000005", ".elbow-0123456789abcdef-part"] {
        let (at, name) = (Ino::ROOT, OsStr::new(name));
        refused(job.insist(|job| job.create(me, at, name, 0o600)).map(drop), "create");
        refused(job.insist(|job| job.mkdir(me, at, name, 0o755)).map(drop), "mkdir");
        refused(
            job.insist(|job| job.symlink(me, at, name, OsStr::new("x"))).map(drop),
            "symlink",
        );
        refused(
            job.insist(|job| job.mknod(me, at, name, FileType::Fifo, 0o600, 0))
                .map(drop),
            "mknod",
        );
        refused(job.insist(|job| job.link(old, at, name)).map(drop), "link");
        for mode in [RenameMode::Replace, RenameMode::NoReplace] {
            refused(
                job.insist(|job| job.rename(at, OsStr::new("old"), at, name, mode)),
                "rename",
            );
        }
        // As a job in the job does.
        job.insist(|job| job.mkdir(me, at, name, 0o700)).unwrap();
        refused(
            job.insist(|job| job.rename(at, name, at, OsStr::new("old"), RenameMode::Exchange)),
            "exchange",
        );
        job.insist(|job| job.rmdir(at, name)).unwrap();
    }
    job.insist(|job| job.mkdir(me, Ino::ROOT, OsStr::new(".elbow-0123456789abcdef"), 0o755))
        .unwrap();
}
