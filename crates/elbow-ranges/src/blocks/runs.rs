//! The runs of a bitmap, one after the other.

use std::fmt;
use std::ops::Range;

use roaring::{RoaringBitmap, bitmap, treemap};

use super::BlockBitmap;

/// The runs of blocks of a bitmap as ranges of bytes. Runs that touch at a multiple of 2^32 blocks are not joined.
pub(crate) struct Runs<'a> {
    of: &'a BlockBitmap,
    /// Each with 2^32 blocks.
    rest: treemap::BitmapIter<'a>,
    /// How many of them have been taken from `rest`.
    taken: usize,
    within: Option<(u32, bitmap::Iter<'a>)>,
}

impl<'a> Runs<'a> {
    pub(super) fn new(of: &'a BlockBitmap) -> Self {
        Self {
            of,
            rest: of.blocks.bitmaps(),
            taken: 0,
            within: None,
        }
    }

    /// The runs as numbers of blocks.
    pub(super) fn block_runs(self) -> impl Iterator<Item = Range<u64>> + use<'a> {
        let mut runs = self;
        std::iter::from_fn(move || runs.next_blocks().map(|(first, last)| first..last + 1))
    }

    fn next_blocks(&mut self) -> Option<(u64, u64)> {
        loop {
            if let Some((high, blocks)) = &mut self.within
                && let Some(run) = blocks.next_range()
            {
                let base = u64::from(*high) << 32;
                return Some((base | u64::from(*run.start()), base | u64::from(*run.end())));
            }
            let (high, blocks): (u32, &RoaringBitmap) = self.rest.next()?;
            self.taken += 1;
            self.within = Some((high, blocks.iter()));
        }
    }
}

/// The iterator of a treemap's bitmaps cannot be cloned: another one is brought to the same place.
impl Clone for Runs<'_> {
    fn clone(&self) -> Self {
        let mut rest = self.of.blocks.bitmaps();
        if let Some(last) = self.taken.checked_sub(1) {
            rest.nth(last);
        }
        Self {
            of: self.of,
            rest,
            taken: self.taken,
            within: self.within.clone(),
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let (first, last) = self.next_blocks()?;
        Some(self.of.bytes_of(first, last))
    }
}

impl fmt::Debug for Runs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "runs of {:?}", self.of)
    }
}
