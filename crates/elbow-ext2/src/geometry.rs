//! Where the fixed things lie.
//!
//! ```text
//!   group:  [superblock][descriptors]  [block bitmap][inode bitmap][inode table ...][data ............]
//!            only in groups 0, 1 and powers of 3, 5 and 7 (sparse_super)
//! ```
//!
//! Source: Linux, Documentation/filesystems/ext2.txt; ext2_bg_has_super.

use crate::{BLOCK_BYTES, BLOCKS_PER_GROUP, Ext2Error, Options, Purpose};

/// Bytes of a descriptor of a group.
pub(crate) const DESCRIPTOR_BYTES: usize = 32;
/// The root directory.
pub(crate) const ROOT: u32 = 2;
/// The first inode that is not reserved; `/lost+found` has it.
pub(crate) const FIRST_INODE: u32 = 11;
/// A last group with less room than this for data is left out, as mke2fs does.
const DATA_BLOCKS_MIN: u32 = 50;

/// Sizes that never change.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) blocks: u32,
    pub(crate) groups: u32,
    pub(crate) inode_bytes: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) descriptor_blocks: u32,
    pub(crate) table_blocks: u32,
}

impl Geometry {
    pub(crate) fn new(options: &Options) -> Result<Self, Ext2Error> {
        let bad = |reason: String| Err(Ext2Error::Geometry(reason));
        if !matches!(options.inode_bytes, 128 | 256) {
            return bad(format!(
                "an inode of {} bytes; 128 or 256 are possible",
                options.inode_bytes
            ));
        }
        let inodes_per_block = BLOCK_BYTES as u32 / options.inode_bytes;
        let table_blocks = options.inodes_per_group.div_ceil(inodes_per_block);
        let inodes_per_group = table_blocks.saturating_mul(inodes_per_block);
        if !(FIRST_INODE + 1..=BLOCKS_PER_GROUP).contains(&inodes_per_group) {
            return bad(format!("{inodes_per_group} inodes a group; 12 to 32768 are possible"));
        }
        let groups = options.blocks.div_ceil(BLOCKS_PER_GROUP);
        let mut geometry = Self {
            blocks: options.blocks,
            groups,
            inode_bytes: options.inode_bytes,
            inodes_per_group,
            descriptor_blocks: groups.div_ceil((BLOCK_BYTES / DESCRIPTOR_BYTES) as u32),
            table_blocks,
        };
        geometry.drop_small_last_group();
        match geometry.groups {
            0 => bad(format!(
                "{} blocks are too few for a group with its tables",
                options.blocks
            )),
            _ => Ok(geometry),
        }
    }

    fn drop_small_last_group(&mut self) {
        let Some(last) = self.groups.checked_sub(1) else { return };
        if self.group_blocks(last) < self.first_data(last) + DATA_BLOCKS_MIN {
            self.blocks = last * BLOCKS_PER_GROUP;
            self.groups = last;
        }
    }

    /// Does a group begin with a copy of the superblock and the descriptors?
    pub(crate) fn has_super(group: u32) -> bool {
        let power_of = |base: u32| (1..).map(|n| base.saturating_pow(n)).find(|&power| power >= group) == Some(group);
        group <= 1 || [3, 5, 7].into_iter().any(power_of)
    }

    /// Blocks of a group, fewer only in the last.
    pub(crate) fn group_blocks(&self, group: u32) -> u32 {
        (self.blocks - group * BLOCKS_PER_GROUP).min(BLOCKS_PER_GROUP)
    }

    /// Block bitmap of a group, counted within it; the inode bitmap and the table follow.
    pub(crate) fn bitmap(&self, group: u32) -> u32 {
        if Self::has_super(group) {
            1 + self.descriptor_blocks
        } else {
            0
        }
    }

    /// First block of a group that can hold data, counted within it.
    pub(crate) fn first_data(&self, group: u32) -> u32 {
        self.bitmap(group) + 2 + self.table_blocks
    }

    pub(crate) fn block_bitmap_block(&self, group: u32) -> u32 {
        group * BLOCKS_PER_GROUP + self.bitmap(group)
    }

    pub(crate) fn inode_bitmap_block(&self, group: u32) -> u32 {
        self.block_bitmap_block(group) + 1
    }

    pub(crate) fn table_first(&self, group: u32) -> u32 {
        self.block_bitmap_block(group) + 2
    }

    /// Block of the primary descriptors that holds a group's.
    pub(crate) fn descriptor_block(group: u32) -> u32 {
        1 + group / (BLOCK_BYTES / DESCRIPTOR_BYTES) as u32
    }

    pub(crate) fn inode_group(&self, inode: u32) -> u32 {
        (inode - 1) / self.inodes_per_group
    }

    pub(crate) fn inodes_per_block(&self) -> u32 {
        BLOCK_BYTES as u32 / self.inode_bytes
    }

    /// Block of the table that holds an inode.
    pub(crate) fn inode_block(&self, inode: u32) -> u32 {
        self.table_first(self.inode_group(inode)) + (inode - 1) % self.inodes_per_group / self.inodes_per_block()
    }

    /// Does a block lie behind the tables of its group?
    pub(crate) fn is_data_area(&self, block: u32) -> bool {
        block % BLOCKS_PER_GROUP >= self.first_data(block / BLOCKS_PER_GROUP)
    }

    /// What a block before the data of its group holds.
    pub(crate) fn fixed_purpose(&self, block: u32) -> Option<Purpose> {
        let group = block / BLOCKS_PER_GROUP;
        match block {
            _ if self.is_data_area(block) => None,
            _ if block >= self.table_first(group) => Some(Purpose::Inodes),
            _ if block >= self.block_bitmap_block(group) => Some(Purpose::Bitmap),
            _ => Some(Purpose::Super),
        }
    }

    pub(crate) fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_the_superblock_are_sparse() {
        let groups: Vec<u32> = (0..130).filter(|&group| Geometry::has_super(group)).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }

    #[test]
    fn inodes_lie_in_their_tables() {
        let geometry = Geometry::new(&Options::new(100_000)).unwrap();
        assert_eq!((geometry.groups, geometry.inodes()), (4, 65_536));
        assert_eq!(geometry.inode_block(1), 4);
        assert_eq!(geometry.inode_block(33), 5);
        assert_eq!(geometry.inode_block(16_385), 32_768 + 4);
        assert_eq!(
            geometry.inode_block(2 * 16_384 + 1),
            65_536 + 2,
            "no superblock in group 2"
        );
    }

    #[test]
    fn a_last_group_without_room_is_left_out() {
        let geometry = Geometry::new(&Options::new(32_768 + 540)).unwrap();
        assert_eq!((geometry.groups, geometry.blocks), (1, 32_768));
        for bad in [
            Options::new(0),
            Options::new(500),
            Options {
                inode_bytes: 200,
                ..Options::new(5000)
            },
            Options {
                inodes_per_group: 1 << 17,
                ..Options::new(5000)
            },
        ] {
            assert!(matches!(Geometry::new(&bad), Err(Ext2Error::Geometry(_))), "{bad:?}");
        }
    }
}
