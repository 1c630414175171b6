//! Ranges at the granularity of blocks.
//!
//! ```text
//!   ranges   ..###.......#........         block_bytes = 4
//!   blocks   [ 0 ][ 1 ][   ][ 3 ][   ]     every block that a range touches
//! ```
//!
//! Invariants: a bitmap covers whole blocks; the last one may be cut off at `u64::MAX`. It has at most
//! [`BlockBitmap::BLOCKS_MAX`] blocks, so that no few bytes of input stand for gigabytes of memory.
//!
//! Not here: exact ranges ([`RangeSet`](crate::RangeSet), [`Footprint`](crate::Footprint)).
//!
//! Source: Lemire et al., *Roaring Bitmaps: Implementation of an Optimized Software Library*, 2018.

mod coding;
pub(crate) mod runs;

use std::fmt;
use std::ops::Range;

use roaring::RoaringTreemap;

use runs::Runs;

use crate::ranges::RangeSource;
use crate::work::{Work, leapfrog};
use crate::{PatternError, Ranges};

/// Most steps of a comparison of bitmaps of different block sizes; some 20 ms.
const STEPS_MAX: u64 = 1 << 18;

/// A set of blocks, as a compressed bitmap.
///
/// ```
/// use elbow_ranges::BlockBitmap;
///
/// let mut blocks = BlockBitmap::new(4096)?;
/// blocks.insert(5000..5001)?;
/// blocks.insert(8000..9000)?;
/// assert_eq!(blocks.iter().collect::<Vec<_>>(), [4096..12288]);
/// assert!(blocks.overlaps_range(12287..20000) && !blocks.overlaps_range(12288..20000));
/// # Ok::<(), elbow_ranges::PatternError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct BlockBitmap {
    /// Not 0.
    block_bytes: u64,
    blocks: RoaringTreemap,
}

impl BlockBitmap {
    /// Most blocks in one bitmap: 256 GiB in blocks of 4 KiB. What is longer is better described by ranges.
    pub const BLOCKS_MAX: u64 = 1 << 26;

    /// No blocks yet.
    ///
    /// # Errors
    /// When a block has no bytes.
    pub fn new(block_bytes: u64) -> Result<Self, PatternError> {
        match block_bytes {
            0 => Err(PatternError::Empty),
            _ => Ok(Self {
                block_bytes,
                blocks: RoaringTreemap::new(),
            }),
        }
    }

    /// Bytes in a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Number of blocks in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks.len()
    }

    /// Whether there is no block in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds all blocks that a range touches; none when it is empty.
    ///
    /// # Errors
    /// When there would be more than [`BLOCKS_MAX`](Self::BLOCKS_MAX) blocks; then nothing is added.
    pub fn insert(&mut self, range: Range<u64>) -> Result<(), PatternError> {
        if range.start >= range.end {
            return Ok(());
        }
        let (first, last) = (range.start / self.block_bytes, (range.end - 1) / self.block_bytes);
        self.insert_blocks(first..last + 1)
    }

    fn insert_blocks(&mut self, run: Range<u64>) -> Result<(), PatternError> {
        self.check_room(run.end - run.start)?;
        self.check_room(self.len() + (run.end - run.start) - self.blocks_in(&run))?;
        self.blocks.insert_range(run);
        Ok(())
    }

    /// How many blocks of a run that is not empty are in the set.
    fn blocks_in(&self, run: &Range<u64>) -> u64 {
        let before = run.start.checked_sub(1).map_or(0, |last| self.blocks.rank(last));
        self.blocks.rank(run.end - 1) - before
    }

    fn check_room(&self, blocks: u64) -> Result<(), PatternError> {
        let Self { block_bytes, .. } = *self;
        match blocks {
            ..=Self::BLOCKS_MAX => Ok(()),
            _ => Err(PatternError::TooManyBlocks { blocks, block_bytes }),
        }
    }

    /// Adds all blocks of another bitmap.
    ///
    /// # Errors
    /// When its blocks have another size, or there would be more than [`BLOCKS_MAX`](Self::BLOCKS_MAX); then nothing is added.
    pub fn union_with(&mut self, other: &Self) -> Result<(), PatternError> {
        if self.block_bytes != other.block_bytes {
            return Err(PatternError::BlockSizes {
                ours: self.block_bytes,
                theirs: other.block_bytes,
            });
        }
        self.check_room(self.blocks.union_len(&other.blocks))?;
        self.blocks |= &other.blocks;
        Ok(())
    }

    /// The smallest range that holds all of it; empty when it is.
    #[must_use]
    pub fn bounds(&self) -> Range<u64> {
        match (self.blocks.min(), self.blocks.max()) {
            (Some(first), Some(last)) => self.bytes_of(first, last),
            _ => 0..0,
        }
    }

    /// Bytes that it covers.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        let over = match self.blocks.max() {
            Some(last) => (u128::from(last) + 1) * u128::from(self.block_bytes),
            None => return 0,
        }
        .saturating_sub(u128::from(u64::MAX));
        (u128::from(self.len()) * u128::from(self.block_bytes) - over) as u64
    }

    /// Memory that it takes, about. `O(blocks / 65,536)`.
    pub(crate) fn heap_bytes(&self) -> usize {
        let per_container = size_of::<[usize; 8]>(); // its entry and what the allocator adds
        let of_half = |half: &roaring::RoaringBitmap| {
            half.serialized_size() + half.statistics().n_containers as usize * per_container
        };
        self.blocks.bitmaps().map(|(_, half)| of_half(half)).sum()
    }

    /// Whether both cover some point. Bitmaps of one block size are compared 64 blocks at a time; others by skipping from
    /// block to block, and what that does not decide in 2^18 steps counts as an overlap.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.block_bytes == other.block_bytes {
            return !self.blocks.is_disjoint(&other.blocks);
        }
        let decided = leapfrog(
            |point| self.block_after(point),
            |point| other.block_after(point),
            1,
            &mut Work(STEPS_MAX),
        );
        decided.unwrap_or(true)
    }

    /// Whether it covers any point of a range.
    #[must_use]
    pub fn overlaps_range(&self, range: Range<u64>) -> bool {
        range.start < range.end
            && self
                .block_after(range.start)
                .is_some_and(|block| block.start < range.end)
    }

    /// The ranges that it covers, sorted and coalesced.
    #[must_use]
    pub fn iter(&self) -> Ranges<'_> {
        Ranges::from_source(RangeSource::Blocks(Box::new(self.runs())))
    }

    /// The first block that ends after a point, as bytes.
    pub(crate) fn block_after(&self, point: u64) -> Option<Range<u64>> {
        self.first_from(point / self.block_bytes)
            .map(|block| self.bytes_of(block, block))
    }

    /// The first block that is not before another.
    fn first_from(&self, block: u64) -> Option<u64> {
        let mut blocks = self.blocks.iter();
        // In two steps, because the library (0.11.3) takes one into a half that is not there for one within the next half.
        blocks.advance_to(block & !u64::from(u32::MAX));
        let first = blocks.next()?;
        if first >= block {
            return Some(first);
        }
        blocks.advance_to(block);
        blocks.next()
    }

    pub(crate) fn runs(&self) -> Runs<'_> {
        Runs::new(self)
    }

    fn bytes_of(&self, first: u64, last: u64) -> Range<u64> {
        first * self.block_bytes..(last + 1).saturating_mul(self.block_bytes)
    }
}

impl fmt::Debug for BlockBitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `0..8192, 2 blocks of 4096`
impl fmt::Display for BlockBitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.bounds();
        write!(f, "{start}..{end}, {} blocks of {}", self.len(), self.block_bytes)
    }
}
