//! From the queue to the disk and back: merging, places for range writes, completions.
//!
//! ```text
//!   queue:    [Fixed 100+4][Fixed 104+2][Place file 7, blocks 0..3] ...
//!   requests: Write 100+6                WriteRange {free blocks} 3   -> at 5120: blocks 0..3 of file 7 are 5120..5123
//! ```
//!
//! Adjacent writes to fixed places that are in the queue together become one request, as the elevator merges them. A run of blocks
//! of a file without a place becomes one range write, with room for the indirect blocks among them (they are written again when it is
//! known what they point to); what is longer than a request continues at its goal if that is free and nobody's target, else in a range again.

use std::ops::Range;

use crate::blocks::colour;
use crate::claims::{Room, Within};
use crate::filesystem::Ext2;
use crate::inode::Node;
use crate::{BLOCKS_PER_GROUP, BLOCKS_PER_MINI_GROUP, Completed, Policy, Purpose, Region, Request, RequestId, Target};

/// How far the elevator sees in the queue.
const MERGE_WINDOW: usize = 128;

/// Writes that wait for room in their region before those behind them wait as well, so that small ones do not keep large ones out.
const WAITING_MAX: u32 = 4;

/// Something to be asked of the disk.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Read { ino: u32, at: u32, blocks: Range<u32> },
    Fixed { at: u32, blocks: u32, owner: Owner },
    Place { ino: u32, blocks: Range<u32> },
}

/// Whose a write to a fixed place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Data of a file or directory.
    Data(u32),
    /// None of those; one block.
    Meta,
}

/// What the disk has been asked.
#[derive(Clone, Debug)]
pub(crate) enum InFlight {
    Read {
        ino: u32,
        blocks: Range<u32>,
    },
    /// Place, length and owner of what was merged.
    Fixed(Vec<(u32, u32, Owner)>),
    Place {
        ino: u32,
        slots: Vec<Slot>,
        range: bool,
    },
}

/// What one block of a range write will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Data(u32),
    Node(Node),
}

/// What came of a search for room.
enum Found {
    Room(Within, std::sync::Arc<elbow_ranges::RangeSet>, u64),
    Later,
    None,
}

impl Ext2 {
    /// The next request for the disk; `None` if there is none now, or it has as many as it may.
    pub fn next_request(&mut self) -> Option<Request> {
        while self.in_flight.len() < self.options.in_flight_max {
            let blocked = self.waiting >= WAITING_MAX;
            if blocked && matches!(self.queue.front(), Some(Work::Place { .. })) {
                return None;
            }
            let request = match self.queue.pop_front()? {
                Work::Read { ino, at, blocks } => Some(self.issue_read(ino, at, blocks)),
                Work::Fixed { at, blocks, owner } => self.issue_fixed(at, blocks, owner),
                Work::Place { ino, blocks } => self.issue_place(ino, blocks),
            };
            if let Some(request) = request {
                self.statistics.count(&request);
                return Some(request);
            }
        }
        None
    }

    fn request(&mut self, target: Target, blocks: u32, purpose: Purpose, in_flight: InFlight) -> Request {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.in_flight.insert(id, in_flight);
        Request {
            id,
            target,
            blocks,
            purpose,
        }
    }

    fn issue_read(&mut self, ino: u32, at: u32, blocks: Range<u32>) -> Request {
        let count = blocks.end - blocks.start;
        self.request(Target::Read(at), count, Purpose::Data, InFlight::Read { ino, blocks })
    }

    fn issue_fixed(&mut self, at: u32, blocks: u32, owner: Owner) -> Option<Request> {
        if !self.still_wanted(at, blocks, owner) {
            return None;
        }
        let mut parts = vec![(at, blocks, owner)];
        let (mut start, mut end) = (at, at + blocks);
        while let Some((at, blocks, owner)) = self.take_adjacent(start, end) {
            if self.still_wanted(at, blocks, owner) {
                (start, end) = (start.min(at), end.max(at + blocks));
                parts.push((at, blocks, owner));
            }
        }
        for &(at, _, owner) in &parts {
            self.begin_write(at, owner);
        }
        let purpose = self.purpose(parts[0].0, parts[0].2);
        Some(self.request(Target::Write(start), end - start, purpose, InFlight::Fixed(parts)))
    }

    /// A write in the queue that ends where others begin, or begins where they end.
    fn take_adjacent(&mut self, start: u32, end: u32) -> Option<(u32, u32, Owner)> {
        let room = self.options.request_blocks_max.checked_sub(end - start)?;
        let adjacent = |work: &Work| matches!(*work, Work::Fixed { at, blocks, .. } if blocks <= room && (at == end || at + blocks == start));
        let seen = if self.options.merge { MERGE_WINDOW } else { 0 };
        let index = self.queue.iter().take(seen).position(adjacent)?;
        match self.queue.remove(index) {
            Some(Work::Fixed { at, blocks, owner }) => Some((at, blocks, owner)),
            _ => None,
        }
    }

    /// Is what a write in the queue was about still there? If not it is struck off.
    fn still_wanted(&mut self, at: u32, blocks: u32, owner: Owner) -> bool {
        match owner {
            Owner::Data(ino) if self.inodes[&ino].doomed => {
                self.finish_write(ino, blocks);
                false
            }
            Owner::Data(_) => true,
            Owner::Meta => {
                let wanted = !self.is_data_area(at) || self.node_owner.contains_key(&at);
                if !wanted {
                    self.meta_queued.remove(&at);
                }
                wanted
            }
        }
    }

    fn is_data_area(&self, block: u32) -> bool {
        let group = block / BLOCKS_PER_GROUP;
        block % BLOCKS_PER_GROUP >= self.geometry.first_data(group)
    }

    fn begin_write(&mut self, at: u32, owner: Owner) {
        if owner == Owner::Meta {
            self.meta_queued.remove(&at);
            self.meta_in_flight.insert(at);
            if let Some(&(ino, _)) = self.node_owner.get(&at) {
                self.inode_mut(ino).writes += 1; // it keeps its place until this is complete
            }
        }
    }

    fn purpose(&self, at: u32, owner: Owner) -> Purpose {
        match owner {
            Owner::Data(ino) if self.inodes[&ino].is_directory() => Purpose::Directory,
            Owner::Data(_) => Purpose::Data,
            Owner::Meta => self.fixed_purpose(at).unwrap_or(Purpose::Indirect),
        }
    }

    /// What a block before the data of its group holds.
    pub(crate) fn fixed_purpose(&self, block: u32) -> Option<Purpose> {
        let group = block / BLOCKS_PER_GROUP;
        match block {
            _ if self.is_data_area(block) => None,
            _ if block >= self.geometry.table_first(group) => Some(Purpose::Inodes),
            _ if block >= self.geometry.block_bitmap_block(group) => Some(Purpose::Bitmap),
            _ => Some(Purpose::Super),
        }
    }

    /// Counts a piece of a file that has no place yet.
    pub(crate) fn begin_placing(&mut self, ino: u32) {
        self.placing += 1;
        *self.pending_pointers.entry(self.geometry.inode_block(ino)).or_default() += 1;
    }

    fn end_placing(&mut self, ino: u32) {
        self.placing -= 1;
        let block = self.geometry.inode_block(ino);
        let count = self.pending_pointers.get_mut(&block).expect("it was begun");
        *count -= 1;
        if *count == 0 {
            self.pending_pointers.remove(&block);
        }
    }

    fn issue_place(&mut self, ino: u32, blocks: Range<u32>) -> Option<Request> {
        let inode = &self.inodes[&ino];
        if inode.doomed {
            self.end_placing(ino);
            self.finish_write(ino, blocks.end - blocks.start);
            return None;
        }
        // The next piece follows the one before, wherever that will be.
        if !inode.placing.is_empty() || !inode.placing_nodes.is_empty() {
            self.stalled.push_back(Work::Place { ino, blocks });
            return None;
        }
        let mut most = self.options.request_blocks_max;
        loop {
            let slots = self.slots(ino, &blocks, most);
            if let Some(request) = self.continue_at_goal(ino, &blocks, &slots) {
                return Some(request);
            }
            let count = slots.len() as u32;
            match self.find_room(ino, count) {
                Found::Room(within, targets, slack) => {
                    let request = self.place(ino, &blocks, slots, Target::WriteRange(targets), true);
                    self.claims.begin(&mut self.groups, request.id, within, count, slack);
                    let outstanding = &mut self.statistics.ranges_outstanding_max;
                    *outstanding = (*outstanding).max(self.claims.len() as u64);
                    return Some(request);
                }
                Found::Later => {
                    self.statistics.range_waits += 1;
                    self.waiting += 1;
                    self.stalled.push_back(Work::Place { ino, blocks });
                    return None;
                }
                Found::None => most = count / 2,
            }
            assert!(
                most > 0,
                "a block was promised for block {} of inode {ino}",
                blocks.start
            );
        }
    }

    /// What lies one after the other if some blocks of a file do: indirect blocks stand before what they point to.
    fn slots(&self, ino: u32, blocks: &Range<u32>, most: u32) -> Vec<Slot> {
        let inode = &self.inodes[&ino];
        let mut new = Vec::new();
        let mut slots = Vec::new();
        for block in blocks.clone() {
            for node in inode.missing_nodes(block) {
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

    /// Places a piece right behind the one before it, if that is free and nobody's target.
    fn continue_at_goal(&mut self, ino: u32, blocks: &Range<u32>, slots: &[Slot]) -> Option<Request> {
        let before = self.inodes[&ino].place(blocks.start.checked_sub(1)?)?;
        let (first, count) = (before + 1, slots.len() as u32);
        let group = &self.groups[(first / BLOCKS_PER_GROUP) as usize % self.groups.len()];
        let bit = first % BLOCKS_PER_GROUP;
        let free = |bit: u32| {
            bit < group.blocks().bits()
                && !group.blocks().get(bit)
                && group.named[(bit / BLOCKS_PER_MINI_GROUP) as usize] == 0
        };
        if first >= self.geometry.blocks || !(bit..bit + count).all(free) {
            return None;
        }
        self.statistics.continued += 1;
        Some(self.place(ino, blocks, slots.to_vec(), Target::Write(first), false))
    }

    /// Asks for places for slots; what is left of the blocks goes back to the head of the queue.
    fn place(&mut self, ino: u32, blocks: &Range<u32>, slots: Vec<Slot>, target: Target, range: bool) -> Request {
        let data = slots.iter().filter(|slot| matches!(slot, Slot::Data(_))).count() as u32;
        let rest = blocks.start + data..blocks.end;
        let inode = self.inode_mut(ino);
        for slot in &slots {
            match *slot {
                Slot::Data(block) => {
                    inode.unplaced.remove(block.into(), u64::from(block) + 1);
                    inode.placing.insert(block.into(), u64::from(block) + 1);
                }
                Slot::Node(node) => {
                    inode.promised.remove(&node);
                    inode.placing_nodes.insert(node);
                }
            }
        }
        if !rest.is_empty() {
            inode.writes += 1;
            self.begin_placing(ino);
            self.queue.push_front(Work::Place { ino, blocks: rest });
        }
        if let Target::Write(first) = target {
            self.assign(ino, &slots, first);
        }
        let count = slots.len() as u32;
        self.request(target, count, Purpose::Data, InFlight::Place { ino, slots, range })
    }

    /// Gives slots the blocks from one on.
    fn assign(&mut self, ino: u32, slots: &[Slot], first: u32) {
        for (slot, place) in slots.iter().zip(first..) {
            self.take_block(place);
            match *slot {
                Slot::Data(block) => self.set_data(ino, block, place),
                Slot::Node(node) => self.set_node(ino, node, place),
            }
        }
        self.promised -= slots.len() as u64;
        self.touch_meta(self.geometry.inode_block(ino), Purpose::Inodes);
    }

    /// Regions in the order in which they are asked: the one of the policy, the group, the others.
    fn regions(&self, ino: u32) -> impl Iterator<Item = Within> + use<> {
        let own = self.geometry.inode_group(ino);
        let mini = match self.options.policy {
            Policy::Range(Region::MiniGroup) => Some(Within::mini_group(own, colour(self.inodes[&ino].pid))),
            _ => None,
        };
        let count = self.groups.len() as u32;
        mini.into_iter()
            .chain((0..count).map(move |step| Within::group((own + step) % count)))
    }

    fn find_room(&self, ino: u32, count: u32) -> Found {
        let own = self.geometry.inode_group(ino);
        let mut later = false;
        for within in self.regions(ino) {
            if later && within.group != own {
                break; // better to wait than to go away
            }
            match self.claims.room(&self.groups, &within, count) {
                Room::Targets(targets, slack) => return Found::Room(within, targets, slack),
                Room::Later => later = true,
                Room::None => {}
            }
        }
        if later { Found::Later } else { Found::None }
    }

    /// Tells that a request is complete, and where a range write went.
    ///
    /// # Panics
    /// For a request that is not outstanding, or a place that is not among its targets and free.
    pub fn complete(&mut self, completed: Completed) {
        let in_flight = self.in_flight.remove(&completed.id);
        match in_flight.expect("a request that is outstanding") {
            InFlight::Read { ino, blocks } => self.complete_read(ino, blocks),
            InFlight::Fixed(parts) => {
                for (at, blocks, owner) in parts {
                    self.complete_fixed(at, blocks, owner);
                }
            }
            InFlight::Place { ino, slots, range } => self.complete_place(completed, ino, &slots, range),
        }
    }

    fn complete_read(&mut self, ino: u32, blocks: Range<u32>) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.reading.remove(blocks.start.into(), blocks.end.into());
            self.make_resident(ino, blocks);
        }
    }

    fn complete_fixed(&mut self, at: u32, blocks: u32, owner: Owner) {
        match owner {
            Owner::Data(ino) => self.finish_write(ino, blocks),
            Owner::Meta => {
                self.meta_in_flight.remove(&at);
                if let Some(&(ino, _)) = self.node_owner.get(&at) {
                    self.finish_write(ino, 0);
                }
            }
        }
    }

    fn complete_place(&mut self, completed: Completed, ino: u32, slots: &[Slot], range: bool) {
        if range {
            self.claims.end(&mut self.groups, completed.id);
            self.assign(ino, slots, completed.place);
        }
        let inode = self.inode_mut(ino);
        inode.placing = elbow_ranges::RangeSet::new();
        inode.placing_nodes.clear();
        self.end_placing(ino);
        let data = slots.iter().filter(|slot| matches!(slot, Slot::Data(_))).count();
        self.finish_write(ino, data as u32);
        self.wake();
    }

    /// One write of a file less is queued or in flight.
    fn finish_write(&mut self, ino: u32, blocks: u32) {
        self.writeback_blocks -= u64::from(blocks);
        self.inode_mut(ino).writes -= 1;
        self.settle(ino);
    }

    /// Does what had to wait until a file is not being written.
    pub(crate) fn settle(&mut self, ino: u32) {
        let inode = self.inode_mut(ino);
        if inode.writes > 0 {
            return;
        }
        if inode.doomed {
            self.release(ino);
        } else if std::mem::take(&mut inode.again) {
            self.flush_inode(ino);
        }
    }

    /// What waited for room may look again.
    pub(crate) fn wake(&mut self) {
        self.waiting = 0;
        while let Some(work) = self.stalled.pop_back() {
            self.queue.push_front(work);
        }
    }
}
