//! What zeroing costs on a file system: found out by trying it on a file that nobody knows.

use std::io;
use std::os::fd::AsFd;

use super::write_zeros;
use crate::open::nameless_sibling;
use crate::{Errno, Handle, RealStorage, Result, Storage};

/// Enough for one block of any file system, twice.
const PROBE_BYTES: u64 = 2 << 16;

/// How the file system of a file zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroSupport {
    /// It punches holes: zeroing costs next to nothing, and frees blocks.
    Punches,
    /// It cannot: zeros are written over what is there, and no block is freed.
    Writes,
}

impl ZeroSupport {
    /// Asks the file system of an open file, by punching a hole into a nameless file beside it. The file itself is not
    /// touched: a punch that changes no byte, of an empty range, tells nothing, and one past the end changes the times.
    ///
    /// ```
    /// use elbow_file::ZeroSupport;
    ///
    /// let file = tempfile::NamedTempFile::new()?;
    /// match ZeroSupport::of(&file)? {
    ///     ZeroSupport::Punches => println!("zeroing frees blocks"),
    ///     ZeroSupport::Writes => println!("zeroing writes zeros"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of open(2) with `O_TMPFILE` in the directory of the file, where one has to be able to write (EACCES, EROFS, EOPNOTSUPP);
    /// EXDEV when the directory is not to be found any more. Zeroing itself needs no probe: it tries, and [`Zeroed`](crate::Zeroed)
    /// says what it did.
    pub fn of(fd: impl AsFd) -> io::Result<Self> {
        Ok(Self::of_scratch(&RealStorage, &nameless_sibling(fd.as_fd())?)?)
    }

    /// Asks by way of a file whose content nobody needs: the first 128 KiB of it are overwritten.
    ///
    /// ```
    /// use elbow_file::{RealStorage, ZeroSupport};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let scratch = RealStorage::temporary(directory.path())?;
    /// println!("{:?}", ZeroSupport::of_scratch(&RealStorage, &scratch)?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of writing and punching, but for EOPNOTSUPP, which is an answer.
    pub fn of_scratch(storage: &dyn Storage, file: &Handle) -> Result<Self> {
        write_zeros(storage, file, 0..PROBE_BYTES)?;
        match storage.punch(file, 0, PROBE_BYTES / 2) {
            Ok(()) => Ok(Self::Punches),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Self::Writes),
            Err(errno) => Err(errno),
        }
    }
}
