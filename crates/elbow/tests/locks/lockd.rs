//! A service started for a test.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use elbow_lock::{Address, Client};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A service that dies with the test.
pub(crate) struct Lockd {
    pub(crate) directory: TempDir,
    arguments: Vec<String>,
    child: Child,
    /// Kept open, so that the service can write.
    _said: BufReader<ChildStdout>,
    /// Where it said that it listens.
    pub(crate) addresses: Vec<Address>,
}

impl Lockd {
    /// Starts one on a Unix socket, with more arguments; `{}` in them is its directory.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let shown = directory.path().display().to_string();
        let arguments: Vec<String> = arguments.iter().map(|word| word.replace("{}", &shown)).collect();
        let listen = format!("unix:{shown}/socket");
        let mut all = vec!["--listen".to_owned(), listen];
        all.extend(arguments);
        let (child, said, addresses) = spawn(&all);
        Self {
            directory,
            arguments: all,
            child,
            _said: said,
            addresses,
        }
    }

    /// Kills it; it is dead when this returns.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    /// Kills it and starts it again in the same place.
    pub(crate) fn kill_and_start_again(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Starts it in the same place when it has ended.
    pub(crate) fn start_again(&mut self) {
        (self.child, self._said, self.addresses) = spawn(&self.arguments);
    }

    /// As [`start_again`](Self::start_again), with another value of an option that it was started with.
    pub(crate) fn start_again_with(&mut self, option: &str, value: &str) {
        let at = self.arguments.iter().position(|word| word == option).unwrap();
        value.clone_into(&mut self.arguments[at + 1]);
        self.start_again();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    pub(crate) fn address(&self) -> String {
        self.addresses[0].to_string()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.address()).unwrap()
    }

    /// `elbow WORDS` for this service.
    pub(crate) fn elbow(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elbow"));
        command
            .args(words)
            .env("ELBOW_LOCKS", self.address())
            .current_dir(self.directory.path());
        command
    }

    /// What it has used of processors, in seconds (proc(5), stat, fields 14 and 15).
    pub(crate) fn processor_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        let fields: Vec<&str> = after_name.split(' ').collect();
        let ticks = |field: usize| fields[field - 3].parse::<f64>().unwrap();
        (ticks(14) + ticks(15)) / rustix::param::clock_ticks_per_second() as f64
    }

    /// A number of its totals.
    pub(crate) fn total(&self, name: &str) -> u64 {
        let status = self.status();
        status["totals"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no {name} in {status}"))
    }

    pub(crate) fn grace_left_ms(&self) -> u64 {
        self.status()["grace_left_ms"].as_u64().unwrap()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.status()["epoch"].as_u64().unwrap()
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.client().status().unwrap()).unwrap()
    }
}

impl Drop for Lockd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(arguments: &[String]) -> (Child, BufReader<ChildStdout>, Vec<Address>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_elbow"))
        .args(["lockd", "serve"])
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let listens = arguments.iter().filter(|word| *word == "--listen").count();
    let addresses = (0..listens).map(|_| {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ");
        address
            .unwrap_or_else(|| panic!("the service said {line:?}"))
            .parse()
            .unwrap()
    });
    let addresses = addresses.collect();
    (child, said, addresses)
}

/// A key that only its owner may read, as a service wants it.
pub(crate) fn write_key(path: &Path, key: &str) {
    std::fs::write(path, key).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Waits until something is so; panics with `what` when it takes too long.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < give_up, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
