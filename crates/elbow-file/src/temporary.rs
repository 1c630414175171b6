//! Temporary files without a name: gone when they are closed, however the process ends.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::retry_on_intr;

use crate::{Errno, Handle, RealStorage, Result};

/// Names that are tried where files cannot be made without one.
const NAMES_MAX: u32 = 100;

impl RealStorage {
    /// A new file in a directory (links to it are followed), for reading and writing, without a name.
    ///
    /// ```
    /// use std::io::IoSlice;
    ///
    /// use elbow_file::{RealStorage, Storage};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let file = RealStorage::temporary(directory.path())?;
    /// RealStorage.write(&file, &[IoSlice::new(b"for a while")], 0)?;
    /// assert_eq!(std::fs::read_dir(directory.path())?.count(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of open(2) and unlink(2).
    pub fn temporary(directory: &Path) -> Result<Handle> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match retry_on_intr(|| rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)) {
            // EISDIR: a kernel or file system that takes the flag for an attempt to write to the directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => unlinked(directory),
            opened => opened.map(Handle::new),
        }
    }
}

/// A file that has a name for a moment.
fn unlinked(directory: &Path) -> Result<Handle> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    for _ in 0..NAMES_MAX {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".elbow-temporary-{}-{number}", std::process::id()));
        match retry_on_intr(|| rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)) {
            Err(Errno::EXIST) => (),
            Err(errno) => return Err(errno),
            Ok(file) => {
                retry_on_intr(|| rustix::fs::unlink(&path))?;
                return Ok(Handle::new(file));
            }
        }
    }
    Err(Errno::EXIST)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::Storage;

    #[test]
    fn a_file_that_had_a_name_for_a_moment_is_as_good() {
        let directory = tempfile::tempdir().expect("a directory");
        for file in [RealStorage::temporary(directory.path()), unlinked(directory.path())] {
            let file = file.expect("a temporary file");
            RealStorage.write(&file, &[IoSlice::new(b"text")], 0).expect("room");
            let mut text = [0; 8];
            assert_eq!(RealStorage.read(&file, &mut text, 0), Ok(4));
            assert_eq!(RealStorage.stat_handle(&file).map(|stat| stat.nlink), Ok(0));
        }
        assert_eq!(std::fs::read_dir(directory.path()).expect("the directory").count(), 0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(
            RealStorage::temporary(&directory.path().join("x")).unwrap_err(),
            Errno::NOENT
        );
    }
}
