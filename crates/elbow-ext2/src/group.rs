//! Groups, and which group gets a new inode.
//!
//! Directories are spread as Orlov proposed: those in the root over all groups, others near their parent unless its group has become
//! too full of directories or has too little left. Files go where their directory is.
//!
//! Source: Linux 2.6.20, fs/ext2/ialloc.c (find_group_orlov, find_group_other), by behaviour.

use std::ops::Range;
use std::sync::Arc;

use elbow_ranges::RangeSet;
use rand::{Rng, RngCore};

use crate::bitmap::Bitmap;
use crate::geometry::{FIRST_INODE, Geometry, ROOT};
use crate::{BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, MINI_GROUPS};

/// What a directory is taken to cost, in inodes and in blocks.
const INODE_COST: i64 = 64;
const BLOCK_COST: i64 = 256;
/// A group's debt is a byte.
const DEBT_MAX: i64 = 255;

/// What is used of one group.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    blocks: Bitmap,
    /// The free ones, as blocks of the file system; shared with the range writes that name them.
    free: Arc<RangeSet>,
    first: u32,
    inodes: Bitmap,
    directories: u32,
    /// Directories made here, less files made here: how overdue files are.
    debt: i64,
    /// Outstanding range writes that name the free blocks of each mini-group.
    named: [u32; MINI_GROUPS as usize],
}

impl Group {
    /// With nothing in use but the tables.
    pub(crate) fn new(geometry: &Geometry, group: u32) -> Self {
        let mut blocks = Bitmap::new(geometry.group_blocks(group));
        (0..geometry.first_data(group)).for_each(|block| blocks.set(block));
        let mut inodes = Bitmap::new(geometry.inodes_per_group);
        if group == 0 {
            (0..FIRST_INODE - 1).for_each(|inode| inodes.set(inode));
        }
        let first = group * BLOCKS_PER_GROUP;
        let ends = u64::from(first + geometry.first_data(group))..u64::from(first + blocks.bits());
        Self {
            blocks,
            free: Arc::new(std::iter::once(ends).collect()),
            first,
            inodes,
            directories: 0,
            debt: 0,
            named: [0; MINI_GROUPS as usize],
        }
    }

    /// Its blocks in use.
    pub(crate) fn blocks(&self) -> &Bitmap {
        &self.blocks
    }

    /// Its inodes in use.
    pub(crate) fn inodes(&self) -> &Bitmap {
        &self.inodes
    }

    pub(crate) fn directories(&self) -> u32 {
        self.directories
    }

    /// Counts the root, whose inode is among the reserved ones.
    pub(crate) fn add_root(&mut self) {
        self.directories += 1;
    }

    /// A range write names the free blocks of some mini-groups from now on.
    pub(crate) fn name(&mut self, minis: Range<u32>) {
        minis.for_each(|mini| self.named[mini as usize] += 1);
    }

    /// A range write that named them is complete.
    pub(crate) fn end_name(&mut self, minis: Range<u32>) {
        minis.for_each(|mini| self.named[mini as usize] -= 1);
    }

    /// Does an outstanding range write name the free blocks around a bit?
    pub(crate) fn is_named_at(&self, bit: u32) -> bool {
        self.named[(bit / BLOCKS_PER_MINI_GROUP) as usize] > 0
    }

    /// Does one name any block of it?
    pub(crate) fn is_named(&self) -> bool {
        self.named.iter().any(|&count| count > 0)
    }

    /// All its free blocks.
    pub(crate) fn free(&self) -> Arc<RangeSet> {
        Arc::clone(&self.free)
    }

    /// Marks a free block of it as used.
    pub(crate) fn take_block(&mut self, bit: u32) {
        self.blocks.set(bit);
        let block = u64::from(self.first + bit);
        Arc::make_mut(&mut self.free).remove(block, block + 1);
    }

    /// Marks a used block of it as free.
    pub(crate) fn give_block(&mut self, bit: u32) {
        self.blocks.unset(bit);
        let block = u64::from(self.first + bit);
        Arc::make_mut(&mut self.free).insert(block, block + 1);
    }

    fn free_inodes(&self) -> i64 {
        self.inodes.clear_count().into()
    }

    fn free_blocks(&self) -> i64 {
        self.blocks.clear_count().into()
    }

    /// Takes the first free inode; its number in the group.
    pub(crate) fn take_inode(&mut self, directory: bool) -> u32 {
        let inode = self.inodes.first_clear(0..u32::MAX).expect("a group with a free inode");
        self.inodes.set(inode);
        self.directories += u32::from(directory);
        self.debt = match directory {
            true => (self.debt + 1).min(DEBT_MAX),
            false => (self.debt - 1).max(0),
        };
        inode
    }

    pub(crate) fn give_inode_back(&mut self, inode: u32, directory: bool) {
        self.inodes.unset(inode);
        self.directories -= u32::from(directory);
    }
}

/// The group for a new directory.
pub(crate) fn directory_group(
    groups: &[Group],
    geometry: &Geometry,
    parent: u32,
    random: &mut impl RngCore,
) -> Option<u32> {
    let parent_group = geometry.inode_group(parent);
    let chosen = match parent == ROOT {
        true => top_level(groups, random.random_range(0..geometry.groups)),
        false => near_parent(groups, geometry, parent_group),
    };
    chosen.or_else(|| fallback(groups, parent_group))
}

/// All groups, from one on and around.
fn around(groups: &[Group], from: u32) -> impl Iterator<Item = (u32, &Group)> {
    let count = groups.len() as u32;
    (0..count).map(move |step| {
        let index = (from + step) % count;
        (index, &groups[index as usize])
    })
}

fn average(groups: &[Group], of: impl Fn(&Group) -> i64) -> i64 {
    groups.iter().map(of).sum::<i64>() / groups.len() as i64
}

/// Of the groups with at least average room, that with the fewest directories.
fn top_level(groups: &[Group], from: u32) -> Option<u32> {
    let (inodes, blocks) = (average(groups, Group::free_inodes), average(groups, Group::free_blocks));
    around(groups, from)
        .filter(|(_, group)| group.free_inodes() > 0)
        .filter(|(_, group)| group.free_inodes() >= inodes && group.free_blocks() >= blocks)
        .min_by_key(|(_, group)| group.directories) // the first of those
        .map(|(index, _)| index)
}

/// The first group from the parent's on that is not crowded.
fn near_parent(groups: &[Group], geometry: &Geometry, parent_group: u32) -> Option<u32> {
    let (count, per_group) = (groups.len() as i64, i64::from(geometry.inodes_per_group));
    let directories = groups
        .iter()
        .map(|group| i64::from(group.directories))
        .sum::<i64>()
        .max(1);
    let free_blocks: i64 = groups.iter().map(Group::free_blocks).sum();
    let blocks_per_directory = (i64::from(geometry.blocks) - free_blocks) / directories;
    let directories_max = directories / count + per_group / 16;
    let inodes_min = average(groups, Group::free_inodes) - per_group / 4;
    let blocks_min = free_blocks / count - i64::from(BLOCKS_PER_GROUP) / 4;
    let debt_max = (i64::from(BLOCKS_PER_GROUP) / blocks_per_directory.max(BLOCK_COST))
        .min(per_group / INODE_COST)
        .clamp(1, DEBT_MAX);
    let roomy = |group: &Group| {
        group.free_inodes() > 0
            && group.debt < debt_max
            && i64::from(group.directories) < directories_max
            && group.free_inodes() >= inodes_min
            && group.free_blocks() >= blocks_min
    };
    around(groups, parent_group)
        .find(|(_, group)| roomy(group))
        .map(|(index, _)| index)
}

/// Any group with an average number of free inodes, or else any with one.
fn fallback(groups: &[Group], from: u32) -> Option<u32> {
    let inodes = average(groups, Group::free_inodes);
    let with = |inodes: i64| around(groups, from).find(move |(_, group)| group.free_inodes() >= inodes);
    with(inodes.max(1)).or_else(|| with(1)).map(|(index, _)| index)
}

/// The group for a new file: the parent's, else by quadratic steps from a hash of the parent, else any.
pub(crate) fn file_group(groups: &[Group], geometry: &Geometry, parent: u32) -> Option<u32> {
    let count = groups.len() as u32;
    let parent_group = geometry.inode_group(parent);
    let good = |&index: &u32| {
        let group = &groups[index as usize];
        group.free_inodes() > 0 && group.free_blocks() > 0
    };
    let mut hashed = (parent_group + parent) % count;
    let steps = (0..32).map(|power| 1_u32 << power).take_while(|&step| step < count);
    let near = std::iter::once(parent_group).chain(steps.map(|step| {
        hashed = (hashed + step) % count;
        hashed
    }));
    near.into_iter().find(good).or_else(|| {
        around(groups, (parent_group + 1) % count)
            .find(|(_, group)| group.free_inodes() > 0)
            .map(|(index, _)| index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn ground(groups: u32) -> (Geometry, Vec<Group>) {
        let geometry = Geometry::new(&Options::new(groups * BLOCKS_PER_GROUP)).unwrap();
        let groups = (0..groups).map(|group| Group::new(&geometry, group)).collect();
        (geometry, groups)
    }

    #[test]
    fn top_level_directories_are_spread() {
        let (geometry, mut groups) = ground(8);
        groups[0].directories = 1; // the root
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for _ in 0..16 {
            let group = directory_group(&groups, &geometry, ROOT, &mut random).unwrap();
            groups[group as usize].take_inode(true);
        }
        // Not evenly: a group that has one inode fewer than the average is passed over while others have more.
        assert!(
            groups.iter().all(|group| group.directories >= 1),
            "{:?}",
            groups.iter().map(|g| g.directories).collect::<Vec<_>>()
        );
    }

    #[test]
    fn others_stay_with_their_parent_until_its_group_owes_files() {
        let (geometry, mut groups) = ground(8);
        let parent = 3 * geometry.inodes_per_group + 1;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut chosen = Vec::new();
        for _ in 0..150 {
            let group = directory_group(&groups, &geometry, parent, &mut random).unwrap();
            groups[group as usize].take_inode(true);
            chosen.push(group);
        }
        // 32768 blocks / max(516 * 8 blocks in use / directories, 256) directories without a file between them.
        assert_eq!(chosen[..4], [3; 4]);
        let stayed = chosen.iter().filter(|&&group| group == 3).count();
        assert!((64..=128).contains(&stayed), "{stayed}");
        for _ in 0..64 {
            groups[3].take_inode(false);
        }
        assert_eq!(
            directory_group(&groups, &geometry, parent, &mut random),
            Some(3),
            "files have paid"
        );
    }

    #[test]
    fn files_go_where_their_directory_is_while_it_has_room() {
        let (geometry, mut groups) = ground(8);
        let parent = 3 * geometry.inodes_per_group + 1;
        assert_eq!(file_group(&groups, &geometry, parent), Some(3));
        while groups[3].free_blocks() > 0 {
            let block = groups[3].blocks.first_clear(0..u32::MAX).unwrap();
            groups[3].take_block(block);
        }
        // (3 + 49153) % 8 = 4, + 1 = 5
        assert_eq!(file_group(&groups, &geometry, parent), Some(5));
        for group in &mut groups {
            while group.free_inodes() > 0 {
                group.take_inode(false);
            }
        }
        assert_eq!(file_group(&groups, &geometry, parent), None);
    }
}
