//! `elbow status MNT`.

use std::process::ExitCode;

use anyhow::bail;

use crate::cli::StatusArgs;
use crate::control::{self, Reply, Request, Status};
use crate::json;
use crate::say::answer;
use crate::size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  How far is it?
      elbow status ~/job

  How many operations wait, for a program?
      elbow status ~/job --json | jq .counts.queued";

/// Prints what the mount is doing.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    json::answered(args.json, &args.mount_point, tell(args))
}

fn tell(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let Reply::Status { status } = control::ask(&args.mount_point, Request::Status, &mut |_| {})? else {
        bail!(
            "the process that serves {} gave another answer",
            args.mount_point.display()
        );
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
    let (source, mount_point) = (source.display(), mount_point.display());
    let (done, left, in_flight) = (
        count("operations"),
        count("queued") + count("in_flight"),
        count("in_flight"),
    );
    let [written, stored, memory] =
        ["bytes_acknowledged", "bytes_written", "memory_bytes"].map(|b| size::show(count(b)));
    let mut lines = vec![
        format!("{source} on {mount_point} (process {})", status.pid),
        format!("  phase       {}", status.phase),
        format!("  operations  {done} done by commands; {left} objects left, {in_flight} in flight"),
        format!("  data        {written} written by commands, {stored} on the storage, {memory} in memory"),
    ];
    lines.extend(
        status
            .errors
            .iter()
            .map(|error| format!("  error       {}", error.line())),
    );
    lines.join("\n")
}
