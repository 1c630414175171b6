//! What can go wrong.

/// Why an operation was refused, or a run ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Ext2Error {
    /// A component of the path is not there.
    #[error("{0}: not found")]
    NotFound(String),
    /// The name is there already.
    #[error("{0}: exists already")]
    Exists(String),
    /// A component that has to be a directory is a file.
    #[error("{0}: not a directory")]
    NotADirectory(String),
    /// A directory where a file is wanted.
    #[error("{0}: is a directory")]
    IsADirectory(String),
    /// A directory to be removed has entries.
    #[error("{0}: the directory is not empty")]
    NotEmpty(String),
    /// No name that an entry can have: empty, `.`, `..`, or longer than 255 bytes.
    #[error("{0:?}: no name for a directory entry (1 to 255 bytes, not . or ..)")]
    BadName(String),
    /// A directory cannot become part of itself.
    #[error("{0}: a directory cannot be moved into itself or replaced by a file")]
    BadRename(String),
    /// No block is left for it.
    #[error("{path}: no space: {needed} blocks are needed and {free} are free")]
    NoSpace {
        /// Path of the file or directory that would have grown.
        path: String,
        /// Blocks that it needs.
        needed: u64,
        /// Blocks that are neither used nor promised.
        free: u64,
    },
    /// No inode is left.
    #[error("{0}: no inode is free")]
    NoInodes(String),
    /// Beyond the doubly indirect blocks.
    #[error("{path}: {bytes} bytes are more than a file of this model can have (4 GiB)")]
    TooLarge {
        /// Path of the file.
        path: String,
        /// Its size to be.
        bytes: u64,
    },
    /// A geometry that cannot be.
    #[error("{0}")]
    Geometry(String),
    /// An image of a file system that still has something to write.
    #[error("the image of a file system with {0} blocks to write would not be whole; sync it first")]
    NotSynced(u64),
    /// The storage refused to take an image.
    #[error("writing the image at byte {offset}: {errno}")]
    Image {
        /// Where in the image.
        offset: u64,
        /// What the storage said.
        errno: elbow_file::Errno,
    },
    /// An operation of a trace failed.
    #[error("operation {number} of the trace ({operation}): {error}")]
    Operation {
        /// Number in the trace, from 1.
        number: usize,
        /// The operation as text.
        operation: String,
        /// What the operation ran into.
        error: Box<Ext2Error>,
    },
    /// An operation of a trace that was read from a file failed.
    #[error("{file}:{line}: {operation}: {reason}")]
    Line {
        /// The file, as it was given.
        file: String,
        /// Its line, from 1.
        line: usize,
        /// The operation as text.
        operation: String,
        /// What the operation ran into.
        reason: String,
    },
    /// Whoever watched a run ended it.
    #[error("the run was ended before the trace")]
    Interrupted,
    /// All processes wait, and the disk has nothing to do.
    #[error("operation {number} of the trace ({operation}) waits for something that will not come")]
    Stuck {
        /// Number in the trace, from 1.
        number: usize,
        /// The operation as text.
        operation: String,
    },
}

/// A line of a trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {reason}")]
pub struct TraceError {
    /// Name of the trace, as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: TraceProblem,
}

/// What is wrong with a line of a trace, of strace's output, or of a listing.
///
/// ```
/// use elbow_ext2::Trace;
/// let error = Trace::parse("demo", "1 chmod").unwrap_err();
/// assert!(error.reason.to_string().starts_with("\"chmod\" is no operation"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum TraceProblem {
    /// The line is too short for its operation.
    #[error("the {0} is missing")]
    Missing(&'static str),
    /// The line is too long for its operation.
    #[error("{more:?} is more than {operation} takes")]
    TooMuch { more: String, operation: String },
    /// No number, or one that is too large.
    #[error("{what}: {word:?} is not a number from 0 to {most}")]
    NotANumber {
        what: &'static str,
        word: String,
        most: u64,
    },
    /// None of the operations.
    #[error(
        "{0:?} is no operation: mkdir, create, write, append, read, truncate, unlink, rmdir, rename, close, fsync, sync or think"
    )]
    NoOperation(String),
    /// Nobody thinks for so long.
    #[error("a thought of {0} ns is longer than a day")]
    LongThought(u64),
    /// A file cannot be so long.
    #[error("{bytes} bytes at {offset} end beyond {}", u64::MAX)]
    EndsBeyond { bytes: u64, offset: u64 },
    /// Paths are written with hexadecimal digits for what is no part of a word.
    #[error("%{0} in a path: two hexadecimal digits must follow a %")]
    BadEscape(String),
    /// Bytes that are no text.
    #[error("the path {0} is not UTF-8")]
    NotUtf8(String),
    /// No line of strace.
    #[error("{0:?} is no call as strace writes it: NAME(ARGUMENTS) = RESULT")]
    NoCall(String),
    /// strace of several processes whose calls overlap.
    #[error("a call that was interrupted by another process; trace each process for itself (strace -ff)")]
    Interrupted,
    /// No line of a listing.
    #[error("{0:?} is not a size, a tab and a path")]
    NotAListing(String),
    /// The size in a line of a listing.
    #[error("{0:?} is not a size in bytes")]
    NotASize(String),
}
