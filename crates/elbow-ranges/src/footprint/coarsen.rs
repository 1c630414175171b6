//! Covering more, for simpler locks.

use super::{Footprint, Form};
use crate::{BlockBitmap, Dim, PatternError, Strided};

/// Most pieces that are rounded to blocks one by one; what has more is rounded as one range.
const PIECES_MAX: u64 = 1 << 20;

/// How finely a request is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// The whole file.
    File,
    /// One range, from the first byte to the last.
    Extent,
    /// Exactly what the request touches.
    List,
    /// All blocks of so many bytes that it touches; 0 is taken as 1.
    Blocks(u64),
}

impl Footprint {
    /// What is locked for it in a mode: always at least what it covers, and never more than from the first to the last
    /// block that it touches (except the whole file in its mode).
    ///
    /// ```
    /// use elbow_ranges::{Footprint, Mode};
    ///
    /// let footprint = Footprint::from_list([(100, 10), (9000, 10)])?;
    /// assert_eq!(footprint.coarsen(Mode::Extent), Footprint::extent(100..9010)?);
    /// let blocks = footprint.coarsen(Mode::Blocks(4096));
    /// assert_eq!(blocks.iter().collect::<Vec<_>>(), [0..4096, 8192..12288]);
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    #[must_use]
    pub fn coarsen(&self, mode: Mode) -> Self {
        match mode {
            _ if self.is_whole() => self.clone(),
            Mode::File => Self::whole(),
            Mode::Extent => self.bounding(1),
            Mode::List | Mode::Blocks(0 | 1) => self.clone(),
            Mode::Blocks(block_bytes) => self
                .in_blocks(block_bytes)
                .unwrap_or_else(|_| self.bounding(block_bytes)),
        }
    }

    /// From the first block to the last.
    fn bounding(&self, block_bytes: u64) -> Self {
        let bounds = self.bounds();
        let start = bounds.start - bounds.start % block_bytes;
        let end = bounds.end.checked_next_multiple_of(block_bytes).unwrap_or(u64::MAX);
        Self::extent(start..end).unwrap_or_else(|_| Self::whole()) // a footprint is not empty
    }

    fn in_blocks(&self, block_bytes: u64) -> Result<Self, PatternError> {
        if let Form::Blocks(blocks) = &self.form
            && blocks.block_bytes() == block_bytes
        {
            return Ok(self.clone());
        }
        if let Form::Pattern(pattern) = &self.form
            && pattern.dims().all(|dim| dim.stride.is_multiple_of(block_bytes))
        {
            return round(pattern, block_bytes).map(Self::from);
        }
        Self::from_blocks(BlockBitmap::covering(self, block_bytes)?)
    }
}

/// A pattern whose strides are multiples of a block, rounded out to blocks.
fn round(pattern: &Strided, block_bytes: u64) -> Result<Strided, PatternError> {
    let start = pattern.bounds().start;
    let before = start % block_bytes;
    let len = (before + pattern.piece_bytes())
        .checked_next_multiple_of(block_bytes)
        .ok_or(PatternError::Overflow)?;
    let dims: Vec<Dim> = pattern.dims().collect();
    Strided::new(start - before, &dims, len)
}

impl BlockBitmap {
    /// All blocks that a footprint touches.
    ///
    /// # Errors
    /// When a block has no bytes, or it is too much for a bitmap: a range of more than 2^32 blocks, more than 2^20 ranges.
    pub fn covering(footprint: &Footprint, block_bytes: u64) -> Result<Self, PatternError> {
        let mut bitmap = Self::new(block_bytes)?;
        let blocks = footprint.segments();
        if blocks > PIECES_MAX {
            return Err(PatternError::TooManyBlocks { blocks, block_bytes });
        }
        footprint.iter().try_for_each(|range| bitmap.insert(range))?;
        Ok(bitmap)
    }
}
