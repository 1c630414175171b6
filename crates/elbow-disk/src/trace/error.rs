//! What can be wrong with a trace.

use std::io;

use super::format::Format;
use crate::drive::Ps;

/// A trace that cannot be read on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The line is none of this format, or asks for what the drive does not have.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// Name of the trace, as it was given.
        file: String,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong with the line.
        reason: LineError,
    },
    /// Nothing says what the trace is.
    #[error(
        "{file}:{line}: `{start}` begins no trace of a known format; if it is one, name it: {}",
        names()
    )]
    UnknownFormat {
        /// Name of the trace, as it was given.
        file: String,
        /// Number of the first line that is not empty and no comment.
        line: u64,
        /// What it begins with.
        start: String,
    },
    /// The file cannot be read.
    #[error("{file}:{line}: cannot read: {reason}")]
    Read {
        /// Name of the trace, as it was given.
        file: String,
        /// The line that was due.
        line: u64,
        /// What the system said.
        reason: io::Error,
    },
}

/// The names of all formats.
fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}

/// What is wrong with one line.
///
/// ```
/// use elbow_disk::trace::LineError;
/// let error = LineError::NotWhole { word: "x".into(), what: "block" };
/// assert_eq!(error.to_string(), "`x` is no block: expected a whole number");
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum LineError {
    /// Bytes that are not UTF-8.
    #[error("not text")]
    NotText,
    /// It is longer than [`LINE_BYTES_MAX`](super::LINE_BYTES_MAX).
    #[error("a line of more than {0} bytes is none of a trace")]
    TooLong(usize),
    /// A word is missing.
    #[error("the line ends before the {0}")]
    EndsBefore(&'static str),
    /// A column of CSV is missing.
    #[error("the line ends before `{0}`")]
    EndsBeforeColumn(&'static str),
    /// A word more than the format has.
    #[error("`{0}` is too much on the line")]
    TooMuch(String),
    /// A number is due.
    #[error("`{word}` is no {what}: expected a whole number")]
    NotWhole { word: String, what: &'static str },
    /// A time is due, in the unit of the format.
    #[error("`{word}` is no {what}: expected a number from 0 to {most}")]
    NotATime {
        word: String,
        what: &'static str,
        most: f64,
    },
    /// The device of blktrace is two numbers.
    #[error("`{0}` is no device: expected major,minor")]
    NotADevice(String),
    /// blktrace of several devices.
    #[error("device {0} after others: trace one device, or filter with `blkparse -d`")]
    SeveralDevices(String),
    /// A trace of Microsoft Research Cambridge is of one disk.
    #[error("disk {0} after others: one drive is simulated; filter one, as with `grep`")]
    SeveralDisks(String),
    /// A trace of several units of an application.
    #[error("unit {unit} after {before}: one drive is simulated; filter one, as with `awk -F, '$1 == {before}'`")]
    SeveralUnits { unit: u64, before: u64 },
    /// What blkparse puts between block and length.
    #[error("expected `+` and the number of sectors after the block")]
    NoPlus,
    /// The flags of DiskSim are a hexadecimal number.
    #[error("`{0}` are no flags: expected a hexadecimal number")]
    NotFlags(String),
    /// DiskSim's trace of several drives.
    #[error("device {device} after {before}: one drive is simulated")]
    SeveralDrives { device: u64, before: u64 },
    /// Requests come in the order of their arrivals.
    #[error("the arrival at {at} is before the last, at {last}")]
    Backwards { at: Ps, last: Ps },
    /// A request of DiskSim's validation traces reads or writes.
    #[error("`{0}` is neither R nor W")]
    NeitherReadNorWrite(String),
    /// The same of a line of CSV.
    #[error("`{0}` is no op: expected R or W")]
    NotAnOp(String),
    /// The first line of CSV does not name a column that is needed.
    #[error("no column `{0}`; the first line names the columns: lbn,sectors,op,...")]
    NoColumn(&'static str),
    /// A log that fio may write some day.
    #[error("`{0}` is not known; versions 2 and 3 are")]
    UnknownVersion(String),
    /// A word of fio's log that is none of its actions.
    #[error("`{0}` is no action of fio")]
    NotAnAction(String),
    /// The direction in fio's log of latencies is a number.
    #[error("`{0}` is no direction: expected 0, 1 or 2")]
    NotADirection(String),
    /// Disks have sectors.
    #[error("{bytes} bytes at {offset} are no whole sectors of {sector_bytes} bytes")]
    NotSectors { bytes: u64, offset: u64, sector_bytes: u64 },
    /// A request for nothing.
    #[error("a request of no sectors")]
    Empty,
    /// More than any drive takes at once.
    #[error("a request of {sectors} sectors; {most} are the most")]
    TooManySectors { sectors: u64, most: u64 },
    /// It asks for what the drive does not have.
    #[error("sectors {first} to {last} are not on the drive, which has {sectors}")]
    NotOnTheDrive { first: u64, last: u64, sectors: u64 },
    /// The simulated time does not fit into its integer.
    #[error("the simulated clock passes 53 days")]
    ClockRunsOver,
}
