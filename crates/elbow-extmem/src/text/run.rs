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
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 4.

use std::io::{self, IoSlice, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use elbow_file::{Errno, Handle, RealStorage, Storage};

use super::error::{Result, TextError};

/// Runs begin at multiples of this: no two share a block, on any file system.
const RUN_ALIGNMENT: u64 = 64 << 10;
/// Runs in one file; where nothing can be punched, a file is freed after so many.
const RUNS_PER_FILE: usize = 16;
/// What is freed at once, at least and at most.
const PIECE_BYTES: (u64, u64) = (64 << 10, 16 << 20);

/// Where temporary files are, and what has happened to them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) runs: AtomicU64,
    pub(super) written_bytes: AtomicU64,
    pub(super) freed_bytes: AtomicU64,
}

/// Makes runs.
pub(super) struct Spill {
    storage: Arc<dyn Storage>,
    directories: Vec<PathBuf>,
    /// Of each directory, the file that takes the next run.
    files: Vec<Option<Arc<SpillFile>>>,
    next: usize,
    counters: Arc<Counters>,
}

struct SpillFile {
    storage: Arc<dyn Storage>,
    handle: Handle,
    directory: PathBuf,
    runs: AtomicU64,
    end: AtomicU64,
    can_punch: AtomicBool,
    counters: Arc<Counters>,
}

/// A part of a temporary file.
pub(super) struct Run {
    file: Arc<SpillFile>,
    start: u64,
    end: u64,
}

impl Spill {
    pub(super) fn new(storage: Arc<dyn Storage>, directories: Vec<PathBuf>) -> Self {
        assert!(!directories.is_empty(), "temporary files have a place");
        let files = vec![None; directories.len()];
        Self {
            storage,
            directories,
            files,
            next: 0,
            counters: Arc::default(),
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Begins a run. Only one is written at a time.
    pub(super) fn begin(&mut self) -> Result<RunWriter> {
        let turn = self.next % self.directories.len();
        self.next += 1;
        let file = match self.files[turn].take() {
            Some(file) if file.runs.load(Relaxed) < RUNS_PER_FILE as u64 => file,
            _ => self.create(&self.directories[turn])?,
        };
        self.files[turn] = Some(file.clone());
        file.runs.fetch_add(1, Relaxed);
        self.counters.runs.fetch_add(1, Relaxed);
        let start = file.end.load(Relaxed).next_multiple_of(RUN_ALIGNMENT);
        Ok(RunWriter { file, start, at: start })
    }

    fn create(&self, directory: &Path) -> Result<Arc<SpillFile>> {
        let handle = RealStorage::temporary(directory).map_err(|errno| failed("create", directory, errno.into()))?;
        Ok(Arc::new(SpillFile {
            storage: self.storage.clone(),
            handle,
            directory: directory.to_owned(),
            runs: AtomicU64::new(0),
            end: AtomicU64::new(0),
            can_punch: AtomicBool::new(true),
            counters: self.counters.clone(),
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

    /// What an error is about.
    pub(super) fn failed(&self, tried: &'static str) -> impl Fn(io::Error) -> TextError + Send + use<> {
        let directory = self.file.directory.clone();
        move |reason| failed(tried, &directory, reason)
    }

    /// Reads it once; what has been read is freed, when so many runs are read at a time.
    pub(super) fn consume(self, fan_in: usize) -> RunReader {
        let available = match self.file.storage.space(&self.file.handle) {
            Ok(space) => space.blocks_available.saturating_mul(space.fragment_bytes),
            Err(_) => 0,
        };
        let (least, most) = PIECE_BYTES;
        // All runs together hold back no more than a part of what is free.
        let piece = (available / (2 * fan_in as u64)).clamp(least, most) / RUN_ALIGNMENT * RUN_ALIGNMENT;
        RunReader {
            at: self.start,
            freed: self.start,
            run: self,
            piece,
        }
    }
}

impl SpillFile {
    /// Frees a range; `false` if it is to be tried again later.
    fn free(&self, start: u64, end: u64) -> bool {
        if start >= end || !self.can_punch.load(Relaxed) {
            return true;
        }
        let punch = || self.storage.punch(&self.handle, start, end - start);
        let punched = match punch() {
            // No room to note down that there is room: wait until what is under way is done.
            Err(Errno::NOSPC) => self.storage.sync_all(&self.handle).and_then(|()| punch()),
            other => other,
        };
        match punched {
            Ok(()) => _ = self.counters.freed_bytes.fetch_add(end - start, Relaxed),
            Err(Errno::NOSPC) => return false,
            // It cannot be done here, or not any more; the space is freed with the file.
            Err(_) => self.can_punch.store(false, Relaxed),
        }
        true
    }
}

/// Writes one run.
pub(super) struct RunWriter {
    file: Arc<SpillFile>,
    start: u64,
    at: u64,
}

impl RunWriter {
    pub(super) fn finish(self) -> Run {
        self.file.end.store(self.at, Relaxed);
        Run {
            file: self.file,
            start: self.start,
            end: self.at,
        }
    }

    pub(super) fn failed(&self) -> impl Fn(io::Error) -> TextError + Send + use<> {
        let directory = self.file.directory.clone();
        move |reason| failed("write to", &directory, reason)
    }
}

impl Write for RunWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file
            .storage
            .write(&self.file.handle, &[IoSlice::new(bytes)], self.at)?;
        self.at += bytes.len() as u64;
        self.file.counters.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads one run and frees it.
pub(super) struct RunReader {
    run: Run,
    at: u64,
    freed: u64,
    piece: u64,
}

impl Read for RunReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.run.end - self.at).unwrap_or(usize::MAX);
        let wanted = buffer.len().min(left);
        let Run { file, .. } = &self.run;
        let read = file.storage.read(&file.handle, &mut buffer[..wanted], self.at)?;
        if read < wanted {
            return Err(io::ErrorKind::UnexpectedEof.into()); // nobody else has the file; a device may still fail
        }
        self.at += read as u64;
        let whole = self.at / RUN_ALIGNMENT * RUN_ALIGNMENT;
        if whole.saturating_sub(self.freed) >= self.piece && file.free(self.freed, whole) {
            self.freed = whole;
        }
        Ok(read)
    }
}

impl Drop for RunReader {
    fn drop(&mut self) {
        // Up to where the next run may begin.
        self.run
            .file
            .free(self.freed, self.run.end.next_multiple_of(RUN_ALIGNMENT));
    }
}

#[cfg(test)]
mod tests {
    use elbow_file::double::{Faulty, Interposed, Operation, Plan};

    use super::*;

    fn spill(directories: usize) -> (Vec<tempfile::TempDir>, Spill) {
        let places: Vec<_> = (0..directories)
            .map(|_| tempfile::tempdir().expect("a directory"))
            .collect();
        let paths = places.iter().map(|place| place.path().to_owned()).collect();
        (places, Spill::new(Arc::new(RealStorage), paths))
    }

    fn write(spill: &mut Spill, text: &[u8]) -> Run {
        let mut writer = spill.begin().expect("a temporary file");
        writer.write_all(text).expect("room");
        writer.finish()
    }

    #[test]
    fn runs_are_read_back_and_their_space_is_freed_on_the_way() {
        let (_places, mut spill) = spill(1);
        let texts: Vec<Vec<u8>> = (1..4_u8).map(|run| vec![run; usize::from(run) * 300_000]).collect();
        let runs: Vec<Run> = texts.iter().map(|text| write(&mut spill, text)).collect();
        let file = runs[0].file.clone();
        let blocks = || RealStorage.stat_handle(&file.handle).expect("a file").blocks * 512;
        assert!(blocks() >= 1_800_000);
        let mut readers: Vec<RunReader> = runs.into_iter().map(|run| run.consume(1 << 30)).collect();
        for (reader, text) in readers.iter_mut().zip(&texts) {
            let mut half = vec![0; text.len() / 2];
            reader.read_exact(&mut half).expect("what was written");
            assert_eq!(half, text[..text.len() / 2]);
        }
        assert!(blocks() < 1_200_000, "{}", blocks());
        for (reader, text) in readers.iter_mut().zip(&texts) {
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).expect("what was written");
            assert_eq!(rest, text[text.len() / 2..]);
        }
        drop(readers);
        assert_eq!(blocks(), 0);
    }

    #[test]
    fn directories_are_used_in_turn_and_files_take_several_runs() {
        let (places, mut spill) = spill(2);
        let runs: Vec<Run> = (0..40_u8).map(|run| write(&mut spill, &[run])).collect();
        for (number, run) in runs.iter().enumerate() {
            assert_eq!(run.file.directory, places[number % 2].path());
        }
        let mut files: Vec<_> = runs.iter().map(|run| Arc::as_ptr(&run.file)).collect();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), 4); // 20 runs in each directory, 16 in a file
    }

    #[test]
    fn a_missing_directory_is_named() {
        let (places, _) = spill(1);
        let mut spill = Spill::new(Arc::new(RealStorage), vec![places[0].path().join("x")]);
        let error = spill.begin().err().expect("no such directory").to_string();
        assert!(
            error.starts_with("cannot create temporary file in '") && error.ends_with("x': No such file or directory"),
            "{error}"
        );
    }

    fn spill_with(plan: Plan) -> (tempfile::TempDir, Arc<Interposed<Faulty>>, Spill) {
        let place = tempfile::tempdir().expect("a directory");
        let storage = Arc::new(Interposed::new(Arc::new(RealStorage), Faulty::new([plan])));
        let spill = Spill::new(storage.clone(), vec![place.path().to_owned()]);
        (place, storage, spill)
    }

    /// What a run of some pieces gives back when it is read, and how much of it was freed.
    fn read_back(spill: &mut Spill) -> (bool, u64) {
        let text = vec![7; 1 << 20];
        let run = write(spill, &text);
        let mut back = Vec::new();
        run.consume(1 << 30).read_to_end(&mut back).expect("what was written");
        (back == text, spill.counters().freed_bytes.load(Relaxed))
    }

    #[test]
    fn where_nothing_can_be_punched_it_is_not_tried_again() {
        let plan = Plan::fail(Errno::OPNOTSUPP).on(Operation::Punch).times(u64::MAX);
        let (_place, storage, mut spill) = spill_with(plan);
        assert_eq!(read_back(&mut spill), (true, 0));
        assert_eq!(storage.hook().fired(), 1);
    }

    #[test]
    fn a_punch_that_finds_no_room_is_made_later() {
        // The first piece fails, and once more after the file system has settled.
        let plan = Plan::fail(Errno::NOSPC).on(Operation::Punch).times(2);
        let (_place, storage, mut spill) = spill_with(plan);
        assert_eq!(read_back(&mut spill), (true, 1 << 20));
        assert_eq!(storage.hook().fired(), 2);
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_directory() {
        let plan = Plan::fail(Errno::NOSPC).on(Operation::Write);
        let (_place, storage, mut spill) = spill_with(plan);
        let mut writer = spill.begin().expect("a temporary file");
        let failed = writer.failed();
        let error = failed(writer.write_all(b"text").expect_err("no room")).to_string();
        assert!(
            error.contains("No space left on device; another directory (-T)"),
            "{error}"
        );
        assert_eq!(storage.hook().fired(), 1);
    }
}
