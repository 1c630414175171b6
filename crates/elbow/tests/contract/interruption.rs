//! Signals: during the command they are the command's, while results are stored they roll back.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use elbow_testkit::slowfs::{SlowFs, SlowOptions};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::stage::{ELBOW, Said, Stage, wait_for, word};

/// `elbow run` in a process group of its own, as a shell with job control starts it.
fn start(stage: &Stage, options: &[&str], script: &str) -> Child {
    let mut command = Command::new(ELBOW);
    command
        .arg("run")
        .args(options)
        .args(["--", "sh", "-c", script])
        .process_group(0);
    stage.start(&mut command)
}

fn finish(child: Child) -> Said {
    Said::of(&child.wait_with_output().expect("an end"))
}

/// Whether all that a process has started has ended (proc(5), task/TID/children), but for its watcher.
fn has_no_children(process: &Child) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("its threads");
    tasks.flatten().all(|task| {
        // A thread may have ended.
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        let mut names = children
            .split_whitespace()
            .map(|child| std::fs::read_to_string(format!("/proc/{child}/comm")).unwrap_or_default());
        names.all(|name| name.trim() == "elbow-watcher")
    })
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

#[test]
fn a_command_that_handles_its_signal_decides_itself() {
    let stage = Stage::new();
    let script = "trap 'printf saved > saved; exit 0' TERM; : > ../ready; while :; do sleep 0.05; done";
    let child = start(&stage, &[], script);
    wait_for("the command", || stage.path("ready").exists());
    kill_process(pid(&child), Signal::TERM).expect("a signal");
    finish(child).assert_code(0);
    assert_eq!(stage.names(), ["saved"]);
}

#[test]
fn a_signal_to_elbow_alone_reaches_the_command() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let stage = Stage::new();
        let child = start(&stage, &["--retry", "3"], "printf x > new; : > ../ready; exec sleep 60");
        wait_for("the command", || stage.path("ready").exists());
        kill_process(pid(&child), signal).expect("a signal");
        finish(child).assert_code(code).assert_says(&["rolled back"]);
        assert!(stage.names().is_empty());
    }
}

#[test]
fn ctrl_c_ends_the_command_and_rolls_back() {
    let stage = Stage::new();
    let child = start(&stage, &[], "printf x > new; : > ../ready; exec sleep 60");
    wait_for("the command", || stage.path("ready").exists());
    kill_process_group(pid(&child), Signal::INT).expect("a signal");
    finish(child).assert_code(130).assert_says(&["rolled back", "SIGINT"]);
    assert!(stage.names().is_empty());
}

/// Storing 300 files of this storage takes half a minute; interrupted, it is over in a fraction of that.
#[test]
fn ctrl_c_while_results_are_stored_rolls_back() {
    let stage = Stage::new();
    for name in ["below", "slow"] {
        stage.make_dir(name);
    }
    let options = SlowOptions {
        latency: Duration::from_millis(50),
        concurrent: 1,
        ..SlowOptions::default()
    };
    let slow = SlowFs::mount(&stage.path("below"), &stage.path("slow"), &options).expect("slow storage");
    let directory = stage.path("slow");
    let script = "cd ../slow; for i in $(seq 300); do echo $i > f$i; done; : > ../ready";
    let child = start(&stage, &["--on", word(&directory)], script);
    wait_for("the command", || stage.path("ready").exists());
    wait_for("the drain", || slow.counters().total > 10);
    wait_for("the end of the command", || has_no_children(&child));
    // A signal while the command runs is the command's. On a busy machine we hear of its end a little later.
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    kill_process_group(pid(&child), Signal::INT).expect("a signal");
    finish(child)
        .assert_code(125)
        .assert_says(&["rolled back", "interrupted by SIGINT"]);
    assert!(
        began.elapsed() < Duration::from_secs(25),
        "it stored everything first: {:?}",
        began.elapsed()
    );
    let left = std::fs::read_dir(stage.path("below")).expect("what is below").count();
    assert_eq!(left, 0);
}
