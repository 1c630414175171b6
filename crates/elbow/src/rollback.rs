//! `elbow rollback MNT`: forgets everything that was done in a mount.

use std::process::ExitCode;

use crate::cli::EndArgs;
use crate::commit::end;
use crate::control::Request;

pub(crate) const EXAMPLES: &str = "\
Examples:
  As if nothing had been done there:
      elbow rollback ~/job";

/// Rolls back.
pub(crate) fn run(args: &EndArgs) -> anyhow::Result<ExitCode> {
    end(args, Request::Rollback)
}
