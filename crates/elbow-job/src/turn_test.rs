//! Jobs of two machines over one directory: what a server says of files that the other one has removed is neither a place without turns nor a failure.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::any::Any;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use elbow_file::double::{Call, Faulty, Hook, Interposed, Operation, Plan, StaleHandles};
use elbow_file::{Errno, Handle, RealStorage, Result, Stat, Storage};
use parking_lot::Mutex;

use crate::crash_test::{begin, has_staging, recovered, seen_by_jobs};
use crate::options::Publish;
use crate::scenes_test::old_tree;
use crate::schedule_test::{InJob, Op, scratch};
use crate::staging::{TURN, is_job_name};
use crate::{Cause, Job, Outcome, recover};

/// Another machine that ends its commit whenever this one is about to lock the file of the turn, so many times.
struct EndsMeanwhile {
    times: AtomicU64,
    seen: AtomicU64,
}

impl EndsMeanwhile {
    fn new(times: u64) -> Self {
        Self {
            times: times.into(),
            seen: 0.into(),
        }
    }
}

fn is_turn(call: &Call<'_>) -> bool {
    call.path().file_name().is_some_and(|name| name == TURN)
}

impl Hook for EndsMeanwhile {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if call.operation == Operation::TryLock && is_turn(call) {
            self.seen.fetch_add(1, Ordering::Relaxed);
            let take = |times: u64| times.checked_sub(1);
            if self
                .times
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
            {
                std::fs::remove_file(call.path()).unwrap();
            }
        }
        make()
    }
}

fn rewritten(storage: Arc<dyn Storage>, dir: &Path) -> Job {
    let job = begin(storage, dir, Publish::Staged);
    InJob(&job)
        .run(&Op::Write("keep/log".into(), 0, b"of the job".to_vec()))
        .unwrap();
    job.shared.drain(&mut |_| {}).unwrap();
    job
}

/// Two answers of that kind were once taken for a place without locks, and the job committed beside the other one.
#[test]
fn a_turn_that_ends_while_it_is_looked_at_is_waited_for_again() {
    for times in 0..6 {
        let temp = scratch();
        old_tree(temp.path());
        let stale = Arc::new(Interposed::new(Arc::new(RealStorage), StaleHandles::default()));
        let storage = Arc::new(Interposed::new(stale.clone(), EndsMeanwhile::new(times)));
        let job = rewritten(storage.clone(), temp.path());
        assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)), "{times}");
        // Once more than it was taken away: the last time it was locked.
        assert_eq!(storage.hook().seen.load(Ordering::Relaxed), times + 1);
        assert_eq!(stale.hook().answered(), times);
        assert!(!has_staging(temp.path()) && !temp.path().join(TURN).exists());
    }
}

/// A storage that cannot say whose turn it is does not say that there are no turns: the job changes nothing. Where there are none it commits.
#[test]
fn who_cannot_be_told_whose_turn_it_is_does_not_commit() {
    let (passing, without) = (
        [Errno::IO, Errno::TIMEDOUT, Errno::NOTCONN, Errno::MFILE, Errno::NOMEM],
        [Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM],
    );
    let real: Arc<dyn Storage> = Arc::new(RealStorage);
    for (errno, commits) in passing
        .map(|errno| (errno, false))
        .into_iter()
        .chain(without.map(|errno| (errno, true)))
    {
        for times in [1, u64::MAX] {
            let temp = scratch();
            old_tree(temp.path());
            let before = seen_by_jobs(temp.path());
            let refused = Plan::fail(errno).on(Operation::TryLock).when(is_turn).times(times);
            let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([refused])));
            let job = rewritten(storage.clone(), temp.path());
            let outcome = job.commit(&mut |_| {});
            assert!(storage.hook().fired() > 0, "{errno}");
            let what = format!("{errno}, {times}: {outcome:?}");
            if commits || times == 1 {
                assert!(matches!(outcome, Ok(Outcome::Committed)), "{what}");
                continue;
            }
            assert!(
                matches!(&outcome, Ok(Outcome::RolledBack(Cause::Storage(why))) if why.contains("other commits")),
                "{what}"
            );
            assert_eq!(seen_by_jobs(temp.path()), before, "{what}");
            // Somebody else may have the file of the turn by now: who can lock it removes it.
            drop(job);
            recovered(temp.path(), &real).unwrap();
            assert!(!has_staging(temp.path()), "{what}");
        }
    }
}

/// Counts what is asked of the file of the turn; before the first of that the directory is removed, if it is to be.
struct DirGoes {
    goes: bool,
    asked: AtomicU64,
}

impl Hook for DirGoes {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        if is_turn(call) && self.asked.fetch_add(1, Ordering::Relaxed) == 0 && self.goes {
            std::fs::remove_dir_all(call.path().parent().expect("the directory")).unwrap();
        }
        make()
    }
}

/// Where the directory itself is gone nobody is waited for.
/// Two jobs that set rights of one directory looked at the same time, found them as they had been, and one of them was lost.
#[test]
fn who_sets_rights_of_a_directory_waits_for_its_turn() {
    let dir = scratch();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let job = begin(Arc::new(RealStorage), dir.path(), Publish::Staged);
    let ino = InJob(&job).walk("d").unwrap();
    let attrs = crate::api::SetAttr {
        mode: Some(0o711),
        ..crate::api::SetAttr::default()
    };
    job.insist(|job| job.setattr(ino, &attrs)).unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    let turn = RealStorage.create(&root, OsStr::new(TURN), 0o666).unwrap();
    assert!(RealStorage.try_lock(&turn).unwrap());
    std::thread::scope(|threads| {
        let commit = threads.spawn(|| job.commit(&mut |_| {}));
        std::thread::sleep(Duration::from_millis(500));
        assert!(!commit.is_finished(), "it has not waited");
        std::fs::remove_file(dir.path().join(TURN)).unwrap();
        drop(turn);
        let outcome = commit.join().unwrap();
        assert!(matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
    });
}

#[test]
fn in_a_directory_that_was_removed_a_commit_comes_to_its_end() {
    for goes_late in [false, true] {
        let temp = scratch();
        let dir = temp.path().join("dir");
        std::fs::create_dir(&dir).unwrap();
        old_tree(&dir);
        let goes = DirGoes {
            goes: goes_late,
            asked: 0.into(),
        };
        let storage = Arc::new(Interposed::new(Arc::new(RealStorage), goes));
        let job = rewritten(storage.clone(), &dir);
        if !goes_late {
            std::fs::remove_dir_all(&dir).unwrap();
        }
        let outcome = job.commit(&mut |_| {});
        assert!(!matches!(outcome, Ok(Outcome::Committed)), "{outcome:?}");
        assert!(!dir.exists());
        let asked = storage.hook().asked.load(Ordering::Relaxed);
        // Who takes it for somebody else's turn asks again for a minute, a thousand times.
        assert!(asked <= 10 && (asked > 0 || !goes_late), "{asked}");
    }
}

/// Another machine that ends a dead job when this one has just opened it, and a client that remembers of its directory what it has seen.
struct EndedMeanwhile(Mutex<Option<(Handle, Stat)>>);

fn answer<T: 'static>(value: impl Any) -> T {
    let value: Box<dyn Any> = Box::new(value);
    *value.downcast().expect("what the call gives")
}

fn is_same(one: &Handle, other: &Handle) -> bool {
    one.as_fd().as_raw_fd() == other.as_fd().as_raw_fd()
}

impl Hook for EndedMeanwhile {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut known = self.0.lock();
        let Some(name) = call.name.filter(|name| is_job_name(name)) else {
            return match (call.operation, &*known) {
                (Operation::StatHandle, Some((dir, stat))) if is_same(dir, call.handle) => Ok(answer(*stat)),
                _ => make(),
            };
        };
        match (call.operation, &*known) {
            (Operation::OpenDir, Some((dir, _))) => Ok(answer(dir.clone())),
            (Operation::Stat, Some((_, stat))) => Ok(answer(*stat)),
            (Operation::OpenDir, None) => {
                let dir = RealStorage.open_dir(call.handle, name)?;
                *known = Some((dir.clone(), RealStorage.stat(call.handle, name)?));
                std::fs::remove_dir_all(call.path()).unwrap();
                Ok(answer(dir))
            }
            _ => make(),
        }
    }
}

/// It was said that it could not be ended, as long as the client remembered it.
#[test]
fn of_a_job_that_another_machine_has_ended_nothing_is_said() {
    let temp = scratch();
    old_tree(temp.path());
    let faulty = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::default()));
    let job = rewritten(faulty.clone(), temp.path());
    faulty.hook().arm(Plan::stop_at_change(1));
    drop(job);
    assert!(has_staging(temp.path()));
    let stale = Arc::new(Interposed::new(Arc::new(RealStorage), StaleHandles::default()));
    let ended = Arc::new(Interposed::new(stale.clone(), EndedMeanwhile(Mutex::default())));
    let storage: Arc<dyn Storage> = ended;
    let root = RealStorage::open_root(temp.path()).unwrap();
    let said = recover(&storage, &root, true).unwrap();
    assert!(stale.hook().answered() > 0, "nothing was stale");
    assert!(said.is_empty(), "{said:?}");
}

/// Holds the lock of a turn until it was refused once.
struct LetsGo(Mutex<Option<Handle>>);

impl Hook for LetsGo {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let answer = make();
        let is_refused = (&answer as &dyn Any).downcast_ref::<Result<bool>>() == Some(&Ok(false));
        if call.operation == Operation::TryLock && is_turn(call) && is_refused {
            self.0.lock().take();
        }
        answer
    }
}

/// What a killed process was about to start has its descriptors, and so its lock, for a moment more; the file of the turn was left.
#[test]
fn a_turn_whose_lock_goes_a_moment_after_its_job_is_removed() {
    let temp = scratch();
    let file = root_with_turn(temp.path());
    assert_eq!(RealStorage.try_lock(&file), Ok(true));
    let held = Arc::new(Interposed::new(Arc::new(RealStorage), LetsGo(Mutex::new(Some(file)))));
    recovered(temp.path(), &(held.clone() as Arc<dyn Storage>)).unwrap();
    assert!(
        held.hook().0.lock().is_none(),
        "the lock was asked for while it was held"
    );
    assert!(!temp.path().join(TURN).exists());
}

/// Who was about to remove it died, and all else was done: nobody was left to put the time of the directory back.
#[test]
fn a_turn_that_is_all_that_is_left_is_removed_and_the_directory_keeps_its_times() {
    let temp = scratch();
    drop(root_with_turn(temp.path()));
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let root = std::fs::File::open(temp.path()).unwrap();
    let times = std::fs::FileTimes::new().set_modified(long_ago).set_accessed(long_ago);
    root.set_times(times).unwrap();
    recovered(temp.path(), &(Arc::new(RealStorage) as Arc<dyn Storage>)).unwrap();
    assert!(!temp.path().join(TURN).exists());
    assert_eq!(root.metadata().unwrap().modified().unwrap(), long_ago);
}

/// An old tree, and the file of a turn.
fn root_with_turn(place: &Path) -> Handle {
    old_tree(place);
    let root = RealStorage::open_root(place).unwrap();
    RealStorage.create(&root, TURN.as_ref(), 0o600).unwrap()
}
