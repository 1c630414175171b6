//! The data of files: written, read, cut off, dropped.

use std::ops::Range;

use crate::filesystem::{Ext2, Outcome};
use crate::inode::{BLOCKS_MAX, Node};
use crate::issue::Work;
use crate::{BLOCK_BYTES, Ext2Error, Purpose};

/// Blocks that a range of bytes touches.
fn blocks(offset: u64, bytes: u64) -> Range<u32> {
    let size = BLOCK_BYTES as u64;
    (offset / size) as u32..(offset + bytes).div_ceil(size) as u32
}

impl Ext2 {
    pub(crate) fn check_space(&self, path: &str, needed: u64) -> Result<(), Ext2Error> {
        let free = self.free_blocks();
        match needed <= free {
            true => Ok(()),
            false => Err(Ext2Error::NoSpace {
                path: path.to_owned(),
                needed,
                free,
            }),
        }
    }

    pub(crate) fn write(&mut self, pid: u32, path: &str, offset: u64, bytes: u64) -> Result<Outcome, Ext2Error> {
        let ino = self.resolve_file(path)?;
        let end = offset.saturating_add(bytes);
        if end.div_ceil(BLOCK_BYTES as u64) > BLOCKS_MAX.into() {
            let (path, bytes) = (path.to_owned(), end);
            return Err(Ext2Error::TooLarge { path, bytes });
        }
        let touched = blocks(offset, bytes);
        self.check_space(path, self.still_needed(ino, touched.clone()))?;
        if self.must_wait_to_write() || !self.edges_are_resident(ino, offset, bytes) {
            return Ok(Outcome::Wait);
        }
        let time = self.seconds();
        let inode = self.inode_mut(ino);
        inode.pid = pid;
        inode.size = inode.size.max(end);
        (inode.mtime, inode.ctime) = (time, time);
        self.touch(ino);
        for block in touched {
            self.write_block(ino, block);
        }
        self.write_back_excess();
        Ok(Outcome::Done)
    }

    /// Blocks without a place, and without a promise of one.
    fn still_needed(&self, ino: u32, touched: Range<u32>) -> u64 {
        let inode = &self.inodes[&ino];
        let ahead = u64::from(inode.preallocated.end - inode.preallocated.start);
        let mut nodes = std::collections::BTreeSet::new();
        let mut needed = 0;
        for block in touched.filter(|&block| inode.place(block).is_none()) {
            let held = inode.unplaced.contains(block.into()) || inode.placing.contains(block.into());
            needed += u64::from(!held);
            nodes.extend(inode.missing_nodes(block));
        }
        let held = |node: &Node| inode.promised.contains(node) || inode.placing_nodes.contains(node);
        (needed + nodes.iter().filter(|node| !held(node)).count() as u64).saturating_sub(ahead)
    }

    /// A block of which only a part is written has to be read, if it is on the disk alone.
    fn edges_are_resident(&mut self, ino: u32, offset: u64, bytes: u64) -> bool {
        let size = BLOCK_BYTES as u64;
        let end = offset + bytes;
        let inode_size = self.inodes[&ino].size;
        let cut_start = !offset.is_multiple_of(size) || (end < offset / size * size + size && end < inode_size);
        let cut_end = !end.is_multiple_of(size) && end < inode_size;
        let touched = blocks(offset, bytes);
        if touched.is_empty() {
            return true;
        }
        let first = (cut_start).then_some(touched.start);
        let last = (cut_end).then_some(touched.end - 1);
        let mut resident = true;
        for block in first.into_iter().chain(last) {
            resident &= self.is_resident(ino, block..block + 1);
        }
        resident
    }

    fn write_block(&mut self, ino: u32, block: u32) {
        if self.inodes[&ino].place(block).is_none() {
            match self.places_late() {
                true => self.promise(ino, block),
                false => assert!(
                    self.place_classically(ino, block),
                    "there is space, and nothing is named"
                ),
            }
        }
        self.make_resident(ino, block..block + 1);
        self.touch_data(ino, block);
    }

    /// Sets blocks aside, wherever they will be.
    fn promise(&mut self, ino: u32, block: u32) {
        let inode = self.inode_mut(ino);
        if inode.unplaced.contains(block.into()) || inode.placing.contains(block.into()) {
            return;
        }
        inode.unplaced.insert(block.into(), u64::from(block) + 1);
        let missing: Vec<Node> = inode.missing_nodes(block).collect();
        let new = missing
            .into_iter()
            .filter(|node| !inode.placing_nodes.contains(node) && inode.promised.insert(*node))
            .count();
        self.promised += 1 + new as u64;
    }

    pub(crate) fn read(&mut self, path: &str, offset: u64, bytes: u64) -> Result<Outcome, Ext2Error> {
        let ino = self.resolve_file(path)?;
        let end = offset.saturating_add(bytes).min(self.inodes[&ino].size);
        if offset >= end {
            return Ok(Outcome::Done);
        }
        match self.is_resident(ino, blocks(offset, end - offset)) {
            true => {
                let time = self.seconds();
                self.inode_mut(ino).atime = time;
                Ok(Outcome::Done)
            }
            false => Ok(Outcome::Wait),
        }
    }

    /// Are blocks in memory? What is not is asked for.
    fn is_resident(&mut self, ino: u32, wanted: Range<u32>) -> bool {
        let inode = &self.inodes[&ino];
        let mut all = true;
        let mut missing: Vec<(u32, Range<u32>)> = Vec::new();
        for block in wanted.clone() {
            let Some(place) = inode.place(block).filter(|_| !inode.resident.contains(block.into())) else {
                continue;
            };
            all = false;
            if inode.reading.contains(block.into()) {
                continue;
            }
            match missing.last_mut() {
                Some((at, run))
                    if run.end == block
                        && *at + (run.end - run.start) == place
                        && run.end - run.start < self.options.request_blocks_max =>
                {
                    run.end += 1;
                }
                _ => missing.push((place, block..block + 1)),
            }
        }
        let (start, end) = (wanted.start.into(), wanted.end.into());
        let inode = self.inode_mut(ino);
        match all {
            true => inode.wanted.remove(start, end),
            false => inode.wanted.insert(start, end),
        }
        for (at, blocks) in missing.into_iter().rev() {
            let reading = &mut self.inode_mut(ino).reading;
            reading.insert(blocks.start.into(), blocks.end.into());
            self.queue.push_front(Work::Read { ino, at, blocks });
        }
        all
    }

    pub(crate) fn make_resident(&mut self, ino: u32, blocks: Range<u32>) {
        let inode = self.inode_mut(ino);
        let before = inode.resident.total_bytes();
        inode.resident.insert(blocks.start.into(), blocks.end.into());
        let new = inode.resident.total_bytes() - before;
        self.resident_blocks += new;
        if before == 0 && new > 0 {
            self.resident_order.push_back(ino);
        }
        self.evict();
    }

    /// Forgets clean blocks of the files that came first, until the rest fits; but nothing that somebody waits for, who would else wait for ever for
    /// more than the memory holds.
    fn evict(&mut self) {
        for _ in 0..self.resident_order.len() {
            if self.resident_blocks <= self.options.memory_blocks {
                return;
            }
            let Some(ino) = self.resident_order.pop_front() else {
                return;
            };
            let Some(inode) = self.inodes.get_mut(&ino) else {
                continue;
            };
            if inode.writes == 0 {
                let kept = inode.resident.intersection(&inode.dirty.union(&inode.wanted));
                self.resident_blocks -= inode.resident.total_bytes() - kept.total_bytes();
                inode.resident = kept;
            }
            if !inode.resident.is_empty() {
                self.resident_order.push_back(ino);
            }
        }
    }

    /// Sets the size of a file; what lies behind it is given back.
    pub(crate) fn truncate(&mut self, path: &str, bytes: u64) -> Result<Outcome, Ext2Error> {
        let ino = self.resolve_file(path)?;
        if self.inodes[&ino].writes > 0 {
            return Ok(Outcome::Wait); // as truncate waits for pages under write-back
        }
        if bytes.div_ceil(BLOCK_BYTES as u64) > BLOCKS_MAX.into() {
            let path = path.to_owned();
            return Err(Ext2Error::TooLarge { path, bytes });
        }
        self.discard_preallocation(ino);
        self.cut(ino, bytes.div_ceil(BLOCK_BYTES as u64) as u32);
        let time = self.seconds();
        let inode = self.inode_mut(ino);
        inode.size = bytes;
        inode.next = None;
        (inode.mtime, inode.ctime) = (time, time);
        self.touch(ino);
        Ok(Outcome::Done)
    }

    /// Gives back all blocks from one on, and the indirect blocks that only lead there. None is being written.
    fn cut(&mut self, ino: u32, from: u32) {
        self.forget_data(ino, from);
        let inode = self.inode_mut(ino);
        let keep = inode.map.len().min(from as usize);
        let mut freed: Vec<u32> = inode
            .map
            .split_off(keep)
            .into_iter()
            .filter(|&place| place != 0)
            .collect();
        let nodes: Vec<Node> = inode.nodes.keys().copied().collect();
        let (gone, kept): (Vec<Node>, Vec<Node>) = nodes.into_iter().partition(|node| node.covers().start >= from);
        for node in gone {
            let place = self.inode_mut(ino).nodes.remove(&node).expect("just listed");
            self.node_owner.remove(&place);
            self.dirty_meta.remove(&place);
            freed.push(place);
        }
        for node in kept {
            let place = self.inodes[&ino].nodes[&node];
            self.touch_meta(place, Purpose::Indirect);
        }
        freed.into_iter().for_each(|place| self.give_block(place));
    }

    /// Data in memory that will never be written.
    fn forget_data(&mut self, ino: u32, from: u32) {
        let inode = self.inodes.get_mut(&ino).expect("an inode that is there");
        let count = inode.dirty.total_bytes();
        inode.dirty.remove(from.into(), u64::MAX);
        self.dirty_blocks -= count - inode.dirty.total_bytes();
        let count = inode.resident.total_bytes();
        inode.resident.remove(from.into(), u64::MAX);
        inode.wanted.remove(from.into(), u64::MAX);
        self.resident_blocks -= count - inode.resident.total_bytes();
        let count = inode.unplaced.total_bytes() + inode.promised.len() as u64;
        inode.unplaced.remove(from.into(), u64::MAX);
        let unplaced = inode.unplaced.clone();
        inode
            .promised
            .retain(|node| unplaced.overlaps(node.covers().start.into(), node.covers().end.into()));
        self.promised -= count - unplaced.total_bytes() - inode.promised.len() as u64;
    }

    /// An inode that has lost its last name. What is being written to its blocks has to end before they are anybody's.
    pub(crate) fn drop_inode(&mut self, ino: u32) {
        self.forget_data(ino, 0);
        self.forget_inode(ino);
        let inode = self.inode_mut(ino);
        inode.links = 0;
        inode.doomed = true;
        self.settle(ino);
    }

    /// Gives back all that a nameless inode has.
    pub(crate) fn release(&mut self, ino: u32) {
        self.discard_preallocation(ino);
        self.cut(ino, 0);
        let directory = self.inodes[&ino].is_directory();
        self.inodes.remove(&ino);
        self.give_inode_back(ino, directory);
        self.wake();
    }
}
