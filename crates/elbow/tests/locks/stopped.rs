//! Waiters by every client that are stopped past their leases: what is granted to them meanwhile is another's when they go on.
//!
//! ```text
//!   another   holds ---- gives it back        holds (the lease is over) ---------- gives it back
//!   waiter      waits ..stopped.. is granted ................... goes on, asks again ------- holds
//! ```
//!
//! `elbow lock hold` is in `crash`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use elbow_lock::{Hold, LockMode, Wait};
use elbow_ranges::Footprint;
use rustix::process::{Pid, Signal, kill_process};

use super::lockd::{Lockd, until};
use super::package;

const IN_PYTHON: &str = "import sys, elbowroom
url, file, ran = sys.argv[1:]
with elbowroom.LockClient(url).hold(file):
    open(ran, 'w').close()
";

/// A service with short leases over TCP, and what is asked for there.
struct Stage {
    lockd: Lockd,
    libraries: [PathBuf; 3],
}

impl Stage {
    fn new() -> Option<Self> {
        let libraries = package::libraries()?;
        // Long enough for who is not stopped: a busy machine may keep a thread from running for more than half a second.
        let lockd = Lockd::start(&["--listen", "tcp:127.0.0.1:0", "--ttl", "2s"]);
        std::fs::write(lockd.directory.path().join("f"), "").unwrap();
        Some(Self { lockd, libraries })
    }

    fn here(&self) -> PathBuf {
        self.lockd.directory.path().canonicalize().unwrap()
    }

    fn place(&self, name: &str) -> PathBuf {
        self.here().join(name)
    }

    fn in_c(&self, with_library: bool) -> Command {
        let program = self.place("waiter");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/c/waiter.c");
        let source = match with_library {
            true => {
                let both = format!("#define LIBRARY\n#include \"{}\"\n", source.display());
                let place = self.place("with-library.c");
                std::fs::write(&place, both).unwrap();
                place
            }
            false => source,
        };
        let library = Some(&*self.libraries[0]).filter(|_| with_library);
        package::compile(&source, &program, library);
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.here());
        command
    }

    fn in_python(&self) -> Command {
        let packages = self.place("python");
        package::install_python(&packages, &self.libraries[2]);
        let mut command = Command::new("python3");
        command.args(["-c", IN_PYTHON]).env("PYTHONPATH", packages);
        command
    }

    fn by_fcntl(&self) -> Command {
        let mut command = self.in_c(false);
        command
            .env("LD_PRELOAD", &self.libraries[1])
            .env("ELBOW_FCNTL_PREFIXES", self.here())
            .env("ELBOW_FCNTL_IDENTITY", "path");
        command
    }

    fn hold(&self, wait: Wait) -> Hold {
        let client = self.lockd.client();
        client
            .lock(self.place("f"), Footprint::whole(), LockMode::Exclusive, wait)
            .unwrap()
    }

    /// Starts a waiter; it is stopped, granted and past its lease when this returns, and what it was granted is held by who is returned.
    fn past_its_lease(&self, mut command: Command) -> (Child, Hold) {
        let tcp = self.lockd.addresses[1].to_string();
        let first = self.hold(Wait::Try);
        command
            .arg(&tcp)
            .args([self.place("f"), self.place("ran")])
            .env("ELBOW_LOCKS", &tcp)
            .stderr(Stdio::piped());
        let waiter = command.spawn().unwrap();
        until("it waits", || self.lockd.total("waits") == 1);
        kill_process(Pid::from_child(&waiter), Signal::STOP).unwrap();
        first.release();
        until("it is granted", || self.lockd.total("grants") == 2);
        let second = self.hold(Wait::For(10_000));
        // It has not given back what it was granted: that has ended with its lease.
        assert_eq!(self.lockd.total("grants"), 3);
        assert!(!self.place("ran").exists(), "it was not stopped");
        (waiter, second)
    }
}

/// The grant was looked at when it came, and acted on when the thread ran: beside who had been granted the same bytes since.
#[test]
fn a_waiter_by_any_client_that_is_stopped_past_its_lease_asks_again() {
    for client in ["C", "Python", "fcntl"] {
        let Some(stage) = Stage::new() else { return };
        let command = match client {
            "C" => stage.in_c(true),
            "Python" => stage.in_python(),
            _ => stage.by_fcntl(),
        };
        let (waiter, second) = stage.past_its_lease(command);
        let ran = stage.place("ran");
        let waits = stage.lockd.total("waits");
        kill_process(Pid::from_child(&waiter), Signal::CONT).unwrap();
        until("it has asked again", || {
            ran.exists() || stage.lockd.total("waits") == waits + 1
        });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ran.exists(), "{client}: two hold it");
        second.finish().unwrap();
        let ended = waiter.wait_with_output().unwrap();
        assert!(ended.status.success() && ran.exists(), "{client}: {ended:?}");
    }
}
