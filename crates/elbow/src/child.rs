//! The command in its namespace.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::Sender;

use elbow_mount::{Anchor, ChildState, Connection, JobDirectory, MountError, NamespaceEntry, PassedThrough, Watcher};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;

use crate::signals::{Arrival, Event};

/// A running command.
pub(crate) struct Running {
    pidfd: OwnedFd,
    process: Pid,
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
/// as an event. It dies with us, and by the watcher's hand all that it has started in its namespace. Gives also where each mount lies in its
/// namespace, as far as that can be told.
///
/// The thread that calls must live as long as we do: it is whose death the command hears of.
pub(crate) fn start(
    words: &[OsString],
    mounts: &[(&Connection, &JobDirectory)],
    passed: &PassedThrough,
    state: ChildState,
    events: Sender<Event>,
    watcher: &Watcher,
) -> Result<(Running, Vec<Option<Anchor>>), NotStarted> {
    let _ = watcher.command();
    let child = spawn(words, mounts, passed, state)?;
    // One that has ended has nobody to be watched; one that may not be looked at still dies with us itself.
    let _ = watcher.namespace_of(pid(&child));
    // Before anybody waits for it: its number is its own until then.
    let anchor = |(connection, place): &(&Connection, &JobDirectory)| Anchor::of(connection, place, pid(&child));
    let anchors = mounts.iter().map(anchor).collect();
    let running = Running::of(child, events).map_err(NotStarted::Other)?;
    Ok((running, anchors))
}

fn spawn(
    words: &[OsString],
    mounts: &[(&Connection, &JobDirectory)],
    passed: &PassedThrough,
    state: ChildState,
) -> Result<Child, NotStarted> {
    let working_directory = std::env::current_dir().ok();
    let entry = NamespaceEntry::new(mounts, passed, working_directory.as_deref(), state).map_err(NotStarted::Other)?;
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| NotStarted::Other(io::ErrorKind::InvalidInput.into()))?;
    let mut command = Command::new(program);
    command.args(arguments);
    if mounts.iter().any(|(_, place)| is_in_a_repository(place.path())) && std::env::var_os(GIT_GOES_ON).is_none() {
        command.env(GIT_GOES_ON, "1");
    }
    let report = entry.on_exec(&mut command).map_err(NotStarted::Other)?;
    die_with_us(&mut command);
    command.spawn().map_err(|error| match report.failure(&error) {
        Some(failure) => NotStarted::Namespace(failure),
        None => NotStarted::Exec(error),
    })
}

/// Lets git look for its repository above a mount point.
const GIT_GOES_ON: &str = "GIT_DISCOVERY_ACROSS_FILESYSTEM";

/// Whether git finds a repository above a directory without a job: it stops at the mount point that the directory becomes.
#[allow(clippy::disallowed_methods)] // above the storage of a job
fn is_in_a_repository(directory: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|found| found.dev()).ok();
    let here = device(directory);
    let above = directory.ancestors().skip(1).take_while(|above| device(above) == here);
    here.is_some()
        && above
            .into_iter()
            .any(|above| above.join(".git").symlink_metadata().is_ok())
}

/// After the namespaces, because a change of credentials would cancel it.
#[allow(unsafe_code)]
pub(crate) fn die_with_us(command: &mut Command) {
    let us = rustix::process::getpid();
    // SAFETY: prctl(2) and getppid(2) are async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // We may have died before that.
            if rustix::process::getppid() == Some(us) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
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
    /// A child of this thread. Its end comes as an event.
    pub(crate) fn of(child: Child, events: Sender<Event>) -> io::Result<Self> {
        let process = pid(&child);
        let pidfd = pidfd_open(process, PidfdFlags::empty())?;
        announce_end(child, events)?;
        Ok(Self { pidfd, process })
    }

    /// Its number.
    pub(crate) fn process(&self) -> i32 {
        self.process.as_raw_nonzero().get()
    }

    /// Passes a signal on. A command that has just ended does not mind.
    pub(crate) fn pass_on(&self, arrival: &Arrival) {
        arrival.send_on(&self.pidfd);
    }

    /// Sends a signal of our own.
    pub(crate) fn end(&self, signal: Signal) {
        // It may have ended.
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// Whether the command itself has sent it.
    pub(crate) fn has_sent(&self, arrival: &Arrival) -> bool {
        arrival.sender() == Some(self.process)
    }
}
