//! What has become of data that the page cache took.

use std::os::fd::{AsFd, AsRawFd};

use crate::{Errno, Handle, Result};

/// Says whether the kernel failed to bring to the disk what was written to a file since it was opened: such data may be
/// gone although write(2) took it. Neither writes nor waits; what has not been tried yet is not known.
///
/// # Errors
/// The error of the disk (EIO, ENOSPC, EDQUOT), once for each open file.
///
/// Source: sync_file_range(2), which also says what fsync(2) would of earlier failures; here of a range that holds nothing.
///
/// ```
/// use elbow_file::{RealStorage, check_written};
///
/// let directory = tempfile::tempdir()?;
/// let file = RealStorage::temporary(directory.path())?;
/// check_written(&file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[allow(unsafe_code)]
pub fn check_written(file: &Handle) -> Result<()> {
    const NOWHERE: (i64, i64) = (i64::MAX - 4096, 4096);
    let (descriptor, (offset, bytes)) = (file.as_fd().as_raw_fd(), NOWHERE);
    // SAFETY: the descriptor is open as long as `file` is borrowed; no memory is passed.
    let failed = unsafe { libc::sync_file_range(descriptor, offset, bytes, libc::SYNC_FILE_RANGE_WAIT_BEFORE) };
    if failed == 0 {
        return Ok(());
    }
    match Errno::from_io_error(&std::io::Error::last_os_error()) {
        // A file system or descriptor without pages has nothing to tell.
        None | Some(Errno::SPIPE | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Some(errno) => Err(errno),
    }
}
