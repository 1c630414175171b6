//! The simulated disk, for `elbowroom.disk`.
//!
//! ```text
//!   this      a drive, its sectors, tracks and seek times     table    columns that Python gets without looking at each number
//!   files     replay_files: operations on files, on ext2 above it
//!   run       simulate, replay                                signal_check Ctrl-C while one runs
//! ```
//!
//! Always: what Python passes is checked before the model sees it, because a panic ends the interpreter; nothing simulates while
//! it holds the interpreter's lock.

mod files;
mod run;
mod signal_check;
mod table;

use std::sync::Arc;

use elbow_disk::trace::TraceError;
use elbow_disk::{Arm, DriveError, Lbn, SectorAddress};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pub(crate) use files::replay_files;
pub(crate) use run::{replay_trace, simulate_disk};
use table::{Cell, Columns, Name, Table};

/// Bytes of an LBN in an array.
const LBN_BYTES: usize = 8;

const PLACE: [Name; 4] = [("cylinder", "q"), ("head", "q"), ("sector", "q"), ("angle_ms", "d")];
const TRACK: [Name; 5] = [
    ("first_lbn", "q"),
    ("sectors", "q"),
    ("cylinder", "q"),
    ("head", "q"),
    ("angle_ms", "d"),
];

/// A drive. It never changes.
#[pyclass(frozen, module = "elbowroom._native")]
pub(crate) struct Drive {
    drive: Arc<elbow_disk::Drive>,
    toml: String,
}

#[pymethods]
impl Drive {
    /// The drive that `text` describes; `file` is what errors call it.
    #[new]
    fn new(py: Python<'_>, file: &str, text: String) -> PyResult<Self> {
        let drive = py.detach(|| elbow_disk::Drive::parse(file, &text));
        let drive = Arc::new(drive.map_err(|error| bad_drive(py, &error))?);
        Ok(Self { drive, toml: text })
    }

    /// The names that need no file.
    #[staticmethod]
    fn built_in() -> Vec<&'static str> {
        elbow_disk::Drive::built_in().collect()
    }

    /// The description of a built-in drive.
    #[staticmethod]
    fn description(name: &str) -> Option<&'static str> {
        elbow_disk::Drive::description(name)
    }

    #[getter]
    fn toml(&self) -> &str {
        &self.toml
    }

    /// Its figures as JSON.
    fn summary(&self) -> PyResult<String> {
        json(serde_json::to_string(&self.drive.summary()))
    }

    /// Cylinder, head, sector on the track and angle of LBNs, which come as 64-bit integers in the machine's order.
    fn locate<'py>(&self, py: Python<'py>, lbns: &[u8]) -> PyResult<Columns<'py>> {
        let mut table = Table::new(&PLACE);
        for lbn in lbns.chunks_exact(LBN_BYTES) {
            let lbn = self.checked(i64::from_ne_bytes(std::array::from_fn(|at| lbn[at])))?;
            let place = self.drive.locate(lbn);
            let arm = place.arm;
            table.row([
                Cell::from(arm.cylinder),
                arm.head.into(),
                place.sector.into(),
                self.drive.angle(place).into(),
            ]);
        }
        table.into_python(py)
    }

    /// The LBN of a place, if it holds data.
    fn lbn_at(&self, cylinder: u32, head: u32, sector: u32) -> Option<u64> {
        let arm = Arm { cylinder, head };
        self.drive.lbn_at(SectorAddress { arm, sector }).map(|lbn| lbn.0)
    }

    /// All tracks that hold data, in the order of LBNs.
    fn tracks<'py>(&self, py: Python<'py>) -> PyResult<Columns<'py>> {
        let mut table = Table::new(&TRACK);
        let mut next = Lbn(0);
        while next.0 < self.drive.sectors() {
            let track = self.drive.track(next);
            let angle = self.drive.angle(SectorAddress {
                arm: track.arm,
                sector: 0,
            });
            let (first, sectors) = (track.first.0, track.sectors);
            let arm = track.arm;
            table.row([
                Cell::from(first),
                sectors.into(),
                arm.cylinder.into(),
                arm.head.into(),
                angle.into(),
            ]);
            next = Lbn(first + u64::from(sectors));
        }
        table.into_python(py)
    }

    /// Times of the arm by distance in cylinders, from 0.
    fn seek_table<'py>(&self, py: Python<'py>, write: bool) -> PyResult<Columns<'py>> {
        let mut table = Table::new(&[("seek_ms", "d")]);
        for cylinder in 0..self.drive.cylinders() {
            let there = Arm { cylinder, head: 0 };
            table.row([self.drive.arm_time(Arm::default(), there, write).into()]);
        }
        table.into_python(py)
    }
}

impl Drive {
    fn checked(&self, lbn: i64) -> PyResult<Lbn> {
        let sectors = self.drive.sectors();
        let inside = u64::try_from(lbn).ok().filter(|lbn| *lbn < sectors);
        inside.map(Lbn).ok_or_else(|| {
            let name = self.drive.name();
            PyValueError::new_err(format!("LBN {lbn} is not on {name}, which has {sectors} sectors"))
        })
    }
}

fn json(text: serde_json::Result<String>) -> PyResult<String> {
    text.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn bad_drive(py: Python<'_>, error: &DriveError) -> PyErr {
    let (file, line, key) = match error {
        DriveError::Description { file, line, key, .. } => (Some(file), Some(*line as u64), key.as_ref()),
        _ => (None, None, None),
    };
    disk_error(py, &error.to_string(), file, line, key)
}

fn bad_trace(py: Python<'_>, error: &TraceError) -> PyErr {
    let (file, line) = match error {
        TraceError::Line { file, line, .. }
        | TraceError::UnknownFormat { file, line, .. }
        | TraceError::Read { file, line, .. } => (Some(file), Some(*line)),
        _ => (None, None),
    };
    disk_error(py, &error.to_string(), file, line, None)
}

/// `elbowroom.disk.DiskError`, a `ValueError`.
fn disk_error(py: Python<'_>, message: &str, file: Option<&String>, line: Option<u64>, key: Option<&String>) -> PyErr {
    let class = py
        .import("elbowroom._errors")
        .and_then(|module| module.getattr("DiskError"));
    match class.and_then(|class| class.call1((message, file, line, key))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
