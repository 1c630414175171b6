//! A sort of text as it is seen from outside: progress, and the report at its end.
//!
//! Signals are left alone: temporary files have no names, and what there is of the output is as it is with sort(1).

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use elbow_extmem::sort::Meter;
use elbow_extmem::text::Summary;
use serde_json::json;

use crate::json::SCHEMA;
use crate::output::{print_message, raw};
use crate::progress::Meter as Display;
use crate::size;
use crate::sort::args::SortArgs;

/// How often progress is shown.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Follows a sort.
pub(super) struct SortMonitor<'a> {
    args: &'a SortArgs,
    what: String,
    began: Instant,
}

impl<'a> SortMonitor<'a> {
    pub(super) fn new(args: &'a SortArgs, names: &[OsString]) -> Self {
        let what = match names {
            [name] if name == "-" => "standard input".to_owned(),
            [name] => name.to_string_lossy().into_owned(),
            names => format!("{} files", names.len()),
        };
        Self {
            args,
            what,
            began: Instant::now(),
        }
    }

    /// Runs a sort and shows how far it is.
    pub(super) fn over<T>(&self, meter: &Meter, sort: impl FnOnce() -> T) -> T {
        let verb = if self.args.text.merge { "merging" } else { "sorting" };
        let mut display = Display::new(&format!("{verb} {}", self.what), !self.shows_progress());
        let (over, is_over) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while is_over.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if let Some((done, all)) = meter.position() {
                        display.show(done, all);
                    }
                }
            });
            let ended = sort();
            drop(over);
            ended
        })
    }

    /// Not where the result itself appears on the terminal.
    fn shows_progress(&self) -> bool {
        let report = &self.args.report;
        let has_place =
            !self.args.output.is_empty() || (std::io::stderr().is_terminal() && !std::io::stdout().is_terminal());
        has_place && report.tells_people()
    }

    /// sort(1) says nothing, and there is nothing to say of what was done in memory.
    fn was_large(&self, summary: &Summary) -> bool {
        match self.args.text.merge {
            true => summary.merges > 0,
            false => summary.runs > 0,
        }
    }

    pub(super) fn report(&self, meter: &Meter, summary: &Summary) {
        let seconds = self.began.elapsed().as_secs_f64();
        let (read, written, peak) = (meter.read_bytes(), meter.written_bytes(), summary.peak_disk_bytes);
        if self.args.report.json {
            raw(json!({
                "schema": SCHEMA, "outcome": if self.args.text.merge { "merged" } else { "sorted" }, "bytes": summary.bytes,
                "runs": summary.runs, "merges": summary.merges, "seconds": seconds, "read_bytes": read,
                "written_bytes": written, "spilled_bytes": summary.spilled_bytes, "freed_bytes": summary.freed_bytes,
                "peak_disk_bytes": peak,
            }));
        } else if self.was_large(summary) && self.args.report.tells_people() && !self.args.output.is_empty() {
            let verb = if self.args.text.merge { "merged" } else { "sorted" };
            print_message(format_args!(
                "{verb} {} in {seconds:.1} s: read {}, wrote {}, at most {} of disk ({:.2}x)",
                size::show(summary.bytes),
                size::show(read),
                size::show(written),
                size::show(peak),
                peak as f64 / summary.bytes.max(1) as f64
            ));
        }
    }
}
