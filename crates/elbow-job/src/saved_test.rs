//! A storage that has no room for what a successful command has made: what it lacks is saved elsewhere, and all of it is stored when there is
//! room again.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use elbow_file::double::{Faulty, Interposed, Operation, Plan};
use elbow_file::{Errno, FileType, RealStorage, RenameMode, Storage};

use crate::crash_test::{has_staging, recovered, seen_by_jobs};
use crate::lost_answers::may_be_made;
use crate::options::Publish;
use crate::report::{Phase, RecoverAction};
use crate::resume_test::{name_in, real};
use crate::scenes_test::{old_tree, operations};
use crate::schedule_test::{InJob, Op, Snapshot, scratch, snapshot};
use crate::{
    Cause, Ino, Job, JobError, Keep, OnConflict, Options, Outcome, SavedJob, SetAttr, SetIds, SetTime, XattrMode,
    drop_saved, restore, resume, saved_jobs,
};

/// What each path is: kind, mode, content, time of last change, extended attributes, names of the same file.
pub(crate) type Tree = BTreeMap<PathBuf, String>;

/// Of the larger files.
const LARGE: usize = 300_000;

/// Places of a test: the directory of a job, and where what there is no room for is saved.
pub(crate) struct Testbed {
    pub(crate) temp: tempfile::TempDir,
    saves: PathBuf,
}

impl Testbed {
    pub(crate) fn new() -> Self {
        rustix::process::umask(rustix::fs::Mode::empty());
        let temp = scratch();
        let saves = temp.path().join("saves");
        std::fs::create_dir(&saves).unwrap();
        Self { temp, saves }
    }

    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        let dir = self.temp.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        old_tree(&dir);
        std::fs::write(dir.join("large"), vec![b'o'; LARGE]).unwrap();
        dir
    }

    pub(crate) fn begin(&self, storage: Arc<dyn Storage>, dir: &Path, publish: Publish) -> Job {
        let options = Options {
            publish,
            in_flight: Some(1),
            durable: true,
            save: vec![self.saves.clone()],
            ..Options::default()
        };
        Job::begin(storage, RealStorage::open_root(dir).unwrap(), dir, options).unwrap()
    }

    /// On a storage that refuses what it is told to later.
    pub(crate) fn begin_faulty(&self, dir: &Path, publish: Publish) -> (Arc<Interposed<Faulty>>, Job) {
        let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
        let job = self.begin(faulty.clone(), dir, publish);
        (faulty, job)
    }

    pub(crate) fn saved(&self, dir: &Path) -> Vec<SavedJob> {
        let root = RealStorage::open_root(dir).unwrap();
        saved_jobs(&real(), &root, dir, None, std::slice::from_ref(&self.saves))
    }

    pub(crate) fn restore(&self, storage: &Arc<dyn Storage>, dir: &Path) -> Result<OsString, JobError> {
        let [saved] = &self.saved(dir)[..] else {
            panic!("{:?}", self.saved(dir))
        };
        restore(storage, &RealStorage::open_root(dir).unwrap(), dir, None, &saved.path)
    }

    pub(crate) fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.saves).unwrap().count() == 0
    }
}

/// Runs the first half, has it stored, and runs the second half, which moves, cuts and overwrites what is stored, and more.
fn work(job: &Job) {
    let s = str::to_owned;
    let run = |ops: &[Op]| ops.iter().for_each(|op| drop(InJob(job).run(op).unwrap()));
    run(&operations());
    run(&[
        Op::Mkdir(s("tree")),
        Op::Mkdir(s("tree/deep")),
        Op::Create(s("tree/deep/file")),
        Op::Write(s("tree/deep/file"), 0, vec![b'f'; LARGE]),
        Op::Create(s("tree/cut")),
        Op::Write(s("tree/cut"), 0, vec![b'c'; 300_000]),
        Op::Create(s("tree/stays")),
        Op::Write(s("large"), 5_000, vec![b'n'; 50_000]),
        Op::Create(s("swapped")),
        Op::Mkdir(s("keep/swap")),
        Op::Create(s("keep/swap/in")),
    ]);
    xattr(job, "tree/stays", "user.first");
    job.fsync(Ino::ROOT).unwrap();
    // From here on nothing is stored before the end.
    job.by_hand(true);
    run(&[
        Op::Rename(s("tree/deep"), s("keep/moved"), RenameMode::Replace),
        Op::Create(s("keep/moved/late")),
        Op::Write(s("keep/moved/late"), 2 << 20, b"after a hole".to_vec()),
        Op::Write(s("keep/moved/file"), 4_000, vec![b'F'; 9_000]),
        Op::Link(s("keep/moved/file"), s("tree/linked")),
        Op::Link(s("keep/moved/late"), s("late too")),
        Op::Truncate(s("tree/cut"), 200_000),
        Op::Truncate(s("tree/cut"), 400_000),
        Op::Write(s("tree/cut"), 210_000, b"new end".to_vec()),
        Op::Symlink(s("nowhere"), s("tree/link")),
        Op::Mkdir(s("locked")),
        Op::Create(s("locked/in")),
        Op::Chmod(s("locked/in"), 0o4444),
        Op::Write(s("large"), LARGE as u64 - 10, vec![b'N'; 100_000]),
        Op::Write(s("keep/log"), 0, b"OLD".to_vec()),
        Op::Unlink(s("swapped")),
        Op::Rename(s("keep/swap"), s("swapped"), RenameMode::Replace),
        Op::Create(s("keep/swap")),
        Op::Write(s("keep/swap"), 0, b"a file where a directory was".to_vec()),
    ]);
    zero(job, "keep/moved/file", 100_000, 100_000);
    zero(job, "large", 100_000, 10_000);
    xattr(job, "keep/moved/late", "user.late");
    xattr(job, "keep/moved", "user.of a directory");
    xattr(job, "tree/stays", "user.second");
    job.insist(|job| {
        let ino = InJob(job).walk("tree/stays").unwrap();
        job.remove_xattr(ino, OsStr::new("user.first"))
    })
    .unwrap();
    fifo(job);
    for (n, path) in [
        "tree",
        "keep/moved",
        "keep/moved/late",
        "tree/link",
        "tree/stays",
        "locked",
        "keep/log",
    ]
    .into_iter()
    .enumerate()
    {
        touch(job, path, n as i64 * 1000 + 5);
    }
    run(&[Op::Chmod(s("locked"), 0o555)]);
}

fn xattr(job: &Job, path: &str, key: &str) {
    let ino = InJob(job).walk(path).unwrap();
    job.insist(|job| job.set_xattr(ino, OsStr::new(key), b"value", XattrMode::Any))
        .unwrap();
}

fn zero(job: &Job, path: &str, offset: u64, length: u64) {
    const PUNCH_AND_KEEP_SIZE: i32 = 3;
    let ino = InJob(job).walk(path).unwrap();
    job.insist(|job| job.open(ino, true, false)).unwrap();
    job.insist(|job| job.fallocate(ino, PUNCH_AND_KEEP_SIZE, offset, length, SetIds::Stay))
        .unwrap();
    job.release(ino, true);
}

fn fifo(job: &Job) {
    let caller = crate::Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        umask: 0,
    };
    let made = job.insist(|job| job.mknod(caller, Ino::ROOT, OsStr::new("fifo"), FileType::Fifo, 0o640, 0));
    made.unwrap();
}

fn touch(job: &Job, path: &str, seconds: i64) {
    let ino = InJob(job).walk(path).unwrap();
    let time = SetTime::At(elbow_file::Time {
        seconds,
        nanoseconds: 7,
    });
    let set = SetAttr {
        atime: Some(time),
        mtime: Some(time),
        ..SetAttr::default()
    };
    job.insist(|job| job.setattr(ino, &set)).unwrap();
}

/// The tree as the job shows it.
fn shown(job: &Job) -> Tree {
    fn walk(job: &Job, at: Ino, path: &Path, out: &mut Tree, firsts: &mut BTreeMap<Ino, PathBuf>) {
        let mut entries = job.insist(|job| job.list(at)).unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let path = path.join(&entry.name);
            let attr = job.insist(|job| job.getattr(entry.ino)).unwrap();
            let mut line = line_of(
                attr.kind,
                attr.mode,
                (attr.mtime.seconds, i64::from(attr.mtime.nanoseconds)),
            );
            match attr.kind {
                FileType::Symlink => line += &job.insist(|job| job.readlink(entry.ino)).unwrap().to_string_lossy(),
                FileType::File => {
                    let first = firsts.entry(entry.ino).or_insert_with(|| path.clone());
                    let bytes = job.read_blocking(entry.ino, 0, attr.size as usize).unwrap();
                    line += &content_line(first, attr.nlink, &bytes);
                }
                _ => {}
            }
            let keys = job.insist(|job| job.list_xattrs(entry.ino)).unwrap();
            line += &xattr_line(keys);
            out.insert(path.clone(), line);
            if attr.kind == FileType::Dir {
                walk(job, entry.ino, &path, out, firsts);
            }
        }
    }
    let (mut out, mut firsts) = (Tree::new(), BTreeMap::new());
    walk(job, Ino::ROOT, Path::new(""), &mut out, &mut firsts);
    out
}

/// The tree as it is.
pub(crate) fn stored(dir: &Path) -> Tree {
    let (mut out, mut firsts) = (Tree::new(), BTreeMap::new());
    for path in snapshot(dir).into_keys() {
        let (whole, meta) = (dir.join(&path), std::fs::symlink_metadata(dir.join(&path)).unwrap());
        let kind = match meta.file_type() {
            kind if kind.is_dir() => FileType::Dir,
            kind if kind.is_symlink() => FileType::Symlink,
            kind if kind.is_file() => FileType::File,
            _ => FileType::Fifo,
        };
        let mut line = line_of(kind, meta.mode() & 0o7777, (meta.mtime(), meta.mtime_nsec()));
        match kind {
            FileType::Symlink => line += &std::fs::read_link(&whole).unwrap().to_string_lossy(),
            FileType::File => {
                let first = firsts.entry(meta.ino()).or_insert_with(|| path.clone());
                line += &content_line(first, meta.nlink() as u32, &std::fs::read(&whole).unwrap());
            }
            _ => {}
        }
        let mut names = vec![0; 4096];
        let length = rustix::fs::llistxattr(&whole, &mut names[..]).unwrap();
        let keys = names[..length].split(|byte| *byte == 0).filter(|key| !key.is_empty());
        line += &xattr_line(keys.map(|key| OsStr::from_bytes(key).to_owned()).collect());
        out.insert(path, line);
    }
    out
}

/// Symbolic links have the times at which they were made on the storage, unless they were given others, which are long ago here.
fn line_of(kind: FileType, mode: u32, mtime: (i64, i64)) -> String {
    const LONG_AGO: i64 = 100_000;
    let mtime = Some(mtime).filter(|mtime| kind != FileType::Symlink || mtime.0 < LONG_AGO);
    format!("{kind:?} {mode:o} {mtime:?} ")
}

fn content_line(first: &Path, names: u32, bytes: &[u8]) -> String {
    let (length, sum) = (bytes.len(), crc32fast::hash(bytes));
    format!("{length} bytes {sum:x}, {names} names, first {}", first.display())
}

fn xattr_line(mut keys: Vec<OsString>) -> String {
    keys.retain(|key| key.to_string_lossy().starts_with("user."));
    keys.sort();
    format!(" {keys:?}")
}

/// Calls that need room.
pub(crate) fn needs_room(call: &elbow_file::double::Call<'_>) -> bool {
    matches!(
        call.operation,
        Operation::Mkdir
            | Operation::Create
            | Operation::Symlink
            | Operation::Mknod
            | Operation::Link
            | Operation::Write
            | Operation::SetXattr
            | Operation::SetXattrHandle
    )
}

pub(crate) fn no_room_from(n: u64, errno: Errno) -> Plan {
    Plan::fail(errno).when(needs_room).nth(n).times(u64::MAX)
}

pub(crate) struct Ended {
    pub(crate) outcome: Result<Outcome, JobError>,
    pub(crate) shown: Tree,
    pub(crate) fired: u64,
}

/// Runs the job, and ends it on a storage that has no room any more after so many calls of its end that need some.
pub(crate) fn end(testbed: &Testbed, dir: &Path, publish: Publish, plan: Option<Plan>) -> Ended {
    let (faulty, job) = testbed.begin_faulty(dir, publish);
    work(&job);
    let shown = shown(&job);
    // A close that fails puts in doubt what was stored before, so none may be late.
    assert!(!job.shared.close_rest(), "nothing has failed yet");
    if let Some(plan) = plan {
        faulty.hook().arm(plan);
    }
    job.by_hand(false);
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    Ended {
        outcome,
        shown,
        fired: faulty.hook().fired(),
    }
}

/// With directories that their owner may not write.
pub(crate) fn remove(dir: &Path) {
    let opened = std::process::Command::new("chmod")
        .args(["-R", "u+rwx"])
        .arg(dir)
        .status();
    assert!(opened.unwrap().success());
    std::fs::remove_dir_all(dir).unwrap();
}

pub(crate) fn is_saved(outcome: &Result<Outcome, JobError>) -> bool {
    matches!(outcome, Ok(Outcome::Kept(_, kept)) if kept.is_whole && kept.saved.is_some())
}

/// What was saved and what was kept give all that the job had shown, and nothing else is left of it anywhere.
pub(crate) fn assert_goes_on(testbed: &Testbed, dir: &Path, shown: &Tree, what: &str) {
    let name = testbed
        .restore(&real(), dir)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(testbed.is_empty(), "{what}");
    let root = RealStorage::open_root(dir).unwrap();
    let ended = resume(&real(), &root, &name, OnConflict::RollBack);
    assert!(matches!(ended, Ok(Outcome::Committed)), "{what}: {ended:?}");
    assert_same(&stored(dir), shown, what);
    assert!(!has_staging(dir), "{what}");
}

pub(crate) fn assert_same(found: &Tree, wanted: &Tree, what: &str) {
    let paths: std::collections::BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let differ = |path: &&&PathBuf| found.get(**path) != wanted.get(**path);
    let differences: Vec<String> = paths
        .iter()
        .filter(differ)
        .map(|path| {
            format!(
                "{}: {:?} instead of {:?}",
                path.display(),
                found.get(*path),
                wanted.get(*path)
            )
        })
        .collect();
    assert!(differences.is_empty(), "{what}:\n{}", differences.join("\n"));
}

fn no_room_at_any_moment(publish: Publish) {
    let (testbed, mut n, mut saved, mut kept, mut stuck) = (Testbed::new(), 0, 0, 0, 0);
    loop {
        n += 1;
        let errno = if n % 2 == 0 { Errno::NOSPC } else { Errno::DQUOT };
        let what = format!("{publish:?}, {errno} from call {n} on");
        let dir = testbed.fresh("full");
        let before = seen_by_jobs(&dir);
        let ended = end(&testbed, &dir, publish, Some(no_room_from(n, errno)));
        if ended.fired == 0 {
            assert!(
                matches!(ended.outcome, Ok(Outcome::Committed)),
                "{what}: {:?}",
                ended.outcome
            );
            assert_same(&stored(&dir), &ended.shown, &what);
            break;
        }
        match &ended.outcome {
            Ok(Outcome::Kept(_, kept_job)) if kept_job.saved.is_none() => {
                // All of it was staged by then: the record, or a step of the commit, was refused.
                kept += 1;
                let root = RealStorage::open_root(&dir).unwrap();
                assert!(kept_job.is_whole, "{what}");
                let resumed = resume(&real(), &root, &name_in(&dir), OnConflict::RollBack);
                assert!(matches!(resumed, Ok(Outcome::Committed)), "{what}: {resumed:?}");
                assert_same(&stored(&dir), &ended.shown, &what);
            }
            Err(JobError::Unfinished { .. }) => {
                // Even taking back what was overwritten needed room, and putting it where it came from: the next recovery ends it, either way.
                stuck += 1;
                let (action, root) = (recovered(&dir, &real()).unwrap(), RealStorage::open_root(&dir).unwrap());
                if action == RecoverAction::RolledBack {
                    assert_eq!(snapshot(&dir), before, "{what}");
                } else {
                    let resumed = resume(&real(), &root, &name_in(&dir), OnConflict::RollBack);
                    assert!(matches!(resumed, Ok(Outcome::Committed)), "{what}: {resumed:?}");
                    assert_same(&stored(&dir), &ended.shown, &what);
                }
            }
            outcome => {
                assert!(is_saved(&ended.outcome), "{what}: {outcome:?}");
                saved += 1;
                assert_eq!(recovered(&dir, &real()).unwrap(), RecoverAction::Kept, "{what}");
                assert_eq!(seen_by_jobs(&dir), before, "{what}");
                assert_goes_on(&testbed, &dir, &ended.shown, &what);
            }
        }
        assert!(testbed.is_empty(), "{what}");
        remove(&dir);
    }
    println!("{n} calls: {saved} saved elsewhere, {kept} kept, {stuck} stuck");
    assert!(saved >= 20 && saved + kept > 28, "{saved} {kept}");
}

#[test]
fn what_there_is_no_room_for_is_saved_and_stored_when_there_is() {
    no_room_at_any_moment(Publish::Staged);
}

#[test]
fn what_there_is_no_room_for_is_saved_when_published_eagerly() {
    no_room_at_any_moment(Publish::Eager);
}

/// Refusals that say nothing of room.
const REFUSALS: [Errno; 8] = [
    Errno::IO,
    Errno::PERM,
    Errno::ACCESS,
    Errno::ROFS,
    Errno::TIMEDOUT,
    Errno::NOTCONN,
    Errno::STALE,
    Errno::INVAL,
];

/// One call of the end of a job is refused, for whatever reason, or made and its answer lost: nothing is lost but what the storage itself is in doubt
/// about, and then the tree is as before.
fn one_refusal_at_any_call(publish: Publish) {
    let (testbed, mut counts) = (Testbed::new(), BTreeMap::<&str, usize>::new());
    let mut n = 0;
    loop {
        // The later calls are the steps of a commit, each of which `refusal_test` refuses.
        n += if n < 60 { 1 } else { 5 };
        let errno = REFUSALS[n as usize % REFUSALS.len()];
        let is_made = may_be_made(errno) && n % 3 == 0;
        let what = format!("{publish:?}, {errno} at call {n}, made: {is_made}");
        let refusal = Plan::fail(errno).when(|call| !call.operation.only_reads()).nth(n);
        let dir = testbed.fresh("refused");
        let before = seen_by_jobs(&dir);
        let ended = end(
            &testbed,
            &dir,
            publish,
            Some(if is_made { refusal.but_made() } else { refusal }),
        );
        let goes_on = || {
            let root = RealStorage::open_root(&dir).unwrap();
            let resumed = resume(&real(), &root, &name_in(&dir), OnConflict::RollBack);
            assert!(matches!(resumed, Ok(Outcome::Committed)), "{what}: {resumed:?}");
            assert_same(&stored(&dir), &ended.shown, &what);
        };
        let became = match &ended.outcome {
            Ok(Outcome::Committed) => {
                assert_same(&stored(&dir), &ended.shown, &what);
                "committed"
            }
            Ok(Outcome::Kept(_, kept)) if kept.saved.is_some() => {
                assert_eq!(seen_by_jobs(&dir), before, "{what}");
                assert_goes_on(&testbed, &dir, &ended.shown, &what);
                "saved"
            }
            Ok(Outcome::Kept(_, kept)) => {
                assert!(kept.is_whole, "{what}");
                goes_on();
                "kept"
            }
            Ok(Outcome::RolledBack(cause)) => {
                assert!(is_doubt(cause), "{what}: {cause:?}");
                assert_eq!(seen_by_jobs(&dir), before, "{what}");
                assert!(!has_staging(&dir), "{what}");
                "rolled back"
            }
            // Only the answer to the last removal was lost.
            Err(_) if !has_staging(&dir) => {
                assert_same(&stored(&dir), &ended.shown, &what);
                "ended by a recovery"
            }
            Err(error) => {
                // Of an empty directory, which is the last to be removed, nobody knows what it was.
                let is_committed = matches!(error, JobError::Unfinished { .. });
                match recovered(&dir, &real()).unwrap() {
                    RecoverAction::RolledBack if !is_committed => {
                        assert_eq!(seen_by_jobs(&dir), before, "{what}: {error}");
                    }
                    RecoverAction::RolledBack | RecoverAction::Finished => {
                        assert_same(&stored(&dir), &ended.shown, &what);
                    }
                    _ => goes_on(),
                }
                "ended by a recovery"
            }
        };
        assert!(testbed.is_empty(), "{what}");
        remove(&dir);
        if ended.fired == 0 {
            break;
        }
        *counts.entry(became).or_default() += 1;
    }
    println!("{publish:?}: {counts:?}");
    assert!(counts["saved"] >= 25 && counts["kept"] >= 10, "{counts:?}");
}

/// What is said of data that the storage had taken.
fn is_doubt(cause: &Cause) -> bool {
    match cause {
        Cause::Deferred(errors) => errors
            .iter()
            .all(|error| ["write", "close"].contains(&&*error.operation)),
        Cause::Storage(tried) => tried.starts_with("syncing"),
        _ => false,
    }
}

#[test]
fn what_is_refused_is_saved_and_stored_later() {
    one_refusal_at_any_call(Publish::Staged);
}

#[test]
fn what_is_refused_is_saved_when_published_eagerly() {
    one_refusal_at_any_call(Publish::Eager);
}

/// A job of which the storage takes nothing from the `n`-th call on that needs room, and what it has shown.
pub(crate) fn end_with_nothing_stored(testbed: &Testbed, dir: &Path, n: u64) -> (Outcome, Tree) {
    let (faulty, job) = testbed.begin_faulty(dir, Publish::Staged);
    job.by_hand(true);
    for op in [
        Op::Mkdir("new".to_owned()),
        Op::Create("new/a".to_owned()),
        Op::Write("new/a".to_owned(), 0, b"content".to_vec()),
        Op::Write("keep/log".to_owned(), 7, b" and new".to_vec()),
        Op::Create("keep/fresh".to_owned()),
    ] {
        InJob(&job).run(&op).unwrap();
    }
    let shown = shown(&job);
    faulty.hook().arm(no_room_from(n, Errno::NOSPC));
    job.by_hand(false);
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    assert!(is_saved(&outcome), "{n}: {outcome:?}");
    (outcome.unwrap(), shown)
}

pub(crate) fn snapshot_and_time(dir: &Path) -> (Snapshot, std::time::SystemTime) {
    (snapshot(dir), std::fs::metadata(dir).unwrap().modified().unwrap())
}

/// A job of which the storage has taken nothing at all, not even its own directory.
#[test]
fn a_job_that_has_no_directory_yet_is_saved_whole() {
    let testbed = Testbed::new();
    for n in 1..=3 {
        let dir = testbed.fresh("none");
        let before = snapshot_and_time(&dir);
        let (_, shown) = end_with_nothing_stored(&testbed, &dir, n);
        assert_eq!(snapshot_and_time(&dir), before, "{n}: nothing of it is left there");
        assert_goes_on(&testbed, &dir, &shown, &format!("call {n}"));
        remove(&dir);
    }
}

/// Each call of a restoration is refused once, or is the last of a process: another one brings all of it back.
#[test]
fn a_restoration_can_be_interrupted_anywhere() {
    let testbed = Testbed::new();
    for late in [2, 10] {
        let mut n = 0;
        loop {
            n += 1;
            let what = format!("late {late}, call {n}");
            let dir = testbed.fresh("restored");
            let ended = end(&testbed, &dir, Publish::Staged, Some(no_room_from(late, Errno::NOSPC)));
            assert!(is_saved(&ended.outcome), "{what}: {:?}", ended.outcome);
            let before = seen_by_jobs(&dir);
            let plan = match n % 2 {
                0 => Plan::stop_at_change(n),
                _ => Plan::fail(Errno::NOSPC)
                    .when(|call| !call.operation.only_reads())
                    .nth(n),
            };
            let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new(Some(plan))));
            let storage: Arc<dyn Storage> = faulty.clone();
            let restored = testbed.restore(&storage, &dir);
            assert_eq!(seen_by_jobs(&dir), before, "{what}");
            if faulty.hook().fired() == 0 {
                assert!(n > 20, "{what}: {restored:?}");
                break;
            }
            if testbed.is_empty() {
                assert!(restored.is_ok(), "{what}: it was removed, and is not there");
                let root = RealStorage::open_root(&dir).unwrap();
                let resumed = resume(&real(), &root, &name_in(&dir), OnConflict::RollBack);
                assert!(matches!(resumed, Ok(Outcome::Committed)), "{what}: {resumed:?}");
                assert_same(&stored(&dir), &ended.shown, &what);
            } else {
                let _ = recovered(&dir, &real()).unwrap();
                assert_goes_on(&testbed, &dir, &ended.shown, &what);
            }
            remove(&dir);
            // The later calls are many and alike.
            n += if n > 20 { 4 } else { 0 };
        }
        remove(&testbed.temp.path().join("restored"));
        println!("late {late}: {n} calls");
    }
}

fn saved_job(testbed: &Testbed, name: &str) -> (PathBuf, SavedJob, Tree) {
    let dir = testbed.fresh(name);
    let ended = end(testbed, &dir, Publish::Staged, Some(no_room_from(3, Errno::NOSPC)));
    assert!(is_saved(&ended.outcome), "{:?}", ended.outcome);
    let saved = testbed.saved(&dir).pop().expect("it was saved");
    (dir, saved, ended.shown)
}

/// What is not as it was saved, or not ours, is refused before anything is changed.
#[test]
fn what_was_damaged_or_is_not_ours_is_not_restored() {
    let testbed = Testbed::new();
    let (dir, saved, shown) = saved_job(&testbed, "damaged");
    let root = RealStorage::open_root(&dir).unwrap();
    let refused = |what: &str| match restore(&real(), &root, &dir, None, &saved.path) {
        Err(JobError::NotSaved { found, .. }) => assert!(found.contains(what), "{found}"),
        other => panic!("{what}: {other:?}"),
    };
    let flip = |file: &str, at: usize| {
        let path = saved.path.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
    };
    for at in [0, 9, 40] {
        flip("index", at);
        refused("its index cannot be read");
        assert!(testbed.saved(&dir).is_empty(), "it is not listed");
        flip("index", at);
    }
    let others = |mode| std::fs::set_permissions(&saved.path, std::fs::Permissions::from_mode(mode)).unwrap();
    others(0o755);
    refused("closed to all others");
    others(0o700);
    let elsewhere = testbed.fresh("elsewhere");
    let other_root = RealStorage::open_root(&elsewhere).unwrap();
    assert!(matches!(
        restore(&real(), &other_root, &elsewhere, None, &saved.path),
        Err(JobError::NotSaved { .. })
    ));
    flip("data", 100);
    refused("its data is damaged");
    assert!(saved.path.exists() && seen_by_jobs(&dir).contains_key(Path::new("dead")));
    flip("data", 100);
    assert_goes_on(&testbed, &dir, &shown, "as it was");
}

/// The rest of the job was dropped meanwhile: what was saved is of no use, and can be dropped, too.
#[test]
fn what_was_saved_of_a_job_that_was_dropped_is_not_restored() {
    let testbed = Testbed::new();
    let (dir, saved, _) = saved_job(&testbed, "dropped");
    let root = RealStorage::open_root(&dir).unwrap();
    crate::drop_kept(&real(), &root, &[name_in(&dir)]).unwrap();
    let restored = restore(&real(), &root, &dir, None, &saved.path);
    assert!(matches!(restored, Err(JobError::NotSaved { .. })), "{restored:?}");
    drop_saved(&saved.path).unwrap();
    assert!(testbed.is_empty() && !has_staging(&dir));
}

/// Somebody else has changed what the job had seen: that is told, and overwritten only if it was asked for.
#[test]
fn what_others_did_since_is_a_conflict() {
    let testbed = Testbed::new();
    let (dir, _, _) = saved_job(&testbed, "conflict");
    std::fs::write(dir.join("two"), "theirs").unwrap();
    let name = testbed.restore(&real(), &dir).unwrap();
    let root = RealStorage::open_root(&dir).unwrap();
    match resume(&real(), &root, &name, OnConflict::RollBack) {
        Ok(Outcome::Kept(Cause::Conflict(paths), _)) => assert_eq!(paths[0].0, Path::new("two")),
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(dir.join("two")).unwrap(), b"theirs");
}

/// Where it cannot be saved either, the job is rolled back, and both are said.
#[test]
fn where_nothing_can_be_saved_the_job_is_rolled_back() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("nowhere");
    let before = snapshot(&dir);
    std::fs::remove_dir(&testbed.saves).unwrap();
    let ended = end(&testbed, &dir, Publish::Staged, Some(no_room_from(3, Errno::NOSPC)));
    match ended.outcome {
        Ok(Outcome::RolledBack(Cause::Deferred(errors))) => {
            let last = errors.last().unwrap();
            assert_eq!(
                (last.path.as_path(), last.errno),
                (testbed.saves.as_path(), Errno::NOENT.raw_os_error())
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(snapshot(&dir), before);
}

/// A process that dies while it saves leaves a directory without an index, which the next one removes.
#[test]
fn what_a_death_left_while_saving_is_removed_by_the_next() {
    let testbed = Testbed::new();
    let (dir, saved, shown) = saved_job(&testbed, "first");
    let torn = testbed
        .saves
        .join("elbow-0123456789abcdef-1.000000005.0123456789abcdef.saved");
    std::fs::create_dir(&torn).unwrap();
    std::fs::set_permissions(&torn, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(torn.join("data"), "half").unwrap();
    let (_, other, _) = saved_job(&testbed, "second");
    assert!(!torn.exists() && saved.path.exists() && other.path.exists());
    drop_saved(&other.path).unwrap();
    assert_goes_on(&testbed, &dir, &shown, "the first");
}

/// An interrupt is heard while what was refused is tried once more, and while it is saved.
#[test]
fn an_interrupt_at_the_end_rolls_back() {
    let testbed = Testbed::new();
    for phase in [Phase::Draining, Phase::Saving] {
        let dir = testbed.fresh("interrupted");
        let before = snapshot(&dir);
        let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
        work(&job);
        let (interrupted, is_heard) = (job.clone(), Arc::new(AtomicBool::new(false)));
        let heard = is_heard.clone();
        let plan = match phase {
            // Refused once: there is room again, and it would be committed.
            Phase::Draining => Plan::fail(Errno::NOSPC).when(move |call| {
                let is_it = needs_room(call);
                if is_it && !heard.swap(true, Relaxed) {
                    interrupted.interrupt();
                }
                is_it
            }),
            _ => no_room_from(3, Errno::NOSPC),
        };
        faulty.hook().arm(plan);
        job.by_hand(false);
        let outcome = job.commit_or_keep(Keep::Complete, &mut |progress| {
            if matches!((phase, progress.phase), (Phase::Saving, Phase::Saving)) {
                is_heard.store(true, Relaxed);
                job.interrupt();
            }
        });
        assert!(is_heard.load(Relaxed), "{phase:?}");
        assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{phase:?}: {outcome:?}");
        assert_eq!(snapshot(&dir), before, "{phase:?}");
        assert!(testbed.is_empty() && !has_staging(&dir), "{phase:?}");
        remove(&dir);
    }
}

/// What was refused for a moment and done at the end had lost its times and extended attributes: they counted as set.
#[test]
fn what_was_refused_once_has_its_attributes_after_all() {
    let testbed = Testbed::new();
    let mut n = 0;
    loop {
        n += 1;
        let dir = testbed.fresh("once");
        let once = Plan::fail(Errno::NOSPC).when(needs_room).nth(n);
        let ended = end(&testbed, &dir, Publish::Staged, Some(once));
        if ended.fired == 0 {
            break;
        }
        if matches!(ended.outcome, Ok(Outcome::Committed)) {
            assert_same(&stored(&dir), &ended.shown, &format!("call {n} refused once"));
        }
        for saved in testbed.saved(&dir) {
            drop_saved(&saved.path).unwrap();
        }
        remove(&dir);
    }
    assert!(n > 40, "{n}");
}

/// A storage that tells only at close(2) that it could not store what it had taken (NFS over its quota). That was tried once more, found to be stored, and
/// committed.
#[test]
fn what_is_lost_when_it_is_closed_is_neither_committed_nor_kept() {
    for errno in [Errno::NOSPC, Errno::IO] {
        let testbed = Testbed::new();
        let dir = testbed.fresh("closed");
        let before = snapshot(&dir);
        let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
        InJob(&job).run(&Op::Create("new".to_owned())).unwrap();
        let ino = InJob(&job).walk("new").unwrap();
        job.insist(|job| job.open(ino, true, false)).unwrap();
        job.insist(|job| job.write(ino, 0, b"taken", SetIds::Stay)).unwrap();
        job.fsync(ino).unwrap();
        faulty.hook().arm(Plan::fail(errno).on(Operation::Close));
        job.release(ino, true);
        let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
        assert_eq!(faulty.hook().fired(), 1);
        assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{outcome:?}");
        assert_eq!(snapshot(&dir), before);
        assert!(testbed.is_empty());
    }
}

/// A write of several calls was refused at its second, and the command cut the file meanwhile: what the first had written stayed.
#[test]
fn what_a_refused_write_has_left_is_cut_if_the_command_cut_the_file() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("cut");
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    InJob(&job).run(&Op::Create("new".to_owned())).unwrap();
    job.fsync(Ino::ROOT).unwrap();
    job.by_hand(true);
    let ino = InJob(&job).walk("new").unwrap();
    for at in [0, 2 << 20] {
        let data = vec![b'x'; 1 << 20];
        InJob(&job).run(&Op::Write("new".to_owned(), at, data)).unwrap();
    }
    let cutter = job.clone();
    let cut = move |call: &elbow_file::double::Call<'_>| {
        if call.operation == Operation::Write && call.offset == 2 << 20 {
            for size in [0, 1 << 20] {
                let set = SetAttr {
                    size: Some(size),
                    ..SetAttr::default()
                };
                cutter.insist(|job| job.setattr(ino, &set)).unwrap();
            }
            return true;
        }
        false
    };
    faulty.hook().arm(Plan::fail(Errno::NOSPC).when(cut));
    job.by_hand(false);
    while faulty.hook().fired() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    assert!(
        std::fs::read(dir.join("new")).unwrap() == vec![0; 1 << 20],
        "something of before is there"
    );
}

/// What was saved of a job that has gone on since is not brought back a second time: its results would rise again where somebody has moved them away.
#[test]
fn a_job_that_has_gone_on_is_not_restored_again() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("twice");
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    job.by_hand(true);
    InJob(&job).run(&Op::Create("new".to_owned())).unwrap();
    faulty.hook().arm(no_room_from(1, Errno::NOSPC));
    job.by_hand(false);
    assert!(is_saved(&job.commit_or_keep(Keep::Complete, &mut |_| {})));
    let saved = testbed.saved(&dir).pop().unwrap();
    assert!(saved.is_all);
    // It begins, and there is no room again.
    let root = RealStorage::open_root(&dir).unwrap();
    let full: Arc<dyn Storage> = Arc::new(Interposed::new(
        Arc::new(RealStorage),
        Faulty::new(Some(Plan::fail(Errno::NOSPC).on(Operation::Create).named("new"))),
    ));
    let refused = restore(&full, &root, &dir, None, &saved.path);
    assert!(matches!(refused, Err(JobError::Storage { .. })), "{refused:?}");
    // Its removal is not durable when the power fails: the directory is there again.
    let copy = testbed.temp.path().join("copy");
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([&saved.path, &copy])
        .status();
    assert!(copied.unwrap().success());
    let name = testbed.restore(&real(), &dir).unwrap();
    assert!(matches!(
        resume(&real(), &root, &name, OnConflict::RollBack),
        Ok(Outcome::Committed)
    ));
    std::fs::remove_file(dir.join("new")).unwrap();
    std::fs::rename(&copy, &saved.path).unwrap();
    let again = restore(&real(), &root, &dir, None, &saved.path);
    assert!(matches!(again, Err(JobError::NotSaved { .. })), "{again:?}");
    assert!(!dir.join("new").exists() && !has_staging(&dir));
    drop_saved(&saved.path).unwrap();
}

/// A directory that is stored and only has to be moved to another name is moved, not saved with all that is in it.
#[test]
fn what_is_stored_under_another_name_is_not_saved() {
    let testbed = Testbed::new();
    let dir = testbed.fresh("moved");
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    let run = |ops: &[Op]| ops.iter().for_each(|op| drop(InJob(&job).run(op).unwrap()));
    run(&[
        Op::Mkdir("out.tmp".to_owned()),
        Op::Create("out.tmp/large".to_owned()),
        Op::Write("out.tmp/large".to_owned(), 0, vec![b'l'; LARGE]),
    ]);
    job.fsync(Ino::ROOT).unwrap();
    job.by_hand(true);
    run(&[
        Op::Create("late".to_owned()),
        Op::Write("late".to_owned(), 0, b"late".to_vec()),
        Op::Rename("out.tmp".to_owned(), "out".to_owned(), RenameMode::Replace),
    ]);
    let shown = shown(&job);
    faulty.hook().arm(no_room_from(1, Errno::NOSPC));
    job.by_hand(false);
    assert!(is_saved(&job.commit_or_keep(Keep::Complete, &mut |_| {})));
    assert_eq!(testbed.saved(&dir)[0].bytes, 4);
    assert_goes_on(&testbed, &dir, &shown, "moved");
}

/// What the storage has, and what was moved to a directory that it has no room for, waited for that for ever: the job never ended.
#[test]
fn what_was_moved_to_a_directory_that_finds_no_room_is_saved_with_it() {
    let s = str::to_owned;
    let testbed = Testbed::new();
    let dir = testbed.fresh("no room");
    let (faulty, job) = testbed.begin_faulty(&dir, Publish::Staged);
    let run = |ops: &[Op]| ops.iter().for_each(|op| drop(InJob(&job).run(op).unwrap()));
    run(&[
        Op::Mkdir(s("tree")),
        Op::Create(s("tree/file")),
        Op::Create(s("loose")),
        Op::Write(s("loose"), 0, b"content".to_vec()),
    ]);
    job.fsync(Ino::ROOT).unwrap();
    job.by_hand(true);
    run(&[
        Op::Mkdir(s("later")),
        Op::Rename(s("loose"), s("later/loose"), RenameMode::Replace),
        // One waits for another that waits.
        Op::Rename(s("tree"), s("later/tree"), RenameMode::Replace),
        Op::Mkdir(s("loose")),
        Op::Rename(s("later/tree/file"), s("loose/file"), RenameMode::Replace),
        Op::Mkdir(s("tree")),
        Op::Rename(s("loose/file"), s("tree/file"), RenameMode::Replace),
    ]);
    let shown = shown(&job);
    faulty.hook().arm(no_room_from(1, Errno::NOSPC));
    job.by_hand(false);
    let outcome = job.commit_or_keep(Keep::Complete, &mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::Kept(..))), "{outcome:?}");
    assert!(faulty.hook().fired() > 0);
    assert_goes_on(&testbed, &dir, &shown, "what was moved");
}
