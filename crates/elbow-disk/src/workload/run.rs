//! The loops: one event after the other, in the drive's own time.

use std::ops::ControlFlow;
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use slab::Slab;

use super::drive_side::DriveSide;
use super::served::Served;
use super::source::RequestSource;
use super::summary::BatchSums;
use super::{Arrivals, Moment, Summary, Workload, WorkloadError};
use crate::controller::Served as Parts;
use crate::drive::{CLOCK_DAYS_MAX, CLOCK_MAX, Drive, Ps};
use crate::sched::{Pick, Queue, Scheduler};

/// In an open loop, more waiting requests than this mean that the drive cannot keep up.
const OPEN_QUEUE_MAX: usize = 1 << 14;

/// Serves the requests of a load; `seen` is told of each one that counts.
///
/// # Errors
/// Where the load makes no sense on this drive, or, in an open loop, is more than it can do.
pub fn simulate(
    drive: &Arc<Drive>,
    scheduler: Scheduler,
    load: &Workload,
    mut seen: impl FnMut(&Served),
) -> Result<Summary, WorkloadError> {
    load.simulate_while(drive, scheduler, |served| {
        seen(served);
        ControlFlow::Continue(())
    })
}

impl Workload {
    /// Whether there is memory for the targets of all who wait.
    fn check_depth(&self, waiting_max: u64) -> Result<(), WorkloadError> {
        match self.arrivals {
            Arrivals::Closed { depth, .. } if u64::from(depth) > waiting_max => Err(WorkloadError::TooDeep {
                depth,
                targets: self.targets,
                waiting_max,
            }),
            _ => Ok(()),
        }
    }
}

/// Whether a request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is one of those before.
    WarmUp,
    /// It is one of those that are measured.
    Measured,
}

impl Workload {
    /// As [`simulate`], until `seen` breaks off: the summary is of what was measured until then.
    ///
    /// # Errors
    /// As [`simulate`].
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::sync::Arc;
    /// use elbow_disk::Drive;
    /// use elbow_disk::workload::Workload;
    /// let drive = Arc::new(Drive::named("hp-c2247a")?);
    /// let summary = Workload::default().simulate_while(&drive, "sptf".parse()?, |_| ControlFlow::Break(()))?;
    /// assert_eq!(summary.requests, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn simulate_while(
        &self,
        drive: &Arc<Drive>,
        scheduler: Scheduler,
        mut seen: impl FnMut(&Served) -> ControlFlow<()>,
    ) -> Result<Summary, WorkloadError> {
        self.simulate_all_while(drive, scheduler, |phase, served| match phase {
            Phase::WarmUp => ControlFlow::Continue(()),
            Phase::Measured => seen(served),
        })
    }

    /// As [`simulate_while`](Self::simulate_while), where `seen` is told of the requests that warm up, too.
    ///
    /// # Errors
    /// As [`simulate`].
    ///
    /// ```
    /// use std::ops::ControlFlow;
    /// use std::sync::Arc;
    /// use elbow_disk::Drive;
    /// use elbow_disk::workload::{Phase, Workload};
    /// let drive = Arc::new(Drive::named("hp-c2247a")?);
    /// let summary = Workload::default().simulate_all_while(&drive, "sptf".parse()?, |phase, _| {
    ///     assert_eq!(phase, Phase::WarmUp);
    ///     ControlFlow::Break(())
    /// })?;
    /// assert_eq!(summary.requests, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn simulate_all_while(
        &self,
        drive: &Arc<Drive>,
        scheduler: Scheduler,
        seen: impl FnMut(Phase, &Served) -> ControlFlow<()>,
    ) -> Result<Summary, WorkloadError> {
        self.check(drive)?;
        let mut queue = Queue::new(Arc::clone(drive), scheduler);
        let source = RequestSource::new(drive, self, scheduler, &mut queue)?;
        let waiting_max = source.waiting_max();
        self.check_depth(waiting_max)?;
        let mut simulation = Simulation {
            drive: DriveSide::new(drive, self.overheads, self.request_sectors),
            load: self,
            queue,
            source,
            inside: Slab::new(),
            numbered: 0,
            now: Ps::ZERO,
            left_to_warm_up: self.warm_up,
            measured_from: (Ps::ZERO, 0, 0),
            batch_sums: BatchSums::new(self.requests),
            waiting_max: OPEN_QUEUE_MAX.min(waiting_max as usize),
            seen,
        };
        match self.arrivals {
            Arrivals::Closed { depth, pick } => simulation.closed(depth, pick)?,
            Arrivals::Open { per_second } => simulation.open(per_second)?,
        }
        Ok(simulation.summary())
    }
}

struct Simulation<'a, Seen> {
    drive: DriveSide<'a>,
    load: &'a Workload,
    queue: Queue,
    source: RequestSource<'a>,
    /// Number and arrival of each request in the system, by id.
    inside: Slab<(u64, Ps)>,
    numbered: u64,
    now: Ps,
    left_to_warm_up: u64,
    /// Time, decisions and estimations when measuring began.
    measured_from: (Ps, u64, u64),
    batch_sums: BatchSums,
    /// In an open loop.
    waiting_max: usize,
    seen: Seen,
}

impl<Seen: FnMut(Phase, &Served) -> ControlFlow<()>> Simulation<'_, Seen> {
    fn closed(&mut self, depth: u32, moment: Moment) -> Result<(), WorkloadError> {
        for _ in 0..depth {
            self.arrive(self.now)?;
        }
        let mut next = self.pick();
        for _ in 0..self.load.warm_up + self.load.requests {
            let Some(pick) = next.take() else { break };
            if self.serve(&pick)?.is_break() {
                break;
            }
            if moment == Moment::Before {
                next = self.pick();
            }
            self.arrive(self.now)?;
            if next.is_none() {
                next = self.pick();
            }
        }
        Ok(())
    }

    fn open(&mut self, per_second: f64) -> Result<(), WorkloadError> {
        // A stream of its own, so that the requests are those of the closed loop.
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!self.load.seed);
        let mut gap = || Ps::from_ms(-(1.0 - random.random::<f64>()).ln() * 1000.0 / per_second);
        let mut next = gap();
        for served in 0..self.load.warm_up + self.load.requests {
            if self.queue.is_empty() {
                self.now = self.now.max(next);
            }
            while next <= self.now {
                self.arrive(next)?;
                next = next.saturating_add(gap());
                // Here, because at a rate beyond all measure there is no time between two of them.
                if self.inside.len() > self.waiting_max {
                    return Err(self.overrun(per_second, served));
                }
            }
            let Some(pick) = self.pick() else { break };
            if self.serve(&pick)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn overrun(&self, per_second: f64, served: u64) -> WorkloadError {
        let seconds = self.now.max(Ps(1)).ms() / 1000.0;
        WorkloadError::Overrun {
            waiting: self.inside.len(),
            per_second,
            served_per_second: served as f64 / seconds,
        }
    }

    fn arrive(&mut self, at: Ps) -> Result<(), WorkloadError> {
        let id = self.inside.insert((self.numbered, at));
        self.numbered += 1;
        self.source.push(id as u64, at, &mut self.queue)
    }

    /// The scheduler knows what the drive does before it moves the arm.
    fn pick(&mut self) -> Option<Pick> {
        let (read, write) = self.drive.leads();
        let pick = self.queue.pick_with(self.drive.arm(self.now), self.now, read, write)?;
        self.source.picked(&pick, &mut self.queue);
        Some(pick)
    }

    fn serve(&mut self, pick: &Pick) -> Result<ControlFlow<()>, WorkloadError> {
        if self.now > CLOCK_MAX {
            return Err(WorkloadError::ClockRunsOver {
                number: self.queue.decisions() - 1,
                days_max: CLOCK_DAYS_MAX,
            });
        }
        let &Pick {
            id,
            lbn,
            sectors,
            write,
            ..
        } = pick;
        let started = self.now;
        let Parts {
            end,
            seek,
            rotation,
            transfer,
            overhead,
            ..
        } = self.drive.serve(started, pick);
        let (number, arrived) = self.inside.remove(id as usize);
        let waiting = self.inside.len() as u32;
        self.now = end;
        Ok(self.measure(&Served {
            number,
            write,
            lbn,
            sectors,
            arrived,
            started,
            ended: end,
            seek,
            rotation,
            transfer,
            overhead,
            waiting,
        }))
    }

    fn measure(&mut self, served: &Served) -> ControlFlow<()> {
        if self.left_to_warm_up > 0 {
            self.left_to_warm_up -= 1;
            self.measured_from = (served.ended, self.queue.decisions(), self.queue.estimations());
            return (self.seen)(Phase::WarmUp, served);
        }
        self.batch_sums.add(served);
        (self.seen)(Phase::Measured, served)
    }

    fn summary(&self) -> Summary {
        let (from, decisions, estimations) = self.measured_from;
        // A decision may be ahead of the last request served: estimations are counted by decisions, not by requests.
        let decisions = (self.queue.decisions() - decisions).max(1);
        let estimations = (self.queue.estimations() - estimations) as f64 / decisions as f64;
        self.batch_sums.summary(estimations, (self.now - from).ms() / 1000.0)
    }
}
