//! What can go wrong in a sort.

use std::path::{Path, PathBuf};

use elbow_file::Errno;
use elbow_ranges::encoding::DecodeError;

/// Why a sort ended without a result. Nothing is lost by any of these: an input that is not consumed is untouched,
/// one that is consumed is continued by [`resume`](super::resume).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SortError {
    /// A storage call failed; with `ENOSPC`, a sort in place can be resumed when there is room.
    #[error("{tried} {}: {errno}", path.display())]
    Storage {
        /// What was tried, as in "writing".
        tried: &'static str,
        /// Path of the file or directory that the call was about.
        path: PathBuf,
        /// What the system said.
        errno: Errno,
    },
    /// [`Meter::stop`](super::Meter::stop) was called.
    #[error("stopped as asked")]
    Stopped,
    /// The input does not consist of whole records.
    #[error(
        "{}: {size} bytes are not a whole number of {record}-byte records: the last one, at byte {}, has only {}",
        path.display(), size - size % record, size % record
    )]
    Truncated {
        /// Path of the input.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Size of a record in bytes.
        record: u64,
    },
    /// The sort cannot be done as asked.
    #[error("{0}")]
    Refused(String),
    /// Records or keys that cannot be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Less memory than such records need.
    #[error(transparent)]
    Memory(#[from] TooLittleMemory),
    /// The input of a sort in place is something that cannot be sorted in place.
    #[error("{}: cannot be sorted in place: it is not a regular file", .0.display())]
    NotAFile(PathBuf),
    /// A sort of this file was begun and has not ended.
    #[error(
        "{}: a sort in place of this file was begun and is not finished; `elbow sort --resume` continues it; \
         if the file was written anew since, remove {} to give that sort up",
        .0.display(), super::side_directory(.0).display()
    )]
    Unfinished(PathBuf),
    /// There may be such a sort, of somebody else.
    #[error(
        "{}: a sort in place of this file may be unfinished: {} is somebody else's and cannot be looked into; ask them to \
         go on with it (`elbow sort --resume`), or to remove it, if the file was written anew since",
        .0.display(), super::side_directory(.0).display()
    )]
    PerhapsUnfinished(PathBuf),
    /// The directory for the runs of a sort in place is there already, and belongs to neither the user nor the owner of the file.
    #[error("{}: is somebody else's, who could take away what is put there", .0.display())]
    ForeignSide(PathBuf),
    /// There is nothing to resume.
    #[error("{}: no sort in place of this file was begun ({} is not there)", file.display(), manifest.display())]
    NothingToResume {
        /// Path of the file that was to be sorted on.
        file: PathBuf,
        /// Where its manifest would be.
        manifest: PathBuf,
    },
    /// Another process sorts this file at this moment.
    #[error("{}: another process is sorting this file", .0.display())]
    Busy(PathBuf),
    /// The manifest of a sort in place cannot be read.
    #[error("{}: the manifest cannot be read, neither of its copies: {reason}", path.display())]
    BadManifest {
        /// Path of the manifest.
        path: PathBuf,
        /// What is wrong with its newer copy.
        reason: DecodeError,
    },
    /// The manifest is of a version of its format that this program does not read.
    #[error(
        "{}: was written by another version of elbow (version {found} of its format), which can resume the sort",
        path.display()
    )]
    OtherVersion {
        /// Path of the manifest.
        path: PathBuf,
        /// Version of its format.
        found: u16,
    },
    /// A file of runs is not as the sort left it. Nothing was changed.
    #[error(
        "{}: records of the sort were in this file, and it {found}; put it back to resume the sort",
        path.display()
    )]
    MissingRuns {
        /// Path of the file of runs.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// The manifest describes another file.
    #[error("{}: the manifest is of another file: {what}", path.display())]
    ForeignManifest {
        /// Path of the manifest.
        path: PathBuf,
        /// How the files differ.
        what: String,
    },
}

/// Why records cannot be described so.
///
/// ```
/// use elbow_extmem::sort::Key;
/// let error = "0:4:u32".parse::<Key>().unwrap_err();
/// assert!(error.to_string().starts_with("key `0:4:u32`: `u32` is no type"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum FormatError {
    /// The size of a record is out of range.
    #[error("a record of {bytes} bytes: the size must be between 1 and {most}")]
    RecordBytes { bytes: usize, most: usize },
    /// A key reaches out of the record.
    #[error("key {key} ends at byte {end}, but a record has {bytes} bytes")]
    KeyOutside { key: String, end: usize, bytes: usize },
    /// The text describes no key.
    #[error("key `{text}`: {problem}; write OFFSET:WIDTH:TYPE[:desc], as in 0:4:u32le")]
    Key { text: String, problem: KeyProblem },
}

/// Which part of the text of a key is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum KeyProblem {
    /// The offset or the width.
    #[error("`{word}` is no {what}")]
    NotANumber { word: String, what: &'static str },
    /// The name of the type.
    #[error("`{0}` is no type (u8, u16le, i32be, f64le, bytes and the like)")]
    UnknownType(String),
    /// The width is not that of the type.
    #[error("this type has {right} bytes, not {given}")]
    Width { right: usize, given: usize },
    /// Bytes without any.
    #[error("this type has at least 1 byte, not 0")]
    NoWidth,
    /// The direction.
    #[error("`{0}` is neither asc nor desc")]
    Direction(String),
}

/// A memory budget that is too small for records of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{budget_bytes} bytes of memory are too few to sort {record_bytes}-byte records: at least {needed_bytes} are needed"
)]
pub struct TooLittleMemory {
    /// The budget that was given.
    pub budget_bytes: usize,
    /// The size of a record.
    pub record_bytes: usize,
    /// The smallest budget that does.
    pub needed_bytes: usize,
}

impl SortError {
    /// Can a sort in place that ended so be continued?
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        matches!(self, Self::Storage { .. } | Self::Stopped)
    }
}

/// What a sort gives.
pub type Result<T> = std::result::Result<T, SortError>;

/// Turns an errno into an error that says what was tried on what.
pub(crate) fn failed<'a>(tried: &'static str, path: &'a Path) -> impl Fn(Errno) -> SortError + 'a {
    move |errno| SortError::Storage {
        tried,
        path: path.to_owned(),
        errno,
    }
}
