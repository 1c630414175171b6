//! `elbow status MNT`.

use std::process::ExitCode;

use anyhow::bail;

use crate::cli::StatusArgs;
use crate::control::{self, Reply, Request, Status};
use crate::size;

/// Prints what the mount is doing.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let Reply::Status { status } = control::ask(&args.mount_point, Request::Status, &mut |_| {})? else {
        bail!(
            "the process that serves {} gave another answer",
            args.mount_point.display()
        );
    };
    if args.json {
        println!("{}", serde_json::to_string(&status)?);
    } else {
        print(&status);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(status: &Status) {
    let count = |name: &str| status.counts.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    println!(
        "{} on {} (process {})",
        status.source.display(),
        status.mount_point.display(),
        status.pid
    );
    println!("  phase       {}", status.phase);
    println!(
        "  operations  {} done by commands, {} objects left, {} in flight",
        count("operations"),
        count("queued"),
        count("in_flight")
    );
    println!(
        "  data        {} written by commands, {} on the storage, {} in memory",
        size::show(count("bytes_acknowledged")),
        size::show(count("bytes_written")),
        size::show(count("memory_bytes"))
    );
    for error in &status.errors {
        println!("  error       {}", error.line());
    }
}
