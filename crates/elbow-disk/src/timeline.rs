//! A short list of requests moment by moment: from when to when the arm moves, the head waits and sectors pass.
//!
//! ```text
//!   list ──when they arrive──> QueuedDrive ──in the order of service──> Visit: Step, Step, Step ...
//! ```
//!
//! What is served when is the word of [`QueuedDrive`], as in a replay; a visit only keeps apart what that adds up. Mechanics only: commands, bus and
//! cache overlap with the arm's movements, so that a moment of theirs is no step. A fixed overhead before each request is one.
//!
//! Always: steps follow each other without a gap from the start to the last end, and none is empty.

use std::sync::Arc;

use crate::controller::{Request, Served};
use crate::device::{FinishedRequest, QueuedDrive, QueuedRequest, Setup};
use crate::drive::{Arm, Drive, Lbn, Ps, TrackPart};
use crate::sched::Scheduler;
use crate::workload::{Moment, Overheads};

/// Who serves a list, and from where on.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::timeline::{DriveActivity, Listed, Plan};
/// use elbow_disk::{Arm, Drive, Lbn, Ps, Request};
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let plan = Plan { scheduler: "sstf".parse()?, depth: 2, overhead: Ps::ZERO, arm: Arm::default(), angle: Ps::ZERO };
/// let list = [2_000_000, 96].map(|lbn| Listed { arrival: Ps::ZERO, request: Request { lbn: Lbn(lbn), sectors: 8, write: false } });
/// let visits = plan.serve(&drive, &list);
/// assert_eq!((visits[0].number, visits[1].number), (1, 0));
/// assert_eq!(visits[0].steps[0].doing, DriveActivity::Seek);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Who picks.
    pub scheduler: Scheduler,
    /// Requests that it knows, with the one that is served: the first so many of those that have arrived. At least 1.
    pub depth: usize,
    /// Time before each request in which nothing moves but the platter.
    pub overhead: Ps,
    /// Where the arm stands at first.
    pub arm: Arm,
    /// Which angle is under the heads at first.
    pub angle: Ps,
}

/// A request of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// When it comes, from the start on.
    pub arrival: Ps,
    /// What it asks for.
    pub request: Request,
}

/// What is done for one request. Times count from the start.
#[derive(Clone, Debug)]
pub struct Visit {
    /// Which of the list, from 0.
    pub number: usize,
    /// What it asked for, and when it came.
    pub listed: Listed,
    /// When it was picked.
    pub began: Ps,
    /// When it was complete, and where its time went; changes of track in it count as transfer.
    pub parts: Served,
    /// One after the other, with a time before it in which there was nothing to do.
    pub steps: Vec<Step>,
}

/// From one moment to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done meanwhile.
    pub doing: DriveActivity,
    /// From then on.
    pub from: Ps,
    /// Until then.
    pub to: Ps,
    /// Where the arm is at first, and at the end.
    pub arm: [Arm; 2],
    /// The first sector that is passed, or that is gone to.
    pub first: Lbn,
    /// How many from there on lie on the same track and are asked for.
    pub sectors: u32,
}

impl Step {
    /// How long.
    #[must_use]
    pub fn takes(&self) -> Ps {
        self.to - self.from
    }
}

/// What a drive does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveActivity {
    /// Nothing: no request is there.
    Idle,
    /// What is before the arm moves.
    Overhead,
    /// The arm moves to the first track, or another head is connected.
    Seek,
    /// The head waits for the first sector.
    Rotation,
    /// Sectors pass the head.
    Transfer,
    /// In the middle of a request the arm moves to the next track.
    NextTrack,
    /// There the head waits for the next sector.
    NextSector,
}

impl Plan {
    /// Serves a list, whose arrivals do not fall; in the order of service.
    ///
    /// # Panics
    /// Where a request, or the start, is not on the drive, an arrival is before the one above it, or the depth is 0.
    #[must_use]
    pub fn serve(&self, drive: &Arc<Drive>, list: &[Listed]) -> Vec<Visit> {
        assert!(
            self.angle < drive.rotation(),
            "{} is no angle of {}",
            self.angle,
            drive.name()
        );
        let setup = Setup {
            scheduler: self.scheduler,
            depth: self.depth,
            pick: Moment::After,
            overheads: Overheads::Fixed(self.overhead),
        };
        let mut queued = QueuedDrive::new(drive, setup, 1).standing_at(self.arm);
        let mut recorder = Recorder {
            drive,
            list,
            start: self.angle,
            overhead: self.overhead,
            now: Ps::ZERO,
            arm: self.arm,
        };
        let mut visits = Vec::with_capacity(list.len());
        for (id, listed) in (0..).zip(list) {
            let arrival = self.angle + listed.arrival;
            while queued.done_by(arrival).is_some() {
                visits.extend(queued.complete().map(|finished| recorder.visit(&finished)));
            }
            let Request { lbn, sectors, write } = listed.request;
            let submitted = queued.submit(arrival, id, &QueuedRequest::At { lbn, sectors, write });
            submitted.expect("only a write that leaves its place open may find none");
        }
        visits.extend(std::iter::from_fn(|| queued.complete()).map(|finished| recorder.visit(&finished)));
        visits
    }
}

/// Where the drive is between two visits.
struct Recorder<'a> {
    drive: &'a Drive,
    list: &'a [Listed],
    /// The drive's clock at the start: at 0 the platter is at angle 0.
    start: Ps,
    overhead: Ps,
    now: Ps,
    arm: Arm,
}

impl Recorder<'_> {
    fn visit(&mut self, finished: &FinishedRequest) -> Visit {
        let number = finished.id as usize;
        let listed = self.list[number];
        let Served {
            end,
            seek,
            rotation,
            transfer,
            overhead,
            ..
        } = finished.parts;
        let end = end - self.start;
        let began = end - (seek + rotation + transfer + overhead);
        let mut steps = Steps {
            all: Vec::new(),
            now: self.now,
            arm: self.arm,
            first: listed.request.lbn,
            sectors: listed.request.sectors,
        };
        steps.push(DriveActivity::Idle, began - self.now, self.arm);
        steps.push(DriveActivity::Overhead, self.overhead, self.arm);
        let Request { lbn, sectors, write } = listed.request;
        let moves = self.start + steps.now;
        for (number, leg) in self.drive.legs(self.arm, moves, lbn, sectors, write).enumerate() {
            steps.leg(&leg, number == 0);
        }
        assert_eq!(steps.now, end, "its steps take as long as the request");
        (self.now, self.arm) = (end, steps.arm);
        Visit {
            number,
            listed,
            began,
            parts: Served { end, ..finished.parts },
            steps: steps.all,
        }
    }
}

/// The steps of a visit so far.
struct Steps {
    all: Vec<Step>,
    now: Ps,
    arm: Arm,
    first: Lbn,
    sectors: u32,
}

impl Steps {
    fn leg(&mut self, leg: &TrackPart, is_first: bool) {
        (self.first, self.sectors) = (leg.first, leg.sectors);
        let (moving, waiting) = match is_first {
            true => (DriveActivity::Seek, DriveActivity::Rotation),
            false => (DriveActivity::NextTrack, DriveActivity::NextSector),
        };
        self.push(moving, leg.seek, leg.arm);
        self.push(waiting, leg.rotation, leg.arm);
        self.push(DriveActivity::Transfer, leg.passing, leg.arm);
    }

    fn push(&mut self, doing: DriveActivity, takes: Ps, arm: Arm) {
        if takes > Ps::ZERO {
            self.all.push(Step {
                doing,
                from: self.now,
                to: self.now + takes,
                arm: [self.arm, arm],
                first: self.first,
                sectors: self.sectors,
            });
        }
        self.now += takes;
        self.arm = arm;
    }
}
