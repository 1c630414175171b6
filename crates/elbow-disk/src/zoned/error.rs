//! Why a zoned device cannot be used.

use elbow_file::Errno;

/// Why a storage in zones is no [`ZonedDevice`](super::ZonedDevice).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZonedError {
    /// The storage failed.
    #[error("{what}: {errno}")]
    Storage {
        /// What was tried.
        what: &'static str,
        /// How it failed.
        errno: Errno,
    },
    /// Too few zones that can be written.
    #[error(
        "of the zones {found} are left for data, and {needed} are needed (and two more where none is conventional); take a larger device"
    )]
    TooFew {
        /// Those that are written in order and not offline.
        found: usize,
        /// What is needed.
        needed: usize,
    },
    /// Too few zones may be written in part.
    #[error("the device lets {found} of its zones be written in part, and {needed} are needed; take another one")]
    Active {
        /// What the device allows.
        found: u32,
        /// What is needed.
        needed: u32,
    },
}
