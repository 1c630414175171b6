//! The write-back cache: what is dirty, and when it is queued for the disk.
//!
//! ```text
//!   data, directories   dirty inode --(30 s old, too many, sync)--> queue, and its block of inodes becomes dirty
//!   everything else     dirty block --(30 s old, sync)-----------> queue
//! ```
//!
//! Nothing orders the two kinds, as nothing does in ext2, but for one thing: a block of inodes or a bitmap that a range write under way
//! will change is not queued before that is complete, or it would have to be written twice; fsync does not wait for others.
//!
//! Source: Linux 2.6.20, mm/page-writeback.c (wb_kupdate, background_writeout, balance_dirty_pages), fs/fs-writeback.c, by behaviour.

use crate::filesystem::{Ext2, Outcome};
use crate::geometry::Geometry;
use crate::inode::Node;
use crate::issue::{Owner, Work};
use crate::{BLOCKS_PER_GROUP, Ext2Error, Purpose};
use elbow_disk::Ps;

impl Ext2 {
    /// Something about an inode has to be written.
    pub(crate) fn touch(&mut self, ino: u32) {
        if self.dirty_keys.contains_key(&ino) {
            return;
        }
        self.dirty_count += 1;
        let key = (self.now, self.dirty_count);
        self.dirty_keys.insert(ino, key);
        self.dirty_inodes.insert(key, ino);
        self.inode_mut(ino).dirty_since = Some(key.0);
    }

    /// A block of the data of a file or directory has to be written.
    pub(crate) fn touch_data(&mut self, ino: u32, block: u32) {
        self.touch(ino);
        let dirty = &mut self.inode_mut(ino).dirty;
        if !dirty.contains(block.into()) {
            dirty.insert(block.into(), u64::from(block) + 1);
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

    pub(crate) fn touch_super(&mut self, group: u32) {
        self.touch_meta(0, Purpose::Super);
        self.touch_meta(Geometry::descriptor_block(group), Purpose::Super);
    }

    /// An inode has nothing to write any more.
    pub(crate) fn forget_inode(&mut self, ino: u32) {
        if let Some(key) = self.dirty_keys.remove(&ino) {
            self.dirty_inodes.remove(&key);
            self.inode_mut(ino).dirty_since = None;
        }
    }

    /// Queues what an inode has to write, in the order of the file.
    pub(crate) fn flush_inode(&mut self, ino: u32) {
        self.forget_inode(ino);
        let longest = self.options.request_blocks_max;
        let inode = self.inode_mut(ino);
        if inode.writes > 0 {
            inode.again = true;
            return;
        }
        let dirty = std::mem::take(&mut inode.dirty);
        let mut works: Vec<Work> = Vec::new();
        for block in dirty.iter().flat_map(|run| run.start as u32..run.end as u32) {
            match (works.last_mut(), inode.place(block)) {
                (Some(Work::Place { blocks, .. }), None) if blocks.end == block => blocks.end += 1,
                (Some(Work::Fixed { at, blocks, .. }), Some(place)) if *at + *blocks == place && *blocks < longest => {
                    *blocks += 1;
                }
                (_, Some(at)) => works.push(Work::Fixed {
                    at,
                    blocks: 1,
                    owner: Owner::Data(ino),
                }),
                (_, None) => works.push(Work::Place {
                    ino,
                    blocks: block..block + 1,
                }),
            }
        }
        inode.writes += works.len() as u32;
        self.dirty_blocks -= dirty.total_bytes();
        self.writeback_blocks += dirty.total_bytes();
        for work in works {
            if matches!(work, Work::Place { .. }) {
                self.begin_placing(ino);
            }
            self.queue.push_back(work);
        }
        self.touch_meta(self.geometry.inode_block(ino), Purpose::Inodes);
    }

    /// What has been dirty for too long.
    pub(crate) fn write_back_old(&mut self) {
        let Some(limit) = self.now.0.checked_sub(self.options.writeback.age.0) else {
            return;
        };
        while let Some((&(since, _), &ino)) = self.dirty_inodes.first_key_value()
            && since <= Ps(limit)
        {
            self.flush_inode(ino);
        }
        if self.meta_since.is_some_and(|since| since <= Ps(limit)) {
            self.flush_meta();
        }
        self.write_back_excess();
    }

    /// The oldest, while there are too many.
    pub(crate) fn write_back_excess(&mut self) {
        while self.dirty_blocks > self.options.writeback.background_blocks
            && let Some((_, &ino)) = self.dirty_inodes.first_key_value()
        {
            self.flush_inode(ino);
        }
    }

    /// Are so many blocks dirty that a writer has to wait?
    pub(crate) fn must_wait_to_write(&mut self) -> bool {
        let limit = self.options.writeback.limit_blocks;
        let over = self.dirty_blocks + self.writeback_blocks > limit;
        // With nothing left to wait for, the limit is less than one write.
        over && {
            self.write_back_excess();
            !self.queue.is_empty() || !self.in_flight.is_empty()
        }
    }

    /// Queues all other dirty blocks, in their order on the disk.
    pub(crate) fn flush_meta(&mut self) {
        let ready: Vec<u32> = self
            .dirty_meta
            .keys()
            .copied()
            .filter(|&block| !self.held(block))
            .collect();
        ready.into_iter().for_each(|block| self.queue_meta(block));
        self.meta_since = (!self.dirty_meta.is_empty()).then_some(self.now);
    }

    /// Is a block about to be changed by a write under way?
    fn held(&self, block: u32) -> bool {
        let group = block / BLOCKS_PER_GROUP;
        let pointers = self.pending_pointers.contains_key(&block);
        let bits = block == self.geometry.block_bitmap_block(group) && self.claims.names(&self.groups[group as usize]);
        pointers || bits
    }

    /// Queues one of them, unless the disk has its last version still.
    fn queue_meta(&mut self, block: u32) {
        if !self.meta_in_flight.contains(&block) && self.dirty_meta.remove(&block).is_some() {
            self.meta_queued.insert(block);
            self.queue.push_back(Work::Fixed {
                at: block,
                blocks: 1,
                owner: Owner::Meta,
            });
        }
    }

    /// Has everything written; done when nothing is left.
    pub(crate) fn sync(&mut self) -> Outcome {
        while let Some((_, &ino)) = self.dirty_inodes.first_key_value() {
            self.flush_inode(ino);
        }
        if self.placing == 0 {
            self.flush_meta();
        }
        match self.left() {
            0 => Outcome::Done,
            _ => Outcome::Wait,
        }
    }

    /// Blocks, at least, that are still to be written.
    pub(crate) fn left(&self) -> u64 {
        let blocks = self.dirty_blocks + self.writeback_blocks + self.dirty_meta.len() as u64;
        blocks + (self.queue.len() + self.stalled.len() + self.in_flight.len() + self.dirty_inodes.len()) as u64
    }

    /// Has one file written, and what leads to it.
    pub(crate) fn fsync(&mut self, path: &str) -> Result<Outcome, Ext2Error> {
        let ino = self.resolve(path)?;
        if self.dirty_keys.contains_key(&ino) {
            self.flush_inode(ino);
        }
        if self.inodes[&ino].writes > 0 {
            return Ok(Outcome::Wait);
        }
        let nodes: Vec<(Node, u32)> = self.inodes[&ino]
            .nodes
            .iter()
            .map(|(&node, &place)| (node, place))
            .collect();
        let mut clean = true;
        for block in nodes
            .into_iter()
            .map(|(_, place)| place)
            .chain([self.geometry.inode_block(ino)])
        {
            self.queue_meta(block);
            clean &= !self.meta_queued.contains(&block) && !self.meta_in_flight.contains(&block);
        }
        Ok(if clean { Outcome::Done } else { Outcome::Wait })
    }
}
