//! A process in the background: this program again, in a session of its own, with a pipe on which it says that it is ready.
//!
//! What goes wrong before that, it says itself, on the standard error that it still shares with us.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// This program again, in the foreground of a session of its own, and what it says on its `--ready-fd`.
pub(crate) fn start_again() -> anyhow::Result<(OwnedFd, std::process::Child)> {
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let child = spawn(&writing)?;
    Ok((reading, child))
}

#[allow(unsafe_code)]
fn spawn(ready: &OwnedFd) -> anyhow::Result<std::process::Child> {
    let ready = ready.as_raw_fd();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments(std::env::args_os().skip(1), ready));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: setsid(2) and fcntl(2) are async-signal-safe; the pipe stays open until spawn() has returned.
    unsafe { command.pre_exec(move || own_session(ready)) };
    Ok(command.spawn()?)
}

/// What we were given, and the options of a process in the background: in front of a `--`, behind which there are none.
fn arguments(given: impl Iterator<Item = OsString>, ready: RawFd) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = given.collect();
    let end = arguments.iter().position(|argument| argument == "--");
    let end = end.unwrap_or(arguments.len());
    let options = ["--foreground".to_owned(), format!("--ready-fd={ready}")];
    arguments.splice(end..end, options.map(OsString::from));
    arguments
}

#[allow(unsafe_code)]
fn own_session(keep: RawFd) -> std::io::Result<()> {
    rustix::process::setsid()?;
    // SAFETY: the caller vouches that the descriptor is open.
    let keep = unsafe { BorrowedFd::borrow_raw(keep) };
    Ok(rustix::io::fcntl_setfd(keep, rustix::io::FdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_in_front_of_what_ends_them() {
        let of = |given: &[&str]| arguments(given.iter().map(OsString::from), 3);
        assert_eq!(of(&["mount", "a"]), ["mount", "a", "--foreground", "--ready-fd=3"]);
        assert_eq!(
            of(&["mount", "--", "-a", "--"]),
            ["mount", "--foreground", "--ready-fd=3", "--", "-a", "--"]
        );
    }
}
