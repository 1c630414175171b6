//! Sorted runs in temporary files, freed as they are read.
//!
//! ```text
//!   file 1, in the first directory    [ freed | run 1: not yet read ] gap [ run 3 ] ...
//!   file 2, in the second             [ run 2 ]
//! ```
//!
//! - A temporary file has no name: whatever ends the process frees it.
//! - Runs go to the directories in turn; a file takes several, so that a sort of many runs needs few descriptors. Each
//!   begins at a boundary of blocks.
//! - What has been read of a run is punched out of its file, in pieces that are large where there is much room. A file
//!   system that cannot punch keeps the space until the file's last run has been read; that is slower to be freed, and no
//!   error. Where punching itself finds no room, it is tried once more after the file system has settled, else later.
//! - What went through the page cache may fail to reach the disk after write(2) has taken it. That is looked for when a file
//!   has been read, and fails the sort.
//! - A run may be cut into slices that are read at the same time. The block in which one ends and the next begins is freed
//!   by neither, but with its file.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 4.

#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use elbow_file::{Errno, RealStorage, Storage, check_written};

use super::error::{Result, TextError};
use super::file::{Cache, PlacedFile};
use super::temp_space::TempSpace;

/// Runs begin at multiples of this: no two share a block, on any file system.
const RUN_ALIGNMENT: u64 = 64 << 10;
/// What of a slice is freed begins and ends at multiples of this. Where blocks are larger, the file system writes zeros into
/// the block at the cut, and still to no place that is another slice's.
const CUT_ALIGNMENT: u64 = 4 << 10;
/// Runs in one file; where nothing can be punched, a file is freed after so many.
const RUNS_PER_FILE: u64 = 16;
/// What is freed at once, at least and at most.
const PIECE_BYTES: (u64, u64) = (64 << 10, 16 << 20);
/// Of all data at most this part is freed late.
const LATE_SHARE: u64 = 16;

/// Makes runs.
pub(super) struct Spill {
    storage: Arc<dyn Storage>,
    directories: Vec<PathBuf>,
    /// As long as less than this was written, files go through the page cache.
    cached_bytes: u64,
    /// Of each directory, the file that takes the next run.
    files: Vec<Option<Arc<SpillFile>>>,
    next: usize,
    room: Arc<TempSpace>,
}

struct SpillFile {
    file: PlacedFile,
    directory: PathBuf,
    runs: AtomicU64,
    end: AtomicU64,
    can_punch: AtomicBool,
    /// Written and not freed.
    left: AtomicU64,
    room: Arc<TempSpace>,
}

/// A part of a temporary file: a sorted run, or a slice of one.
pub(super) struct Run {
    file: Arc<SpillFile>,
    start: u64,
    end: u64,
    /// What nobody else needs.
    own: Range<u64>,
}

/// Runs that are read at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct MergeGroup {
    pub(super) runs: usize,
    /// Of all of them.
    pub(super) bytes: u64,
}

impl Spill {
    /// Runs in these directories; the first of them, up to `cached_bytes`, go through the page cache.
    pub(super) fn new(storage: Arc<dyn Storage>, directories: Vec<PathBuf>, cached_bytes: u64) -> Self {
        assert!(!directories.is_empty(), "temporary files have a place");
        let files = vec![None; directories.len()];
        Self {
            storage,
            directories,
            cached_bytes,
            files,
            next: 0,
            room: Arc::default(),
        }
    }

    /// How much is taken by runs.
    pub(super) fn room(&self) -> &Arc<TempSpace> {
        &self.room
    }

    /// How the next file is written: the result is as large as all runs of the first pass.
    pub(super) fn cache(&self) -> Cache {
        match self.room.spilled_bytes() < self.cached_bytes {
            true => Cache::Through,
            false => Cache::Past,
        }
    }

    /// Begins a run. Only one is written at a time.
    pub(super) fn begin(&mut self) -> Result<RunWriter> {
        let turn = self.next % self.directories.len();
        self.next += 1;
        let file = match self.files[turn].take() {
            // Where nothing can be punched, a file is freed with its last run: few share one.
            Some(file) if file.runs.load(Relaxed) < RUNS_PER_FILE => file,
            _ => self.create(&self.directories[turn])?,
        };
        self.files[turn] = Some(file.clone());
        file.runs.fetch_add(1, Relaxed);
        // Runs begin apart, so that each can be punched to its ends.
        let start = file.end.load(Relaxed).next_multiple_of(RUN_ALIGNMENT);
        Ok(RunWriter { file, start, at: start })
    }

    /// When all runs have been read: was what was read what had been written?
    ///
    /// # Errors
    /// The page cache had taken a run, and the disk did not.
    pub(super) fn close(&mut self) -> Result<()> {
        // What could not be written back is told at close(2) at the latest, so before the result counts.
        self.files.fill(None);
        match self.room.lost() {
            Some((directory, errno)) => Err(failed("write to", directory, (*errno).into())),
            None => Ok(()),
        }
    }

    fn create(&self, directory: &Path) -> Result<Arc<SpillFile>> {
        let handle = RealStorage::temporary(directory).map_err(|errno| failed("create", directory, errno.into()))?;
        Ok(Arc::new(SpillFile {
            file: PlacedFile::new(self.storage.clone(), handle, self.cache()),
            directory: directory.to_owned(),
            runs: AtomicU64::new(0),
            end: AtomicU64::new(0),
            can_punch: AtomicBool::new(true),
            left: AtomicU64::new(0),
            room: self.room.clone(),
        }))
    }
}

fn failed(tried: &'static str, directory: &Path, reason: io::Error) -> TextError {
    TextError::Temporary {
        tried,
        directory: directory.to_owned(),
        reason,
    }
}

impl Run {
    /// Bytes in the file.
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Where it lies in its file.
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// What an error is about.
    pub(super) fn failed(&self, tried: &'static str) -> impl Fn(io::Error) -> TextError + Send + use<> {
        let directory = self.file.directory.clone();
        move |reason| failed(tried, &directory, reason)
    }

    /// Reads a part of its file.
    pub(super) fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.file.file.read(into, at)
    }

    /// The slices between places in it, which are in order.
    pub(super) fn slices(self, cuts: &[u64]) -> Vec<Self> {
        let starts = [self.start].into_iter().chain(cuts.iter().copied());
        let ends = cuts.iter().copied().chain([self.end]);
        let slice = |(start, end): (u64, u64)| {
            let own_start = if start == self.start {
                self.own.start
            } else {
                // The page with the cut belongs to neither lane: the other may not have read it.
                start.next_multiple_of(CUT_ALIGNMENT)
            };
            let own_end = if end == self.end {
                self.own.end
            } else {
                end / CUT_ALIGNMENT * CUT_ALIGNMENT
            };
            Self {
                file: self.file.clone(),
                start,
                end,
                own: own_start..own_end,
            }
        };
        starts.zip(ends).map(slice).collect()
    }

    /// To be read once, beside others; what has been read is freed.
    pub(super) fn consume(self, beside: MergeGroup) -> ConsumedRun {
        let file = &self.file.file;
        let available = match file.storage().space(file.handle()) {
            Ok(space) => space.blocks_available.saturating_mul(space.fragment_bytes),
            // Then as little as possible is held back.
            Err(_) => 0,
        };
        let (least, most) = PIECE_BYTES;
        // All runs together hold back no more than a part of what is free, and of the data.
        let late = (available / 2).min(beside.bytes / LATE_SHARE) / beside.runs as u64;
        let piece = late.clamp(least, most) / RUN_ALIGNMENT * RUN_ALIGNMENT;
        ConsumedRun {
            freed: AtomicU64::new(self.own.start),
            run: self,
            piece,
        }
    }
}

impl SpillFile {
    /// Frees a range of which so many bytes were written; `false` if it is to be tried again later.
    fn free(&self, start: u64, end: u64, written: u64) -> bool {
        if start >= end || !self.can_punch.load(Relaxed) {
            return true;
        }
        let (storage, handle) = (self.file.storage(), self.file.handle());
        let punch = || storage.punch(handle, start, end - start);
        let punched = match punch() {
            // No room to note down that there is room: wait until what is under way is done.
            Err(Errno::NOSPC) => storage.sync_all(handle).and_then(|()| punch()),
            other => other,
        };
        match punched {
            Ok(()) => {
                self.left.fetch_sub(written, Relaxed);
                self.room.free(written);
            }
            Err(Errno::NOSPC) => return false,
            // It cannot be done here, or not any more; the space is freed with the file.
            Err(_) => self.can_punch.store(false, Relaxed),
        }
        true
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        if let Err(errno) = check_written(self.file.handle()) {
            self.room.note_lost(&self.directory, errno);
        }
        self.room.give_back(self.left.load(Relaxed));
    }
}

/// Writes one run.
pub(super) struct RunWriter {
    file: Arc<SpillFile>,
    start: u64,
    at: u64,
}

impl RunWriter {
    /// One that writes to another place of the same run, so many bytes ahead.
    pub(super) fn ahead(&self, bytes: u64) -> Self {
        Self {
            file: self.file.clone(),
            start: self.start,
            at: self.at + bytes,
        }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Ends it where this has come to.
    pub(super) fn finish(self) -> Run {
        self.file.end.store(self.at, Relaxed);
        self.file.room.note_run();
        Run {
            start: self.start,
            end: self.at,
            own: self.start..self.at.next_multiple_of(RUN_ALIGNMENT),
            file: self.file,
        }
    }

    pub(super) fn failed(&self) -> impl Fn(io::Error) -> TextError + Send + use<> {
        let directory = self.file.directory.clone();
        move |reason| failed("write to", &directory, reason)
    }
}

impl Write for RunWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.file.write(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.file.left.fetch_add(bytes.len() as u64, Relaxed);
        self.file.room.spill(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A run that is read once, and freed behind its reader.
pub(super) struct ConsumedRun {
    run: Run,
    freed: AtomicU64,
    piece: u64,
}

impl ConsumedRun {
    pub(super) fn range(&self) -> Range<u64> {
        self.run.range()
    }

    pub(super) fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.run.read(into, at)
    }

    /// Frees what lies before a place, when that is worth it. One thread does.
    pub(super) fn free_before(&self, at: u64) {
        let (freed, whole) = (self.freed.load(Relaxed), at / RUN_ALIGNMENT * RUN_ALIGNMENT);
        if whole.saturating_sub(freed) >= self.piece && self.free(freed, whole.min(self.run.own.end)) {
            self.freed.store(whole, Relaxed);
        }
    }

    fn free(&self, start: u64, end: u64) -> bool {
        // The gap behind the run took nothing, and other runs of the file are counted by themselves.
        let written = end.min(self.run.end).saturating_sub(start);
        self.run.file.free(start, end, written)
    }
}

impl Drop for ConsumedRun {
    fn drop(&mut self) {
        self.free(self.freed.load(Relaxed), self.run.own.end);
    }
}

/// Reads one run as a stream.
pub(super) struct RunReader {
    run: ConsumedRun,
    at: u64,
}

impl RunReader {
    pub(super) fn new(run: ConsumedRun) -> Self {
        Self {
            at: run.range().start,
            run,
        }
    }
}

impl Read for RunReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.run.range().end - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        self.run.read(&mut buffer[..wanted], self.at)?;
        self.at += wanted as u64;
        self.run.free_before(self.at);
        Ok(wanted)
    }
}
