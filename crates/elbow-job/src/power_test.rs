//! Power that fails at any moment of a job: what was written and not synced is there, or not, or in part. A recovery then ends the job
//! without being told to by force, and leaves the old tree or the new one; so does the next one, if the power fails again at any moment of that.
//!
//! ```text
//!   job ------> Volatile    its history: crash at each moment -> images
//!   recovery -> Volatile    over an image; its history: crash at each moment -> images
//!   recovery                over each of those: the tree that the first recovery leaves
//! ```
//!
//! The manifest was written and not synced before things were staged: 33 of 120 jobs could only be ended by `--force`.
//! `SOAK=1` looks at every image of every moment of the job, and at eight times as many of each recovery. That the enumeration would find a
//! mistake of ours is shown in `planted_test`.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use elbow_file::double::{Call, Faulty, Hook, Image, Interposed, Operation, Plan, Volatile};
use elbow_file::{Errno, RealStorage, RenameMode, Storage};

use crate::crash_test::begin;
use crate::options::Publish;
use crate::recover::recover_jobs;
use crate::report::RecoverAction;
use crate::schedule_test::{InJob, Op, brief, scratch};
use crate::staging::is_staging_name;
use crate::{Job, Outcome};

/// Of a moment of a job, without `SOAK`.
const IMAGES: usize = 12;
/// Of a moment of a recovery.
const IMAGES_OF_RECOVERY: usize = 2;
const SOAK: usize = 8;
/// Who finds a job's own directory that has just been made waits for more to come.
const LONG_AGO: Duration = Duration::from_secs(3600);

/// Names, and contents or targets in short.
pub(crate) type Found = BTreeMap<PathBuf, Option<String>>;

/// What a job is run on, what it does, and what refuses its commit late.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    old_tree: fn(&Path),
    operations: fn() -> Vec<Op>,
    refused: fn() -> Plan,
}

/// Names that come, go and change, and a few bytes behind a file.
pub(crate) const NAMES: Work = Work {
    old_tree,
    operations,
    refused: || {
        let is_of_old = |call: &Call<'_>| call.path().ends_with("keep/log");
        Plan::fail(Errno::IO).on(Operation::Sync).when(is_of_old)
    },
};

/// Contents, one of which is so large that what has arrived goes from its patch while it is written, and names that are not moved.
pub(crate) const CONTENTS: Work = Work {
    old_tree: old_contents,
    operations: operations_on_contents,
    // By then all contents have arrived.
    refused: || Plan::fail(Errno::IO).on(Operation::SetTimes).named("large"),
};

/// Bytes of which no two sectors in a row are equal, and none is zero.
fn pattern(first: usize, length: usize) -> Vec<u8> {
    const SECTOR_BYTES: usize = 512;
    let byte = |at: usize| 1 + ((first + at / SECTOR_BYTES) % 251) as u8;
    (0..length).map(byte).collect()
}

fn old_contents(dir: &Path) {
    std::fs::create_dir(dir.join("keep")).unwrap();
    for (name, length) in [
        ("keep/large", 200_000),
        ("keep/cut", 20_000),
        ("grown", 3000),
        ("reserved", 5000),
        ("longer", 5000),
        ("one", 1),
        ("two", 2),
    ] {
        std::fs::write(dir.join(name), pattern(length, length)).unwrap();
    }
}

fn operations_on_contents() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Write(s("keep/large"), 61_000, pattern(100, 70_000)),
        Op::Truncate(s("keep/cut"), 6000),
        Op::Truncate(s("grown"), 9000),
        Op::Reserve(s("reserved"), 3000..12_000, true),
        Op::Reserve(s("longer"), 3000..12_000, false),
        Op::Rename(s("one"), s("two"), RenameMode::Exchange),
        Op::Link(s("two"), s("second")),
        Op::Symlink(s("two"), s("keep/soft")),
    ]
}

fn old_tree(dir: &Path) {
    for sub in ["keep", "gone", "moves"] {
        std::fs::create_dir_all(dir.join(sub)).unwrap();
    }
    for (name, content) in [
        ("keep/log", "old log"),
        ("keep/replaced", "old"),
        ("gone/x", "x"),
        ("moves/in", "in"),
        ("dead", "dead"),
    ] {
        std::fs::write(dir.join(name), content).unwrap();
    }
}

fn operations() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Mkdir(s("new")),
        Op::Create(s("new/a")),
        Op::Write(s("new/a"), 0, b"content of a".to_vec()),
        Op::Create(s("keep/fresh")),
        Op::Write(s("keep/log"), 7, b" and new".to_vec()),
        Op::Create(s("keep/tmp")),
        Op::Write(s("keep/tmp"), 0, b"new".to_vec()),
        Op::Rename(s("keep/tmp"), s("keep/replaced"), RenameMode::Replace),
        Op::Unlink(s("gone/x")),
        Op::Rmdir(s("gone")),
        Op::Rename(s("moves"), s("new/moved"), RenameMode::Replace),
        Op::Unlink(s("dead")),
    ]
}

pub(crate) fn tree(dir: &Path) -> Found {
    fn walk(top: &Path, dir: &Path, found: &mut Found) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
            let content = match kind.is_symlink() {
                true => Some(format!("-> {}", std::fs::read_link(&path).unwrap().display())),
                false => kind.is_file().then(|| brief(&std::fs::read(&path).unwrap())),
            };
            found.insert(path.strip_prefix(top).unwrap().to_owned(), content);
            if kind.is_dir() {
                walk(top, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(dir, dir, &mut found);
    found
}

/// The tree before all jobs.
pub(crate) fn before(work: Work) -> Found {
    let temp = scratch();
    (work.old_tree)(temp.path());
    tree(temp.path())
}

/// A job that has come to its end over storage that loses power.
pub(crate) struct Ran<H> {
    pub(crate) volatile: Arc<Volatile>,
    /// The first moment of the job.
    pub(crate) began: usize,
    pub(crate) hook: Arc<Interposed<H>>,
    /// The tree that it left.
    pub(crate) left: Found,
}

/// Runs a job through a hook over such a storage.
pub(crate) fn run<H: Hook + 'static>(
    work: Work,
    publish: Publish,
    hook: impl FnOnce(&Arc<Volatile>) -> H,
    end: impl Fn(&Job, &H),
) -> Ran<H> {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    (work.old_tree)(temp.path());
    let root = RealStorage::open_root(temp.path()).unwrap();
    let volatile = Arc::new(Volatile::new(Arc::new(RealStorage), &root).unwrap());
    let began = volatile.now();
    let hook = Arc::new(Interposed::new(volatile.clone(), hook(&volatile)));
    let job = begin(hook.clone(), temp.path(), publish);
    for op in (work.operations)() {
        InJob(&job).run(&op).unwrap();
    }
    end(&job, hook.hook());
    Ran {
        volatile,
        began,
        hook,
        left: tree(temp.path()),
    }
}

fn run_through(work: Work, publish: Publish, end: impl Fn(&Job, &Faulty)) -> Ran<Faulty> {
    run(work, publish, |_| Faulty::default(), end)
}

/// How many images were looked at, in how many a job was ended.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    images: usize,
    ended: usize,
}

fn is_soak() -> bool {
    std::env::var_os("SOAK").is_some()
}

/// Puts an image into an empty directory, as one finds it an hour later.
fn restore(image: &Image, dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    image
        .write_to(&RealStorage, &RealStorage::open_root(dir).unwrap())
        .unwrap();
    let times = std::fs::FileTimes::new().set_modified(SystemTime::now() - LONG_AGO);
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if is_staging_name(&entry.file_name()) {
            std::fs::File::open(entry.path()).unwrap().set_times(times).unwrap();
        }
    }
}

/// Ends what is found in a directory: how many jobs there were, and the tree afterwards.
fn ended(storage: &Arc<dyn Storage>, dir: &Path) -> Result<(usize, Found), String> {
    let root = RealStorage::open_root(dir).unwrap();
    let found = recover_jobs(storage, &root, false, &|_| false).map_err(|error| error.to_string())?;
    let is_ended = |action| matches!(action, RecoverAction::RolledBack | RecoverAction::Finished);
    match found.iter().find(|job| !is_ended(job.action)) {
        Some(job) => Err(format!("{job:?}")),
        None => Ok((found.len(), tree(dir))),
    }
}

/// So many images at most of a moment, among them that in which nothing survives and the last one.
fn images(volatile: &Volatile, moment: usize, max: usize) -> Vec<Image> {
    let mut images: Vec<Image> = volatile.crash_at(moment).images(moment as u64).collect();
    let count = images.len();
    if count > max {
        let chosen: BTreeSet<usize> = (0..max).map(|nth| nth * (count - 1) / (max - 1)).collect();
        let mut numbers = 0..;
        images.retain(|_| chosen.contains(&numbers.next().expect("without end")));
    }
    images
}

/// Lets the power fail at each moment since the job began: what a recovery leaves must be one of the outcomes.
///
/// # Errors
/// What was found that must not be.
pub(crate) fn look_for_faults<H>(ran: &Ran<H>, outcomes: &[Found]) -> Result<Seen, String> {
    let temp = scratch();
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    let mut seen = Seen::default();
    for moment in ran.began..=ran.volatile.now() {
        for image in images(&ran.volatile, moment, if is_soak() { usize::MAX } else { IMAGES }) {
            let dir = temp.path().join("image");
            restore(&image, &dir);
            let what = |found: &str| format!("moment {moment}, {image}: {found}");
            let (jobs, left) = ended(&real, &dir).map_err(|found| what(&found))?;
            if !outcomes.contains(&left) {
                return Err(what(&format!("neither old nor new: {left:#?}")));
            }
            seen.images += 1;
            seen.ended += jobs;
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
    Ok(seen)
}

fn assert_recoverable<H>(ran: &Ran<H>, outcomes: &[Found]) {
    let seen = look_for_faults(ran, outcomes).unwrap_or_else(|found| panic!("{found}"));
    println!("{seen:?}");
    assert!(seen.images > 150 && seen.ended > seen.images / 2, "{seen:?}");
}

/// Lets the power fail while a recovery works on an image, at each of its moments: the next one leaves what this one would have.
fn look_at_recovery(image: &Image, place: &Path, what: &str) -> Seen {
    let dir = place.join("image");
    restore(image, &dir);
    let root = RealStorage::open_root(&dir).unwrap();
    let volatile = Arc::new(Volatile::new(Arc::new(RealStorage), &root).unwrap());
    let began = volatile.now();
    let storage: Arc<dyn Storage> = volatile.clone();
    let (_, whole) = ended(&storage, &dir).unwrap_or_else(|found| panic!("{what}: {found}"));
    let (real, again): (Arc<dyn Storage>, _) = (Arc::new(RealStorage), place.join("again"));
    let max = IMAGES_OF_RECOVERY * if is_soak() { SOAK } else { 1 };
    let mut seen = Seen::default();
    for moment in began..volatile.now() {
        for image in images(&volatile, moment, max) {
            restore(&image, &again);
            let what = || format!("{what}; moment {moment} of the recovery, {image}");
            let (jobs, left) = ended(&real, &again).unwrap_or_else(|found| panic!("{}: {found}", what()));
            assert!(left == whole, "{}: {left:#?}, and not {whole:#?}", what());
            seen.images += 1;
            seen.ended += jobs;
            std::fs::remove_dir_all(&again).unwrap();
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
    seen
}

/// The same for one image of every so many moments of a job, in a soak for [`IMAGES`] of each moment.
fn assert_recovery_is_recoverable<H>(ran: &Ran<H>, moments: usize) {
    let temp = scratch();
    let mut all = Seen::default();
    for moment in (ran.began..=ran.volatile.now()).step_by(if is_soak() { 1 } else { moments }) {
        let mut images = images(&ran.volatile, moment, IMAGES);
        if !is_soak() {
            images = vec![images.swap_remove(moment / moments % images.len())];
        }
        for image in images {
            let seen = look_at_recovery(&image, temp.path(), &format!("moment {moment}, {image}"));
            all.images += seen.images;
            all.ended += seen.ended;
        }
    }
    println!("{all:?}");
    assert!(all.images > 50 && all.ended > all.images / 2, "{all:?}");
}

fn committed(work: Work, publish: Publish) -> Ran<Faulty> {
    let ran = run_through(work, publish, |job, _| {
        assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    });
    assert_ne!(ran.left, before(work));
    ran
}

fn rolled_back(publish: Publish) -> Ran<Faulty> {
    let ran = run_through(NAMES, publish, |job, _| {
        job.shared.drain(&mut |_| {}).unwrap();
        job.roll_back(false, &mut |_| {}).unwrap();
    });
    assert_eq!(ran.left, before(NAMES));
    ran
}

/// Commits a job of which a late step is refused after its record was written: old content is changed by then.
pub(crate) fn commit_refused(work: Work, job: &Job, faulty: &Faulty) {
    job.shared.drain(&mut |_| {}).unwrap();
    faulty.arm((work.refused)());
    let outcome = job.commit(&mut |_| {});
    assert!(matches!(outcome, Ok(Outcome::RolledBack(_))), "{outcome:?}");
    assert_eq!(faulty.fired(), 1);
}

fn taken_back(work: Work, publish: Publish) -> Ran<Faulty> {
    let ran = run_through(work, publish, |job, faulty| commit_refused(work, job, faulty));
    assert_eq!(ran.left, before(work));
    ran
}

#[test]
fn after_a_power_cut_a_recovery_needs_no_force() {
    let ran = committed(NAMES, Publish::Staged);
    assert_recoverable(&ran, &[before(NAMES), ran.left.clone()]);
    assert_recoverable(&rolled_back(Publish::Staged), &[before(NAMES)]);
}

#[test]
fn after_a_power_cut_a_recovery_needs_no_force_when_published_eagerly() {
    let ran = committed(NAMES, Publish::Eager);
    assert_recoverable(&ran, &[before(NAMES), ran.left.clone()]);
    assert_recoverable(&rolled_back(Publish::Eager), &[before(NAMES)]);
}

/// Of a commit that is refused after its record was written each step back may be the last for now.
#[test]
fn after_a_power_cut_while_a_commit_is_taken_back_a_recovery_leaves_the_old_tree_or_the_new_one() {
    let after = committed(NAMES, Publish::Staged).left;
    for publish in [Publish::Staged, Publish::Eager] {
        assert_recoverable(&taken_back(NAMES, publish), &[before(NAMES), after.clone()]);
    }
}

#[test]
fn after_a_power_cut_during_a_recovery_the_next_one_leaves_what_it_would_have() {
    assert_recovery_is_recoverable(&committed(NAMES, Publish::Staged), 2);
    assert_recovery_is_recoverable(&rolled_back(Publish::Eager), 2);
}

#[test]
fn after_a_power_cut_during_a_recovery_that_takes_a_commit_back_the_next_one_leaves_what_it_would_have() {
    assert_recovery_is_recoverable(&taken_back(NAMES, Publish::Staged), 2);
}

/// What was punched out of a patch is said to have arrived before; when it is taken back, the patch is filled again, and the file after it gets back what
/// its log has. Only small contents were cut off, whose logs lie in their patches, of which nothing is punched.
#[test]
fn after_a_power_cut_a_recovery_leaves_the_old_contents_or_the_new_ones() {
    for publish in [Publish::Staged, Publish::Eager] {
        let ran = committed(CONTENTS, publish);
        let outcomes = [before(CONTENTS), ran.left.clone()];
        assert_recoverable(&ran, &outcomes);
        assert_recoverable(&taken_back(CONTENTS, publish), &outcomes);
    }
}

#[test]
fn after_a_power_cut_during_a_recovery_of_contents_the_next_one_leaves_what_it_would_have() {
    assert_recovery_is_recoverable(&committed(CONTENTS, Publish::Staged), 7);
    assert_recovery_is_recoverable(&taken_back(CONTENTS, Publish::Staged), 7);
}
