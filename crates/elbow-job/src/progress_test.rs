//! What a progress hook is told: regularly, in every phase that takes long, and numbers that add up.

#![allow(clippy::disallowed_methods, reason = "the test makes and looks at real directories")]

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::RealStorage;
use elbow_file::double::{Delaying, Interposed};

use crate::schedule_test::{InJob, Op, scratch};
use crate::{Ino, Job, Options, Outcome, Phase, Progress};

/// Every call takes so long, so the files below take more than half a second: long enough for some reports.
const CALL: Duration = Duration::from_millis(2);
/// Where there is one call for each file.
const LONG_CALL: Duration = Duration::from_millis(6);
const FILES: usize = 600;

/// A job on storage on which something is finished all the time, and everything takes long.
fn slow_job(below: &Path, call: Duration) -> Job {
    let storage = Interposed::new(Arc::new(RealStorage), Delaying::new(call, 2));
    let root = RealStorage::open_root(below).unwrap();
    let options = Options {
        in_flight: Some(2),
        ..Options::default()
    };
    Job::begin(Arc::new(storage), root, below, options).unwrap()
}

fn write_files(job: &Job) {
    for n in 0..FILES {
        InJob(job).run(&Op::Create(format!("f{n}"))).unwrap();
        InJob(job).run(&Op::Write(format!("f{n}"), 0, vec![1; 10])).unwrap();
    }
}

/// What was told of a phase.
fn told(all: &[Progress], phase: Phase) -> impl Iterator<Item = &Progress> {
    all.iter().filter(move |progress| progress.phase == phase)
}

/// How often a phase was told to be somewhere in between, at different places.
fn places_between(told: impl Iterator<Item = (u64, u64)>) -> usize {
    let mut places: Vec<u64> = told
        .filter(|(done, total)| (1..*total).contains(done))
        .map(|at| at.0)
        .collect();
    assert!(places.is_sorted(), "it went back: {places:?}");
    places.dedup();
    places.len()
}

/// A drain told nothing for 14 of 15 seconds: only a wait in which no object was finished made a report.
#[test]
fn a_drain_in_which_something_is_finished_all_the_time_tells_how_far_it_is() {
    let dir = scratch();
    let job = slow_job(dir.path(), CALL);
    // All of it is left to the commit, however slowly the command works.
    job.by_hand(true);
    write_files(&job);
    job.by_hand(false);
    let mut all = Vec::new();
    let outcome = job.commit(&mut |progress| all.push(*progress)).unwrap();
    assert!(matches!(outcome, Outcome::Committed), "{outcome:?}");
    let objects = told(&all, Phase::Draining).map(|told| {
        let counts = told.counts;
        (counts.objects_stored, counts.objects_stored + counts.objects_left)
    });
    assert!(places_between(objects) >= 3, "{all:?}");
    let bytes = told(&all, Phase::Draining).map(|told| {
        let counts = told.counts;
        assert_eq!(counts.bytes_written + counts.bytes_left, 10 * FILES as u64);
        (counts.bytes_written, 10 * FILES as u64)
    });
    assert!(places_between(bytes) >= 3, "{all:?}");
    let counts = job.counts();
    assert_eq!((counts.bytes_left, counts.objects_left), (0, 0), "{counts:?}");
}

#[test]
fn a_commit_that_removes_many_names_tells_how_many() {
    let dir = scratch();
    for n in 0..FILES {
        std::fs::write(dir.path().join(format!("f{n}")), b"old").unwrap();
    }
    let job = slow_job(dir.path(), LONG_CALL);
    job.insist(|job| job.list(Ino::ROOT)).unwrap();
    for n in 0..FILES {
        let name = format!("f{n}");
        job.insist(|job| job.lookup(Ino::ROOT, OsStr::new(&name))).unwrap();
        job.insist(|job| job.unlink(Ino::ROOT, OsStr::new(&name))).unwrap();
    }
    let mut all = Vec::new();
    job.commit(&mut |progress| all.push(*progress)).unwrap();
    for phase in [Phase::Checking, Phase::Publishing] {
        let steps = told(&all, phase).map(|told| (told.steps.done, told.steps.total));
        assert!(places_between(steps) >= 3, "{phase:?}: {all:?}");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_roll_back_of_many_names_tells_how_many() {
    let dir = scratch();
    let job = slow_job(dir.path(), LONG_CALL);
    write_files(&job);
    job.shared.drain_content(&mut |_| {}).unwrap();
    let mut all = Vec::new();
    job.roll_back(false, &mut |progress| all.push(*progress)).unwrap();
    let steps = told(&all, Phase::RollingBack).map(|told| (told.steps.done, told.steps.total));
    assert!(places_between(steps) >= 3, "{all:?}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0);
}
