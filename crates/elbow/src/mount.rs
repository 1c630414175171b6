//! `elbow mount`: checks, starts the daemon, and returns when the mount is ready.
//!
//! The daemon is this program again, in a session of its own, with a pipe on which it says that it is ready. What
//! goes wrong before that, it says itself, on the standard error that it still shares with us.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Context;

use crate::background::start_again;
use crate::cli::MountArgs;
use crate::{daemon, exit};

/// Mounts; returns when the mount is ready, or with `--foreground` when it is gone.
pub(crate) fn run(args: &MountArgs) -> anyhow::Result<ExitCode> {
    if args.foreground {
        return daemon::run(args);
    }
    let (reading, mut child) = start_again().context("cannot start the process that serves the mount")?;
    let mut said = Vec::new();
    std::io::PipeReader::from(reading).read_to_end(&mut said)?;
    if said == daemon::READY {
        return Ok(ExitCode::SUCCESS);
    }
    child.wait()?;
    Ok(ExitCode::from(exit::ELBOW_FAILED))
}
