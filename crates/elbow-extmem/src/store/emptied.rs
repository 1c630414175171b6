//! A store without blocks, in one block of the disk.
//!
//! An ext4 file that was in thousands of pieces keeps index blocks of its extent tree until it has no extent at all, and
//! the header is one. So the header is put aside in an extended attribute, the file is cut to nothing, and the
//! header is written again. A crash in between leaves a file with the attribute and no header, which opening puts right.

use std::ffi::OsStr;
use std::io::IoSlice;

use elbow_file::{Errno, Handle, Storage};

use super::layout::{HEADER_BYTES, Layout};

/// Holds the sealed header of a store that was emptied.
const ATTRIBUTE: &str = "user.elbow.block-store";
/// A store without blocks may take so many of the file system's.
const BLOCKS_MAX: u64 = 2;
/// Of `st_blocks`.
const SECTOR_BYTES: u64 = 512;

/// Cuts the file of a store without blocks to its header; gives its index back too where attributes can be had.
pub(super) fn cut_to_header(storage: &dyn Storage, file: &Handle, layout: &Layout) -> Result<(), Errno> {
    if storage.stat_handle(file)?.size > 0 {
        storage.truncate(file, HEADER_BYTES)?;
        let unit = storage.space(file)?.fragment_bytes.max(layout.unit);
        let is_small = storage.stat_handle(file)?.blocks * SECTOR_BYTES <= BLOCKS_MAX * unit;
        if is_small || !put_header_aside(storage, file, layout)? {
            return Ok(());
        }
        storage.truncate(file, 0)?;
    }
    write_header(storage, file, layout)
}

/// The layout of a store that died while it was emptied; its header is written again.
pub(super) fn restore_header(storage: &dyn Storage, file: &Handle) -> Result<Option<Layout>, Errno> {
    if storage.stat_handle(file)?.size > HEADER_BYTES {
        return Ok(None);
    }
    let aside = storage.get_xattr_handle(file, OsStr::new(ATTRIBUTE));
    let Some(layout) = aside.ok().and_then(|header| Layout::decode(&header).ok()) else {
        return Ok(None);
    };
    write_header(storage, file, &layout)?;
    storage.sync(file)?;
    Ok(Some(layout))
}

/// Whether the header is durable beside the content of the file.
fn put_header_aside(storage: &dyn Storage, file: &Handle, layout: &Layout) -> Result<bool, Errno> {
    let header = layout.encode_sealed();
    let put = storage.set_xattr_handle(file, OsStr::new(ATTRIBUTE), &header);
    Ok(put.is_ok() && storage.sync(file).map(|()| true)?)
}

fn write_header(storage: &dyn Storage, file: &Handle, layout: &Layout) -> Result<(), Errno> {
    storage.write(file, &[IoSlice::new(&layout.encode())], 0)
}
