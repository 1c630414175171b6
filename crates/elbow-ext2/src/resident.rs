//! Blocks of data that are in memory, and which of them are forgotten when there are too many.

use std::collections::VecDeque;
use std::ops::Range;

use crate::inode::Inode;
use crate::inodes::Inodes;

/// What the inodes have in memory, counted.
#[derive(Debug)]
pub(crate) struct ResidentBlocks {
    blocks_max: u64,
    blocks: u64,
    /// Inodes with some, in the order in which they came.
    order: VecDeque<u32>,
}

impl ResidentBlocks {
    /// With none; more than `blocks_max` are only kept where they have to be.
    pub(crate) fn new(blocks_max: u64) -> Self {
        Self {
            blocks_max,
            blocks: 0,
            order: VecDeque::new(),
        }
    }

    /// Blocks of a file have come into memory.
    pub(crate) fn add(&mut self, inodes: &mut Inodes, ino: u32, blocks: Range<u32>) {
        let inode = inodes.at_mut(ino);
        let before = inode.resident.total_bytes();
        inode.resident.insert(blocks.start.into(), blocks.end.into());
        let new = inode.resident.total_bytes() - before;
        self.blocks += new;
        if before == 0 && new > 0 {
            self.order.push_back(ino);
        }
        self.evict(inodes);
    }

    /// Blocks of a file from one on are no part of it any more.
    pub(crate) fn forget(&mut self, inode: &mut Inode, from: u32) {
        let before = inode.resident.total_bytes();
        inode.resident.remove(from.into(), u64::MAX);
        inode.wanted.remove(from.into(), u64::MAX);
        self.blocks -= before - inode.resident.total_bytes();
    }

    /// Forgets clean blocks of the files that came first, until the rest fits; but nothing that somebody waits for, who
    /// would else wait for ever for more than the memory holds.
    fn evict(&mut self, inodes: &mut Inodes) {
        for _ in 0..self.order.len() {
            if self.blocks <= self.blocks_max {
                return;
            }
            let Some(ino) = self.order.pop_front() else {
                return;
            };
            let Some(inode) = inodes.get_mut(ino) else {
                continue;
            };
            if inode.writes == 0 {
                let kept = inode.resident.intersection(&inode.dirty.union(&inode.wanted));
                self.blocks -= inode.resident.total_bytes() - kept.total_bytes();
                inode.resident = kept;
            }
            if !inode.resident.is_empty() {
                self.order.push_back(ino);
            }
        }
    }
}
