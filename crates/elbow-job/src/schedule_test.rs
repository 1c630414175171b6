//! The model and the graph against a real directory: the same operations, the same answers, the same tree,
//! whatever order the storage gets its share in.

#![allow(clippy::disallowed_methods, reason = "the reference is a real directory")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use elbow_file::double::{Delaying, Interposed};
use elbow_file::{Errno, RealStorage, RenameMode, Storage};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::model::{IN_TRANSIT, Work};
use crate::{Answer, Caller, Ino, Job, OpError, Options, Outcome, SetAttr, SetIds, SetTime, XattrMode};

/// One operation on paths of a small world.
#[derive(Clone)]
pub(crate) enum Op {
    Create(String),
    Write(String, u64, Vec<u8>),
    Truncate(String, u64),
    /// fallocate(2) of a range, whether or not it makes the file longer.
    Reserve(String, std::ops::Range<u64>, bool),
    Mkdir(String),
    Symlink(String, String),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameMode),
    Chmod(String, u32),
    /// Sets the owner and the group.
    Chown(String, u32, u32),
    /// Sets an extended attribute, or removes it.
    Xattr(String, &'static str, Option<Vec<u8>>),
    /// Sets the time of the last change, in seconds.
    Date(String, i64),
    Read(String),
    List(String),
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Create(x) => write!(f, "create {x}"),
            Self::Write(x, at, data) => write!(f, "write {x} at {at} {}", brief(data)),
            Self::Truncate(x, size) => write!(f, "truncate {x} to {size}"),
            Self::Reserve(x, range, keep_size) => write!(f, "reserve {range:?} of {x} {keep_size}"),
            Self::Mkdir(x) => write!(f, "mkdir {x}"),
            Self::Symlink(target, x) => write!(f, "symlink {x} -> {target}"),
            Self::Link(x, y) => write!(f, "link {x} as {y}"),
            Self::Unlink(x) => write!(f, "unlink {x}"),
            Self::Rmdir(x) => write!(f, "rmdir {x}"),
            Self::Rename(x, y, mode) => write!(f, "rename {x} to {y} {mode:?}"),
            Self::Chmod(x, mode) => write!(f, "chmod {x} {mode:o}"),
            Self::Chown(x, uid, gid) => write!(f, "chown {x} {uid}:{gid}"),
            Self::Xattr(x, key, Some(value)) => write!(f, "set {key} of {x} {}", brief(value)),
            Self::Xattr(x, key, None) => write!(f, "remove {key} of {x}"),
            Self::Date(x, seconds) => write!(f, "date {x} {seconds}"),
            Self::Read(x) => write!(f, "read {x}"),
            Self::List(x) => write!(f, "list {x}"),
        }
    }
}

const NAMES: [&str; 8] = ["a", "b", "d/a", "d/b", "d", "e/a", "e", "a/b"];

/// Mode bits that the owner keeps. The model leaves it to the kernel to check them, which a test without FUSE goes round; so
/// an ordinary user stays able to search directories.
fn rights_kept() -> u32 {
    if rustix::process::geteuid().is_root() {
        0o600
    } else {
        0o700
    }
}

pub(crate) fn random_op(rng: &mut StdRng) -> Op {
    let mut name = || NAMES[rng.random_range(0..NAMES.len())].to_owned();
    let (x, y) = (name(), name());
    let size = rng.random_range(0..9000);
    let modes = [
        RenameMode::Replace,
        RenameMode::Replace,
        RenameMode::NoReplace,
        RenameMode::Exchange,
    ];
    match rng.random_range(0..17) {
        0 | 1 => Op::Create(x),
        2 | 3 => Op::Write(
            x,
            rng.random_range(0..6000),
            vec![rng.random(); rng.random_range(1..5000)],
        ),
        4 => Op::Truncate(x, size),
        5 | 6 => Op::Mkdir(x),
        7 => Op::Symlink("missing".into(), x),
        8 => Op::Link(x, y),
        9 => Op::Unlink(x),
        10 => Op::Rmdir(x),
        11 | 12 => Op::Rename(x, y, modes[rng.random_range(0..modes.len())]),
        13 => Op::Chmod(x, rights_kept() | rng.random_range(0..0o200)),
        14 => Op::Read(x),
        15 => {
            let start = rng.random_range(0..9000);
            Op::Reserve(x, start..start + rng.random_range(1..9000), rng.random())
        }
        _ => Op::List(x),
    }
}

/// What an operation gave: an errno, or what it read.
pub(crate) type OpResult = Result<Vec<u8>, Errno>;

/// The operations on a real directory.
pub(crate) struct Native(pub(crate) PathBuf);

impl Native {
    pub(crate) fn run(&self, op: &Op) -> OpResult {
        use rustix::fs as f;
        let at = |name: &String| self.0.join(name);
        let nothing = |(): ()| Vec::new();
        match op {
            Op::Create(x) => {
                let flags = f::OFlags::CREATE | f::OFlags::EXCL | f::OFlags::WRONLY;
                f::open(at(x), flags, f::Mode::from_raw_mode(0o644)).map(|_| Vec::new())
            }
            Op::Write(x, offset, data) => {
                let fd = f::open(at(x), f::OFlags::WRONLY | f::OFlags::NOFOLLOW, f::Mode::empty())?;
                rustix::io::pwrite(fd, data, *offset).map(|_| Vec::new())
            }
            Op::Truncate(x, size) => {
                let fd = f::open(at(x), f::OFlags::WRONLY | f::OFlags::NOFOLLOW, f::Mode::empty())?;
                f::ftruncate(fd, *size).map(nothing)
            }
            Op::Reserve(x, range, keep_size) => {
                let fd = f::open(at(x), f::OFlags::WRONLY | f::OFlags::NOFOLLOW, f::Mode::empty())?;
                let flags = if *keep_size {
                    f::FallocateFlags::KEEP_SIZE
                } else {
                    f::FallocateFlags::empty()
                };
                f::fallocate(fd, flags, range.start, range.end - range.start).map(nothing)
            }
            Op::Mkdir(x) => f::mkdir(at(x), f::Mode::from_raw_mode(0o755)).map(nothing),
            Op::Symlink(target, x) => f::symlink(target.as_str(), at(x)).map(nothing),
            Op::Link(x, y) => f::link(at(x), at(y)).map(nothing),
            Op::Unlink(x) => f::unlink(at(x)).map(nothing),
            Op::Rmdir(x) => f::rmdir(at(x)).map(nothing),
            Op::Rename(x, y, mode) => {
                let flags = match mode {
                    RenameMode::Replace => f::RenameFlags::empty(),
                    RenameMode::NoReplace => f::RenameFlags::NOREPLACE,
                    RenameMode::Exchange => f::RenameFlags::EXCHANGE,
                };
                f::renameat_with(f::CWD, at(x), f::CWD, at(y), flags).map(nothing)
            }
            Op::Chmod(x, mode) => {
                let stat = f::lstat(at(x))?;
                if f::FileType::from_raw_mode(stat.st_mode) == f::FileType::Symlink {
                    return Err(Errno::OPNOTSUPP);
                }
                f::chmod(at(x), f::Mode::from_raw_mode(*mode)).map(nothing)
            }
            Op::Chown(x, uid, gid) => {
                let ids = (f::Uid::from_raw(*uid), f::Gid::from_raw(*gid));
                f::chownat(f::CWD, at(x), Some(ids.0), Some(ids.1), f::AtFlags::SYMLINK_NOFOLLOW).map(nothing)
            }
            Op::Xattr(x, key, Some(value)) => f::lsetxattr(at(x), *key, value, f::XattrFlags::empty()).map(nothing),
            Op::Xattr(x, key, None) => f::lremovexattr(at(x), *key).map(nothing),
            Op::Date(x, seconds) => {
                let time = f::Timespec {
                    tv_sec: *seconds,
                    tv_nsec: 0,
                };
                let times = f::Timestamps {
                    last_access: time,
                    last_modification: time,
                };
                f::utimensat(f::CWD, at(x), &times, f::AtFlags::SYMLINK_NOFOLLOW).map(nothing)
            }
            Op::Read(x) => {
                let fd = f::open(at(x), f::OFlags::RDONLY | f::OFlags::NOFOLLOW, f::Mode::empty())?;
                let mut buffer = vec![0; 1 << 16];
                let n = rustix::io::pread(fd, &mut buffer, 0)?;
                buffer.truncate(n);
                Ok(buffer)
            }
            Op::List(x) => {
                let fd = f::open(
                    at(x),
                    f::OFlags::RDONLY | f::OFlags::DIRECTORY | f::OFlags::NOFOLLOW,
                    f::Mode::empty(),
                )?;
                let names = f::Dir::new(fd)?
                    .filter_map(Result::ok)
                    .map(|e| e.file_name().to_bytes().to_vec());
                let mut names: Vec<Vec<u8>> = names.filter(|n| n != b"." && n != b"..").collect();
                names.sort();
                Ok(names.join(&b'\n'))
            }
        }
    }
}

/// The operations on a job, resolved as the kernel would.
pub(crate) struct InJob<'a>(pub(crate) &'a Job);

/// Whoever runs the tests.
fn caller() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: 0o022,
    }
}

impl InJob<'_> {
    fn ask<T>(&self, operation: impl FnMut(&Job) -> Answer<T>) -> Result<T, Errno> {
        self.0.insist(operation)
    }

    pub(crate) fn walk(&self, path: &str) -> Result<Ino, Errno> {
        let mut at = Ino::ROOT;
        for part in path.split('/') {
            let kind = self.ask(|job| job.getattr(at))?.kind;
            match kind {
                elbow_file::FileType::Dir => {}
                // Every link of the test world dangles.
                elbow_file::FileType::Symlink => return Err(Errno::NOENT),
                _ => return Err(Errno::NOTDIR),
            }
            at = self.ask(|job| job.lookup(at, OsStr::new(part)))?.ino;
        }
        Ok(at)
    }

    fn parent<'p>(&self, path: &'p str) -> Result<(Ino, &'p OsStr), Errno> {
        match path.rsplit_once('/') {
            None => Ok((Ino::ROOT, OsStr::new(path))),
            Some((above, name)) => {
                let ino = self.walk(above)?;
                match self.ask(|job| job.getattr(ino))?.kind {
                    elbow_file::FileType::Dir => Ok((ino, OsStr::new(name))),
                    elbow_file::FileType::Symlink => Err(Errno::NOENT),
                    _ => Err(Errno::NOTDIR),
                }
            }
        }
    }

    fn file(&self, path: &str) -> Result<Ino, Errno> {
        let ino = self.walk(path)?;
        match self.ask(|job| job.getattr(ino))?.kind {
            elbow_file::FileType::Symlink => Err(Errno::LOOP),
            _ => Ok(ino),
        }
    }

    fn writable(&self, path: &str) -> Result<Ino, Errno> {
        let ino = self.file(path)?;
        match self.ask(|job| job.getattr(ino))?.kind {
            elbow_file::FileType::Dir => Err(Errno::ISDIR),
            _ => Ok(ino),
        }
    }

    pub(crate) fn run(&self, op: &Op) -> OpResult {
        let nothing = Vec::new();
        match op {
            Op::Create(x) => {
                let (dir, name) = self.parent(x)?;
                let attr = self.ask(|job| job.create(caller(), dir, name, 0o644))?;
                self.0.release(attr.ino, true);
            }
            Op::Write(x, offset, data) => {
                let ino = self.writable(x)?;
                self.ask(|job| job.open(ino, true, false))?;
                let wrote = self.ask(|job| job.write(ino, *offset, data, SetIds::Stay));
                self.0.release(ino, true);
                wrote?;
            }
            Op::Truncate(x, size) => {
                let ino = self.writable(x)?;
                self.ask(|job| {
                    job.setattr(
                        ino,
                        &SetAttr {
                            size: Some(*size),
                            ..SetAttr::default()
                        },
                    )
                })?;
            }
            Op::Reserve(x, range, keep_size) => {
                let ino = self.writable(x)?;
                self.ask(|job| {
                    job.fallocate(
                        ino,
                        i32::from(*keep_size),
                        range.start,
                        range.end - range.start,
                        SetIds::Stay,
                    )
                })?;
            }
            Op::Mkdir(x) => {
                let (dir, name) = self.parent(x)?;
                self.ask(|job| job.mkdir(caller(), dir, name, 0o755))?;
            }
            Op::Symlink(target, x) => {
                let (dir, name) = self.parent(x)?;
                self.ask(|job| job.symlink(caller(), dir, name, OsStr::new(target)))?;
            }
            Op::Link(x, y) => {
                let ino = self.walk(x)?;
                let (dir, name) = self.parent(y)?;
                self.link(ino, dir, name)?;
            }
            Op::Unlink(x) => {
                let (dir, name) = self.parent(x)?;
                self.ask(|job| job.unlink(dir, name))?;
            }
            Op::Rmdir(x) => {
                let (dir, name) = self.parent(x)?;
                self.ask(|job| job.rmdir(dir, name))?;
            }
            Op::Rename(x, y, mode) => {
                let (dir, name) = self.parent(x)?;
                let (to, new_name) = self.parent(y)?;
                self.ask(|job| job.rename(dir, name, to, new_name, *mode))?;
            }
            Op::Chmod(x, mode) => {
                let ino = self.walk(x)?;
                if self.ask(|job| job.getattr(ino))?.kind == elbow_file::FileType::Symlink {
                    return Err(Errno::OPNOTSUPP);
                }
                self.ask(|job| {
                    job.setattr(
                        ino,
                        &SetAttr {
                            mode: Some(*mode),
                            ..SetAttr::default()
                        },
                    )
                })?;
            }
            Op::Chown(x, uid, gid) => {
                let ino = self.walk(x)?;
                // What a change of owner takes is for who asks the job to say, as the front end does.
                let mode = self.ask(|job| job.getattr(ino))?.mode;
                let goes = mode & 0o4000 != 0 || mode & 0o2010 == 0o2010;
                let set = SetAttr {
                    uid: Some(*uid),
                    gid: Some(*gid),
                    set_ids: if goes { SetIds::Go } else { SetIds::Stay },
                    ..SetAttr::default()
                };
                self.ask(|job| job.setattr(ino, &set))?;
            }
            Op::Xattr(x, key, value) => {
                let (ino, key) = (self.walk(x)?, OsStr::new(key));
                match value {
                    Some(value) => self.ask(|job| job.set_xattr(ino, key, value, XattrMode::Any)),
                    None => self.ask(|job| job.remove_xattr(ino, key)),
                }?;
            }
            Op::Date(x, seconds) => {
                let ino = self.walk(x)?;
                let time = Some(SetTime::At(elbow_file::Time {
                    seconds: *seconds,
                    nanoseconds: 0,
                }));
                let set = SetAttr {
                    atime: time,
                    mtime: time,
                    ..SetAttr::default()
                };
                self.ask(|job| job.setattr(ino, &set))?;
            }
            Op::Read(x) => return self.read(x),
            Op::List(x) => {
                let ino = self.walk(x)?;
                let listed = self.ask(|job| job.list(ino))?;
                let names: Vec<Vec<u8>> = listed.iter().map(|l| l.name.as_encoded_bytes().to_vec()).collect();
                return Ok(names.join(&b'\n'));
            }
        }
        Ok(nothing)
    }

    /// The kernel looks the new name up before it calls link.
    fn link(&self, ino: Ino, dir: Ino, name: &OsStr) -> Result<(), Errno> {
        if self.ask(|job| job.lookup(dir, name)).is_ok() {
            return Err(Errno::EXIST);
        }
        self.ask(|job| job.link(ino, dir, name)).map(|_| ())
    }

    fn read(&self, path: &str) -> OpResult {
        let ino = self.file(path)?;
        self.ask(|job| job.open(ino, false, false))?;
        let read = match self.0.read(ino, 0, 1 << 16) {
            Ok(bytes) => Ok(bytes),
            Err(OpError::Errno(errno)) => Err(errno),
            Err(OpError::NeedsStorage(_)) => self.0.read_blocking(ino, 0, 1 << 16),
        };
        self.0.release(ino, false);
        read
    }
}

/// Content as runs of equal bytes.
pub(crate) fn brief(bytes: &[u8]) -> String {
    let runs = bytes
        .chunk_by(|a, b| a == b)
        .map(|run| format!("{}x{:02x}", run.len(), run[0]));
    runs.collect::<Vec<_>>().join(",")
}

/// What is at each path.
pub(crate) type Snapshot = BTreeMap<PathBuf, String>;

/// The time of the last change of old files in tests, in seconds.
pub(crate) const LONG_AGO: i64 = 900_000_000;
/// What was changed later has a time that differs from one run to the next.
const BEFORE_ALL_TESTS: i64 = 1_700_000_000;

/// Everything that can be seen of a tree but the times of directories and links, which a commit sets at its end. Of files the time is
/// seen if it is one that was set.
pub(crate) fn snapshot(dir: &Path) -> Snapshot {
    fn walk(top: &Path, dir: &Path, out: &mut BTreeMap<PathBuf, String>, inodes: &mut BTreeMap<u64, PathBuf>) {
        let mut entries: Vec<_> = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
        entries.sort();
        for path in entries {
            let name = path.strip_prefix(top).unwrap().to_owned();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let mut line = format!("{:o} {}:{} ", meta.mode(), meta.uid(), meta.gid());
            line.extend(xattrs(&path));
            if meta.is_file() {
                let first = inodes.entry(meta.ino()).or_insert_with(|| name.clone());
                let time = Some(meta.mtime()).filter(|time| *time < BEFORE_ALL_TESTS);
                line += &time.map_or(String::new(), |time| format!("at={time} "));
                line += &format!(
                    "n={} same={} {}",
                    meta.nlink(),
                    first.display(),
                    brief(&std::fs::read(&path).unwrap())
                );
            } else if meta.is_symlink() {
                line += &format!("-> {}", std::fs::read_link(&path).unwrap().display());
            }
            out.insert(name, line);
            if meta.is_dir() {
                walk(top, &path, out, inodes);
            }
        }
    }
    let (mut out, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    walk(dir, dir, &mut out, &mut inodes);
    out
}

/// The extended attributes of an object that a command can have set, a word for each.
fn xattrs(path: &Path) -> Vec<String> {
    const MOST_BYTES: usize = 1 << 10;
    let mut keys = vec![0; MOST_BYTES];
    let Ok(length) = rustix::fs::llistxattr(path, &mut keys[..]) else {
        return Vec::new();
    };
    let keys = keys[..length]
        .split(|byte| *byte == 0)
        .map(|key| str::from_utf8(key).unwrap());
    let mut keys: Vec<&str> = keys
        .filter(|key| key.starts_with("user.") || key.starts_with("system.posix"))
        .collect();
    keys.sort_unstable();
    let word = |key: &str| {
        let mut value = vec![0; MOST_BYTES];
        let length = rustix::fs::lgetxattr(path, key, &mut value[..]).unwrap();
        format!("{key}={} ", brief(&value[..length]))
    };
    keys.into_iter().map(word).collect()
}

/// Gives the files of a tree the time of the last change that old ones have.
pub(crate) fn date_files(dir: &Path) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(LONG_AGO.cast_unsigned());
    for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            date_files(&path);
        } else if kind.is_file() {
            let times = std::fs::FileTimes::new().set_modified(time);
            std::fs::File::open(&path).unwrap().set_times(times).unwrap();
        }
    }
}

/// A directory for a test, in memory where there is such a place that has all that files have elsewhere.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    // It takes the attributes of users since Linux 6.6.
    let takes_xattrs = |dir: &tempfile::TempDir| {
        rustix::fs::setxattr(dir.path(), "user.a", b"", rustix::fs::XattrFlags::empty()).is_ok()
            && rustix::fs::removexattr(dir.path(), "user.a").is_ok()
    };
    let in_memory = memory.is_dir().then(|| tempfile::tempdir_in(memory).unwrap());
    in_memory
        .filter(takes_xattrs)
        .unwrap_or_else(|| tempfile::tempdir().unwrap())
}

struct World {
    _temp: tempfile::TempDir,
    native: Native,
    below: PathBuf,
}

/// Two equal directories, empty or with something old in them.
fn world(old: bool) -> World {
    let temp = scratch();
    let (native, below) = (temp.path().join("native"), temp.path().join("below"));
    for dir in [&native, &below] {
        std::fs::create_dir(dir).unwrap();
        if old {
            std::fs::create_dir(dir.join("d")).unwrap();
            std::fs::write(dir.join("a"), vec![b'o'; 5000]).unwrap();
            std::fs::write(dir.join("d/a"), b"below d").unwrap();
            std::fs::hard_link(dir.join("a"), dir.join("d/b")).unwrap();
        }
    }
    World {
        _temp: temp,
        native: Native(native),
        below,
    }
}

fn begin(below: &Path) -> Job {
    let storage: Arc<dyn Storage> = Arc::new(RealStorage);
    let root = RealStorage::open_root(below).unwrap();
    let job = Job::begin(storage, root, below, Options::default()).unwrap();
    job.by_hand(true);
    job
}

/// What is told of the work left is true: the data that the storage does not have, and the objects.
fn assert_accounts(job: &Job, note: &str) {
    let state = job.shared.state.lock();
    let model = &state.model;
    let dirty: u64 = model
        .inodes
        .all()
        .filter_map(|(_, inode)| inode.content())
        .map(|content| content.dirty_bytes())
        .sum();
    assert_eq!(model.space.reserved_bytes(), dirty, "{note}: bytes left");
    let transit_key = model.inodes.get(IN_TRANSIT).into_iter();
    let working = model
        .inodes
        .all()
        .map(|(_, inode)| inode)
        .chain(transit_key)
        .filter(|inode| inode.work != Work::Idle);
    assert_eq!(
        model.objects_left(),
        (working.count() + model.graph.parked()) as u64,
        "{note}: objects left"
    );
}

/// Runs operations in both places, giving the storage `steps` random steps of its share after each.
fn compare(ops: &[Op], old: bool, rng: &mut StdRng, commit: bool, note: &str) {
    let world = world(old);
    let before = snapshot(&world.below);
    let job = begin(&world.below);
    for (n, op) in ops.iter().enumerate() {
        let (native, ours) = (world.native.run(op), InJob(&job).run(op));
        let (ours, native) = (ours.map(|b| brief(&b)), native.map(|b| brief(&b)));
        assert_eq!(ours, native, "{note}: operation {n} of {ops:?}");
        for _ in 0..rng.random_range(0..4) {
            job.step_by_hand(|left| rng.random_range(0..left));
        }
        assert_accounts(&job, note);
        assert!(
            job.deferred_errors().is_empty(),
            "{note}: {:?} after {n} of {ops:?}",
            job.deferred_errors()
        );
    }
    job.by_hand(false);
    if commit {
        let outcome = job.commit(&mut |_| {}).unwrap();
        assert_accounts(&job, note);
        assert_eq!((job.counts().bytes_left, job.counts().objects_left), (0, 0), "{note}");
        assert!(matches!(outcome, Outcome::Committed), "{note}: {outcome:?} for {ops:?}");
        assert_eq!(snapshot(&world.below), snapshot(&world.native.0), "{note}: {ops:?}");
    } else {
        job.roll_back(false, &mut |_| {}).unwrap();
        assert_eq!(snapshot(&world.below), before, "{note}: {ops:?}");
    }
}

#[test]
fn random_operations_in_random_order_equal_a_real_directory() {
    rustix::process::umask(rustix::fs::Mode::empty());
    for seed in elbow_testkit::cases::seeds(1500) {
        let mut rng = StdRng::seed_from_u64(seed);
        let count = rng.random_range(1..40);
        let ops: Vec<Op> = (0..count).map(|_| random_op(&mut rng)).collect();
        let (old, commit) = (rng.random(), rng.random_range(0..4) > 0);
        compare(&ops, old, &mut rng, commit, &format!("SEED={seed}"));
    }
}

/// All sequences of up to three operations over two names and two directories.
#[test]
fn all_short_sequences_equal_a_real_directory() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let names = ["a", "d/a"];
    let mut all: Vec<Op> = vec![Op::Mkdir("d".into()), Op::Rmdir("d".into()), Op::List("d".into())];
    for x in names {
        all.push(Op::Create(x.into()));
        all.push(Op::Write(x.into(), 3, b"new".to_vec()));
        all.push(Op::Truncate(x.into(), 4));
        all.push(Op::Mkdir(x.into()));
        all.push(Op::Unlink(x.into()));
        all.push(Op::Rmdir(x.into()));
    }
    for (x, y) in [("a", "d/a"), ("d/a", "a"), ("d", "a"), ("a", "d")] {
        all.push(Op::Rename(x.into(), y.into(), RenameMode::Replace));
    }
    all.push(Op::Link("a".into(), "d/a".into()));
    all.push(Op::Rename("a".into(), "d/a".into(), RenameMode::Exchange));
    let mut rng = StdRng::seed_from_u64(0);
    let mut sequences = 0;
    for first in &all {
        for second in &all {
            for third in &all {
                let ops = [first.clone(), second.clone(), third.clone()];
                compare(&ops, sequences % 2 == 0, &mut rng, true, "exhaustive");
                sequences += 1;
            }
        }
    }
    assert_eq!(sequences, all.len().pow(3));
}

/// A directory waited for the one that it was to be made in; it was moved elsewhere, that one was moved into it, and so each
/// waited for the other: the job failed with EDEADLK.
const ONCE_IN_A_CIRCLE: u64 = 2_742_645_580;

/// That case and the same others each time; `make soak` runs more of them.
fn cases_that_overlap() -> Vec<u64> {
    match std::env::var_os("SEED") {
        Some(_) => elbow_testkit::cases::seeds(1).collect(),
        None => std::iter::once(ONCE_IN_A_CIRCLE)
            .chain(0..elbow_testkit::cases::rounds(300))
            .collect(),
    }
}

/// Many workers on slow storage: actions overlap each other and the operations.
#[test]
fn random_operations_while_actions_are_under_way_equal_a_real_directory() {
    rustix::process::umask(rustix::fs::Mode::empty());
    for seed in cases_that_overlap() {
        let mut rng = StdRng::seed_from_u64(seed);
        let world = world(rng.random());
        let delay = std::time::Duration::from_micros(rng.random_range(20..300));
        let slow = Interposed::new(Arc::new(RealStorage), Delaying::new(delay, 8));
        let root = RealStorage::open_root(&world.below).unwrap();
        let options = Options {
            in_flight: Some(8),
            ..Options::default()
        };
        let job = Job::begin(Arc::new(slow), root, &world.below, options).unwrap();
        {
            let model = &mut job.shared.state.lock().model;
            model.graph.flush = true;
            // Of every third few directories are kept open: the way into the others goes by names.
            if seed % 3 == 1 {
                model.inodes.limit_handles(3);
            }
        }
        let note = format!("SEED={seed}");
        let ops: Vec<Op> = (0..rng.random_range(20..120)).map(|_| random_op(&mut rng)).collect();
        for (n, op) in ops.iter().enumerate() {
            let (native, ours) = (world.native.run(op), InJob(&job).run(op));
            let (ours, native) = (ours.map(|b| brief(&b)), native.map(|b| brief(&b)));
            let errors = job.deferred_errors();
            assert!(errors.is_empty(), "{note}: {errors:?} at {n} of {ops:?}");
            assert_accounts(&job, &note);
            assert_eq!(ours, native, "{note}: operation {n} of {ops:?}");
        }
        let outcome = job.commit(&mut |_| {}).unwrap();
        assert!(matches!(outcome, Outcome::Committed), "{note}: {outcome:?} for {ops:?}");
        assert_eq!((job.counts().bytes_left, job.counts().objects_left), (0, 0), "{note}");
        assert_eq!(snapshot(&world.below), snapshot(&world.native.0), "{note}: {ops:?}");
    }
}
