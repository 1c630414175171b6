//! What is to be asked of the disk, and what it has been asked.
//!
//! What always holds: a request that is out has one name, and is answered once; what waits for room is not forgotten
//! when room is made.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::inode::Slot;
use crate::{Purpose, Request, RequestId, RequestTarget};

/// How far the elevator sees in the queue.
const MERGE_WINDOW: usize = 128;

/// Writes that wait for room in their region before those behind them wait as well, so that small ones do not keep
/// large ones out.
const WAITING_MAX: u32 = 4;

/// Something to be asked of the disk.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Read { ino: u32, at: u32, blocks: Range<u32> },
    Fixed(FixedWrite),
    Place { ino: u32, blocks: Range<u32> },
}

/// A write to a place that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedWrite {
    pub(crate) at: u32,
    pub(crate) blocks: u32,
    pub(crate) owner: Owner,
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
    /// What was merged.
    Fixed(Vec<FixedWrite>),
    Place {
        ino: u32,
        slots: Vec<Slot>,
        range: bool,
    },
}

/// Works on their way to the disk.
#[derive(Debug)]
pub(crate) struct Queue {
    in_flight_max: usize,
    /// How many works the elevator looks at; 0 where it does not merge.
    merge_window: usize,
    works: VecDeque<Work>,
    /// What waits for room in its region, or for the place of the piece before it.
    stalled: VecDeque<Work>,
    /// How many of those wait for room since the last time that room was made.
    waiting: u32,
    in_flight: HashMap<RequestId, InFlight>,
    last_request: u64,
}

impl Queue {
    /// For a disk that takes so many requests at a time.
    pub(crate) fn new(in_flight_max: usize, merge: bool) -> Self {
        Self {
            in_flight_max,
            merge_window: if merge { MERGE_WINDOW } else { 0 },
            works: VecDeque::new(),
            stalled: VecDeque::new(),
            waiting: 0,
            in_flight: HashMap::new(),
            last_request: 0,
        }
    }

    pub(crate) fn push_back(&mut self, work: Work) {
        self.works.push_back(work);
    }

    /// What goes before all others: reads, for which processes wait, and the rest of a work.
    pub(crate) fn push_front(&mut self, work: Work) {
        self.works.push_front(work);
    }

    /// The next work, if the disk takes one more and too many do not wait for room already.
    pub(crate) fn next_work(&mut self) -> Option<Work> {
        let full = self.in_flight.len() >= self.in_flight_max;
        let blocked = self.waiting >= WAITING_MAX && matches!(self.works.front(), Some(Work::Place { .. }));
        if full || blocked {
            return None;
        }
        self.works.pop_front()
    }

    /// Takes out a write of at most so many blocks that ends where others begin, or begins where they end.
    pub(crate) fn take_adjacent(&mut self, start: u32, end: u32, most: u32) -> Option<FixedWrite> {
        let adjacent = |work: &Work| matches!(*work, Work::Fixed(FixedWrite { at, blocks, .. }) if blocks <= most && (at == end || at + blocks == start));
        let index = self.works.iter().take(self.merge_window).position(adjacent)?;
        match self.works.remove(index) {
            Some(Work::Fixed(write)) => Some(write),
            _ => None,
        }
    }

    /// A work has to wait for the place of the piece before it.
    pub(crate) fn stall(&mut self, work: Work) {
        self.stalled.push_back(work);
    }

    /// A work has to wait for room in its region.
    pub(crate) fn stall_for_room(&mut self, work: Work) {
        self.waiting += 1;
        self.stalled.push_back(work);
    }

    /// What waited for room may look again.
    pub(crate) fn wake(&mut self) {
        self.waiting = 0;
        while let Some(work) = self.stalled.pop_back() {
            self.works.push_front(work);
        }
    }

    /// Makes a request, which is in flight from now on.
    pub(crate) fn send(
        &mut self,
        target: RequestTarget,
        blocks: u32,
        purpose: Purpose,
        in_flight: InFlight,
    ) -> Request {
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

    /// What a completed request was about.
    pub(crate) fn end(&mut self, id: RequestId) -> InFlight {
        self.in_flight.remove(&id).expect("a request that is outstanding")
    }

    pub(crate) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Will something be complete if one waits? What is stalled alone will not.
    pub(crate) fn is_moving(&self) -> bool {
        !self.works.is_empty() || self.has_in_flight()
    }

    /// Works that wait or are in flight.
    pub(crate) fn len(&self) -> usize {
        self.works.len() + self.stalled.len() + self.in_flight.len()
    }
}
