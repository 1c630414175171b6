//! Descriptors at the end of a job: some file systems keep a hidden name of an open file that is removed.

#![allow(clippy::disallowed_methods, reason = "the test makes real files")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use elbow_file::double::{Call, Hook, Interposed, Operation};
use elbow_file::{RealStorage, Result};

use crate::schedule_test::{InJob, Op, scratch};
use crate::{Job, Options, Outcome};

/// Once it is armed the first close waits for a second one, which takes long.
#[derive(Default)]
struct SlowCloses {
    is_armed: AtomicBool,
    closes: AtomicUsize,
    is_closing: AtomicBool,
    removals: AtomicUsize,
    removals_too_early: AtomicUsize,
}

impl SlowCloses {
    fn close(&self) {
        if self.closes.fetch_add(1, Ordering::SeqCst) == 0 {
            until(|| self.closes.load(Ordering::SeqCst) > 1);
        } else {
            self.is_closing.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(300));
            self.is_closing.store(false, Ordering::SeqCst);
        }
    }

    fn remove(&self) {
        self.removals.fetch_add(1, Ordering::SeqCst);
        let is_early = self.is_closing.load(Ordering::SeqCst);
        self.removals_too_early.fetch_add(is_early.into(), Ordering::SeqCst);
    }
}

impl Hook for SlowCloses {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        match call.operation {
            _ if !self.is_armed.load(Ordering::SeqCst) => {}
            Operation::Close => self.close(),
            Operation::Unlink | Operation::Rmdir => self.remove(),
            _ => {}
        }
        make()
    }
}

fn until(is_so: impl Fn() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < give_up, "it never came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The roll back closed what was left to be closed, and did not wait for a worker that was closing another file: on a slow server
/// the staging directory stayed, "Directory not empty".
#[test]
fn nothing_is_removed_while_a_worker_closes_a_file() {
    let temp = scratch();
    for name in ["one", "two"] {
        std::fs::write(temp.path().join(name), name).unwrap();
    }
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), SlowCloses::default()));
    let root = RealStorage::open_root(temp.path()).unwrap();
    let job = Job::begin(storage.clone(), root, temp.path(), Options::default()).unwrap();
    InJob(&job).run(&Op::Create("new".into())).unwrap();
    job.shared.drain_content(&mut |_| {}).unwrap();
    let closes = storage.hook();
    closes.is_armed.store(true, Ordering::SeqCst);
    // Open at the end, as of a process that the command has left behind.
    for name in ["one", "two"] {
        let ino = InJob(&job).walk(name).unwrap();
        job.insist(|job| job.open(ino, false, false)).unwrap();
        assert_eq!(job.read_blocking(ino, 0, 3).unwrap(), name.as_bytes());
    }
    assert_eq!(closes.closes.load(Ordering::SeqCst), 0, "both are still open");
    std::thread::scope(|scope| {
        let rolled_back = scope.spawn(|| job.roll_back(false, &mut |_| {}));
        until(|| {
            job.shared.work.notify_all();
            closes.closes.load(Ordering::SeqCst) > 1
        });
        assert!(matches!(rolled_back.join().unwrap(), Ok(Outcome::RolledBack(_))));
    });
    assert!(closes.removals.load(Ordering::SeqCst) > 0, "nothing was rolled back");
    assert_eq!(closes.removals_too_early.load(Ordering::SeqCst), 0);
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 2, "staging is left");
}
