//! Test number one on every kind of storage that can be had on one machine: the result is on the server's side when the
//! job returns, and equal to that of a native run.
//!
//! A kernel NFS needs a machine of its own and is part of the bench.

use std::path::Path;
use std::time::Duration;

use elbow_testkit::slowfs::SlowOptions;
use elbow_testkit::tree::Tree;

use crate::commands::Place;
use crate::slow_storage::SlowStorage;
use crate::test_dir::{TestDir, make_old_tree, snapshot_of, ssh_server, staging_below};

const SEED: &str = "printf old > config; printf 1 > gone; mkdir d; printf 2 > d/moved; seq 1000 > log";
const SCRIPT: &str = "printf x > r.tmp; mv r.tmp r; cp r r2; printf new > config.lock; mv config.lock config; cat config > seen
    rm gone; mv d/moved d/there; echo end >> log; mkdir -p n/m; for i in $(seq 50); do seq $i > n/m/$i; done; mv n/m m; chmod 600 m/7
    ln -s r soft; tail -n 1 log > last";

/// What the script leaves without a job, times aside: they are those of each run.
fn native_result() -> Tree {
    let test_dir = TestDir::new(SEED);
    test_dir.native(SCRIPT).assert_code(0);
    test_dir.snapshot().without_times()
}

#[test]
fn the_first_test_holds_on_a_local_file_system() {
    TestDir::new(SEED).assert_same_as_native(SCRIPT);
}

#[test]
fn the_first_test_holds_on_slow_storage() {
    let latency = Duration::from_millis(2);
    let test_dir = SlowStorage::new(
        SEED,
        &SlowOptions {
            latency,
            ..SlowOptions::default()
        },
    );
    let run = test_dir.job(&[], SCRIPT);
    test_dir
        .snapshot_below()
        .without_times()
        .assert_equals(&native_result());
    run.assert_code(0);
}

#[test]
fn the_first_test_holds_on_sshfs() {
    let Some((dir, bed)) = ssh_server(&["below", "work", "out"], Duration::from_millis(1)) else {
        return;
    };
    let path = |name| dir.path().join(name);
    make_old_tree(&path("below"), &path("out"), SEED);

    let mount = bed.mount(&path("below"), &path("work")).expect("an sshfs mount");
    let run = job_on(mount.path(), &path("out"));
    snapshot_of(&path("below"))
        .without_times()
        .assert_equals(&native_result());
    assert_eq!(staging_below(&path("below")), 0, "staging directories are left behind");
    assert_eq!(run, 0);
}

fn job_on(work: &Path, out: &Path) -> i32 {
    let run = Place { work, out }.start_job(&[], &[], SCRIPT).finish();
    eprintln!("{}", run.err);
    run.code
}
