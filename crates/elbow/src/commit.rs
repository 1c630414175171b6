//! `elbow commit [MNT]`: returns when everything is on the storage and the mount is gone.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{bail, ensure};
use elbow_file::ShowName;

use crate::cli::{EndArgs, EndReportArgs};
use crate::control::{self, Found, Reply, Request};
use crate::exit;
use crate::json::{self, Failed};
use crate::output::raw;
use crate::progress::Display;
use crate::report::Report;
use crate::report_file::ReportFile;

/// Commits.
pub(crate) fn run(args: &EndArgs) -> anyhow::Result<ExitCode> {
    let path = args.path.as_deref();
    end(path, &args.told, || control::find(path), Request::Commit)
}

/// Ends a job that is then found, and reports.
pub(crate) fn end(
    path: Option<&Path>,
    told: &EndReportArgs,
    find: impl FnOnce() -> anyhow::Result<Found>,
    request: Request,
) -> anyhow::Result<ExitCode> {
    report(path.unwrap_or(Path::new(".")), told, || ask(&find()?, told, request))
}

/// Does what has a report at its end, and tells it as it was asked for.
pub(crate) fn report(
    path: &Path,
    told: &EndReportArgs,
    work: impl FnOnce() -> anyhow::Result<Report>,
) -> anyhow::Result<ExitCode> {
    let (file, ended) = match open_report(path, told) {
        Ok(file) => (file, work()),
        Err(error) => (None, Err(error)),
    };
    let line = match &ended {
        Ok(report) => report.json(),
        Err(error) => json::line(&Failed::of(error, Some(path)))?,
    };
    if let Some(file) = file {
        file.write_or_say(&line);
    }
    match ended {
        Ok(report) => {
            report.print(told.json, told.quiet);
            Ok(ExitCode::from(report.exit_code))
        }
        Err(_) if told.json => {
            raw(line);
            Ok(ExitCode::from(exit::ELBOW_FAILED))
        }
        Err(error) => Err(error),
    }
}

fn open_report(path: &Path, told: &EndReportArgs) -> anyhow::Result<Option<ReportFile>> {
    let Some(target) = &told.report else { return Ok(None) };
    ensure!(
        !(told.json && target.is_stderr()),
        "--report 2 is where --json writes; leave one of them out"
    );
    let file = ReportFile::open(target)?;
    ensure!(
        !file.is_within(path),
        "--report: the file is inside {}, which is about to end; name one elsewhere",
        path.shown()
    );
    Ok(Some(file))
}

/// Asks for the end and shows its progress.
fn ask(job: &Found, told: &EndReportArgs, request: Request) -> anyhow::Result<Report> {
    let mut display = Display::of_end(job.path(), told.json || told.quiet);
    let reply = job.ask(request, &mut |position| {
        display.show_position(position);
    });
    drop(display);
    let Reply::Ended { mut report } = reply? else {
        bail!("the process of {} gave another answer", job.shown());
    };
    if request == Request::Rollback {
        // That of the job is its command's.
        report.exit_code = if report.is_rolled_back() { 0 } else { exit::ELBOW_FAILED };
    }
    Ok(*report)
}
