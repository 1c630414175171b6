//! Classic allocation: near a goal.
//!
//! ```text
//!   goal free?  -> the goal
//!   a free block up to the next multiple of 64?  -> the first
//!   a byte of the bitmap without a used block?  -> the start of the free run that it lies in
//!   any free block of the group from there on;  then the same from the start of each other group, this one last
//! ```
//!
//! Blocks of mini-groups that an outstanding range write names are left out: the disk may have put something there already.
//!
//! Source: Linux 2.6.20, fs/ext2/balloc.c (ext2_new_block, grab_block), inode.c (ext2_find_goal, ext2_find_near, ext2_alloc_block), by
//! behaviour.

use crate::group::Group;
use crate::inode::Node;
use crate::{BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, Ext2, MINI_GROUPS, Purpose};

/// Mini-groups of a pid.
pub(crate) fn colour(pid: u32) -> u32 {
    pid % MINI_GROUPS
}

/// A free block of a group at or after a goal, as ext2 looks for it.
fn grab(group: &Group, goal: u32) -> Option<u32> {
    let (map, bits) = (group.blocks(), group.blocks().bits());
    if goal >= bits {
        return None;
    }
    if !map.get(goal) {
        return Some(goal);
    }
    let near = match goal {
        0 => None,
        _ => map.first_clear(goal..goal.next_multiple_of(64)),
    };
    let rest = if goal == 0 { 0 } else { goal.next_multiple_of(64) };
    near.or_else(|| {
        let byte = map.first_clear_byte(rest)?;
        Some(
            (1..=byte.min(7))
                .take_while(|&back| !map.get(byte - back))
                .last()
                .map_or(byte, |back| byte - back),
        )
    })
    .or_else(|| map.first_clear(rest..bits))
}

/// The same among blocks that no outstanding range write names.
fn grab_unnamed(group: &Group, goal: u32) -> Option<u32> {
    let mut goal = goal;
    // Each turn leaves a mini-group behind.
    for _ in 0..=MINI_GROUPS {
        let found = grab(group, goal)?;
        let mini = found / BLOCKS_PER_MINI_GROUP;
        if group.named[mini as usize] == 0 {
            return Some(found);
        }
        goal = ((mini + 1) * BLOCKS_PER_MINI_GROUP)
            .max(goal / BLOCKS_PER_MINI_GROUP * BLOCKS_PER_MINI_GROUP + BLOCKS_PER_MINI_GROUP);
    }
    None
}

impl Ext2 {
    /// The block that would be best for a block of a file.
    pub(crate) fn goal(&self, ino: u32, block: u32, node: Option<Node>) -> u32 {
        let inode = &self.inodes[&ino];
        if let Some((last, goal)) = inode.next.filter(|_| node.is_none())
            && block == last + 1
        {
            return goal + 1;
        }
        self.near(ino, block, node)
    }

    /// The nearest block before in what points to it, else what points to it, else the mini-group.
    fn near(&self, ino: u32, block: u32, node: Option<Node>) -> u32 {
        let inode = &self.inodes[&ino];
        let holder = Node::on_the_way(block).last().filter(|_| node.is_none());
        let first = holder.map_or(0, |holder| holder.covers().start);
        let earlier = (first..block.min(inode.map.len() as u32))
            .rev()
            .find_map(|before| inode.place(before));
        let holder_place = || holder.and_then(|holder| inode.nodes.get(&holder).copied());
        earlier.or_else(holder_place).unwrap_or_else(|| {
            let group = self.geometry.inode_group(ino) * BLOCKS_PER_GROUP;
            group + colour(inode.pid) * BLOCKS_PER_MINI_GROUP
        })
    }

    /// Finds a block near a goal; `None` if none is free, or all that are free are named.
    pub(crate) fn find_block(&self, goal: u32) -> Option<u32> {
        let goal = if goal < self.geometry.blocks { goal } else { 0 };
        let (first, within) = (goal / BLOCKS_PER_GROUP, goal % BLOCKS_PER_GROUP);
        let count = self.groups.len() as u32;
        let others = (1..=count).map(|step| ((first + step) % count, 0));
        std::iter::once((first, within))
            .chain(others)
            .find_map(|(index, goal)| {
                let group = &self.groups[index as usize];
                let found = grab_unnamed(group, goal).filter(|_| group.blocks().clear_count() > 0);
                found.map(|found| index * BLOCKS_PER_GROUP + found)
            })
    }

    /// Marks a free block as used.
    pub(crate) fn take_block(&mut self, block: u32) {
        self.groups[(block / BLOCKS_PER_GROUP) as usize].take_block(block % BLOCKS_PER_GROUP);
        self.free_blocks -= 1;
        self.touch_bitmap(block);
    }

    /// Marks a used block as free. The writes to it are complete.
    pub(crate) fn give_block(&mut self, block: u32) {
        self.groups[(block / BLOCKS_PER_GROUP) as usize].give_block(block % BLOCKS_PER_GROUP);
        self.free_blocks += 1;
        self.touch_bitmap(block);
    }

    fn touch_bitmap(&mut self, block: u32) {
        let group = block / BLOCKS_PER_GROUP;
        self.touch_meta(self.geometry.block_bitmap_block(group), Purpose::Bitmap);
        self.touch_super(group);
    }

    /// A block near a goal for a file, from what was taken in advance where it fits.
    fn new_block(&mut self, ino: u32, goal: u32) -> Option<u32> {
        let ahead = self.inodes[&ino].preallocated.clone();
        if !ahead.is_empty() && (goal == ahead.start || goal + 1 == ahead.start) {
            self.inode_mut(ino).preallocated.start += 1;
            return Some(ahead.start);
        }
        self.discard_preallocation(ino);
        let block = self.find_block(goal)?;
        self.take_block(block);
        if !self.inodes[&ino].is_directory() {
            self.preallocate(ino, block);
        }
        Some(block)
    }

    fn preallocate(&mut self, ino: u32, block: u32) {
        let group = &self.groups[(block / BLOCKS_PER_GROUP) as usize];
        let first = block + 1;
        let within = first % BLOCKS_PER_GROUP
            ..group
                .blocks()
                .bits()
                .min(block % BLOCKS_PER_GROUP + self.options.preallocation);
        let free = within.take_while(|&bit| bit > 0 && !group.blocks().get(bit)).count() as u32;
        (first..first + free).for_each(|block| self.take_block(block));
        self.inode_mut(ino).preallocated = first..first + free;
    }

    /// Gives back what was taken in advance and not used.
    pub(crate) fn discard_preallocation(&mut self, ino: u32) {
        let ahead = std::mem::take(&mut self.inode_mut(ino).preallocated);
        ahead.for_each(|block| self.give_block(block));
    }

    /// Gives a block of a file, and what is missing on the way to it, a place. `false` if one cannot be had now; what was placed
    /// stays.
    pub(crate) fn place_classically(&mut self, ino: u32, block: u32) -> bool {
        let mut goal = self.goal(ino, block, None);
        let missing: Vec<Node> = self.inodes[&ino].missing_nodes(block).collect();
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
    pub(crate) fn set_node(&mut self, ino: u32, node: Node, place: u32) {
        self.inode_mut(ino).nodes.insert(node, place);
        self.node_owner.insert(place, (ino, node));
        self.touch_meta(place, Purpose::Indirect);
        if matches!(node, Node::Leaf(_)) {
            let double = self.inodes[&ino].nodes[&Node::Double];
            self.touch_meta(double, Purpose::Indirect);
        }
    }

    /// Records where a block of a file lies.
    pub(crate) fn set_data(&mut self, ino: u32, block: u32, place: u32) {
        let inode = self.inode_mut(ino);
        inode.set_place(block, place);
        let holder = Node::on_the_way(block).last();
        if let Some(holder) = holder.map(|holder| inode.nodes[&holder]) {
            self.touch_meta(holder, Purpose::Indirect);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::geometry::Geometry;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The same rule over a list of booleans, in as simple words as it can be said.
    fn naive(used: &[bool], goal: usize) -> Option<usize> {
        let free = |block: &usize| !used[*block];
        if !used[goal] {
            return Some(goal);
        }
        let mut from = goal;
        if goal > 0 {
            from = goal.div_ceil(64) * 64;
            if let Some(near) = (goal..from.min(used.len())).find(free) {
                return Some(near);
            }
        }
        let whole = (from / 8..used.len() / 8).find(|byte| (byte * 8..byte * 8 + 8).all(|block| free(&block)));
        if let Some(byte) = whole {
            let mut start = byte * 8;
            while start > 0 && byte * 8 - start < 7 && free(&(start - 1)) {
                start -= 1;
            }
            return Some(start);
        }
        (from..used.len()).find(free)
    }

    #[test]
    fn the_search_agrees_with_a_naive_one() {
        let geometry = Geometry::new(&Options {
            inodes_per_group: 32,
            ..Options::new(3000)
        })
        .unwrap();
        for seed in 0..300 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut group = Group::new(&geometry, 0);
            let fullness = rng.random_range(0.5..1.0);
            for block in geometry.first_data(0)..3000 {
                if rng.random_bool(fullness) {
                    group.take_block(block);
                }
            }
            let used: Vec<bool> = (0..3000).map(|block| group.blocks().get(block)).collect();
            for _ in 0..50 {
                let goal = rng.random_range(0..3000);
                let found = grab(&group, goal).map(|found| found as usize);
                assert_eq!(found, naive(&used, goal as usize), "seed {seed}, goal {goal}");
            }
            group.named[0] = 1;
            if let Some(found) = grab_unnamed(&group, rng.random_range(0..3000)) {
                assert!(found >= BLOCKS_PER_MINI_GROUP && !used[found as usize], "seed {seed}");
            }
        }
    }
}
