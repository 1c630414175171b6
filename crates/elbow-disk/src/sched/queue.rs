//! The queue: who waits, and who is next.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;

use super::arms::{ArmState, Arms, CommandLead};
use super::best::{Best, Candidate};
use super::fixed::{Column, Fixed};
use super::policy::{Ageing, Walk};
use super::sweep::Sweep;
use super::{Scheduler, Targets, expand, walk};
use crate::drive::{Arm, Drive, Lbn, PositioningTime, Ps};

/// A region of this queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(usize);

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueRequest {
    /// These sectors.
    At {
        /// First of the sectors.
        lbn: Lbn,
        /// Sectors in a row.
        sectors: u32,
        /// Whether they are written.
        write: bool,
    },
    /// To write on any place of a region.
    Anywhere(RegionId),
}

/// The request to serve next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// As it was pushed.
    pub id: u64,
    /// First sector of the place that was picked.
    pub lbn: Lbn,
    /// Sectors from there on.
    pub sectors: u32,
    /// Whether it writes.
    pub write: bool,
    /// The region it waited for.
    pub region: Option<RegionId>,
    /// The estimate by which it was chosen.
    pub reach: PositioningTime,
}

/// Requests that wait, and a scheduler that picks among them.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::{Arm, Drive, Lbn, Ps};
/// use elbow_disk::sched::{QueueRequest, Queue, Scheduler, Targets};
/// use elbow_ranges::RangeSet;
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let mut queue = Queue::new(Arc::clone(&drive), "hrs".parse()?);
/// let group = RangeSet::from_unsorted([(0, 32_768)]).ok_or("too large")?;
/// let group = queue.add_region(Targets::new(&drive, &group, 8, 8)?);
/// queue.push(1, QueueRequest::At { lbn: Lbn(2_000_000), sectors: 8, write: false });
/// queue.push(2, QueueRequest::Anywhere(group));
/// let arm = drive.locate(Lbn(96)).arm;
/// let pick = queue.pick(arm, Ps::ZERO).ok_or("nothing waits")?;
/// assert_eq!((pick.id, pick.region), (2, Some(group)));
/// assert!(pick.reach.total() < Ps::from_ms(1.0), "some place of the group passes soon");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Queue {
    drive: Arc<Drive>,
    scheduler: Scheduler,
    arms: Arms,
    fixed: Column,
    regions: Slab<Region>,
    /// Of SCAN and C-LOOK.
    sweep: Sweep,
    arrivals: u64,
    decisions: u64,
    estimations: u64,
}

#[derive(Debug)]
struct Region {
    targets: Targets,
    waiting: VecDeque<Waiting>,
}

/// Who waits for a region.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Rises with each arrival.
    order: u64,
    id: u64,
    arrived: Ps,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(drive: Arc<Drive>, scheduler: Scheduler) -> Queue {
        let arms = Arms::new(&drive);
        Queue {
            drive,
            scheduler,
            arms,
            fixed: Column::default(),
            regions: Slab::new(),
            sweep: Sweep::default(),
            arrivals: 0,
            decisions: 0,
            estimations: 0,
        }
    }

    /// Makes a set of places one that requests can wait for. Requests with the same ranges should wait for one region: they
    /// then share one walk.
    pub fn add_region(&mut self, targets: Targets) -> RegionId {
        RegionId(self.regions.insert(Region {
            targets,
            waiting: VecDeque::new(),
        }))
    }

    /// Ends a region.
    ///
    /// # Panics
    /// Where there is no such region, or somebody waits for it.
    pub fn remove_region(&mut self, region: RegionId) -> Targets {
        let region = self.regions.remove(region.0);
        assert!(region.waiting.is_empty(), "a region for which requests wait must stay");
        region.targets
    }

    /// The places of a region.
    ///
    /// # Panics
    /// Where there is no such region.
    #[must_use]
    pub fn region(&self, region: RegionId) -> &Targets {
        &self.regions[region.0].targets
    }

    /// The places of a region, to take some or give some back; those who wait see it at the next pick.
    ///
    /// # Panics
    /// Where there is no such region.
    pub fn region_mut(&mut self, region: RegionId) -> &mut Targets {
        &mut self.regions[region.0].targets
    }

    /// Takes out all who wait for a region, in the order in which they came: it is full, and no place will be given back.
    ///
    /// ```
    /// # use elbow_disk::{Arm, Drive, Lbn, Ps, sched::{QueueRequest, Queue, Targets}};
    /// # use elbow_ranges::RangeSet;
    /// let drive = std::sync::Arc::new(Drive::named("hp-c2247a")?);
    /// let mut queue = Queue::new(drive.clone(), "hrs".parse()?);
    /// let one_place = RangeSet::from_unsorted([(0, 8)]).ok_or("too large")?;
    /// let region = queue.add_region(Targets::new(&drive, &one_place, 8, 8)?);
    /// queue.push(1, QueueRequest::Anywhere(region));
    /// queue.region_mut(region).take(0, 8);
    /// assert!(queue.pick(Arm::default(), Ps::ZERO).is_none());
    /// assert_eq!(queue.turn_away(region), [1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Where there is no such region.
    pub fn turn_away(&mut self, region: RegionId) -> Vec<u64> {
        self.regions[region.0]
            .waiting
            .drain(..)
            .map(|waiting| waiting.id)
            .collect()
    }

    /// Adds a request that came at time 0. Ids are the caller's.
    ///
    /// # Panics
    /// Where it is not on the drive, or there is no such region.
    pub fn push(&mut self, id: u64, ask: QueueRequest) {
        self.push_at(id, ask, Ps::ZERO);
    }

    /// Adds a request. When it came counts for a scheduler with ageing only; among equals the one that was pushed first wins.
    ///
    /// ```
    /// # use elbow_disk::{Arm, Drive, Lbn, Ps, sched::{QueueRequest, Queue}};
    /// let drive = std::sync::Arc::new(Drive::named("hp-c2247a")?);
    /// let mut queue = Queue::new(drive, "asptf:1000".parse()?);
    /// queue.push_at(1, QueueRequest::At { lbn: Lbn(2_000_000), sectors: 8, write: false }, Ps::ZERO);
    /// queue.push_at(2, QueueRequest::At { lbn: Lbn(0), sectors: 8, write: false }, Ps::from_ms(100.0));
    /// let pick = queue.pick(Arm::default(), Ps::from_ms(100.0));
    /// assert_eq!(pick.map(|pick| pick.id), Some(1), "it has waited for longer than it takes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// Where it is not on the drive, or there is no such region.
    pub fn push_at(&mut self, id: u64, ask: QueueRequest, arrived: Ps) {
        let order = self.arrivals;
        self.arrivals += 1;
        match ask {
            QueueRequest::At { lbn, sectors, write } => self.fixed.push(
                &self.drive,
                order,
                Fixed {
                    id,
                    lbn,
                    sectors,
                    write,
                    arrived,
                },
            ),
            QueueRequest::Anywhere(region) => self.regions[region.0].waiting.push_back(Waiting { order, id, arrived }),
        }
    }

    /// Takes out a request that has not been picked, by its id, and says what it wanted; `None` where nobody waits with that
    /// id. The others are served as if it had never come. It looks at all who wait.
    ///
    /// ```
    /// # use elbow_disk::{Arm, Drive, Lbn, Ps, sched::{QueueRequest, Queue, Scheduler}};
    /// let drive = std::sync::Arc::new(Drive::named("hp-c2247a")?);
    /// let mut queue = Queue::new(drive, Scheduler::Fcfs);
    /// let ask = QueueRequest::At { lbn: Lbn(5000), sectors: 8, write: true };
    /// queue.push(1, ask);
    /// assert_eq!((queue.withdraw(1), queue.withdraw(1)), (Some(ask), None));
    /// assert!(queue.pick(Arm::default(), Ps::ZERO).is_none());
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    pub fn withdraw(&mut self, id: u64) -> Option<QueueRequest> {
        if let Some(Fixed {
            lbn, sectors, write, ..
        }) = self.fixed.withdraw(id)
        {
            return Some(QueueRequest::At { lbn, sectors, write });
        }
        self.regions.iter_mut().find_map(|(key, region)| {
            let at = region.waiting.iter().position(|waiting| waiting.id == id)?;
            region.waiting.remove(at);
            Some(QueueRequest::Anywhere(RegionId(key)))
        })
    }

    /// Requests that wait, for places and in regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fixed.len()
            + self
                .regions
                .iter()
                .map(|(_, region)| region.waiting.len())
                .sum::<usize>()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Service times estimated so far: of places by positioning schedulers, of tracks by the hierarchical one.
    #[must_use]
    pub fn estimations(&self) -> u64 {
        self.estimations
    }

    /// Requests picked so far.
    #[must_use]
    pub fn decisions(&self) -> u64 {
        self.decisions
    }

    /// Takes out the request to serve next, when the arm stands so at `now`. `None` where nobody waits, or only for
    /// regions that are full.
    pub fn pick(&mut self, arm: Arm, now: Ps) -> Option<Pick> {
        self.pick_with(arm, now, CommandLead::default(), CommandLead::default())
    }

    /// The same where the drive does something before the arm moves or the medium is written, for a read and for a write.
    ///
    /// ```
    /// # use elbow_disk::{Arm, Drive, Lbn, Ps, sched::{QueueRequest, CommandLead, Queue, Scheduler}};
    /// let drive = std::sync::Arc::new(Drive::named("hp-c2247a")?);
    /// let mut queue = Queue::new(drive, Scheduler::Sptf);
    /// queue.push(1, QueueRequest::At { lbn: Lbn(5000), sectors: 8, write: true });
    /// let write = CommandLead { arm: Ps::from_ms(0.8), data: Ps::from_ms(2.3) };
    /// let pick = queue.pick_with(Arm::default(), Ps::ZERO, CommandLead::default(), write);
    /// assert!(pick.is_some_and(|pick| pick.reach.total() >= Ps::from_ms(1.5)));
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    pub fn pick_with(&mut self, arm: Arm, now: Ps, read: CommandLead, write: CommandLead) -> Option<Pick> {
        let from = self.arms.stand(&self.drive, arm, now, [read, write]);
        let (best, estimations) = match self.scheduler {
            Scheduler::Fcfs => (self.oldest(), 0),
            Scheduler::Sstf => (self.least_seek(&from), 0),
            Scheduler::Scan | Scheduler::CLook => (self.next_on_the_way(), 0),
            Scheduler::Aged(ageing) => self.least_aged(&from, ageing),
            Scheduler::Sptf | Scheduler::Expand(_) | Scheduler::Hierarchical(_) => self.least_positioning(&from),
        };
        // Counted only when somebody is served.
        let best = best?;
        self.estimations += estimations;
        self.decisions += 1;
        let pick = match best.whose {
            Candidate::Fixed(slot) => {
                let Fixed {
                    id,
                    lbn,
                    sectors,
                    write,
                    ..
                } = self.fixed.remove(slot);
                Pick {
                    id,
                    lbn,
                    sectors,
                    write,
                    region: None,
                    reach: from.reach(lbn, write),
                }
            }
            Candidate::Region(key) => {
                let reach = from.reach(best.lbn, true);
                let region = &mut self.regions[key];
                let Waiting { id, .. } = region
                    .waiting
                    .pop_front()
                    .expect("only regions for which somebody waits are looked at");
                Pick {
                    id,
                    lbn: best.lbn,
                    sectors: region.targets.sectors,
                    write: true,
                    region: Some(RegionId(key)),
                    reach,
                }
            }
        };
        // For whoever picks: to ask first costs more than to note it (16 ns of 95, of one at a time).
        self.sweep.go(pick.lbn, pick.sectors, self.scheduler == Scheduler::Scan);
        Some(pick)
    }

    fn oldest(&self) -> Option<Best> {
        let fixed = self.fixed.oldest();
        let mut best = fixed.map(|(slot, order)| self.fixed_best((slot, 0, order)));
        // To a scheduler that knows no positions a region is its lowest place.
        for lowest in self.lowest() {
            lowest.improve(&mut best);
        }
        best
    }

    fn least_seek(&self, from: &ArmState<'_>) -> Option<Best> {
        let fixed = self.fixed.least_seek(from);
        let mut best = fixed.map(|found| self.fixed_best(found));
        for lowest in self.lowest() {
            let cost = from.seek(self.drive.locate(lowest.lbn).arm, true);
            Best { cost, ..lowest }.improve(&mut best);
        }
        best
    }

    /// Whether it sweeps back.
    fn turns(&self) -> bool {
        self.scheduler == Scheduler::Scan
    }

    fn next_on_the_way(&self) -> Option<Best> {
        let distance = |lbn| self.sweep.distance(lbn, self.turns());
        let fixed = self.fixed.least(|request| distance(request.lbn));
        let mut best = fixed.map(|found| self.fixed_best(found));
        for lowest in self.lowest() {
            let cost = distance(lowest.lbn);
            Best { cost, ..lowest }.improve(&mut best);
        }
        best
    }

    /// The best by positioning time and age, and the number of estimates.
    fn least_aged(&self, from: &ArmState<'_>, ageing: Ageing) -> (Option<Best>, u64) {
        let fixed = self.fixed.least_aged(&self.arms, from, ageing);
        let mut best = fixed.map(|found| self.fixed_best(found));
        let mut estimations = self.fixed.len() as u64;
        for (key, region) in self.regions.iter() {
            let Some(lowest) = self.lowest_of(key, region) else {
                continue;
            };
            let arrived = region.waiting.front().map_or(Ps::ZERO, |oldest| oldest.arrived);
            let cost = from.cost(lowest.lbn, true) + ageing.cost(arrived);
            Best { cost, ..lowest }.improve(&mut best);
            estimations += 1;
        }
        (best, estimations)
    }

    fn fixed_best(&self, (slot, cost, order): (usize, u64, u64)) -> Best {
        Best {
            cost,
            order,
            lbn: self.fixed.lbn(slot),
            whose: Candidate::Fixed(slot),
        }
    }

    /// The best, and the number of estimates.
    fn least_positioning(&self, from: &ArmState<'_>) -> (Option<Best>, u64) {
        let mut best = None;
        // Requests with one place first: the best of them ends the walks over regions earlier.
        self.fixed.least_positioning(&self.arms, from, &mut best);
        let mut estimations = self.fixed.len() as u64;
        for (key, region) in self.regions.iter().filter(|(_, region)| !region.waiting.is_empty()) {
            estimations += self.place(key, region, from, &mut best);
        }
        (best, estimations)
    }

    /// Improves `best` to the best place of a region; returns the number of estimates.
    fn place(&self, key: usize, region: &Region, from: &ArmState<'_>, best: &mut Option<Best>) -> u64 {
        let Region { targets, waiting } = region;
        let whose = |order| Best {
            cost: 0,
            order,
            lbn: Lbn(0),
            whose: Candidate::Region(key),
        };
        let each = || waiting.iter().map(|waiting| whose(waiting.order));
        match self.scheduler {
            // All who wait for a region want the same places, and among equals the oldest wins: one walk, for it, is
            // enough.
            Scheduler::Hierarchical(Walk::Pruned) => each()
                .next()
                .map_or(0, |whose| walk::pruned(targets, &self.arms, from, best, whose)),
            Scheduler::Hierarchical(Walk::Whole) => each()
                .map(|whose| walk::whole(targets, &self.arms, from, best, whose))
                .sum(),
            Scheduler::Expand(Some(places)) => each()
                .map(|whose| expand::some(targets, places.get(), from, best, whose))
                .sum(),
            Scheduler::Expand(None) => each().map(|whose| expand::all(targets, from, best, whose)).sum(),
            Scheduler::Fcfs
            | Scheduler::Sstf
            | Scheduler::Sptf
            | Scheduler::Scan
            | Scheduler::CLook
            | Scheduler::Aged(_) => {
                let lowest = self.lowest_of(key, region).map(|lowest| {
                    let cost = from.cost(lowest.lbn, true);
                    Best { cost, ..lowest }.improve(best);
                });
                lowest.map_or(0, |()| 1)
            }
        }
    }

    /// For schedulers that ignore ranges: the lowest place of each region for which somebody waits.
    fn lowest(&self) -> impl Iterator<Item = Best> {
        self.regions
            .iter()
            .flat_map(|(key, region)| self.lowest_of(key, region))
    }

    fn lowest_of(&self, key: usize, region: &Region) -> Option<Best> {
        // Those behind it want the same places, and came later.
        let &Waiting { order, .. } = region.waiting.front()?;
        Some(Best {
            cost: 0,
            order,
            lbn: region.targets.first()?,
            whose: Candidate::Region(key),
        })
    }
}
