//! What a job is doing, for people.

use elbow_file::ShowName;

use crate::control::{JobKind, Status};
use crate::size;

/// A number of the job.
pub(super) fn count(status: &Status, name: &str) -> u64 {
    let count = status.counts.get(name).and_then(serde_json::Value::as_u64);
    count.unwrap_or(0)
}

/// All of it, line by line.
pub(super) fn lines(status: &Status) -> Vec<String> {
    let count = |name: &str| count(status, name);
    let (source, mount_point) = (
        status.source.path().unwrap_or_default(),
        status.mount_point.path().unwrap_or_default(),
    );
    let place = match status.kind {
        JobKind::Mount => format!("{} on {}", source.shown(), mount_point.shown()),
        _ => source.shown().to_string(),
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
    lines
}
