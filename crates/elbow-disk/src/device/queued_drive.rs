//! The queue, the drive behind it, and what waits outside: one event after the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use elbow_ranges::RangeSet;

use super::Setup;
use super::regions::{PlaceNeed, Regions, without};
use crate::controller::Served;
use crate::drive::{Arm, Drive, Lbn, Ps};
use crate::sched::{NoPlace, Pick, Queue, QueueRequest};
use crate::workload::{DriveSide, Moment};

/// What is asked of a [`QueuedDrive`]: in sectors for fixed places, in units for ranges.
#[derive(Clone, Copy, Debug)]
pub enum QueuedRequest<'a> {
    /// Sectors at one place.
    At {
        /// The first one.
        lbn: Lbn,
        /// Sectors in a row.
        sectors: u32,
        /// Written, not read.
        write: bool,
    },
    /// A write to any free place of a range.
    Within {
        /// The places that are free, in units.
        free: &'a Arc<RangeSet>,
        /// What has to fit there.
        need: PlaceNeed,
    },
}

/// A request that a [`QueuedDrive`] has completed.
#[derive(Debug)]
pub struct FinishedRequest {
    /// As it was submitted.
    pub id: u64,
    /// First sector of the place where it was served.
    pub lbn: Lbn,
    /// Sectors from there on.
    pub sectors: u32,
    /// Its end, and where its time went.
    pub parts: Served,
}

/// A modelled drive with its scheduler's queue, and what waits outside of it. What stands above gives it units and
/// bytes.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::device::{QueuedDrive, QueuedRequest, Setup};
/// use elbow_disk::{Drive, Lbn, Ps};
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let mut queued = QueuedDrive::new(&drive, Setup::default(), 8);
/// let read = QueuedRequest::At { lbn: Lbn(80_000), sectors: 8, write: false };
/// queued.submit(Ps::ZERO, 1, &read)?;
/// let finished = queued.complete().expect("one is outstanding");
/// assert_eq!((finished.id, finished.lbn), (1, Lbn(80_000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct QueuedDrive<'d> {
    drive: &'d Drive,
    side: DriveSide<'d>,
    queue: Queue,
    regions: Regions,
    unit: u32,
    depth: usize,
    moment: Moment,
    /// Not known to the drive yet, in the order of the host.
    outside: VecDeque<(u64, QueueRequest, Ps)>,
    running: Option<FinishedRequest>,
    /// The place of a range write under way, in units.
    taken: Option<(u64, u64)>,
    /// From when on the drive has nothing to do.
    free_at: Ps,
    /// Writes in the queue by their length, for which the drive's lead differs.
    lengths: BTreeMap<u32, u32>,
    /// Range writes for which there is no place any more.
    turned_away: Vec<u64>,
    /// Writes that the write cache must not take, and that are not being served yet.
    through: BTreeSet<u64>,
}

impl<'d> QueuedDrive<'d> {
    /// A drive just started, whose ranges are in units of so many sectors.
    ///
    /// # Panics
    /// Where the depth is 0.
    #[must_use]
    pub fn new(drive: &'d Arc<Drive>, setup: Setup, unit: u32) -> QueuedDrive<'d> {
        assert!(setup.depth > 0, "a drive knows at least the request that it serves");
        QueuedDrive {
            drive,
            side: DriveSide::new(drive, setup.overheads, unit),
            queue: Queue::new(Arc::clone(drive), setup.scheduler),
            regions: Regions::new(unit),
            unit,
            depth: setup.depth,
            moment: setup.pick,
            outside: VecDeque::new(),
            running: None,
            taken: None,
            free_at: Ps::ZERO,
            lengths: BTreeMap::new(),
            turned_away: Vec::new(),
            through: BTreeSet::new(),
        }
    }

    /// The same where the arm stands there at first.
    ///
    /// # Panics
    /// Where that is not on the drive.
    #[must_use]
    pub fn standing_at(self, arm: Arm) -> QueuedDrive<'d> {
        QueuedDrive {
            side: self.side.standing_at(arm),
            ..self
        }
    }

    /// The same where the media cache of a shingled drive is as a power cut at `cut` left it in another.
    #[must_use]
    pub fn with_media_cache_of(self, before: &QueuedDrive<'d>, cut: Ps) -> QueuedDrive<'d> {
        QueuedDrive {
            side: self.side.with_media_cache_of(&before.side, cut),
            ..self
        }
    }

    /// Takes a request; ids are the caller's, and `now` is at least that of the one before.
    ///
    /// # Errors
    /// A range write for which there is no place.
    pub fn submit(&mut self, now: Ps, id: u64, asked: &QueuedRequest<'_>) -> Result<(), NoPlace> {
        if now > self.free_at {
            self.start(); // with those who came before now
        }
        let ask = match *asked {
            QueuedRequest::At { lbn, sectors, write } => QueueRequest::At { lbn, sectors, write },
            QueuedRequest::Within { free, need } => {
                let free = without(free, self.taken);
                QueueRequest::Anywhere(self.regions.join(&mut self.queue, self.drive, free, need)?)
            }
        };
        self.outside.push_back((id, ask, now));
        match self.running {
            // Those that come at once are all known when the first of them is picked.
            None => self.free_at = self.free_at.max(now),
            Some(_) => self.let_in(),
        }
        Ok(())
    }

    /// Takes a write of one place that is complete only when the medium has it (*forced unit access*).
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use elbow_disk::device::{QueuedDrive, Setup};
    /// # use elbow_disk::workload::Overheads;
    /// # use elbow_disk::{Drive, Lbn, Ps};
    /// # let drive = Arc::new(Drive::named("hp-c2247a")?.caching_writes());
    /// let setup = Setup { overheads: Overheads::Controller, ..Setup::default() };
    /// let mut queued = QueuedDrive::new(&drive, setup, 1);
    /// queued.submit_through(Ps::ZERO, 1, Lbn(80_000), 8);
    /// let end = queued.complete().expect("one is outstanding").parts.end;
    /// assert_eq!(queued.flush(end), end + Ps::from_ms(0.05045), "nothing is left to write: a completion");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_through(&mut self, now: Ps, id: u64, lbn: Lbn, sectors: u32) {
        self.through.insert(id);
        let write = QueuedRequest::At {
            lbn,
            sectors,
            write: true,
        };
        let taken = self.submit(now, id, &write);
        taken.expect("only a write that leaves its place open may find none");
    }

    /// Writes all that the write cache holds; says when the medium has it. Nothing else begins before that.
    ///
    /// # Panics
    /// Where a request is outstanding: its write would not be among what is flushed.
    pub fn flush(&mut self, now: Ps) -> Ps {
        let is_idle = self.running.is_none() && self.queue.is_empty() && self.outside.is_empty();
        assert!(is_idle, "a flush comes when all before it are complete");
        self.free_at = self.side.flush(self.free_at.max(now));
        self.free_at
    }

    /// Turns the write cache off or on again; what is in it stays there until it is written back, or flushed.
    pub fn set_write_through(&mut self, write_through: bool) {
        self.side.set_write_through(write_through);
    }

    /// The request that is being served, and when it will be complete; none, when there is nothing to serve.
    pub fn serving(&mut self) -> Option<(u64, Ps)> {
        self.start();
        self.running.as_ref().map(|running| (running.id, running.parts.end))
    }

    /// When the request being served will be complete; none, when there is nothing to serve.
    pub fn next_at(&mut self) -> Option<Ps> {
        self.start();
        self.running.as_ref().map(|running| running.parts.end)
    }

    /// The same, if it is complete by `now`. The drive goes on by then with what was submitted before.
    pub fn done_by(&mut self, now: Ps) -> Option<Ps> {
        if now > self.free_at {
            self.start();
        }
        let end = self.running.as_ref()?.parts.end;
        (end <= now).then_some(end)
    }

    /// Takes back a request that is not being served, wherever it waits; `false` for all others. The drive goes on by `now`
    /// with what was submitted before.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use elbow_disk::device::{QueuedDrive, QueuedRequest, Setup};
    /// # use elbow_disk::{Drive, Lbn, Ps};
    /// # let drive = Arc::new(Drive::named("hp-c2247a")?);
    /// let mut queued = QueuedDrive::new(&drive, Setup { depth: 2, ..Setup::default() }, 8);
    /// let read = QueuedRequest::At { lbn: Lbn(80_000), sectors: 8, write: false };
    /// for id in 1..=3 {
    ///     queued.submit(Ps::ZERO, id, &read)?;
    /// }
    /// assert!(!queued.withdraw(Ps(1), 1) && queued.withdraw(Ps(1), 2) && queued.withdraw(Ps(1), 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn withdraw(&mut self, now: Ps, id: u64) -> bool {
        if now > self.free_at {
            self.start();
        }
        match self.withdraw_outside(id).or_else(|| self.withdraw_inside(id)) {
            Some(QueueRequest::Anywhere(region)) => self.regions.leave(region),
            Some(QueueRequest::At { .. }) => {}
            None => return false,
        }
        self.through.remove(&id);
        self.let_in();
        true
    }

    fn withdraw_outside(&mut self, id: u64) -> Option<QueueRequest> {
        let index = self.outside.iter().position(|&(other, ..)| other == id)?;
        self.outside.remove(index).map(|(_, ask, _)| ask)
    }

    fn withdraw_inside(&mut self, id: u64) -> Option<QueueRequest> {
        let ask = self.queue.withdraw(id)?;
        if let Some(length) = self.length(&ask) {
            self.forget_length(length);
        }
        Some(ask)
    }

    /// Completes it.
    pub fn complete(&mut self) -> Option<FinishedRequest> {
        self.next_at()?;
        let finished = self.running.take()?;
        self.taken = None;
        self.free_at = finished.parts.end;
        if self.moment == Moment::Before {
            self.serve_next();
        }
        self.let_in();
        Some(finished)
    }

    /// Range writes that found no place, since the last time that they were asked for.
    pub fn turned_away(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.turned_away)
    }

    /// Serves the next one, if the drive has nothing to do.
    fn start(&mut self) {
        while self.running.is_none() && !(self.queue.is_empty() && self.outside.is_empty()) {
            self.let_in();
            self.serve_next();
            if self.running.is_none() {
                // Only those are left for whom there is no place.
                let away = self.regions.turn_away(&mut self.queue);
                assert!(!away.is_empty(), "a request that has a place is picked");
                self.lengths.clear();
                self.turned_away.extend(away);
            }
        }
    }

    /// The place of the range write that is being served, in units.
    pub(super) fn taken(&self) -> Option<(u64, u64)> {
        self.taken
    }

    /// From when on the drive has nothing to do, or since when.
    pub(super) fn free_at(&self) -> Ps {
        self.free_at
    }

    fn let_in(&mut self) {
        let known = |drive: &Self| drive.queue.len() + usize::from(drive.running.is_some());
        while known(self) < self.depth
            && let Some((id, ask, arrived)) = self.outside.pop_front()
        {
            if let Some(length) = self.length(&ask) {
                *self.lengths.entry(length).or_default() += 1;
            }
            self.queue.push_at(id, ask, arrived);
        }
    }

    /// Of a write.
    fn length(&self, ask: &QueueRequest) -> Option<u32> {
        match *ask {
            QueueRequest::At { sectors, write, .. } => write.then_some(sectors),
            QueueRequest::Anywhere(region) => Some(self.queue.region(region).sectors()),
        }
    }

    fn serve_next(&mut self) {
        let shortest = self.lengths.first_key_value().map(|(&length, _)| length);
        let (read, write) = self.side.leads_for(shortest.unwrap_or(self.unit));
        let arm = self.side.arm(self.free_at);
        let Some(pick) = self.queue.pick_with(arm, self.free_at, read, write) else {
            return;
        };
        self.picked(&pick);
        let parts = match self.through.remove(&pick.id) {
            true => self.side.serve_through(self.free_at, &pick),
            false => self.side.serve(self.free_at, &pick),
        };
        let Pick { id, lbn, sectors, .. } = pick;
        self.running = Some(FinishedRequest {
            id,
            lbn,
            sectors,
            parts,
        });
    }

    /// One write of this length has left the queue.
    fn forget_length(&mut self, length: u32) {
        let count = self.lengths.get_mut(&length).expect("it was let in");
        *count -= 1;
        if *count == 0 {
            self.lengths.remove(&length);
        }
    }

    /// Its place is nobody else's.
    fn picked(&mut self, pick: &Pick) {
        if pick.write {
            self.forget_length(pick.sectors);
        }
        if let Some(region) = pick.region {
            let unit = u64::from(self.unit);
            let place = (pick.lbn.0 / unit, (pick.lbn.0 + u64::from(pick.sectors)) / unit);
            self.regions.leave(region);
            self.regions.take(&mut self.queue, place.0, place.1);
            self.taken = Some(place);
        }
    }
}
