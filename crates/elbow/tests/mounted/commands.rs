//! Commands that are started, waited for and killed.
//!
//! Nothing waits longer than [`PATIENCE`]: a test of a file system that hangs fails, and kills what hangs.

use std::fs;
use std::io::Write as _;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// After this a command is taken for hung, and its whole process group is killed.
const PATIENCE: Duration = Duration::from_secs(240);
/// How often something is looked at while waiting for it.
const GLANCE: Duration = Duration::from_millis(10);

/// The directories that a script knows by the variables `WORK` and `OUT`; `WORK` is also its current directory.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) work: &'a Path,
    pub(crate) out: &'a Path,
}

impl Place<'_> {
    /// Starts a command there.
    pub(crate) fn start(self, words: &[&str]) -> Running {
        let (program, arguments) = words.split_first().expect("a command has a first word");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.work)
            .env("WORK", self.work)
            .env("OUT", self.out)
            .env("LC_ALL", "C");
        Running::start(&mut command)
    }

    /// Runs a shell script there that stops at its first error.
    pub(crate) fn shell(self, script: &str) -> Run {
        self.start(&["sh", "-e", "-c", script]).finish()
    }

    /// Starts a shell script there as a job, by way of a program that runs its arguments (or of none).
    pub(crate) fn start_job(self, behind: &[&str], options: &[&str], script: &str) -> Running {
        let elbow = [env!("CARGO_BIN_EXE_elbow"), "run"];
        let script = ["--", "sh", "-c", script];
        self.start(&[behind, &elbow, options, &script].concat())
    }
}

/// What a finished command said.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit code, as a shell gives it.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Run {
    /// Fails the test with all that was said unless the exit code is this one.
    #[track_caller]
    pub(crate) fn assert_code(&self, code: i32) {
        assert_eq!(
            self.code, code,
            "exit code\n--- stdout\n{}\n--- stderr\n{}",
            self.out, self.err
        );
    }
}

/// A command that is running.
pub(crate) struct Running {
    child: Child,
    said: TempDir,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let said = tempfile::tempdir().expect("temporary directory");
        let file = |name| fs::File::create(said.path().join(name)).expect("a file for what a command says");
        command
            .stdin(Stdio::null())
            .stdout(file("out"))
            .stderr(file("err"))
            .process_group(0);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, said }
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Run {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waiting for a child") {
                break status;
            }
            if Instant::now() > deadline {
                self.signal_group("KILL");
                panic!(
                    "hung for {PATIENCE:?}; it said:\n{}\n{}",
                    self.text("out"),
                    self.text("err")
                );
            }
            sleep(GLANCE);
        };
        let code = status
            .code()
            .or(status.signal().map(|signal| 128 + signal))
            .expect("an end has a reason");
        Run {
            code,
            out: self.text("out"),
            err: self.text("err"),
        }
    }

    /// Whether it has come to its end.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("waiting for a child").is_some()
    }

    /// Sends a signal to the command and all its children, as a terminal does.
    pub(crate) fn signal_group(&self, signal: &str) {
        self.send(signal, &format!("-{}", self.child.id()));
    }

    /// Kills all of it, as a crash does, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.signal_group("KILL");
        self.child.wait().expect("waiting for a killed child");
    }

    /// Kills the command alone, and waits until it is gone.
    pub(crate) fn kill_alone(mut self) {
        self.child.kill().expect("killing a child");
        wait_for("the end of a killed child", || {
            self.child.try_wait().expect("waiting for a killed child").is_some()
        });
    }

    fn send(&self, signal: &str, to: &str) {
        let sent = Command::new("kill")
            .args(["-s", signal, "--", to])
            .status()
            .expect("kill");
        assert!(sent.success(), "kill -s {signal} {to}");
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.said.path().join(name)).expect("what a command said")).into_owned()
    }
}

/// A test that fails leaves nothing running.
impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = Command::new("kill")
                .args(["-s", "KILL", "--", &format!("-{}", self.child.id())])
                .status();
            let _ = self.child.wait();
        }
    }
}

/// How long something in a running job may take to become visible.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Waits until something is the case.
pub(crate) fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {WAIT_MAX:?} for {what}");
        sleep(GLANCE);
    }
}

/// Waits until nothing is on its way to the storage of the job whose `elbow status --json` this is, and what is left to be stored are so many bytes of
/// what its command holds open.
pub(crate) fn wait_for_the_drain(bytes_open: u64, status: impl Fn() -> Run) {
    let is_drained = || {
        let status: Value = serde_json::from_str(&status().out).expect("JSON");
        [("queued", 0), ("in_flight", 0), ("bytes_left", bytes_open)]
            .iter()
            .all(|(name, count)| status["counts"][*name] == *count)
    };
    wait_for("the drain", is_drained);
}

/// Something a test needs cannot be had here: said aloud, and a failure where nothing may be skipped.
pub(crate) fn unavailable(what: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|value| value != "true"),
        "CI=true, and it lacks {what}"
    );
    // Not eprintln: the test runner would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED: this machine lacks {what}");
}
