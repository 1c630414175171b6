//! `elbow commit MNT`: returns when everything is on the storage and the mount is gone.

use std::process::ExitCode;

use anyhow::bail;

use crate::cli::EndArgs;
use crate::control::{self, Reply, Request};
use crate::progress::Display;

/// Commits.
pub(crate) fn run(args: &EndArgs) -> anyhow::Result<ExitCode> {
    end(args, Request::Commit)
}

/// Asks for the end of a mount, shows its progress, and reports.
pub(crate) fn end(args: &EndArgs, request: Request) -> anyhow::Result<ExitCode> {
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
    report.print(args.json, args.quiet);
    Ok(ExitCode::from(report.exit_code))
}
