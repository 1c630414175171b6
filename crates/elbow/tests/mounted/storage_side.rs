//! What is on the storage at the instant when a command returns, counted below a slow file system.

use std::time::Duration;

use elbow_testkit::slowfs::SlowOptions;

use crate::commands::wait_for;
use crate::slow_storage::SlowStorage;

const FILES: usize = 150;

fn slow() -> SlowOptions {
    SlowOptions {
        latency: Duration::from_millis(2),
        ..SlowOptions::default()
    }
}

fn make_files() -> String {
    format!("mkdir d; for i in $(seq {FILES}); do printf $i > d/f$i; done")
}

/// The contents of the files that [`make_files`] made, as the server side has them now.
fn files_on_the_server(test_dir: &SlowStorage) -> usize {
    (1..=FILES)
        .filter(|i| {
            std::fs::read(test_dir.below(&format!("d/f{i}"))).is_ok_and(|read| read == i.to_string().as_bytes())
        })
        .count()
}

#[test]
fn run_returns_when_all_is_on_the_storage() {
    let test_dir = SlowStorage::new("", &slow());
    let run = test_dir.job(&[], &make_files());
    assert_eq!(files_on_the_server(&test_dir), FILES, "{}", run.err);
    run.assert_code(0);
    test_dir.assert_no_staging();
}

#[test]
fn run_returns_when_all_is_rolled_back() {
    let test_dir = SlowStorage::new("mkdir old; printf x > old/f", &slow());
    let before = test_dir.snapshot_below();
    let run = test_dir.job(&[], &format!("{}; printf y > old/g; exit 4", make_files()));
    assert_eq!(test_dir.snapshot_below(), before, "{}", run.err);
    run.assert_code(4);
}

#[test]
fn commit_returns_when_all_is_on_the_storage() {
    let test_dir = SlowStorage::new("", &slow());
    let mount = test_dir.elbow_mount();
    mount.shell(&make_files()).assert_code(0);
    assert_eq!(
        files_on_the_server(&test_dir),
        0,
        "something was visible before the commit"
    );
    mount.elbow(&["commit"]).assert_code(0);
    assert_eq!(files_on_the_server(&test_dir), FILES);
    test_dir.assert_no_staging();
}

#[test]
fn rollback_returns_when_nothing_is_left() {
    let test_dir = SlowStorage::new("mkdir old; printf x > old/f", &slow());
    let before = test_dir.snapshot_below();
    let mount = test_dir.elbow_mount();
    mount.shell(&format!("{}; rm old/f", make_files())).assert_code(0);
    mount.elbow(&["rollback"]).assert_code(0);
    assert_eq!(test_dir.snapshot_below(), before);
}

#[test]
fn files_that_die_young_never_reach_the_storage() {
    let test_dir = SlowStorage::new("", &slow());
    test_dir.reset_counters();
    // By one program: between two that a shell starts on a busy machine, a file has grown old.
    let script = "mkdir keep; python3 -c \"
import os
for i in range(200):
    with open(f't{i}', 'w') as file: print(i, file=file)
    os.rename(f't{i}', f'u{i}')
    os.remove(f'u{i}')
\"; printf x > keep/f";
    test_dir.job(&[], script).assert_code(0);
    let calls = test_dir.modifying_calls();
    assert!(
        calls < 200,
        "{calls} modifying calls for 200 files that died young and one that lived"
    );
    assert_eq!(
        std::fs::read(test_dir.below("keep/f")).expect("the file that lived"),
        b"x"
    );
}

#[test]
fn many_operations_are_under_way_at_once() {
    let test_dir = SlowStorage::new(
        "",
        &SlowOptions {
            latency: Duration::from_millis(5),
            ..SlowOptions::default()
        },
    );
    // In many directories, because the kernel lets one creation at a time into each.
    let script =
        "for d in $(seq 40); do mkdir d$d; done; : > \"$OUT/listed\"; while [ ! -e \"$OUT/go\" ]; do sleep 0.02; done
        for d in $(seq 40); do printf $d > d$d/f; done; : > \"$OUT/made\"";
    let job = test_dir.start_job(&[], script);
    let out = test_dir.outside();
    wait_for("the directories", || out.join("listed").exists());
    test_dir.wait_for_the_drain();
    // What is asked for at once is there at once, however slow the command and this machine are.
    test_dir.pause();
    std::fs::write(out.join("go"), "").expect("a file");
    wait_for("all files", || out.join("made").exists());
    wait_for("16 operations that are under way at once", || test_dir.waiting() >= 16);
    test_dir.go_on();
    job.finish().assert_code(0);
    let is_there =
        |d: usize| std::fs::read(test_dir.below(&format!("d{d}/f"))).is_ok_and(|read| read == d.to_string().as_bytes());
    assert!((1..=40).all(is_there), "not all files are what they were written as");
}
