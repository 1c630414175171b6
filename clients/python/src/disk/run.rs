//! Loads and traces on a drive.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use elbow_disk::trace::{Format, Record, Trace};
use elbow_disk::workload::{Arrivals, Moment, Overheads, Phase, RangeSize, Served, Workload};
use elbow_disk::{Ps, QueuedReplay};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::signal_check::{InterruptibleInput, SignalCheck};
use super::table::{Cell, Columns, Name, Table};
use super::{Drive, bad_trace, json};

/// More than this before a request is no overhead.
const OVERHEAD_MS_MAX: f64 = 10_000.0;

/// No table has more rows: at 105 bytes each they take 1.8 GB.
const ROWS_MAX: u64 = 1 << 24;

const SERVED: [Name; 14] = [
    ("number", "q"),
    ("write", "?"),
    ("lbn", "q"),
    ("sectors", "q"),
    ("arrival_ms", "d"),
    ("start_ms", "d"),
    ("end_ms", "d"),
    ("waiting", "q"),
    ("seek_ms", "d"),
    ("rotation_ms", "d"),
    ("transfer_ms", "d"),
    ("overhead_ms", "d"),
    ("service_ms", "d"),
    ("response_ms", "d"),
];

const REPLAYED: [Name; 12] = [
    ("line", "q"),
    ("arrival_ms", "d"),
    ("lbn", "q"),
    ("sectors", "q"),
    ("write", "?"),
    ("hit", "?"),
    ("measured_ms", "d"),
    ("response_ms", "d"),
    ("seek_ms", "d"),
    ("rotation_ms", "d"),
    ("transfer_ms", "d"),
    ("overhead_ms", "d"),
];

/// A load, as Python says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Load {
    scheduler: String,
    depth: u32,
    pick: String,
    arrivals_per_second: Option<f64>,
    span: String,
    sectors: u32,
    align_sectors: u32,
    range_sectors: String,
    targets: u32,
    reads: f64,
    mechanical: bool,
    overhead_ms: Option<f64>,
    requests: u64,
    warm_up: u64,
    seed: u64,
}

/// How a trace is replayed, as Python says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct ReplayOptions {
    format: Option<String>,
    scheduler: String,
    depth: u32,
    mechanical: bool,
}

impl ReplayOptions {
    fn queue(&self) -> PyResult<QueuedReplay> {
        let (depth, most) = (self.depth, QueuedReplay::DEPTH_MAX);
        if !(1..=most).contains(&depth) {
            return Err(bad_value(format!("depth is {depth}: it has to be from 1 to {most}")));
        }
        Ok(QueuedReplay {
            scheduler: self.scheduler.parse().map_err(bad_value)?,
            depth,
            overheads: match self.mechanical {
                true => Overheads::None,
                false => Overheads::Controller,
            },
        })
    }
}

/// The summary as JSON, and a row for each request if they are wanted.
#[pyfunction]
pub(crate) fn simulate_disk<'py>(
    drive: &Drive,
    py: Python<'py>,
    load: &Bound<'py, PyAny>,
    per_request: bool,
) -> PyResult<(String, Columns<'py>)> {
    let load: Load = load.extract()?;
    let (scheduler, workload) = (load.scheduler.parse().map_err(bad_value)?, load.workload()?);
    if per_request && workload.requests > ROWS_MAX {
        return Err(too_many_rows(workload.requests));
    }
    let (mut table, mut signal_check) = (Table::new(&SERVED), SignalCheck::new());
    let done = py.detach(|| {
        workload.simulate_all_while(&drive.drive, scheduler, |phase, served| {
            if per_request && phase == Phase::Measured {
                table.row(served_cells(served));
            }
            match signal_check.is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })
    });
    match signal_check.raised {
        Some(raised) => Err(raised),
        None => Ok((
            json(serde_json::to_string(&done.map_err(bad_value)?))?,
            table.into_python(py)?,
        )),
    }
}

/// The report as JSON, and a row for each request if they are wanted. The trace is `text`, or that in `file`.
#[pyfunction]
pub(crate) fn replay_trace<'py>(
    drive: &Drive,
    py: Python<'py>,
    file: &str,
    text: Option<&[u8]>,
    options: &Bound<'py, PyAny>,
    per_request: bool,
) -> PyResult<(String, Columns<'py>)> {
    let options: ReplayOptions = options.extract()?;
    let (format, queue) = (
        options.format.as_deref().map(trace_format).transpose()?,
        options.queue()?,
    );
    let input: Box<dyn Read + Send + '_> = match text {
        Some(text) => Box::new(text),
        None => Box::new(open(file)?),
    };
    let (mut table, mut signal_check) = (Table::new(&REPLAYED), SignalCheck::new());
    let (mut rows, is_full) = (0, AtomicBool::new(false));
    let done = py.detach(|| {
        let input = InterruptibleInput {
            input,
            signal_check: &mut signal_check,
            is_full: &is_full,
        };
        let sectors = drive.drive.sectors();
        let trace = match format {
            Some(format) => Trace::new(file, format, input, sectors),
            None => Trace::detect(file, input, sectors)?,
        };
        queue.run(&drive.drive, trace, |record, arrival, served| {
            if per_request && rows == ROWS_MAX {
                is_full.store(true, Relaxed);
            } else if per_request {
                table.row(replayed_cells(record, arrival, served));
                rows += 1;
            }
        })
    });
    match signal_check.raised {
        Some(raised) => Err(raised),
        None if is_full.load(Relaxed) => Err(too_many_rows(rows + 1)),
        None => Ok((
            json(serde_json::to_string(&done.map_err(|error| bad_trace(py, &error))?))?,
            table.into_python(py)?,
        )),
    }
}

impl Load {
    fn workload(&self) -> PyResult<Workload> {
        let pick = match self.pick.as_str() {
            "before" => Moment::Before,
            "after" => Moment::After,
            other => return Err(bad_value(format!("pick is {other:?}: it has to be before or after"))),
        };
        let range: Option<RangeSize> = match self.range_sectors.as_str() {
            "" => None,
            text => Some(text.parse().map_err(bad_value)?),
        };
        Ok(Workload {
            span: self.span.parse().map_err(bad_value)?,
            request_sectors: self.sectors,
            align_sectors: self.align_sectors,
            range: range.unwrap_or(RangeSize::Sectors(self.sectors.into())),
            targets: self.targets,
            reads: self.reads,
            arrivals: match self.arrivals_per_second {
                Some(per_second) => Arrivals::Open { per_second },
                None => Arrivals::Closed {
                    depth: self.depth,
                    pick,
                },
            },
            overheads: self.overheads()?,
            requests: self.requests,
            warm_up: self.warm_up,
            seed: self.seed,
        })
    }

    fn overheads(&self) -> PyResult<Overheads> {
        match self.overhead_ms {
            Some(ms) => fixed(ms),
            None if self.mechanical => Ok(Overheads::None),
            None => Ok(Overheads::Controller),
        }
    }
}

/// So many milliseconds before each request.
pub(super) fn fixed(ms: f64) -> PyResult<Overheads> {
    match (0.0..=OVERHEAD_MS_MAX).contains(&ms) {
        true => Ok(Overheads::Fixed(Ps::from_ms(ms))),
        false => Err(bad_value(format!(
            "overhead_ms is {ms}: it has to be from 0 to {OVERHEAD_MS_MAX}"
        ))),
    }
}

fn too_many_rows(requests: u64) -> PyErr {
    bad_value(format!(
        "a table of {requests} requests is too large: {ROWS_MAX} rows are the most; per_request=False is without one"
    ))
}

#[allow(clippy::needless_pass_by_value, reason = "that is how `map_err` passes it")]
pub(super) fn bad_value(error: impl ToString) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn trace_format(name: &str) -> PyResult<Format> {
    let found = Format::ALL.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| {
        let names = Format::ALL.map(Format::name).join(", ");
        bad_value(format!("no trace format is called {name:?}: take {names}"))
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "a trace is read once from front to back; it may be a pipe"
)]
pub(super) fn open(path: &str) -> io::Result<File> {
    File::open(path).map_err(|error| io::Error::new(error.kind(), format!("cannot open the trace {path}: {error}")))
}

fn served_cells(served: &Served) -> [Cell; 14] {
    [
        served.number.into(),
        served.write.into(),
        served.lbn.0.into(),
        served.sectors.into(),
        served.arrived.into(),
        served.started.into(),
        served.ended.into(),
        served.waiting.into(),
        served.seek.into(),
        served.rotation.into(),
        served.transfer.into(),
        served.overhead.into(),
        served.service().into(),
        (served.ended - served.arrived).into(),
    ]
}

fn replayed_cells(record: &Record, arrival: Ps, served: &elbow_disk::Served) -> [Cell; 12] {
    let request = record.request;
    [
        record.line.into(),
        arrival.into(),
        request.lbn.0.into(),
        request.sectors.into(),
        request.write.into(),
        served.hit.into(),
        Cell::Float(record.measured.map_or(f64::NAN, Ps::ms)),
        (served.end - arrival).into(),
        served.seek.into(),
        served.rotation.into(),
        served.transfer.into(),
        served.overhead.into(),
    ]
}
