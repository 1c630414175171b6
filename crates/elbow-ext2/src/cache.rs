//! What of the memory has to be written, and since when.
//!
//! What always holds: an inode with a dirty block is dirty itself; a block of metadata waits in the queue at most once;
//! the blocks counted as dirty are those that the inodes have so marked.
//!
//! It does not decide when something is written: that is [`Ext2`](crate::Ext2)'s, by age, number and wish.

use std::collections::{BTreeMap, HashMap, HashSet};

use elbow_disk::Ps;
use elbow_ranges::RangeSet;

use crate::Purpose;
use crate::inode::Inode;

/// The state of write-back.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    now: Ps,
    /// Inodes with something to write, oldest first.
    dirty_inodes: BTreeMap<(Ps, u64), u32>,
    /// Their keys there.
    dirty_keys: HashMap<u32, (Ps, u64)>,
    /// How many became dirty so far: it orders those of one moment.
    dirtied: u64,
    /// Blocks of data to be written, and queued or in flight.
    dirty_blocks: u64,
    writeback_blocks: u64,
    /// Other blocks to be written, and since when there are any.
    dirty_meta: BTreeMap<u32, Purpose>,
    meta_since: Option<Ps>,
    /// Those that wait in the queue, and those that the disk has.
    meta_queued: HashSet<u32>,
    meta_in_flight: HashSet<u32>,
    /// Writes that will change a block of inodes when they are placed.
    pending_pointers: HashMap<u32, u32>,
    /// Pieces of files to be placed that are queued, stalled or in flight.
    placing: u64,
}

impl Cache {
    /// Says what time it is; time does not go back.
    pub(crate) fn advance(&mut self, now: Ps) {
        assert!(now >= self.now, "time goes forward");
        self.now = now;
    }

    pub(crate) fn now(&self) -> Ps {
        self.now
    }

    /// Something about an inode has to be written.
    pub(crate) fn touch(&mut self, ino: u32) {
        if self.dirty_keys.contains_key(&ino) {
            return;
        }
        self.dirtied += 1;
        let key = (self.now, self.dirtied);
        self.dirty_keys.insert(ino, key);
        self.dirty_inodes.insert(key, ino);
    }

    /// A block of the data of a file or directory has to be written.
    pub(crate) fn touch_data(&mut self, ino: u32, inode: &mut Inode, block: u32) {
        self.touch(ino);
        if !inode.dirty.contains(block.into()) {
            inode.dirty.insert(block.into(), u64::from(block) + 1);
            self.dirty_blocks += 1;
        }
    }

    /// Another block has to be written. What is queued already will have the change.
    pub(crate) fn touch_meta(&mut self, block: u32, purpose: Purpose) {
        if !self.meta_queued.contains(&block) {
            self.dirty_meta.insert(block, purpose);
            self.meta_since.get_or_insert(self.now);
        }
    }

    pub(crate) fn is_dirty(&self, ino: u32) -> bool {
        self.dirty_keys.contains_key(&ino)
    }

    /// The inode that has been dirty for longest, and since when.
    pub(crate) fn oldest(&self) -> Option<(Ps, u32)> {
        self.dirty_inodes
            .first_key_value()
            .map(|(&(since, _), &ino)| (since, ino))
    }

    /// An inode has nothing to write any more.
    pub(crate) fn forget_inode(&mut self, ino: u32) {
        if let Some(key) = self.dirty_keys.remove(&ino) {
            self.dirty_inodes.remove(&key);
        }
    }

    /// The dirty blocks of an inode, which are queued now.
    pub(crate) fn begin_write(&mut self, inode: &mut Inode) -> RangeSet {
        let dirty = std::mem::take(&mut inode.dirty);
        self.dirty_blocks -= dirty.total_bytes();
        self.writeback_blocks += dirty.total_bytes();
        dirty
    }

    /// A write of so many of them is complete, or was struck off.
    pub(crate) fn end_write(&mut self, blocks: u32) {
        self.writeback_blocks -= u64::from(blocks);
    }

    /// Blocks of an inode from one on will never be written.
    pub(crate) fn forget_data(&mut self, inode: &mut Inode, from: u32) {
        let before = inode.dirty.total_bytes();
        inode.dirty.remove(from.into(), u64::MAX);
        self.dirty_blocks -= before - inode.dirty.total_bytes();
    }

    /// Takes all that is dirty to be on the disk. The inodes that were.
    pub(crate) fn forget_all(&mut self) -> Vec<u32> {
        self.dirty_keys.clear();
        self.dirty_meta.clear();
        self.meta_since = None;
        std::mem::take(&mut self.dirty_inodes).into_values().collect()
    }

    /// Blocks of data to be written that are not queued.
    pub(crate) fn dirty_blocks(&self) -> u64 {
        self.dirty_blocks
    }

    /// Blocks of data to be written, and queued or in flight.
    pub(crate) fn unwritten_blocks(&self) -> u64 {
        self.dirty_blocks + self.writeback_blocks
    }

    /// Everything that is left to write, in blocks and inodes.
    pub(crate) fn left(&self) -> u64 {
        self.unwritten_blocks() + (self.dirty_meta.len() + self.dirty_inodes.len()) as u64
    }

    /// Since when there has been a dirty block that is not data.
    pub(crate) fn meta_since(&self) -> Option<Ps> {
        self.meta_since
    }

    /// Dirty blocks that are not data, in their order on the disk.
    pub(crate) fn dirty_meta(&self) -> impl Iterator<Item = u32> {
        self.dirty_meta.keys().copied()
    }

    /// What can be queued of them has been: what is left counts as new.
    pub(crate) fn restart_meta(&mut self) {
        self.meta_since = (!self.dirty_meta.is_empty()).then_some(self.now);
    }

    /// Notes that a block is queued; `false` where it is clean, or the disk has its last version still.
    pub(crate) fn queue_meta(&mut self, block: u32) -> bool {
        let queued = !self.meta_in_flight.contains(&block) && self.dirty_meta.remove(&block).is_some();
        if queued {
            self.meta_queued.insert(block);
        }
        queued
    }

    /// A block that was queued need not be written: it holds nothing any more.
    pub(crate) fn strike_meta(&mut self, block: u32) {
        self.meta_queued.remove(&block);
    }

    /// A dirty block is nobody's any more.
    pub(crate) fn forget_meta(&mut self, block: u32) {
        self.dirty_meta.remove(&block);
    }

    /// The disk is asked to write a block.
    pub(crate) fn begin_meta(&mut self, block: u32) {
        self.meta_queued.remove(&block);
        self.meta_in_flight.insert(block);
    }

    /// The disk has written it.
    pub(crate) fn end_meta(&mut self, block: u32) {
        self.meta_in_flight.remove(&block);
    }

    /// Is a block queued, or has the disk been asked to write it?
    pub(crate) fn is_meta_under_way(&self, block: u32) -> bool {
        self.meta_queued.contains(&block) || self.meta_in_flight.contains(&block)
    }

    /// A piece of a file is to be placed; the block of inodes that will point to it changes then.
    pub(crate) fn begin_placing(&mut self, inode_block: u32) {
        self.placing += 1;
        *self.pending_pointers.entry(inode_block).or_default() += 1;
    }

    /// It is, or need not be.
    pub(crate) fn end_placing(&mut self, inode_block: u32) {
        self.placing -= 1;
        let count = self.pending_pointers.get_mut(&inode_block).expect("it was begun");
        *count -= 1;
        if *count == 0 {
            self.pending_pointers.remove(&inode_block);
        }
    }

    /// Pieces of files that have no place yet.
    pub(crate) fn placing(&self) -> u64 {
        self.placing
    }

    /// Will a block of inodes change when a write that is under way has its place?
    pub(crate) fn has_pending_pointers(&self, inode_block: u32) -> bool {
        self.pending_pointers.contains_key(&inode_block)
    }
}
