//! `elbow lock hold FILE -- COMMAND`.

use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use elbow_lock::{ADDRESS_VARIABLE, Hold, Identity, KEY_VARIABLE, LockError, LockMode, Owner, Refusal, Wait};
use elbow_ranges::{Footprint, PatternError};

use super::args::HoldArgs;
use super::preload::absolute;
use super::service;
use crate::exit;
use crate::output::print_message;
use crate::signals::{self, Event};

/// The only owner in our session.
const US: Owner = Owner(1);
/// How often a lock is looked at while the command runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the command under the lock.
pub(super) fn run(args: &HoldArgs) -> Result<ExitCode> {
    let name = format!("elbow lock hold, process {}", std::process::id());
    let client = service::connect_for(&args.service, args.ttl, name)?;
    let mode = if args.shared {
        LockMode::Shared
    } else {
        LockMode::Exclusive
    };
    let file = Identity::from(args.identity).of_file(&args.file)?;
    match client.lock_as(US, file, footprint(args)?, mode, wait(args)) {
        Ok(hold) => run_under(&hold, args),
        Err(
            error @ LockError::Refused {
                why: Refusal::WouldBlock | Refusal::TimedOut,
                ..
            },
        ) => {
            print_message(error);
            Ok(ExitCode::from(args.conflict_exit_code))
        }
        Err(error) => Err(error.into()),
    }
}

fn footprint(args: &HoldArgs) -> Result<Footprint, PatternError> {
    match args.ranges.as_slice() {
        [] => Ok(Footprint::whole()),
        ranges => Footprint::from_list(ranges.iter().map(|range| (range.start, range.end - range.start))),
    }
}

fn wait(args: &HoldArgs) -> Wait {
    match args.timeout {
        _ if args.without_waiting => Wait::Try,
        Some(ms) => Wait::For(ms),
        None => Wait::Forever,
    }
}

fn run_under(hold: &Hold, args: &HoldArgs) -> Result<ExitCode> {
    signals::block();
    let (events, arrivals) = mpsc::channel();
    signals::listen(events.clone())?;
    let mut child = match start(hold, args) {
        Ok(child) => child,
        Err(error) => {
            print_message(format_args!("{}: {error}", args.command[0].display()));
            return Ok(ExitCode::from(exit::of_exec_error(&error)));
        }
    };
    let process = i32::try_from(child.id())?;
    std::thread::spawn(move || {
        // Nobody may be listening any more; that is fine.
        let _ = events.send(Event::Ended(child.wait()));
    });
    let mut is_lost = false;
    loop {
        match arrivals.recv_timeout(LOOK_INTERVAL) {
            Ok(Event::Ended(status)) => return end(hold, status?, is_lost),
            Ok(Event::Over | Event::RollBack(_)) => {}
            Ok(Event::Signal(arrival)) => match arrival.number() {
                // The terminal has sent it to the command as well.
                libc::SIGINT | libc::SIGQUIT => {}
                signal => signals::pass_on(process, signal),
            },
            Err(RecvTimeoutError::Timeout) if !is_lost => {
                if let Err(error) = hold.check() {
                    print_message(format_args!("{error}; the command is told to end"));
                    signals::pass_on(process, libc::SIGTERM);
                    is_lost = true;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("nobody waits for the command any more")),
        }
    }
}

/// The command finds the service in its environment, however it was named to us: it may lock more.
fn start(hold: &Hold, args: &HoldArgs) -> std::io::Result<Child> {
    let mut command = Command::new(&args.command[0]);
    command
        .args(&args.command[1..])
        .env("ELBOW_LOCK_TOKEN", hold.token().0.to_string());
    if let Some(address) = &args.service.server {
        command.env(
            ADDRESS_VARIABLE,
            absolute(address).map_err(std::io::Error::other)?.to_string(),
        );
    }
    if let Some(key) = &args.service.key_file {
        command.env(KEY_VARIABLE, std::path::absolute(key)?);
    }
    signals::unblock_in(&mut command);
    command.spawn()
}

fn end(hold: &Hold, status: ExitStatus, was_lost: bool) -> Result<ExitCode> {
    if was_lost {
        bail!("the command may have run without its lock");
    }
    // It may have ended before we looked once more.
    hold.check().context("the command may have run without its lock")?;
    Ok(ExitCode::from(exit::of_status(status)))
}
