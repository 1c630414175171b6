//! `elbow recover DIR`: ends dead jobs, or removes kept ones that are named.

use std::process::ExitCode;

use elbow_job::{RecoverAction, Recovered};

use crate::cli::RecoverArgs;
use crate::exit;
use crate::job::{Site, prepare_process};
use crate::say::answer;

/// Ends them and says what was done; 125 when one was left that is not ended and neither alive nor kept.
pub(crate) fn run(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    let site = Site::open_one(&args.directory)?;
    let found = if args.drop.is_empty() {
        site.recover(args.force)?
    } else {
        site.drop_kept(&args.drop)?
    };
    say(args, &found)?;
    let left = found
        .iter()
        .any(|job| matches!(job.action, RecoverAction::Foreign | RecoverAction::Damaged));
    Ok(if left {
        ExitCode::from(exit::ELBOW_FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

fn say(args: &RecoverArgs, found: &[Recovered]) -> anyhow::Result<()> {
    if args.json {
        answer(serde_json::to_string(found)?)?;
        return Ok(());
    }
    for job in found {
        answer(format_args!("{}: {} ({})", job.job, job.message, job.command.join(" ")))?;
    }
    if found.is_empty() {
        answer(format_args!("no jobs in {}", args.directory.display()))?;
    }
    Ok(())
}
