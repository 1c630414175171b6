//! How text is sorted, and what is written beside its lines.

use std::ffi::OsString;
use std::path::PathBuf;

/// How text is sorted; only [`form`](Self::form) changes the result.
#[derive(Clone, Debug)]
pub struct SortOptions {
    /// What ends a line: a newline, or a NUL with `-z`.
    pub terminator: u8,
    /// All memory for text, in bytes (`-S`).
    pub memory_bytes: usize,
    /// Threads that sort, and lanes that merge (`--parallel`); reading and writing have threads of their own.
    pub threads: usize,
    /// Sources that are merged at once (`--batch-size`), at least 2; `None`: as many as the memory is good for.
    pub fan_in: Option<usize>,
    /// Directories of temporary files, used in turn (`-T`); at least one.
    pub directories: Vec<PathBuf>,
    /// What temporary files, and the result if it is a file, may take of the page cache, in bytes: as long as all of them
    /// take less, nothing waits for a disk. Beyond it they go past the cache, which is quicker than filling it; 0: always.
    pub cached_bytes: u64,
    /// What is written beside the lines.
    pub form: OutputForm,
    /// A program that packs temporary files, and unpacks them with `-d` (`--compress-program`).
    pub compress_program: Option<OsString>,
}

impl Default for SortOptions {
    fn default() -> Self {
        Self {
            terminator: b'\n',
            memory_bytes: 64 << 20,
            threads: 1,
            fan_in: None,
            directories: vec![std::env::temp_dir()],
            cached_bytes: 0,
            form: OutputForm::default(),
            compress_program: None,
        }
    }
}

/// What is written beside the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputForm {
    /// In front of all lines, as it is.
    pub header: Vec<u8>,
    /// What ends a line that is written, if it is not what ends it on the way.
    pub terminator: Option<u8>,
    /// How the number of equal lines stands before each ([`OrderOptions::count`](super::OrderOptions::count)).
    pub count: Option<CountForm>,
}

/// How the number of equal lines is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountForm {
    /// In seven columns and a blank, as uniq(1) does.
    Padded,
    /// As a field, with this separator behind it.
    Field(u8),
}

impl CountForm {
    /// What stands before a line.
    pub(super) fn shown(self, count: u64) -> String {
        match self {
            Self::Padded => format!("{count:7} "),
            Self::Field(separator) => format!("{count}{}", char::from(separator)),
        }
    }
}
