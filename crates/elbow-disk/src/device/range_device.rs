//! The drive as a range device, with the bytes that are written to it.
//!
//! ```text
//!   submit ──> host queue ──admitted in order──> drive ──> completion
//!              └ behind a barrier, or a fixed place that overlaps one under way, everything waits
//! ```
//!
//! Its clock is the drive's own: it goes on when somebody waits for a completion, or by [`ModelledDevice::pass`]. What is complete by
//! then is there without waiting.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::range_device::{Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket};
use elbow_ranges::RangeSet;

use super::Setup;
use super::queued_drive::{QueuedDrive, QueuedRequest};
use super::regions::PlaceNeed;
use crate::drive::{Drive, Lbn, Ps, SECTOR_BYTES};

type Sector = [u8; SECTOR_BYTES as usize];

/// A modelled drive that keeps what is written to it; sectors never written are zeros.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::{Drive, device::{ModelledDevice, Setup}};
/// use elbow_file::range_device::Blocking;
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let mut device = Blocking::new(ModelledDevice::new(&drive, Setup::default()));
/// let track = [0..96].into_iter().collect();
/// let at = device.write_range(&track, 8, &[7; 4096])?;
/// assert_eq!(device.read(at, 8)?, [7; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ModelledDevice<'d> {
    drive: QueuedDrive<'d>,
    shape: Shape,
    now: Ps,
    tickets: u64,
    /// Not yet admitted.
    waiting: VecDeque<(Ticket, Work)>,
    admitted: HashMap<u64, Work>,
    /// Complete and not handed out.
    ended: VecDeque<Completion>,
    given: GivenPlaces,
    /// Where the range writes in `ended` went.
    not_told: HashMap<u64, Range<u64>>,
    bytes: BTreeMap<u64, Sector>,
}

#[derive(Debug)]
enum Work {
    Read(Range<u64>),
    Write(Range<u64>, Vec<u8>),
    Within {
        targets: RangeSet,
        alignment: u64,
        data: Vec<u8>,
    },
    /// A barrier or flush, with the places that are forgotten then.
    Separator(RangeSet),
}

impl Work {
    fn new(request: &Request<'_>, given: &mut GivenPlaces) -> Work {
        let sectors = |data: &[u8]| data.len() as u64 / SECTOR_BYTES;
        match *request {
            Request::Read { at, sectors } => Work::Read(at..at + sectors),
            Request::Write { at, data } => Work::Write(at..at + sectors(data), data.to_vec()),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => Work::Within {
                targets: targets.clone(),
                alignment,
                data: data.to_vec(),
            },
            Request::Barrier | Request::Flush => Work::Separator(given.barrier()),
        }
    }

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
            Work::Within { .. } | Work::Separator(_) => None,
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
            waiting: VecDeque::new(),
            admitted: HashMap::new(),
            ended: VecDeque::new(),
            given: GivenPlaces::default(),
            not_told: HashMap::new(),
            bytes: BTreeMap::new(),
        }
    }

    /// What time it is.
    #[must_use]
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Lets time go by in which the host does something else. The drive goes on with what it has; what it completes is there for
    /// [`poll`](RangeDevice::poll) then.
    pub fn pass(&mut self, time: Ps) {
        let until = self.now + time;
        while self.drive.next_at().is_some_and(|at| at <= until) {
            self.complete_next();
            self.admit();
        }
        self.now = until;
    }

    /// Gives the drive what may be done now, in order.
    fn admit(&mut self) {
        while let Some((ticket, work)) = self.waiting.pop_front() {
            let blocked = match &work {
                Work::Separator(_) => !self.admitted.is_empty(),
                work => self.admitted.values().any(|other| work.follows(other)),
            };
            if blocked {
                self.waiting.push_front((ticket, work));
                return;
            }
            self.give(ticket, work);
        }
    }

    fn give(&mut self, ticket: Ticket, work: Work) {
        let fixed = |place: &Range<u64>, write| QueuedRequest::At {
            lbn: Lbn(place.start),
            sectors: (place.end - place.start) as u32,
            write,
        };
        let given = match &work {
            Work::Separator(known) => {
                self.given.forget(known);
                return self.end(ticket, Ok(Done::Passed));
            }
            Work::Read(place) => self.drive.submit(self.now, ticket.0, &fixed(place, false)),
            Work::Write(place, _) => self.drive.submit(self.now, ticket.0, &fixed(place, true)),
            Work::Within {
                targets,
                alignment,
                data,
            } => {
                let free = &Arc::new(self.given.without(targets));
                let need = PlaceNeed {
                    units: (data.len() as u64 / SECTOR_BYTES) as u32,
                    align: u32::try_from(*alignment).unwrap_or(u32::MAX),
                };
                self.drive
                    .submit(self.now, ticket.0, &QueuedRequest::Within { free, need })
            }
        };
        match given {
            Ok(()) => drop(self.admitted.insert(ticket.0, work)),
            Err(_) => self.end(ticket, Err(self.no_place(&work))),
        }
    }

    fn end(&mut self, ticket: Ticket, result: Result<Done, RangeError>) {
        self.ended.push_back(Completion { ticket, result });
    }

    /// Carries out what the drive completes next, and what it turns away.
    fn complete_next(&mut self) {
        let at = self.drive.next_at();
        for id in self.drive.turned_away() {
            let work = self.admitted.remove(&id).expect("it was given to the drive");
            self.end(Ticket(id), Err(self.no_place(&work)));
        }
        let Some(finished) = at.and_then(|_| self.drive.complete()) else {
            return;
        };
        self.now = self.now.max(finished.parts.end);
        let place = finished.lbn.0..finished.lbn.0 + u64::from(finished.sectors);
        let done = match self.admitted.remove(&finished.id).expect("it was given to the drive") {
            Work::Read(_) => Done::Read(self.get(place)),
            Work::Write(_, data) => self.put(place, &data),
            Work::Within { data, .. } => {
                self.given.give(&place);
                self.not_told.insert(finished.id, place.clone());
                self.put(place, &data)
            }
            Work::Separator(_) => unreachable!("the drive knows none"),
        };
        self.end(Ticket(finished.id), Ok(done));
    }

    fn hand_out(&mut self) -> Option<Completion> {
        let completion = self.ended.pop_front()?;
        if let Some(place) = self.not_told.remove(&completion.ticket.0) {
            self.given.hand_out(&place);
        }
        Some(completion)
    }

    fn get(&self, place: Range<u64>) -> Vec<u8> {
        let zeros = [0; SECTOR_BYTES as usize];
        place
            .flat_map(|sector| *self.bytes.get(&sector).unwrap_or(&zeros))
            .collect()
    }

    fn put(&mut self, place: Range<u64>, data: &[u8]) -> Done {
        for (sector, bytes) in place.clone().zip(data.as_chunks().0) {
            self.bytes.insert(sector, *bytes);
        }
        Done::Written(place)
    }

    fn no_place(&self, work: &Work) -> RangeError {
        let Work::Within {
            targets,
            alignment,
            data,
        } = work
        else {
            unreachable!("only range writes have targets")
        };
        RangeError::NoPlace {
            sectors: data.len() as u64 / SECTOR_BYTES,
            alignment: *alignment,
            targets: targets.total_bytes(),
            taken: targets.total_bytes() - self.given.without(targets).total_bytes(),
        }
    }
}

impl RangeDevice for ModelledDevice<'_> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.shape.check(&request)?;
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.push_back((ticket, Work::new(&request, &mut self.given)));
        self.admit();
        Ok(ticket)
    }

    /// Hands out what is complete by now.
    fn poll(&mut self) -> Option<Completion> {
        self.hand_out()
    }

    fn wait(&mut self) -> Option<Completion> {
        while self.ended.is_empty() && !(self.admitted.is_empty() && self.waiting.is_empty()) {
            self.complete_next();
            self.admit();
        }
        self.hand_out()
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        let at = match self.ended.is_empty() {
            true => self.drive.next_at()?,
            false => self.now,
        };
        Some(Duration::from_nanos(at.0 / 1000))
    }
}
