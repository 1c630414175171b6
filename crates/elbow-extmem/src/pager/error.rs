//! What can go wrong with memory that is larger than memory.

use elbow_file::Errno;

use crate::store::StoreError;

/// Why there is no such memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PagerError {
    /// The kernel does not let this process serve its own page faults.
    #[error(
        "userfaultfd is not permitted here ({errno}): it takes Linux 5.11 or newer, and in a container a seccomp \
         profile that allows it"
    )]
    NotPermitted {
        /// What the kernel said.
        errno: Errno,
    },
    /// Sizes that make no sense.
    #[error("memory of {len} bytes with {resident_bytes} of them resident cannot be: at least 1 MiB must be resident")]
    Sizes {
        /// The length asked for.
        len: usize,
        /// The budget asked for.
        resident_bytes: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused something else.
    #[error("cannot {what}: {errno}")]
    System {
        /// The call that failed, in words.
        what: &'static str,
        /// What the system said.
        errno: Errno,
    },
}
