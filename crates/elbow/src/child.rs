//! The command in its namespace.

use std::ffi::OsString;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::Sender;

use elbow_mount::{ChildState, Connection, Entrance, MountError, Place};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;

use crate::signals::Event;

/// A running command.
pub(crate) struct Running {
    pidfd: OwnedFd,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// The command itself cannot be run.
    Exec(io::Error),
    /// Its namespace cannot be made.
    Namespace(MountError),
    /// Something else.
    Other(io::Error),
}

/// Starts a command that finds each connection over its place, and everything else as we found it. Its end comes
/// as an event.
pub(crate) fn start(
    words: &[OsString],
    mounts: &[(&Connection, &Place)],
    state: ChildState,
    events: Sender<Event>,
) -> Result<Running, NotStarted> {
    let child = spawn(words, mounts, state)?;
    let pidfd = pidfd_open(pid(&child), PidfdFlags::empty()).map_err(|errno| NotStarted::Other(errno.into()))?;
    announce_end(child, events).map_err(NotStarted::Other)?;
    Ok(Running { pidfd })
}

fn spawn(words: &[OsString], mounts: &[(&Connection, &Place)], state: ChildState) -> Result<Child, NotStarted> {
    let working_directory = std::env::current_dir().ok();
    let entrance = Entrance::new(mounts, working_directory.as_deref(), state).map_err(NotStarted::Other)?;
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| NotStarted::Other(io::ErrorKind::InvalidInput.into()))?;
    let mut command = Command::new(program);
    command.args(arguments);
    let report = entrance.on_exec(&mut command).map_err(NotStarted::Other)?;
    command.spawn().map_err(|error| match report.failure(&error) {
        Some(failure) => NotStarted::Namespace(failure),
        None => NotStarted::Exec(error),
    })
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Waits on a thread of its own.
fn announce_end(mut child: Child, events: Sender<Event>) -> io::Result<()> {
    std::thread::Builder::new().name("elbow-wait".into()).spawn(move || {
        let status: io::Result<ExitStatus> = child.wait();
        // Nobody may be listening any more; that is fine.
        let _ = events.send(Event::Ended(status));
    })?;
    Ok(())
}

impl Running {
    /// Passes a signal on. A command that has just ended does not mind.
    pub(crate) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = pidfd_send_signal(&self.pidfd, signal);
        }
    }
}
