//! `elbow status [PATH]`: what a job is doing.
//!
//! ```text
//!   status    one look        watch    one a second        metrics    all jobs, for Prometheus
//!                             words    a job, for people
//! ```

mod metrics;
mod watch;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use elbow_file::ShowName;

use crate::cli::StatusArgs;
use crate::control::{self, Reply, Request, Status};
use crate::json;
use crate::output::answer;

pub(crate) const EXAMPLES: &str = "\
Examples:
  How far is it?
      elbow status ~/job

  The job of `elbow run` over a directory, from outside; or from inside:
      elbow status /project/alice
      elbow run -- sh -c './prepare; elbow status; ./simulate'

  How many operations wait, for a program?
      elbow status ~/job --json | jq .counts.queued

  Once a second until it ends:
      elbow status --watch ~/job

  All jobs of this user for Prometheus, by the textfile collector of node_exporter:
      elbow status --metrics > /var/lib/node_exporter/elbow.prom.$$
      mv /var/lib/node_exporter/elbow.prom.$$ /var/lib/node_exporter/elbow.prom";

/// Prints what the job is doing.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    json::answered(args.json, args.path.as_deref().unwrap_or(Path::new(".")), tell(args))
}

fn tell(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    if args.metrics {
        return tell_metrics(args.path.as_deref());
    }
    let job = control::find(args.path.as_deref())?;
    if args.watch {
        return watch::watch(&job, args.json);
    }
    let Reply::Status { status } = job.ask(Request::Status, &mut |_| {})? else {
        bail!("the process of {} gave another answer", job.shown());
    };
    if args.json {
        answer(json::line(&status)?)?;
    } else {
        answer(words::lines(&status).join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Of all running jobs, or of those over a directory, above or below it.
#[allow(
    clippy::disallowed_methods,
    reason = "jobs say what their directories are really called"
)]
fn tell_metrics(directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    let real = |directory: &Path| directory.canonicalize().with_context(|| directory.shown().to_string());
    let real = directory.map(real).transpose()?;
    let concerns = |place: Option<PathBuf>| match (&real, place) {
        (Some(real), Some(place)) => place.starts_with(real) || real.starts_with(place),
        (real, _) => real.is_none(),
    };
    let mut jobs: Vec<Status> = control::running().into_iter().map(|(_, status)| status).collect();
    jobs.retain(|job| concerns(job.source.path()) || concerns(job.mount_point.path()));
    let mut kept = control::kept();
    kept.retain(|kept| concerns(kept.directory.path()));
    answer(metrics::text(&jobs, &kept).trim_end())?;
    Ok(ExitCode::SUCCESS)
}
