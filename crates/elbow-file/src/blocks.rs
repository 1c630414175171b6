//! Pieces of a file in memory, and which of their blocks are all zeros.

use std::ops::Range;

use elbow_ranges::RangeSet;

use crate::zero::ZEROS;
use crate::{Handle, Result, Storage};

/// What `O_DIRECT` wants memory to be aligned to.
const ALIGNMENT: usize = 4096;

/// Room for one piece of a file, aligned in memory so that it can be read with `O_DIRECT`.
pub(crate) struct Piece {
    room: Vec<u8>,
    aligned: usize,
}

impl Piece {
    /// Room for so many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let room = vec![0; bytes as usize + ALIGNMENT];
        let aligned = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Self { room, aligned }
    }

    /// Reads a range that fits in; fewer bytes only at the end of the file.
    pub(crate) fn read(&mut self, storage: &dyn Storage, file: &Handle, range: Range<u64>) -> Result<&[u8]> {
        let length = (range.end - range.start) as usize;
        let buffer = &mut self.room[self.aligned..][..length];
        let read = storage.read(file, buffer, range.start)?;
        Ok(&buffer[..read])
    }
}

/// The blocks of a file that hold zeros only, among the bytes read from an offset on. Blocks are counted from the
/// beginning of the file; the parts of blocks at both ends are looked at as they are.
pub(crate) fn zero_blocks(at: u64, bytes: &[u8], block_bytes: u64) -> RangeSet {
    let mut zeros = RangeSet::new();
    let mut rest = bytes;
    let mut start = at;
    while !rest.is_empty() {
        let to_boundary = (block_bytes - start % block_bytes) as usize;
        let (block, behind) = rest.split_at(to_boundary.min(rest.len()));
        let end = start + block.len() as u64;
        if ZEROS.equal(block) {
            zeros.insert(start, end);
        }
        (rest, start) = (behind, end);
    }
    zeros
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_from_the_beginning_of_the_file() {
        let mut bytes = vec![0; 20];
        bytes[9] = 1; // byte 15 of the file
        let found = zero_blocks(6, &bytes, 8);
        assert_eq!(found, RangeSet::from_iter([6..8, 16..26]));
        assert!(zero_blocks(5, &[], 8).is_empty());
        assert_eq!(zero_blocks(0, &[1; 30], 8), RangeSet::new());
    }
}
