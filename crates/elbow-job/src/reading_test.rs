//! Reading what the job has stored already, while its name goes to something else.

#![allow(clippy::disallowed_methods, reason = "the test changes real files beside the job")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elbow_file::double::{Gated, Interposed, Operation};
use elbow_file::{Errno, RealStorage, RenameMode};

use crate::schedule_test::{InJob, Op, scratch};
use crate::{Job, Options};

const OLD: &[u8] = b"what the file has";
const NEW: &[u8] = b"what another file has";

/// Waits until the storage has all of it.
fn settle(job: &Job) {
    let began = Instant::now();
    while job.counts().objects_left > 0 {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", job.deferred_errors());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn run(job: &Job, ops: &[Op]) {
    for op in ops {
        InJob(job).run(op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    }
    settle(job);
}

/// Opens the gate, also when what is done meanwhile fails: the reader would be waited for.
struct Opened<'a>(&'a Gated);

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn made(name: &str, content: &[u8]) -> [Op; 2] {
    [Op::Create(name.into()), Op::Write(name.into(), 0, content.to_vec())]
}

/// It was opened by the name that it had when somebody looked, so that the content of another file was read, and that one kept open in its place.
#[test]
fn what_is_read_is_the_file_and_not_what_has_come_to_its_name() {
    let rename = |from: &str, to: &str| Op::Rename(from.into(), to.into(), RenameMode::Replace);
    let moved = [&[rename("f", "g")][..], &made("f", NEW)].concat();
    let moved_there_and_back = [&moved[..], &[rename("f", "h"), rename("g", "f")]].concat();
    let replaced = [
        &made("h", NEW)[..],
        &[Op::Link("f".into(), "g".into()), rename("h", "f")],
    ]
    .concat();
    let exchanged = [
        &made("h", NEW)[..],
        &[Op::Rename("h".into(), "f".into(), RenameMode::Exchange)],
    ]
    .concat();
    for meanwhile in [moved, moved_there_and_back, replaced, exchanged] {
        let dir = scratch();
        // The first who opens it; actions, that open the other file, pass.
        let is_next = Arc::new(AtomicBool::new(false));
        let is_held = is_next.clone();
        let storage = Arc::new(Interposed::new(
            Arc::new(RealStorage),
            Gated::new(move |call| {
                call.operation == Operation::Open
                    && call.path().ends_with("f")
                    && is_held.swap(false, Ordering::Relaxed)
            }),
        ));
        let root = RealStorage::open_root(dir.path()).unwrap();
        let job = Job::begin(storage.clone(), root, dir.path(), Options::default()).unwrap();
        job.shared.state.lock().model.graph.flush = true;
        run(&job, &made("f", OLD));
        let file = InJob(&job).walk("f").unwrap();
        let gate = storage.hook();
        gate.close();
        is_next.store(true, Ordering::Relaxed);
        let read = std::thread::scope(|scope| {
            let reader = scope.spawn(|| job.read_blocking(file, 0, 100));
            gate.wait_for_held(1);
            let opened = Opened(gate);
            run(&job, &meanwhile);
            drop(opened);
            reader.join().unwrap()
        });
        assert_eq!(read.as_deref(), Ok(OLD), "{meanwhile:?}");
        job.roll_back(false, &mut |_| {}).unwrap();
    }
}

/// Somebody else cuts an old file while the job reads it: the bytes behind that were zeros, which nobody has ever written there, and a copy was
/// committed with them.
#[test]
fn bytes_that_somebody_has_cut_off_are_an_error_and_no_zeros() {
    let dir = scratch();
    std::fs::write(dir.path().join("f"), OLD).unwrap();
    let root = RealStorage::open_root(dir.path()).unwrap();
    let job = Job::begin(Arc::new(RealStorage), root, dir.path(), Options::default()).unwrap();
    let file = InJob(&job).walk("f").unwrap();
    assert_eq!(job.read_blocking(file, 0, 100).as_deref(), Ok(OLD));
    let cut = std::fs::File::options().write(true).open(dir.path().join("f")).unwrap();
    cut.set_len(4).unwrap();
    assert_eq!(job.read_blocking(file, 0, 4).as_deref(), Ok(&OLD[..4]));
    assert_eq!(job.read_blocking(file, 0, 100), Err(Errno::STALE));
    job.roll_back(false, &mut |_| {}).unwrap();
}
