//! Giving freed blocks back to the file system, and making all durable.
//!
//! Freed blocks are punched many at a time: a punch costs some 20 to 80 µs however much it frees. So that nobody waits
//! long and little is held back, a release begins by itself when 8 MiB or 2048 freed blocks are waiting. A punch can
//! fail on a full file system (ENOSPC: the file system needs room to note down the hole): then all is synced and it is
//! tried again, and what still fails waits for the next release; only a sync reports it.

use elbow_file::{Errno, unlock};
use elbow_ranges::RangeSet;

use super::bitmap::{Map, Page};
use super::blocks::Release;
use super::error::Result;
use super::release_state::ReleaseState;
use super::{BlockStore, StoreError, emptied};

/// So many bytes of freed blocks are released without a sync.
const STALE_BYTES_MAX: u64 = 8 << 20;
/// So many freed blocks are, if they are small: each may need a punch of its own.
const STALE_BLOCKS_MAX: u64 = 2048;

impl BlockStore {
    /// Makes durable all writes and frees that have returned, and gives freed space back.
    ///
    /// # Errors
    /// Those of the storage. What is not durable then is so after a later sync that succeeds.
    pub fn sync(&self) -> Result<()> {
        let mut release_state = self.release_state.lock();
        self.release(&mut release_state)?;
        if self.layout.has_bitmap {
            return self.store_map(&mut release_state);
        }
        self.storage
            .sync(&self.file)
            .map_err(|errno| StoreError::io(&self.name, "sync it", errno))
    }

    /// Syncs and closes the store.
    ///
    /// # Errors
    /// As [`sync`](Self::sync), and what the file system reports at the end.
    pub fn close(mut self) -> Result<()> {
        self.sync()?;
        let _ = unlock(&self.file); // as it is dropped, which it cannot be once its file is closed
        self.is_open = false;
        self.storage
            .close(&self.file)
            .map_err(|errno| StoreError::io(&self.name, "close it", errno))
    }

    /// How many freed blocks wait to be released together.
    pub(super) fn stale_max(&self) -> u64 {
        (STALE_BYTES_MAX / self.layout.unit).clamp(1, STALE_BLOCKS_MAX)
    }

    /// Releases blocks if enough of them wait still; what fails fails again at the next sync, and is reported there.
    pub(super) fn release_some(&self) {
        let mut release_state = self.release_state.lock();
        if self.lock_blocks().has_stale(self.stale_max()) {
            let _ = self.release(&mut release_state);
        }
    }

    /// Punches all that is stale and cuts off the free tail.
    fn release(&self, release_state: &mut ReleaseState) -> Result<()> {
        let release = self.lock_blocks().begin_release();
        let (failed, result) = self.carry_out(&release, release_state);
        self.lock_blocks().end_release(&failed);
        self.released.notify_all();
        result
    }

    /// Frees in the file what is to be released; what could not be, and why.
    fn carry_out(&self, release: &Release, release_state: &mut ReleaseState) -> (RangeSet, Result<()>) {
        let (mut failed, mut result) = (RangeSet::new(), Ok(()));
        let mut note = |start, end, outcome: Result<()>| {
            if let Err(error) = outcome {
                failed.insert(start, end);
                result = Err(error);
            }
        };
        if let Some(end) = release.end {
            release_state.versions.cut(end);
            note(end, end + 1, self.cut(end));
        }
        for range in &release.ranges {
            note(
                range.start,
                range.end,
                self.punch(range.start, range.end, release_state),
            );
        }
        (failed, result)
    }

    fn cut(&self, end: u64) -> Result<()> {
        let cut = match end {
            0 => emptied::cut_to_header(&*self.storage, &self.file, &self.layout),
            _ => self.storage.truncate(&self.file, self.layout.file_end(end)),
        };
        cut.map_err(|errno| StoreError::io(&self.name, "cut off freed blocks", errno))
    }

    fn punch(&self, mut start: u64, end: u64, release_state: &mut ReleaseState) -> Result<()> {
        while start < end && !release_state.cannot_punch {
            let run_end = end.min(start + self.layout.contiguous_from(start));
            self.punch_run(start, run_end, release_state)?;
            start = run_end;
        }
        Ok(())
    }

    fn punch_run(&self, start: u64, end: u64, release_state: &mut ReleaseState) -> Result<()> {
        let length = (end - start) * self.layout.unit;
        let punch = || self.storage.punch(&self.file, self.layout.offset_of(start), length);
        let result = match punch() {
            Err(Errno::NOSPC | Errno::DQUOT) => self.storage.sync_all(&self.file).and_then(|()| punch()),
            result => result,
        };
        match result {
            // With a bitmap the holes are a gift.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.layout.has_bitmap => {
                release_state.cannot_punch = true;
                Ok(())
            }
            result => result.map_err(|errno| StoreError::io(&self.name, "free blocks", errno)),
        }
    }

    fn store_map(&self, release_state: &mut ReleaseState) -> Result<()> {
        let pages: Vec<Page> = {
            let mut blocks = self.lock_blocks();
            let numbers = blocks.take_changed_pages();
            let is_in_file = |page: &u64| self.layout.page_offset(*page) < self.layout.file_end(blocks.end());
            let numbers = numbers.into_iter().filter(is_in_file);
            numbers.map(|number| Page::of(number, blocks.written())).collect()
        };
        let map = Map {
            storage: &*self.storage,
            file: &self.file,
            name: &self.name,
            layout: &self.layout,
        };
        let result = map.store(&mut release_state.versions, &pages);
        if result.is_err() {
            let numbers: Vec<u64> = pages.iter().map(|page| page.number).collect();
            self.lock_blocks().mark_changed(&numbers);
        }
        result
    }
}
