//! `elbow commit MNT`: returns when everything is on the storage and the mount is gone.

use std::process::ExitCode;

use anyhow::{bail, ensure};

use crate::cli::EndArgs;
use crate::control::{self, Reply, Request};
use crate::exit;
use crate::json::{self, Failed};
use crate::progress::Display;
use crate::report::Report;
use crate::report_file::ReportFile;
use crate::say::raw;

/// Commits.
pub(crate) fn run(args: &EndArgs) -> anyhow::Result<ExitCode> {
    end(args, Request::Commit)
}

/// Ends a mount, and reports.
pub(crate) fn end(args: &EndArgs, request: Request) -> anyhow::Result<ExitCode> {
    let (file, ended) = match open_report(args) {
        Ok(file) => (file, ask(args, request)),
        Err(error) => (None, Err(error)),
    };
    let line = match &ended {
        Ok(report) => report.json(),
        Err(error) => json::line(&Failed::of(error, &args.mount_point))?,
    };
    if let Some(file) = file {
        file.write_or_say(&line);
    }
    match ended {
        Ok(report) => {
            report.print(args.json, args.quiet);
            Ok(ExitCode::from(report.exit_code))
        }
        Err(_) if args.json => {
            raw(line);
            Ok(ExitCode::from(exit::ELBOW_FAILED))
        }
        Err(error) => Err(error),
    }
}

fn open_report(args: &EndArgs) -> anyhow::Result<Option<ReportFile>> {
    let Some(target) = &args.report else { return Ok(None) };
    ensure!(
        !(args.json && target.is_stderr()),
        "--report 2 is where --json writes; leave one of them out"
    );
    let file = ReportFile::open(target)?;
    ensure!(
        !file.is_within(&args.mount_point),
        "--report: the file is inside {}, which is about to end; name one elsewhere",
        args.mount_point.display()
    );
    Ok(Some(file))
}

/// Asks for the end and shows its progress.
fn ask(args: &EndArgs, request: Request) -> anyhow::Result<Report> {
    let mut display = Display::of_end(&args.mount_point, args.json || args.quiet);
    let reply = control::ask(&args.mount_point, request, &mut |position| {
        display.show_position(position);
    });
    drop(display);
    let Reply::Ended { report } = reply? else {
        bail!(
            "the process that serves {} gave another answer",
            args.mount_point.display()
        );
    };
    Ok(*report)
}
