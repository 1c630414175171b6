//! The file system: its state, and how time and operations come to it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::claims::Claims;
use crate::geometry::{Geometry, ROOT};
use crate::group::Group;
use crate::inode::{Inode, Node};
use crate::issue::{InFlight, Work};
use crate::{Action, Ext2Error, Options, Policy, Purpose, RequestId, Statistics};
use elbow_disk::Ps;

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It has to wait for the disk: give it again after the next completion, or at once if the disk has nothing to do after
    /// [`Ext2::next_request`] had nothing more (what was waited for was struck from the queue, with its file).
    Wait,
}

/// The file system. See the [module](super).
///
/// ```
/// use elbow_ext2::{Action, Ext2, Options, Outcome, Target};
///
/// let mut fs = Ext2::new(Options::new(40_000))?;
/// assert_eq!(fs.apply(7, &Action::Create("/a".into()))?, Outcome::Done);
/// assert_eq!(fs.apply(7, &Action::Write { path: "/a".into(), offset: 0, bytes: 5000 })?, Outcome::Done);
/// assert!(fs.next_request().is_none(), "it is dirty for less than 30 s");
/// assert_eq!(fs.apply(7, &Action::Sync)?, Outcome::Wait);
/// let request = fs.next_request().unwrap();
/// assert_eq!(request.blocks, 2);
/// assert!(matches!(request.target, Target::Write(_)));
/// # Ok::<(), elbow_ext2::Ext2Error>(())
/// ```
#[derive(Debug)]
pub struct Ext2 {
    pub(crate) options: Options,
    pub(crate) geometry: Geometry,
    pub(crate) groups: Vec<Group>,
    pub(crate) inodes: HashMap<u32, Inode>,
    /// Which file's indirect block lies at a place.
    pub(crate) node_owner: HashMap<u32, (u32, Node)>,
    pub(crate) random: Xoshiro256PlusPlus,
    pub(crate) now: Ps,
    /// Blocks that are free, those promised included.
    pub(crate) free_blocks: u64,
    /// Blocks that data without a place, and its indirect blocks, will need.
    pub(crate) promised: u64,

    /// Inodes with something to write, oldest first.
    pub(crate) dirty_inodes: BTreeMap<(Ps, u64), u32>,
    /// Their keys there.
    pub(crate) dirty_keys: HashMap<u32, (Ps, u64)>,
    pub(crate) dirty_count: u64,
    /// Blocks of data to be written, and queued or in flight.
    pub(crate) dirty_blocks: u64,
    pub(crate) writeback_blocks: u64,
    /// Blocks of data in memory, and their inodes in the order in which they came.
    pub(crate) resident_blocks: u64,
    pub(crate) resident_order: VecDeque<u32>,
    /// Other blocks to be written, and since when there are any.
    pub(crate) dirty_meta: BTreeMap<u32, Purpose>,
    pub(crate) meta_since: Option<Ps>,
    /// Those that wait in the queue, and those that the disk has.
    pub(crate) meta_queued: HashSet<u32>,
    pub(crate) meta_in_flight: HashSet<u32>,
    /// Writes that will change a block of inodes when they are placed.
    pub(crate) pending_pointers: HashMap<u32, u32>,

    /// What is to be asked of the disk, in order.
    pub(crate) queue: VecDeque<Work>,
    /// What waits for room in its region, or for the place of the piece before it.
    pub(crate) stalled: VecDeque<Work>,
    /// How many of those wait since the last time that room was made.
    pub(crate) waiting: u32,
    pub(crate) in_flight: HashMap<RequestId, InFlight>,
    pub(crate) claims: Claims,
    /// Works to be placed that are queued, stalled or in flight.
    pub(crate) placing: u64,
    pub(crate) last_request: u64,
    pub(crate) next_tick: Ps,
    pub(crate) statistics: Statistics,
}

impl Ext2 {
    /// Makes an empty file system with `/lost+found`, all of it on the disk and in memory.
    ///
    /// # Errors
    /// [`Ext2Error::Geometry`] for sizes that cannot be.
    pub fn new(options: Options) -> Result<Self, Ext2Error> {
        let geometry = Geometry::new(&options)?;
        let groups: Vec<Group> = (0..geometry.groups).map(|group| Group::new(&geometry, group)).collect();
        let mut fs = Self {
            free_blocks: groups.iter().map(|group| u64::from(group.blocks().clear_count())).sum(),
            random: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            next_tick: options.writeback.interval,
            options,
            geometry,
            groups,
            inodes: HashMap::new(),
            node_owner: HashMap::new(),
            now: Ps::ZERO,
            promised: 0,
            dirty_inodes: BTreeMap::new(),
            dirty_keys: HashMap::new(),
            dirty_count: 0,
            dirty_blocks: 0,
            writeback_blocks: 0,
            resident_blocks: 0,
            resident_order: VecDeque::new(),
            dirty_meta: BTreeMap::new(),
            meta_since: None,
            meta_queued: HashSet::new(),
            meta_in_flight: HashSet::new(),
            pending_pointers: HashMap::new(),
            queue: VecDeque::new(),
            stalled: VecDeque::new(),
            waiting: 0,
            in_flight: HashMap::new(),
            claims: Claims::default(),
            placing: 0,
            last_request: 0,
            statistics: Statistics::default(),
        };
        fs.make_root()?;
        fs.forget_dirty();
        Ok(fs)
    }

    /// The options that it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What was asked of the disk.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Does an operation of a process, or part of it.
    ///
    /// # Errors
    /// Why it cannot be done; then nothing was changed, but for what a write had done before the space ended.
    pub fn apply(&mut self, pid: u32, action: &Action) -> Result<Outcome, Ext2Error> {
        let done = |()| Outcome::Done;
        match action {
            Action::Mkdir(path) => self.mkdir(pid, path),
            Action::Create(path) => self.create(pid, path),
            Action::Write { path, offset, bytes } => self.write(pid, path, *offset, *bytes),
            Action::Append { path, bytes } => {
                let offset = self.size(path)?;
                self.write(pid, path, offset, *bytes)
            }
            Action::Read { path, offset, bytes } => self.read(path, *offset, *bytes),
            Action::Truncate { path, bytes } => self.truncate(path, *bytes),
            Action::Unlink(path) => self.unlink(path).map(done),
            Action::Rmdir(path) => self.rmdir(path).map(done),
            Action::Rename { from, to } => self.rename(pid, from, to),
            Action::Close(path) => self.close(path).map(done),
            Action::Fsync(path) => self.fsync(path),
            Action::Sync => Ok(self.sync()),
            Action::Think(_) => Ok(Outcome::Done), // whoever has the clock
        }
    }

    /// Says what time it is; time does not go back. Looks at the age of what is dirty where that is due.
    pub fn advance(&mut self, now: Ps) {
        assert!(now >= self.now, "time goes forward");
        self.now = now;
        while self.next_tick <= now {
            self.next_tick += self.options.writeback.interval;
            self.write_back_old();
        }
    }

    /// When [`advance`](Self::advance) will look at the age of what is dirty next.
    pub fn next_tick(&self) -> Ps {
        self.next_tick
    }

    /// Blocks that are neither used nor promised to data in memory.
    pub fn free_blocks(&self) -> u64 {
        self.free_blocks - self.promised
    }

    /// Group that the inode of a path is in.
    ///
    /// # Errors
    /// If there is no such path.
    pub fn group_of(&self, path: &str) -> Result<u32, Ext2Error> {
        Ok(self.geometry.inode_group(self.resolve(path)?))
    }

    /// Where the data of a file lies, block by block; `None` for a hole and for what has no place yet.
    ///
    /// # Errors
    /// If there is no such path.
    pub fn places(&self, path: &str) -> Result<Vec<Option<u32>>, Ext2Error> {
        let inode = &self.inodes[&self.resolve(path)?];
        let blocks = inode.size.div_ceil(crate::BLOCK_BYTES as u64) as u32;
        Ok((0..blocks).map(|block| inode.place(block)).collect())
    }

    /// Uses up a group, to a fraction of all its blocks, by a file in the root that is taken to have been there for long: runs of so many
    /// blocks at random. Nothing is written.
    ///
    /// # Errors
    /// [`Ext2Error::Exists`] if that was done to this group before, and whatever a file can run into.
    ///
    /// # Panics
    /// For a group that there is not, or runs of 0 blocks.
    pub fn occupy(&mut self, group: u32, fraction: f64, run_blocks: u32) -> Result<(), Ext2Error> {
        let path = format!("/ballast-{group}");
        if self.resolve(&path).is_ok() {
            return Err(Ext2Error::Exists(path));
        }
        self.create(0, &path)?;
        let ino = self.resolve(&path)?;
        let bits = self.groups[group as usize].blocks().bits();
        let spare = (f64::from(bits) * (1.0 - fraction)).round() as u32;
        let mut file_block = 0;
        while self.groups[group as usize].blocks().clear_count() > spare {
            let map = self.groups[group as usize].blocks();
            let at = (self.random.next_u64() % u64::from(bits)) as u32;
            let (low, high) = (map.first_clear(0..at), map.first_clear(at..bits));
            let start = high.or(low).expect("a clear bit");
            let run: Vec<u32> = (start..(start + run_blocks).min(bits))
                .take_while(|&bit| !map.get(bit))
                .collect();
            let most = (map.clear_count() - spare) as usize;
            for bit in run.into_iter().take(most) {
                self.occupy_block(ino, &mut file_block, group * crate::BLOCKS_PER_GROUP + bit);
            }
        }
        let inode = self.inode_mut(ino);
        inode.size = u64::from(file_block) * crate::BLOCK_BYTES as u64;
        self.forget_dirty();
        Ok(())
    }

    /// Gives a block to a file, as what it needs next.
    fn occupy_block(&mut self, ino: u32, file_block: &mut u32, place: u32) {
        self.take_block(place);
        let missing = self.inodes[&ino].missing_nodes(*file_block).next();
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
        assert!(
            self.in_flight.is_empty() && self.queue.is_empty(),
            "nothing is being written"
        );
        for ino in std::mem::take(&mut self.dirty_inodes).into_values() {
            let inode = self.inode_mut(ino);
            inode.dirty_since = None;
            let dirty = std::mem::take(&mut inode.dirty);
            self.dirty_blocks -= dirty.total_bytes();
        }
        self.dirty_keys.clear();
        self.dirty_meta.clear();
        self.meta_since = None;
    }

    pub(crate) fn inode_mut(&mut self, ino: u32) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("an inode that is there")
    }

    pub(crate) fn seconds(&self) -> u32 {
        self.options
            .epoch
            .saturating_add((self.now.0 / 1_000_000_000_000) as u32)
    }

    /// Data gets its place when it is written back.
    pub(crate) fn places_late(&self) -> bool {
        matches!(self.options.policy, Policy::Range(_))
    }

    pub(crate) fn is_root(ino: u32) -> bool {
        ino == ROOT
    }
}
