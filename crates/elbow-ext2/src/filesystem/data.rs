//! Data that processes write and read, as far as they have to wait for the disk.

use std::ops::Range;

use super::Ext2;
use crate::inode::BLOCKS_MAX;
use crate::queue::Work;
use crate::trace::Outcome;
use crate::{BLOCK_BYTES, Ext2Error};

/// Blocks that a range of bytes touches.
fn blocks(offset: u64, bytes: u64) -> Range<u32> {
    let size = BLOCK_BYTES as u64;
    (offset / size) as u32..(offset + bytes).div_ceil(size) as u32
}

impl Ext2 {
    pub(super) fn write(&mut self, pid: u32, path: &str, offset: u64, bytes: u64) -> Result<Outcome, Ext2Error> {
        let ino = self.volume.inodes().resolve_file(path)?;
        let end = offset.saturating_add(bytes);
        if end.div_ceil(BLOCK_BYTES as u64) > BLOCKS_MAX.into() {
            let (path, bytes) = (path.to_owned(), end);
            return Err(Ext2Error::TooLarge { path, bytes });
        }
        let touched = blocks(offset, bytes);
        let needed = self.volume.inode(ino).still_needed(touched.clone());
        self.volume.space().check(path, needed)?;
        if self.must_wait_to_write() || !self.edges_are_resident(ino, offset, bytes) {
            return Ok(Outcome::Wait);
        }
        self.volume.write(pid, ino, touched, end);
        self.write_back_excess();
        Ok(Outcome::Done)
    }

    /// A block of which only a part is written has to be read, if it is on the disk alone.
    fn edges_are_resident(&mut self, ino: u32, offset: u64, bytes: u64) -> bool {
        let size = BLOCK_BYTES as u64;
        let end = offset + bytes;
        let inode_size = self.volume.inode(ino).size;
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

    pub(super) fn read(&mut self, path: &str, offset: u64, bytes: u64) -> Result<Outcome, Ext2Error> {
        let ino = self.volume.inodes().resolve_file(path)?;
        let end = offset.saturating_add(bytes).min(self.volume.inode(ino).size);
        if offset >= end {
            return Ok(Outcome::Done);
        }
        match self.is_resident(ino, blocks(offset, end - offset)) {
            true => {
                let time = self.volume.seconds();
                self.volume.inode_mut(ino).atime = time;
                Ok(Outcome::Done)
            }
            false => Ok(Outcome::Wait),
        }
    }

    /// Are blocks in memory? What is not is asked for.
    fn is_resident(&mut self, ino: u32, wanted: Range<u32>) -> bool {
        let longest = self.volume.options().request_blocks_max;
        let inode = self.volume.inode(ino);
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
                    if run.end == block && *at + (run.end - run.start) == place && run.end - run.start < longest =>
                {
                    run.end += 1;
                }
                _ => missing.push((place, block..block + 1)),
            }
        }
        let (start, end) = (wanted.start.into(), wanted.end.into());
        let inode = self.volume.inode_mut(ino);
        match all {
            true => inode.wanted.remove(start, end),
            false => inode.wanted.insert(start, end),
        }
        for (at, blocks) in missing.into_iter().rev() {
            let reading = &mut self.volume.inode_mut(ino).reading;
            reading.insert(blocks.start.into(), blocks.end.into());
            self.queue.push_front(Work::Read { ino, at, blocks });
        }
        all
    }
}
