//! What can be wrong with the description of a drive.

use std::path::PathBuf;

/// A drive that cannot be had.
///
/// ```
/// use elbow_disk::Drive;
/// let error = Drive::parse("mine.toml", "heads = 2\nheds = 3\n").unwrap_err();
/// assert!(error.to_string().starts_with("mine.toml:2: key `heds`: unknown field"), "{error}");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriveError {
    /// The file could not be read.
    #[error("drive {path}: {reason} (built in are: {known})")]
    Read {
        /// What was asked for.
        name: String,
        /// Where it was looked for.
        path: PathBuf,
        /// The names that need no file.
        known: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// The file does not describe a drive.
    #[error("{file}:{line}: {}{reason}", .key.as_ref().map_or(String::new(), |key| format!("key `{key}`: ")))]
    Description {
        /// Name of the description, as it was given.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// The offending key, as in `zone[1].cylinders`; none where the file is not TOML.
        key: Option<String>,
        /// What is wrong, and what would be right.
        reason: String,
    },
}
