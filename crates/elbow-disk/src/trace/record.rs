//! A line of a trace, as every format is read into it.

use super::error::LineError;
use super::line::Line;
use crate::controller::Request;
use crate::drive::{Ps, SECTOR_BYTES};

use serde::Serialize;

/// When a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At this time.
    At(Ps),
    /// So long after the end of the request before it.
    After(Ps),
}

/// What the trace calls a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// A read; one that was not cached, where the trace says so.
    Read,
    /// A read that was served from the drive's cache.
    Hit,
    /// A write.
    Write,
}

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its line, from 1.
    pub line: u64,
    /// Its time of arrival, or the pause before it.
    pub arrival: Arrival,
    /// What it asks for; on the drive.
    pub request: Request,
    /// What it is called, if the trace tells reads from hits.
    pub kind: Option<RecordKind>,
    /// How long it took when the trace was made.
    pub measured: Option<Ps>,
}

/// What a trace has and a replay has not, and what had to be changed: so many lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Omissions {
    /// Discards (trims), which a disk does not have.
    pub discards: u64,
    /// Flushes, and other requests without sectors.
    pub others: u64,
    /// Requests whose time is before the one before them; they arrive with it.
    pub late: u64,
    /// Reads that the trace calls what is not known.
    pub unknown_kinds: u64,
}

/// The reader of one format.
pub(super) trait Reader {
    fn row(&mut self, line: &Line<'_>) -> Result<Row, LineError>;
}

/// What a line is.
pub(super) enum Row {
    /// A request.
    Request(Parsed),
    /// A discard.
    Discard,
    /// A flush, or another request without sectors.
    Other,
    /// A comment, a header, an event of a request that is known from another line.
    Nothing,
}

/// A record before it is checked.
pub(super) struct Parsed {
    pub(super) arrival: Arrival,
    pub(super) lbn: u64,
    pub(super) sectors: u64,
    pub(super) write: bool,
    pub(super) kind: Option<RecordKind>,
    pub(super) measured: Option<Ps>,
    /// Its time was before the last.
    pub(super) is_late: bool,
    /// What it is called says nothing.
    pub(super) is_of_unknown_kind: bool,
}

impl Parsed {
    /// Without measured time.
    pub(super) fn new(arrival: Arrival, lbn: u64, sectors: u64, write: bool) -> Parsed {
        Parsed {
            arrival,
            lbn,
            sectors,
            write,
            kind: None,
            measured: None,
            is_late: false,
            is_of_unknown_kind: false,
        }
    }

    /// Of a request in bytes.
    pub(super) fn in_bytes(arrival: Arrival, offset: u64, bytes: u64, write: bool) -> Result<Parsed, LineError> {
        if !offset.is_multiple_of(SECTOR_BYTES) || !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(LineError::NotSectors {
                bytes,
                offset,
                sector_bytes: SECTOR_BYTES,
            });
        }
        let (lbn, sectors) = (offset / SECTOR_BYTES, bytes / SECTOR_BYTES);
        Ok(Parsed::new(arrival, lbn, sectors, write))
    }
}

/// The order of a trace whose times are not always in order: several processors, or devices, wrote it.
#[derive(Default)]
pub(super) struct Order {
    last: Ps,
}

impl Order {
    /// A request at this time, or with the one before it.
    pub(super) fn at(&mut self, at: Ps) -> (Arrival, bool) {
        let is_late = at < self.last;
        self.last = self.last.max(at);
        (Arrival::At(self.last), is_late)
    }
}

impl From<Parsed> for Row {
    fn from(parsed: Parsed) -> Row {
        Row::Request(parsed)
    }
}
