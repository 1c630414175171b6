//! The file system as it is in memory: what has which name, what lies where, and what of it is not on the disk yet.
//!
//! ```text
//!   names, data, placement      operations: each changes several of
//!   Space    Inodes    Cache    ResidentBlocks
//! ```
//!
//! It has no queue and asks nothing of the disk; [`Ext2`](crate::Ext2) does, and tells it what came of that.

mod data;
mod names;
mod placement;

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::cache::Cache;
use crate::claims::GroupPart;
use crate::geometry::Geometry;
use crate::inode::Inode;
use crate::inodes::Inodes;
use crate::queue::Owner;
use crate::resident::ResidentBlocks;
use crate::space::{Found, Space};
use crate::{BLOCK_BYTES, BLOCKS_PER_GROUP, Ext2Error, MINI_GROUPS, Options, Policy, Purpose, Region};

/// Mini-groups of a pid.
fn colour(pid: u32) -> u32 {
    pid % MINI_GROUPS
}

/// The state of a file system.
#[derive(Debug)]
pub(crate) struct Volume {
    options: Options,
    space: Space,
    inodes: Inodes,
    cache: Cache,
    residents: ResidentBlocks,
    random: Xoshiro256PlusPlus,
}

impl Volume {
    /// An empty one with `/lost+found`, all of it on the disk and in memory.
    pub(crate) fn new(options: Options) -> Result<Self, Ext2Error> {
        let mut volume = Self {
            space: Space::new(Geometry::new(&options)?),
            inodes: Inodes::default(),
            cache: Cache::default(),
            residents: ResidentBlocks::new(options.memory_blocks),
            random: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            options,
        };
        volume.make_root()?;
        volume.forget_dirty();
        Ok(volume)
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        self.space.geometry()
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn space_mut(&mut self) -> &mut Space {
        &mut self.space
    }

    pub(crate) fn inodes(&self) -> &Inodes {
        &self.inodes
    }

    /// One that is there.
    pub(crate) fn inode(&self, ino: u32) -> &Inode {
        self.inodes.at(ino)
    }

    /// One that is there.
    pub(crate) fn inode_mut(&mut self, ino: u32) -> &mut Inode {
        self.inodes.at_mut(ino)
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn cache_mut(&mut self) -> &mut Cache {
        &mut self.cache
    }

    /// The time that a change has, in seconds since 1970.
    pub(crate) fn seconds(&self) -> u32 {
        let seconds = self.cache.now().0 / 1_000_000_000_000;
        self.options.epoch.saturating_add(seconds as u32)
    }

    /// Data gets its place when it is written back.
    fn places_late(&self) -> bool {
        matches!(self.options.policy, Policy::Range(_))
    }

    fn touch_data(&mut self, ino: u32, block: u32) {
        self.cache.touch_data(ino, self.inodes.at_mut(ino), block);
    }

    /// The block that has an inode has to be written.
    pub(crate) fn touch_inode_block(&mut self, ino: u32) {
        self.cache.touch_meta(self.geometry().inode_block(ino), Purpose::Inodes);
    }

    /// What a write to a fixed place puts there.
    pub(crate) fn purpose(&self, at: u32, owner: Owner) -> Purpose {
        match owner {
            Owner::Data(ino) if self.inode(ino).is_directory() => Purpose::Directory,
            Owner::Data(_) => Purpose::Data,
            Owner::Meta => self.geometry().fixed_purpose(at).unwrap_or(Purpose::Indirect),
        }
    }

    /// Looks for room for contiguous blocks of a file: in the region of the policy, in its group, in the others.
    pub(crate) fn find_room(&self, ino: u32, blocks: u32) -> Found {
        let own = self.geometry().inode_group(ino);
        let mini = match self.options.policy {
            Policy::Range(Region::MiniGroup) => Some(GroupPart::mini_group(own, colour(self.inode(ino).pid))),
            _ => None,
        };
        let count = self.geometry().groups;
        let regions = mini
            .into_iter()
            .chain((0..count).map(move |step| GroupPart::group((own + step) % count)));
        self.space.find_room(regions, own, blocks)
    }

    /// Uses up a group, to a fraction of all its blocks, by a file in the root: runs of so many blocks at random.
    pub(crate) fn occupy(&mut self, group: u32, fraction: f64, run_blocks: u32) -> Result<(), Ext2Error> {
        let path = format!("/ballast-{group}");
        if self.inodes.resolve(&path).is_ok() {
            return Err(Ext2Error::Exists(path));
        }
        self.create(0, &path)?;
        let ino = self.inodes.resolve(&path)?;
        let bits = self.space.group(group).blocks().bits();
        let spare = (f64::from(bits) * (1.0 - fraction)).round() as u32;
        let mut file_block = 0;
        while self.space.group(group).blocks().clear_count() > spare {
            let map = self.space.group(group).blocks();
            let at = (self.random.next_u64() % u64::from(bits)) as u32;
            let (low, high) = (map.first_clear(0..at), map.first_clear(at..bits));
            let start = high.or(low).expect("a clear bit");
            let run: Vec<u32> = (start..(start + run_blocks).min(bits))
                .take_while(|&bit| !map.get(bit))
                .collect();
            let most = (map.clear_count() - spare) as usize;
            for bit in run.into_iter().take(most) {
                self.occupy_block(ino, &mut file_block, group * BLOCKS_PER_GROUP + bit);
            }
        }
        self.inode_mut(ino).size = u64::from(file_block) * BLOCK_BYTES as u64;
        self.forget_dirty();
        Ok(())
    }

    /// Gives a block to a file, as what it needs next.
    fn occupy_block(&mut self, ino: u32, file_block: &mut u32, place: u32) {
        self.space.take_block(place, &mut self.cache);
        let missing = self.inode(ino).missing_nodes(*file_block).next();
        match missing {
            Some(node) => self.set_node(ino, node, place),
            None => {
                self.set_data(ino, *file_block, place);
                *file_block += 1;
            }
        }
    }

    /// What is dirty is taken to be on the disk.
    fn forget_dirty(&mut self) {
        for ino in self.cache.forget_all() {
            self.cache.forget_data(self.inodes.at_mut(ino), 0);
        }
    }
}
