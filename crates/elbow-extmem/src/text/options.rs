//! How text is sorted: nothing here changes the result.

use std::ffi::OsString;
use std::path::PathBuf;

/// How text is sorted; nothing here changes the result.
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
            compress_program: None,
        }
    }
}
