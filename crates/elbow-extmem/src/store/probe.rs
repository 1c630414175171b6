//! Whether the file system keeps track of holes as a free map needs it.
//!
//! ```text
//!   blocks of a new file:   | header | data | never written | zeros | punched | data |
//!   data must be found in:      x       x                       x                 x
//! ```
//!
//! Asked before and after a sync, since some file systems decide when they write. A file system that takes written
//! zeros for a hole, that cannot punch, or whose holes are larger than a block, is found out by this.

use std::io::IoSlice;

use elbow_file::{Errno, Handle, Result, Storage};

use super::layout::HEADER_BYTES;

/// Of larger blocks only so much is written: holes are not that large.
const WRITTEN_BYTES_MAX: u64 = 1 << 20;
/// The expected answer; see the header.
const HAS_DATA: [bool; 6] = [true, true, false, true, false, true];

/// Whether holes can be the free map of this file, which has just a header. Leaves it as it was.
///
/// # Errors
/// Those of the storage, but for the refusal to punch.
pub(super) fn holes_can_be_trusted(storage: &dyn Storage, file: &Handle, unit: u64) -> Result<bool> {
    let fragment = storage.space(file)?.fragment_bytes;
    if fragment > unit || !unit.is_multiple_of(fragment.max(1)) {
        return Ok(false);
    }
    let answer = probe(storage, file, unit);
    storage.truncate(file, HEADER_BYTES)?;
    match answer {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
        answer => answer,
    }
}

fn probe(storage: &dyn Storage, file: &Handle, unit: u64) -> Result<bool> {
    let length = unit.min(WRITTEN_BYTES_MAX) as usize;
    for (block, byte) in [(1, 0xa5), (3, 0), (4, 0xa5), (5, 0xa5)] {
        storage.write(file, &[IoSlice::new(&vec![byte; length])], block * unit)?;
    }
    storage.punch(file, 4 * unit, unit)?;
    let before = blocks_with_data(storage, file, unit)?;
    storage.sync(file)?;
    Ok(before == HAS_DATA && blocks_with_data(storage, file, unit)? == HAS_DATA)
}

fn blocks_with_data(storage: &dyn Storage, file: &Handle, unit: u64) -> Result<[bool; 6]> {
    let mut blocks = [false; 6];
    let mut offset = 0;
    while let Some((start, end)) = storage.next_data(file, offset)? {
        let end_block = end.div_ceil(unit).min(blocks.len() as u64);
        (start / unit..end_block).for_each(|block| blocks[block as usize] = true);
        offset = end;
    }
    Ok(blocks)
}
