//! `elbow recover DIR`: ends dead jobs, or removes kept ones that are named.

use std::ffi::OsStr;
use std::process::ExitCode;

use elbow_job::{RecoverAction, Recovered};
use serde::Serialize;

use crate::cli::RecoverArgs;
use crate::exit;
use crate::job::{Site, name_of, prepare_process};
use crate::json;
use crate::names::{CommandWords, DirectoryName};
use crate::say::answer;

/// Ends them and says what was done; 125 when one of ours was left that is not ended and neither alive nor kept.
pub(crate) fn run(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    json::answered(args.json, &args.directory, end_jobs(args))
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    directory: DirectoryName,
    jobs: Vec<Ended>,
}

#[derive(Serialize)]
struct Ended {
    job: String,
    action: RecoverAction,
    #[serde(flatten)]
    command: CommandWords,
    message: String,
}

impl From<&Recovered> for Ended {
    fn from(found: &Recovered) -> Self {
        Self {
            job: found.job.clone(),
            action: found.action,
            command: CommandWords::of(&found.command),
            message: found.message.clone(),
        }
    }
}

fn end_jobs(args: &RecoverArgs) -> anyhow::Result<ExitCode> {
    prepare_process();
    let site = Site::open_one(&args.directory)?;
    let mut found = if args.drop.is_empty() {
        site.recover(args.force)?
    } else {
        site.drop_kept(&args.drop)?
    };
    if args.search {
        found.extend(site.recover_strays()?);
    }
    say(args, &site, &found)?;
    let is_left = |action| {
        matches!(
            action,
            RecoverAction::Foreign | RecoverAction::Damaged | RecoverAction::Failed
        )
    };
    let left = found.iter().any(|job| is_left(job.action));
    Ok(if left {
        ExitCode::from(exit::ELBOW_FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

fn say(args: &RecoverArgs, site: &Site, found: &[Recovered]) -> anyhow::Result<()> {
    if args.json {
        let report = Report {
            directory: DirectoryName::of(&args.directory),
            jobs: found.iter().map(Ended::from).collect(),
        };
        answer(json::line(&report)?)?;
        return Ok(());
    }
    for job in found {
        let command = job.command.join(OsStr::new(" "));
        let command = Some(command.display()).filter(|_| !job.command.is_empty());
        let command = command.map(|command| format!(" ({command})")).unwrap_or_default();
        answer(format_args!("{}: {}{command}", name_of(site, job), job.message))?;
    }
    if found.is_empty() {
        answer(format_args!("no jobs in {}", args.directory.display()))?;
    }
    Ok(())
}
