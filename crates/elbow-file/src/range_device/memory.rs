//! A device in memory: in order and first fit, or as capricious as a device may be.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use elbow_ranges::RangeSet;

use super::places::{check_deadline, fits, free_targets};
use super::{Clock, Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket};

/// What carrying out a request takes in its own time, so that there is an order and deadlines mean something.
const STEP: Duration = Duration::from_micros(1);

/// Sectors in memory, zero at first. Places are chosen when a request is carried out, not when it is submitted: one
/// with each completion that is asked for. Its time is modelled, a microsecond for each request.
///
/// ```
/// use elbow_file::range_device::{Blocking, MemoryDevice};
///
/// let mut device = Blocking::new(MemoryDevice::capricious(512, 64, 1));
/// let free = [8..16].into_iter().collect();
/// assert!((8..=14).contains(&device.write_range(&free, 1, &[1; 1024])?));
/// # Ok::<(), elbow_file::range_device::RangeError>(())
/// ```
#[derive(Debug)]
pub struct MemoryDevice {
    shape: Shape,
    bytes: Vec<u8>,
    /// In the order of submission; as long as the caller makes it.
    pending: Vec<Pending>,
    /// Ended without being carried out.
    ended: VecDeque<Completion>,
    now: Duration,
    tickets: u64,
    given: GivenPlaces,
    /// State of the random choices; `None` for the first of everything.
    whim: Option<u64>,
}

#[derive(Debug)]
struct Pending {
    ticket: Ticket,
    begin_by: Option<Duration>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Read(Range<u64>),
    Write(Range<u64>, Vec<u8>),
    WriteRange {
        targets: RangeSet,
        alignment: u64,
        data: Vec<u8>,
    },
    /// With the places that are forgotten then.
    Barrier(RangeSet),
}

impl MemoryDevice {
    /// Carries requests out in their order; a range write gets the first place that fits.
    ///
    /// # Panics
    /// If memory for that many sectors cannot be addressed.
    #[must_use]
    pub fn new(sector_bytes: u32, sectors: u64) -> Self {
        let bytes = usize::try_from(u64::from(sector_bytes) * sectors).expect("a device that fits into memory");
        Self {
            shape: Shape { sector_bytes, sectors },
            bytes: vec![0; bytes],
            pending: Vec::new(),
            ended: VecDeque::new(),
            now: Duration::ZERO,
            tickets: 0,
            given: GivenPlaces::default(),
            whim: None,
        }
    }

    /// Carries out any request that may be next, and gives a range write any place that fits, by the seed.
    ///
    /// # Panics
    /// Like [`new`](Self::new).
    #[must_use]
    pub fn capricious(sector_bytes: u32, sectors: u64, seed: u64) -> Self {
        let whim = Some(seed);
        Self {
            whim,
            ..Self::new(sector_bytes, sectors)
        }
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        self.shape.check(&request)?;
        check_deadline(&request, begin_by)?;
        let work = match request {
            Request::Read { at, sectors } => Work::Read(at..at + sectors),
            Request::Write { at, data } => Work::Write(at..at + self.shape.length(data)?, data.to_vec()),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => Work::WriteRange {
                targets: targets.clone(),
                alignment,
                data: data.to_vec(),
            },
            Request::Barrier | Request::Flush => Work::Barrier(self.given.barrier()),
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.pending.push(Pending { ticket, begin_by, work });
        Ok(ticket)
    }

    /// A number below `choices`: 0, or a random one (SplitMix64, Steele et al. 2014).
    fn choose(&mut self, choices: usize) -> usize {
        let Some(state) = &mut self.whim else { return 0 };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % choices as u64) as usize
    }

    /// May the request at an index be carried out before all those in front of it?
    fn ready(&self, index: usize) -> bool {
        let earlier = &self.pending[..index];
        match &self.pending[index].work {
            Work::Barrier(_) => index == 0,
            work => !earlier.iter().any(|other| other.work.precedes(work)),
        }
    }

    /// Carries one request out; `None` if there is none.
    fn step(&mut self) -> Option<Completion> {
        self.end_late();
        if let Some(ended) = self.ended.pop_front() {
            return Some(ended);
        }
        let ready: Vec<usize> = (0..self.pending.len()).filter(|&index| self.ready(index)).collect();
        if ready.is_empty() {
            return None;
        }
        let Pending { ticket, work, .. } = {
            let chosen = self.choose(ready.len());
            self.pending.remove(ready[chosen])
        };
        let result = self.carry_out(ticket, work);
        self.now += STEP;
        let at = self.now;
        let completion = Completion { ticket, result, at };
        self.given.tell(&completion);
        Some(completion)
    }

    fn end_late(&mut self) {
        let now = self.now;
        let is_late = |pending: &mut Pending| pending.begin_by.is_some_and(|begin_by| begin_by < now);
        for late in self.pending.extract_if(.., is_late) {
            let begin_by = late.begin_by.unwrap_or_default();
            let (ticket, result) = (late.ticket, Err(RangeError::Late { begin_by }));
            self.ended.push_back(Completion {
                ticket,
                result,
                at: now,
            });
        }
    }

    fn carry_out(&mut self, ticket: Ticket, work: Work) -> Result<Done, RangeError> {
        match work {
            Work::Read(place) => Ok(Done::Read(self.at(&place).to_vec())),
            Work::Write(place, data) => Ok(self.put(place, &data)),
            Work::WriteRange {
                targets,
                alignment,
                data,
            } => {
                let sectors = self.shape.length(&data)?;
                let at = self.pick(&targets, sectors, alignment)?;
                self.given.give(ticket, at..at + sectors);
                Ok(self.put(at..at + sectors, &data))
            }
            Work::Barrier(known) => {
                self.given.forget(&known);
                Ok(Done::Passed)
            }
        }
    }

    fn pick(&mut self, targets: &RangeSet, sectors: u64, alignment: u64) -> Result<u64, RangeError> {
        let fixed = self.pending.iter().filter_map(|other| other.work.place());
        let taken: RangeSet = fixed.chain(self.given.all().iter()).collect();
        let free = free_targets(targets, &taken, sectors, alignment)?;
        let places: Vec<u64> = free
            .iter()
            .flat_map(|range| fits(&range, sectors, alignment))
            .take(if self.whim.is_some() { usize::MAX } else { 1 })
            .collect();
        Ok(places[self.choose(places.len())])
    }

    fn at(&mut self, place: &Range<u64>) -> &mut [u8] {
        let bytes = self.shape.bytes(place);
        &mut self.bytes[bytes.start as usize..bytes.end as usize]
    }

    fn put(&mut self, place: Range<u64>, data: &[u8]) -> Done {
        self.at(&place).copy_from_slice(data);
        Done::Written(place)
    }
}

impl Work {
    /// The fixed place of it.
    fn place(&self) -> Option<Range<u64>> {
        match self {
            Self::Read(place) | Self::Write(place, _) => Some(place.clone()),
            Self::WriteRange { .. } | Self::Barrier(_) => None,
        }
    }

    /// Must this, submitted earlier, be done before another?
    fn precedes(&self, other: &Self) -> bool {
        match (self.place(), other.place()) {
            (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
            _ => matches!(self, Self::Barrier(_)),
        }
    }
}

impl RangeDevice for MemoryDevice {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.take(request, None)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.step()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.step()
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.take(request, Some(begin_by))
    }

    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        let waits = |pending: &Pending| pending.ticket == ticket && !matches!(pending.work, Work::Barrier(_));
        let index = self
            .pending
            .iter()
            .position(waits)
            .ok_or(RangeError::Begun { ticket })?;
        self.pending.remove(index);
        let (result, at) = (Err(RangeError::Cancelled), self.now);
        self.ended.push_back(Completion { ticket, result, at });
        Ok(())
    }

    fn clock(&self) -> Clock {
        Clock::Modelled(self.now)
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        let is_idle = self.pending.is_empty() && self.ended.is_empty();
        (!is_idle).then_some(self.now)
    }

    fn pass_until(&mut self, time: Duration) {
        self.now = self.now.max(time);
    }
}
