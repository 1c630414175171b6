//! `elbow lock mpi -- mpirun COMMAND`: the atomic mode of MPI-IO becomes true, by list locks.
//!
//! This process becomes the command, with `libelbow_mpi.so` to be loaded first by all that it starts. The library finds
//! out by itself which MPI each process runs on, so nothing has to be known here; only Open MPI's launcher has to be told
//! which variables its processes on other machines get, and OMPIO which bytes it may write.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use elbow_lock::{ADDRESS_VARIABLE, KEY_VARIABLE};

use super::args::MpiArgs;
use super::preload;
use crate::exit;
use crate::say::say;

const LIBRARY: &str = "libelbow_mpi.so";
/// Where the library is, for who keeps it elsewhere.
const LIBRARY_VARIABLE: &str = "ELBOW_MPI_LIB";
/// OMPIO writes a list of pieces by reading all from the first to the last and writing it back, other people's bytes
/// included, unless this says no. It is read when MPI starts.
const OMPIO_SIEVES: (&str, &str) = ("OMPI_MCA_fbtl_posix_write_datasieving", "false");

/// Becomes the command.
pub(super) fn run(args: &MpiArgs) -> Result<ExitCode> {
    let library = preload::library(LIBRARY, LIBRARY_VARIABLE)?;
    let address = preload::absolute(super::address_of(&args.service)?)?;
    // A service that is not there is better told of now than by each process.
    drop(super::connect(
        &args.service,
        format!("elbow lock mpi, process {}", std::process::id()),
    )?);
    let (program, arguments) = (&args.command[0], &args.command[1..]);
    let mut command = Command::new(program);
    command
        .args(exported(program, args.service.key_file.is_some()))
        .args(arguments)
        .env("LD_PRELOAD", preload::list(&library))
        .env(ADDRESS_VARIABLE, address.to_string())
        .env(OMPIO_SIEVES.0, OMPIO_SIEVES.1);
    if let Some(key) = &args.service.key_file {
        command.env(KEY_VARIABLE, std::path::absolute(key)?);
    }
    let error = command.exec();
    say(format_args!("{}: {error}", program.display()));
    Ok(ExitCode::from(exit::of_exec_error(&error)))
}

/// What Open MPI's launcher needs so that processes on other machines get our variables; other launchers pass on all.
fn exported(program: &OsStr, with_key: bool) -> Vec<OsString> {
    if !is_launcher(program) || !is_open_mpi(program) {
        return Vec::new();
    }
    let key = with_key.then_some(KEY_VARIABLE);
    let variables = ["LD_PRELOAD", ADDRESS_VARIABLE].into_iter().chain(key);
    variables.flat_map(|variable| ["-x".into(), variable.into()]).collect()
}

fn is_launcher(program: &OsStr) -> bool {
    let name = program.to_string_lossy();
    let name = name.rsplit('/').next().unwrap_or_default();
    ["mpirun", "mpiexec", "orterun", "prterun"]
        .iter()
        .any(|launcher| name.starts_with(launcher))
}

fn is_open_mpi(program: &OsStr) -> bool {
    let version = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    version.is_ok_and(|version| String::from_utf8_lossy(&version.stdout).contains("Open MPI"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_names() {
        for launcher in ["mpirun", "/usr/bin/mpirun.openmpi", "mpiexec.hydra", "prterun"] {
            assert!(is_launcher(launcher.as_ref()), "{launcher}");
        }
        for other in ["srun", "./mpi", "python3", "/opt/mpirun/bin/tool"] {
            assert!(!is_launcher(other.as_ref()), "{other}");
        }
    }

    #[test]
    fn other_programs_get_no_arguments() {
        assert!(exported("true".as_ref(), true).is_empty());
    }
}
