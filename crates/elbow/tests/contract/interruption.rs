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

/// The numbers of a process's threads.
fn threads(process: &Child) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("its threads");
    let names = tasks.flatten().map(|task| task.file_name());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}

/// What a process has started that has not ended (proc(5), task/TID/children), each with its name.
fn children(process: &Child) -> Vec<(String, String)> {
    let children = threads(process).into_iter().map(|thread| {
        // A thread may have ended.
        std::fs::read_to_string(format!("/proc/{}/task/{thread}/children", process.id())).unwrap_or_default()
    });
    let numbers: Vec<String> = children
        .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    numbers.into_iter().map(|child| (name(&child), child)).collect()
}

/// The name of a process, without a word where it has ended.
fn name(process: impl std::fmt::Display) -> String {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    name.trim().to_owned()
}

/// Whether all that `elbow run` has started has ended, but for its watcher. The signal probe ends when it has heard of the end of its command.
pub(crate) fn has_no_children(process: &Child) -> bool {
    children(process).iter().all(|(name, _)| name == "elbow-watcher")
}

/// Waits until a signal probe stands by that has got no signal yet: without it, `elbow run` cannot tell whether the next one came to all. A probe has
/// its name once it gets no signal itself, and its command line is empty last.
pub(crate) fn wait_for_probe(process: &Child) {
    let read = |probe: &str, file: &str| std::fs::read_to_string(format!("/proc/{probe}/{file}")).unwrap_or_default();
    let is_fresh = |probe: &str| {
        let has_none = |line: &str| line.split_whitespace().eq(["ShdPnd:", "0000000000000000"]);
        read(probe, "status").lines().any(has_none) && read(probe, "cmdline").chars().all(|sign| sign == '\0')
    };
    wait_for("a signal probe", || {
        let mut children = children(process).into_iter();
        children.any(|(name, child)| name == "signal-probe" && is_fresh(&child))
    });
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
        libc::SIGABRT,
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
    wait_for_probe(&child);
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
            // What came to all has used up its probe.
            wait_for_probe(&child);
            // A second one would have come by then.
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
        // A second one would have come by then.
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

/// Whether the thread of `elbow run` that stops it with its command waits for a stop again. On its way back from one it sleeps nowhere, and a stop
/// that came then would be that of `elbow run` alone.
fn awaits_a_stop(process: &Child) -> bool {
    let threads = threads(process).into_iter();
    let mut threads = threads.map(|thread| format!("{}/task/{thread}", process.id()));
    threads.any(|thread| name(&thread) == "elbow-stop" && state(&thread) == 'S')
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
    wait_for_probe(&child);
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
        wait_for("elbow to be ready for the next", || awaits_a_stop(&child));
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
    wait_for_probe(&child);
    let elbow = number(&child);
    send(libc::SIGTSTP, -elbow);
    wait_for("a stop", || state(elbow) == 'T');
    assert_eq!(std::fs::read(stage.path("saved")).expect("what was saved"), b"saved\n");
    std::fs::write(stage.path("go"), "").expect("a file");
    send(libc::SIGCONT, -elbow);
    finish(child).assert_code(0);
    assert_eq!(stage.names(), ["state"]);
}

/// A job whose command ends once the file `go` is there. Its storage is slow, and answers nothing more until it is resumed.
fn start_slow(stage: &Stage, behind: &[&str]) -> (Mounted, Started) {
    start_slow_with(stage, behind, &[], "")
}

/// The same with more options, and something that is done first.
fn start_slow_with(stage: &Stage, behind: &[&str], options: &[&str], first: &str) -> (Mounted, Started) {
    for name in ["below", "slow"] {
        stage.make_dir(name);
    }
    let slow_options = SlowOptions {
        latency: Duration::from_millis(50),
        concurrent: 1,
        ..SlowOptions::default()
    };
    let slow = SlowFs::mount(&stage.path("below"), &stage.path("slow"), &slow_options).expect("slow storage");
    let directory = stage.path("slow");
    let on = ["--on", word(&directory), "--", "sh", "-c"];
    let words = [behind, &[ELBOW, "run"], options, &on].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(format!(
        "{first} cd ../slow; for i in $(seq 10); do echo $i > f$i; done; : > ../ready; until [ -e {} ]; do sleep 0.01; done",
        stage.path("go").display()
    ));
    let child = stage.start(command.process_group(0));
    wait_for("the command", || stage.path("ready").exists());
    wait_for_probe(&child);
    slow.pause();
    (slow, child)
}

/// Lets the command end. `elbow run` has heard of that when its signal probe has ended, too.
fn end_command(stage: &Stage, child: &Child) {
    std::fs::write(stage.path("go"), "").expect("a file");
    wait_for("the end of the command", || has_no_children(child));
}

/// A job whose results are being stored, which goes on when its storage is resumed.
fn start_storing(stage: &Stage, behind: &[&str]) -> (Mounted, Started) {
    let (slow, child) = start_slow(stage, behind);
    end_command(stage, &child);
    (slow, child)
}

/// Slurm sends SIGTERM to each process of a task, one by one: where `elbow run` was the last, a command that had saved its state and
/// ended with 0 was rolled back.
#[test]
fn a_signal_that_is_late_for_the_command_does_not_roll_back() {
    let is_in_time = || {
        let stage = Stage::new();
        let (slow, child) = start_slow(&stage, &[]);
        let ending = Instant::now();
        end_command(&stage, &child);
        send(libc::SIGTERM, number(&child));
        // On a busy machine this may have taken longer than is waited for, and the signal needs a moment to be heard of.
        let is_in_time = ending.elapsed() < Duration::from_millis(500);
        assert!(!stage.path("below/f1").exists(), "it is being stored still");
        slow.resume();
        let said = finish(child);
        if is_in_time {
            said.assert_code(0).assert_says(&["SIGTERM came as the command ended"]);
            assert!(stage.path("below/f10").exists());
        }
        is_in_time
    };
    assert!((0..30).any(|_| is_in_time()), "no signal was sent in time");
}

#[test]
fn a_second_signal_after_the_end_of_the_command_rolls_back() {
    let stage = Stage::new();
    let (slow, child) = start_storing(&stage, &[]);
    send(libc::SIGTERM, number(&child));
    std::thread::sleep(Duration::from_secs(3));
    assert!(!stage.path("below/f1").exists(), "it is being stored still");
    send(libc::SIGTERM, number(&child));
    slow.resume();
    finish(child)
        .assert_code(125)
        .assert_says(&["rolled back", "interrupted by SIGTERM"]);
    assert!(!stage.path("below/f10").exists());
}

/// The first directory was committed while the second was being stored.
#[test]
fn a_signal_while_the_second_directory_is_stored_rolls_both_back() {
    let stage = Stage::new();
    std::fs::write(stage.work().join("log"), "old").expect("a file");
    let (slow, child) = start_slow_with(&stage, &[], &["--json", "--on", "."], "printf x >> log; : > new;");
    end_command(&stage, &child);
    std::thread::sleep(Duration::from_secs(3));
    send(libc::SIGTERM, number(&child));
    // It is to be heard of before the rest is stored.
    std::thread::sleep(Duration::from_millis(500));
    slow.resume();
    finish(child)
        .assert_code(125)
        .assert_says(&[r#""outcome":"rolled_back""#, "interrupted by SIGTERM"]);
    assert_eq!(stage.names(), ["log"]);
    assert_eq!(std::fs::read(stage.work().join("log")).expect("the old file"), b"old");
    assert!(!stage.path("below/f10").exists());
}

/// Whoever asks for the end when results are being published gets them.
#[test]
fn a_signal_after_the_commit_record_changes_nothing() {
    let stage = Stage::new();
    let (slow, child) = start_slow(&stage, &[]);
    end_command(&stage, &child);
    // In the first second after that, a signal is the command's.
    std::thread::sleep(Duration::from_secs(3));
    let below = stage.path("below");
    let is_committing = || {
        let mut entries = std::fs::read_dir(&below).expect("what is below").flatten();
        entries.any(|entry| entry.path().join("commit").exists())
    };
    slow.resume();
    wait_for("the commit record", || {
        slow.pause();
        let is_committing = is_committing();
        if !is_committing {
            slow.resume();
        }
        is_committing
    });
    assert!(
        !stage.path("below/f10").exists() || !stage.path("below/f1").exists(),
        "it is published by now"
    );
    for _ in 0..2 {
        send(libc::SIGTERM, number(&child));
        std::thread::sleep(Duration::from_millis(500));
    }
    slow.resume();
    finish(child).assert_code(0).assert_says(&["committed"]);
    for number in 1..=10 {
        let stored = std::fs::read_to_string(stage.path(&format!("below/f{number}"))).expect("it is there");
        assert_eq!(stored, format!("{number}\n"));
    }
    assert_eq!(std::fs::read_dir(&below).expect("what is below").count(), 10);
}

#[test]
fn signals_for_a_command_that_has_ended_change_nothing() {
    let stage = Stage::new();
    let (slow, child) = start_storing(&stage, &[]);
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
    slow.resume();
    finish(child).assert_code(0);
    assert!(stage.path("below/f10").exists());
}

/// Under nohup(1), a closed terminal rolled a job back whose results were being stored.
#[test]
fn a_signal_that_is_to_be_ignored_does_not_roll_back() {
    let stage = Stage::new();
    let (slow, child) = start_storing(&stage, &["nohup"]);
    send(libc::SIGHUP, number(&child));
    assert!(!stage.path("below/f1").exists(), "it is being stored still");
    slow.resume();
    finish(child).assert_code(0);
    assert!(stage.path("below/f10").exists());
}
