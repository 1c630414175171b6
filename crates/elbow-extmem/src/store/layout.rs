//! The header, and where blocks lie in the file.
//!
//! ```text
//!   holes:   | header | a hole | block 0 | block 1 | ...          all of one block's size
//!   bitmap:  | header | map page 0 twice | blocks 0 to 32447 | map page 1 twice | blocks 32448 to 64895 | ...
//!
//!   header:  magic "ELBOWBLK", version 1, block size in bytes (u64 LE), free map (u8), checksums (bool), CRC-32
//! ```
//!
//! The hole behind the header is never written: a store whose file has data there was copied without its holes, or to
//! where holes are larger. The pages of a bitmap take as many whole blocks as they need, so that all blocks are
//! aligned. Blocks with checksums have the last eight of their bytes for that: CRC-32 of their number and content, and
//! zeros.

use std::ops::Range;

use elbow_ranges::encoding::{DecodeError, ENVELOPE_BYTES, Reader, Writer, open_sealed, seal};

const MAGIC: [u8; 8] = *b"ELBOWBLK";
const VERSION: u16 = 1;
/// Bytes of one copy of a page of the bitmap.
pub(super) const PAGE_BYTES: usize = 4096;
/// In front of its bits: its number and version.
pub(super) const PAGE_PREFIX_BYTES: usize = 16;
/// Its bits, in words of 64.
pub(super) const PAGE_WORDS: usize = (PAGE_BYTES - ENVELOPE_BYTES - PAGE_PREFIX_BYTES) / 8;
/// Blocks of one page.
pub(super) const BLOCKS_PER_PAGE: u64 = 64 * PAGE_WORDS as u64;
/// Bytes of a sealed header: block size, free map, checksums.
pub(super) const SEALED_BYTES: usize = ENVELOPE_BYTES + 8 + 1 + 1;
/// The smallest file: a header in a sector of its own, which is written whole or not at all.
pub(super) const HEADER_BYTES: u64 = 512;
/// Bytes at the end of a block with a checksum.
pub(super) const CHECKSUM_BYTES: u64 = 8;
/// Blocks are made of sectors.
const BLOCK_BYTES_UNIT: u64 = 512;
/// A block is read and written in one piece of memory.
const BLOCK_BYTES_MAX: u64 = 1 << 30;
/// The free map costs two bits of memory for each block: 4 GiB for these.
pub(super) const BLOCKS_MAX: u64 = 1 << 34;

/// The largest file has 2^63 - 1 bytes; a half of that leaves room for a map.
const FILE_BYTES_MAX: u64 = 1 << 62;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Size of a block in the file, its checksum included.
    pub(super) unit: u64,
    /// Whether a bitmap in the file is the free map; else its holes are.
    pub(super) has_bitmap: bool,
    pub(super) has_checksums: bool,
}

impl Layout {
    /// The header as it is in the file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut header = self.encode_sealed();
        header.resize(HEADER_BYTES as usize, 0);
        header
    }

    pub(super) fn encode_sealed(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        self.unit.to_le_bytes().iter().for_each(|&byte| writer.u8(byte));
        writer.bool(self.has_bitmap);
        writer.bool(self.has_checksums);
        seal(MAGIC, VERSION, &writer.finish())
    }

    pub(super) fn decode(header: &[u8]) -> Result<Self, DecodeError> {
        let sealed = &header[..SEALED_BYTES.min(header.len())];
        let (_, body) = open_sealed(MAGIC, VERSION..=VERSION, sealed)?;
        let mut reader = Reader::new(body);
        let layout = Self {
            unit: u64::from_le_bytes(reader.array()?),
            has_bitmap: reader.bool()?,
            has_checksums: reader.bool()?,
        };
        reader.finish()?;
        if Self::allows(layout.unit) {
            Ok(layout)
        } else {
            Err(DecodeError::BadValue {
                at: 0,
                what: "a block size is a multiple of 512, at most 2^30",
            })
        }
    }

    /// Whether blocks can have this size.
    pub(super) fn allows(block_bytes: u64) -> bool {
        block_bytes.is_multiple_of(BLOCK_BYTES_UNIT) && (BLOCK_BYTES_UNIT..=BLOCK_BYTES_MAX).contains(&block_bytes)
    }

    /// How many blocks there can be: the last must end within the largest file.
    pub(super) fn blocks_max(&self) -> u64 {
        BLOCKS_MAX.min(FILE_BYTES_MAX / self.unit)
    }

    /// Bytes of a block that hold what is written to it.
    pub(super) fn payload(&self) -> u64 {
        self.unit - if self.has_checksums { CHECKSUM_BYTES } else { 0 }
    }

    /// Where a block begins.
    pub(super) fn offset_of(&self, block: u64) -> u64 {
        let before = if self.has_bitmap {
            1 + (block / BLOCKS_PER_PAGE + 1) * self.page_units()
        } else {
            2
        };
        (before + block) * self.unit
    }

    /// The hole that is always there, in a store with holes.
    pub(super) fn hole(&self) -> Range<u64> {
        self.unit..2 * self.unit
    }

    /// Where the copies of a page of the bitmap begin.
    pub(super) fn page_offset(&self, page: u64) -> u64 {
        self.offset_of(page * BLOCKS_PER_PAGE) - self.page_units() * self.unit
    }

    /// Where the file ends that holds so many blocks.
    pub(super) fn file_end(&self, blocks: u64) -> u64 {
        match blocks.checked_sub(1) {
            Some(last) => self.offset_of(last) + self.unit,
            None => HEADER_BYTES,
        }
    }

    /// The blocks that a range of the file touches, of all there may be.
    pub(super) fn blocks_in(&self, range: Range<u64>) -> Range<u64> {
        self.blocks_before(range.start / self.unit)..self.blocks_before(range.end.div_ceil(self.unit))
    }

    /// How many blocks lie in so many units of the file.
    fn blocks_before(&self, units: u64) -> u64 {
        if !self.has_bitmap {
            return units.saturating_sub(2);
        }
        let (pages, units) = (self.page_units(), units.saturating_sub(1));
        let group = units / (pages + BLOCKS_PER_PAGE);
        let in_group = units % (pages + BLOCKS_PER_PAGE);
        group * BLOCKS_PER_PAGE + in_group.saturating_sub(pages)
    }

    /// How many blocks in a row, from one on, lie next to each other.
    pub(super) fn contiguous_from(&self, block: u64) -> u64 {
        if self.has_bitmap {
            BLOCKS_PER_PAGE - block % BLOCKS_PER_PAGE
        } else {
            BLOCKS_MAX
        }
    }

    fn page_units(&self) -> u64 {
        (2 * PAGE_BYTES as u64).div_ceil(self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        unit: 4096,
        has_bitmap: true,
        has_checksums: true,
    };

    #[test]
    fn headers_are_what_was_encoded_and_nothing_else() {
        let header = LAYOUT.encode();
        assert_eq!(Layout::decode(&header), Ok(LAYOUT));
        for byte in 0..SEALED_BYTES {
            let mut damaged = header.clone();
            damaged[byte] ^= 0x10;
            assert!(Layout::decode(&damaged).is_err(), "byte {byte}");
            assert!(Layout::decode(&header[..byte]).is_err(), "{byte} bytes");
        }
    }

    #[test]
    fn a_block_size_that_cannot_be_is_an_error() {
        for unit in [0, 1, 511, 513, 1 << 31, !511] {
            let header = Layout { unit, ..LAYOUT }.encode();
            assert!(
                matches!(Layout::decode(&header), Err(DecodeError::BadValue { .. })),
                "{unit}"
            );
        }
    }

    #[test]
    fn blocks_and_pages_of_the_bitmap_do_not_overlap() {
        for unit in [512, 4096, 12288, 1 << 20] {
            let layout = Layout { unit, ..LAYOUT };
            for page in 0..3 {
                let (first, pages) = (page * BLOCKS_PER_PAGE, layout.page_offset(page));
                let before = first.checked_sub(1).map_or(unit, |last| layout.offset_of(last) + unit);
                assert_eq!(pages, before, "unit {unit}");
                assert!(pages + 2 * PAGE_BYTES as u64 <= layout.offset_of(first), "unit {unit}");
                assert_eq!(layout.file_end(first + 1), layout.offset_of(first) + unit);
            }
        }
    }

    #[test]
    fn the_last_block_ends_within_the_largest_file() {
        for (unit, has_bitmap) in [
            (512, true),
            (4096, false),
            (BLOCK_BYTES_MAX, true),
            (BLOCK_BYTES_MAX, false),
        ] {
            let layout = Layout {
                unit,
                has_bitmap,
                ..LAYOUT
            };
            assert!(i64::try_from(layout.file_end(layout.blocks_max())).is_ok());
        }
    }

    #[test]
    fn blocks_are_found_by_where_they_lie() {
        for has_bitmap in [false, true] {
            let layout = Layout { has_bitmap, ..LAYOUT };
            for block in [0, 1, BLOCKS_PER_PAGE - 1, BLOCKS_PER_PAGE, 5 * BLOCKS_PER_PAGE + 7] {
                let start = layout.offset_of(block);
                assert_eq!(layout.blocks_in(start..start + 1), block..block + 1);
                assert_eq!(layout.blocks_in(0..start + layout.unit), 0..block + 1);
            }
            assert!(layout.blocks_in(0..2 * layout.unit).is_empty());
        }
    }
}
