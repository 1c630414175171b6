//! A sort as it is seen from outside: progress, signals, the space it takes, and the report at its end.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Result;
use elbow_extmem::sort::{self, Meter, SortError, SortTarget, Summary, side_directory};
use serde_json::json;

use crate::json::SCHEMA;
use crate::output::{print_message, raw};
use crate::partial_output::PartialOutput;
use crate::progress::Meter as Display;
use crate::signals::{self, Event};
use crate::sort::args::SortArgs;
use crate::sort::failure::failure;
use crate::{exit, size};

/// How often progress is shown and the space that is taken is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// What is sorted how.
pub(super) enum Watched<'a> {
    /// It stops where it can be resumed.
    InPlace(&'a SortTarget),
    /// It may end at any moment; a draft of its output then has to go.
    Copying(Option<Arc<PartialOutput>>),
}

/// Follows a sort: shows progress, takes signals, sees how much space is taken, and reports.
pub(super) struct SortMonitor<'a> {
    args: &'a SortArgs,
    shown: String,
    watched: Watched<'a>,
    meter: Meter,
    began: Instant,
    stopped_by: AtomicBool,
    peak_bytes: AtomicU64,
}

impl<'a> SortMonitor<'a> {
    /// `input_bytes` of input, where that is known.
    pub(super) fn new(args: &'a SortArgs, shown: &str, input_bytes: Option<u64>, watched: Watched<'a>) -> Self {
        let meter = Meter::default();
        meter.announce(input_bytes.unwrap_or(0));
        Self {
            args,
            shown: shown.to_owned(),
            watched,
            meter,
            began: Instant::now(),
            stopped_by: AtomicBool::new(false),
            peak_bytes: AtomicU64::new(0),
        }
    }

    /// Runs a sort and watches it from another thread.
    pub(super) fn over(&self, sort: impl FnOnce(&Meter) -> sort::Result<Summary>) -> sort::Result<Summary> {
        signals::block();
        let (events, received) = mpsc::channel();
        let silent = !self.args.report.tells_people();
        if signals::listen(events.clone()).is_err() {
            print_message("cannot listen to signals; Ctrl-C will have no effect");
        }
        std::thread::scope(|scope| {
            let display = Display::new(&format!("sorting {}", self.shown), silent);
            scope.spawn(move || self.look(&received, display));
            let ended = sort(&self.meter);
            let _ = events.send(Event::Over); // the other thread waits for it
            ended
        })
    }

    fn look(&self, events: &mpsc::Receiver<Event>, mut display: Display) {
        loop {
            match events.recv_timeout(LOOK_INTERVAL) {
                Ok(Event::Signal(_)) => {
                    self.stopped_by.store(true, Ordering::Relaxed);
                    self.meter.stop();
                    if let Watched::Copying(draft) = &self.watched {
                        self.end(draft.as_deref()); // it may be waiting for its input
                    }
                }
                Ok(Event::Over | Event::Ended(_)) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(Event::RollBack(_)) | Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            self.peak_bytes.fetch_max(self.taken_bytes(), Ordering::Relaxed);
            if let Some((done, all)) = self.meter.position() {
                display.show(done, all);
            }
        }
    }

    fn end(&self, draft: Option<&PartialOutput>) -> ! {
        if let Some(draft) = draft {
            draft.discard();
        }
        let _ = self.fail(&SortError::Stopped, None);
        std::process::exit(exit::INTERRUPTED.into());
    }

    /// Space that the file and what is beside it take now, as the file system says.
    fn taken_bytes(&self) -> u64 {
        use std::os::unix::fs::MetadataExt;
        let Watched::InPlace(target) = self.watched else {
            return 0;
        };
        let beside = side_directory(&target.path).read_dir().into_iter().flatten().flatten();
        let files = beside.map(|entry| entry.path()).chain([target.path.clone()]);
        files
            .filter_map(|path| path.metadata().ok())
            .map(|found| found.blocks() * 512)
            .sum()
    }

    fn is_in_place(&self) -> bool {
        matches!(self.watched, Watched::InPlace(_))
    }

    pub(super) fn report(&self, summary: &Summary) -> Result<ExitCode> {
        let seconds = self.began.elapsed().as_secs_f64();
        let (read, written) = (self.meter.read_bytes(), self.meter.written_bytes());
        let peak = self.peak_bytes.load(Ordering::Relaxed);
        let peak = (self.is_in_place() && peak > 0).then_some(peak);
        if self.args.report.json {
            raw(json!({
                "schema": SCHEMA, "outcome": "sorted", "records": summary.records, "bytes": summary.bytes, "runs": summary.runs,
                "passes": summary.passes, "seconds": seconds, "read_bytes": read, "written_bytes": written,
                "freed_bytes": self.meter.freed_bytes(), "peak_disk_bytes": peak,
            }));
        } else if self.args.report.tells_people() && (self.is_in_place() || !self.args.output.is_empty()) {
            let peak = peak.map_or(String::new(), |peak| {
                format!(
                    ", at most {} of disk ({:.2}x)",
                    size::show(peak),
                    peak as f64 / summary.bytes.max(1) as f64
                )
            });
            print_message(format_args!(
                "sorted {} records ({}) in {seconds:.1} s: read {}, wrote {}{peak}",
                summary.records,
                size::show(summary.bytes),
                size::show(read),
                size::show(written)
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) fn fail(&self, error: &SortError, hint: Option<String>) -> Result<ExitCode> {
        let code = if self.stopped_by.load(Ordering::Relaxed) {
            exit::INTERRUPTED
        } else {
            exit::SORT_TROUBLE
        };
        if self.args.report.json {
            raw(failure(&error.to_string(), hint.as_deref(), code));
            return Ok(ExitCode::from(code));
        }
        print_message(error);
        if let Some(hint) = hint {
            print_message(hint);
        }
        Ok(ExitCode::from(code))
    }
}
