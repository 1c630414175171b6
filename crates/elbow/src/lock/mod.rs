//! `elbow lock` and `elbow lockd`: the lock service, and the commands that use it.
//!
//! ```text
//!   lockd serve    the service          lock hold      a command under a lock
//!                                       lock exec      a command whose fcntl and flock locks go there
//!                                       lock mpi       an MPI program whose atomic mode of MPI-IO is true
//!   lockd proxy    one for each node    lock status    what is held, and who waits
//!                                       lock top       the same, live
//!                                       lock break     ends the sessions that hold a file
//! ```

mod args;
mod breaking;
mod exec;
mod hold;
mod image;
mod look;
mod mpi;
mod preload;
mod proxy;
mod ranks;
mod serve;
mod service;
mod status;
mod supervise;
mod top;
mod uncovered;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

pub(crate) use self::args::{LOCK_EXAMPLES, LOCKD_EXAMPLES, LockArgs, LockdArgs};

/// The libraries that a command loads first: what they are for, under which of ours, and where they are.
pub(crate) fn preloaded() -> [(&'static str, &'static str, Result<PathBuf>); 2] {
    [
        ("fcntl-library", "elbow lock exec", exec::library()),
        ("mpi-library", "elbow lock mpi", mpi::library()),
    ]
}

/// Does what was asked of the service's clients.
pub(crate) fn run(args: &LockArgs) -> Result<ExitCode> {
    match args {
        LockArgs::Break(args) => breaking::run(args),
        LockArgs::Exec(args) => exec::run(args),
        LockArgs::Hold(args) => hold::run(args),
        LockArgs::Mpi(args) => mpi::run(args),
        LockArgs::Status(args) => status::run(args),
        LockArgs::Top(args) => top::run(args),
    }
}

/// Runs a part of the service.
pub(crate) fn run_daemon(args: &LockdArgs) -> Result<ExitCode> {
    match args {
        LockdArgs::Serve(args) => serve::run(args),
        LockdArgs::Proxy(args) => proxy::run(args),
    }
}
