//! The drive as a range device, with the bytes that are written to it.
//!
//! ```text
//!   submit ──> host queue ──admitted in order──> drive ──> completion
//!              └ behind a barrier, or a fixed place that overlaps one under way, everything waits
//! ```
//!
//! Its clock is the drive's own: it goes on when somebody waits for a completion, or by [`ModelledDevice::pass`]. What
//! happens meanwhile is worked out event by event when it has gone on: completions, deadlines, and what may begin after
//! each.
//!
//! A request has begun when the drive serves it. Before that it can be cancelled, and its deadline counts, also where it is
//! in the drive's queue already. Nothing begins after 53 days ([`RangeError::ClockEnded`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::range_device::{
    Clock, Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket, free_targets,
};
use elbow_ranges::RangeSet;

use super::Setup;
use super::queued_drive::{QueuedDrive, QueuedRequest};
use super::regions::PlaceNeed;
use crate::drive::{CLOCK_MAX, Drive, Lbn, Ps, SECTOR_BYTES};

type Sector = [u8; SECTOR_BYTES as usize];

const PS_PER_NS: u64 = 1000;

/// A modelled drive that keeps what is written to it; sectors never written are zeros.
///
/// As a [`RangeDevice`] it says times in nanoseconds, rounded up.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::{Drive, Ps, device::{ModelledDevice, Setup}};
/// use elbow_file::range_device::{Blocking, RangeDevice, Request};
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let mut device = Blocking::new(ModelledDevice::new(&drive, Setup::default()));
/// let track = [0..96].into_iter().collect();
/// let at = device.write_range(&track, 8, &[7; 4096])?;
/// assert_eq!(device.read(at, 8)?, [7; 4096]);
///
/// let ticket = device.submit(Request::Read { at: 1_000_000, sectors: 8 })?;
/// device.device().pass(Ps::from_ms(100.0));
/// let done = device.device().poll().expect("it is done by now");
/// assert_eq!(done.ticket, ticket);
/// assert!(done.at < device.device().clock().time());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ModelledDevice<'d> {
    drive: QueuedDrive<'d>,
    shape: Shape,
    now: Ps,
    tickets: u64,
    given: GivenPlaces,
    /// Not yet admitted.
    waiting: VecDeque<(Ticket, Work)>,
    admitted: HashMap<u64, Work>,
    /// Of those that have not begun, and of some that have.
    deadlines: BTreeSet<(Ps, Ticket)>,
    /// Complete, not handed out.
    ended: VecDeque<Completion>,
    bytes: BTreeMap<u64, Sector>,
}

#[derive(Debug)]
enum Work {
    Read(Range<u64>),
    Write(Range<u64>, Vec<u8>),
    RangeWrite(RangeWrite),
    /// A barrier or flush, with the places that are forgotten then.
    Separator(RangeSet),
}

#[derive(Debug)]
struct RangeWrite {
    targets: RangeSet,
    alignment: u64,
    data: Vec<u8>,
}

/// Something that happens in the drive's time.
enum Event {
    Complete(Ps),
    Deadline(Ps, Ticket),
}

impl Work {
    /// Has a request to wait until another is complete?
    fn follows(&self, other: &Work) -> bool {
        let (Some(place), Some(others)) = (self.place(), other.place()) else {
            return false;
        };
        let writes = matches!(self, Work::Write(..)) || matches!(other, Work::Write(..));
        writes && place.start < others.end && others.start < place.end
    }

    fn place(&self) -> Option<&Range<u64>> {
        match self {
            Work::Read(place) | Work::Write(place, _) => Some(place),
            Work::RangeWrite(_) | Work::Separator(_) => None,
        }
    }
}

impl<'d> ModelledDevice<'d> {
    /// The drive, just started.
    #[must_use]
    pub fn new(drive: &'d Arc<Drive>, setup: Setup) -> ModelledDevice<'d> {
        ModelledDevice {
            drive: QueuedDrive::new(drive, setup, 1),
            shape: Shape {
                sector_bytes: SECTOR_BYTES as u32,
                sectors: drive.sectors(),
            },
            now: Ps::ZERO,
            tickets: 0,
            given: GivenPlaces::default(),
            waiting: VecDeque::new(),
            admitted: HashMap::new(),
            deadlines: BTreeSet::new(),
            ended: VecDeque::new(),
            bytes: BTreeMap::new(),
        }
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Lets time go by in which the host does something else. The drive goes on with all that it was asked; what it
    /// completes is handed out when it is asked for.
    pub fn pass(&mut self, time: Ps) {
        self.now = self.now.saturating_add(time);
        self.catch_up();
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        self.shape.check(&request)?;
        if self.now > CLOCK_MAX {
            return Err(clock_ended());
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let work = self.work(&request);
        self.deadlines
            .extend(begin_by.map(|begin_by| (from_duration(begin_by), ticket)));
        self.waiting.push_back((ticket, work));
        self.admit(self.now);
        Ok(ticket)
    }

    fn work(&mut self, request: &Request<'_>) -> Work {
        match *request {
            Request::Read { at, sectors } => Work::Read(at..at + sectors),
            Request::Write { at, data } => Work::Write(at..at + data.len() as u64 / SECTOR_BYTES, data.to_vec()),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => Work::RangeWrite(RangeWrite {
                targets: targets.clone(),
                alignment,
                data: data.to_vec(),
            }),
            Request::Barrier | Request::Flush => Work::Separator(self.given.barrier()),
        }
    }

    /// Gives the drive what may be done from `at` on, in order.
    fn admit(&mut self, at: Ps) {
        while let Some((ticket, work)) = self.waiting.pop_front() {
            let blocked = match &work {
                Work::Separator(_) => !self.admitted.is_empty(),
                work => self.admitted.values().any(|other| work.follows(other)),
            };
            if blocked {
                self.waiting.push_front((ticket, work));
                return;
            }
            self.give(at, ticket, work);
        }
    }

    fn give(&mut self, at: Ps, ticket: Ticket, work: Work) {
        let fixed = |place: &Range<u64>, write| QueuedRequest::At {
            lbn: Lbn(place.start),
            sectors: (place.end - place.start) as u32,
            write,
        };
        let given = match &work {
            Work::Separator(known) => {
                self.given.forget(known);
                return self.end(at, ticket, Ok(Done::Passed));
            }
            Work::Read(place) => self.drive.submit(at, ticket.0, &fixed(place, false)),
            Work::Write(place, _) => self.drive.submit(at, ticket.0, &fixed(place, true)),
            Work::RangeWrite(within) => {
                let free = match self.free(within) {
                    Ok(free) => &Arc::new(free),
                    Err(error) => return self.end(at, ticket, Err(error)),
                };
                let need = PlaceNeed {
                    units: (within.data.len() as u64 / SECTOR_BYTES) as u32,
                    align: u32::try_from(within.alignment).unwrap_or(u32::MAX),
                };
                self.drive.submit(at, ticket.0, &QueuedRequest::Within { free, need })
            }
        };
        match (given, &work) {
            (Err(_), Work::RangeWrite(within)) => {
                // The drive has begun with another meanwhile.
                let error = self.free(within).expect_err("the drive has looked");
                self.end(at, ticket, Err(error));
            }
            _ => drop(self.admitted.insert(ticket.0, work)),
        }
    }

    /// What is left of the targets of a range write.
    fn free(&self, within: &RangeWrite) -> Result<RangeSet, RangeError> {
        let sectors = within.data.len() as u64 / SECTOR_BYTES;
        let mut taken = self.given.all().clone();
        if let Some((start, end)) = self.drive.taken() {
            taken.insert(start, end);
        }
        free_targets(&within.targets, &taken, sectors, within.alignment)
    }

    fn end(&mut self, at: Ps, ticket: Ticket, result: Result<Done, RangeError>) {
        let at = to_duration(at);
        self.ended.push_back(Completion { ticket, result, at });
    }

    /// Works out what has happened up to now.
    fn catch_up(&mut self) {
        while let Some(event) = self.event_by(self.now) {
            let at = match event {
                Event::Complete(at) => {
                    self.complete();
                    at
                }
                Event::Deadline(at, ticket) => {
                    self.deadlines.remove(&(at, ticket));
                    let begin_by = to_duration(at);
                    self.withdraw(at, ticket, RangeError::Late { begin_by });
                    at
                }
            };
            self.admit(at);
        }
    }

    /// After the end of the clock nothing begins.
    fn end_with_clock(&mut self) {
        if self.drive.free_at() <= CLOCK_MAX {
            return;
        }
        let at = self.drive.free_at();
        let admitted = self.admitted.keys().copied().map(Ticket);
        let mut tickets: Vec<Ticket> = admitted.chain(self.waiting.iter().map(|&(ticket, _)| ticket)).collect();
        tickets.sort_unstable();
        for ticket in tickets {
            self.withdraw(at, ticket, clock_ended());
        }
        self.admit(at);
    }

    /// The first thing that happens up to a time. What begins at its deadline is not late.
    fn event_by(&mut self, now: Ps) -> Option<Event> {
        self.end_with_clock();
        let mut complete = self.drive.done_by(now);
        while self.turn_away() {
            complete = self.drive.done_by(now);
        }
        match self.deadlines.first() {
            Some(&(at, ticket)) if at < complete.unwrap_or(now) => Some(Event::Deadline(at, ticket)),
            _ => complete.map(Event::Complete),
        }
    }

    /// Ends those for which the drive found no place; `false` where there were none.
    fn turn_away(&mut self) -> bool {
        let (at, away) = (self.drive.free_at(), self.drive.turned_away());
        for &id in &away {
            let Some(Work::RangeWrite(within)) = self.admitted.remove(&id) else {
                unreachable!("a range write that the drive has")
            };
            let error = self.free(&within).expect_err("the drive has looked");
            self.end(at, Ticket(id), Err(error));
        }
        if !away.is_empty() {
            self.admit(at);
        }
        !away.is_empty()
    }

    /// Ends a request that has not begun; `false` where it has.
    fn withdraw(&mut self, at: Ps, ticket: Ticket, error: RangeError) -> bool {
        let waits = |(other, work): &(Ticket, Work)| *other == ticket && !matches!(work, Work::Separator(_));
        let waiting = self.waiting.iter().position(waits);
        let is_out = match waiting {
            Some(index) => self.waiting.remove(index).is_some(),
            None => self.drive.withdraw(at, ticket.0) && self.admitted.remove(&ticket.0).is_some(),
        };
        if is_out {
            self.end(at, ticket, Err(error));
        }
        is_out
    }

    /// Carries out what the drive has completed.
    fn complete(&mut self) {
        let finished = self.drive.complete().expect("it is done by now");
        let place = finished.lbn.0..finished.lbn.0 + u64::from(finished.sectors);
        let ticket = Ticket(finished.id);
        let done = match self.admitted.remove(&finished.id).expect("it was given to the drive") {
            Work::Read(_) => Done::Read(self.get(place)),
            Work::Write(_, data) => {
                self.put(&place, &data);
                Done::Written(place)
            }
            Work::RangeWrite(within) => {
                self.put(&place, &within.data);
                self.given.give(ticket, place.clone());
                Done::Written(place)
            }
            Work::Separator(_) => unreachable!("the drive knows none"),
        };
        self.end(finished.parts.end, ticket, Ok(done));
    }

    fn get(&self, place: Range<u64>) -> Vec<u8> {
        let zeros = [0; SECTOR_BYTES as usize];
        place
            .flat_map(|sector| *self.bytes.get(&sector).unwrap_or(&zeros))
            .collect()
    }

    fn put(&mut self, place: &Range<u64>, data: &[u8]) {
        for (sector, bytes) in place.clone().zip(data.as_chunks().0) {
            self.bytes.insert(sector, *bytes);
        }
    }

    /// When something happens next.
    fn next_event(&mut self) -> Option<Ps> {
        self.end_with_clock();
        let mut complete = self.drive.next_at();
        while self.turn_away() {
            complete = self.drive.next_at();
        }
        let late = self.deadlines.first().map(|&(at, _)| at.saturating_add(Ps(1)));
        let is_outstanding = !(self.admitted.is_empty() && self.waiting.is_empty());
        complete.into_iter().chain(late).min().filter(|_| is_outstanding)
    }

    fn hand_out(&mut self) -> Option<Completion> {
        let completion = self.ended.pop_front()?;
        self.given.tell(&completion);
        Some(completion)
    }
}

fn clock_ended() -> RangeError {
    let end = to_duration(CLOCK_MAX);
    RangeError::ClockEnded { end }
}

/// Rounded up, so that what has happened at a time has happened by then.
fn to_duration(time: Ps) -> Duration {
    Duration::from_nanos(time.0.div_ceil(PS_PER_NS))
}

fn from_duration(time: Duration) -> Ps {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ps(ns.saturating_mul(PS_PER_NS))
}

impl RangeDevice for ModelledDevice<'_> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.take(request, None)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.catch_up();
        self.hand_out()
    }

    fn wait(&mut self) -> Option<Completion> {
        loop {
            self.catch_up();
            if let Some(completion) = self.hand_out() {
                return Some(completion);
            }
            match self.next_event() {
                Some(at) => self.now = self.now.max(at),
                None if self.ended.is_empty() => return None,
                None => {}
            }
        }
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        if matches!(request, Request::Barrier | Request::Flush) {
            return Err(RangeError::Unsupported("a deadline of a barrier or flush"));
        }
        self.take(request, Some(begin_by))
    }

    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        self.catch_up();
        match self.withdraw(self.now, ticket, RangeError::Cancelled) {
            true => {
                self.admit(self.now);
                Ok(())
            }
            false => Err(RangeError::Begun { ticket }),
        }
    }

    fn clock(&self) -> Clock {
        Clock::Modelled(to_duration(self.now))
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        if let Some(completion) = self.ended.front() {
            return Some(completion.at);
        }
        let next = self.next_event();
        let ended = self.ended.front().map(|completion| completion.at);
        ended.or(next.map(to_duration))
    }

    fn pass_until(&mut self, time: Duration) {
        self.now = self.now.max(from_duration(time));
        self.catch_up();
    }
}
