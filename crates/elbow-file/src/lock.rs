//! Locks of files that end with their process.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::os::fd::{AsFd, AsRawFd};

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

/// The byte that is locked: far behind the end of any file, for where locks are mandatory nobody could read the file.
const LOCKED_OFFSET: libc::off_t = 1 << 40;

/// See [`Storage::try_lock`](crate::Storage::try_lock). It is a lock of a byte range: file systems that are mounted on several
/// machines carry those, an NFS server's own programs see them too, and nothing of that holds for flock(2).
///
/// Source: fcntl(2) on open file description locks.
pub(crate) fn try_lock_open_file(file: &Handle) -> Result<bool> {
    match set_lock(file, libc::F_WRLCK) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Gives up a lock that [`Storage::try_lock`](crate::Storage::try_lock) took, before the file is closed: closing alone leaves
/// the lock with a child process that is just being started, which has a descriptor of the file until it begins its program.
/// A file that is open elsewhere is unlocked there when it is closed, and nothing happens here.
///
/// Source: fcntl(2) on open file description locks.
///
/// ```
/// use std::ffi::OsStr;
/// use elbow_file::{Access, RealStorage, Storage, unlock_open_file};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let first = RealStorage.create(&root, OsStr::new("file"), 0o600)?;
/// let second = RealStorage.open(&root, OsStr::new("file"), Access::ReadWrite)?;
/// assert!(RealStorage.try_lock(&first)?);
/// unlock_open_file(&first)?;
/// assert!(RealStorage.try_lock(&second)?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Those of fcntl(2).
pub fn unlock_open_file(file: &Handle) -> Result<()> {
    match file.is_here() {
        true => set_lock(file, libc::F_UNLCK),
        false => Ok(()),
    }
}

fn set_lock(file: &Handle, kind: libc::c_int) -> Result<()> {
    // SAFETY: all fields are integers, for which zero is a value; `l_pid` must be zero.
    #[allow(unsafe_code)]
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = LOCKED_OFFSET;
    lock.l_len = 1;
    retry_on_intr(|| {
        // SAFETY: the descriptor is open, and the command reads the structure that it is given.
        #[allow(unsafe_code)]
        match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
            -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
            _ => Ok(()),
        }
    })
}
