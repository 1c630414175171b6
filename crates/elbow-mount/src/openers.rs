//! Who has just opened a file: `O_TRUNC` of open(2) comes as a size, right after the open.
//!
//! The kernel truncates by itself, after the open, unless it is told to leave that to us (`FUSE_ATOMIC_O_TRUNC`); then a running
//! program would be cut before its open is refused. So that size looks like one of truncate(2), which may leave the times of a file
//! alone, as open(2) never does. What tells is that the same thread has opened the file, and that nobody has closed it since.
//!
//! Source: Linux, fs/open.c (`do_open`, `handle_truncate`), fs/fuse/dir.c (`fuse_do_setattr`).

use std::sync::atomic::{AtomicU64, Ordering};

use elbow_job::Ino;

/// Threads whose numbers are the same modulo this share a place; one forgets what the other did.
const PLACES: usize = 256;
/// No object has this number.
const NONE: u64 = 0;

/// The last file that each thread has opened.
#[derive(Debug)]
pub(crate) struct Openers([AtomicU64; PLACES]);

impl Default for Openers {
    fn default() -> Self {
        Self([const { AtomicU64::new(NONE) }; PLACES])
    }
}

impl Openers {
    pub(crate) fn opened(&self, thread: u32, ino: Ino) {
        self.place(thread).store(ino.0, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self, ino: Ino) {
        for place in &self.0 {
            // Whoever opens another one at this moment is right.
            let _ = place.compare_exchange(ino.0, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Is a size that comes without an open file that of the thread's own open? It is asked once.
    pub(crate) fn is_of_open(&self, thread: u32, ino: Ino) -> bool {
        self.place(thread).swap(NONE, Ordering::Relaxed) == ino.0
    }

    fn place(&self, thread: u32) -> &AtomicU64 {
        &self.0[thread as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_of_the_open_that_came_before_it() {
        let openers = Openers::default();
        openers.opened(7, Ino(1));
        assert!(!openers.is_of_open(8, Ino(1)) && openers.is_of_open(7, Ino(1)));
        assert!(!openers.is_of_open(7, Ino(1)), "it is asked once");
        openers.opened(7, Ino(1));
        assert!(!openers.is_of_open(7, Ino(2)));
        openers.opened(7, Ino(1));
        openers.closed(Ino(1));
        assert!(!openers.is_of_open(7, Ino(1)));
    }
}
