//! `elbow rollback [PATH]`: forgets everything that was done in a job and ends it, or removes a kept job.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use elbow_file::ShowName;

use crate::cli::{RollbackArgs, ViaArgs};
use crate::commit::{end, report};
use crate::control::{self, Request};
use crate::job::Site;
use crate::process_limits::prepare_process;
use crate::report::{self, Report};

pub(crate) const EXAMPLES: &str = "\
Examples:
  As if nothing had been done there:
      elbow rollback ~/job

  End the command of the job that runs over a directory, and the job:
      elbow rollback /project/alice

  Remove what `elbow run --keep` kept, by the path that it told:
      elbow rollback .elbow-1f2e3d4c5b6a7988-1763807484.000000005";

/// Rolls back.
pub(crate) fn run(args: &RollbackArgs) -> anyhow::Result<ExitCode> {
    let path = args.path.as_deref();
    let staging = path.filter(|path| path.file_name().is_some_and(elbow_job::is_staging_name));
    let Some(staging) = staging else {
        return end(path, &args.told, || control::find(path), Request::Rollback);
    };
    match control::find_by_name(staging) {
        Some(running) => end(path, &args.told, || Ok(running), Request::Rollback),
        None => report(staging, &args.told, || drop_kept(staging)),
    }
}

fn drop_kept(path: &Path) -> anyhow::Result<Report> {
    let started = SystemTime::now();
    prepare_process();
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let site = Site::open_one(above.unwrap_or(Path::new(".")), &ViaArgs::default())?;
    site.drop_kept(&[path.to_owned()], None)?;
    let mut report = Report::new(&[], started);
    report.outcome = report::RunOutcome::RolledBack;
    report.messages.push(format!("dropped {}", path.shown()));
    Ok(report)
}
