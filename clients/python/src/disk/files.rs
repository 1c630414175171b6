//! Traces of file operations, on the model of ext2 above a drive.

use std::io::Read;

use elbow_disk::trace;
use elbow_disk::workload::Overheads;
use elbow_ext2::{Ext2Error, FileReplay, Policy, Region, TraceError, TraceFile};
use pyo3::prelude::*;

use super::run::{bad_value, fixed, open};
use super::signal_check::SignalCheck;
use super::{Drive, disk_error, json};

/// What the trace is and what it is replayed on, as Python says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct FileReplayOptions {
    format: String,
    below: String,
    allocation: String,
    region: String,
    partition_bytes: Option<u64>,
    full_percent: f64,
    full_run_blocks: u32,
    memory_bytes: u64,
    dirty_bytes: Option<u64>,
    age_s: f64,
    interval_s: f64,
    merge: String,
    scheduler: String,
    depth: u32,
    overhead_ms: Option<f64>,
    concurrent: bool,
    seed: u64,
}

impl FileReplayOptions {
    fn replay(&self) -> PyResult<FileReplay> {
        let region = chosen(
            "region",
            &self.region,
            [("mini-group", Region::MiniGroup), ("group", Region::Group)],
        )?;
        let allocation = [("classic", Policy::Classic), ("ranges", Policy::Range(region))];
        Ok(FileReplay {
            policy: chosen("allocation", &self.allocation, allocation)?,
            partition_bytes: self.partition_bytes,
            full_percent: self.full_percent,
            full_run_blocks: self.full_run_blocks,
            memory_bytes: self.memory_bytes,
            dirty_bytes: self.dirty_bytes,
            age_s: self.age_s,
            interval_s: self.interval_s,
            merge: chosen("merge", &self.merge, [("none", false), ("neighbours", true)])?,
            scheduler: self.scheduler.parse().map_err(bad_value)?,
            depth: self.depth,
            overheads: self.overhead_ms.map_or(Ok(Overheads::Controller), fixed)?,
            concurrent: self.concurrent,
            seed: self.seed,
        })
    }

    fn read(&self, py: Python<'_>, name: &str, text: &str) -> PyResult<TraceFile> {
        type Reading = fn(&str, &str, &str) -> Result<TraceFile, TraceError>;
        let readings: [(&str, Reading); 3] = [
            ("operations", |name, text, _| TraceFile::parse(name, text)),
            ("strace", TraceFile::parse_strace),
            ("listing", |name, text, _| TraceFile::untar(name, text)),
        ];
        let reading = chosen("format", &self.format, readings)?;
        py.detach(|| reading(name, text, &self.below))
            .map_err(|error| disk_error(py, &error.to_string(), Some(&error.file), Some(error.line as u64), None))
    }
}

/// What a word means.
fn chosen<T: Copy, const N: usize>(what: &str, word: &str, of: [(&str, T); N]) -> PyResult<T> {
    let found = of.iter().find(|(name, _)| *name == word);
    found.map(|(_, meant)| *meant).ok_or_else(|| {
        let names = of.map(|(name, _)| name).join(", ");
        bad_value(format!("{what} is {word:?}: it has to be one of {names}"))
    })
}

/// The report as JSON. The trace is `text`, or that in `file`.
#[pyfunction]
pub(crate) fn replay_files(
    drive: &Drive,
    py: Python<'_>,
    file: &str,
    text: Option<&[u8]>,
    options: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let options: FileReplayOptions = options.extract()?;
    let replay = options.replay()?;
    let input: Box<dyn Read + Send + '_> = match text {
        Some(text) => Box::new(text),
        None => Box::new(open(file)?),
    };
    let text = py.detach(|| trace::text(input))?;
    let trace = options.read(py, file, &text)?;
    let mut signal_check = SignalCheck::new();
    let done = py.detach(|| replay.run(&drive.drive, &trace, &mut || !signal_check.is_over()));
    match signal_check.raised {
        Some(raised) => Err(raised),
        None => json(serde_json::to_string(&done.map_err(|error| bad_run(py, &error))?)),
    }
}

fn bad_run(py: Python<'_>, error: &Ext2Error) -> PyErr {
    match error {
        Ext2Error::Line { file, line, .. } => disk_error(py, &error.to_string(), Some(file), Some(*line as u64), None),
        other => bad_value(other),
    }
}
