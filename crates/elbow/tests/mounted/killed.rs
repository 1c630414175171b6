//! kill -9 of `elbow run` and of the process behind `elbow mount`: what it started ends, its mounts are gone, and the tree is
//! what it was after `recover`.
//!
//! The command lived on above a mount that nobody served any more, and every access to `MNT` of a killed `elbow mount`
//! answered "Transport endpoint is not connected" until somebody unmounted it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use elbow_testkit::reachable::Reachable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

use crate::ordinary_user::{USER, ground_of};
use crate::test_dir::{TestDir, wait_for};

/// A tree of processes: in the background, in sessions of their own, and one in a mount namespace of its own (where that is
/// allowed). Their environment holds the name of the ground.
const TREE: &str = "mkdir new; printf x > new/f; printf more >> file
    sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &)
    unshare --mount sleep 1000 2>/dev/null & : > \"$OUT/started\"; exec sleep 1000";
const OLD: &str = "mkdir d; printf 1 > d/old; printf 2 > file";

/// Processes that were started on a ground and still run. Zombies have no environment.
fn processes_of(test_dir: &TestDir) -> Vec<String> {
    let mark = format!("WORK={}", test_dir.work("").display());
    let processes = fs::read_dir("/proc").expect("procfs").flatten();
    processes
        .filter(|entry| {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
        })
        .map(|entry| {
            fs::read_to_string(entry.path().join("comm"))
                .unwrap_or_default()
                .trim()
                .to_owned()
        })
        .collect()
}

/// Mount points with the name of the ground as their source, in our namespace.
fn mounts_of(test_dir: &TestDir) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    table
        .matches(&format!("fuse.elbow {}", test_dir.root().display()))
        .count()
}

fn assert_all_ends(test_dir: &TestDir) {
    wait_for("the end of all processes", || processes_of(test_dir).is_empty());
    wait_for("the end of all mounts", || mounts_of(test_dir) == 0);
}

fn recover(test_dir: &TestDir) {
    let work = test_dir.work("");
    test_dir
        .elbow(&["recover", work.to_str().expect("UTF-8")])
        .assert_code(0);
}

fn kill_a_tree_of_processes(test_dir: &TestDir) {
    let job = test_dir.start_job(&[], TREE);
    wait_for("the tree of processes", || {
        test_dir.outside("started").exists()
            && processes_of(test_dir).iter().filter(|name| *name == "sleep").count() >= 5
    });
    job.kill_alone();
    assert_all_ends(test_dir);
}

#[test]
fn all_that_a_killed_elbow_has_started_ends() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    kill_a_tree_of_processes(&test_dir);
    recover(&test_dir);
    test_dir.assert_equals(&before);
}

#[test]
fn all_that_a_killed_elbow_of_a_user_has_started_ends() {
    let test_dir = ground_of(USER, OLD);
    let before = test_dir.snapshot();
    kill_a_tree_of_processes(&test_dir);
    recover(&test_dir);
    test_dir.assert_equals(&before);
    assert_no_hidden_mount_points(&test_dir);
}

/// The temporary directory of the user is outside of the job's.
fn assert_no_hidden_mount_points(test_dir: &TestDir) {
    let hidden = || {
        names(&test_dir.outside(""))
            .into_iter()
            .find(|name| name.starts_with("elbow-"))
    };
    wait_for("the end of hidden mount points", || hidden().is_none());
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// How the time until a command runs is corrected by each that was killed before.
const LONGER: f64 = 1.07;

/// How long it takes until the command runs, on this machine as busy as it is.
fn time_to_start(test_dir: &TestDir) -> Duration {
    let began = Instant::now();
    let job = test_dir.start_job(&[], TREE);
    wait_for("the command", || test_dir.outside("started").exists());
    let took = began.elapsed();
    job.kill_alone();
    assert_all_ends(test_dir);
    recover(test_dir);
    took
}

/// Each time it is in another place: the mount is made, handed over, in use, taken away, or gone.
fn kill_at_random_moments(test_dir: &TestDir, rounds: u32) {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(rand::random::<u64>);
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let before = test_dir.snapshot();
    let mut usual = time_to_start(test_dir);
    let (mut began, mut not_begun) = (0, 0);
    // More of them while the moments are of one kind only.
    while began + not_begun < rounds || (began == 0 || not_begun == 0) && began + not_begun < 4 * rounds {
        let _ = fs::remove_file(test_dir.outside("started"));
        let job = test_dir.start_job(&[], TREE);
        std::thread::sleep(usual.mul_f64(random.random_range(0.0..2.0)));
        let has_begun = test_dir.outside("started").exists();
        began += u32::from(has_begun);
        not_begun += u32::from(!has_begun);
        // It is another time while other work begins and ends on the machine.
        usual = usual.mul_f64(if has_begun { 1.0 / LONGER } else { LONGER });
        job.kill_alone();
        assert_all_ends(test_dir);
        recover(test_dir);
        test_dir.assert_equals(&before);
    }
    assert!(
        began > 0 && not_begun > 0,
        "{began} commands had begun, and {not_begun} had not"
    );
    assert_no_hidden_mount_points(test_dir);
}

#[test]
fn an_elbow_killed_at_any_moment_leaves_nothing() {
    let test_dir = TestDir::new(OLD);
    test_dir.restore();
    kill_at_random_moments(&test_dir, 50);
}

#[test]
fn an_elbow_of_a_user_killed_at_any_moment_leaves_nothing() {
    kill_at_random_moments(&ground_of(USER, OLD), 50);
}

/// The watcher holds no pipe open and is gone with `elbow run`, and what was left in the background lives.
#[test]
fn a_watcher_ends_with_its_elbow_and_ends_nothing_else() {
    let test_dir = TestDir::new(OLD);
    test_dir.restore();
    test_dir
        .job(
            &[],
            "sleep 1000 >/dev/null 2>&1 </dev/null & until [ \"$(cat /proc/$!/comm)\" = sleep ]; do sleep 0.02; done",
        )
        .assert_code(0);
    assert_eq!(processes_of(&test_dir), ["sleep"]);
    end_processes_of(&test_dir);
}

fn end_processes_of(test_dir: &TestDir) {
    let mark = format!("WORK={}", test_dir.work("").display());
    for entry in fs::read_dir("/proc").expect("procfs").flatten() {
        let environment = fs::read_to_string(entry.path().join("environ")).unwrap_or_default();
        let pid = entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| environment.contains(&mark)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn kill_a_daemon(test_dir: &TestDir) {
    let mount = test_dir.outside("mount");
    let (work, at) = (test_dir.work(""), mount.to_str().expect("UTF-8"));
    let script = "\"$ELBOW\" mount \"$WORK\" \"$OUT/mount\"; printf x > \"$OUT/mount/new\"; rm \"$OUT/mount/d/old\"
        \"$ELBOW\" status \"$OUT/mount\" --json > \"$OUT/status\"; pid=$(sed 's/.*\"pid\":\\([0-9]*\\).*/\\1/' \"$OUT/status\")
        sockets() { ls /run/user/*/elbow-*/$pid-*.sock /run/elbow-*/$pid-*.sock /tmp/elbow-*/$pid-*.sock 2> \"$OUT/none\" | wc -l; }
        test $(sockets) = 1; kill -KILL $pid
        for i in $(seq 500); do test -e \"$OUT/mount/inside\" && test $(sockets) = 0 && exit 0; sleep 0.02; done
        ls \"$OUT/mount\"; sockets; exit 1";
    fs::create_dir(&mount).expect("a mount point");
    fs::write(mount.join("inside"), "below the mount").expect("a file below the mount");
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&mount, permissions).expect("opening the mount point to all");
    std::os::unix::fs::chown(&mount, Some(USER), Some(USER)).expect("chown");
    let elbow = Reachable::new(Path::new(env!("CARGO_BIN_EXE_elbow"))).expect("the binary for all");
    let script = format!("ELBOW={}; {script}", elbow.path().display());
    test_dir.native(&script).assert_code(0);
    assert_eq!(names(&mount), ["inside"], "{at}");
    assert_all_ends(test_dir);
    test_dir
        .elbow(&["recover", work.to_str().expect("UTF-8")])
        .assert_code(0);
}

#[test]
fn a_mount_whose_process_is_killed_goes_away() {
    let test_dir = TestDir::new(OLD);
    let before = test_dir.restore();
    kill_a_daemon(&test_dir);
    test_dir.assert_equals(&before);
}

#[test]
fn a_mount_of_a_user_whose_process_is_killed_goes_away() {
    let test_dir = ground_of(USER, OLD);
    let before = test_dir.snapshot();
    kill_a_daemon(&test_dir);
    test_dir.assert_equals(&before);
}
