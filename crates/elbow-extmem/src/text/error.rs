//! What can go wrong with lines of text.

use std::io;
use std::path::PathBuf;

use elbow_file::Errno;

use super::csv::CsvError;

/// What sorting text gives.
pub(super) type Result<T> = std::result::Result<T, TextError>;

/// Why lines cannot be sorted as asked. Messages are those of sort(1), where it has one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A key is not described as `-k` wants it.
    #[error("{problem}: invalid field specification '{spec}'")]
    FieldSpec {
        /// What is wrong with the description, in the words of sort(1).
        problem: &'static str,
        /// The whole description.
        spec: String,
    },
    /// A number is missing in the description of a key.
    #[error("{problem}: invalid count at start of '{rest}'")]
    Count {
        /// What is wrong with the description, in the words of sort(1).
        problem: &'static str,
        /// What stands where the number is due.
        rest: String,
    },
    /// Ordering options that contradict each other.
    #[error("options '-{0}' are incompatible")]
    Incompatible(String),
    /// A letter that is no ordering option.
    #[error("'{0}' is no ordering option; there are b, d, f, g, h, i, M, n, r and V")]
    UnknownOption(char),
    /// `-R`.
    #[error("a random order (-R) is not available; shuf(1) gives one")]
    RandomOrder,
    /// An input cannot be opened or read.
    #[error("{}{name}: {}", failed(tried, reason), plain(reason))]
    Input {
        /// What was tried, as in "read failed".
        tried: &'static str,
        /// Its name, `-` for standard input.
        name: String,
        /// What the system said.
        reason: io::Error,
    },
    /// The output cannot be opened or written.
    #[error("{tried}: {name}: {}", plain(reason))]
    Output {
        /// What was tried, as in "write failed".
        tried: &'static str,
        /// Name of the output, for messages.
        name: String,
        /// What the system said.
        reason: io::Error,
    },
    /// A temporary file cannot be made, written or read.
    #[error("cannot {tried} temporary file in '{}': {}{}", directory.display(), plain(reason), advice(reason))]
    Temporary {
        /// What was tried, as in "create".
        tried: &'static str,
        /// The directory that holds it.
        directory: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// There is less memory than was asked for.
    #[error("{bytes} bytes of memory cannot be had: {}", plain(reason))]
    Memory {
        /// How much was wanted at once, in bytes.
        bytes: usize,
        /// What the system said.
        reason: io::Error,
    },
    /// The program that packs temporary files cannot be run.
    #[error("couldn't execute compress program '{program}': {}", plain(reason))]
    NoCompressor {
        /// Name of the program, as it was given.
        program: String,
        /// What the system said.
        reason: io::Error,
    },
    /// The program that packs temporary files failed, or what it gave back was not all.
    #[error("'{program}' terminated abnormally: {what}")]
    Compressor {
        /// Its name, with ` -d` if it was to unpack.
        program: String,
        /// How it ended, or what it could not do.
        what: String,
    },
}

/// What was tried, unless nothing failed: the content is no table, or another one.
fn failed(tried: &str, error: &io::Error) -> String {
    let is_of_table = error.get_ref().is_some_and(|inner| inner.is::<CsvError>());
    if is_of_table {
        String::new()
    } else {
        format!("{tried}: ")
    }
}

/// The text of an error without its number.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// What to do about a full disk.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => "; another directory (-T) or --compress-program may help",
        _ => "",
    }
}
