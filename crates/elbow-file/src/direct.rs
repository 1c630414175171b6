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
