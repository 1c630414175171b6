//! A trace against a drive that knows several of its requests and picks among them.
//!
//! ```text
//!   trace ──as long as one of `depth` places is free──> thinking ──when it arrives──> the drive's queue ──> served
//!             ^                                                                                               │
//!             └──────────────────────────────── its place is free again ──────────────────────────────────────┘
//! ```
//!
//! A request with a time of its own (an open loop) waits outside, in the order of the trace, until the drive has a place for it; its
//! response counts from its time. One that comes so long after another's end (a closed loop) comes after the end of the one
//! whose place it takes: as if `depth` hosts shared the trace. With one place both are what [`replay`](super::replay()) does.
//!
//! Always: no more than `depth` records are in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use super::counters::ReplayCounters;
use super::report::Report;
use crate::controller::Served;
use crate::device::{FinishedRequest, QueuedDrive, QueuedRequest, Setup};
use crate::drive::{CLOCK_MAX, Drive, Ps};
use crate::sched::Scheduler;
use crate::trace::{Arrival, LineError, Record, Trace, TraceError};
use crate::workload::{Moment, Overheads};

/// How the requests of a trace wait.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::trace::{Format, Trace};
/// use elbow_disk::workload::Overheads;
/// use elbow_disk::{Drive, QueuedReplay};
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let text = "0 0 1000 8 0\n0 0 2000000 8 0\n0 0 1100 8 0\n";
/// let trace = Trace::new("t", Format::DiskSim, text.as_bytes(), drive.sectors());
/// let queued = QueuedReplay { scheduler: "sstf".parse()?, depth: 8, overheads: Overheads::Controller };
/// let mut order = Vec::new();
/// queued.run(&drive, trace, |record, _, _| order.push(record.line))?;
/// assert_eq!(order, [1, 3, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuedReplay {
    /// Who picks among those that the drive knows.
    pub scheduler: Scheduler,
    /// How many it knows, with the one that it serves; from 1 to [`QueuedReplay::DEPTH_MAX`].
    pub depth: u32,
    /// What a request costs beside the mechanics.
    pub overheads: Overheads,
}

impl QueuedReplay {
    /// More do not tell a scheduler more, and each takes memory.
    pub const DEPTH_MAX: u32 = 1 << 16;

    /// Serves a whole trace; `each` is told of every request, in the order in which they were served.
    ///
    /// # Errors
    /// [`TraceError`] where the trace has one, or its clock runs over.
    ///
    /// # Panics
    /// Where the depth is not within its bounds.
    pub fn run(
        &self,
        drive: &Arc<Drive>,
        trace: Trace<'_>,
        each: impl FnMut(&Record, Ps, &Served),
    ) -> Result<Report, TraceError> {
        assert!((1..=Self::DEPTH_MAX).contains(&self.depth), "a depth of {}", self.depth);
        let setup = Setup {
            scheduler: self.scheduler,
            depth: self.depth as usize,
            overheads: self.overheads,
            pick: Moment::After,
        };
        let mut run = Run {
            trace,
            drive: QueuedDrive::new(drive, setup, 1),
            free: vec![Ps::ZERO; self.depth as usize].into(),
            thinking: BinaryHeap::new(),
            inside: BTreeMap::new(),
            numbered: 0,
            now: Ps::ZERO,
            counters: ReplayCounters::default(),
            each,
        };
        while run.step()? {}
        Ok(run.counters.report(run.now, run.trace.lost()))
    }
}

struct Run<'d, 'r, Each> {
    trace: Trace<'r>,
    drive: QueuedDrive<'d>,
    /// Since when each free place is.
    free: VecDeque<Ps>,
    /// Arrival and number of those that have a place and have not come yet.
    thinking: BinaryHeap<Reverse<(Ps, u64)>>,
    /// All that have a place, by number, with their arrival.
    inside: BTreeMap<u64, (Record, Ps)>,
    numbered: u64,
    now: Ps,
    counters: ReplayCounters,
    each: Each,
}

impl<Each: FnMut(&Record, Ps, &Served)> Run<'_, '_, Each> {
    /// Serves one request; says whether there was one.
    fn step(&mut self) -> Result<bool, TraceError> {
        self.give_places()?;
        self.let_come();
        self.check_clock()?;
        let Some(finished) = self.drive.complete() else {
            return Ok(false);
        };
        self.end(&finished);
        Ok(true)
    }

    /// Whether the clock has ended while some still wait.
    fn check_clock(&self) -> Result<(), TraceError> {
        match self.inside.first_key_value() {
            Some((_, (record, _))) if self.now > CLOCK_MAX => {
                Err(self.trace.wrong_at(record.line, LineError::ClockRunsOver))
            }
            _ => Ok(()),
        }
    }

    /// Reads on, as long as there are places.
    fn give_places(&mut self) -> Result<(), TraceError> {
        while let Some(&since) = self.free.front() {
            let Some(record) = self.trace.next().transpose()? else {
                return Ok(());
            };
            let arrival = match record.arrival {
                Arrival::At(at) => at,
                Arrival::After(think) => since + think,
            };
            if arrival.max(self.now) > CLOCK_MAX {
                return Err(self.trace.wrong_at(record.line, LineError::ClockRunsOver));
            }
            self.free.pop_front();
            self.thinking.push(Reverse((arrival, self.numbered)));
            self.inside.insert(self.numbered, (record, arrival));
            self.numbered += 1;
        }
        Ok(())
    }

    /// Hands the drive all that have come, or, if it has nothing to do, the next one that will, with those that come at once with it.
    fn let_come(&mut self) {
        let is_idle = self.thinking.len() == self.inside.len();
        let mut until = self.now;
        if is_idle && let Some(&Reverse((arrival, _))) = self.thinking.peek() {
            until = until.max(arrival);
        }
        while let Some(&Reverse((arrival, number))) = self.thinking.peek()
            && arrival <= until
        {
            self.thinking.pop();
            let request = self.inside[&number].0.request;
            let request = QueuedRequest::At {
                lbn: request.lbn,
                sectors: request.sectors,
                write: request.write,
            };
            let submitted = self.drive.submit(arrival, number, &request);
            submitted.expect("only a write that leaves its place open may find none");
        }
    }

    fn end(&mut self, finished: &FinishedRequest) {
        let (record, arrival) = self.inside.remove(&finished.id).expect("it had a place");
        let served = finished.parts;
        (self.each)(&record, arrival, &served);
        self.counters.add(&record, served.end - arrival, &served);
        self.now = served.end;
        self.free.push_back(self.now);
    }
}
