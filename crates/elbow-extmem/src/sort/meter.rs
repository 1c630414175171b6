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
    /// Bytes of the input; 0 while that is not known.
    input: AtomicU64,
    /// Bytes that all passes together write.
    total: AtomicU64,
    done: AtomicU64,
    /// Bytes that were read of these before this process did.
    read_before: AtomicU64,
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

    /// Says before a sort how many bytes it will get, where that is known: it can then tell how far it is from the beginning.
    pub fn announce(&self, input_bytes: u64) {
        self.input.store(input_bytes, Ordering::Relaxed);
    }

    /// How far the sort is, in terms of its input: so many of so many bytes; `None` while nobody knows how many there are.
    /// Each pass reads and writes all of them once, and all that counts alike.
    ///
    /// ```
    /// assert_eq!(elbow_extmem::sort::Meter::default().position(), None);
    /// ```
    #[must_use]
    pub fn position(&self) -> Option<(u64, u64)> {
        let (input, total) = (self.input_bytes(), u128::from(self.total_bytes()));
        if input == 0 || total == 0 {
            return None;
        }
        let read = self.read_bytes() + self.read_before.load(Ordering::Relaxed);
        let work = u128::from(read).min(total) + u128::from(self.done.load(Ordering::Relaxed)).min(total);
        Some(((u128::from(input) * work / (2 * total)) as u64, input))
    }

    /// Bytes of the input; 0 while that is not known.
    pub(crate) fn input_bytes(&self) -> u64 {
        self.input.load(Ordering::Relaxed)
    }

    /// Bytes that all passes together write; 0 while that is not known.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes of these that are written.
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
        tracing::info!(
            ?step,
            read = self.read_bytes(),
            written = self.written_bytes(),
            "begins"
        );
        self.step.store(step as usize, Ordering::Relaxed);
    }

    /// The passes over so many bytes of input write so many in all, of which these are written.
    pub(crate) fn expect(&self, input: u64, total: u64, done: u64) {
        self.input.store(input, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// As [`Meter::expect`] for a sort that goes on with what another process did.
    pub(crate) fn resume(&self, input: u64, total: u64, done: u64) {
        self.read_before.store(done, Ordering::Relaxed);
        self.expect(input, total, done);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What was shown was all bytes of all passes, read and written: four times the input and more.
    #[test]
    fn the_position_is_that_in_the_input() {
        let meter = Meter::default();
        meter.expect(1000, 2000, 0);
        assert_eq!(meter.position(), Some((0, 1000)));
        meter.note_read(1000);
        assert_eq!(meter.position(), Some((250, 1000)));
        meter.note_written(1000);
        assert_eq!(meter.position(), Some((500, 1000)));
        meter.note_read(1000);
        meter.note_written(1000);
        assert_eq!(meter.position(), Some((1000, 1000)));
        meter.note_read(5);
        assert_eq!(meter.position(), Some((1000, 1000)), "never more than all");
    }

    #[test]
    fn what_is_resumed_was_read_and_written_already() {
        let meter = Meter::default();
        meter.resume(1000, 3000, 1500);
        assert_eq!(meter.position(), Some((500, 1000)));
    }
}
