//! Space: which blocks and inodes are in use, promised, or named by range writes.
//!
//! What always holds: the free blocks counted are those that the bitmaps have; no more are promised than are free; the
//! bitmap, the descriptor and the superblock that say so are marked as changed.
//!
//! A block is looked for near a goal:
//!
//! ```text
//!   goal free?  -> the goal
//!   a free block up to the next multiple of 64?  -> the first
//!   a byte of the bitmap without a used block?  -> the start of the free run that it lies in
//!   any free block of the group from there on;  then the same from the start of each other group, this one last
//! ```
//!
//! Blocks of mini-groups that an outstanding range write names are left out: the disk may have put something there
//! already.
//!
//! Source: Linux 2.6.20, fs/ext2/balloc.c (ext2_new_block, grab_block), by behaviour.

use std::ops::Range;
use std::sync::Arc;

use elbow_ranges::RangeSet;
use rand::RngCore;

use crate::cache::Cache;
use crate::claims::{Claims, GroupPart, Room};
use crate::geometry::Geometry;
use crate::group::{Group, directory_group, file_group};
use crate::{BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, Ext2Error, MINI_GROUPS, Purpose, RequestId};

/// What is in use of all groups.
#[derive(Debug)]
pub(crate) struct Space {
    geometry: Geometry,
    groups: Vec<Group>,
    claims: Claims,
    /// Blocks that are free, those promised included.
    free_blocks: u64,
    /// Blocks that data without a place, and its indirect blocks, will need.
    promised: u64,
}

/// What came of a search for room.
pub(crate) enum Found {
    Room(GroupPart, Arc<RangeSet>, u64),
    Later,
    None,
}

impl Space {
    /// With nothing in use but the tables.
    pub(crate) fn new(geometry: Geometry) -> Self {
        let groups: Vec<Group> = (0..geometry.groups).map(|group| Group::new(&geometry, group)).collect();
        Self {
            free_blocks: groups.iter().map(|group| u64::from(group.blocks().clear_count())).sum(),
            geometry,
            groups,
            claims: Claims::default(),
            promised: 0,
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) fn group(&self, index: u32) -> &Group {
        &self.groups[index as usize]
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Blocks that are neither used nor promised.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free_blocks - self.promised
    }

    /// Blocks that are not used: what the superblock calls free.
    pub(crate) fn unused_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Is there so much for a path?
    pub(crate) fn check(&self, path: &str, needed: u64) -> Result<(), Ext2Error> {
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

    /// Sets blocks aside, wherever they will be.
    pub(crate) fn promise(&mut self, blocks: u64) {
        self.promised += blocks;
    }

    /// Blocks that were promised have their places, or are not needed any more.
    pub(crate) fn end_promise(&mut self, blocks: u64) {
        self.promised -= blocks;
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
    pub(crate) fn take_block(&mut self, block: u32, cache: &mut Cache) {
        self.groups[(block / BLOCKS_PER_GROUP) as usize].take_block(block % BLOCKS_PER_GROUP);
        self.free_blocks -= 1;
        self.touch_bitmap(block, cache);
    }

    /// Marks a used block as free. The writes to it are complete.
    pub(crate) fn give_block(&mut self, block: u32, cache: &mut Cache) {
        self.groups[(block / BLOCKS_PER_GROUP) as usize].give_block(block % BLOCKS_PER_GROUP);
        self.free_blocks += 1;
        self.touch_bitmap(block, cache);
    }

    fn touch_bitmap(&self, block: u32, cache: &mut Cache) {
        let group = block / BLOCKS_PER_GROUP;
        cache.touch_meta(self.geometry.block_bitmap_block(group), Purpose::Bitmap);
        touch_super(group, cache);
    }

    /// Free blocks right behind one, in its group and fewer than `most`.
    pub(crate) fn free_behind(&self, block: u32, most: u32) -> Range<u32> {
        let map = self.groups[(block / BLOCKS_PER_GROUP) as usize].blocks();
        let first = block + 1;
        let within = first % BLOCKS_PER_GROUP..map.bits().min(block % BLOCKS_PER_GROUP + most);
        let free = within.take_while(|&bit| bit > 0 && !map.get(bit)).count() as u32;
        first..first + free
    }

    /// Takes an inode of a group; its number.
    pub(crate) fn take_inode(&mut self, group: u32, directory: bool, cache: &mut Cache) -> u32 {
        let number = self.groups[group as usize].take_inode(directory);
        cache.touch_meta(self.geometry.inode_bitmap_block(group), Purpose::Bitmap);
        touch_super(group, cache);
        number + 1 + group * self.geometry.inodes_per_group
    }

    pub(crate) fn give_inode_back(&mut self, ino: u32, directory: bool, cache: &mut Cache) {
        let group = self.geometry.inode_group(ino);
        let number = (ino - 1) % self.geometry.inodes_per_group;
        self.groups[group as usize].give_inode_back(number, directory);
        cache.touch_meta(self.geometry.inode_bitmap_block(group), Purpose::Bitmap);
        cache.touch_meta(self.geometry.inode_block(ino), Purpose::Inodes);
        touch_super(group, cache);
    }

    /// Counts the root directory.
    pub(crate) fn add_root(&mut self) {
        self.groups[0].add_root();
    }

    /// The group for a new directory.
    pub(crate) fn directory_group(&self, parent: u32, random: &mut impl RngCore) -> Option<u32> {
        directory_group(&self.groups, &self.geometry, parent, random)
    }

    /// The group for a new file.
    pub(crate) fn file_group(&self, parent: u32) -> Option<u32> {
        file_group(&self.groups, &self.geometry, parent)
    }

    /// Are blocks from one on, all in its group, free and nobody's target?
    pub(crate) fn is_free_and_unnamed(&self, first: u32, count: u32) -> bool {
        let group = &self.groups[(first / BLOCKS_PER_GROUP) as usize % self.groups.len()];
        let bit = first % BLOCKS_PER_GROUP;
        let free = |bit: u32| bit < group.blocks().bits() && !group.blocks().get(bit) && !group.is_named_at(bit);
        first < self.geometry.blocks && (bit..bit + count).all(free)
    }

    /// Looks for room for contiguous blocks in some regions, in this order; those in group `own` are worth waiting for.
    pub(crate) fn find_room(&self, regions: impl Iterator<Item = GroupPart>, own: u32, blocks: u32) -> Found {
        let mut later = false;
        for within in regions {
            if later && within.group != own {
                break; // better to wait than to go away
            }
            match self.claims.room(&self.groups, &within, blocks) {
                Room::Targets(targets, slack) => return Found::Room(within, targets, slack),
                Room::Later => later = true,
                Room::None => {}
            }
        }
        if later { Found::Later } else { Found::None }
    }

    /// Lets a range write out into room that was found for it. How many are outstanding now.
    pub(crate) fn begin_claim(&mut self, id: RequestId, within: GroupPart, blocks: u32, slack: u64) -> u64 {
        self.claims.begin(&mut self.groups, id, within, blocks, slack);
        self.claims.len() as u64
    }

    /// A range write has its place.
    pub(crate) fn end_claim(&mut self, id: RequestId) {
        self.claims.end(&mut self.groups, id);
    }

    /// Is a block the bitmap of blocks of which a range write under way will take some?
    pub(crate) fn is_bitmap_about_to_change(&self, block: u32) -> bool {
        let group = block / BLOCKS_PER_GROUP;
        block == self.geometry.block_bitmap_block(group) && self.groups[group as usize].is_named()
    }
}

fn touch_super(group: u32, cache: &mut Cache) {
    cache.touch_meta(0, Purpose::Super);
    cache.touch_meta(Geometry::descriptor_block(group), Purpose::Super);
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
        if !group.is_named_at(found) {
            return Some(found);
        }
        let mini = found / BLOCKS_PER_MINI_GROUP;
        goal = ((mini + 1) * BLOCKS_PER_MINI_GROUP)
            .max(goal / BLOCKS_PER_MINI_GROUP * BLOCKS_PER_MINI_GROUP + BLOCKS_PER_MINI_GROUP);
    }
    None
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
            group.name(0..1);
            if let Some(found) = grab_unnamed(&group, rng.random_range(0..3000)) {
                assert!(found >= BLOCKS_PER_MINI_GROUP && !used[found as usize], "seed {seed}");
            }
        }
    }
}
