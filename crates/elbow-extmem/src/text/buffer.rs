//! Memory in whole pages, so that files can be read and written past the page cache.

use memmap2::{Advice, MmapMut};

use super::error::{Result, TextError};

/// Zeros at first; what is never touched is never taken.
pub(super) type Buffer = MmapMut;

/// Smaller ones gain nothing from huge pages.
const HUGE_PAGE_BYTES: usize = 2 << 20;

pub(super) fn buffer(bytes: usize) -> Result<Buffer> {
    let mapped = MmapMut::map_anon(bytes.max(1));
    let buffer = mapped.map_err(|reason| TextError::Memory { bytes, reason })?;
    if bytes >= HUGE_PAGE_BYTES {
        // A sort jumps about in it. Only a wish.
        let _ = buffer.advise(Advice::HugePage);
    }
    Ok(buffer)
}

/// The largest multiple of a direct file's alignment that is no more; less than that stays as it is.
pub(super) fn whole_pages(bytes: usize) -> usize {
    if bytes < elbow_file::DIRECT_ALIGNMENT {
        bytes
    } else {
        bytes / elbow_file::DIRECT_ALIGNMENT * elbow_file::DIRECT_ALIGNMENT
    }
}
