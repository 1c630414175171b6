//! The usual case, with no more code than it takes: one range inside a regular file, on a file system that punches holes.
//!
//! Who frees a file does so once, with all of this out of the processor's caches: there the way through handles, the seam
//! and range sets costs more than the four system calls. Only what is sure to be complete is done here. Everything else is left to
//! the general way, which does it again from the beginning: to punch a range twice is no different from once.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::os::fd::BorrowedFd;

use rustix::fs::{FallocateFlags, FileType, OFlags};

use super::zeroed::Zeroed;

/// Zeroes a range, if that is all there is to it: nothing to extend, nothing to write, times set by the file system.
pub(super) fn punched(fd: BorrowedFd<'_>, offset: u64, n: u64) -> Option<Zeroed> {
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    let before = rustix::fs::fstat(fd).ok()?;
    // A device takes a punch, too, and discards what it holds.
    let is_file = FileType::from_raw_mode(before.st_mode) == FileType::RegularFile;
    let size = u64::try_from(before.st_size).ok()?;
    if !is_file || flags.contains(OFlags::APPEND) || offset.checked_add(n)? > size {
        return None;
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(fd, punch, offset, n).ok()?;
    let after = rustix::fs::fstat(fd).ok()?;
    let is_stamped = (after.st_mtime, after.st_mtime_nsec) != (before.st_mtime, before.st_mtime_nsec);
    is_stamped.then(|| Zeroed {
        zeroed_bytes: n,
        punched_bytes: n,
        ..Zeroed::default()
    })
}
