//! The drive in its own time: a queue, and flushes between.
//!
//! ```text
//!   submit ──> held while a flush waits or runs ──> QueuedDrive ──> complete
//! ```
//!
//! A flush is no queued command (as FLUSH CACHE of ATA is none): it begins when all that was submitted before it is complete, and what
//! comes after it waits until it is.

use std::collections::VecDeque;
use std::sync::Arc;

use elbow_disk::device::{QueuedDrive, QueuedRequest, Setup};
use elbow_disk::sched::Scheduler;
use elbow_disk::workload::{Moment, Overheads};
use elbow_disk::{Drive, Lbn, Ps};

/// How a drive is driven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Driving {
    /// Who picks among the requests that the drive knows.
    pub scheduler: Scheduler,
    /// How many it knows, with the one that it serves; at least 1.
    pub depth: usize,
    /// The write cache is not used.
    pub write_through: bool,
}

/// What the drive's mechanics are asked for; all of it lies on the drive, and is at least one sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// Reads.
    Read {
        /// First sector.
        at: u64,
        /// How many.
        sectors: u32,
    },
    /// Writes.
    Write {
        /// First sector.
        at: u64,
        /// How many.
        sectors: u32,
        /// Complete only when the medium has it.
        through: bool,
    },
    /// Has the medium take all that was written before.
    Flush,
}

/// A drive in its own time.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::{Drive, Ps};
/// use elbow_drive::{DriveModel, Driving, Motion};
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let driving = Driving { scheduler: "sptf".parse()?, depth: 4, write_through: true };
/// let mut model = DriveModel::new(&drive, driving);
/// model.submit(Ps::ZERO, 1, Motion::Write { at: 1000, sectors: 8, through: false });
/// model.submit(Ps::ZERO, 2, Motion::Flush);
/// let (first, end) = model.serving().expect("it has something to do");
/// assert_eq!((first, model.complete()), (1, Some((1, end))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DriveModel<'d> {
    queued: QueuedDrive<'d>,
    outstanding: usize,
    flushing: Option<(u64, Ps)>,
    held: VecDeque<(u64, Motion)>,
}

impl<'d> DriveModel<'d> {
    /// The drive, just powered on.
    #[must_use]
    pub fn new(drive: &'d Arc<Drive>, driving: Driving) -> Self {
        let setup = Setup {
            scheduler: driving.scheduler,
            depth: driving.depth,
            // What came while it was busy is known to it when it picks; a host's next request comes later by what it costs to ask.
            pick: Moment::After,
            overheads: Overheads::Controller,
        };
        let mut queued = QueuedDrive::new(drive, setup, 1);
        queued.set_write_through(driving.write_through);
        Self {
            queued,
            outstanding: 0,
            flushing: None,
            held: VecDeque::new(),
        }
    }

    /// The same where the media cache of a shingled drive is as a power cut at `cut` left it in another model of the drive.
    #[must_use]
    pub fn with_media_cache_of(self, before: &DriveModel<'d>, cut: Ps) -> Self {
        Self {
            queued: self.queued.with_media_cache_of(&before.queued, cut),
            ..self
        }
    }

    /// Takes a request; times never go back, and what was complete by `now` has been [completed](Self::complete).
    pub fn submit(&mut self, now: Ps, id: u64, motion: Motion) {
        self.held.push_back((id, motion));
        self.let_in(now);
    }

    /// What is being served, and when it will be complete; none when there is nothing to do.
    pub fn serving(&mut self) -> Option<(u64, Ps)> {
        self.flushing.or_else(|| self.queued.serving())
    }

    /// Completes what is being served: its id and its end.
    pub fn complete(&mut self) -> Option<(u64, Ps)> {
        let done = match self.flushing.take() {
            Some(flushed) => flushed,
            None => {
                let finished = self.queued.complete()?;
                self.outstanding -= 1;
                (finished.id, finished.parts.end)
            }
        };
        self.let_in(done.1);
        Some(done)
    }

    fn let_in(&mut self, now: Ps) {
        while self.flushing.is_none()
            && let Some(&(id, motion)) = self.held.front()
        {
            match motion {
                Motion::Flush if self.outstanding > 0 => return,
                Motion::Flush => self.flushing = Some((id, self.queued.flush(now))),
                Motion::Read { at, sectors } => self.give(now, id, at, sectors, false),
                Motion::Write {
                    at,
                    sectors,
                    through: false,
                } => self.give(now, id, at, sectors, true),
                Motion::Write {
                    at,
                    sectors,
                    through: true,
                } => {
                    self.outstanding += 1;
                    self.queued.submit_through(now, id, Lbn(at), sectors);
                }
            }
            self.held.pop_front();
        }
    }

    fn give(&mut self, now: Ps, id: u64, at: u64, sectors: u32, write: bool) {
        self.outstanding += 1;
        let request = QueuedRequest::At {
            lbn: Lbn(at),
            sectors,
            write,
        };
        let taken = self.queued.submit(now, id, &request);
        taken.expect("only a write that leaves its place open may find none");
    }
}
