//! `elbow mount`: checks, starts the daemon, and returns when the mount is ready.
//!
//! The daemon is this program again, in a session of its own, with a pipe on which it says that it is ready. What
//! goes wrong before that, it says itself, on the standard error that it still shares with us.

use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;

use crate::cli::MountArgs;
use crate::{daemon, exit};

/// Mounts; returns when the mount is ready, or with `--foreground` when it is gone.
pub(crate) fn run(args: &MountArgs) -> anyhow::Result<ExitCode> {
    if args.foreground {
        return daemon::run(args);
    }
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let mut child = spawn(&writing).context("cannot start the process that serves the mount")?;
    drop(writing);
    let mut said = Vec::new();
    std::io::PipeReader::from(reading).read_to_end(&mut said)?;
    if said == daemon::READY {
        return Ok(ExitCode::SUCCESS);
    }
    child.wait()?;
    Ok(ExitCode::from(exit::ELBOW_FAILED))
}

#[allow(unsafe_code)]
fn spawn(ready: &OwnedFd) -> anyhow::Result<std::process::Child> {
    let ready = ready.as_raw_fd();
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(std::env::args_os().skip(1))
        .arg("--foreground")
        .arg(format!("--ready-fd={ready}"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: setsid(2) and fcntl(2) are async-signal-safe; the pipe stays open until spawn() has returned.
    unsafe { command.pre_exec(move || own_session(ready)) };
    Ok(command.spawn()?)
}

#[allow(unsafe_code)]
fn own_session(keep: RawFd) -> std::io::Result<()> {
    rustix::process::setsid()?;
    // SAFETY: the caller vouches that the descriptor is open.
    let keep = unsafe { BorrowedFd::borrow_raw(keep) };
    Ok(rustix::io::fcntl_setfd(keep, rustix::io::FdFlags::empty())?)
}
