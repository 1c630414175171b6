//! Classic allocation, and where it is recorded what lies where.
//!
//! A goal is the block after the last one that was written, else the nearest before it, else the indirect block that
//! points to it, else the mini-group of the process.
//!
//! Source: Linux 2.6.20, fs/ext2/inode.c (ext2_find_goal, ext2_find_near, ext2_alloc_block), by behaviour.

use super::{Volume, colour};
use crate::inode::{Node, Slot};
use crate::{BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, Purpose};

impl Volume {
    /// The block that would be best for a block of a file.
    fn goal(&self, ino: u32, block: u32) -> u32 {
        match self.inode(ino).next {
            Some((last, goal)) if block == last + 1 => goal + 1,
            _ => self.near(ino, block),
        }
    }

    /// The nearest block before in what points to it, else what points to it, else the mini-group.
    fn near(&self, ino: u32, block: u32) -> u32 {
        let inode = self.inode(ino);
        let holder = Node::on_the_way(block).last();
        let first = holder.map_or(0, |holder| holder.covers().start);
        let earlier = (first..block.min(inode.map.len() as u32))
            .rev()
            .find_map(|before| inode.place(before));
        let holder_place = || holder.and_then(|holder| inode.nodes.get(&holder).copied());
        earlier.or_else(holder_place).unwrap_or_else(|| {
            let group = self.geometry().inode_group(ino) * BLOCKS_PER_GROUP;
            group + colour(inode.pid) * BLOCKS_PER_MINI_GROUP
        })
    }

    /// A block near a goal for a file, from what was taken in advance where it fits.
    fn new_block(&mut self, ino: u32, goal: u32) -> Option<u32> {
        let ahead = self.inode(ino).preallocated.clone();
        if !ahead.is_empty() && (goal == ahead.start || goal + 1 == ahead.start) {
            self.inode_mut(ino).preallocated.start += 1;
            return Some(ahead.start);
        }
        self.discard_preallocation(ino);
        let block = self.space.find_block(goal)?;
        self.space.take_block(block, &mut self.cache);
        if !self.inode(ino).is_directory() {
            self.preallocate(ino, block);
        }
        Some(block)
    }

    fn preallocate(&mut self, ino: u32, block: u32) {
        let free = self.space.free_behind(block, self.options.preallocation);
        for block in free.clone() {
            self.space.take_block(block, &mut self.cache);
        }
        self.inode_mut(ino).preallocated = free;
    }

    /// Gives back what was taken in advance and not used.
    pub(super) fn discard_preallocation(&mut self, ino: u32) {
        for block in std::mem::take(&mut self.inode_mut(ino).preallocated) {
            self.space.give_block(block, &mut self.cache);
        }
    }

    /// The same for all files.
    pub(crate) fn discard_preallocations(&mut self) {
        let inodes: Vec<u32> = self.inodes.iter().map(|(ino, _)| ino).collect();
        inodes.into_iter().for_each(|ino| self.discard_preallocation(ino));
    }

    /// Gives a block of a file, and what is missing on the way to it, a place. `false` if one cannot be had now; what
    /// was placed stays.
    pub(super) fn place_classically(&mut self, ino: u32, block: u32) -> bool {
        let mut goal = self.goal(ino, block);
        let missing: Vec<Node> = self.inode(ino).missing_nodes(block).collect();
        for node in missing {
            let Some(place) = self.new_block(ino, goal) else {
                return false;
            };
            self.set_node(ino, node, place);
            goal = place;
        }
        let Some(place) = self.new_block(ino, goal) else {
            return false;
        };
        self.set_data(ino, block, place);
        self.inode_mut(ino).next = Some((block, place));
        true
    }

    /// Records where an indirect block lies.
    pub(super) fn set_node(&mut self, ino: u32, node: Node, place: u32) {
        self.inodes.set_node(ino, node, place);
        self.cache.touch_meta(place, Purpose::Indirect);
        if matches!(node, Node::Leaf(_)) {
            let double = self.inode(ino).nodes[&Node::Double];
            self.cache.touch_meta(double, Purpose::Indirect);
        }
    }

    /// Records where a block of a file lies.
    pub(super) fn set_data(&mut self, ino: u32, block: u32, place: u32) {
        let inode = self.inodes.at_mut(ino);
        inode.set_place(block, place);
        let holder = Node::on_the_way(block).last();
        if let Some(holder) = holder.map(|holder| inode.nodes[&holder]) {
            self.cache.touch_meta(holder, Purpose::Indirect);
        }
    }

    /// Gives slots the blocks from one on.
    pub(crate) fn assign(&mut self, ino: u32, slots: &[Slot], first: u32) {
        for (slot, place) in slots.iter().zip(first..) {
            self.space.take_block(place, &mut self.cache);
            match *slot {
                Slot::Data(block) => self.set_data(ino, block, place),
                Slot::Node(node) => self.set_node(ino, node, place),
            }
        }
        self.space.end_promise(slots.len() as u64);
        self.touch_inode_block(ino);
    }

    /// Counts a piece of a file that has no place yet.
    pub(crate) fn begin_placing(&mut self, ino: u32) {
        self.cache.begin_placing(self.space.geometry().inode_block(ino));
    }

    pub(crate) fn end_placing(&mut self, ino: u32) {
        self.cache.end_placing(self.space.geometry().inode_block(ino));
    }
}
