//! `elbow lock` and `elbow lockd`: the lock service, and the doors into it.
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
mod status;
mod supervise;
mod top;
mod uncovered;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use elbow_lock::{ADDRESS_VARIABLE, Address, Client, Credentials, Options};

use self::args::ServiceArgs;
pub(crate) use self::args::{LOCK_EXAMPLES, LOCKD_EXAMPLES, LockArgs, LockdArgs};

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

/// Comes to the service that was named.
fn connect(service: &ServiceArgs, name: String) -> Result<Client> {
    connect_for(service, None, name)
}

/// Comes with a lease of so many ms.
fn connect_for(service: &ServiceArgs, ttl: Option<u32>, name: String) -> Result<Client> {
    let options = options_of(service, ttl, name)?;
    Ok(Client::connect_with(address_of(service)?.clone(), options)?)
}

fn options_of(service: &ServiceArgs, ttl: Option<u32>, name: String) -> Result<Options> {
    let mut options = Options::for_address(address_of(service)?)?;
    options.name = name;
    if let Some(path) = &service.key_file {
        options.credentials = Some(credentials(path)?);
    }
    if let Some(ttl) = ttl {
        options.ttl_ms = ttl;
    }
    Ok(options)
}

fn address_of(service: &ServiceArgs) -> Result<&Address> {
    match &service.server {
        Some(address) => Ok(address),
        None => Err(anyhow!(
            "which lock service? name it with --server or in {ADDRESS_VARIABLE} (`elbow lockd serve` starts one)"
        )),
    }
}

fn credentials(path: &Path) -> Result<Credentials> {
    Credentials::read(path).with_context(|| format!("key {}", path.display()))
}
