//! Why a file is not consumed, or not to its end.

use std::path::PathBuf;

use elbow_file::Errno;

use crate::size;

/// Why a line of the reader counts for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadConfirmation {
    #[error("`{0}` is no number of bytes")]
    NoNumber(String),
    #[error(
        "{confirmed} bytes, after {before} were confirmed: they are counted from the beginning of what this run gave"
    )]
    Backwards { confirmed: u64, before: u64 },
    #[error("{confirmed} bytes, and only {given} were given")]
    TooMany { confirmed: u64, given: u64 },
}

/// Why a file is not consumed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConsumeError {
    #[error("standard output is no pipe; write: elbow consume FILE | COMMAND")]
    NoPipe,
    #[error("{}: its file system cannot free parts of it: {}", path.display(), system(*errno))]
    CannotPunch { path: PathBuf, errno: Errno },
    #[error("{}: another elbow consumes it just now", .0.display())]
    InUse(PathBuf),
    #[error("{}: is of another file than {}; name another one, or remove it if nobody needs it", checkpoint.display(), path.display())]
    OtherFile { checkpoint: PathBuf, path: PathBuf },
    #[error("{}: is no checkpoint, or is damaged: {reason}", path.display())]
    Damaged {
        path: PathBuf,
        reason: elbow_ranges::encoding::DecodeError,
    },
    #[error("{}: was written by another version of elbow (version {found} of its format); consume the rest with that one", path.display())]
    OtherVersion { path: PathBuf, found: u16 },
    #[error(
        "{}: what was consumed has content again at byte {at}: it was written anew since. If all that it holds now is to be given, remove {}",
        path.display(), checkpoint.display()
    )]
    WrittenAnew {
        path: PathBuf,
        at: u64,
        checkpoint: PathBuf,
    },
    #[error("{}: has {size} bytes, and {consumed} of it were consumed: it was made shorter", path.display())]
    Shrunk { path: PathBuf, size: u64, consumed: u64 },
    #[error(
        "{}: begins with a hole of {}, and there is no {}: was it consumed with another --checkpoint? Name that one; or --sparse, if the hole is its own",
        path.display(), size::show(*bytes), checkpoint.display()
    )]
    Hole {
        path: PathBuf,
        bytes: u64,
        checkpoint: PathBuf,
    },
    #[error("standard error goes into the same pipe, whose reader would never see its end; leave out `2>&1`, or `|&`")]
    OwnErrors,
    #[error("--confirm {}: no pipe; name a descriptor or a FIFO (mkfifo)", .0.display())]
    NoChannel(PathBuf),
    #[error("--confirm {}: that is the standard output, where the file goes; its reader needs another way back", .0.display())]
    OwnOutput(PathBuf),
    #[error(
        "--confirm {number}: no descriptor of this number is open; open it with {number}<FIFO, or name the FIFO (mkfifo)"
    )]
    NoDescriptor { number: String },
    #[error("line {line} of what the reader confirms: {reason}")]
    Confirmation { line: u64, reason: BadConfirmation },
    #[error("{tried} {}: {}", path.display(), system(*errno))]
    Storage {
        tried: &'static str,
        path: PathBuf,
        errno: Errno,
    },
}

fn system(errno: Errno) -> String {
    crate::output::strerror(errno.raw_os_error())
}

/// An error of the system, with what was tried on what.
pub(super) fn failed(tried: &'static str, path: &std::path::Path) -> impl Fn(Errno) -> ConsumeError {
    let path = path.to_owned();
    move |errno| ConsumeError::Storage {
        tried,
        path: path.clone(),
        errno,
    }
}
