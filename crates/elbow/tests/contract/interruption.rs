//! Signals: during the command they are the command's, while results are stored they roll back.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use elbow_testkit::slowfs::{Mounted, SlowFs, SlowOptions};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::stage::{ELBOW, Said, Stage, Started, wait_for, word};

/// `elbow run` in a process group of its own, as a shell with job control starts it.
fn start(stage: &Stage, options: &[&str], script: &str) -> Started {
    let mut command = Command::new(ELBOW);
    command
        .arg("run")
        .args(options)
        .args(["--", "sh", "-c", script])
        .process_group(0);
    stage.start(&mut command)
}

fn finish(child: Started) -> Said {
    child.finish()
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
    // A signal while the command runs is the command's, and in the second after it. On a busy machine we hear of its end a little later.
    std::thread::sleep(Duration::from_secs(3));
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

/// What batch systems announce the end of a job with, what they stop and go on with, and what only programs send.
fn signals_for_the_command() -> Vec<i32> {
    let named = [
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGALRM,
        libc::SIGCONT,
        libc::SIGURG,
        libc::SIGWINCH,
        libc::SIGXCPU,
        libc::SIGIO,
        libc::SIGHUP,
        libc::SIGINT,
    ];
    named
        .into_iter()
        .chain([libc::SIGRTMIN() + 3, libc::SIGRTMAX()])
        .collect()
}

/// A command that writes down what it gets, until SIGTERM.
fn start_writer(stage: &Stage) -> Started {
    let traps: String = signals_for_the_command()
        .iter()
        .map(|signal| format!("trap 'echo {signal} >> ../got' {signal}; "))
        .collect();
    let script = format!("{traps} trap 'exit 0' TERM; : > ../got; : > ../ready; : > new; while :; do sleep 0.02; done");
    let child = start(stage, &[], &script);
    wait_for("the command", || stage.path("ready").exists());
    // What is sent in the very first moment is judged without a signal probe.
    std::thread::sleep(Duration::from_millis(200));
    child
}

fn got(stage: &Stage) -> Vec<i32> {
    let text = std::fs::read_to_string(stage.path("got")).expect("what the command got");
    text.lines().map(|line| line.parse().expect("a signal")).collect()
}

/// To a process, or a group where that is negative. Not all of these have a name in Rust.
#[allow(unsafe_code)]
fn send(signal: i32, to: i32) {
    // SAFETY: the call touches no memory.
    assert_eq!(unsafe { libc::kill(to, signal) }, 0, "{signal} to {to}");
}

fn number(child: &Child) -> i32 {
    pid(child).as_raw_nonzero().get()
}

/// Each of them ended `elbow run` (138 for SIGUSR1), and with it the job.
#[test]
fn signals_of_batch_systems_reach_the_command_once() {
    for to_all in [false, true] {
        let stage = Stage::new();
        let child = start_writer(&stage);
        let to = if to_all { -number(&child) } else { number(&child) };
        let signals = signals_for_the_command();
        for (count, signal) in signals.iter().enumerate() {
            send(*signal, to);
            wait_for("the signal", || got(&stage).len() > count);
            // A second one would have come by then, and a new probe stands there.
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(got(&stage), signals, "to all: {to_all}");
        kill_process(pid(&child), Signal::TERM).expect("a signal");
        finish(child).assert_code(0);
        assert_eq!(stage.names(), ["new"]);
    }
}

/// `pkill` by the name of the program and by its command line mean `elbow run`, and what it has started hears of it.
#[test]
fn a_signal_by_name_reaches_the_command() {
    let stage = Stage::new();
    let child = start_writer(&stage);
    let group = number(&child).to_string();
    for (count, by) in [&["elbow"][..], &["-f", "contract-.*never|elbow run"]]
        .iter()
        .enumerate()
    {
        let sent = Command::new("pkill").args(["-USR1", "-g", &group]).args(*by).status();
        assert!(sent.expect("pkill").success());
        wait_for("the signal", || got(&stage).len() > count);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(got(&stage), [libc::SIGUSR1; 2]);
    kill_process(pid(&child), Signal::TERM).expect("a signal");
    finish(child).assert_code(0);
}

/// In a container that was entered the process group has no number, for its leader is outside.
#[test]
fn a_signal_reaches_the_command_where_the_group_has_no_number() {
    let stage = Stage::new();
    let command = "trap 'echo got >> ../got' USR1; : > ../ready; until [ -e ../got ]; do sleep 0.02; done; : > new";
    let script = format!(
        "{ELBOW} run -- sh -c \"{command}\" & until [ -e ../ready ]; do sleep 0.02; done; sleep 0.2
        read -r stat < /proc/self/stat; set -- $stat; echo \"$5\" > ../group
        kill -USR1 $!; wait $!"
    );
    let mut inside = Command::new("unshare");
    inside.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", &script]);
    finish(stage.start(&mut inside)).assert_code(0);
    assert_eq!(
        std::fs::read_to_string(stage.path("group")).expect("its group").trim(),
        "0"
    );
    assert_eq!(
        std::fs::read_to_string(stage.path("got")).expect("what it got"),
        "got\n"
    );
    assert_eq!(stage.names(), ["new"]);
}

/// A script tells its parent, which is `elbow run` then.
#[test]
fn what_the_command_sends_to_its_parent_does_not_come_back() {
    let stage = Stage::new();
    let script = "trap 'echo back >> ../got' USR1; sleep 0.2; kill -USR1 $PPID; sleep 0.3; : > new";
    finish(start(&stage, &[], script)).assert_code(0);
    assert!(!stage.path("got").exists());
    assert_eq!(stage.names(), ["new"]);
}

/// State of a process (proc_pid_stat(5)).
fn state(process: impl std::fmt::Display) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let fields = stat.rsplit_once(") ").expect("a name").1.to_owned();
    fields.chars().next().expect("a state")
}

#[test]
fn a_stop_reaches_the_command_and_lasts_until_both_go_on() {
    let stage = Stage::new();
    let child = start(
        &stage,
        &[],
        "echo $$ > ../pid; : > ../ready; while [ ! -e ../go ]; do sleep 0.02; done; : > new",
    );
    wait_for("the command", || stage.path("ready").exists());
    std::thread::sleep(Duration::from_millis(200));
    let command = std::fs::read_to_string(stage.path("pid"))
        .expect("a number")
        .trim()
        .to_owned();
    let elbow = number(&child);
    for _ in 0..2 {
        send(libc::SIGTSTP, elbow);
        wait_for("a stop", || state(&command) == 'T' && state(elbow) == 'T');
        send(libc::SIGCONT, elbow);
        wait_for("both to go on", || state(&command) != 'T' && state(elbow) != 'T');
    }
    std::fs::write(stage.path("go"), "").expect("a file");
    finish(child).assert_code(0);
    assert_eq!(stage.names(), ["new"]);
}

/// It stopped at once, and a command that wanted to save what it had waited for its files for ever.
#[test]
fn a_command_that_saves_before_it_stops_is_served() {
    let stage = Stage::new();
    let script = "trap 'sleep 0.3; echo saved > state; cat state > ../saved; kill -STOP $$' TSTP
        echo $$ > ../pid; : > ../ready; while [ ! -e ../go ]; do :; done";
    let child = start(&stage, &[], script);
    wait_for("the command", || stage.path("ready").exists());
    std::thread::sleep(Duration::from_millis(200));
    let elbow = number(&child);
    send(libc::SIGTSTP, -elbow);
    wait_for("a stop", || state(elbow) == 'T');
    assert_eq!(std::fs::read(stage.path("saved")).expect("what was saved"), b"saved\n");
    std::fs::write(stage.path("go"), "").expect("a file");
    send(libc::SIGCONT, -elbow);
    finish(child).assert_code(0);
    assert_eq!(stage.names(), ["state"]);
}

/// A job whose results take seconds to store, and whose command ends after the last words of it.
fn start_slow(stage: &Stage, behind: &[&str], last: &str) -> (Mounted, Started) {
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
    let words = [behind, &[ELBOW, "run", "--on", word(&directory), "--", "sh", "-c"]].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(format!(
        "cd ../slow; for i in $(seq 10); do echo $i > f$i; done; : > ../ready; {last}"
    ));
    let child = stage.start(command.process_group(0));
    wait_for("the command", || stage.path("ready").exists());
    (slow, child)
}

/// A job whose results are being stored: of this storage that takes seconds.
fn start_storing(stage: &Stage, behind: &[&str]) -> (Mounted, Started) {
    let (slow, child) = start_slow(stage, behind, "");
    wait_for("the end of the command", || has_no_children(&child));
    std::thread::sleep(Duration::from_millis(300));
    (slow, child)
}

/// Slurm sends SIGTERM to each process of a task, one by one: where `elbow run` was the last, a command that had saved its state and
/// ended with 0 was rolled back.
#[test]
fn a_signal_that_is_late_for_the_command_does_not_roll_back() {
    let is_in_time = || {
        let stage = Stage::new();
        let wait = format!("until [ -e {} ]; do sleep 0.01; done", stage.path("go").display());
        let (_slow, child) = start_slow(&stage, &[], &wait);
        let ending = Instant::now();
        std::fs::write(stage.path("go"), "").expect("a file");
        wait_for("the end of the command", || has_no_children(&child));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!stage.path("below/f1").exists(), "it is being stored still");
        send(libc::SIGTERM, number(&child));
        // On a busy machine this may have taken longer than is waited for.
        let is_in_time = ending.elapsed() < Duration::from_secs(1);
        let said = finish(child);
        if is_in_time {
            said.assert_code(0).assert_says(&["SIGTERM came as the command ended"]);
            assert!(stage.path("below/f10").exists());
        }
        is_in_time
    };
    assert!((0..10).any(|_| is_in_time()), "no signal was sent in time");
}

#[test]
fn a_second_signal_after_the_end_of_the_command_rolls_back() {
    let stage = Stage::new();
    let (_slow, child) = start_storing(&stage, &[]);
    send(libc::SIGTERM, number(&child));
    std::thread::sleep(Duration::from_secs(3));
    assert!(!stage.path("below/f1").exists(), "it is being stored still");
    send(libc::SIGTERM, number(&child));
    finish(child)
        .assert_code(125)
        .assert_says(&["rolled back", "interrupted by SIGTERM"]);
    assert!(!stage.path("below/f10").exists());
}

#[test]
fn signals_for_a_command_that_has_ended_change_nothing() {
    let stage = Stage::new();
    let (_slow, child) = start_storing(&stage, &[]);
    for signal in [
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGXCPU,
        libc::SIGALRM,
        libc::SIGRTMIN() + 1,
    ] {
        send(signal, number(&child));
    }
    assert!(!stage.path("below/f1").exists(), "it is being stored still");
    finish(child).assert_code(0);
    assert!(stage.path("below/f10").exists());
}

/// Under nohup(1), a closed terminal rolled a job back whose results were being stored.
#[test]
fn a_signal_that_is_to_be_ignored_does_not_roll_back() {
    let stage = Stage::new();
    let (_slow, child) = start_storing(&stage, &["nohup"]);
    send(libc::SIGHUP, number(&child));
    assert!(!stage.path("below/f1").exists(), "it is being stored still");
    finish(child).assert_code(0);
    assert!(stage.path("below/f10").exists());
}
