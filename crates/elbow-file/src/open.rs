//! Regular files by path, and nameless ones beside them.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use crate::real::flags_of;
use crate::stat::regular;
use crate::{Access, Errno, Handle, RealStorage, Result, Storage};

impl RealStorage {
    /// Opens a regular file by path, following symbolic links, as people name files on a command line.
    ///
    /// ```
    /// use elbow_file::{Access, Errno, RealStorage};
    ///
    /// let file = tempfile::NamedTempFile::new()?;
    /// RealStorage::open_file(file.path(), Access::ReadWrite)?;
    /// assert_eq!(RealStorage::open_file("/dev/null".as_ref(), Access::Read).unwrap_err(), Errno::NODEV);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of open(2); EISDIR, ESPIPE and ENODEV for what is no regular file.
    pub fn open_file(path: &Path, access: Access) -> Result<Handle> {
        // Looked at before it is opened, because opening a pipe waits for its other end.
        let object = retry_on_intr(|| rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))?;
        regular(RealStorage.stat_handle(&Handle::new(object))?.kind)?;
        let flags = flags_of(access);
        let file = Handle::new(retry_on_intr(|| {
            rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
        })?);
        regular(RealStorage.stat_handle(&file)?.kind)?;
        Ok(file)
    }
}

/// A file without a name in the directory that holds an open file; gone when it is closed.
pub(crate) fn nameless_sibling(fd: BorrowedFd<'_>) -> Result<Handle> {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let path = retry_on_intr(|| rustix::fs::readlink(&link, Vec::new()))?;
    let directory = Path::new(OsStr::from_bytes(path.as_bytes())).parent();
    let directory = directory
        .filter(|directory| directory.is_absolute())
        .ok_or(Errno::XDEV)?;
    let sibling = RealStorage::temporary(directory)?;
    let device = |handle: &Handle| RealStorage.stat_handle(handle).map(|stat| stat.dev);
    match device(&sibling)? == Handle::lent(fd, device)? {
        true => Ok(sibling),
        false => Err(Errno::XDEV),
    }
}
