//! What can be chosen about a file system and its cache.

use elbow_disk::Ps;

/// How places for the data of files are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// When a process writes: near the goal, as ext2 does.
    Classic,
    /// When the cache is written back: the disk picks a place within a region.
    Range(Region),
}

/// What a range write names: the free blocks of this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The mini-group of the process, in the group of the inode.
    MiniGroup,
    /// The group of the inode.
    Group,
}

/// When dirty blocks are written, as pdflush did it (Linux 2.6, Documentation/sysctl/vm.txt).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writeback {
    /// Time between two looks at the cache (`dirty_writeback_centisecs`).
    pub interval: Ps,
    /// What has been dirty for so long is written (`dirty_expire_centisecs`).
    pub age: Ps,
    /// With more dirty blocks than this the oldest are written (`dirty_background_ratio`).
    pub background_blocks: u64,
    /// With more than this, being written included, writers wait (`dirty_ratio`).
    pub limit_blocks: u64,
}

/// All options; [`Options::new`] has those of Linux 2.6.20 on a machine with 512 MiB.
///
/// ```
/// use elbow_ext2::{Options, Policy, Region};
///
/// let options = Options { policy: Policy::Range(Region::Group), ..Options::new(256_000) };
/// assert_eq!(options.inode_bytes, 128);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the file system in blocks of 4 KiB.
    pub blocks: u32,
    /// Size of an inode: 128 or 256.
    pub inode_bytes: u32,
    /// Inodes of a group, rounded up to whole blocks; mke2fs of the time made one for 8 KiB.
    pub inodes_per_group: u32,
    /// How data is allocated.
    pub policy: Policy,
    /// Blocks that a regular file that grows gets at a time (`EXT2_DEFAULT_PREALLOC_BLOCKS`); 0 or 1 for no preallocation. Classic only.
    pub preallocation: u32,
    /// Longest request in blocks (`BLK_DEF_MAX_SECTORS`, 512 KiB).
    pub request_blocks_max: u32,
    /// Does the elevator merge neighbours in the queue? It makes one write of small files that lie side by side, which no range write does.
    pub merge: bool,
    /// Requests that the disk has at a time (`BLKDEV_MAX_RQ`).
    pub in_flight_max: usize,
    /// Write-back.
    pub writeback: Writeback,
    /// Blocks of file data that are kept in memory, dirty ones included.
    pub memory_blocks: u64,
    /// Time of the first moment, in seconds since 1970.
    pub epoch: u32,
    /// For Orlov's choice of a group for a new top-level directory.
    pub seed: u64,
}

impl Options {
    /// Defaults for a size in blocks.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        let memory_blocks = 512 << 8;
        Self {
            blocks,
            inode_bytes: 128,
            inodes_per_group: 16_384,
            policy: Policy::Classic,
            preallocation: 8,
            request_blocks_max: 128,
            merge: true,
            in_flight_max: 128,
            writeback: Writeback {
                interval: Ps::from_ms(5_000.0),
                age: Ps::from_ms(30_000.0),
                background_blocks: memory_blocks / 10,
                limit_blocks: memory_blocks * 2 / 5,
            },
            memory_blocks,
            epoch: 1_170_612_288, // Linux 2.6.20 was released
            seed: 1,
        }
    }
}
