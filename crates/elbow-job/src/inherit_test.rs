//! Rights against real file systems: what objects inherit where they are made, and keep wherever they are moved and whenever the
//! storage creates them.
//!
//! The story: what was made in one directory and moved to another before it was created there inherited the ACL and the group
//! of the second: another user could read a file of mode 640, and 755 became 2755. `mkdir -m 0` under a default ACL gave 0700.

#![allow(clippy::disallowed_methods, reason = "the reference is a real directory")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elbow_file::{Errno, FileType, RealStorage, RenameMode};
use elbow_testkit::tree::Tree;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs as f;

use crate::model::{ACCESS_ACL, DEFAULT_ACL};
use crate::options::Publish;
use crate::{Caller, Ino, Job, Options, Outcome, SetAttr, SetIds, XattrMode};

#[allow(dead_code)] // what other tests need of it
#[path = "../../elbow-file/tests/disk/mod.rs"]
pub(crate) mod disk;

/// One operation.
#[derive(Clone, Debug)]
enum Op {
    /// A new object, by somebody with a umask.
    Make(String, FileType, u32, Caller),
    Link(String, String),
    Rename(String, String, RenameMode),
    Remove(String),
    Chmod(String, u32),
    Chgrp(String, u32),
    Acl(String, &'static str, Option<Vec<u8>>),
}

/// Groups of directories, and who is not in them.
const GROUPS: [u32; 3] = [0, 55, 66];
const USER: u32 = 1000;
const NAMES: [&str; 14] = [
    "acl/x",
    "acl/y",
    "share/x",
    "share/y",
    "plain/x",
    "plain/y",
    "x",
    "y",
    "x/x",
    "acl/x/y",
    "share/x/y",
    "share",
    "acl",
    "plain",
];

/// An ACL as the kernel writes it: for the owner, a user, the group, a group, the mask and others.
pub(crate) fn acl(permissions: [u16; 6]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let tags = [
        (0x01, NOBODY),
        (0x02, USER),
        (0x04, NOBODY),
        (0x08, 55),
        (0x10, NOBODY),
        (0x20, NOBODY),
    ];
    let entries = tags.into_iter().zip(permissions);
    let entry = |((tag, id), permissions): ((u16, u32), u16)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    entries.fold(2u32.to_le_bytes().to_vec(), |acl, each| [acl, entry(each)].concat())
}

/// The same without anybody else, which is a mode.
fn short_acl(permissions: [u16; 3]) -> Vec<u8> {
    let [user, group, other] = permissions;
    let long = acl([user, 0, group, 0, 0, other]);
    let entry = |n: usize| &long[4 + 8 * n..12 + 8 * n];
    [&long[..4], entry(0), entry(2), entry(5)].concat()
}

fn random_acl(rng: &mut StdRng) -> Option<Vec<u8>> {
    let mut bits = || rng.random_range(0..8);
    let long = [7, bits(), bits(), bits(), bits(), bits()];
    match rng.random_range(0..5) {
        0 => None,
        1 => Some(short_acl([7, long[1], long[2]])),
        _ => Some(acl(long)),
    }
}

fn random_op(rng: &mut StdRng) -> Op {
    let mut name = || NAMES[rng.random_range(0..NAMES.len())].to_owned();
    let (x, y) = (name(), name());
    let mode = [0, 0o777, 0o755, 0o640, 0o666, 0o700, 0o1777, 0o444][rng.random_range(0..8)];
    let by = if rng.random_range(0..3) == 0 { USER } else { 0 };
    let caller = Caller {
        uid: by,
        gid: by,
        umask: [0, 0o022, 0o027, 0o077][rng.random_range(0..4)],
    };
    let exchange = if rng.random_range(0..4) == 0 {
        RenameMode::Exchange
    } else {
        RenameMode::Replace
    };
    match rng.random_range(0..16) {
        0..3 => Op::Make(x, FileType::File, mode & 0o777, caller),
        3..6 => Op::Make(x, FileType::Dir, mode, caller),
        6 => Op::Make(x, FileType::Fifo, mode & 0o777, caller),
        7 => Op::Make(x, FileType::Symlink, 0o777, caller),
        8 => Op::Link(x, y),
        9..12 => Op::Rename(x, y, exchange),
        12 => Op::Remove(x),
        13 => Op::Chmod(x, mode | [0, 0o2000, 0o6000][rng.random_range(0..3)]),
        14 => Op::Chgrp(x, GROUPS[rng.random_range(0..GROUPS.len())]),
        _ => Op::Acl(x, [ACCESS_ACL, DEFAULT_ACL][rng.random_range(0..2)], random_acl(rng)),
    }
}

type OpResult = Result<(), Errno>;

/// Runs an operation as somebody with a umask: both belong to a thread that is gone afterwards.
#[allow(unsafe_code)]
fn as_caller(caller: Caller, operation: impl FnOnce() -> OpResult + Send) -> OpResult {
    let run = move || {
        // SAFETY: only this thread stops sharing its umask and current directory; descriptors are shared as before.
        unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) }?;
        rustix::process::umask(f::Mode::from_raw_mode(caller.umask));
        if caller.uid != 0 {
            let (uid, gid) = (
                rustix::fs::Uid::from_raw(caller.uid),
                rustix::fs::Gid::from_raw(caller.gid),
            );
            rustix::thread::set_thread_groups(&[])?;
            rustix::thread::set_thread_res_gid(gid, gid, gid)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        }
        operation()
    };
    std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"))
}

fn native(top: &Path, op: &Op) -> OpResult {
    let at = |name: &str| top.join(name);
    match op {
        Op::Make(x, kind, mode, caller) => {
            let (path, mode) = (at(x), f::Mode::from_raw_mode(*mode));
            as_caller(*caller, || match kind {
                FileType::Dir => f::mkdir(&path, mode),
                FileType::Symlink => f::symlink("missing", &path),
                FileType::Fifo => f::mknodat(f::CWD, &path, f::FileType::Fifo, mode, 0),
                _ => f::open(&path, f::OFlags::CREATE | f::OFlags::EXCL | f::OFlags::WRONLY, mode).map(drop),
            })
        }
        Op::Link(x, y) => f::link(at(x), at(y)),
        Op::Rename(x, y, mode) => {
            let exchange = *mode == RenameMode::Exchange;
            let flags = if exchange {
                f::RenameFlags::EXCHANGE
            } else {
                f::RenameFlags::empty()
            };
            f::renameat_with(f::CWD, at(x), f::CWD, at(y), flags)
        }
        Op::Remove(x) => f::unlink(at(x)).or_else(|errno| match errno {
            Errno::ISDIR => f::rmdir(at(x)),
            errno => Err(errno),
        }),
        Op::Chmod(x, mode) => not_of_links(&at(x)).and_then(|()| f::chmod(at(x), f::Mode::from_raw_mode(*mode))),
        Op::Chgrp(x, gid) => f::chownat(
            f::CWD,
            at(x),
            None,
            Some(f::Gid::from_raw(*gid)),
            f::AtFlags::SYMLINK_NOFOLLOW,
        ),
        Op::Acl(x, key, value) => not_of_links(&at(x)).and_then(|()| match value {
            Some(value) => f::lsetxattr(at(x), *key, value, f::XattrFlags::empty()),
            None => f::lremovexattr(at(x), *key),
        }),
    }
}

/// The kernel refuses that before it asks a file system.
fn not_of_links(path: &Path) -> OpResult {
    let stat = f::lstat(path)?;
    if f::FileType::from_raw_mode(stat.st_mode).is_symlink() {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(())
}

fn spot<'p>(job: &Job, path: &'p str) -> Result<(Ino, &'p OsStr), Errno> {
    match path.rsplit_once('/') {
        None => Ok((Ino::ROOT, OsStr::new(path))),
        Some((above, name)) => {
            let (dir, above) = spot(job, above)?;
            let found = job.insist(|job| job.lookup(dir, above))?;
            match found.kind {
                FileType::Dir => Ok((found.ino, OsStr::new(name))),
                _ => Err(Errno::NOTDIR),
            }
        }
    }
}

fn in_job(job: &Job, op: &Op) -> OpResult {
    let object = |path: &str| {
        let (dir, name) = spot(job, path)?;
        job.insist(|job| job.lookup(dir, name))
    };
    // The kernel refuses these of links before it asks a file system.
    let no_link = |path: &str| match object(path)? {
        attr if attr.kind == FileType::Symlink => Err(Errno::OPNOTSUPP),
        attr => Ok(attr.ino),
    };
    let set = |path: &str, set: SetAttr| {
        let ino = match set.mode {
            Some(_) => no_link(path)?,
            None => object(path)?.ino,
        };
        job.insist(|job| job.setattr(ino, &set)).map(drop)
    };
    match op {
        Op::Make(x, kind, mode, caller) => {
            let (dir, name) = spot(job, x)?;
            let made = job.insist(|job| match kind {
                FileType::Dir => job.mkdir(*caller, dir, name, *mode),
                FileType::Symlink => job.symlink(*caller, dir, name, OsStr::new("missing")),
                FileType::File => job.create(*caller, dir, name, *mode),
                kind => job.mknod(*caller, dir, name, *kind, *mode, 0),
            })?;
            if *kind == FileType::File {
                job.release(made.ino, true);
            }
            Ok(())
        }
        Op::Link(x, y) => {
            let (from, (dir, name)) = (object(x)?.ino, spot(job, y)?);
            job.insist(|job| job.link(from, dir, name)).map(drop)
        }
        Op::Rename(x, y, mode) => {
            let ((from, name), (to, new_name)) = (spot(job, x)?, spot(job, y)?);
            job.insist(|job| job.rename(from, name, to, new_name, *mode))
        }
        Op::Remove(x) => {
            let (dir, name) = spot(job, x)?;
            match object(x)?.kind {
                FileType::Dir => job.insist(|job| job.rmdir(dir, name)),
                _ => job.insist(|job| job.unlink(dir, name)),
            }
        }
        Op::Chmod(x, mode) => set(
            x,
            SetAttr {
                mode: Some(*mode),
                ..SetAttr::default()
            },
        ),
        Op::Chgrp(x, gid) => {
            // What a change of owner takes is for who asks the job to say, as the front end does.
            let mode = object(x)?.mode;
            let goes = mode & 0o4000 != 0 || mode & 0o2010 == 0o2010;
            let set_ids = if goes { SetIds::Go } else { SetIds::Stay };
            set(
                x,
                SetAttr {
                    gid: Some(*gid),
                    set_ids,
                    ..SetAttr::default()
                },
            )
        }
        Op::Acl(x, key, value) => {
            let (ino, key) = (no_link(x)?, OsStr::new(key));
            match value {
                Some(value) => job.insist(|job| job.set_xattr(ino, key, value, XattrMode::Any)),
                None => job.insist(|job| job.remove_xattr(ino, key)),
            }
        }
    }
}

/// A directory with a default ACL, one of a group, and one of neither.
fn old_tree(top: &Path) {
    for (name, mode) in [("", 0o777), ("acl", 0o777), ("share", 0o2777), ("plain", 0o777)] {
        let _ = std::fs::create_dir(top.join(name));
        std::fs::set_permissions(top.join(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    chown(top.join("share"), Some(0), Some(55)).unwrap();
    std::fs::set_permissions(top.join("share"), PermissionsExt::from_mode(0o2777)).unwrap();
    let default = acl([7, 7, 5, 6, 7, 4]);
    f::setxattr(top.join("acl"), DEFAULT_ACL, &default, f::XattrFlags::empty()).unwrap();
    std::fs::write(top.join("plain/y"), "old").unwrap();
}

/// Everything is inside of the job as it is natively.
fn assert_same_inside(job: &Job, expected: &Tree, note: &str) {
    for (path, entry) in expected.entries.iter().filter(|(path, _)| !path.as_os_str().is_empty()) {
        let (dir, name) = spot(job, path.to_str().unwrap()).unwrap();
        let attr = job.insist(|job| job.lookup(dir, name)).unwrap();
        let rights = (attr.mode, attr.uid, attr.gid);
        assert_eq!(
            rights,
            (entry.mode, entry.uid, entry.gid),
            "{note}: {} {rights:?} inside",
            path.display()
        );
        let keys = job.insist(|job| job.list_xattrs(attr.ino)).unwrap();
        let value = |key: OsString| (key.clone(), job.insist(|job| job.get_xattr(attr.ino, &key)).unwrap());
        let xattrs: BTreeMap<_, _> = keys.into_iter().map(value).collect();
        assert_eq!(
            without_shadows(&entry.xattrs),
            without_shadows(&xattrs),
            "{note}: {} inside",
            path.display()
        );
    }
}

/// Without the ACLs as xfs keeps them, which it shows to root beside those that everybody sees.
fn without_shadows(xattrs: &BTreeMap<OsString, Vec<u8>>) -> BTreeMap<OsString, Vec<u8>> {
    let is_shadow = |key: &OsStr| key.as_encoded_bytes().starts_with(b"trusted.SGI_ACL_");
    let others = xattrs.iter().filter(|(key, _)| !is_shadow(key));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The same old tree natively and below a job.
struct Pair {
    _temp: tempfile::TempDir,
    native: PathBuf,
    below: PathBuf,
    job: Job,
    note: String,
    done: Vec<Op>,
}

impl Pair {
    fn new(place: &Path, when: Publish, note: String) -> Self {
        let temp = tempfile::tempdir_in(place).unwrap();
        std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let [native, below] = ["native", "below"].map(|name| temp.path().join(name));
        [&native, &below].into_iter().for_each(|top| old_tree(top));
        let options = Options {
            publish: when,
            ..Options::default()
        };
        let root = RealStorage::open_root(&below).unwrap();
        let job = Job::begin(Arc::new(RealStorage), root, &below, options).unwrap();
        job.by_hand(true);
        Self {
            _temp: temp,
            native,
            below,
            job,
            note,
            done: Vec::new(),
        }
    }

    /// On both sides. Permissions are the kernel's business above a job.
    fn carry_out(&mut self, op: Op) {
        let gave = native(&self.native, &op);
        if matches!(gave, Err(Errno::ACCESS | Errno::PERM)) {
            return;
        }
        self.done.push(op);
        let (note, done) = (&self.note, &self.done);
        let ours = in_job(&self.job, &done[done.len() - 1]);
        assert_eq!(
            ours.is_ok(),
            gave.is_ok(),
            "{note}: {ours:?} instead of {gave:?} at the end of {done:?}"
        );
    }

    /// Compares inside, commits and compares again.
    fn finish(self) {
        let Self { job, note, done, .. } = self;
        let expected = Tree::snapshot(&self.native).unwrap().without_times();
        assert_same_inside(&job, &expected, &note);
        job.by_hand(false);
        let outcome = job.commit(&mut |_| {}).unwrap();
        assert!(
            matches!(outcome, Outcome::Committed),
            "{note}: {outcome:?} for {done:?}"
        );
        let found = Tree::snapshot(&self.below).unwrap().without_times();
        let difference = found.difference(&expected).unwrap_or_default();
        assert!(difference.is_empty(), "{note}: {done:?}\n{difference}");
    }
}

fn compare(place: &Path, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let is_eager = rng.random_range(0..4) == 0;
    let when = if is_eager { Publish::Eager } else { Publish::default() };
    let mut pair = Pair::new(place, when, format!("SEED={seed}"));
    for _ in 0..rng.random_range(1..30) {
        pair.carry_out(random_op(&mut rng));
        for _ in 0..rng.random_range(0..3) {
            pair.job.step_by_hand(|left| rng.random_range(0..left));
        }
    }
    pair.finish();
}

/// For ACLs, groups and other users.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        disk::unavailable("root");
    }
    is_root
}

#[test]
fn rights_are_inherited_where_an_object_is_made_and_nowhere_else() {
    if !is_root() {
        return;
    }
    rustix::process::umask(f::Mode::empty());
    for seed in elbow_testkit::cases::seeds(200) {
        compare(&std::env::temp_dir(), seed);
    }
}

/// The mode that an ACL gave stays when the ACL goes before it was stored.
#[test]
fn a_short_lived_acl_leaves_its_mode() {
    if !is_root() {
        return;
    }
    rustix::process::umask(f::Mode::empty());
    let name = || "plain/x".to_owned();
    let by = Caller {
        uid: 0,
        gid: 0,
        umask: 0o022,
    };
    for kind in [FileType::File, FileType::Fifo, FileType::Dir] {
        for is_stored in [false, true] {
            let note = format!("{kind:?}, stored before: {is_stored}");
            let mut pair = Pair::new(&std::env::temp_dir(), Publish::default(), note);
            pair.carry_out(Op::Make(name(), kind, 0o777, by));
            for _ in 0..if is_stored { 20 } else { 0 } {
                pair.job.step_by_hand(|_| 0);
            }
            pair.carry_out(Op::Acl(name(), ACCESS_ACL, Some(acl([7, 3, 6, 1, 5, 6]))));
            pair.carry_out(Op::Acl(name(), ACCESS_ACL, None));
            pair.finish();
        }
    }
}

#[test]
fn rights_are_inherited_where_an_object_is_made_on_xfs() {
    if !is_root() {
        return;
    }
    rustix::process::umask(f::Mode::empty());
    let Some(disk) = disk::Disk::new("xfs") else { return };
    for seed in elbow_testkit::cases::seeds(100) {
        compare(&disk.root(), seed);
    }
}
