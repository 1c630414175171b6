//! `elbow commit MNT`: returns when everything is on the storage and the mount is gone.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::bail;
use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::cli::EndArgs;
use crate::control::{self, Reply, Request};

/// Commits.
pub(crate) fn run(args: &EndArgs) -> anyhow::Result<ExitCode> {
    end(args, Request::Commit)
}

/// Asks for the end of a mount, shows its progress, and reports.
pub(crate) fn end(args: &EndArgs, request: Request) -> anyhow::Result<ExitCode> {
    let visible = !args.json && !args.quiet && std::io::stderr().is_terminal();
    let target = if visible {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let spinner = ProgressBar::with_draw_target(None, target);
    let reply = control::ask(&args.mount_point, request, &mut |sentence| {
        spinner.set_message(sentence.to_owned());
        spinner.tick();
    });
    spinner.finish_and_clear();
    let Reply::Ended { report } = reply? else {
        bail!(
            "the process that serves {} gave another answer",
            args.mount_point.display()
        );
    };
    report.print(args.json, args.quiet);
    Ok(ExitCode::from(report.exit_code))
}
