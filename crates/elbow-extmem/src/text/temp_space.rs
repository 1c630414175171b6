//! How much disk space temporary files take, and have taken.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use elbow_file::Errno;

/// What has happened to temporary files, and the space that they and the result take together.
#[derive(Debug, Default)]
pub(super) struct TempSpace {
    runs: AtomicU64,
    spilled: AtomicU64,
    freed: AtomicU64,
    taken: AtomicU64,
    peak: AtomicU64,
    /// The first directory whose disk did not take what the page cache had taken, and why.
    lost: OnceLock<(PathBuf, Errno)>,
}

impl TempSpace {
    /// A disk did not take what was written to a temporary file there.
    pub(super) fn note_lost(&self, directory: &Path, errno: Errno) {
        // One is enough to fail.
        let _ = self.lost.set((directory.to_owned(), errno));
    }

    pub(super) fn lost(&self) -> Option<&(PathBuf, Errno)> {
        self.lost.get()
    }

    pub(super) fn note_run(&self) {
        self.runs.fetch_add(1, Relaxed);
    }

    /// So much was written to a temporary file.
    pub(super) fn spill(&self, bytes: u64) {
        self.spilled.fetch_add(bytes, Relaxed);
        self.take(bytes);
    }

    /// So much was written anywhere.
    pub(super) fn take(&self, bytes: u64) {
        let taken = self.taken.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(taken, Relaxed);
    }

    /// So much of a temporary file was punched.
    pub(super) fn free(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Relaxed);
        self.give_back(bytes);
    }

    /// So much went with its file.
    pub(super) fn give_back(&self, bytes: u64) {
        self.taken.fetch_sub(bytes, Relaxed);
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs.load(Relaxed)
    }

    pub(super) fn spilled_bytes(&self) -> u64 {
        self.spilled.load(Relaxed)
    }

    pub(super) fn freed_bytes(&self) -> u64 {
        self.freed.load(Relaxed)
    }

    #[cfg(test)]
    pub(super) fn taken_bytes(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.peak.load(Relaxed)
    }
}
