//! Space that a file is to have on the storage before anything is written there: fallocate(2).
//!
//! ```text
//!   wanted     what the job has reserved and not cut, nor punched since
//!   given      new files: what the target has been asked to reserve
//! ```
//!
//! The difference of the two is what the next fill reserves, or frees. Old files are given nothing before the commit, which takes what is wanted
//! from the record.

use elbow_ranges::RangeSet;

use super::fill::{Fill, Piece};

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    pub(crate) wanted: RangeSet,
    given: RangeSet,
}

impl Reserve {
    pub(crate) fn is_missing(&self) -> bool {
        !self.wanted.difference(&self.given).is_empty()
    }

    /// The target has something reserved from an offset on that is not wanted any more.
    pub(crate) fn is_too_much_from(&self, offset: u64) -> bool {
        self.given.difference(&self.wanted).overlaps(offset, u64::MAX)
    }

    /// What is missing when all else of a fill is done.
    pub(crate) fn missing_after(&self, fill: &Fill) -> RangeSet {
        self.wanted.difference(&left(&self.given, fill))
    }

    /// A fill is on the storage.
    pub(crate) fn took(&mut self, fill: &Fill) {
        self.given = left(&self.given, fill).union(&fill.reserve);
    }

    /// A fill failed half-way: what it was to free may be free.
    pub(crate) fn may_have_lost(&mut self, fill: &Fill) {
        self.given = left(&self.given, fill);
    }
}

/// What is left of that after what a fill cuts and punches.
fn left(given: &RangeSet, fill: &Fill) -> RangeSet {
    let mut left = given.clone();
    if let Some(cut) = fill.cut {
        left.remove(cut, u64::MAX);
    }
    for (range, _) in fill.pieces.iter().filter(|(_, piece)| matches!(piece, Piece::Zero)) {
        left.remove(range.start, range.end);
    }
    left
}
