//! A storage that refuses each kind of thing: the command hears of it at once, once per kind, and the job commits.
//!
//! The story: what the storage refused was found in the background. `mv` from elsewhere had removed its source by then, and
//! the job rolled back: the file was lost.

#![allow(clippy::disallowed_methods, reason = "the test looks at real directories")]

use std::ffi::OsStr;
use std::sync::Arc;

use elbow_file::double::{Call, Faulty, Interposed, Operation, OwnerRights, Plan};
use elbow_file::{Errno, FileType, RealStorage};

use crate::inherit_test::disk;
use crate::model::{ACCESS_ACL, DEFAULT_ACL};
use crate::schedule_test::scratch;
use crate::{Attr, Caller, Ino, Job, Options, Outcome, SetAttr, SetIds, XattrMode};

/// Whoever runs the tests: what is made belongs to the caller without a change of its owner.
fn me() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: 0,
    }
}

type OpResult = Result<(), Errno>;

fn n(name: &str) -> &OsStr {
    OsStr::new(name)
}

struct Fixture {
    dir: tempfile::TempDir,
    storage: Arc<Interposed<Faulty>>,
    job: Job,
}

impl Fixture {
    /// A job on a storage that refuses these calls for ever.
    fn refusing(errno: Errno, which: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static) -> Self {
        rustix::process::umask(rustix::fs::Mode::empty());
        let dir = scratch();
        std::fs::write(dir.path().join("old"), "old").unwrap();
        let plan = Plan::fail(errno).times(u64::MAX).when(which);
        let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
        let root = RealStorage::open_root(dir.path()).unwrap();
        let job = Job::begin(storage.clone(), root, dir.path(), Options::default()).unwrap();
        Self { dir, storage, job }
    }

    fn file(&self, name: &str) -> Attr {
        let made = self
            .job
            .insist(|job| job.create(me(), Ino::ROOT, n(name), 0o644))
            .unwrap();
        self.job
            .insist(|job| job.write(made.ino, 0, b"data", SetIds::Stay))
            .unwrap();
        self.job.release(made.ino, true);
        made
    }

    /// The operation is refused twice by one call to the storage, and the job commits what else it did.
    fn assert_refused(&self, errno: Errno, operation: impl Fn(&Job) -> OpResult) {
        for _ in 0..2 {
            assert_eq!(operation(&self.job), Err(errno));
        }
        assert_eq!(self.storage.hook().fired(), 1, "the storage is asked once");
        self.assert_commits();
    }

    fn assert_commits(&self) {
        self.file("kept");
        let outcome = self.job.commit(&mut |_| {}).unwrap();
        assert!(matches!(outcome, Outcome::Committed), "{outcome:?}");
        assert_eq!(std::fs::read(self.dir.path().join("kept")).unwrap(), b"data");
        let staged = |name: &OsStr| name.as_encoded_bytes().starts_with(b".elbow-");
        let names = std::fs::read_dir(self.dir.path()).unwrap();
        assert!(
            !names.map(|entry| entry.unwrap().file_name()).any(|name| staged(&name)),
            "left behind"
        );
    }
}

#[test]
fn extended_attributes_that_a_storage_refuses_are_refused_at_once() {
    for namespace in ["user", "trusted", "security"] {
        let is_that = move |call: &Call<'_>| {
            let sets = matches!(call.operation, Operation::SetXattr | Operation::SetXattrHandle);
            sets && call
                .other
                .is_some_and(|key| key.as_encoded_bytes().starts_with(namespace.as_bytes()))
        };
        let fixture = Fixture::refusing(Errno::OPNOTSUPP, is_that);
        let (new, key) = (fixture.file("new").ino, format!("{namespace}.a"));
        fixture.assert_refused(Errno::OPNOTSUPP, |job| {
            job.insist(|job| job.set_xattr(new, n(&key), b"1", XattrMode::Any))
        });
    }
}

/// The story: an attribute that the job had set and removed was removed once more from a new file that its owner may not write to, and that there
/// was none to remove rolled the job back.
#[test]
fn an_attribute_that_has_gone_of_a_file_that_is_read_only_is_no_error() {
    let dir = scratch();
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), OwnerRights));
    let root = RealStorage::open_root(dir.path()).unwrap();
    let job = Job::begin(storage, root, dir.path(), Options::default()).unwrap();
    job.by_hand(true); // Nothing is stored before all is done.
    let new = job.insist(|job| job.create(me(), Ino::ROOT, n("new"), 0o644)).unwrap();
    job.release(new.ino, true);
    let key = n("user.a");
    job.insist(|job| job.set_xattr(new.ino, key, b"1", XattrMode::Any))
        .unwrap();
    job.insist(|job| job.remove_xattr(new.ino, key)).unwrap();
    let read_only = SetAttr {
        mode: Some(0o444),
        ..SetAttr::default()
    };
    job.insist(|job| job.setattr(new.ino, &read_only)).unwrap();
    job.by_hand(false);
    let outcome = job.commit(&mut |_| {}).unwrap();
    assert!(matches!(outcome, Outcome::Committed), "{outcome:?}");
}

#[test]
fn acls_that_a_storage_refuses_are_refused_at_once() {
    let acl = [
        &2u32.to_le_bytes()[..],
        &[1, 0, 6, 0, 255, 255, 255, 255],
        &[2, 0, 4, 0, 9, 0, 0, 0],
    ]
    .concat();
    for key in [ACCESS_ACL, DEFAULT_ACL] {
        let is_acl = |call: &Call<'_>| {
            call.operation == Operation::SetXattr
                && call.other.is_some_and(|key| key == ACCESS_ACL || key == DEFAULT_ACL)
        };
        let fixture = Fixture::refusing(Errno::OPNOTSUPP, is_acl);
        let dir = fixture
            .job
            .insist(|job| job.mkdir(me(), Ino::ROOT, n("d"), 0o755))
            .unwrap()
            .ino;
        fixture.assert_refused(Errno::OPNOTSUPP, |job| {
            job.insist(|job| job.set_xattr(dir, n(key), &acl, XattrMode::Any))
        });
    }
    // One that says that it has none when it is asked for them is not asked again.
    let asks = |call: &Call<'_>| call.operation == Operation::GetXattr;
    let fixture = Fixture::refusing(Errno::OPNOTSUPP, asks);
    let new = fixture.file("new").ino;
    fixture.assert_refused(Errno::OPNOTSUPP, |job| {
        job.insist(|job| job.set_xattr(new, n(ACCESS_ACL), &acl, XattrMode::Any))
    });
}

#[test]
fn objects_that_a_storage_does_not_have_are_refused_at_once() {
    for kind in [
        FileType::Fifo,
        FileType::Socket,
        FileType::CharDevice,
        FileType::BlockDevice,
    ] {
        let fixture = Fixture::refusing(Errno::PERM, |call| call.operation == Operation::Mknod);
        fixture.assert_refused(Errno::PERM, |job| {
            job.insist(|job| job.mknod(me(), Ino::ROOT, n("x"), kind, 0o600, 0x103))
                .map(drop)
        });
    }
    let fixture = Fixture::refusing(Errno::PERM, |call| call.operation == Operation::Symlink);
    fixture.assert_refused(Errno::PERM, |job| {
        job.insist(|job| job.symlink(me(), Ino::ROOT, n("x"), n("to")))
            .map(drop)
    });
    let fixture = Fixture::refusing(Errno::PERM, |call| call.operation == Operation::Link);
    let new = fixture.file("new").ino;
    fixture.assert_refused(Errno::PERM, |job| {
        job.insist(|job| job.link(new, Ino::ROOT, n("x"))).map(drop)
    });
}

#[test]
fn owners_that_a_storage_does_not_have_are_refused_at_once() {
    let chowns = |call: &Call<'_>| matches!(call.operation, Operation::Chown | Operation::ChownHandle);
    let fixture = Fixture::refusing(Errno::PERM, chowns);
    let new = fixture.file("new").ino;
    let to_other = SetAttr {
        uid: Some(7),
        ..SetAttr::default()
    };
    fixture.assert_refused(Errno::PERM, |job| {
        job.insist(|job| job.setattr(new, &to_other)).map(drop)
    });
    // What another user makes there is made all the same, as it would be below.
    let fixture = Fixture::refusing(Errno::PERM, chowns);
    let other = Caller {
        uid: 7,
        gid: 7,
        umask: 0,
    };
    let made = fixture
        .job
        .insist(|job| job.create(other, Ino::ROOT, n("made"), 0o600))
        .unwrap();
    assert_eq!((made.uid, made.gid), (me().uid, me().gid));
    fixture.job.release(made.ino, true);
    fixture.assert_commits();
}

/// As on vfat, whose files all have the mode of the mount.
#[test]
fn modes_that_a_storage_does_not_keep_are_refused_at_once_and_not_set_for_what_is_created() {
    let chmods = |call: &Call<'_>| matches!(call.operation, Operation::Chmod | Operation::ChmodHandle);
    let fixture = Fixture::refusing(Errno::PERM, chmods);
    // Nothing is stored before what was asked is counted.
    fixture.job.by_hand(true);
    let new = fixture.file("new").ino;
    fixture
        .job
        .insist(|job| job.mkdir(me(), Ino::ROOT, n("sticky"), 0o1777))
        .unwrap();
    let closed = SetAttr {
        mode: Some(0o600),
        ..SetAttr::default()
    };
    for _ in 0..2 {
        assert_eq!(fixture.job.insist(|job| job.setattr(new, &closed)), Err(Errno::PERM));
    }
    assert_eq!(fixture.storage.hook().fired(), 2, "what is kept at all, and this one");
    fixture.job.by_hand(false);
    fixture.assert_commits();
}

#[test]
fn names_and_sizes_that_a_storage_does_not_have_are_refused_at_once() {
    let foreign = |call: &Call<'_>| {
        let name = call.name.map(OsStr::as_encoded_bytes).unwrap_or_default();
        call.operation == Operation::Create && name.contains(&b':')
    };
    let fixture = Fixture::refusing(Errno::INVAL, foreign);
    fixture.assert_refused(Errno::INVAL, |job| {
        job.insist(|job| job.create(me(), Ino::ROOT, n("File::Spec"), 0o644))
            .map(drop)
    });
    let large = |call: &Call<'_>| call.operation == Operation::Truncate && call.bytes > u64::from(u32::MAX);
    let fixture = Fixture::refusing(Errno::FBIG, large);
    let new = fixture.file("new").ino;
    let beyond = SetAttr {
        size: Some(1 << 33),
        ..SetAttr::default()
    };
    for _ in 0..2 {
        assert_eq!(fixture.job.insist(|job| job.setattr(new, &beyond)), Err(Errno::FBIG));
        assert_eq!(
            fixture.job.insist(|job| job.write(new, 1 << 33, b"x", SetIds::Stay)),
            Err(Errno::FBIG)
        );
    }
    assert!(
        fixture.storage.hook().fired() <= 3,
        "{}",
        fixture.storage.hook().fired()
    );
    fixture.assert_commits();
}

/// A trial that fails for another reason says nothing about the kind.
#[test]
fn what_fails_for_the_moment_is_tried_again() {
    let fixture = Fixture::refusing(Errno::PERM, |_| false);
    let new = fixture.file("new").ino;
    fixture.storage.hook().arm(Plan::fail(Errno::NOSPC).on(Operation::Link));
    let link = |name: &str| fixture.job.insist(|job| job.link(new, Ino::ROOT, n(name))).map(drop);
    assert_eq!(link("x"), Err(Errno::NOSPC));
    assert_eq!(link("x"), Ok(()));
    fixture.assert_commits();
}

/// A `chmod` on a storage on which modes cannot be tried waited for ever, with a thread that asked again and again.
#[test]
fn modes_that_cannot_be_tried_are_refused_each_time_that_they_are_set() {
    let is_trial = |name: &OsStr| name.as_encoded_bytes().starts_with(b"probe-modes");
    for errno in [Errno::ACCESS, Errno::PERM, Errno::INVAL, Errno::IO] {
        let fixture = Fixture::refusing(errno, move |call| call.name.is_some_and(is_trial));
        let old = fixture.job.insist(|job| job.lookup(Ino::ROOT, n("old"))).unwrap().ino;
        let closed = SetAttr {
            mode: Some(0o600),
            ..SetAttr::default()
        };
        for asked in 1..=2 {
            assert_eq!(fixture.job.insist(|job| job.setattr(old, &closed)), Err(errno));
            assert_eq!(fixture.storage.hook().fired(), asked);
        }
        fixture.storage.hook().disarm();
        fixture.job.insist(|job| job.setattr(old, &closed)).unwrap();
        fixture.assert_commits();
    }
}

/// One more name than the storage allows was a deferred error, which rolled the job back at its end.
#[test]
fn names_beyond_those_that_a_file_can_have_are_refused_at_once() {
    const MOST: u32 = 65_000;
    let Some(disk) = disk::Disk::new("ext4") else { return };
    let path = disk.path("old");
    std::fs::write(&path, "old").unwrap();
    std::fs::create_dir(disk.path("d")).unwrap();
    for number in 0..MOST - 2 {
        std::fs::hard_link(&path, disk.path(&format!("d/{number}"))).unwrap();
    }
    let root = RealStorage::open_root(&disk.root()).unwrap();
    let job = Job::begin(Arc::new(RealStorage), root, &disk.root(), Options::default()).unwrap();
    let old = job.insist(|job| job.lookup(Ino::ROOT, n("old"))).unwrap().ino;
    let link = |name: &str| job.insist(|job| job.link(old, Ino::ROOT, n(name))).map(drop);
    assert_eq!(link("last"), Ok(()));
    assert_eq!(link("beyond"), Err(Errno::MLINK));
    assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    assert!(disk.path("last").exists() && !disk.path("beyond").exists());
    let native = std::fs::hard_link(&path, disk.path("beyond")).unwrap_err();
    assert_eq!(native.raw_os_error(), Some(Errno::MLINK.raw_os_error()));
}

/// XFS takes targets of 1023 bytes: a longer one was acknowledged, and the job could never be published.
#[test]
fn a_target_that_is_too_long_for_the_storage_is_refused_at_once() {
    let fixture = Fixture::refusing(Errno::NAMETOOLONG, |call| {
        call.operation == Operation::Symlink && call.name.is_some_and(|name| name.as_encoded_bytes().ends_with(b"4095"))
    });
    let link = |bytes: usize| {
        let name = format!("link-{bytes}");
        let target = "x".repeat(bytes);
        fixture
            .job
            .insist(|job| job.symlink(me(), Ino::ROOT, n(&name), n(&target)))
    };
    for bytes in [10, 1022, 1023] {
        link(bytes).unwrap();
    }
    assert_eq!(link(4095).map(drop), Err(Errno::NAMETOOLONG));
    assert_eq!(link(4096).map(drop), Err(Errno::NAMETOOLONG));
    assert_eq!(fixture.storage.hook().fired(), 1, "the storage is asked once");
    fixture.assert_commits();
    assert_eq!(
        std::fs::read_link(fixture.dir.path().join("link-1023"))
            .unwrap()
            .as_os_str()
            .len(),
        1023
    );
}
