//! Files that processes may write to in memory (mmap(2), `MAP_SHARED`): the kernel keeps what they write, and the job does not know of it yet.

use std::collections::HashMap;

use elbow_job::Ino;
use fuser::OpenAccMode;
use parking_lot::Mutex;

/// Open files that may be read and written, which is what a writable shared map needs, with how often each is open. A map keeps its file open.
///
/// Source: Linux, mm/mmap.c (`do_mmap`).
#[derive(Debug, Default)]
pub(crate) struct MappableFiles(Mutex<HashMap<Ino, usize>>);

impl MappableFiles {
    pub(crate) fn opened(&self, ino: Ino, mode: OpenAccMode) {
        if mode == OpenAccMode::O_RDWR {
            *self.0.lock().entry(ino).or_default() += 1;
        }
    }

    /// One that was opened for reading and writing is closed.
    pub(crate) fn closed(&self, ino: Ino) {
        let mut open = self.0.lock();
        if let Some(times) = open.get_mut(&ino) {
            *times -= 1;
            if *times == 0 {
                open.remove(&ino);
            }
        }
    }

    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.0.lock().contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_mapped_until_it_is_closed_as_often_as_it_was_opened_for_reading_and_writing() {
        let files = MappableFiles::default();
        files.opened(Ino(2), OpenAccMode::O_WRONLY);
        files.opened(Ino(3), OpenAccMode::O_RDWR);
        files.opened(Ino(3), OpenAccMode::O_RDWR);
        assert!(!files.has(Ino(2)) && files.has(Ino(3)));
        files.closed(Ino(3));
        assert!(files.has(Ino(3)));
        files.closed(Ino(3));
        assert!(!files.has(Ino(3)));
    }
}
