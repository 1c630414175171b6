//! `elbow lock exec --prefix DIR -- COMMAND`: fcntl, lockf and flock of a command go to the lock service.
//!
//! The command gets `libelbow_fcntl.so`, to be loaded first. The dynamic linker does not load it into programs that are linked statically, of another
//! word size, or run with more rights than their caller's, and programs in Go do not lock through libc; where that can be seen beforehand the
//! command is not run ([`image`]). What it starts later is looked at while it locks (`uncovered`), unless `--uncovered ignore` says
//! that it need not be: then this process becomes the command.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};
use elbow_lock::{ADDRESS_VARIABLE, Identity, KEY_VARIABLE, unstable_inodes_at};

use super::args::{ExecArgs, OnLoss, Uncovered};
use super::supervise::Supervision;
use super::uncovered::{Lookout, WatchScope};
use super::{image, preload, service};
use crate::exit;
use crate::output::{print_message, sentence, without_numbers};

const LIBRARY: &str = "libelbow_fcntl.so";
/// Where the library is, for who keeps it elsewhere.
const LIBRARY_VARIABLE: &str = "ELBOW_FCNTL_LIB";
const PREFIXES_VARIABLE: &str = "ELBOW_FCNTL_PREFIXES";
const ON_LOSS_VARIABLE: &str = "ELBOW_FCNTL_ON_LOSS";
const IDENTITY_VARIABLE: &str = "ELBOW_FCNTL_IDENTITY";
/// The prefixes for which a lookout is there already.
const WATCHED_VARIABLE: &str = "ELBOW_FCNTL_WATCHED";

/// The library that is loaded first.
pub(super) fn library() -> Result<PathBuf> {
    preload::library(LIBRARY, LIBRARY_VARIABLE)
}

/// Runs the command.
pub(super) fn run(args: &ExecArgs) -> Result<ExitCode> {
    let library = library()?;
    let prefixes = prefixes(&args.prefixes)?;
    let address = preload::absolute(service::address_of(&args.service)?)?;
    check_command(args)?;
    let lookout = lookout(args, &prefixes)?; // Before any thread.
    // A service that is not there is better told of now than with the first lock.
    let name = format!("elbow lock exec, process {}", std::process::id());
    drop(service::connect(&args.service, name)?);
    let identity = Identity::from(args.identity);
    tell_identity(identity, &prefixes)?;
    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload::list(&library))
        .env(ADDRESS_VARIABLE, address.to_string())
        .env(PREFIXES_VARIABLE, list(&prefixes))
        .env(
            ON_LOSS_VARIABLE,
            match args.on_loss {
                OnLoss::End => "end",
                OnLoss::Warn => "warn",
            },
        )
        .env(IDENTITY_VARIABLE, identity.to_string());
    if let Some(key) = &args.service.key_file {
        command.env(KEY_VARIABLE, std::path::absolute(key)?);
    }
    match lookout {
        Some(lookout) => run_watched(command, &lookout, args, &prefixes),
        None => Ok(not_run(args, &command.exec())),
    }
}

fn not_run(args: &ExecArgs, error: &std::io::Error) -> ExitCode {
    print_message(format_args!("{}: {error}", args.command[0].display()));
    ExitCode::from(exit::of_exec_error(error))
}

/// Refuses a command of which its file says that it will not be covered, or tells of it.
fn check_command(args: &ExecArgs) -> Result<()> {
    match (image::check_command(&args.command[0]), args.uncovered) {
        (Err(error), Some(Uncovered::Warn)) => print_message(sentence(&error)),
        (Err(error), None | Some(Uncovered::Fail)) => return Err(error),
        (_, Some(Uncovered::Ignore)) | (Ok(()), _) => {}
    }
    Ok(())
}

fn lookout(args: &ExecArgs, prefixes: &[PathBuf]) -> Result<Option<Lookout>> {
    if args.uncovered == Some(Uncovered::Ignore) {
        return Ok(None);
    }
    let scope = WatchScope {
        prefixes: prefixes.to_vec(),
        refuses: args.uncovered != Some(Uncovered::Warn),
        redirect: LIBRARY,
    };
    match Lookout::start(scope) {
        Ok(lookout) => Ok(Some(lookout)),
        Err(why) => cannot_look(args, &why).map(|()| None),
    }
}

/// That nobody looks is an error for who has asked for it, and told to everybody else.
fn cannot_look(args: &ExecArgs, why: &str) -> Result<()> {
    if args.uncovered.is_some() {
        bail!("--uncovered: programs that take their locks past the service cannot be seen here: {why}");
    }
    print_message(format_args!(
        "programs that take their locks past the service (static ones, or without LD_PRELOAD) cannot be seen here: {why}"
    ));
    Ok(())
}

/// Starts the command, and waits for it as a shell does.
fn run_watched(mut command: Command, lookout: &Lookout, args: &ExecArgs, prefixes: &[PathBuf]) -> Result<ExitCode> {
    let supervision = Supervision::begin()?;
    command.env(WATCHED_VARIABLE, list(prefixes));
    supervision.prepare(&mut command);
    lookout.join(&mut command, args.uncovered.is_some())?;
    let spawned = command.spawn();
    let not_seen = lookout
        .why_not(spawned.is_ok())
        .filter(|error| args.uncovered.is_some() || !is_watched_already(error, prefixes));
    if let Some(error) = not_seen {
        cannot_look(args, &why_no_listener(&error))?;
    }
    let code = match spawned {
        Ok(child) => supervision.wait(child)?,
        Err(error) => return Ok(not_run(args, &error)),
    };
    judge(code, lookout.end(), args)
}

/// What a run is worth in which so many processes were found.
fn judge(code: u8, found: std::io::Result<u32>, args: &ExecArgs) -> Result<ExitCode> {
    let ends_well = args.uncovered == Some(Uncovered::Warn);
    match found {
        Ok(0) => {}
        Ok(_) if ends_well => {}
        Ok(found) => {
            let processes = if found == 1 {
                "one process".into()
            } else {
                format!("{found} processes")
            };
            bail!(
                "locks of {processes} could not go to the lock service and were refused (told above). Have the library loaded into what takes them, or \
                 allow them with --uncovered warn"
            );
        }
        Err(error) => bail!(
            "who looks for programs that take their locks past the service has died ({}): lock calls of the kernel failed from then on",
            without_numbers(&error.to_string())
        ),
    }
    Ok(ExitCode::from(code))
}

/// Within another `elbow lock exec` for the same directories, whose lookout sees what we start.
fn is_watched_already(error: &std::io::Error, prefixes: &[PathBuf]) -> bool {
    let watched = std::env::var_os(WATCHED_VARIABLE).unwrap_or_default();
    let watched: Vec<_> = watched
        .as_bytes()
        .split(|byte| *byte == b':')
        .map(OsStr::from_bytes)
        .collect();
    let is_below = |prefix: &PathBuf| {
        watched
            .iter()
            .any(|above| !above.is_empty() && prefix.starts_with(above))
    };
    error.raw_os_error() == Some(libc::EBUSY) && prefixes.iter().all(is_below)
}

fn why_no_listener(error: &std::io::Error) -> String {
    let shown = without_numbers(&error.to_string());
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            "somebody else looks at our system calls already (seccomp): another elbow lock exec, or a container".into()
        }
        Some(_) => format!("the kernel, or a container, lets us put no filter before system calls (seccomp): {shown}"),
        None => format!("who looks for them has died ({shown})"),
    }
}

/// Says where inode numbers are not what was hoped for. A file system that is mounted below a prefix is not looked at.
fn tell_identity(identity: Identity, prefixes: &[PathBuf]) -> Result<()> {
    for prefix in prefixes.iter().filter(|_| identity != Identity::Path) {
        let shown = prefix.display();
        let made_up =
            unstable_inodes_at(prefix).with_context(|| format!("--identity {identity}: where is {shown} mounted?"))?;
        match (identity, made_up) {
            (Identity::Auto, Some(kind)) => print_message(format_args!(
                "files below {shown} are known by their paths: inode numbers of {kind} may differ from client to client"
            )),
            (_, Some(kind)) => print_message(format_args!(
                "--identity inode: inode numbers of {kind} ({shown}) may differ from client to client, who then do not exclude each other; --identity auto \
                 goes by path there"
            )),
            (_, None) => {}
        }
    }
    Ok(())
}

/// Directories as the redirect compares them: absolute, without links.
#[allow(clippy::disallowed_methods, reason = "looks paths up and touches nothing")]
fn prefixes(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let absolute = |prefix: &PathBuf| {
        let shown = prefix.display();
        let path = std::fs::canonicalize(prefix).with_context(|| format!("--prefix {shown}"))?;
        ensure!(
            !path.as_os_str().as_bytes().contains(&b':'),
            "--prefix {shown}: its path has a colon, which stands between prefixes"
        );
        Ok(path)
    };
    given.iter().map(absolute).collect()
}

fn list(prefixes: &[PathBuf]) -> std::ffi::OsString {
    let prefixes: Vec<&OsStr> = prefixes
        .iter()
        .map(|prefix: &PathBuf| Path::as_os_str(prefix))
        .collect();
    prefixes.join(OsStr::new(":"))
}
