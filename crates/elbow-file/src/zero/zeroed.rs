//! What became of ranges that were to be zeroed.

use std::io;

use elbow_ranges::RangeSet;

use crate::Errno;

/// What became of the ranges that were to be zeroed.
///
/// ```
/// use elbow_file::Zeroed;
/// use elbow_ranges::RangeSet;
///
/// let on_a_full_disk = Zeroed {
///     zeroed_bytes: 4096,
///     deferred: RangeSet::from_iter([8192..12_288, 20_000..20_001]),
///     ..Zeroed::default()
/// };
/// assert_eq!(on_a_full_disk.complete().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "`deferred` may hold ranges that still have their old content"]
pub struct Zeroed {
    /// Bytes of the ranges that read as zeros now: all but the deferred.
    pub zeroed_bytes: u64,
    /// Bytes handed back to the file system (in whole blocks; it has written the edges).
    pub punched_bytes: u64,
    /// Bytes that could not be punched and were overwritten with zeros.
    pub written_bytes: u64,
    /// What the file system had no room to punch or to overwrite, not even after a sync: *it may still have its old content*,
    /// and the file may still be shorter. Free something, or take more at once, and zero it again.
    pub deferred: RangeSet,
}

impl Zeroed {
    /// The bytes zeroed, if that is all of them.
    ///
    /// # Errors
    /// ENOSPC when a part was deferred.
    pub fn complete(self) -> io::Result<u64> {
        match self.deferred.is_empty() {
            true => Ok(self.zeroed_bytes),
            false => Err(Errno::NOSPC.into()),
        }
    }
}
