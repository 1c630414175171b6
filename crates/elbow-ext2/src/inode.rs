//! Inodes: what they point to, and through which indirect blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use elbow_ranges::RangeSet;

use crate::directory::Directory;

/// Blocks that an inode points to itself.
pub(crate) const DIRECT: u32 = 12;
/// Pointers in an indirect block.
pub(crate) const POINTERS: u32 = 1024;
/// Blocks that can be reached without triply indirect ones.
pub(crate) const BLOCKS_MAX: u32 = DIRECT + POINTERS + POINTERS * POINTERS;

/// An indirect block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Node {
    /// Points to the 1024 blocks after the direct ones.
    Single,
    /// Points to the leaves.
    Double,
    /// Points to 1024 blocks; numbered from 0.
    Leaf(u32),
}

impl Node {
    /// Those on the way to a block, from the inode on.
    pub(crate) fn path(block: u32) -> &'static [fn(u32) -> Node] {
        match block {
            0..DIRECT => &[],
            DIRECT..1036 => &[|_| Node::Single],
            _ => &[
                |_| Node::Double,
                |block| Node::Leaf((block - DIRECT - POINTERS) / POINTERS),
            ],
        }
    }

    /// The same, with their numbers.
    pub(crate) fn on_the_way(block: u32) -> impl Iterator<Item = Node> {
        Self::path(block).iter().map(move |node| node(block))
    }

    /// The blocks of the file that are reached through it.
    pub(crate) fn covers(self) -> Range<u32> {
        let first = DIRECT + POINTERS;
        match self {
            Self::Single => DIRECT..first,
            Self::Double => first..BLOCKS_MAX,
            Self::Leaf(number) => first + number * POINTERS..first + (number + 1) * POINTERS,
        }
    }
}

/// What one block of a range write will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Data(u32),
    Node(Node),
}

/// One file or directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inode {
    /// Entries, for a directory.
    pub(crate) directory: Option<Directory>,
    /// Names, and for a directory `.` and the `..` of its children.
    pub(crate) links: u16,
    pub(crate) size: u64,
    pub(crate) atime: u32,
    pub(crate) mtime: u32,
    pub(crate) ctime: u32,
    /// Where each block lies; 0 for a hole, or for what has no place yet.
    pub(crate) map: Vec<u32>,
    pub(crate) nodes: BTreeMap<Node, u32>,
    /// Blocks of the file that are to be written.
    pub(crate) dirty: RangeSet,
    /// Blocks of the file that are in memory.
    pub(crate) resident: RangeSet,
    /// Blocks of the file that are being read.
    pub(crate) reading: RangeSet,
    /// Blocks of the file that somebody waits for, all of which have to be in memory at one time.
    pub(crate) wanted: RangeSet,
    /// Writes of its data that are queued or in flight.
    pub(crate) writes: u32,
    /// Blocks, and indirect blocks, for which the disk is picking a place.
    pub(crate) placing: RangeSet,
    pub(crate) placing_nodes: BTreeSet<Node>,
    /// To be written again as soon as those are complete.
    pub(crate) again: bool,
    /// Without a name; goes when its writes are complete.
    pub(crate) doomed: bool,
    /// Pid that wrote last, for its mini-group.
    pub(crate) pid: u32,
    /// Data blocks without a place for which one is promised.
    pub(crate) unplaced: RangeSet,
    /// Indirect blocks for which a place is promised.
    pub(crate) promised: BTreeSet<Node>,
    /// After which block of the file which goal comes next (`i_next_alloc_block`, `i_next_alloc_goal`).
    pub(crate) next: Option<(u32, u32)>,
    /// Blocks taken in advance.
    pub(crate) preallocated: Range<u32>,
}

impl Inode {
    pub(crate) fn is_directory(&self) -> bool {
        self.directory.is_some()
    }

    /// Where a block of the file lies.
    pub(crate) fn place(&self, block: u32) -> Option<u32> {
        self.map.get(block as usize).copied().filter(|&place| place != 0)
    }

    pub(crate) fn set_place(&mut self, block: u32, place: u32) {
        let index = block as usize;
        if self.map.len() <= index {
            self.map.resize(index + 1, 0);
        }
        self.map[index] = place;
    }

    /// Indirect blocks that a block of the file needs and that have no place.
    pub(crate) fn missing_nodes(&self, block: u32) -> impl Iterator<Item = Node> + '_ {
        Node::on_the_way(block).filter(|node| !self.nodes.contains_key(node))
    }

    /// Blocks without a place, and without a promise of one, that have to be had to write some.
    pub(crate) fn still_needed(&self, touched: Range<u32>) -> u64 {
        let ahead = u64::from(self.preallocated.end - self.preallocated.start);
        let mut nodes = BTreeSet::new();
        let mut needed = 0;
        for block in touched.filter(|&block| self.place(block).is_none()) {
            needed += u64::from(!self.has_promise(block));
            nodes.extend(self.missing_nodes(block));
        }
        let held = |node: &Node| self.promised.contains(node) || self.placing_nodes.contains(node);
        (needed + nodes.iter().filter(|node| !held(node)).count() as u64).saturating_sub(ahead)
    }

    /// Is a place promised to a block of the file, or being picked by the disk?
    fn has_promise(&self, block: u32) -> bool {
        self.unplaced.contains(block.into()) || self.placing.contains(block.into())
    }

    /// Notes that a block of the file, and what is missing on the way to it, is promised a place. How many of them were
    /// not before.
    pub(crate) fn promise(&mut self, block: u32) -> u64 {
        if self.has_promise(block) {
            return 0;
        }
        self.unplaced.insert(block.into(), u64::from(block) + 1);
        let missing: Vec<Node> = self.missing_nodes(block).collect();
        let new = missing
            .into_iter()
            .filter(|node| !self.placing_nodes.contains(node) && self.promised.insert(*node))
            .count();
        1 + new as u64
    }

    /// Forgets what was promised from a block of the file on. How many that was.
    pub(crate) fn end_promises(&mut self, from: u32) -> u64 {
        let before = self.unplaced.total_bytes() + self.promised.len() as u64;
        self.unplaced.remove(from.into(), u64::MAX);
        let unplaced = &self.unplaced;
        self.promised
            .retain(|node| unplaced.overlaps(node.covers().start.into(), node.covers().end.into()));
        before - unplaced.total_bytes() - self.promised.len() as u64
    }

    /// Is the disk picking places for some of it?
    pub(crate) fn is_being_placed(&self) -> bool {
        !self.placing.is_empty() || !self.placing_nodes.is_empty()
    }

    /// The disk picks places for these instead of what promised them.
    pub(crate) fn begin_placing(&mut self, slots: &[Slot]) {
        for slot in slots {
            match *slot {
                Slot::Data(block) => {
                    self.unplaced.remove(block.into(), u64::from(block) + 1);
                    self.placing.insert(block.into(), u64::from(block) + 1);
                }
                Slot::Node(node) => {
                    self.promised.remove(&node);
                    self.placing_nodes.insert(node);
                }
            }
        }
    }

    /// The disk has picked.
    pub(crate) fn end_placing(&mut self) {
        self.placing = RangeSet::new();
        self.placing_nodes.clear();
    }

    /// What lies one after the other if some blocks of the file do: indirect blocks stand before what they point to.
    pub(crate) fn slots(&self, blocks: &Range<u32>, most: u32) -> Vec<Slot> {
        let mut new = Vec::new();
        let mut slots = Vec::new();
        for block in blocks.clone() {
            for node in self.missing_nodes(block) {
                if !new.contains(&node) {
                    new.push(node);
                    slots.push(Slot::Node(node));
                }
            }
            slots.push(Slot::Data(block));
            if slots.len() >= most as usize {
                break;
            }
        }
        slots.truncate(most as usize);
        slots
    }

    /// Blocks on the disk, indirect ones included.
    pub(crate) fn owned(&self) -> impl Iterator<Item = u32> + '_ {
        let data = self.map.iter().copied().filter(|&place| place != 0);
        data.chain(self.nodes.values().copied())
    }

    /// Number of pointers to blocks, as the inode or one of its indirect blocks has them on disk.
    pub(crate) fn pointers(&self, node: Node) -> Vec<u32> {
        match node {
            Node::Double => (0..POINTERS)
                .map(|leaf| self.nodes.get(&Node::Leaf(leaf)).copied().unwrap_or(0))
                .collect(),
            other => other.covers().map(|block| self.place(block).unwrap_or(0)).collect(),
        }
    }
}
