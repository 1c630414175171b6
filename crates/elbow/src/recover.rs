//! `elbow recover DIR`: ends dead jobs.

use std::process::ExitCode;

use elbow_job::RecoverAction;

use crate::cli::RecoverArgs;
use crate::exit;
use crate::job::{Site, prepare_process};
use crate::say::answer;

/// Ends them and says what was done; 125 when one was left that is neither ended nor alive.
pub(crate) fn run(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    let site = Site::open_all(std::slice::from_ref(&args.directory))?;
    let found = site
        .iter()
        .map(|site| site.recover(args.force))
        .collect::<anyhow::Result<Vec<_>>>()?
        .concat();
    if args.json {
        answer(serde_json::to_string(&found)?)?;
    } else {
        for job in &found {
            answer(format_args!("{}: {} ({})", job.job, job.message, job.command.join(" ")))?;
        }
        if found.is_empty() {
            answer(format_args!("no jobs in {}", args.directory.display()))?;
        }
    }
    let left = found
        .iter()
        .any(|job| matches!(job.action, RecoverAction::Foreign | RecoverAction::Damaged));
    Ok(if left {
        ExitCode::from(exit::ELBOW_FAILED)
    } else {
        ExitCode::SUCCESS
    })
}
