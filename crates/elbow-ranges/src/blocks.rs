//! Ranges at the granularity of blocks.
//!
//! ```text
//!   ranges   ..###.......#........         block_bytes = 4
//!   blocks   [ 0 ][ 1 ][   ][ 3 ][   ]     every block that a range touches
//! ```
//!
//! Invariant: a bitmap covers whole blocks; the last one may be cut off at `u64::MAX`.
//!
//! Not here: exact ranges ([`RangeSet`](crate::RangeSet), [`Footprint`](crate::Footprint)).
//!
//! Source: Lemire et al., *Roaring Bitmaps: Implementation of an Optimized Software Library*, 2018.

use std::fmt;
use std::ops::Range;

use roaring::{RoaringBitmap, RoaringTreemap, bitmap, treemap};

use crate::encoding::{DecodeError, Reader, Writer};
use crate::ranges::Source;
use crate::{PatternError, Ranges};

/// Most blocks in one inserted range: 16 TiB of blocks of 4 KiB. A full range of this length takes a few MiB.
const RANGE_BLOCKS_MAX: u64 = 1 << 32;

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
    /// When it is longer than 2^32 blocks.
    pub fn insert(&mut self, range: Range<u64>) -> Result<(), PatternError> {
        if range.start >= range.end {
            return Ok(());
        }
        let Self { block_bytes, .. } = *self;
        let (first, last) = (range.start / block_bytes, (range.end - 1) / block_bytes);
        if last - first >= RANGE_BLOCKS_MAX {
            return Err(PatternError::TooManyBlocks {
                blocks: (last - first).saturating_add(1),
                block_bytes,
            });
        }
        self.blocks.insert_range(first..=last);
        Ok(())
    }

    /// Adds all blocks of another bitmap.
    ///
    /// # Errors
    /// When its blocks have another size.
    pub fn union_with(&mut self, other: &Self) -> Result<(), PatternError> {
        if self.block_bytes != other.block_bytes {
            return Err(PatternError::BlockSizes {
                ours: self.block_bytes,
                theirs: other.block_bytes,
            });
        }
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
        self.blocks.serialized_size()
    }

    /// Whether both cover some point. Bitmaps of one block size are compared 64 blocks at a time; others by skipping from
    /// range to range.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.block_bytes == other.block_bytes {
            return !self.blocks.is_disjoint(&other.blocks);
        }
        let mut unbounded = crate::work::Work(u64::MAX); // bounded by the blocks that both hold
        crate::work::leapfrog(
            |point| self.block_after(point),
            |point| other.block_after(point),
            &mut unbounded,
        )
        .unwrap_or(true)
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
        Ranges::from_source(Source::Blocks(self.runs()))
    }

    /// The first block that ends after a point, as bytes.
    pub(crate) fn block_after(&self, point: u64) -> Option<Range<u64>> {
        let mut blocks = self.blocks.iter();
        blocks.advance_to(point / self.block_bytes);
        blocks.next().map(|block| self.bytes_of(block, block))
    }

    pub(crate) fn runs(&self) -> Runs<'_> {
        Runs {
            of: self,
            rest: self.blocks.bitmaps(),
            within: None,
        }
    }

    fn bytes_of(&self, first: u64, last: u64) -> Range<u64> {
        first * self.block_bytes..(last + 1).saturating_mul(self.block_bytes)
    }

    /// Writes it: the block size, then runs of blocks.
    pub fn encode(&self, writer: &mut Writer) {
        writer.varint(self.block_bytes);
        let runs: crate::RangeSet = self.runs().block_runs().collect();
        writer.ranges(&runs);
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// When it is cut short, not sorted, has blocks past `u64::MAX`, or runs of more than 2^32 blocks.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let bad = |what| DecodeError::BadValue { at, what };
        let mut bitmap = Self::new(reader.varint()?).map_err(|_| bad("a block has no bytes"))?;
        for run in &reader.ranges()? {
            if (run.end - 1)
                .checked_mul(bitmap.block_bytes)
                .is_none_or(|start| start == u64::MAX)
            {
                return Err(bad("a block lies past 2^64"));
            }
            if run.end - run.start > RANGE_BLOCKS_MAX {
                return Err(bad("a run of blocks is too long"));
            }
            bitmap.blocks.insert_range(run);
        }
        Ok(bitmap)
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

/// The runs of blocks of a bitmap as ranges of bytes. Runs that touch at a multiple of 2^32 blocks are not joined.
#[derive(Clone)]
pub(crate) struct Runs<'a> {
    of: &'a BlockBitmap,
    rest: treemap::BitmapIter<'a>,
    within: Option<(u32, bitmap::Iter<'a>)>,
}

impl<'a> Runs<'a> {
    fn block_runs(self) -> impl Iterator<Item = Range<u64>> + use<'a> {
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
            self.within = Some((high, blocks.iter()));
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
