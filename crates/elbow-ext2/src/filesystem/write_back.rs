//! Write-back: when what is dirty is queued for the disk.
//!
//! ```text
//!   data, directories   dirty inode --(30 s old, too many, sync)--> queue, and its block of inodes becomes dirty
//!   everything else     dirty block --(30 s old, sync)-----------> queue
//! ```
//!
//! Nothing orders the two kinds, as nothing does in ext2, but for one thing: a block of inodes or a bitmap that a range
//! write under way will change is not queued before that is complete, or it would have to be written twice; fsync does
//! not wait for others.
//!
//! Source: Linux 2.6.20, mm/page-writeback.c (wb_kupdate, background_writeout, balance_dirty_pages), fs/fs-writeback.c,
//! by behaviour.

use super::Ext2;
use crate::Ext2Error;
use crate::queue::{FixedWrite, Owner, Work};
use crate::trace::Outcome;
use elbow_disk::Ps;

impl Ext2 {
    /// Queues what an inode has to write, in the order of the file.
    pub(super) fn flush_inode(&mut self, ino: u32) {
        self.volume.cache_mut().forget_inode(ino);
        if self.volume.inode(ino).writes > 0 {
            self.volume.inode_mut(ino).again = true;
            return;
        }
        let works = self.volume.begin_write_back(ino);
        works.into_iter().for_each(|work| self.queue.push_back(work));
        self.volume.touch_inode_block(ino);
    }

    /// What has been dirty for too long.
    pub(super) fn write_back_old(&mut self) {
        let cache = self.volume.cache();
        let Some(limit) = cache.now().0.checked_sub(self.volume.options().writeback.age.0) else {
            return;
        };
        while let Some((since, ino)) = self.volume.cache().oldest()
            && since <= Ps(limit)
        {
            self.flush_inode(ino);
        }
        if self.volume.cache().meta_since().is_some_and(|since| since <= Ps(limit)) {
            self.flush_meta();
        }
        self.write_back_excess();
    }

    /// The oldest, while there are too many.
    pub(super) fn write_back_excess(&mut self) {
        while self.volume.cache().dirty_blocks() > self.volume.options().writeback.background_blocks
            && let Some((_, ino)) = self.volume.cache().oldest()
        {
            self.flush_inode(ino);
        }
    }

    /// Are so many blocks dirty that a writer has to wait?
    pub(super) fn must_wait_to_write(&mut self) -> bool {
        let limit = self.volume.options().writeback.limit_blocks;
        let over = self.volume.cache().unwritten_blocks() > limit;
        // With nothing left to wait for, the limit is less than one write.
        over && {
            self.write_back_excess();
            self.queue.is_moving()
        }
    }

    /// Queues all other dirty blocks, in their order on the disk.
    fn flush_meta(&mut self) {
        let dirty = self.volume.cache().dirty_meta();
        let ready: Vec<u32> = dirty.filter(|&block| !self.is_held(block)).collect();
        ready.into_iter().for_each(|block| self.queue_meta(block));
        self.volume.cache_mut().restart_meta();
    }

    /// Is a block about to be changed by a write under way?
    fn is_held(&self, block: u32) -> bool {
        self.volume.cache().has_pending_pointers(block) || self.volume.space().is_bitmap_about_to_change(block)
    }

    /// Queues one of them, unless the disk has its last version still.
    fn queue_meta(&mut self, block: u32) {
        if self.volume.cache_mut().queue_meta(block) {
            self.queue.push_back(Work::Fixed(FixedWrite {
                at: block,
                blocks: 1,
                owner: Owner::Meta,
            }));
        }
    }

    /// Has everything written; done when nothing is left.
    pub(super) fn sync(&mut self) -> Outcome {
        while let Some((_, ino)) = self.volume.cache().oldest() {
            self.flush_inode(ino);
        }
        if self.volume.cache().placing() == 0 {
            self.flush_meta();
        }
        match self.left() {
            0 => Outcome::Done,
            _ => Outcome::Wait,
        }
    }

    /// Blocks, at least, that are still to be written.
    pub(super) fn left(&self) -> u64 {
        self.volume.cache().left() + self.queue.len() as u64
    }

    /// Has one file written, and what leads to it.
    pub(super) fn fsync(&mut self, path: &str) -> Result<Outcome, Ext2Error> {
        let ino = self.volume.inodes().resolve(path)?;
        if self.volume.cache().is_dirty(ino) {
            self.flush_inode(ino);
        }
        let inode = self.volume.inode(ino);
        if inode.writes > 0 {
            return Ok(Outcome::Wait);
        }
        let mut blocks: Vec<u32> = inode.nodes.values().copied().collect();
        blocks.push(self.volume.geometry().inode_block(ino));
        let mut clean = true;
        for block in blocks {
            self.queue_meta(block);
            clean &= !self.volume.cache().is_meta_under_way(block);
        }
        Ok(if clean { Outcome::Done } else { Outcome::Wait })
    }
}
