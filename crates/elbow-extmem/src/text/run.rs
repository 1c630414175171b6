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
//! - A run may be cut into slices that are read at the same time. The block in which one ends and the next begins is freed
//!   by neither, but with its file.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 4.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use elbow_file::{Errno, RealStorage, Storage};

use super::error::{Result, TextError};
use super::file::PlacedFile;
use super::room::Room;

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
    /// Of each directory, the file that takes the next run.
    files: Vec<Option<Arc<SpillFile>>>,
    next: usize,
    room: Arc<Room>,
}

struct SpillFile {
    file: PlacedFile,
    directory: PathBuf,
    runs: AtomicU64,
    end: AtomicU64,
    can_punch: AtomicBool,
    /// Written and not freed.
    left: AtomicU64,
    room: Arc<Room>,
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
pub(super) struct AtOnce {
    pub(super) runs: usize,
    /// Of all of them.
    pub(super) bytes: u64,
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
            room: Arc::default(),
        }
    }

    /// How much is taken by runs.
    pub(super) fn room(&self) -> &Arc<Room> {
        &self.room
    }

    /// Begins a run. Only one is written at a time.
    pub(super) fn begin(&mut self) -> Result<RunWriter> {
        let turn = self.next % self.directories.len();
        self.next += 1;
        let file = match self.files[turn].take() {
            Some(file) if file.runs.load(Relaxed) < RUNS_PER_FILE => file,
            _ => self.create(&self.directories[turn])?,
        };
        self.files[turn] = Some(file.clone());
        file.runs.fetch_add(1, Relaxed);
        let start = file.end.load(Relaxed).next_multiple_of(RUN_ALIGNMENT);
        Ok(RunWriter { file, start, at: start })
    }

    fn create(&self, directory: &Path) -> Result<Arc<SpillFile>> {
        let handle = RealStorage::temporary(directory).map_err(|errno| failed("create", directory, errno.into()))?;
        Ok(Arc::new(SpillFile {
            file: PlacedFile::new(self.storage.clone(), handle),
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
    pub(super) fn consume(self, beside: AtOnce) -> Consumed {
        let file = &self.file.file;
        let available = match file.storage().space(file.handle()) {
            Ok(space) => space.blocks_available.saturating_mul(space.fragment_bytes),
            Err(_) => 0,
        };
        let (least, most) = PIECE_BYTES;
        // All runs together hold back no more than a part of what is free, and of the data.
        let late = (available / 2).min(beside.bytes / LATE_SHARE) / beside.runs as u64;
        let piece = late.clamp(least, most) / RUN_ALIGNMENT * RUN_ALIGNMENT;
        Consumed {
            freed: AtomicU64::new(self.own.start),
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
        let (storage, handle) = (self.file.storage(), self.file.handle());
        let punch = || storage.punch(handle, start, end - start);
        let punched = match punch() {
            // No room to note down that there is room: wait until what is under way is done.
            Err(Errno::NOSPC) => storage.sync_all(handle).and_then(|()| punch()),
            other => other,
        };
        match punched {
            Ok(()) => self.note_freed(end - start),
            Err(Errno::NOSPC) => return false,
            // It cannot be done here, or not any more; the space is freed with the file.
            Err(_) => self.can_punch.store(false, Relaxed),
        }
        true
    }

    fn note_freed(&self, bytes: u64) {
        let mut freed = 0;
        // A piece may end in a gap, which took nothing.
        let _ = self.left.fetch_update(Relaxed, Relaxed, |left| {
            freed = bytes.min(left);
            Some(left - freed)
        });
        self.room.free(freed);
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
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
pub(super) struct Consumed {
    run: Run,
    freed: AtomicU64,
    piece: u64,
}

impl Consumed {
    pub(super) fn range(&self) -> Range<u64> {
        self.run.range()
    }

    pub(super) fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        self.run.read(into, at)
    }

    /// Frees what lies before a place, when that is worth it. One thread does.
    pub(super) fn free_before(&self, at: u64) {
        let (freed, whole) = (self.freed.load(Relaxed), at / RUN_ALIGNMENT * RUN_ALIGNMENT);
        if whole.saturating_sub(freed) >= self.piece && self.run.file.free(freed, whole.min(self.run.own.end)) {
            self.freed.store(whole, Relaxed);
        }
    }
}

impl Drop for Consumed {
    fn drop(&mut self) {
        self.run.file.free(self.freed.load(Relaxed), self.run.own.end);
    }
}

/// Reads one run as a stream.
pub(super) struct RunReader {
    run: Consumed,
    at: u64,
}

impl RunReader {
    pub(super) fn new(run: Consumed) -> Self {
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

#[cfg(test)]
mod tests {
    use elbow_file::double::{Faulty, Interposed, Operation, Plan};

    use super::*;

    const FREED_AT_ONCE: AtOnce = AtOnce { runs: 1, bytes: 0 };

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
        let blocks = || RealStorage.stat_handle(file.file.handle()).expect("a file").blocks * 512;
        assert!(blocks() >= 1_800_000);
        let mut readers: Vec<RunReader> = runs
            .into_iter()
            .map(|run| RunReader::new(run.consume(FREED_AT_ONCE)))
            .collect();
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

    /// A slice that freed the block in which another begins or ends would free what that has not read yet.
    #[test]
    fn slices_of_a_run_are_read_in_any_order_and_nothing_of_another_is_freed() {
        let (_places, mut spill) = spill(1);
        let text: Vec<u8> = (0..700_000_u32).map(|n| (n / 3) as u8).collect();
        let run = write(&mut spill, &text);
        let (file, start) = (run.file.clone(), run.start);
        let cuts = [0, 100, 65_536, 65_537, 300_000, 300_000, 640_000].map(|cut: u64| start + cut);
        let slices = run.slices(&cuts);
        let mut all = vec![Vec::new(); slices.len()];
        let odd_ones_first = (0..slices.len())
            .map(|n| (n + 1) % 2)
            .zip(slices.into_iter().zip(&mut all));
        let mut turns: Vec<_> = odd_ones_first.collect();
        turns.sort_by_key(|(turn, _)| *turn);
        for (_, (slice, all)) in turns {
            let mut reader = RunReader::new(slice.consume(FREED_AT_ONCE));
            reader.read_to_end(all).expect("what was written");
        }
        assert!(all.concat() == text);
        let blocks = RealStorage.stat_handle(file.file.handle()).expect("a file").blocks * 512;
        assert!(
            (1..=6 * CUT_ALIGNMENT).contains(&blocks),
            "{blocks}: the blocks with a cut are left"
        );
        drop(file);
        drop(spill.files.pop());
        assert_eq!(spill.room().taken_bytes(), 0);
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
        RunReader::new(run.consume(FREED_AT_ONCE))
            .read_to_end(&mut back)
            .expect("what was written");
        (back == text, spill.room().freed_bytes())
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
