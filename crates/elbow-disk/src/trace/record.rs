//! A line of a trace, as every format is read into it.

use super::error::LineError;
use super::line::Line;
use crate::controller::Request;
use crate::drive::Ps;

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

/// The reader of one format: a line becomes a record, or nothing (a comment, an event that is no request).
pub(super) trait Reader {
    fn record(&mut self, line: &Line<'_>) -> Result<Option<Parsed>, LineError>;
}

/// A record before it is checked.
pub(super) struct Parsed {
    pub(super) arrival: Arrival,
    pub(super) lbn: u64,
    pub(super) sectors: u64,
    pub(super) write: bool,
    pub(super) kind: Option<RecordKind>,
    pub(super) measured: Option<Ps>,
}
