//! What the model asks of the disk under it, and the simplest of disks.

use std::collections::VecDeque;
use std::sync::Arc;

use elbow_ranges::RangeSet;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use elbow_disk::Ps;

/// Names a request from when it is handed out until it is completed; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Where a request goes, in blocks of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestTarget {
    /// Read from this block on.
    Read(u32),
    /// Written from this block on.
    Write(u32),
    /// Written anywhere within these blocks, contiguously; runs that are too short for it may be among them. Of several that are outstanding, no two may get the same block; there are
    /// always enough of them.
    WriteRange(Arc<RangeSet>),
}

/// What is written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// Blocks of regular files, or those with their indirect blocks between them.
    Data,
    /// Blocks of directories.
    Directory,
    /// Blocks of the tables of inodes.
    Inodes,
    /// Indirect blocks.
    Indirect,
    /// Bitmaps of blocks or inodes.
    Bitmap,
    /// The superblock and the descriptors of groups.
    Super,
}

/// One request to the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// By which its completion names it.
    pub id: RequestId,
    /// The place that it reads or writes, or the places that a write may go to.
    pub target: RequestTarget,
    /// How many blocks, at least 1.
    pub blocks: u32,
    /// What kind of data the blocks hold: for statistics and times.
    pub purpose: Purpose,
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The request that is complete.
    pub id: RequestId,
    /// The moment of its completion; not before that of any earlier one.
    pub at: Ps,
    /// The first block, which for a range write only the disk knows.
    pub place: u32,
}

/// A disk in simulated time. Times given to it and by it never go back.
///
/// Two range writes that are outstanding together (one was submitted before the other was completed) never get the same block, also
/// when one of them has completed since: the disk strikes the place of each write from the targets of all that are outstanding with it.
pub trait Disk {
    /// Takes a request.
    fn submit(&mut self, now: Ps, request: &Request);
    /// When the next request will be completed, if nothing more is submitted before then; `None` when it has nothing to do.
    fn next_at(&mut self) -> Option<Ps>;
    /// Completes that request.
    fn complete(&mut self) -> Option<Completed>;
}

/// Guesses at a place before the places are counted.
const GUESSES: u32 = 8;

/// Serves requests one after the other, in order, each in the same time: for tests of what lies above it.
///
/// ```
/// use elbow_disk::Ps;
/// use elbow_ext2::{ConstantDisk, Disk, Purpose, Request, RequestId, RequestTarget};
///
/// let mut disk = ConstantDisk::new(Ps::from_ms(10.0));
/// let request = Request { id: RequestId(1), target: RequestTarget::Write(7), blocks: 1, purpose: Purpose::Data };
/// disk.submit(Ps::from_ms(5.0), &request);
/// assert_eq!(disk.next_at(), Some(Ps::from_ms(15.0)));
/// assert_eq!(disk.complete().map(|done| done.place), Some(7));
/// ```
#[derive(Debug)]
pub struct ConstantDisk {
    service: Ps,
    /// Bounded by what the file system has in flight.
    queue: VecDeque<Queued>,
    /// When the last in the queue will be done.
    busy_until: Ps,
    whim: Option<Xoshiro256PlusPlus>,
}

#[derive(Debug)]
struct Queued {
    request: Request,
    done: Ps,
    /// Blocks that went to others meanwhile.
    struck: RangeSet,
}

impl ConstantDisk {
    /// Takes this long for each, and puts a range write at the first place that fits.
    #[must_use]
    pub fn new(service: Ps) -> Self {
        Self {
            service,
            queue: VecDeque::new(),
            busy_until: Ps::ZERO,
            whim: None,
        }
    }

    /// Puts a range write anywhere.
    #[must_use]
    pub fn capricious(service: Ps, seed: u64) -> Self {
        Self {
            whim: Some(Xoshiro256PlusPlus::seed_from_u64(seed)),
            ..Self::new(service)
        }
    }

    fn pick(&mut self, targets: &RangeSet, struck: &RangeSet, blocks: u32) -> u32 {
        let length = u64::from(blocks);
        // Mostly little is struck: guess first.
        for _ in 0..if self.whim.is_some() { GUESSES } else { 0 } {
            match self.place(targets, length) {
                Some(at) if !struck.overlaps(at, at + length) => return u32::try_from(at).expect("a block"),
                _ => {}
            }
        }
        let free = targets.difference(struck);
        let place = self.place(&free, length);
        let place =
            place.unwrap_or_else(|| panic!("no {blocks} contiguous blocks in {free:?}: too much was asked for"));
        u32::try_from(place).expect("a block")
    }

    /// The first place in a set, or any by whim.
    fn place(&mut self, free: &RangeSet, length: u64) -> Option<u64> {
        let count = |range: &std::ops::Range<u64>| (range.end - range.start + 1).saturating_sub(length);
        let places: u64 = free.iter().map(|range| count(&range)).sum();
        let mut left = match &mut self.whim {
            Some(whim) if places > 0 => whim.random_range(0..places),
            _ => 0,
        };
        free.iter().find_map(|range| match left.checked_sub(count(&range)) {
            Some(rest) => {
                left = rest;
                None
            }
            None => Some(range.start + left),
        })
    }
}

impl Disk for ConstantDisk {
    fn submit(&mut self, now: Ps, request: &Request) {
        self.busy_until = self.busy_until.max(now) + self.service;
        self.queue.push_back(Queued {
            request: request.clone(),
            done: self.busy_until,
            struck: RangeSet::new(),
        });
    }

    fn next_at(&mut self) -> Option<Ps> {
        self.queue.front().map(|queued| queued.done)
    }

    fn complete(&mut self) -> Option<Completed> {
        let Queued { request, done, struck } = self.queue.pop_front()?;
        let place = match &request.target {
            RequestTarget::Read(place) | RequestTarget::Write(place) => *place,
            RequestTarget::WriteRange(targets) => self.pick(targets, &struck, request.blocks),
        };
        for other in &mut self.queue {
            other
                .struck
                .insert(place.into(), u64::from(place) + u64::from(request.blocks));
        }
        let (id, at) = (request.id, done);
        Some(Completed { id, at, place })
    }
}
