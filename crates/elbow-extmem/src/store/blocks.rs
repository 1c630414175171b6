//! What each block is, in memory: no call to the storage is made here.
//!
//! ```text
//!              alloc              write returned              free
//!    free ───────────> allocated ────────────────> written ──────────> free and stale
//!      ^                   │ free                                          │ released: punched or cut off
//!      └───────────────────┴───────────────────────────────────────────────┘
//! ```
//!
//! *Stale* blocks have bytes in the file although nothing is written to them: freed ones, freed ones that were
//! allocated again, those of a first write that failed, and those that were skipped when the file grew, which may have
//! space. They are released in large pieces, and a write makes them good.
//!
//! Invariants: written blocks are allocated; no block is both written and stale; a block is written or stale, or is
//! being written, if the file has bytes for it; blocks from `file_end` on have none. While blocks are being released,
//! nobody begins to write them.

use std::collections::BTreeSet;
use std::ops::Range;

use elbow_ranges::RangeSet;

use super::bitset::Bitset;
use super::layout::BLOCKS_PER_PAGE;

#[derive(Debug)]
pub(super) struct Blocks {
    allocated: Bitset,
    written: Bitset,
    stale: RangeSet,
    releasing: RangeSet,
    /// How many blocks the last release could not release.
    kept_back: u64,
    /// How many blocks there can be.
    most: u64,
    /// How many blocks are allocated.
    count: u64,
    /// One past the last allocated block.
    end: u64,
    /// One past the last block that the file may have bytes for.
    file_end: u64,
    /// That was less at the last release.
    has_grown: bool,
    /// Pages of the bitmap that differ from the file.
    changed_pages: BTreeSet<u64>,
}

/// What a block is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It lies behind the last allocated block.
    OutOfRange { block: u64, blocks: u64 },
    /// It is free.
    Free(u64),
}

/// Blocks on their way to become holes.
#[derive(Debug)]
pub(super) struct Release {
    /// To be punched.
    pub(super) ranges: Vec<Range<u64>>,
    /// To be cut off: all from this one on.
    pub(super) end: Option<u64>,
}

impl Blocks {
    /// The state of a file that has these blocks, bytes for those and others, and room for so many.
    pub(super) fn found(written: Bitset, data: RangeSet, most: u64) -> Self {
        let mut allocated = Bitset::new();
        let (mut count, mut end) = (0, 0);
        for range in written.ranges() {
            count += range.end - range.start;
            end = range.end;
            range.for_each(|block| {
                allocated.insert(block);
            });
        }
        let file_end = data.span().map_or(0, |span| span.end);
        let mut stale = data;
        written.ranges().for_each(|range| stale.remove(range.start, range.end));
        Self {
            allocated,
            written,
            stale,
            releasing: RangeSet::new(),
            kept_back: 0,
            most,
            count,
            end,
            file_end: file_end.max(end),
            has_grown: false,
            changed_pages: BTreeSet::new(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn end(&self) -> u64 {
        self.end
    }

    pub(super) fn written(&self) -> &Bitset {
        &self.written
    }

    pub(super) fn allocated(&self) -> &Bitset {
        &self.allocated
    }

    /// Takes the lowest free block; `None` when there can be no more.
    pub(super) fn alloc(&mut self) -> Option<u64> {
        let block = self.allocated.first_absent();
        if block >= self.most {
            return None;
        }
        self.allocated.insert(block);
        self.count += 1;
        self.end = self.end.max(block + 1);
        Some(block)
    }

    /// Frees all of these blocks, or none where one of them is free already or named twice.
    pub(super) fn free(&mut self, blocks: &[u64]) -> Result<(), Fault> {
        for (index, &block) in blocks.iter().enumerate() {
            if !self.allocated.remove(block) {
                let fault = self.fault(block);
                for &block in &blocks[..index] {
                    self.allocated.insert(block);
                }
                return Err(fault);
            }
        }
        for &block in blocks {
            if self.written.remove(block) {
                self.stale.insert(block, block + 1);
                self.changed_pages.insert(block / BLOCKS_PER_PAGE);
            }
            if block + 1 == self.end {
                self.end = self.allocated.last_below(block).map_or(0, |last| last + 1);
            }
        }
        self.count -= blocks.len() as u64;
        Ok(())
    }

    fn fault(&self, block: u64) -> Fault {
        if block < self.end {
            Fault::Free(block)
        } else {
            Fault::OutOfRange {
                block,
                blocks: self.end,
            }
        }
    }

    /// Whether a block holds data.
    pub(super) fn is_written(&self, block: u64) -> Result<bool, Fault> {
        if self.written.contains(block) {
            return Ok(true);
        }
        self.is_allocated(block).map(|()| false)
    }

    fn is_allocated(&self, block: u64) -> Result<(), Fault> {
        if self.allocated.contains(block) {
            Ok(())
        } else {
            Err(self.fault(block))
        }
    }

    /// Whether a block must not be written yet.
    pub(super) fn is_being_released(&self, block: u64) -> bool {
        self.releasing.contains(block)
    }

    /// Says that a block is going to be written; whether it holds data already.
    pub(super) fn begin_write(&mut self, block: u64) -> bool {
        self.stale.remove(block, block + 1);
        if block >= self.file_end {
            // The file system may have given space to what is skipped, and keep it.
            self.stale.insert(self.file_end, block);
            self.file_end = block + 1;
            self.has_grown = true;
        }
        self.written.contains(block)
    }

    /// Says that a write has returned.
    pub(super) fn end_write(&mut self, block: u64, done: bool) {
        if done && self.allocated.contains(block) {
            if self.written.insert(block) {
                self.changed_pages.insert(block / BLOCKS_PER_PAGE);
            }
        } else if !self.written.contains(block) {
            self.stale.insert(block, block + 1);
            self.file_end = self.file_end.max(block + 1);
        }
    }

    /// Whether so many more blocks wait for their release than could not be released the last time.
    pub(super) fn has_stale(&self, blocks: u64) -> bool {
        self.stale.total_bytes() >= self.kept_back + blocks
    }

    /// Begins to release all stale blocks, and the tail of the file where that is free. A file that has grown is cut to
    /// its size, since the file system may have given space to what could come behind (xfs does).
    pub(super) fn begin_release(&mut self) -> Release {
        assert!(self.releasing.is_empty(), "one release at a time");
        let must_cut = self.has_grown || self.end < self.file_end;
        let end = must_cut.then(|| self.end.min(self.file_end));
        self.has_grown = false;
        self.stale.remove(self.end, u64::MAX);
        let ranges: Vec<_> = self.stale.iter().collect();
        self.releasing = std::mem::take(&mut self.stale);
        if let Some(end) = end {
            self.releasing.insert(end, u64::MAX);
            self.file_end = end;
        }
        Release { ranges, end }
    }

    /// Ends a release, but for what could not be released.
    pub(super) fn end_release(&mut self, failed: &RangeSet) {
        self.releasing = RangeSet::new();
        for range in failed {
            self.stale.insert(range.start, range.end);
            self.file_end = self.file_end.max(range.end);
        }
        self.kept_back = failed.total_bytes();
    }

    /// The pages of the bitmap that differ from the file; from now on they are taken not to.
    pub(super) fn take_changed_pages(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.changed_pages).into_iter().collect()
    }

    /// Says that these pages still differ from the file.
    pub(super) fn mark_changed(&mut self, pages: &[u64]) {
        self.changed_pages.extend(pages);
    }
}
