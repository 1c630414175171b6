//! `elbow status [PATH]`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;

use crate::cli::StatusArgs;
use crate::control::{self, JobKind, Reply, Request, Status};
use crate::json;
use crate::output::answer;
use crate::size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  How far is it?
      elbow status ~/job

  The job of `elbow run` over a directory, from outside; or from inside:
      elbow status /project/alice
      elbow run -- sh -c './prepare; elbow status; ./simulate'

  How many operations wait, for a program?
      elbow status ~/job --json | jq .counts.queued";

/// Prints what the job is doing.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    json::answered(args.json, args.path.as_deref().unwrap_or(Path::new(".")), tell(args))
}

fn tell(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let job = control::find(args.path.as_deref())?;
    let Reply::Status { status } = job.ask(Request::Status, &mut |_| {})? else {
        bail!("the process of {} gave another answer", job.shown());
    };
    if args.json {
        answer(json::line(&status)?)?;
    } else {
        answer(lines(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(status: &Status) -> String {
    let count = |name: &str| status.counts.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let (source, mount_point) = (
        status.source.path().unwrap_or_default(),
        status.mount_point.path().unwrap_or_default(),
    );
    let place = match status.kind {
        JobKind::Mount => format!("{} on {}", source.display(), mount_point.display()),
        _ => source.display().to_string(),
    };
    let (done, left, in_flight) = (
        count("operations"),
        count("queued") + count("in_flight"),
        count("in_flight"),
    );
    let [written, stored, memory] =
        ["bytes_acknowledged", "bytes_written", "memory_bytes"].map(|b| size::show(count(b)));
    let mut lines = vec![
        format!("{place} (process {})", status.pid),
        format!("  phase       {}", status.phase),
        format!("  operations  {done} done by commands; {left} objects left, {in_flight} in flight"),
        format!("  data        {written} written by commands, {stored} on the storage, {memory} in memory"),
    ];
    let words = status.command.shown();
    if !words.is_empty() {
        lines.insert(1, format!("  command     {words}"));
    }
    lines.extend(
        status
            .errors
            .iter()
            .map(|error| format!("  error       {}", error.line())),
    );
    lines.join("\n")
}
