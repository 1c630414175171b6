//! `elbow lock mpi -- mpirun COMMAND`: the atomic mode of MPI-IO becomes true, by list locks.
//!
//! The command gets `libelbow_mpi.so`, to be loaded first by all that it starts. The library finds
//! out by itself which MPI each process runs on, so nothing has to be known here; only Open MPI's launcher has to be told
//! which variables its processes on other machines get, and OMPIO which bytes it may write.
//!
//! The library also finds out whether all ranks have it, and tells us ([`super::ranks`]). With `--uncovered ignore` this process
//! becomes the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Result, bail};
use elbow_lock::{ADDRESS_VARIABLE, Client, KEY_VARIABLE};

use super::args::{MpiArgs, UncoveredRanks};
use super::preload;
use super::ranks::{RUN_VARIABLE, RankCoverage, RankListener};
use super::service;
use super::supervise::Supervision;
use crate::exit;
use crate::output::print_message;

const LIBRARY: &str = "libelbow_mpi.so";
/// Where the library is, for who keeps it elsewhere.
const LIBRARY_VARIABLE: &str = "ELBOW_MPI_LIB";
/// OMPIO writes a list of pieces by reading all from the first to the last and writing it back, other people's bytes
/// included, unless this says no. It is read when MPI starts.
const OMPIO_SIEVES: (&str, &str) = ("OMPI_MCA_fbtl_posix_write_datasieving", "false");

/// What the library does about ranks that lack it.
const UNCOVERED_VARIABLE: &str = "ELBOW_MPI_UNCOVERED";

/// The library that is loaded first.
pub(super) fn library() -> Result<PathBuf> {
    preload::library(LIBRARY, LIBRARY_VARIABLE)
}

/// Runs the command.
pub(super) fn run(args: &MpiArgs) -> Result<ExitCode> {
    let library = library()?;
    let address = preload::absolute(service::address_of(&args.service)?)?;
    let is_ignored = args.uncovered == UncoveredRanks::Ignore;
    let supervision = (!is_ignored).then(Supervision::begin).transpose()?; // Before the client, which may have a thread.
    // A service that is not there is better told of now than by each process.
    let name = format!("elbow lock mpi, process {}", std::process::id());
    let client = service::connect(&args.service, name)?;
    let (program, arguments) = (&args.command[0], &args.command[1..]);
    let mut command = Command::new(program);
    command
        .args(exported(program, args.service.key_file.is_some(), is_ignored))
        .args(arguments)
        .env("LD_PRELOAD", preload::list(&library))
        .env(ADDRESS_VARIABLE, address.to_string())
        .env(UNCOVERED_VARIABLE, if is_ignored { "ignore" } else { "fail" })
        .env(OMPIO_SIEVES.0, OMPIO_SIEVES.1);
    if let Some(key) = &args.service.key_file {
        command.env(KEY_VARIABLE, std::path::absolute(key)?);
    }
    match supervision {
        Some(supervision) => run_heard(command, supervision, &client),
        None => {
            drop(client);
            Ok(become_it(command))
        }
    }
}

/// Becomes the command; comes back only with an error.
fn become_it(mut command: Command) -> ExitCode {
    let error = command.exec();
    not_run(&command, &error)
}

fn not_run(command: &Command, error: &std::io::Error) -> ExitCode {
    print_message(format_args!("{}: {error}", command.get_program().display()));
    ExitCode::from(exit::of_exec_error(error))
}

/// Starts the command, and waits for it and for what its ranks tell.
fn run_heard(mut command: Command, supervision: Supervision, client: &Client) -> Result<ExitCode> {
    let listener = RankListener::open(client)?;
    command.env(RUN_VARIABLE, listener.name());
    supervision.prepare(&mut command);
    match command.spawn() {
        Ok(child) => judge(supervision.wait(child)?, listener.coverage()),
        Err(error) => Ok(not_run(&command, &error)),
    }
}

/// What a run is worth of which so much was heard.
fn judge(code: u8, coverage: RankCoverage) -> Result<ExitCode> {
    match coverage {
        RankCoverage::Uncovered => bail!(
            "ranks ran without {LIBRARY}, past the lock service (told above): have the launcher pass LD_PRELOAD on, or allow it with --uncovered ignore"
        ),
        RankCoverage::Nothing if code == 0 => bail!(
            "no MPI program had {LIBRARY}: whatever ran has taken no locks. Has the launcher lost LD_PRELOAD on the way, or is the program linked \
             statically? --uncovered ignore allows it"
        ),
        RankCoverage::Cut if code == 0 => {
            print_message(
                "the lock service was gone for a time: ranks that ran without the library could not be told of",
            );
        }
        RankCoverage::Covered | RankCoverage::Nothing | RankCoverage::Cut => {}
    }
    Ok(ExitCode::from(code))
}

/// What Open MPI's launcher needs so that processes on other machines get our variables; other launchers pass on all.
fn exported(program: &OsStr, with_key: bool, is_ignored: bool) -> Vec<OsString> {
    if !is_launcher(program) || !is_open_mpi(program) {
        return Vec::new();
    }
    let key = with_key.then_some(KEY_VARIABLE);
    let run = (!is_ignored).then_some(RUN_VARIABLE);
    let variables = ["LD_PRELOAD", ADDRESS_VARIABLE, UNCOVERED_VARIABLE];
    let variables = variables.into_iter().chain(key).chain(run);
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
        assert!(exported("true".as_ref(), true, false).is_empty());
    }
}
