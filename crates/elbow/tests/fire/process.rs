//! A process that is killed and stopped, with all that it has started.

use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};

/// How long the kernel may take to stop a process on a busy machine; one that is not seen to stop counts as one that ran.
const STOPS_WITHIN: u32 = 500;

/// Nanoseconds of the clock by which the clients write down what happens.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// A process in a group of its own, which dies with the test.
pub(crate) struct Process {
    child: Child,
    /// Since when it is seen to be stopped.
    stopped: Option<u64>,
    /// When it certainly did not run.
    pub(crate) stops: Vec<Range<u64>>,
    pub(crate) was_killed: bool,
}

/// A test that is killed itself would leave services and clients that run for ever.
#[allow(unsafe_code)]
fn end_with_this_thread(command: &mut Command) {
    // SAFETY: prctl(2) is async-signal-safe, and nothing else is called between fork(2) and execve(2).
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
    }
}

impl Process {
    /// Called by a thread that outlives it: the kernel ends a process with the thread that started it.
    pub(crate) fn start(command: &mut Command) -> Self {
        end_with_this_thread(command);
        let child = command.process_group(0).spawn();
        Self {
            child: child.unwrap_or_else(|error| panic!("{command:?}: {error}")),
            stopped: None,
            stops: Vec::new(),
            was_killed: false,
        }
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Kills it; it is dead when this returns.
    pub(crate) fn kill(&mut self) {
        self.was_killed = true;
        self.signal(Signal::KILL);
        self.child.wait().unwrap();
    }

    pub(crate) fn stop(&mut self) {
        self.signal(Signal::STOP);
        for _ in 0..STOPS_WITHIN {
            if self.is_stopped() {
                self.stopped = Some(now());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn go_on(&mut self) {
        if let Some(since) = self.stopped.take() {
            self.stops.push(since..now());
        }
        self.signal(Signal::CONT);
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Nothing to do where it has ended by itself.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Whether none of its threads runs (proc(5), stat, field 3).
    fn is_stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.child.id())) else {
            return false;
        };
        let state = |thread: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
            stat.rsplit_once(") ")?.1.chars().next()
        };
        threads.flatten().all(|thread| state(thread) == Some('T'))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}
