//! The ranges of patterns, lists and bitmaps, one after the other.
//!
//! ```text
//!   list      ##....##..........####      \
//!   pattern   ....#....#....#....           >  merged by start, what touches joined
//!   pattern   ......##........##..        /
//! ```
//!
//! Invariant: what comes out is sorted, disjoint and coalesced. Memory is one entry per source, whatever their number of
//! ranges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::Strided;
use crate::blocks::runs::Runs;
use crate::strided::Pieces;

/// Sorted, disjoint, coalesced ranges; what [`Strided::iter`], [`Footprint::iter`](crate::Footprint::iter) and
/// [`BlockBitmap::iter`](crate::BlockBitmap::iter) give.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    sources: Sources<'a>,
    /// Taken from the sources, and perhaps not whole yet.
    pending: Option<Range<u64>>,
}

#[derive(Clone, Debug)]
enum Sources<'a> {
    One(RangeSource<'a>),
    /// By the start of the piece that each gives next.
    Many(BinaryHeap<Reverse<Head<'a>>>),
}

/// Ranges by start.
#[derive(Clone, Debug)]
pub(crate) enum RangeSource<'a> {
    List(std::slice::Iter<'a, Run>),
    Pattern(Pieces<'a>),
    /// Apart: they are many times as large as the others, which are moved about in a heap.
    Blocks(Box<Runs<'a>>),
}

/// A half-open range that can be copied and put into an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(Clone, Debug)]
struct Head<'a> {
    piece: Range<u64>,
    rest: RangeSource<'a>,
}

impl<'a> Ranges<'a> {
    pub(crate) fn of(pattern: &'a Strided) -> Self {
        Self::from_source(RangeSource::Pattern(pattern.pieces()))
    }

    pub(crate) fn from_source(source: RangeSource<'a>) -> Self {
        Self {
            sources: Sources::One(source),
            pending: None,
        }
    }

    pub(crate) fn merge(sources: impl IntoIterator<Item = RangeSource<'a>>) -> Self {
        let heads = sources.into_iter().filter_map(Head::new).map(Reverse).collect();
        Self {
            sources: Sources::Many(heads),
            pending: None,
        }
    }

    /// What is left as the sources give it: by start, not coalesced.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Range<u64>> {
        self.pending.into_iter().chain(self.sources)
    }
}

impl Iterator for Ranges<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let mut range = self.pending.take().or_else(|| self.sources.next())?;
        for piece in &mut self.sources {
            if piece.start > range.end {
                self.pending = Some(piece);
                break;
            }
            range.end = range.end.max(piece.end);
        }
        Some(range)
    }
}

impl Iterator for Sources<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        match self {
            Self::One(source) => source.next(),
            Self::Many(heads) => {
                let Reverse(Head { piece, rest }) = heads.pop()?;
                heads.extend(Head::new(rest).map(Reverse));
                Some(piece)
            }
        }
    }
}

impl Iterator for RangeSource<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        match self {
            Self::List(list) => list.next().map(|run| run.start..run.end),
            Self::Pattern(pieces) => pieces.next(),
            Self::Blocks(runs) => runs.next(),
        }
    }
}

impl<'a> Head<'a> {
    fn new(mut rest: RangeSource<'a>) -> Option<Self> {
        let piece = rest.next()?;
        Some(Self { piece, rest })
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.piece == other.piece
    }
}

impl Eq for Head<'_> {}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.piece.start, self.piece.end).cmp(&(other.piece.start, other.piece.end))
    }
}
