//! What is consumed is recorded, and then freed.
//!
//! Some megabytes at a time, or what came within a second: each step costs three syncs. What is lost of that in a crash is given
//! once more.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use elbow_file::{Handle, RealStorage, Storage, zero_in};

use super::checkpoint::{Checkpoint, Progress};
use super::error::{ConsumeError, failed};
use super::tail::Tail;

/// A step is as large as this, or as late as that.
const STEP_BYTES: u64 = 4 << 20;
const STEP_TIME: Duration = Duration::from_secs(1);
/// Blocks of no file system are larger; what is freed in parts of blocks is zeroed and not freed.
const ALIGNMENT: u64 = 64 << 10;

type Result<T> = std::result::Result<T, ConsumeError>;

/// A file that is consumed from its beginning.
pub(super) struct Freeing {
    file: Handle,
    path: PathBuf,
    size: u64,
    checkpoint: Checkpoint,
    /// Up to where it has been asked for.
    wanted: u64,
    /// Up to where there is nothing any more.
    freed: u64,
    last: Instant,
}

impl Freeing {
    /// Goes on where the checkpoint says, of a file that is still the same; what a crash left to be freed is freed now.
    pub(super) fn new(file: Handle, path: PathBuf, size: u64, checkpoint: Checkpoint) -> Result<Self> {
        let (wanted, freed) = (checkpoint.consumed(), checkpoint.progress().freed);
        let last = Instant::now();
        let mut this = Self {
            file,
            path,
            size,
            checkpoint,
            wanted,
            freed,
            last,
        };
        this.free()?;
        Ok(this)
    }

    /// Where what is recorded as consumed ends.
    pub(super) fn consumed(&self) -> u64 {
        self.checkpoint.consumed()
    }

    /// Where what is consumed ends, recorded or not yet.
    pub(super) fn wanted(&self) -> u64 {
        self.wanted
    }

    /// All before this place is consumed.
    pub(super) fn consume(&mut self, before: u64) -> Result<()> {
        self.wanted = self.wanted.max(before.min(self.size));
        self.step()
    }

    /// Records and frees if it is time.
    pub(super) fn step(&mut self) -> Result<()> {
        let due = self.wanted - self.consumed();
        let is_time = due >= STEP_BYTES || (due > 0 && self.last.elapsed() >= STEP_TIME);
        if is_time { self.flush() } else { Ok(()) }
    }

    /// Records and frees all of it.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.wanted > self.consumed() {
            let tail = Tail::before(self.wanted, &self.file).map_err(failed("reading", &self.path))?;
            self.record(self.wanted, tail)?;
        }
        self.last = Instant::now();
        self.free()
    }

    /// The same when nothing more will come: records what is freed, too.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.flush()?;
        let Progress { consumed, freed, tail } = self.checkpoint.progress().clone();
        if self.freed > freed {
            self.record(consumed, tail)?;
        }
        Ok(())
    }

    /// What was freed before has to be durable: it is said to be zeros from then on.
    fn record(&mut self, consumed: u64, tail: Tail) -> Result<()> {
        let freed = self.freed;
        if freed > self.checkpoint.progress().freed {
            RealStorage.sync(&self.file).map_err(failed("syncing", &self.path))?;
        }
        self.checkpoint.write(Progress { consumed, freed, tail })
    }

    fn free(&mut self) -> Result<()> {
        let consumed = self.consumed();
        let end = if consumed == self.size {
            consumed
        } else {
            consumed / ALIGNMENT * ALIGNMENT
        };
        if end <= self.freed {
            return Ok(());
        }
        let zeroed = zero_in(&RealStorage, &self.file, self.freed, end - self.freed);
        let zeroed = zeroed.map_err(failed("freeing a part of", &self.path))?;
        // What a full disk has no room to free is tried again with the next step.
        self.freed = zeroed.deferred.span().map_or(end, |span| span.start);
        Ok(())
    }

    /// What it takes of the disk.
    pub(super) fn disk_bytes(&self) -> Result<u64> {
        let stat = RealStorage
            .stat_handle(&self.file)
            .map_err(failed("looking at", &self.path))?;
        Ok(stat.blocks * 512)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods)] // tests look at the storage themselves

    use std::os::unix::fs::{FileExt, MetadataExt};

    use elbow_file::Access;

    use super::super::checkpoint::Subject;
    use super::*;

    /// It died behind the write of the checkpoint, and before anything was freed.
    #[test]
    fn what_a_crash_left_to_be_freed_is_freed() {
        const BYTES: u64 = 3 << 20;
        let directory = tempfile::tempdir().expect("a directory");
        let (path, checkpoint_path) = (directory.path().join("f"), directory.path().join("f.consumed"));
        std::fs::write(&path, vec![7; BYTES as usize]).expect("room");
        let blocks = || std::fs::metadata(&path).expect("a file").blocks();
        let file = RealStorage::open_file(&path, Access::ReadWrite).expect("a file");
        let subject = Subject::of(&file, &path).expect("a file");
        let mut checkpoint = Checkpoint::create(&checkpoint_path, subject).expect("a checkpoint");
        for consumed in [1 << 20, BYTES] {
            let (freed, tail) = (
                checkpoint.progress().freed,
                Tail::before(consumed, &file).expect("a tail"),
            );
            let before = blocks();
            checkpoint.write(Progress { consumed, freed, tail }).expect("room");
            checkpoint = Checkpoint::open(&checkpoint_path).expect("a checkpoint").expect("one");
            assert_eq!(super::super::first_anew(&checkpoint, &file).expect("a file"), None);
            let mut freeing = Freeing::new(file.clone(), path.clone(), BYTES, checkpoint).expect("a file");
            assert!(blocks() < before, "nothing was freed up to {consumed}");
            freeing.finish().expect("room");
            checkpoint = Checkpoint::open(&checkpoint_path).expect("a checkpoint").expect("one");
            assert_eq!(checkpoint.progress().freed, consumed);
            assert_eq!(super::super::first_anew(&checkpoint, &file).expect("a file"), None);
        }
        for at in [0, 5000, BYTES - 1] {
            let plain = std::fs::File::options().write(true).open(&path).expect("a file");
            plain.write_all_at(&[1], at).expect("room");
            assert_eq!(super::super::first_anew(&checkpoint, &file).expect("a file"), Some(at));
            plain.write_all_at(&[0], at).expect("room");
        }
    }
}
