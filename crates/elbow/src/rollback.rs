//! `elbow rollback PATH`: forgets everything that was done in a mount, or removes a kept job.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::{EndArgs, RollbackArgs};
use crate::commit::end;
use crate::control::Request;
use crate::job::{Site, prepare_process};
use crate::report::{self, Report};

/// Rolls back.
pub(crate) fn run(args: &RollbackArgs) -> anyhow::Result<ExitCode> {
    if args.path.file_name().is_some_and(elbow_job::is_staging_name) {
        return drop_kept(args);
    }
    let args = EndArgs {
        mount_point: args.path.clone(),
        json: args.json,
        quiet: args.quiet,
    };
    end(&args, Request::Rollback)
}

fn drop_kept(args: &RollbackArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    let above = args.path.parent().filter(|above| !above.as_os_str().is_empty());
    let site = Site::open_one(above.unwrap_or(Path::new(".")))?;
    site.drop_kept(std::slice::from_ref(&args.path))?;
    let mut report = Report::new(Duration::ZERO);
    report.outcome = report::Result::RolledBack;
    report.messages.push(format!("dropped {}", args.path.display()));
    report.print(args.json, args.quiet);
    Ok(ExitCode::SUCCESS)
}
