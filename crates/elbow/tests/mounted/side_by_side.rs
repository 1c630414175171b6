//! Jobs side by side in one directory, each with files of its own: all commit.
//!
//! They were refused with 125 while another began or ended (13 of 200 on ext4, 22 of 60 on slow storage, 10 of 24 on sshfs; two of
//! those had committed): a staging directory that goes while it is looked at was an error, and a manifest that somebody reads is a
//! file under another name on FUSE when it is removed, which kept the directory from being removed.
//!
//! `ROUNDS=n` runs so many rounds, `SOAK=1` a hundred times as many.

use std::fs;
use std::path::Path;
use std::time::Duration;

use elbow_testkit::cases::rounds;
use elbow_testkit::slowfs::SlowOptions;

use crate::commands::Place;
use crate::loop_disk::LoopDisk;
use crate::slow_storage::SlowStorage;
use crate::test_dir::{TestDir, ssh_server, staging_below};

const QUEUES: usize = 8;

/// So many queues of jobs, each with one job after the other; one kind changes nothing, one fails. They begin and end at all moments of
/// the others.
fn run_queues(work: &Path, out: &Path, rounds: u64) {
    std::thread::scope(|scope| {
        for queue in 0..QUEUES {
            scope.spawn(move || (0..rounds).for_each(|round| run_one(Place { work, out }, queue, round)));
        }
    });
    for queue in 2..QUEUES {
        let log = fs::read(work.join(format!("log{queue}"))).expect("a log");
        assert_eq!(log.len() as u64, rounds, "queue {queue}");
    }
}

fn run_one(place: Place<'_>, queue: usize, round: u64) {
    let script = match queue {
        0 => "true".into(),
        1 => format!("printf x > {round}-{queue}; exit 3"),
        _ => format!(
            "printf x > {round}-{queue}; mkdir -p d{queue}; printf y > d{queue}/{round}; printf z >> log{queue}"
        ),
    };
    let run = place.start_job(&[], &[], &script).finish();
    let code = if queue == 1 { 3 } else { 0 };
    assert_eq!(run.code, code, "queue {queue}, round {round}:\n{}", run.err);
    assert!(
        !run.err.contains(".elbow-"),
        "queue {queue}, round {round}:\n{}",
        run.err
    );
}

#[test]
fn jobs_side_by_side_on_a_local_file_system() {
    let test_dir = TestDir::new("");
    test_dir.restore();
    run_queues(&test_dir.work(""), &test_dir.outside(""), rounds(25));
    test_dir.assert_no_staging();
}

#[test]
fn jobs_side_by_side_on_slow_storage() {
    let options = SlowOptions {
        latency: Duration::from_millis(2),
        ..SlowOptions::default()
    };
    let test_dir = SlowStorage::new("", &options);
    run_queues(&test_dir.work(), &test_dir.outside(), rounds(8));
    test_dir.assert_no_staging();
}

#[test]
fn jobs_side_by_side_on_sshfs() {
    let Some((dir, bed)) = ssh_server(&["below", "work", "out"], Duration::from_millis(1)) else {
        return;
    };
    let path = |name| dir.path().join(name);
    let mount = bed.mount(&path("below"), &path("work")).expect("an sshfs mount");
    run_queues(mount.path(), &path("out"), rounds(5));
    assert_eq!(staging_below(&path("below")), 0, "staging directories are left behind");
}

/// So many jobs that change the same file at once.
const RIVALS: usize = 4;

/// Runs a script as jobs at once; how many committed. The others are refused with the path of what another one changed.
fn run_rivals(place: Place<'_>, script: impl Fn(usize) -> String + Sync) -> Vec<usize> {
    let run = |number: usize| {
        let run = place.start_job(&[], &["--no-keep"], &script(number)).finish();
        let is_named = run.err.contains("changed while the job ran") || run.err.contains("conflict");
        assert!(run.code == 0 || run.code == 125 && is_named, "{run:?}");
        (run.code == 0).then_some(number)
    };
    std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..RIVALS).map(|number| scope.spawn(move || run(number))).collect();
        let ended = jobs.into_iter().map(|job| job.join().expect("a job"));
        ended.flatten().collect()
    })
}

/// Of 100 MB that two jobs appended at once one was lost, with exit 0: the check for conflicts came before the data was synced.
#[test]
fn what_jobs_append_to_one_file_at_once_is_all_there_or_refused() {
    const BYTES: usize = 40 << 20;
    let test_dir = TestDir::new("printf 'old\\n' > log");
    test_dir.restore();
    let (work, out) = (test_dir.work(""), test_dir.outside(""));
    let append = |number: usize| format!("head -c {BYTES} /dev/zero | tr '\\0' {number} >> log");
    let committed = run_rivals(Place { work: &work, out: &out }, append);
    let log = test_dir.content("log");
    assert!(log.starts_with(b"old\n") && !committed.is_empty());
    assert_eq!(log.len(), 4 + committed.len() * BYTES, "{committed:?}");
    let blocks = log[4..].chunks(BYTES);
    let mut found: Vec<usize> = blocks.map(|block| usize::from(block[0] - b'0')).collect();
    assert!(
        log[4..]
            .chunks(BYTES)
            .all(|block| block.iter().all(|byte| *byte == block[0]))
    );
    found.sort_unstable();
    assert_eq!(found, committed);
    test_dir.assert_no_staging();
}

#[test]
fn a_counter_that_jobs_increment_at_once_counts_those_that_committed() {
    let test_dir = TestDir::new("");
    test_dir.restore();
    count_at_once(&test_dir.work(""), &test_dir.outside(""));
    test_dir.assert_no_staging();
}

/// The size stays, and the second is often the same.
#[test]
fn a_counter_on_a_disk_with_whole_seconds_counts_those_that_committed() {
    let Some(disk) = LoopDisk::with_whole_seconds() else {
        return;
    };
    let out = tempfile::tempdir().expect("a directory");
    count_at_once(&disk.path(), out.path());
    assert_eq!(staging_below(&disk.path()), 0);
}

fn count_at_once(work: &Path, out: &Path) {
    const START: usize = 1000;
    let file = work.join("counter");
    fs::write(&file, START.to_string()).expect("a file");
    let increment = |_| "n=$(cat counter); sleep 0.05; echo $((n + 1)) > counter".to_owned();
    let rounds = rounds(5);
    let committed: usize = (0..rounds)
        .map(|_| run_rivals(Place { work, out }, increment).len())
        .sum();
    let counter = fs::read_to_string(file).expect("text");
    let counted = counter.trim().parse::<usize>().expect("a number") - START;
    assert!(
        counted == committed && committed >= rounds as usize,
        "{counted} {committed}"
    );
    assert!(committed < rounds as usize * RIVALS, "they never met");
}
