//! What is consumed is recorded, and then freed.
//!
//! Some megabytes at a time, or what came within a second: each step costs two syncs. What is lost of that in a crash is given
//! once more.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use elbow_file::{Handle, RealStorage, Storage, zero_in};

use super::checkpoint::Checkpoint;
use super::error::{ConsumeError, failed};

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
    /// Goes on where the checkpoint says; what a crash left behind that is freed now.
    pub(super) fn new(file: Handle, path: PathBuf, size: u64, checkpoint: Checkpoint) -> Result<Self> {
        let wanted = checkpoint.consumed();
        let last = Instant::now();
        let mut this = Self {
            file,
            path,
            size,
            checkpoint,
            wanted,
            freed: 0,
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
            self.checkpoint.write(self.wanted)?;
        }
        self.last = Instant::now();
        self.free()
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
