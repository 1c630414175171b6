//! A storage that does not answer any more: whoever asks for the end of a job is not kept waiting for ever.
//!
//! The storage is a process of its own that is stopped while nothing is under way, as a machine is that has lost its network: what is asked then waits in
//! the kernel, which lets the one who asked be killed. What a server has taken before it stops nobody can take back.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use elbow_testkit::slowfs::{SlowFs, SlowOptions};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::interruption::{has_no_children, wait_for_probe};
use crate::stage::{ELBOW, Said, Stage, Started, wait_for, word};

/// Where the other process of this file shows which directory.
const SERVED: [&str; 2] = ["ELBOW_TEST_BELOW", "ELBOW_TEST_SHOWN"];
/// As it is promised, and how long an end may take beyond that on a busy machine.
const SILENCE: Duration = Duration::from_secs(30);
const BEYOND: Duration = Duration::from_secs(45);

/// Not a test: the storage of the others, until its standard input ends.
#[test]
#[ignore = "is started by the other tests"]
fn serve() {
    let [Some(below), Some(shown)] = SERVED.map(std::env::var_os) else {
        return;
    };
    let mounted = SlowFs::mount(below.as_ref(), shown.as_ref(), &SlowOptions::default()).expect("storage");
    println!("served");
    std::io::stdout().flush().expect("a reader");
    let _ = std::io::stdin().lines().count();
    mounted.unmount().expect("nobody uses it");
}

/// A storage that can be stopped.
struct Server {
    process: Child,
    input: Option<ChildStdin>,
    /// What it shows, in memory: a write that waits for a busy disk looks like a storage that has nothing to do.
    _below: TempDir,
}

impl Server {
    fn start(stage: &Stage) -> Self {
        let (below, shown) = (stage.path("below"), stage.path("shown"));
        stage.make_dir("shown");
        let in_memory = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        std::os::unix::fs::symlink(in_memory.path(), &below).expect("a link");
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command
            .args(["--exact", "stall::serve", "--ignored", "--nocapture"])
            .env(SERVED[0], below)
            .env(SERVED[1], shown)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("a process");
        let input = process.stdin.take();
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let mut lines = output.lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("served")), "it serves nothing");
        // Nobody reads on.
        std::thread::spawn(move || lines.count());
        Self {
            process,
            input,
            _below: in_memory,
        }
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("a signal");
    }

    fn stop(&self) {
        self.send(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.process.id());
        wait_for("the stop", || {
            std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.send(Signal::CONT);
        drop(self.input.take());
        let _ = self.process.wait();
    }
}

fn start(stage: &Stage, options: &[&str], script: &str) -> Started {
    let shown = stage.path("shown");
    let mut command = Command::new(ELBOW);
    command.args(["run", "--on", word(&shown)]).args(options);
    stage.start(command.args(["--", "sh", "-c", script]))
}

/// Bytes of the file that a job has staged, as the server has it.
fn staged_bytes(stage: &Stage) -> u64 {
    let entries = std::fs::read_dir(stage.path("below")).expect("what is below");
    let staged = entries.map(|entry| entry.expect("an entry").path().join("new/f"));
    staged
        .filter_map(|path| path.metadata().ok())
        .map(|found| found.len())
        .sum()
}

/// Waits until something has been stored and nothing is under way.
fn wait_for_quiet(stage: &Stage) {
    let mut seen = (0, Instant::now());
    wait_for("quiet", || {
        let now = staged_bytes(stage);
        if now != seen.0 {
            seen = (now, Instant::now());
        }
        now > 0 && seen.1.elapsed() > Duration::from_secs(2)
    });
}

/// The process of the command, which has written its number down.
fn process_of_command(stage: &Stage) -> PathBuf {
    let number = std::fs::read_to_string(stage.path("pid")).expect("its number");
    Path::new("/proc").join(number.trim())
}

/// Waits until the command has waited for one and the same answer of its file system for a second.
fn wait_for_the_wait(stage: &Stage) {
    let read = |name| std::fs::read_to_string(process_of_command(stage).join(name)).unwrap_or_default();
    let mut seen = (Vec::new(), Instant::now());
    wait_for("the command to wait for the storage", || {
        // Where it waits in the kernel, in which call, and after how many of them (proc(5)).
        let now = ["wchan", "syscall", "io"].map(read).to_vec();
        if now != seen.0 || now[0] != "request_wait_answer" {
            seen = (now, Instant::now());
        }
        seen.1.elapsed() > Duration::from_secs(1)
    });
}

/// Asks for the end, and waits for it: it comes, and not at once.
fn ended(child: Started) -> Said {
    let began = Instant::now();
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a signal");
    let said = child.finish();
    let took = began.elapsed();
    assert!(took >= SILENCE && took < SILENCE + BEYOND, "{took:?}: {said:#?}");
    said
}

/// Nothing is left of a job but what the next one on the directory removes.
fn assert_recoverable(stage: &Stage, server: &Server) {
    let shown = stage.path("shown");
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("the mounts");
    assert_eq!(
        mounts.matches(word(&shown)).count(),
        1,
        "but the storage itself: {mounts}"
    );
    server.send(Signal::CONT);
    stage.elbow(&["run", "--on", word(&shown), "--", "true"]).assert_code(0);
    let left = std::fs::read_dir(stage.path("below")).expect("what is below").count();
    assert_eq!(left, 0);
}

/// What does not fit into memory and scratch waits for the storage: the command could not be ended, and `elbow run` not either.
#[test]
fn a_writer_that_waits_for_a_stopped_storage_can_be_ended() {
    let stage = Stage::new();
    let server = Server::start(&stage);
    let small = SmallDisk::mount(&stage);
    let script = "echo $$ > ../pid; cd ../shown; exec 3> f; dd if=/dev/zero bs=1M count=16 >&3; until [ -e ../go ]; do sleep 0.02; done
        exec dd if=/dev/zero bs=1M count=100 >&3 2> ../said";
    let child = start(&stage, &["--mem", "8M", "--scratch", word(&small.0)], script);
    wait_for_quiet(&stage);
    server.stop();
    std::fs::write(stage.path("go"), "").expect("a file");
    wait_for_the_wait(&stage);
    let said = ended(child);
    said.assert_code(143)
        .assert_says(&["has not answered for 30 s", "elbow recover"]);
    let dd = std::fs::read_to_string(stage.path("said")).expect("what dd said");
    assert!(!dd.contains("100+0 records out"), "it did not wait: {dd}");
    wait_for("the end of the command", || !process_of_command(&stage).exists());
    assert_recoverable(&stage, &server);
}

#[test]
fn a_command_that_waits_for_the_first_answer_of_a_stopped_storage_can_be_ended() {
    let stage = Stage::new();
    let server = Server::start(&stage);
    let script = "echo $$ > ../pid; : > ../ready; until [ -e ../go ]; do sleep 0.02; done; cd ../shown; exec cat f";
    let child = start(&stage, &["--json"], script);
    wait_for("the command", || stage.path("ready").exists());
    std::thread::sleep(Duration::from_millis(500));
    server.stop();
    std::fs::write(stage.path("go"), "").expect("a file");
    wait_for_the_wait(&stage);
    let said = ended(child);
    said.assert_code(143)
        .assert_says(&[r#""exit_code":143"#, "has not answered for 30 s"]);
    wait_for("the end of the command", || !process_of_command(&stage).exists());
    assert_recoverable(&stage, &server);
}

/// The command has ended, and its results cannot be stored.
#[test]
fn what_is_stored_on_a_stopped_storage_can_be_ended() {
    let stage = Stage::new();
    let server = Server::start(&stage);
    let script = "ls ../shown; : > ../ready; until [ -e ../go ]; do sleep 0.02; done; echo x > ../shown/f; : > ../over";
    let child = start(&stage, &[], script);
    wait_for("the command", || stage.path("ready").exists());
    wait_for_probe(&child);
    std::thread::sleep(Duration::from_millis(500));
    server.stop();
    std::fs::write(stage.path("go"), "").expect("a file");
    wait_for("the end of the command", || stage.path("over").exists());
    // The signal probe ends when the end of the command is heard of.
    wait_for("it to be heard of", || has_no_children(&child));
    // In the first second after that, a signal is the command's.
    std::thread::sleep(Duration::from_secs(3));
    ended(child)
        .assert_code(125)
        .assert_says(&["has not answered for 30 s", "elbow recover"]);
    assert_recoverable(&stage, &server);
}

/// A file system with next to no room.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(stage: &Stage) -> Self {
        stage.make_dir("small");
        let path = stage.path("small");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1M", "none"]).arg(&path);
        assert!(mount.status().expect("mount").success());
        Self(path)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l"]).arg(&self.0).status();
    }
}
