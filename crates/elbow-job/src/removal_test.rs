//! How many calls a commit that removes a lot has in flight.

#![allow(clippy::disallowed_methods, reason = "the test makes real directories")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use elbow_file::double::{Call, Hook, Interposed, Operation};
use elbow_file::{RealStorage, Result};

use crate::schedule_test::{InJob, Op, scratch};
use crate::{Job, Options, Outcome};

const DIRECTORIES: usize = 50;
const FILES: usize = 40;
const LOOSE: usize = 200;
/// So long each takes, for others to begin meanwhile.
const CALL: Duration = Duration::from_millis(5);
const IN_FLIGHT: usize = 32;

/// Calls of one kind that are in flight at once.
#[derive(Default)]
struct Gauge {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Gauge {
    fn during<T>(&self, make: impl FnOnce() -> T) -> T {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(CALL);
        let made = make();
        self.now.fetch_sub(1, Ordering::SeqCst);
        made
    }
}

/// Slow in what is done to the tree once it has a hidden name, and when all calls are counted.
#[derive(Default)]
struct Peaks {
    has_departed: AtomicBool,
    /// Looks at directories before the job has departed.
    looks: Gauge,
    /// Removals of files in the tree.
    removals: Gauge,
    /// Removals and looks of any kind.
    all: Gauge,
}

impl Hook for Peaks {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let has_departed = self.has_departed.load(Ordering::SeqCst);
        if call.operation == Operation::Create && call.name.is_some_and(|name| name == "departed") {
            self.has_departed.store(true, Ordering::SeqCst);
        }
        let is_hidden = || call.path().to_string_lossy().contains("/.elbow-");
        match call.operation {
            Operation::List if !has_departed && is_hidden() => self.all.during(|| self.looks.during(make)),
            Operation::Unlink
                if call
                    .name
                    .is_some_and(|name| name.to_string_lossy().starts_with("inner")) =>
            {
                self.all.during(|| self.removals.during(make))
            }
            Operation::Unlink | Operation::Rename => self.all.during(make),
            _ => make(),
        }
    }
}

/// A tree that was removed beside many single files had one thread for itself, since each removal had its share: it was looked through, and
/// removed, one call at a time.
#[test]
fn a_large_tree_that_is_removed_beside_many_files_has_many_calls_in_flight() {
    let temp = scratch();
    let mut operations = Vec::new();
    for dir in (0..DIRECTORIES).map(|dir| format!("tree/sub{dir}")) {
        std::fs::create_dir_all(temp.path().join(&dir)).unwrap();
        for file in (0..FILES).map(|file| format!("{dir}/inner{file}")) {
            std::fs::write(temp.path().join(&file), "").unwrap();
            operations.push(Op::Unlink(file));
        }
        operations.push(Op::Rmdir(dir));
    }
    operations.push(Op::Rmdir("tree".into()));
    for file in (0..LOOSE).map(|file| format!("loose{file}")) {
        std::fs::write(temp.path().join(&file), "").unwrap();
        operations.push(Op::Unlink(file));
    }
    let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Peaks::default()));
    let root = RealStorage::open_root(temp.path()).unwrap();
    let options = Options {
        in_flight: Some(IN_FLIGHT),
        ..Options::default()
    };
    let job = Job::begin(storage.clone(), root, temp.path(), options).unwrap();
    for op in operations {
        InJob(&job).run(&op).unwrap();
    }
    assert!(matches!(job.commit(&mut |_| {}), Ok(Outcome::Committed)));
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "all is removed");
    let peak = |gauge: &Gauge| gauge.peak.load(Ordering::SeqCst);
    let peaks = storage.hook();
    let (looks, removals, all) = (peak(&peaks.looks), peak(&peaks.removals), peak(&peaks.all));
    assert!(looks >= 8 && removals >= 8, "{looks} looks, {removals} removals");
    assert!(all <= IN_FLIGHT, "{all} calls at once");
}
