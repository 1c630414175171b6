//! The encoding of bitmaps.
//!
//! ```text
//!   bytes per block
//!   0   runs of blocks, as `Writer::ranges`                                    whichever is shorter;
//!   1   first block, bits as `Writer::bytes`: 8 blocks per byte, the first     the runs if they are
//!       block in the lowest bit of the first byte, the last byte not 0         equally long
//! ```
//!
//! Invariants as in [`encoding`](crate::encoding): one form per value. Memory is in proportion to the input: a long run is at
//! most [`BlockBitmap::BLOCKS_MAX`] / 65,536 containers of a few bytes.

use std::ops::Range;

use super::BlockBitmap;
use crate::RangeSet;
use crate::encoding::{DecodeError, Reader, Writer};

const RUNS: u8 = 0;
const BITS: u8 = 1;

impl BlockBitmap {
    /// Writes it.
    ///
    /// ```
    /// use elbow_ranges::{BlockBitmap, encoding::{Reader, Writer}};
    ///
    /// let mut blocks = BlockBitmap::new(4096)?;
    /// blocks.insert(0..1 << 30)?;
    /// let mut writer = Writer::new();
    /// blocks.encode(&mut writer);
    /// let bytes = writer.finish();
    /// assert_eq!(bytes.len(), 8);
    /// assert_eq!(BlockBitmap::decode(&mut Reader::new(&bytes)), Ok(blocks));
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    pub fn encode(&self, writer: &mut Writer) {
        writer.varint(self.block_bytes);
        if !self.is_shorter_as_bits() {
            writer.u8(RUNS);
            writer.ranges(&self.runs().block_runs().collect());
            return;
        }
        writer.u8(BITS);
        let span = self.block_span();
        let mut bits = vec![0_u8; (span.end - span.start).div_ceil(8) as usize];
        for block in &self.blocks {
            let bit = block - span.start;
            bits[(bit / 8) as usize] |= 1 << (bit % 8);
        }
        writer.varint(span.start);
        writer.bytes(&bits);
    }

    /// Reads what [`encode`](Self::encode) wrote. Allocates at most in proportion to the input.
    ///
    /// # Errors
    /// When it is cut short, or nothing that `encode` writes: not sorted, in the longer form, blocks past `u64::MAX`, more than
    /// [`BLOCKS_MAX`](Self::BLOCKS_MAX) of them.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let at = reader.offset();
        let bad = |what| DecodeError::BadValue { at, what };
        let mut bitmap = Self::new(reader.varint()?).map_err(|_| bad("a block has no bytes"))?;
        let form = reader.u8()?;
        match form {
            RUNS => bitmap.read_runs(&reader.ranges()?).map_err(bad)?,
            BITS => bitmap.read_bits(reader.varint()?, reader.bytes()?).map_err(bad)?,
            _ => return Err(bad("a bitmap is of a form that is not known here")),
        }
        if bitmap.is_shorter_as_bits() != (form == BITS) {
            return Err(bad("a bitmap is in its longer form"));
        }
        Ok(bitmap)
    }

    fn read_runs(&mut self, runs: &RangeSet) -> Result<(), &'static str> {
        self.check_end(runs.span().map_or(0, |span| span.end))?;
        runs.iter()
            .try_for_each(|run| self.insert_blocks(run))
            .map_err(|_| "a bitmap has too many blocks")
    }

    fn read_bits(&mut self, first: u64, bits: &[u8]) -> Result<(), &'static str> {
        let (Some(head), Some(tail)) = (bits.first(), bits.last()) else {
            return Err("a bitmap has no bits");
        };
        if head & 1 == 0 || *tail == 0 {
            return Err("a bitmap does not begin with its first block and end with its last");
        }
        let blocks = (bits.len() as u64 * 8) - u64::from(tail.leading_zeros());
        self.check_end(first.checked_add(blocks).ok_or("a block lies past 2^64")?)?;
        let count = bits.iter().map(|byte| u64::from(byte.count_ones())).sum();
        self.check_room(count).map_err(|_| "a bitmap has too many blocks")?;
        let set = (0..blocks).filter(|bit| bits[(bit / 8) as usize] >> (bit % 8) & 1 == 1);
        self.blocks
            .append(set.map(|bit| first + bit))
            .map_err(|_| "bits are out of order")?;
        Ok(())
    }

    /// Whether the last block before a block number begins below `u64::MAX`.
    fn check_end(&self, end: u64) -> Result<(), &'static str> {
        match end.saturating_sub(1).checked_mul(self.block_bytes) {
            None | Some(u64::MAX) => Err("a block lies past 2^64"),
            Some(_) => Ok(()),
        }
    }

    fn is_shorter_as_bits(&self) -> bool {
        let span = self.block_span();
        let bytes = (span.end - span.start).div_ceil(8);
        let as_bits = varint_bytes(span.start) + varint_bytes(bytes) + bytes;
        // Each run takes 2 bytes or more: stop counting when it is decided.
        let mut as_runs = 1;
        let mut count = 0;
        let mut before = 0;
        for run in self.runs().block_runs() {
            as_runs += varint_bytes(run.start - before) + varint_bytes(run.end - run.start);
            before = run.end;
            count += 1;
            if as_runs > as_bits {
                return true;
            }
        }
        as_runs - 1 + varint_bytes(count) > as_bits
    }

    /// From the first block to the last.
    fn block_span(&self) -> Range<u64> {
        self.blocks.min().unwrap_or(0)..self.blocks.max().map_or(0, |last| last + 1)
    }
}

fn varint_bytes(value: u64) -> u64 {
    u64::from((u64::BITS - (value | 1).leading_zeros()).div_ceil(7))
}
