//! Reading ahead of sequential readers of slow storage.
//!
//! The kernel reads ahead by 128 KiB on a FUSE mount unless root raises that, which is two requests in flight: too
//! few where each takes milliseconds. So when a file is read from the storage in order, and slowly, what comes next
//! is read in advance and thrown away: the real request then finds it in the page cache of the storage below.
//!
//! ```text
//!   offset ->   [ read ][ asked for now ][ ahead: a window of WINDOW_BYTES or more, in PIECES pieces ]
//! ```
//!
//! Pure bookkeeping: who reads, and when, is the caller's business. A file that is read in another order, or whose
//! reads are quick (they come from a cache already), is left alone.

use std::collections::HashMap;
use std::ops::Range;

use elbow_job::Ino;
use parking_lot::Mutex;

/// How far ahead of a reader at first. Eight pieces in flight hide 10 ms at 100 MB/s.
const WINDOW_BYTES: u64 = 1 << 20;
/// And at most: twice as far each time that what was asked for had to be waited for all the same.
const WINDOW_BYTES_MAX: u64 = 8 << 20;
/// What a window is read in.
const PIECES: u64 = 8;

/// The sequential readers of a mount, by file.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    readers: Mutex<HashMap<Ino, Reader>>,
}

#[derive(Debug, Default)]
struct Reader {
    /// Where the next read begins if it is in order.
    next: u64,
    /// What lies before this has been asked for.
    asked: u64,
    /// The last read has waited for the storage.
    slow: bool,
    /// How far ahead is read.
    window: u64,
}

impl ReadAhead {
    /// Notes a read of a file of some size; what to read in advance.
    pub(crate) fn note(&self, ino: Ino, read: Range<u64>, size: u64) -> Vec<Range<u64>> {
        let mut readers = self.readers.lock();
        let reader = readers.entry(ino).or_default();
        let in_order = read.start == reader.next && read.start > 0;
        reader.next = read.end;
        if !in_order {
            reader.window = 0;
        }
        if !in_order || (!reader.slow && reader.window == 0) {
            reader.asked = read.end;
            return Vec::new();
        }
        if reader.slow {
            reader.window = (2 * reader.window).clamp(WINDOW_BYTES, WINDOW_BYTES_MAX);
            reader.slow = false;
        }
        let piece = reader.window / PIECES;
        let start = reader.asked.max(read.end);
        let end = (read.end + reader.window).min(size);
        // Less than a piece waits for more, unless the file ends there.
        if end < size && end < start + piece {
            return Vec::new();
        }
        reader.asked = end.max(start);
        pieces(start..end, piece)
    }

    /// Notes whether a read had to wait for the storage.
    pub(crate) fn took(&self, ino: Ino, slow: bool) {
        if let Some(reader) = self.readers.lock().get_mut(&ino) {
            reader.slow = slow;
        }
    }

    /// Notes whether a piece that was read in advance had to be waited for: where it had not, the storage is left alone again.
    pub(crate) fn came(&self, ino: Ino, slow: bool) {
        if let Some(reader) = self.readers.lock().get_mut(&ino).filter(|_| !slow) {
            reader.window = 0;
        }
    }

    /// Nobody reads a file any more.
    pub(crate) fn forget(&self, ino: Ino) {
        self.readers.lock().remove(&ino);
    }
}

fn pieces(range: Range<u64>, length: u64) -> Vec<Range<u64>> {
    let starts = (range.start..range.end).step_by(length as usize);
    starts.map(|start| start..(start + length).min(range.end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const FILE: Ino = Ino(7);
    const SIZE: u64 = 64 << 20;

    fn slow_reader() -> ReadAhead {
        let ahead = ReadAhead::default();
        assert!(
            ahead.note(FILE, 0..128 * KIB, SIZE).is_empty(),
            "one read is no order yet"
        );
        ahead.took(FILE, true);
        ahead
    }

    #[test]
    fn a_slow_sequential_reader_is_kept_a_window_ahead() {
        let ahead = slow_reader();
        let first = ahead.note(FILE, 128 * KIB..256 * KIB, SIZE);
        assert_eq!(first.len() as u64, PIECES);
        assert_eq!(first.first(), Some(&(256 * KIB..384 * KIB)));
        ahead.took(FILE, false);
        let second = ahead.note(FILE, 256 * KIB..384 * KIB, SIZE);
        let expected = 1280 * KIB..1408 * KIB;
        assert_eq!(second, vec![expected], "only what has not been asked for");
        assert!(
            ahead.note(FILE, 384 * KIB..388 * KIB, SIZE).is_empty(),
            "less than a piece"
        );
    }

    #[test]
    fn a_window_that_is_too_short_grows() {
        let ahead = slow_reader();
        ahead.note(FILE, 128 * KIB..256 * KIB, SIZE);
        let mut read = 256 * KIB;
        for window in [2 << 20, 4 << 20, 8 << 20, 8 << 20] {
            ahead.took(FILE, true);
            let asked = ahead.note(FILE, read..read + 1024 * KIB, SIZE);
            read += 1024 * KIB;
            assert_eq!(asked.last().map(|last| last.end), Some(read + window));
            assert_eq!(
                asked.first().map(|first| first.end - first.start),
                Some(window / PIECES)
            );
        }
    }

    #[test]
    fn storage_that_has_become_quick_is_left_alone() {
        let ahead = slow_reader();
        assert!(!ahead.note(FILE, 128 * KIB..256 * KIB, SIZE).is_empty());
        ahead.took(FILE, false);
        ahead.came(FILE, true);
        assert!(
            !ahead.note(FILE, 256 * KIB..512 * KIB, SIZE).is_empty(),
            "it is quick because it was asked for"
        );
        ahead.came(FILE, false);
        assert!(ahead.note(FILE, 512 * KIB..1024 * KIB, SIZE).is_empty());
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let ahead = slow_reader();
        let rest = 256 * KIB..300 * KIB;
        assert_eq!(ahead.note(FILE, 128 * KIB..256 * KIB, 300 * KIB), vec![rest]);
        assert!(ahead.note(FILE, 256 * KIB..300 * KIB, 300 * KIB).is_empty());
    }

    #[test]
    fn other_orders_and_quick_storage_are_left_alone() {
        let ahead = slow_reader();
        assert!(ahead.note(FILE, 900 * KIB..904 * KIB, SIZE).is_empty());
        assert!(ahead.note(FILE, 40 * KIB..44 * KIB, SIZE).is_empty());
        let ahead = slow_reader();
        ahead.took(FILE, false);
        assert!(ahead.note(FILE, 128 * KIB..256 * KIB, SIZE).is_empty());
    }

    #[test]
    fn a_closed_file_begins_anew() {
        let ahead = slow_reader();
        ahead.forget(FILE);
        assert!(ahead.note(FILE, 128 * KIB..256 * KIB, SIZE).is_empty());
    }
}
