//! The data of files: set aside, placed, cut off, dropped.

use std::ops::Range;

use super::Volume;
use crate::inode::{BLOCKS_MAX, Node};
use crate::queue::{FixedWrite, Owner, Work};
use crate::trace::Outcome;
use crate::{BLOCK_BYTES, Ext2Error, Purpose};

impl Volume {
    /// A process writes blocks of a file, up to byte `end`; there is space for them.
    pub(crate) fn write(&mut self, pid: u32, ino: u32, touched: Range<u32>, end: u64) {
        let time = self.seconds();
        let inode = self.inode_mut(ino);
        inode.pid = pid;
        inode.size = inode.size.max(end);
        (inode.mtime, inode.ctime) = (time, time);
        self.cache.touch(ino);
        for block in touched {
            self.write_block(ino, block);
        }
    }

    fn write_block(&mut self, ino: u32, block: u32) {
        if self.inode(ino).place(block).is_none() {
            match self.places_late() {
                true => {
                    let blocks = self.inode_mut(ino).promise(block);
                    self.space.promise(blocks);
                }
                false => assert!(
                    self.place_classically(ino, block),
                    "there is space, and nothing is named"
                ),
            }
        }
        self.make_resident(ino, block..block + 1);
        self.touch_data(ino, block);
    }

    /// The writes by which an inode's dirty data gets to the disk, in the order of the file; they count as queued.
    pub(crate) fn begin_write_back(&mut self, ino: u32) -> Vec<Work> {
        let longest = self.options.request_blocks_max;
        let inode = self.inodes.at_mut(ino);
        let dirty = self.cache.begin_write(inode);
        let mut works: Vec<Work> = Vec::new();
        for block in dirty.iter().flat_map(|run| run.start as u32..run.end as u32) {
            match (works.last_mut(), inode.place(block)) {
                (Some(Work::Place { blocks, .. }), None) if blocks.end == block => blocks.end += 1,
                (Some(Work::Fixed(write)), Some(place))
                    if write.at + write.blocks == place && write.blocks < longest =>
                {
                    write.blocks += 1;
                }
                (_, Some(at)) => works.push(Work::Fixed(FixedWrite {
                    at,
                    blocks: 1,
                    owner: Owner::Data(ino),
                })),
                (_, None) => works.push(Work::Place {
                    ino,
                    blocks: block..block + 1,
                }),
            }
        }
        inode.writes += works.len() as u32;
        for _ in works.iter().filter(|work| matches!(work, Work::Place { .. })) {
            self.begin_placing(ino);
        }
        works
    }

    fn make_resident(&mut self, ino: u32, blocks: Range<u32>) {
        self.residents.add(&mut self.inodes, ino, blocks);
    }

    /// The disk has read blocks of a file, if that is there still.
    pub(crate) fn end_read(&mut self, ino: u32, blocks: Range<u32>) {
        if let Some(inode) = self.inodes.get_mut(ino) {
            inode.reading.remove(blocks.start.into(), blocks.end.into());
            self.make_resident(ino, blocks);
        }
    }

    /// Sets the size of a file; what lies behind it is given back.
    pub(crate) fn truncate(&mut self, path: &str, bytes: u64) -> Result<Outcome, Ext2Error> {
        let ino = self.inodes.resolve_file(path)?;
        if self.inode(ino).writes > 0 {
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
        self.cache.touch(ino);
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
            let place = self.inodes.remove_node(ino, node);
            self.cache.forget_meta(place);
            freed.push(place);
        }
        for node in kept {
            let place = self.inode(ino).nodes[&node];
            self.cache.touch_meta(place, Purpose::Indirect);
        }
        for place in freed {
            self.space.give_block(place, &mut self.cache);
        }
    }

    /// Data in memory that will never be written.
    fn forget_data(&mut self, ino: u32, from: u32) {
        let inode = self.inodes.at_mut(ino);
        self.cache.forget_data(inode, from);
        self.residents.forget(inode, from);
        self.space.end_promise(inode.end_promises(from));
    }

    /// An inode that has lost its last name. What is being written to its blocks has to end before they are anybody's.
    pub(super) fn drop_inode(&mut self, ino: u32) {
        self.forget_data(ino, 0);
        self.cache.forget_inode(ino);
        let inode = self.inode_mut(ino);
        inode.links = 0;
        inode.doomed = true;
    }

    /// Gives back all that a nameless inode has, of which nothing is being written.
    pub(crate) fn release(&mut self, ino: u32) {
        self.discard_preallocation(ino);
        self.cut(ino, 0);
        let directory = self.inode(ino).is_directory();
        self.inodes.remove(ino);
        self.space.give_inode_back(ino, directory, &mut self.cache);
    }
}
