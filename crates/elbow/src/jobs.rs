//! `elbow jobs`: the jobs of this user on this machine.

use std::process::ExitCode;

use elbow_file::ShowName;
use serde::Serialize;

use crate::cli::JobsArgs;
use crate::control::{self, JobKind, KeptJob, Status};
use crate::json;
use crate::names::{CommandWords, DirectoryName, MountPointName};
use crate::output::answer;
use crate::report::utc;

pub(crate) const EXAMPLES: &str = "\
Examples:
  What of mine runs here?
      elbow jobs

  Look at one of them, or end it:
      elbow status /project/alice
      elbow rollback /project/alice

  The directories of jobs that --keep has left, for a program:
      elbow jobs --json |
          jq -r '.jobs[] | select(.kind == \"kept\").directory'

Jobs of other users and of other machines are not listed; `elbow recover DIR` lists all that lie in a directory. A job that has \
just begun may be missing for a moment. Kept jobs are known until the next boot, also while what they lie on is not mounted.";

/// Prints a block of lines per job, or one object with all of them.
pub(crate) fn run(args: &JobsArgs) -> anyhow::Result<ExitCode> {
    let running = control::running();
    let jobs: Vec<Listed> = running
        .iter()
        .map(|(_, status)| Listed::running(status))
        .chain(control::kept().into_iter().map(Listed::kept))
        .collect();
    if args.json {
        answer(json::line(&Jobs { jobs })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for job in &jobs {
        answer(job.lines())?;
    }
    if jobs.is_empty() {
        answer("no jobs")?;
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Jobs {
    jobs: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    job: String,
    kind: JobKind,
    #[serde(flatten)]
    directory: DirectoryName,
    #[serde(flatten)]
    mount_point: MountPointName,
    #[serde(flatten)]
    command: CommandWords,
    pid: Option<u32>,
    command_pid: Option<u32>,
    started_unix_seconds: f64,
    phase: String,
}

impl Listed {
    fn running(status: &Status) -> Self {
        Self {
            job: status.job.clone(),
            kind: status.kind,
            directory: DirectoryName::of(status.source.path().unwrap_or_default()),
            mount_point: status.mount_point.clone(),
            command: status.command.clone(),
            pid: Some(status.pid),
            command_pid: status.command_pid,
            started_unix_seconds: status.started_unix_seconds,
            phase: status.phase.clone(),
        }
    }

    fn kept(kept: KeptJob) -> Self {
        let phase = if kept.is_mounted() {
            "kept"
        } else {
            "kept, on a file system that is not mounted now"
        };
        Self {
            job: kept.job,
            kind: JobKind::Kept,
            directory: kept.directory,
            mount_point: MountPointName::default(),
            command: kept.command,
            pid: None,
            command_pid: None,
            started_unix_seconds: kept.started_unix_seconds,
            phase: phase.into(),
        }
    }

    fn lines(&self) -> String {
        let directory = self.directory.path().unwrap_or_default();
        let place = match self.mount_point.path() {
            Some(point) if self.kind == JobKind::Mount => format!("{} on {}", directory.shown(), point.shown()),
            _ => directory.shown().to_string(),
        };
        let process = self.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        let mut lines = vec![
            format!("{place}{process}"),
            format!("  phase       {}", self.phase),
            format!("  since       {}", utc(self.started_unix_seconds)),
            format!("  job         {}", self.job),
        ];
        let words = self.command.shown();
        if !words.is_empty() {
            let process = self
                .command_pid
                .map(|pid| format!(" (process {pid})"))
                .unwrap_or_default();
            lines.push(format!("  command     {words}{process}"));
        }
        lines.join("\n")
    }
}
