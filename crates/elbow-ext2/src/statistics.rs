//! What a file system has asked of its disk.

use std::collections::BTreeMap;

use crate::{Purpose, Request, RequestTarget};

/// Requests handed out so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Reads.
    pub reads: u64,
    /// Blocks of reads.
    pub blocks_read: u64,
    /// Writes by what they hold: number and blocks.
    pub writes: BTreeMap<Purpose, (u64, u64)>,
    /// Writes to a range, which are among the writes of data.
    pub range_writes: u64,
    /// Range writes that had to wait because their region was promised to others.
    pub range_waits: u64,
    /// The most range writes outstanding at a time.
    pub ranges_outstanding_max: u64,
    /// Files that continued at their goal rather than by a range.
    pub continued: u64,
}

impl Statistics {
    pub(crate) fn count(&mut self, request: &Request) {
        let blocks = u64::from(request.blocks);
        match request.target {
            RequestTarget::Read(_) => {
                self.reads += 1;
                self.blocks_read += blocks;
            }
            RequestTarget::Write(_) | RequestTarget::WriteRange(_) => {
                let (requests, total) = self.writes.entry(request.purpose).or_default();
                *requests += 1;
                *total += blocks;
            }
        }
        self.range_writes += u64::from(matches!(request.target, RequestTarget::WriteRange(_)));
    }

    /// Blocks of all writes.
    #[must_use]
    pub fn blocks_written(&self) -> u64 {
        self.writes.values().map(|&(_, blocks)| blocks).sum()
    }

    /// Number of all writes.
    #[must_use]
    pub fn requests_written(&self) -> u64 {
        self.writes.values().map(|&(requests, _)| requests).sum()
    }
}
