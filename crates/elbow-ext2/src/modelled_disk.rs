//! The drive as the disk of the file-system model.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use elbow_disk::device::{FinishedRequest, PlaceNeed, QueuedDrive, QueuedRequest, Setup};
use elbow_disk::{Drive, Lbn, Ps, SECTOR_BYTES};
use elbow_ranges::RangeSet;

use crate::{BLOCK_BYTES, Completed, Disk, Purpose, Request, RequestId, RequestTarget};

/// Sectors of a block.
const SECTORS: u32 = (BLOCK_BYTES as u64 / SECTOR_BYTES) as u32;

/// A modelled drive with a scheduler; block 0 is its first sector.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::Drive;
/// use elbow_disk::device::Setup;
/// use elbow_ext2::{Ext2, ModelledDisk, Options, Policy, Region, Run, SmallFiles};
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let policy = Policy::Range(Region::Group);
/// let fs = Ext2::new(Options { policy, ..Options::new(100_000) })?;
/// let mut run = Run::new(fs, ModelledDisk::new(&drive, Setup::default()));
/// let report = run.replay(&SmallFiles { files: 10, bytes: 4096, processes: 1 }.trace(""))?;
/// let (_, disk) = run.into_parts();
/// assert_eq!(disk.busy(), report.elapsed, "the files are synced at once");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ModelledDisk<'d> {
    drive: QueuedDrive<'d>,
    asked: HashMap<u64, Option<Purpose>>,
    work: BTreeMap<Option<Purpose>, Work>,
    /// Places of writes on their way: targets of others may name them still.
    taken: RangeSet,
    /// Does it take the first place of a range that is free, whatever the time to get there? The simplest disk that understands range writes (*Range Writes*,
    /// "Range-aware Scheduling").
    pub first_choice: bool,
}

/// What requests of one kind took, from pick to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests of that kind.
    pub requests: u64,
    /// Blocks that they read or wrote.
    pub blocks: u64,
    /// Time to move the arm.
    pub seek: Ps,
    /// Time until the first sector passed.
    pub rotation: Ps,
    /// Time until the last had passed.
    pub transfer: Ps,
    /// Commands and the bus.
    pub overhead: Ps,
}

impl Work {
    /// The time from picks to completions, all parts of it.
    #[must_use]
    pub fn time(&self) -> Ps {
        self.seek + self.rotation + self.transfer + self.overhead
    }

    fn add(&mut self, finished: &FinishedRequest) {
        let parts = &finished.parts;
        self.requests += 1;
        self.blocks += u64::from(finished.sectors / SECTORS);
        self.seek += parts.seek;
        self.rotation += parts.rotation;
        self.transfer += parts.transfer;
        self.overhead += parts.overhead;
    }
}

impl<'d> ModelledDisk<'d> {
    /// The drive, just started.
    #[must_use]
    pub fn new(drive: &'d Arc<Drive>, setup: Setup) -> ModelledDisk<'d> {
        ModelledDisk {
            drive: QueuedDrive::new(drive, setup, SECTORS),
            asked: HashMap::new(),
            work: BTreeMap::new(),
            taken: RangeSet::new(),
            first_choice: false,
        }
    }

    /// What reads took.
    #[must_use]
    pub fn reads(&self) -> Work {
        self.work.get(&None).copied().unwrap_or_default()
    }

    /// What writes of a kind took.
    #[must_use]
    pub fn writes(&self, purpose: Purpose) -> Work {
        self.work.get(&Some(purpose)).copied().unwrap_or_default()
    }

    /// The first run of free blocks that is long enough and nobody's yet.
    fn first_place(&self, free: &RangeSet, blocks: u32) -> u32 {
        let first = free.difference(&self.taken).first_fit(blocks.into());
        first.expect("the file system asks for no more than there is room") as u32
    }

    /// How long it served requests.
    #[must_use]
    pub fn busy(&self) -> Ps {
        self.work.values().map(Work::time).sum()
    }
}

impl Disk for ModelledDisk<'_> {
    /// # Panics
    /// Where a request is not on the drive, or a range write has no place left, which the file system has to prevent.
    fn submit(&mut self, now: Ps, request: &Request) {
        let sectors = request.blocks * SECTORS;
        let at = |block: u32, write| QueuedRequest::At {
            lbn: Lbn(u64::from(block) * u64::from(SECTORS)),
            sectors,
            write,
        };
        let units = request.blocks;
        let (asked, purpose) = match &request.target {
            RequestTarget::Read(block) => (at(*block, false), None),
            RequestTarget::Write(block) => (at(*block, true), Some(request.purpose)),
            RequestTarget::WriteRange(free) if self.first_choice => {
                let first = self.first_place(free, units);
                self.taken.insert(first.into(), u64::from(first + units));
                (at(first, true), Some(request.purpose))
            }
            RequestTarget::WriteRange(free) => {
                let need = PlaceNeed { units, align: 1 };
                (QueuedRequest::Within { free, need }, Some(request.purpose))
            }
        };
        self.asked.insert(request.id.0, purpose);
        let taken = self.drive.submit(now, request.id.0, &asked);
        taken.unwrap_or_else(|full| panic!("request {}: {full}", request.id.0));
    }

    fn next_at(&mut self) -> Option<Ps> {
        let at = self.drive.next_at();
        let away = self.drive.turned_away();
        assert!(away.is_empty(), "more was asked for than there is room: {away:?}");
        at
    }

    fn complete(&mut self) -> Option<Completed> {
        self.next_at()?;
        let finished = self.drive.complete()?;
        let purpose = self.asked.remove(&finished.id).expect("it was asked");
        self.work.entry(purpose).or_default().add(&finished);
        let place = (finished.lbn.0 / u64::from(SECTORS)) as u32;
        if self.first_choice {
            self.taken
                .remove(place.into(), u64::from(place + finished.sectors / SECTORS));
        }
        Some(Completed {
            id: RequestId(finished.id),
            at: finished.parts.end,
            place,
        })
    }
}
