//! Which file each thread has just done something to, by which two requests are told apart that come in the same words.
//!
//! *A size without an open file.* `O_TRUNC` of open(2) comes so, right after the open: the kernel truncates by itself, unless it is told to leave
//! that to us (`FUSE_ATOMIC_O_TRUNC`); then a running program would be cut before its open is refused. So that size looks like one of truncate(2),
//! which may leave the times of a file alone, as open(2) never does. What tells is that the same thread has opened the file, and that nobody has
//! closed it since.
//!
//! *A change of nothing.* chown(2) to the owner -1 and the group -1 takes set-id bits. A write to a file with capabilities first takes these, then
//! changes nothing, and takes no set-id bits if it is root's.
//!
//! Source: Linux, fs/open.c (`do_open`, `handle_truncate`), fs/fuse/dir.c (`fuse_do_setattr`), fs/attr.c (`notify_change`).

use std::sync::atomic::{AtomicU64, Ordering};

use elbow_job::Ino;

/// Threads whose numbers are the same modulo this share a place; one forgets what the other did.
const PLACES: usize = 256;
/// No object has this number.
const NONE: u64 = 0;

/// A file for each thread.
#[derive(Debug)]
pub(crate) struct LastFiles([AtomicU64; PLACES]);

impl Default for LastFiles {
    fn default() -> Self {
        Self([const { AtomicU64::new(NONE) }; PLACES])
    }
}

impl LastFiles {
    pub(crate) fn note(&self, thread: u32, ino: Ino) {
        self.place(thread).store(ino.0, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, ino: Ino) {
        for place in &self.0 {
            // Whoever opens another one at this moment is right.
            let _ = place.compare_exchange(ino.0, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Is this the last file of the thread? It is asked once.
    pub(crate) fn is_last(&self, thread: u32, ino: Ino) -> bool {
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
    fn the_last_file_of_a_thread_is_told_once() {
        let openers = LastFiles::default();
        openers.note(7, Ino(1));
        assert!(!openers.is_last(8, Ino(1)) && openers.is_last(7, Ino(1)));
        assert!(!openers.is_last(7, Ino(1)), "it is asked once");
        openers.note(7, Ino(1));
        assert!(!openers.is_last(7, Ino(2)));
        openers.note(7, Ino(1));
        openers.forget(Ino(1));
        assert!(!openers.is_last(7, Ino(1)));
    }
}
