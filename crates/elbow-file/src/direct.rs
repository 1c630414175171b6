//! Files past the page cache.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use crate::Handle;

/// Offsets, lengths and addresses of direct reads and writes are multiples of this, in bytes.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// f_type of btrfs (linux/magic.h).
const BTRFS: u32 = 0x9123_683e;

/// Opens an open file once more, for reading and writing past the page cache (`O_DIRECT`); `None` where the file
/// system or the mode of the file does not allow it. Every offset, length and address then has to be a multiple of
/// [`DIRECT_ALIGNMENT`]. Both handles see each other's writes.
///
/// Source: open(2), proc_pid_fd(5).
///
/// ```
/// use std::ffi::OsStr;
/// use elbow_file::{RealStorage, Storage, direct};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let file = RealStorage.create(&root, OsStr::new("file"), 0o600)?;
/// let _past_the_cache = direct(&file); // or None
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn direct(file: &Handle) -> Option<Handle> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::open(path.as_str(), flags, Mode::empty()));
    opened.ok().map(Handle::new)
}

/// Does the file system of a file keep the space of an extent until all of it is freed? Then what is to be freed piece
/// by piece is written so, one direct write for each piece: a write is an extent, and so is what the page cache has
/// collected.
///
/// Source: fs/btrfs/file.c, `btrfs_drop_extents`; statfs(2).
///
/// ```
/// use elbow_file::{RealStorage, frees_whole_extents};
///
/// let directory = tempfile::tempdir()?;
/// let file = RealStorage::temporary(directory.path())?;
/// println!("pieces: {}", frees_whole_extents(&file));
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn frees_whole_extents(file: &Handle) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type as u32 == BTRFS)
}
