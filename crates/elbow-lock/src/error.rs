//! What can go wrong between a client and its lock service.

use elbow_ranges::encoding::DecodeError;

use crate::address::{Address, BadAddress};
use crate::message::{FileName, Refusal};

/// Why a client has no lock, or not any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A text that is no address.
    #[error(transparent)]
    BadAddress(#[from] BadAddress),
    /// There is nobody to talk to.
    #[error("cannot reach the lock service at {address}: {source}")]
    Unreachable {
        /// Where it should be.
        address: Address,
        /// What the system said.
        source: std::io::Error,
    },
    /// Client and service do not come together.
    #[error("the lock service at {address} does not let us in: {why}")]
    Rejected {
        /// Where it is.
        address: Address,
        /// Its reason or ours.
        why: String,
    },
    /// What came is not the protocol.
    #[error("the lock service at {address} sent something else than locks: {source}")]
    Garbled {
        /// Where it is.
        address: Address,
        /// What was wrong.
        source: DecodeError,
    },
    /// The service answered no.
    #[error("no lock on {file}: {why}")]
    Refused {
        /// Of which file.
        file: FileName,
        /// Its reason.
        why: Refusal,
    },
    /// A lock that was held is held no more: do no I/O under it.
    #[error("the lock on {file} was lost: {why}")]
    Lost {
        /// Of which file.
        file: FileName,
        /// What happened, for people.
        why: String,
    },
    /// What was asked for came with a later version of the service.
    #[error(
        "the lock service at {address} is older than this program and cannot {what}: restart it with this version ({why})"
    )]
    TooOld {
        /// Where it is.
        address: Address,
        /// What it was asked to do.
        what: &'static str,
        /// How we know.
        why: String,
    },
    /// The service does not do that for us.
    #[error("the lock service at {address} did not do it: {why}")]
    Denied {
        /// Where it is.
        address: Address,
        /// Its reason.
        why: String,
    },
    /// A signal ended the wait (only where that was asked for).
    #[error("interrupted by a signal while waiting for a lock on {file}")]
    Interrupted {
        /// Of which file.
        file: FileName,
    },
    /// A list of ranges without any pattern, too long for one request.
    #[error(
        "a lock on {file} of {bytes} bytes of description; the limit is {}",
        crate::wire::FRAME_BYTES_MAX
    )]
    TooLong {
        /// Of which file.
        file: FileName,
        /// What its description takes.
        bytes: usize,
    },
    /// A path that cannot be followed.
    #[error("cannot find {}: {source}", .path.display())]
    BadPath {
        /// As it was given.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A name that no file has.
    #[error("a file's name has 1 to 4096 bytes, this one {bytes}")]
    BadName {
        /// Its length.
        bytes: usize,
    },
}
