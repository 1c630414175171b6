//! Signals as messages.
//!
//! A shell that waits for a command is not ended by the Ctrl-C that ends the command, and neither is `elbow run`:
//! the signals that end programs are blocked in all its threads and received by one. Their dispositions are left
//! alone, so a command finds them (ignored under nohup(1), for one) as it would without us.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::Sender;

use rustix::process::{Pid, Signal, kill_process};

/// What `elbow` does not die of while it works for a command.
const TAKEN: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Something that happened while waiting.
#[derive(Debug)]
pub(crate) enum Event {
    /// A signal came.
    Signal(i32),
    /// The command ended.
    Ended(io::Result<std::process::ExitStatus>),
    /// There is no more to wait for.
    Over,
}

/// Blocks the signals in this thread and in all that it starts from now on. And makes sure that we can wait for
/// children, which we cannot where our parent ignored SIGCHLD.
#[allow(unsafe_code)]
pub(crate) fn block() {
    let set = taken();
    // SAFETY: the default disposition runs no code of ours.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    // SAFETY: `set` is a valid set; a null old set is not written. The call fails for no valid arguments.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Sends each signal as an event, until nobody listens.
pub(crate) fn listen(events: Sender<Event>) -> io::Result<()> {
    std::thread::Builder::new()
        .name("elbow-signals".into())
        .spawn(move || {
            while let Some(signal) = wait() {
                if events.send(Event::Signal(signal)).is_err() {
                    break;
                }
            }
        })?;
    Ok(())
}

#[allow(unsafe_code)]
fn wait() -> Option<i32> {
    let set = taken();
    let mut signal = 0;
    // SAFETY: both point to valid memory for the time of the call.
    let failed = unsafe { libc::sigwait(&raw const set, &raw mut signal) };
    (failed == 0).then_some(signal)
}

fn taken() -> libc::sigset_t {
    set_of(&TAKEN)
}

#[allow(unsafe_code)]
fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: a zeroed set is valid memory for sigemptyset, which makes it a valid set for sigaddset.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        set
    }
}

#[allow(unsafe_code)]
fn mask(how: i32, signal: i32) {
    let set = set_of(&[signal]);
    // SAFETY: `set` is a valid set; a null old set is not written. The call fails for no valid arguments.
    unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) };
}

/// Lets this thread, and all that it starts, write to a terminal that stops writers in the background.
pub(crate) fn block_output_stop() {
    mask(libc::SIG_BLOCK, libc::SIGTTOU);
}

/// Keeps Ctrl-Z from this thread and all that it starts: it is then for [`on_stop`] to stop the process.
pub(crate) fn block_stop() {
    mask(libc::SIG_BLOCK, libc::SIGTSTP);
}

/// Stops this process at Ctrl-Z, after something else was done.
pub(crate) fn on_stop(before: fn()) -> io::Result<()> {
    let work = move || {
        loop {
            wait_for_stop();
            before();
            mask(libc::SIG_UNBLOCK, libc::SIGTSTP);
            stop();
            // It goes on.
            mask(libc::SIG_BLOCK, libc::SIGTSTP);
        }
    };
    std::thread::Builder::new()
        .name("elbow-stop".into())
        .spawn(work)
        .map(|_| ())
}

#[allow(unsafe_code)]
fn wait_for_stop() {
    let set = set_of(&[libc::SIGTSTP]);
    let mut signal = 0;
    // SAFETY: both point to valid memory for the time of the call.
    unsafe { libc::sigwait(&raw const set, &raw mut signal) };
}

#[allow(unsafe_code)]
fn stop() {
    // SAFETY: sends a signal to this thread; its default disposition, which is never changed, stops the process.
    unsafe { libc::raise(libc::SIGTSTP) };
}

/// Lets a command have the signals that [`block`] keeps from it.
#[allow(unsafe_code)]
pub(crate) fn unblock_in(command: &mut Command) {
    let set = taken();
    // SAFETY: between fork and exec only pthread_sigmask is called, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            match libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        });
    }
}

/// Sends a signal to a child that nobody has waited for yet. One that has just ended does not mind.
pub(crate) fn pass_on(process: i32, signal: i32) {
    if let (Some(process), Some(signal)) = (Pid::from_raw(process), Signal::from_named_raw(signal)) {
        // It may have ended.
        let _ = kill_process(process, signal);
    }
}

/// The name of a signal, for people.
pub(crate) fn name(signal: i32) -> String {
    let known = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGABRT => "SIGABRT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGTERM => "SIGTERM",
        other => return format!("signal {other}"),
    };
    known.to_owned()
}
