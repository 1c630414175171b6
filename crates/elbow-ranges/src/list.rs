//! Runs and patterns side by side: what a list of ranges becomes when patterns in it have been found.

use std::ops::Range;

use crate::Strided;
use crate::encoding::varint_bytes;
use crate::ranges::{RangeSource, Run};

/// Runs and patterns, each by start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct List {
    pub(crate) runs: Vec<Run>,
    pub(crate) patterns: Vec<Strided>,
}

impl List {
    /// Not of the empty list.
    pub(crate) fn bounds(&self) -> Range<u64> {
        let starts = [
            self.runs.first().map(|run| run.start),
            self.patterns.first().map(|pattern| pattern.bounds().start),
        ];
        let ends = [
            self.runs.last().map(|run| run.end),
            self.patterns.iter().map(|pattern| pattern.bounds().end).max(),
        ];
        starts.into_iter().flatten().min().unwrap_or(0)..ends.into_iter().flatten().max().unwrap_or(0)
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = RangeSource<'_>> {
        let patterns = self
            .patterns
            .iter()
            .map(|pattern| RangeSource::Pattern(pattern.pieces()));
        patterns.chain([RangeSource::List(self.runs.iter())])
    }
}

/// Bytes that a list takes.
pub(crate) fn encoded_bytes(list: &List) -> usize {
    let (mut before, mut bytes) = (0, varint_bytes(list.runs.len() as u64));
    for run in &list.runs {
        bytes += varint_bytes(run.start - before) + varint_bytes(run.end - run.start);
        before = run.end;
    }
    before = 0;
    bytes += varint_bytes(list.patterns.len() as u64);
    for pattern in &list.patterns {
        let start = pattern.bounds().start;
        bytes += varint_bytes(start - before) + body_bytes(pattern);
        before = start;
    }
    bytes
}

/// Bytes that a pattern takes, but for its start.
pub(crate) fn body_bytes(pattern: &Strided) -> usize {
    let dims = pattern
        .dims()
        .map(|dim| varint_bytes(dim.count) + varint_bytes(dim.stride));
    varint_bytes(pattern.dims().len() as u64) + dims.sum::<usize>() + varint_bytes(pattern.piece_bytes())
}
