//! Whole-file locks that end with their process.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use rustix::fs::FlockOperation;
use rustix::io::retry_on_intr;

use crate::{Errno, Handle, Result};

/// Takes an exclusive lock on an open file, without waiting: `false` when another open file description has one.
/// It is held until the last clone of the handle is closed, or the process ends.
///
/// Source: flock(2).
///
/// ```
/// use std::ffi::OsStr;
/// use elbow_file::{Access, RealStorage, Storage, try_lock};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let first = RealStorage.create(&root, OsStr::new("file"), 0o600)?;
/// let second = RealStorage.open(&root, OsStr::new("file"), Access::ReadWrite)?;
/// assert!(try_lock(&first)?);
/// assert!(!try_lock(&second)?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of flock(2) but EWOULDBLOCK.
pub fn try_lock(file: &Handle) -> Result<bool> {
    match retry_on_intr(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Gives up a lock that [`try_lock`] took, without waiting for the last descriptor of the file to be closed: a child
/// process that is just being started has one, until it begins its program.
///
/// Source: flock(2).
///
/// ```
/// use std::ffi::OsStr;
/// use elbow_file::{Access, RealStorage, Storage, try_lock, unlock};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let first = RealStorage.create(&root, OsStr::new("file"), 0o600)?;
/// let second = RealStorage.open(&root, OsStr::new("file"), Access::ReadWrite)?;
/// assert!(try_lock(&first)?);
/// unlock(&first)?;
/// assert!(try_lock(&second)?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of flock(2).
pub fn unlock(file: &Handle) -> Result<()> {
    retry_on_intr(|| rustix::fs::flock(file, FlockOperation::Unlock))
}
