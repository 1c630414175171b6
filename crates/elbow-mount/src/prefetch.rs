//! Doing what [`crate::readahead`] and [`crate::directory_readahead`] advise: reading in advance, on the threads that may block.
//!
//! All of it is a guess: errors are left to whoever really reads, and storage that answers quickly is left alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use elbow_file::{Errno, FileType};
use elbow_job::{Fetch, Ino, OpError};
use parking_lot::Mutex;

use crate::directory_readahead::{HeldFiles, NumberedFile, Walks};
use crate::dispatch::FrontCore;
use crate::namesakes::{NAMESAKES_MAX, Namesakes};
use crate::readahead::ReadAhead;

/// Files up to this size are read whole in advance.
const SMALL_BYTES_MAX: u64 = 256 << 10;
/// Directories with more names than this are not looked at: listing them costs more than it gains.
const NAMES_MAX: usize = 20_000;
/// A read that takes longer has waited for the storage.
pub(crate) const SLOW: Duration = Duration::from_micros(300);

/// What is known of readers.
#[derive(Debug, Default)]
pub(crate) struct Prefetch {
    ahead: ReadAhead,
    walks: Mutex<Walks>,
    held: Mutex<HeldFiles>,
    namesakes: Mutex<Namesakes>,
    /// The last file that was read for the first time had to be waited for, and none was copied since.
    storage_is_slow: AtomicBool,
}

impl FrontCore {
    /// Reads what is not in memory, for somebody who waits; blocks.
    pub(crate) fn read_from_storage(
        self: &Arc<Self>,
        fetch: &Fetch,
        ino: Ino,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, Errno> {
        let began = Instant::now();
        self.job.fetch(fetch)?;
        let data = self.job.read_blocking(ino, offset, length);
        let took = began.elapsed();
        self.prefetch.ahead.took(ino, took >= SLOW);
        if !self.prefetch.held.lock().contains(ino) {
            self.prefetch.storage_is_slow.store(took >= SLOW, Ordering::Relaxed);
        }
        if offset == 0 && self.prefetch.storage_is_slow.load(Ordering::Relaxed) {
            self.read_namesakes(ino);
        }
        data
    }

    /// A file is read: reads those that are called as it in other directories, if that is what its reader does.
    fn read_namesakes(self: &Arc<Self>, ino: Ino) {
        let path = self.job.path_of(ino);
        let Some(name) = path.file_name() else { return };
        if !self.prefetch.namesakes.lock().note_read(ino, name) {
            return;
        }
        let found = self.job.namesakes(ino, NAMESAKES_MAX);
        let ahead = self.prefetch.namesakes.lock().note_found(name, found);
        for file in ahead {
            let core = self.clone();
            self.run(move || core.hold(file));
        }
    }

    /// A part of a file is being read: reads what comes next in it.
    pub(crate) fn read_ahead(self: &Arc<Self>, ino: Ino, offset: u64, length: usize) {
        let Ok(attr) = self.job.getattr(ino) else { return };
        let read = offset..offset + length as u64;
        for piece in self.prefetch.ahead.note(ino, read, attr.size) {
            let core = self.clone();
            self.run(move || {
                let began = Instant::now();
                core.job
                    .read_ahead(ino, piece.start, (piece.end - piece.start) as usize);
                core.prefetch.ahead.came(ino, began.elapsed() >= SLOW);
            });
        }
    }

    /// A file is opened to be read: reads those that come next in its directory.
    pub(crate) fn read_siblings(self: &Arc<Self>, ino: Ino) {
        if !self.prefetch.storage_is_slow.load(Ordering::Relaxed) {
            return;
        }
        let dir = self.job.parent(ino);
        let next = self.prefetch.walks.lock().note(dir, ino, || self.files_of(dir));
        for file in next {
            let core = self.clone();
            self.run(move || core.hold(file));
        }
    }

    fn files_of(&self, dir: Ino) -> Option<Vec<NumberedFile>> {
        let names = self.job.list(dir).ok().filter(|names| names.len() <= NAMES_MAX)?;
        let files = names.into_iter().filter(|name| name.kind == FileType::File);
        Some(files.map(|file| (file.ino, file.visible_ino)).collect())
    }

    /// Opens and reads a small old file that is only on the storage.
    fn hold(&self, ino: Ino) {
        let Ok(attr) = self.job.getattr(ino) else { return };
        let is_wanted = !attr.is_new() && (1..=SMALL_BYTES_MAX).contains(&attr.size);
        let is_far = || {
            matches!(
                self.job.read(ino, 0, attr.size as usize),
                Err(OpError::NeedsStorage(Fetch::Open(_)))
            )
        };
        if !is_wanted || !is_far() || self.job.open(ino, false, false).is_err() {
            return;
        }
        let began = Instant::now();
        self.job.read_ahead(ino, 0, attr.size as usize);
        self.prefetch
            .storage_is_slow
            .store(began.elapsed() >= SLOW, Ordering::Relaxed);
        let too_many = self.prefetch.held.lock().hold(ino);
        if let Some(ino) = too_many {
            self.job.release(ino, false);
        }
    }

    /// Files are copied where the storage is: who opens the next one is not going to read it.
    pub(crate) fn note_copied(&self) {
        self.prefetch.storage_is_slow.store(false, Ordering::Relaxed);
    }

    /// A file is closed by whoever had it open: nobody needs it held any more.
    pub(crate) fn let_go(&self, ino: Ino) {
        self.prefetch.ahead.forget(ino);
        if self.prefetch.held.lock().take(ino) {
            self.job.release(ino, false);
        }
    }
}
