//! Death at every changing call of a job: after `recover` the tree is the old one or the new one. And of keeping a job and of
//! dropping it: it is kept whole, or gone.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use elbow_file::double::{Faulty, Interposed, Operation, PlainRenames, Plan, SyntheticInodes};
use elbow_file::{RealStorage, RenameMode, Storage};

use crate::job_files::{DONE, RECORD};
use crate::options::Publish;
use crate::patch_files;
use crate::recover::recover_jobs;
use crate::report::RecoverAction;
use crate::scenes_test::{Scene, old_tree, operations};
use crate::schedule_test::{InJob, Op, Snapshot, scratch, snapshot};
use crate::staging::{KEPT, is_probe_name, is_staging_name, part_name};
use crate::{Job, JobError, Options};

pub(crate) fn begin(storage: Arc<dyn Storage>, dir: &Path, publish: Publish) -> Job {
    let root = RealStorage::open_root(dir).unwrap();
    Job::begin(
        storage,
        root,
        dir,
        Options {
            publish,
            in_flight: Some(1),
            ..Options::default()
        },
    )
    .unwrap()
}

/// The same for a job that fails and is kept.
fn run_and_keep(dir: &Path, stop: Option<u64>, publish: Publish) -> (u64, bool) {
    Scene::usual(publish).run_to_its_end(dir, stop, |job| drop(job.roll_back(true, &mut |_| {})))
}

/// A job has written its commit record there, and is not through with it.
fn committed_and_not_ended(dir: &Path) -> bool {
    has_file_of_job(dir, &[RECORD, DONE])
}

/// A job over the directory has one of these files in its own.
pub(crate) fn has_file_of_job(dir: &Path, names: &[&str]) -> bool {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut jobs = entries.filter(|path| is_staging_name(path.file_name().unwrap()));
    jobs.any(|job| names.iter().any(|name| job.join(name).exists()))
}

pub(crate) fn recovered(dir: &Path, storage: &Arc<dyn Storage>) -> Result<RecoverAction, JobError> {
    let root = RealStorage::open_root(dir).unwrap();
    let all = recover_jobs(storage, &root, true, &|_| false)?;
    assert!(all.len() <= 1, "one job was run: {all:?}");
    Ok(all.first().map_or(RecoverAction::RolledBack, |one| one.action))
}

/// Times of the last change of the directories of the old tree, the root first.
pub(crate) fn old_times(dir: &Path) -> Vec<Option<SystemTime>> {
    let modified = |sub: &str| std::fs::metadata(dir.join(sub)).and_then(|meta| meta.modified()).ok();
    ["", "keep", "gone", "gone/deep", "moves"].map(modified).to_vec()
}

pub(crate) fn has_staging(dir: &Path) -> bool {
    let mut entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries.any(|entry| {
        let is_dir = entry.file_type().unwrap().is_dir();
        is_staging_name(&entry.file_name()) || is_dir && has_staging(&entry.path())
    })
}

/// Where a recovery dies that follows a death at the `n`-th change: somewhere, or at each of its changes in turn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Once,
    Everywhere,
}

impl Cut {
    /// In a soak everywhere.
    pub(crate) fn usual() -> Self {
        match std::env::var_os("SOAK") {
            Some(_) => Self::Everywhere,
            None => Self::Once,
        }
    }

    /// Calls `dies` with the change at which the recovery dies, until it says that there are not so many. Returns how often it died.
    pub(crate) fn each(self, n: u64, prime: u64, mut dies: impl FnMut(u64) -> bool) -> u64 {
        match self {
            Self::Once => u64::from(dies(n % prime + 1)),
            Self::Everywhere => (1..).take_while(|at| dies(*at)).count() as u64,
        }
    }
}

/// Lets a recovery die at its `at`-th change; whether it came so far.
pub(crate) fn recovery_dies(dir: &Path, storage: &Arc<dyn Storage>, at: u64) -> bool {
    let faulty = Arc::new(Interposed::new(
        storage.clone(),
        Faulty::new([Plan::stop_at_change(at)]),
    ));
    let dies: Arc<dyn Storage> = faulty.clone();
    let _ = recovered(dir, &dies);
    faulty.hook().fired() > 0
}

/// What a recovery makes to see whose it becomes, and has died over, is removed by one that comes later.
pub(crate) fn age_probes(dir: &Path) {
    const LONG_AGO: Duration = Duration::from_secs(3600);
    let times = std::fs::FileTimes::new().set_modified(SystemTime::now() - LONG_AGO);
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if is_probe_name(&entry.file_name()) {
            std::fs::File::open(entry.path()).unwrap().set_times(times).unwrap();
        }
    }
}

/// The fewest calls, or changes, of some runs of a job: one that is slower for a moment stores things that it then moves, with more of them, and a fault
/// at those does not come in the others.
pub(crate) fn fewest(runs: impl FnMut(&str) -> u64) -> u64 {
    let counts = ["first", "second", "third", "fourth", "fifth"].map(runs);
    counts.into_iter().min().expect("five runs")
}

/// How often a fault is tried that did not come.
const ATTEMPTS_MAX: usize = 20;

/// Does on a fresh tree what meets a fault, until that comes: a job that is quicker for a moment makes fewer calls.
///
/// # Panics
/// When it never comes: a test without its fault tests nothing.
pub(crate) fn with_fault<T>(
    what: &str,
    mut fresh: impl FnMut() -> PathBuf,
    run: impl Fn(&Path) -> Option<T>,
) -> (PathBuf, T) {
    for _ in 0..ATTEMPTS_MAX {
        let dir = fresh();
        if let Some(ended) = run(&dir) {
            return (dir, ended);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
    panic!("{what}: it never came")
}

/// What jobs leave that die at each of their changes.
struct Deaths<'a> {
    scene: &'a Scene,
    place: tempfile::TempDir,
    before: Snapshot,
    after: Snapshot,
    changes: u64,
    /// The last one had committed.
    has_committed: bool,
    /// Rolled back at last by the second recovery.
    undone_at_last: u64,
}

impl<'a> Deaths<'a> {
    fn of(scene: &'a Scene) -> Self {
        rustix::process::umask(rustix::fs::Mode::empty());
        let place = scratch();
        let fresh = |name: &str| fresh_for(scene, place.path(), name);
        let before = snapshot(&fresh("untouched"));
        let mut after = None;
        let changes = fewest(|name| {
            let whole = fresh(name);
            let (changes, stopped) = scene.run(&whole, None);
            let found = snapshot(&whole);
            assert!(!stopped && before != found, "{name}");
            assert_eq!(
                &found,
                after.get_or_insert_with(|| found.clone()),
                "each run gives one tree"
            );
            changes
        });
        let after = after.expect("five runs");
        assert!(changes > 30, "{changes} changes");
        Self {
            scene,
            place,
            before,
            after,
            changes,
            has_committed: false,
            undone_at_last: 0,
        }
    }

    /// A job dies at a change, and the recovery at one of its own; whether that came so far.
    fn die(&mut self, n: u64, at: u64) -> bool {
        let (scene, changes) = (self.scene, self.changes);
        let fresh = || fresh_for(scene, self.place.path(), &format!("stop{n}-{at}"));
        let (dir, times) = with_fault(&format!("a stop at change {n} of {changes}"), fresh, |dir| {
            let times = old_times(dir);
            scene.run(dir, Some(n)).1.then_some(times)
        });
        let has_committed = committed_and_not_ended(&dir);
        // Recovery may die too, and is then run again.
        let has_died = recovery_dies(&dir, &scene.storage, at);
        let what = format!("stop at change {n}, and at {at} of the recovery");
        age_probes(&dir);
        let is_undone = !has_staging(&dir);
        let action = recovered(&dir, &scene.storage);
        let action = action.unwrap_or_else(|error| panic!("recovery after a {what}: {error}"));
        let found = snapshot(&dir);
        assert!(
            found == self.before || found == self.after,
            "{what}, {action:?}: {found:#?}"
        );
        // Not by what became of earlier stops: a job that is slower for a moment stores things that it then moves, with more calls.
        assert!(
            !has_committed || found == self.after,
            "{what}: committed, and rolled back"
        );
        self.has_committed = found == self.after;
        if !self.has_committed {
            // A recovery that dies between the last removal and the call that sets the root's time loses that one.
            let known = usize::from(is_undone);
            assert_eq!(old_times(&dir)[known..], times[known..], "{what}");
            self.undone_at_last += u64::from(!is_undone);
        }
        std::fs::remove_dir_all(&dir).unwrap();
        has_died
    }
}

pub(crate) fn fresh_for(scene: &Scene, place: &Path, name: &str) -> std::path::PathBuf {
    let dir = place.join(name);
    std::fs::create_dir(&dir).unwrap();
    (scene.old_tree)(&dir);
    dir
}

fn enumerate_cut(scene: &Scene, cut: Cut) {
    let mut deaths = Deaths::of(scene);
    let changes = deaths.changes;
    let died: u64 = (1..=changes).map(|n| cut.each(n, 7, |at| deaths.die(n, at))).sum();
    assert!(
        deaths.has_committed,
        "a stop at the very end comes after the commit point"
    );
    let undone = deaths.undone_at_last;
    assert!(undone > changes / 4, "all times were compared {undone} times");
    let least = if cut == Cut::Everywhere {
        5 * changes
    } else {
        changes / 2
    };
    assert!(died > least, "{died} recoveries died after {changes} deaths");
    println!("{changes} deaths, {died} of recoveries");
}

pub(crate) fn enumerate(scene: &Scene) {
    enumerate_cut(scene, Cut::usual());
}

/// A few of the old tree's, one of each kind.
fn few_operations() -> Vec<Op> {
    let s = str::to_owned;
    vec![
        Op::Mkdir(s("new")),
        Op::Create(s("new/a")),
        Op::Write(s("keep/log"), 7, b" and new".to_vec()),
        Op::Create(s("keep/tmp")),
        Op::Rename(s("keep/tmp"), s("keep/replaced"), RenameMode::Replace),
        Op::Rename(s("moves"), s("new/moved"), RenameMode::Replace),
        Op::Unlink(s("dead")),
        Op::Chmod(s("one"), 0o600),
    ]
}

/// A recovery died only somewhere, by the number of the change before it.
#[test]
fn death_at_any_call_of_a_recovery_leaves_the_old_tree_or_the_new_one() {
    for publish in [Publish::Staged, Publish::Eager] {
        let scene = Scene {
            operations: few_operations,
            ..Scene::usual(publish)
        };
        enumerate_cut(&scene, Cut::Everywhere);
    }
}

#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one() {
    enumerate(&Scene::usual(Publish::Staged));
}

#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one_when_published_eagerly() {
    enumerate(&Scene::usual(Publish::Eager));
}

/// There a new name is a link, and the old one is taken away then: who died in between was found to have met somebody else, and a committed
/// job was rolled back.
#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one_where_renames_take_no_flags() {
    enumerate(&Scene {
        storage: Arc::new(Interposed::new(Arc::new(RealStorage), PlainRenames)),
        ..Scene::usual(Publish::Staged)
    });
}

/// As over sshfs: which names are of one object is not told, and a new name that is a link cannot be told from another object.
#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one_where_nobody_tells_what_is_linked() {
    let plain = Arc::new(Interposed::new(Arc::new(RealStorage), PlainRenames));
    enumerate(&Scene {
        storage: Arc::new(Interposed::new(plain, SyntheticInodes)),
        ..Scene::usual(Publish::Staged)
    });
}

/// What took the name of such a directory met it, and the job was refused for what somebody else was said to have made.
#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one_where_old_directories_cannot_be_renamed() {
    enumerate(&Scene::lower_dirs());
}

/// What moved within a subvolume was to wait in the job's own directory, where it could not go.
#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one_where_there_are_subvolumes() {
    for publish in [Publish::Staged, Publish::Eager] {
        enumerate(&Scene::subvolumes(publish));
    }
}

/// Whoever had opened a directory of mode 0555 and changed the names in it was refused the commit.
#[test]
fn death_at_any_call_leaves_the_old_tree_or_the_new_one_where_directories_were_closed() {
    for publish in [Publish::Staged, Publish::Eager] {
        enumerate(&Scene::closed(publish));
    }
}

/// Deaths that are tried side by side: a job waits for its own threads most of the time.
const LANES: u64 = 4;

/// Faults of a recovery at every death of the job: whoever comes next finds the old tree or the new one.
pub(crate) fn enumerate_recoveries(scene: &Scene, fault: fn(u64) -> Plan) -> u64 {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let (mut before, mut after) = (Snapshot::new(), Snapshot::new());
    let changes = fewest(|name| {
        let dir = fresh_for(scene, temp.path(), name);
        before = snapshot(&dir);
        let (changes, _) = scene.run(&dir, None);
        after = snapshot(&dir);
        changes
    });
    assert!(before != after && changes > 30, "{changes} changes");
    let lane = |number: u64| {
        let temp = scratch();
        let deaths = (1..=changes).skip(number as usize).step_by(LANES as usize);
        deaths
            .map(|n| faults_of_recoveries(scene, (n, fault), temp.path(), &[&before, &after]))
            .fold((0, 0), |sum, (faults, kept)| (sum.0 + faults, sum.1 + kept))
    };
    let (faults, kept) = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|number| scope.spawn(move || lane(number))).collect();
        let ended = lanes.into_iter().map(|lane| lane.join().expect("a lane"));
        ended.fold((0, 0), |sum, (faults, kept)| (sum.0 + faults, sum.1 + kept))
    });
    assert!(faults > 10 * changes, "{faults} faults in {changes} recoveries");
    println!("{changes} deaths, {faults} faults of recoveries");
    kept
}

fn fresh_tree(scene: &Scene, place: &Path) -> PathBuf {
    let dir = place.join("tree");
    std::fs::create_dir(&dir).unwrap();
    (scene.old_tree)(&dir);
    dir
}

/// Each fault of a recovery, one at a time, after a death of the job at its `n`th change; how many there are, and how many jobs were kept.
fn faults_of_recoveries(
    scene: &Scene,
    (n, fault): (u64, fn(u64) -> Plan),
    place: &Path,
    allowed: &[&Snapshot],
) -> (u64, u64) {
    let (what, mut kept) = (format!("a stop at change {n}"), 0);
    for m in 1.. {
        let fresh = || fresh_tree(scene, place);
        let (dir, ()) = with_fault(&what, fresh, |dir| scene.run(dir, Some(n)).1.then_some(()));
        let faulty = Arc::new(Interposed::new(scene.storage.clone(), Faulty::new([fault(m)])));
        let _ = recovered(&dir, &(faulty.clone() as Arc<dyn Storage>));
        let action = recovered(&dir, &scene.storage);
        let action = action.unwrap_or_else(|error| panic!("{what}, fault {m}: {error}"));
        let found = seen_by_jobs(&dir);
        assert!(allowed.contains(&&found), "{what}, fault {m}, {action:?}: {found:#?}");
        kept += u64::from(action == RecoverAction::Kept);
        std::fs::remove_dir_all(&dir).unwrap();
        if faulty.hook().fired() == 0 {
            return (m - 1, kept);
        }
    }
    unreachable!("a recovery has an end")
}

#[test]
fn death_at_any_call_of_a_recovery_leaves_the_old_tree_or_the_new_one_where_files_were_closed() {
    enumerate_recoveries(&Scene::sealed(Publish::Staged), Plan::stop_at_change);
}

/// A file of mode 0444 is opened to its owner for the moment in which it is opened. Who died in that moment left it so, with nothing in the undo log,
/// and a recovery that was refused something took the commit back and not that.
#[test]
fn a_refused_call_of_a_recovery_leaves_the_old_tree_or_the_new_one_where_files_were_closed() {
    let refused = |m| {
        Plan::fail(elbow_file::Errno::IO)
            .nth(m)
            .when(|call| !call.operation.only_reads())
    };
    let kept = enumerate_recoveries(&Scene::sealed(Publish::Staged), refused);
    assert!(kept > 100, "{kept} commits were taken back by a recovery");
}

/// What a roll back must put back beside the tree: the times of the directories that were staged in.
#[test]
fn a_roll_back_puts_the_times_of_directories_back() {
    let temp = scratch();
    let dir = temp.path().join("tree");
    std::fs::create_dir(&dir).unwrap();
    old_tree(&dir);
    let times = |name: &str| {
        let meta = std::fs::metadata(dir.join(name)).unwrap();
        (meta.modified().unwrap(), meta.accessed().unwrap())
    };
    let before = (times(""), times("keep"));
    let job = begin(Arc::new(RealStorage), &dir, Publish::Staged);
    for op in operations() {
        InJob(&job).run(&op).unwrap();
    }
    job.shared.drain(&mut |_| {}).unwrap();
    assert!(
        std::fs::read_dir(dir.join("keep")).unwrap().count() > 3,
        "something is staged in keep"
    );
    job.roll_back(false, &mut |_| {}).unwrap();
    assert_eq!((times(""), times("keep")), before);
}

/// sshfs sets the times of what a link points to: a link whose times the command set (tar does) failed the job
/// where it dangled, and changed another file where it did not.
#[test]
fn times_of_links_are_left_alone_where_the_storage_follows_links() {
    let temp = scratch();
    let follows = |call: &elbow_file::double::Call<'_>| call.name.is_some_and(|name| name == "probe" || name == "link");
    let plan = Plan::fail(elbow_file::Errno::NOENT)
        .on(Operation::SetTimes)
        .when(follows)
        .times(u64::MAX);
    let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
    let job = begin(faulty.clone(), temp.path(), Publish::Staged);
    InJob(&job).run(&Op::Symlink("missing".into(), "link".into())).unwrap();
    let link = job.insist(|job| job.lookup(crate::Ino::ROOT, "link".as_ref())).unwrap();
    let set = crate::SetAttr {
        mtime: Some(crate::SetTime::At(elbow_file::Time::default())),
        ..Default::default()
    };
    job.insist(|job| job.setattr(link.ino, &set)).unwrap();
    assert!(matches!(job.commit(&mut |_| {}), Ok(crate::Outcome::Committed)));
    assert_eq!(faulty.hook().fired(), 1, "the storage was asked once, by the probe");
    assert!(temp.path().join("link").is_symlink());
}

/// The same for links that were there before: the times of what such a link points to were those of the link after the commit.
#[test]
fn attributes_of_old_links_are_left_alone_where_the_storage_follows_links() {
    let temp = scratch();
    let link = temp.path().join("link");
    std::os::unix::fs::symlink("target", &link).unwrap();
    std::fs::write(temp.path().join("target"), "").unwrap();
    let look = || {
        let seen = link.symlink_metadata().unwrap();
        (seen.modified().unwrap(), seen.gid())
    };
    let before = look();
    let follows = Plan::fail(elbow_file::Errno::NOENT)
        .on(Operation::SetTimes)
        .when(|call| call.name.is_some_and(|name| name == "probe"));
    let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([follows])));
    let job = begin(faulty.clone(), temp.path(), Publish::Staged);
    let found = job.insist(|job| job.lookup(crate::Ino::ROOT, "link".as_ref())).unwrap();
    let set = crate::SetAttr {
        gid: Some(rustix::process::getegid().as_raw()),
        mtime: Some(crate::SetTime::At(elbow_file::Time::default())),
        ..Default::default()
    };
    job.insist(|job| job.setattr(found.ino, &set)).unwrap();
    assert!(matches!(job.commit(&mut |_| {}), Ok(crate::Outcome::Committed)));
    assert_eq!(faulty.hook().fired(), 1, "the storage was asked once");
    assert_eq!(look(), before);
}

/// A job over more old directories than this process may have descriptors: the ways to directories are opened
/// again where they are not kept.
#[test]
fn more_directories_than_descriptors_are_changed_and_removed() {
    const DIRECTORIES: usize = 300;
    let temp = scratch();
    for n in 0..DIRECTORIES {
        std::fs::create_dir_all(temp.path().join(format!("d{n}/sub"))).unwrap();
        std::fs::write(temp.path().join(format!("d{n}/old")), "old").unwrap();
    }
    let job = begin(Arc::new(RealStorage), temp.path(), Publish::Staged);
    job.shared.state.lock().model.inodes.limit_handles(10);
    for n in 0..DIRECTORIES {
        for op in [Op::Create(format!("d{n}/sub/new")), Op::Unlink(format!("d{n}/old"))] {
            InJob(&job).run(&op).unwrap();
        }
    }
    assert!(matches!(job.commit(&mut |_| {}), Ok(crate::Outcome::Committed)));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let here = open
        .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(temp.path())))
        .count();
    assert!(here < 50, "{here} descriptors are left open");
    for n in 0..DIRECTORIES {
        assert!(temp.path().join(format!("d{n}/sub/new")).exists());
        assert!(!temp.path().join(format!("d{n}/old")).exists());
    }
}

/// Another machine may see a job's directory before its manifest: without a manifest nothing is undone unasked.
#[test]
fn a_job_whose_manifest_cannot_be_read_is_left_alone_unless_forced() {
    let temp = scratch();
    let job = begin(Arc::new(RealStorage), temp.path(), Publish::Staged);
    InJob(&job).run(&Op::Create("a".into())).unwrap();
    job.shared.drain(&mut |_| {}).unwrap();
    let staging = job.staging_path().expect("a staging directory");
    std::fs::write(staging.join("job"), b"torn").unwrap();
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    let root = RealStorage::open_root(temp.path()).unwrap();
    let recovered = |force| recover_jobs(&real, &root, force, &|_| false).unwrap()[0].action;
    assert_eq!(recovered(false), RecoverAction::Damaged);
    assert!(staging.join("new/a").exists(), "nothing was changed");
    assert_eq!(recovered(true), RecoverAction::RolledBack);
    assert!(!staging.exists());
}

/// The tree without what is staged in it.
pub(crate) fn seen_by_jobs(dir: &Path) -> Snapshot {
    let mut tree = snapshot(dir);
    tree.retain(|path, _| !path.iter().any(is_staging_name));
    tree
}

/// The own directory of the only job that is kept.
pub(crate) fn kept_dir(dir: &Path) -> std::path::PathBuf {
    let mut found = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    found
        .find(|path| is_staging_name(path.file_name().unwrap()))
        .expect("a staging directory")
}

fn assert_kept_whole(dir: &Path) {
    let job = kept_dir(dir);
    let part = part_name(job.file_name().unwrap());
    for (path, content) in [
        (job.join("new/new/a"), "content of a"),
        (dir.join("keep").join(&part).join("replaced"), "new"),
        (dir.join("keep").join(&part).join("fresh"), ""),
    ] {
        let found = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(found, content, "{}", path.display());
    }
    assert!(!patch_files::below(&job).is_empty(), "patches of old files are kept");
}

pub(crate) fn drop_kept_in(dir: &Path, storage: &Arc<dyn Storage>) -> Result<(), JobError> {
    let root = RealStorage::open_root(dir).unwrap();
    let name = kept_dir(dir).file_name().unwrap().to_owned();
    crate::drop_kept(storage, &root, &[name]).map(|dropped| {
        assert_eq!(dropped[0].action, RecoverAction::Dropped);
    })
}

/// Death while a failed job is kept leaves it kept whole, or nothing of it; a recovery, also one by force, takes nothing of
/// a kept one; and to drop it leaves the tree as it was. Kept jobs were once removed by the next recovery, silently.
fn enumerate_keeping(publish: Publish) {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let fresh = |name: &str| {
        let dir = temp.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        old_tree(&dir);
        dir
    };
    let before = snapshot(&fresh("untouched"));
    let changes = fewest(|name| {
        let (changes, stopped) = run_and_keep(&fresh(name), None, publish);
        assert!(!stopped, "{name}");
        changes
    });
    assert!(changes > 15, "{changes} changes");
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    let run = |dir: &Path, n: u64| {
        let times = old_times(dir);
        run_and_keep(dir, Some(n), publish).1.then_some(times)
    };
    // Whether the job was kept that died there.
    let is_kept = |n: u64, dir: &Path, times: &Vec<_>| {
        // Not each run makes the same changes in the same order, so a later stop may come before the mark.
        let is_marked = has_file_of_job(dir, &[KEPT]);
        match recovered(dir, &real).unwrap() {
            RecoverAction::RolledBack => assert!(!is_marked, "stop at change {n}: it was kept"),
            RecoverAction::Kept => {
                assert!(is_marked, "stop at change {n}: it was not kept");
                assert_eq!(seen_by_jobs(dir), before, "stop at change {n}");
                assert_eq!(old_times(dir), *times, "stop at change {n}");
                assert_eq!(recovered(dir, &real).unwrap(), RecoverAction::Kept);
                assert_kept_whole(dir);
                drop_kept_in(dir, &real).unwrap();
            }
            other => panic!("stop at change {n}: {other:?}"),
        }
        assert_eq!(snapshot(dir), before, "stop at change {n}");
        // The journal has no times of directories in which something is visible.
        if publish == Publish::Staged || is_marked {
            assert_eq!(old_times(dir), *times, "stop at change {n}");
        }
        std::fs::remove_dir_all(dir).unwrap();
        is_marked
    };
    let mut kept = 0;
    for n in 1..=changes {
        let fresh = || fresh(&format!("stop{n}"));
        let (dir, times) = with_fault(&format!("a stop at change {n} of {changes}"), fresh, |dir| run(dir, n));
        kept += u64::from(is_kept(n, &dir, &times));
    }
    // A run that is slowed down makes more changes than the shortest one, and comes to the mark later.
    let mut later = (1..5).cycle().take(ATTEMPTS_MAX);
    while kept == 0 {
        let n = changes
            + later
                .next()
                .expect("the sync after the mark comes when the job is kept");
        let dir = fresh("later");
        match run(&dir, n) {
            Some(times) => kept += u64::from(is_kept(n, &dir, &times)),
            None => std::fs::remove_dir_all(&dir).unwrap(),
        }
    }
}

#[test]
fn death_while_a_job_is_kept_leaves_it_kept_whole_or_nothing_of_it() {
    enumerate_keeping(Publish::Staged);
}

#[test]
fn death_while_a_job_is_kept_leaves_it_kept_whole_or_nothing_of_it_when_published_eagerly() {
    enumerate_keeping(Publish::Eager);
}

/// Others have worked in the directory since: a kept job goes with nothing of theirs and leaves their times, wherever its
/// removal is interrupted.
#[test]
fn death_while_a_kept_job_is_dropped_leaves_it_kept_whole_or_nothing_of_it() {
    rustix::process::umask(rustix::fs::Mode::empty());
    let temp = scratch();
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    let (mut still_kept, mut dropped) = (0, 0);
    for n in 1.. {
        let dir = temp.path().join(format!("stop{n}"));
        std::fs::create_dir(&dir).unwrap();
        old_tree(&dir);
        run_and_keep(&dir, None, Publish::Staged);
        for name in ["later", "new", "keep/fresh"] {
            std::fs::write(dir.join(name), "of somebody else").unwrap();
        }
        let (before, times) = (seen_by_jobs(&dir), old_times(&dir));
        let faulty = Arc::new(Interposed::new(
            Arc::new(RealStorage),
            Faulty::new([Plan::stop_at_change(n)]),
        ));
        let dies: Arc<dyn Storage> = faulty.clone();
        let _ = drop_kept_in(&dir, &dies);
        if faulty.hook().fired() == 0 {
            assert_eq!((snapshot(&dir), old_times(&dir)), (before, times));
            break;
        }
        if recovered(&dir, &real).unwrap() == RecoverAction::Kept {
            still_kept += 1;
            assert_kept_whole(&dir);
            drop_kept_in(&dir, &real).unwrap();
        } else {
            dropped += 1;
        }
        assert_eq!(snapshot(&dir), before, "stop at change {n}");
        let lost = old_times(&dir)
            .iter()
            .zip(&times)
            .filter(|(now, then)| now != then)
            .count();
        assert!(lost <= 1, "stop at change {n}: {lost} times are lost");
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(still_kept > 0 && dropped > 5, "{still_kept} {dropped}");
}

fn run_all(dir: &Path, options: Options, operations: &[Op]) -> crate::Outcome {
    let root = RealStorage::open_root(dir).unwrap();
    let job = Job::begin(Arc::new(RealStorage), root, dir, options).unwrap();
    for op in operations {
        InJob(&job).run(op).unwrap();
    }
    job.commit(&mut |_| {}).unwrap()
}

/// `rm -r` and `mv` of a directory in which another job had staged something took that with it.
#[test]
fn a_directory_that_holds_files_of_another_job_is_neither_removed_nor_moved() {
    let s = str::to_owned;
    let removal = vec![
        Op::Unlink(s("keep/log")),
        Op::Unlink(s("keep/cut")),
        Op::Unlink(s("keep/replaced")),
        Op::Rmdir(s("keep")),
    ];
    let move_it = vec![Op::Rename(s("keep"), s("elsewhere"), RenameMode::Replace)];
    let temp = scratch();
    old_tree(temp.path());
    std::fs::create_dir(temp.path().join("free")).unwrap();
    run_and_keep(temp.path(), None, Publish::Staged);
    let before = snapshot(temp.path());
    for operations in [removal, move_it] {
        for on_conflict in [crate::OnConflict::RollBack, crate::OnConflict::Overwrite] {
            let options = Options {
                on_conflict,
                ..Options::default()
            };
            let outcome = run_all(temp.path(), options, &operations);
            let found = match outcome {
                crate::Outcome::RolledBack(crate::Cause::OtherJobs(found)) => found,
                other => panic!("{operations:?}: {other:?}"),
            };
            assert!(found.len() == 1 && found[0].0 == Path::new("keep"), "{found:?}");
            assert!(found[0].1.starts_with(".elbow-"), "{found:?}");
        }
        assert_eq!(snapshot(temp.path()), before);
    }
    let elsewhere = [Op::Rename(s("free"), s("moved"), RenameMode::Replace)];
    let outcome = run_all(temp.path(), Options::default(), &elsewhere);
    assert!(matches!(outcome, crate::Outcome::Committed), "{outcome:?}");
    assert_kept_whole(temp.path());
}

/// A recovery of a directory below took the staging directory there, which has no manifest, for a dead job of its own:
/// an empty one was removed, with `--force` any.
#[test]
fn a_recovery_below_leaves_alone_what_a_job_above_has_staged() {
    let temp = scratch();
    old_tree(temp.path());
    run_and_keep(temp.path(), None, Publish::Staged);
    let below = RealStorage::open_root(&temp.path().join("keep")).unwrap();
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    assert!(recover_jobs(&real, &below, true, &|_| false).unwrap().is_empty());
    assert_kept_whole(temp.path());
}

#[test]
fn only_a_kept_job_is_dropped_and_of_several_names_all_or_none() {
    let temp = scratch();
    old_tree(temp.path());
    run_and_keep(temp.path(), None, Publish::Staged);
    let kept = kept_dir(temp.path()).file_name().unwrap().to_owned();
    let job = begin(Arc::new(RealStorage), temp.path(), Publish::Staged);
    InJob(&job).run(&Op::Create("a".into())).unwrap();
    job.shared.drain(&mut |_| {}).unwrap();
    let running = job.staging_path().unwrap().file_name().unwrap().to_owned();
    let root = RealStorage::open_root(temp.path()).unwrap();
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    let absent = std::ffi::OsString::from(crate::staging::new_staging_name(elbow_file::Time::default()));
    for (name, words) in [
        (running, "still running"),
        (absent, "no such job"),
        (part_name(&kept), "part of a job"),
        ("keep".into(), "no job has such a name"),
        ("..".into(), "no job has such a name"),
    ] {
        let error = crate::drop_kept(&real, &root, &[kept.clone(), name]).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(
            recovered_actions(&real, &root),
            [RecoverAction::Kept, RecoverAction::Running]
        );
    }
    job.roll_back(false, &mut |_| {}).unwrap();
    assert_eq!(crate::drop_kept(&real, &root, &[kept.clone(), kept]).unwrap().len(), 1);
    assert!(!has_staging(temp.path()));
}

fn recovered_actions(storage: &Arc<dyn Storage>, root: &elbow_file::Handle) -> Vec<RecoverAction> {
    let found = crate::recover(storage, root, false).unwrap();
    let mut actions: Vec<_> = found.iter().map(|job| job.action).collect();
    actions.sort_by_key(|action| *action == RecoverAction::Running);
    actions
}

/// Where the directory of a job that had committed could not be removed (somebody had made the tree immutable), the record was gone by then, and a
/// recovery said "it had not committed: nothing of it is left", with all of its results there.
#[test]
fn of_a_job_that_committed_and_could_not_be_removed_a_recovery_says_so() {
    for (is_refused, says) in [
        (true, "it had committed"),
        (false, "was empty, as before the first step and after the last"),
    ] {
        let temp = scratch();
        old_tree(temp.path());
        let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
        let job = begin(faulty.clone(), temp.path(), Publish::Staged);
        InJob(&job).run(&Op::Create("a".into())).unwrap();
        job.shared.drain(&mut |_| {}).unwrap();
        let own = job.staging_path().unwrap().file_name().unwrap().to_owned();
        let is_there = std::sync::atomic::AtomicBool::new(false);
        let is_last = move |call: &elbow_file::double::Call<'_>| {
            let removes = call.operation == Operation::Rmdir && call.name == Some(&own);
            let was_there = is_there.fetch_or(removes, std::sync::atomic::Ordering::Relaxed);
            // Or the process has died there, and makes no other call.
            removes || !is_refused && was_there
        };
        faulty
            .hook()
            .arm(Plan::fail(elbow_file::Errno::PERM).when(is_last).times(u64::MAX));
        let ended = job.commit(&mut |_| {});
        assert!(matches!(ended, Err(JobError::Unfinished { .. })), "{ended:?}");
        assert!(faulty.hook().fired() > 0);
        let root = RealStorage::open_root(temp.path()).unwrap();
        let real: Arc<dyn Storage> = Arc::new(RealStorage);
        let found = crate::recover(&real, &root, true).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].message.contains(says), "{found:?}");
        assert!(temp.path().join("a").exists() && !has_staging(temp.path()));
    }
}
