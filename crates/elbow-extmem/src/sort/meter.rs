//! How far a sort is, and how to stop it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::error::{Result, SortError};

/// What a sort is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads the input and writes sorted runs.
    Forming,
    /// Merges runs.
    Merging,
    /// Makes the result durable and removes what was temporary.
    Finishing,
}

/// Counts what a sort does, for another thread to look at; and takes its wish to stop.
///
/// ```
/// use elbow_extmem::sort::{Meter, Step};
///
/// let meter = Meter::default();
/// assert_eq!(meter.step(), Step::Forming);
/// meter.stop(); // the sort ends with SortError::Stopped as soon as it can be resumed
/// ```
#[derive(Debug, Default)]
pub struct Meter {
    stopped: AtomicBool,
    step: AtomicUsize,
    total: AtomicU64,
    done: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
    freed: AtomicU64,
}

impl Meter {
    /// Asks the sort to stop at the next moment from which it can be resumed.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// What the sort is doing.
    #[must_use]
    pub fn step(&self) -> Step {
        [Step::Forming, Step::Merging, Step::Finishing][self.step.load(Ordering::Relaxed).min(2)]
    }

    /// Bytes of all passes together; 0 while that is not known.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes of these that are done.
    #[must_use]
    pub fn done_bytes(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes read from files.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes written to files.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Bytes of files that were freed.
    #[must_use]
    pub fn freed_bytes(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(SortError::Stopped);
        }
        Ok(())
    }

    pub(crate) fn begin(&self, step: Step) {
        self.step.store(step as usize, Ordering::Relaxed);
    }

    pub(crate) fn expect(&self, total: u64, done: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    pub(crate) fn note_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_freed(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Ordering::Relaxed);
    }
}
