//! From the queue to the disk and back: merging, places for range writes, completions.
//!
//! ```text
//!   queue:    [Fixed 100+4][Fixed 104+2][Place file 7, blocks 0..3] ...
//!   requests: Write 100+6                WriteRange {free blocks} 3   -> at 5120: blocks 0..3 of file 7 are 5120..5123
//! ```
//!
//! Adjacent writes to fixed places that are in the queue together become one request, as the elevator merges them. A
//! run of blocks of a file without a place becomes one range write, with room for the indirect blocks among them (they
//! are written again when it is known what they point to); what is longer than a request continues at its goal if that
//! is free and nobody's target, else in a range again.

use std::ops::Range;

use super::Ext2;
use crate::inode::Slot;
use crate::queue::{FixedWrite, InFlight, Owner, Work};
use crate::space::Found;
use crate::{Completed, Purpose, Request, RequestTarget};

impl Ext2 {
    /// The next request for the disk; `None` if there is none now, or it has as many as it may.
    pub fn next_request(&mut self) -> Option<Request> {
        while let Some(work) = self.queue.next_work() {
            let request = match work {
                Work::Read { ino, at, blocks } => Some(self.issue_read(ino, at, blocks)),
                Work::Fixed(write) => self.issue_fixed(write),
                Work::Place { ino, blocks } => self.issue_place(ino, blocks),
            };
            if let Some(request) = request {
                self.statistics.count(&request);
                return Some(request);
            }
        }
        None
    }

    fn issue_read(&mut self, ino: u32, at: u32, blocks: Range<u32>) -> Request {
        let count = blocks.end - blocks.start;
        let in_flight = InFlight::Read { ino, blocks };
        self.queue
            .send(RequestTarget::Read(at), count, Purpose::Data, in_flight)
    }

    fn issue_fixed(&mut self, write: FixedWrite) -> Option<Request> {
        if !self.still_wanted(write) {
            return None;
        }
        let longest = self.volume.options().request_blocks_max;
        let mut parts = vec![write];
        let (mut start, mut end) = (write.at, write.at + write.blocks);
        while let Some(room) = longest.checked_sub(end - start)
            && let Some(other) = self.queue.take_adjacent(start, end, room)
        {
            if self.still_wanted(other) {
                (start, end) = (start.min(other.at), end.max(other.at + other.blocks));
                parts.push(other);
            }
        }
        for part in &parts {
            self.begin_write(part.at, part.owner);
        }
        let purpose = self.volume.purpose(write.at, write.owner);
        let in_flight = InFlight::Fixed(parts);
        Some(
            self.queue
                .send(RequestTarget::Write(start), end - start, purpose, in_flight),
        )
    }

    /// Is what a write in the queue was about still there? If not it is struck off.
    fn still_wanted(&mut self, write: FixedWrite) -> bool {
        let FixedWrite { at, blocks, owner } = write;
        match owner {
            Owner::Data(ino) if self.volume.inode(ino).doomed => {
                self.finish_write(ino, blocks);
                false
            }
            Owner::Data(_) => true,
            Owner::Meta => {
                let owned = self.volume.inodes().owner_of(at).is_some();
                let wanted = !self.volume.geometry().is_data_area(at) || owned;
                if !wanted {
                    self.volume.cache_mut().strike_meta(at);
                }
                wanted
            }
        }
    }

    fn begin_write(&mut self, at: u32, owner: Owner) {
        if owner == Owner::Meta {
            self.volume.cache_mut().begin_meta(at);
            if let Some((ino, _)) = self.volume.inodes().owner_of(at) {
                self.volume.inode_mut(ino).writes += 1; // it keeps its place until this is complete
            }
        }
    }

    fn issue_place(&mut self, ino: u32, blocks: Range<u32>) -> Option<Request> {
        let inode = self.volume.inode(ino);
        if inode.doomed {
            self.volume.end_placing(ino);
            self.finish_write(ino, blocks.end - blocks.start);
            return None;
        }
        // The next piece follows the one before, wherever that will be.
        if inode.is_being_placed() {
            self.queue.stall(Work::Place { ino, blocks });
            return None;
        }
        let mut most = self.volume.options().request_blocks_max;
        loop {
            let slots = self.volume.inode(ino).slots(&blocks, most);
            if let Some(request) = self.continue_at_goal(ino, &blocks, &slots) {
                return Some(request);
            }
            let count = slots.len() as u32;
            match self.volume.find_room(ino, count) {
                Found::Room(within, targets, slack) => {
                    let request = self.place(ino, &blocks, slots, RequestTarget::WriteRange(targets), true);
                    let outstanding = self.volume.space_mut().begin_claim(request.id, within, count, slack);
                    let most = &mut self.statistics.ranges_outstanding_max;
                    *most = (*most).max(outstanding);
                    return Some(request);
                }
                Found::Later => {
                    self.statistics.range_waits += 1;
                    self.queue.stall_for_room(Work::Place { ino, blocks });
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

    /// Places a piece right behind the one before it, if that is free and nobody's target.
    fn continue_at_goal(&mut self, ino: u32, blocks: &Range<u32>, slots: &[Slot]) -> Option<Request> {
        let before = self.volume.inode(ino).place(blocks.start.checked_sub(1)?)?;
        let first = before + 1;
        if !self.volume.space().is_free_and_unnamed(first, slots.len() as u32) {
            return None;
        }
        self.statistics.continued += 1;
        Some(self.place(ino, blocks, slots.to_vec(), RequestTarget::Write(first), false))
    }

    /// Asks for places for slots; what is left of the blocks goes back to the head of the queue.
    fn place(
        &mut self,
        ino: u32,
        blocks: &Range<u32>,
        slots: Vec<Slot>,
        target: RequestTarget,
        range: bool,
    ) -> Request {
        let data = slots.iter().filter(|slot| matches!(slot, Slot::Data(_))).count() as u32;
        let rest = blocks.start + data..blocks.end;
        self.volume.inode_mut(ino).begin_placing(&slots);
        if !rest.is_empty() {
            self.volume.inode_mut(ino).writes += 1;
            self.volume.begin_placing(ino);
            self.queue.push_front(Work::Place { ino, blocks: rest });
        }
        if let RequestTarget::Write(first) = target {
            self.volume.assign(ino, &slots, first);
        }
        let count = slots.len() as u32;
        let in_flight = InFlight::Place { ino, slots, range };
        self.queue.send(target, count, Purpose::Data, in_flight)
    }

    /// Tells that a request is complete, and where a range write went.
    ///
    /// # Panics
    /// For a request that is not outstanding, or a place that is not among its targets and free.
    pub fn complete(&mut self, completed: Completed) {
        match self.queue.end(completed.id) {
            InFlight::Read { ino, blocks } => self.volume.end_read(ino, blocks),
            InFlight::Fixed(parts) => {
                for part in parts {
                    self.complete_fixed(part);
                }
            }
            InFlight::Place { ino, slots, range } => self.complete_place(completed, ino, &slots, range),
        }
    }

    fn complete_fixed(&mut self, write: FixedWrite) {
        match write.owner {
            Owner::Data(ino) => self.finish_write(ino, write.blocks),
            Owner::Meta => {
                self.volume.cache_mut().end_meta(write.at);
                if let Some((ino, _)) = self.volume.inodes().owner_of(write.at) {
                    self.finish_write(ino, 0);
                }
            }
        }
    }

    fn complete_place(&mut self, completed: Completed, ino: u32, slots: &[Slot], range: bool) {
        if range {
            self.volume.space_mut().end_claim(completed.id);
            self.volume.assign(ino, slots, completed.place);
        }
        self.volume.inode_mut(ino).end_placing();
        self.volume.end_placing(ino);
        let data = slots.iter().filter(|slot| matches!(slot, Slot::Data(_))).count();
        self.finish_write(ino, data as u32);
        self.queue.wake();
    }

    /// One write of a file less is queued or in flight.
    fn finish_write(&mut self, ino: u32, blocks: u32) {
        self.volume.cache_mut().end_write(blocks);
        self.volume.inode_mut(ino).writes -= 1;
        self.settle(ino);
    }

    /// Does what had to wait until a file is not being written.
    pub(super) fn settle(&mut self, ino: u32) {
        let inode = self.volume.inode_mut(ino);
        if inode.writes > 0 {
            return;
        }
        if inode.doomed {
            self.volume.release(ino);
            self.queue.wake();
        } else if std::mem::take(&mut inode.again) {
            self.flush_inode(ino);
        }
    }
}
