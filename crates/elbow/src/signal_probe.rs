//! Who else a signal was for.
//!
//! A signal to the process group of `elbow run` has reached the command as well, one to `elbow run` alone has not; the kernel
//! tells the receiver nothing of that. So a process that does nothing at all stands in the group while the command runs,
//! with all signals blocked: what stands in its list of pending signals (proc(5), `ShdPnd`) came to all.
//!
//! ```text
//!   kill -USR1 PID      elbow gets it                         the probe has nothing: it goes on to the command
//!   kill -USR1 -PGID    elbow, command and probe get it       it stays with us
//!   a whole control group, one by one                         the same, after a moment
//! ```
//!
//! It is forked from a process with many threads, so only system calls are made in it. It holds no descriptor, and dies with the
//! thread that starts it. Its name and its command line are not ours: `pkill elbow` and `pkill -f 'elbow run'` mean us alone.
//!
//! Source: kill(2), proc(5), `kill_pgrp` and `setpgid` of Linux (both under `tasklist_lock`).

#![allow(clippy::disallowed_methods)] // procfs, not the storage of a job

use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};

use crate::child::Running;
use crate::signals::Arrival;

/// Commands that end within this time have no probe for their signals.
pub(crate) const SHORT: Duration = Duration::from_millis(20);
/// What a terminal sends to all of a process group.
const FROM_A_TERMINAL: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH];
/// As processes are listed (prctl(2) takes 15 bytes).
const NAME: &std::ffi::CStr = c"signal-probe";
/// Who sends to each process of a job gets to the last one within this time.
const MOMENT: Duration = Duration::from_millis(10);
/// Where `arg_start` stands behind the name of the program in proc_pid_stat(5).
const ARGUMENTS_FIELD: usize = 48 - 3;

/// See the module's header; gone when dropped.
#[derive(Debug)]
pub(crate) struct SignalProbe {
    process: Pid,
}

impl SignalProbe {
    /// Starts it. The calling thread must live as long as it.
    ///
    /// # Errors
    /// There are too many processes.
    #[allow(unsafe_code)]
    pub(crate) fn start() -> io::Result<Self> {
        let (us, arguments) = (rustix::process::getpid(), arguments().unwrap_or((0, 0)));
        // SAFETY: the child makes system calls only, and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => stand_by(us, arguments),
            child => {
                let process = Pid::from_raw(child).ok_or_else(|| io::Error::other("fork gave no process"))?;
                Ok(Self { process })
            }
        }
    }

    /// Whether a signal that has just come to us came to the group.
    pub(crate) fn saw(&self, signal: i32) -> bool {
        self.has_now(signal) || {
            std::thread::sleep(MOMENT);
            self.has_now(signal)
        }
    }

    /// What was sent to a group before has come to all of it: who asks for a change of group waits for who is sending. No process
    /// has this number, so nothing is changed (our own group may have none either, in a container that was entered).
    fn has_now(&self, signal: i32) -> bool {
        let _ = rustix::process::setpgid(Pid::from_raw(i32::MAX), None);
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.as_raw_nonzero()));
        pending(&status.unwrap_or_default()) & mask(signal) != 0
    }
}

/// Passes a signal on to the command that has not got it yet.
pub(crate) fn pass_on(arrival: &Arrival, running: &Running, signal_probe: &mut Option<SignalProbe>) {
    let signal = arrival.number();
    if signal == libc::SIGXFSZ && !arrival.is_sent() {
        return; // what we write is too large, which the call has told
    }
    let came_to_all = match signal_probe {
        Some(signal_probe) => signal_probe.saw(signal),
        None => FROM_A_TERMINAL.contains(&signal),
    };
    if came_to_all {
        // It has this signal for good now, and can show it no more.
        *signal_probe = None;
    } else if arrival.is_ending() || !running.has_sent(arrival) {
        running.pass_on(arrival);
    }
}

impl Drop for SignalProbe {
    fn drop(&mut self) {
        // It is our child, so that nobody else has its number.
        let _ = rustix::process::kill_process(self.process, Signal::KILL);
        let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(self.process), WaitOptions::empty()));
    }
}

/// All that the child does.
#[allow(unsafe_code)]
fn stand_by(parent: Pid, (arguments, length): (usize, usize)) -> ! {
    // SAFETY: all of these are system calls on memory of this process, which has one thread and comes back to no other
    // code; the range of the arguments is as the kernel told it, and belongs to this copy alone.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent.as_raw_nonzero().get() {
            libc::_exit(0);
        }
        libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(arguments), 0, length);
        loop {
            libc::pause();
        }
    }
}

/// Where the command line of this process lies in its memory, and its length.
fn arguments() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(ARGUMENTS_FIELD);
    let (begin, end): (usize, usize) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (begin != 0).then(|| (begin, end.saturating_sub(begin)))
}

/// The signals that wait for a process, as a mask.
fn pending(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn mask(signal: i32) -> u64 {
    u32::try_from(signal - 1).map_or(0, |bit| 1_u64.checked_shl(bit).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_probe_has_what_it_was_sent_and_a_command_line_of_its_own() {
        let signal_probe = SignalProbe::start().expect("a process");
        let command_line = format!("/proc/{}/cmdline", signal_probe.process.as_raw_nonzero());
        let shown = || std::fs::read(&command_line).expect("procfs");
        // The last that it does, when it gets to run: before, it has not blocked the signals that this process has not.
        let deadline = Instant::now() + Duration::from_secs(60);
        while shown().iter().any(|byte| *byte != 0) {
            assert!(Instant::now() < deadline, "it has our command line: {:?}", shown());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!signal_probe.saw(libc::SIGUSR1));
        rustix::process::kill_process(signal_probe.process, Signal::USR1).expect("a signal");
        assert!(signal_probe.saw(libc::SIGUSR1) && !signal_probe.saw(libc::SIGUSR2));
    }
}
