//! Several devices as one: a range write goes to the emptiest member that has a place for it.
//!
//! ```text
//!   sectors   0 .......... 99 | 100 ............ 299 | 300 .. 349
//!             member 0          member 1               member 2
//! ```
//!
//! The emptiest member is the one with the fewest sectors outstanding, and among those the one with the most target sectors. Reads and
//! writes of fixed places may cross members; a range write never does.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use elbow_ranges::RangeSet;

use super::places::first_aligned_fit;
use super::{Completion, Done, RangeDevice, RangeError, Request, Shape, Ticket};

/// Devices of one sector size side by side.
///
/// ```
/// use elbow_file::range_device::{MemoryDevice, Members, RangeDevice, Request};
///
/// let mut device = Members::new(vec![MemoryDevice::new(512, 100), MemoryDevice::new(512, 100)]);
/// let free = [0..200].into_iter().collect();
/// let write = Request::WriteRange { targets: &free, alignment: 1, data: &[1; 512] };
/// device.submit(write)?;
/// device.submit(write)?; // the first member is busy
/// let mut places: Vec<_> = std::iter::from_fn(|| device.wait()).map(|done| done.result.unwrap()).collect();
/// places.sort_by_key(|place| format!("{place:?}"));
/// assert_eq!(format!("{places:?}"), "[Written(0..1), Written(100..101)]");
/// # Ok::<(), elbow_file::range_device::RangeError>(())
/// ```
#[derive(Debug)]
pub struct Members<D> {
    members: Vec<Member<D>>,
    shape: Shape,
    tickets: u64,
    /// Requests with parts that are not complete.
    whole: BTreeMap<Ticket, Whole>,
    /// Complete, not handed out.
    done: VecDeque<Completion>,
}

#[derive(Debug)]
struct Member<D> {
    device: D,
    /// First sector of it here.
    first: u64,
    end: u64,
    outstanding: BTreeMap<Ticket, Part>,
}

/// What one member does of a request.
#[derive(Debug)]
struct Part {
    whole: Ticket,
    index: usize,
    sectors: u64,
}

#[derive(Debug)]
struct Whole {
    parts: Vec<Option<Result<Done, RangeError>>>,
}

impl<D: RangeDevice> Members<D> {
    /// Puts devices one after the other.
    ///
    /// # Panics
    /// For no devices, or different sizes of sectors.
    pub fn new(devices: Vec<D>) -> Self {
        let sector_bytes = devices.first().expect("at least one member").shape().sector_bytes;
        let mut first = 0;
        let place = |device: D| {
            assert_eq!(device.shape().sector_bytes, sector_bytes, "one size of sectors");
            let (start, end) = (first, first + device.shape().sectors);
            first = end;
            let outstanding = BTreeMap::new();
            Member {
                device,
                first: start,
                end,
                outstanding,
            }
        };
        let members: Vec<_> = devices.into_iter().map(place).collect();
        Self {
            shape: Shape {
                sector_bytes,
                sectors: first,
            },
            members,
            tickets: 0,
            whole: BTreeMap::new(),
            done: VecDeque::new(),
        }
    }

    fn submit_range(&mut self, targets: &RangeSet, alignment: u64, data: &[u8]) -> Result<Ticket, RangeError> {
        let sectors = self.shape.length(data)?;
        let mut candidates: Vec<(u64, u64, usize, RangeSet)> = (0..self.members.len())
            .map(|index| (index, self.members[index].own(targets, alignment)))
            .filter(|(_, own)| first_aligned_fit(own, sectors, alignment).is_some())
            .map(|(index, own)| (self.members[index].load(), u64::MAX - own.total_bytes(), index, own))
            .collect();
        candidates.sort_by_key(|&(load, room, index, _)| (load, room, index));
        let mut refusal = RangeError::NoPlace {
            sectors,
            alignment,
            targets: targets.total_bytes(),
            taken: 0,
        };
        let ticket = self.expect(1);
        for (_, _, index, own) in candidates {
            let request = Request::WriteRange {
                targets: &own,
                alignment,
                data,
            };
            match self.members[index].submit(request, ticket, 0, sectors) {
                Ok(()) => return Ok(ticket),
                Err(error) => refusal = error,
            }
        }
        self.whole.remove(&ticket);
        Err(refusal)
    }

    /// Parts of a fixed place: member, place within it, piece of the data.
    fn parts(&self, place: &Range<u64>) -> Vec<(usize, Range<u64>)> {
        let within = |(index, member): (usize, &Member<D>)| {
            let (start, end) = (place.start.max(member.first), place.end.min(member.end));
            (start < end).then_some((index, start..end))
        };
        self.members.iter().enumerate().filter_map(within).collect()
    }

    fn submit_read(&mut self, place: &Range<u64>) -> Ticket {
        let parts = self.parts(place);
        let ticket = self.expect(parts.len());
        for (number, (index, part)) in parts.into_iter().enumerate() {
            let (at, sectors) = (part.start - self.members[index].first, part.end - part.start);
            self.submit_part(index, Request::Read { at, sectors }, ticket, number, sectors);
        }
        self.settle(ticket)
    }

    fn submit_write(&mut self, at: u64, data: &[u8]) -> Result<Ticket, RangeError> {
        let place = at..at + self.shape.length(data)?;
        let parts = self.parts(&place);
        let ticket = self.expect(parts.len());
        for (number, (index, part)) in parts.into_iter().enumerate() {
            let piece = self.shape.bytes(&(part.start - at..part.end - at));
            let request = Request::Write {
                at: part.start - self.members[index].first,
                data: &data[piece.start as usize..piece.end as usize],
            };
            self.submit_part(index, request, ticket, number, part.end - part.start);
        }
        Ok(self.settle(ticket))
    }

    /// No member may run ahead of another past a barrier: all are drained.
    fn submit_barrier(&mut self, request: Request<'_>) -> Ticket {
        let ticket = self.expect(self.members.len());
        for index in 0..self.members.len() {
            self.submit_part(index, request, ticket, index, 0);
        }
        for index in 0..self.members.len() {
            while let Some(completion) = self.members[index].device.wait() {
                self.complete(index, completion);
            }
        }
        self.settle(ticket)
    }

    /// A part that is refused has completed with that error; the others go on.
    fn submit_part(&mut self, index: usize, request: Request<'_>, ticket: Ticket, number: usize, sectors: u64) {
        if let Err(error) = self.members[index].submit(request, ticket, number, sectors) {
            let whole = self.whole.get_mut(&ticket).expect("expected before its parts");
            whole.parts[number] = Some(Err(error));
        }
    }

    fn expect(&mut self, parts: usize) -> Ticket {
        self.tickets += 1;
        let parts = vec![None; parts];
        self.whole.insert(Ticket(self.tickets), Whole { parts });
        Ticket(self.tickets)
    }

    fn complete(&mut self, index: usize, completion: Completion) {
        let member = &mut self.members[index];
        let part = member.outstanding.remove(&completion.ticket);
        let part = part.expect("a member completes what it was asked");
        let first = member.first;
        let whole = self.whole.get_mut(&part.whole).expect("of a whole");
        whole.parts[part.index] = Some(completion.result.map(|done| done.moved(first)));
        self.settle(part.whole);
    }

    /// Completes a request if all its parts are.
    fn settle(&mut self, ticket: Ticket) -> Ticket {
        let complete = |whole: &Whole| whole.parts.iter().all(Option::is_some);
        if self.whole.get(&ticket).is_some_and(complete) {
            let parts = self.whole.remove(&ticket).into_iter().flat_map(|whole| whole.parts);
            let result = parts.flatten().reduce(join).expect("at least a part");
            self.done.push_back(Completion { ticket, result });
        }
        ticket
    }
}

impl<D: RangeDevice> Member<D> {
    /// Targets within this member, as it counts sectors, with places that are aligned here where they are aligned there.
    fn own(&self, targets: &RangeSet, alignment: u64) -> RangeSet {
        let within: RangeSet = std::iter::once(self.first..self.end).collect();
        let own = targets.intersection(&within);
        match self.first.is_multiple_of(alignment) {
            true => own.iter().map(|r| r.start - self.first..r.end - self.first).collect(),
            false => RangeSet::new(), // the member could not tell which places are aligned for us
        }
    }

    fn load(&self) -> u64 {
        self.outstanding.values().map(|part| part.sectors).sum()
    }

    fn submit(&mut self, request: Request<'_>, whole: Ticket, index: usize, sectors: u64) -> Result<(), RangeError> {
        let ticket = self.device.submit(request)?;
        let part = Part { whole, index, sectors };
        self.outstanding.insert(ticket, part);
        Ok(())
    }
}

impl Done {
    fn moved(self, by: u64) -> Self {
        match self {
            Self::Written(place) => Self::Written(place.start + by..place.end + by),
            other => other,
        }
    }
}

/// Two neighbouring parts as one.
fn join(a: Result<Done, RangeError>, b: Result<Done, RangeError>) -> Result<Done, RangeError> {
    Ok(match (a?, b?) {
        (Done::Read(mut first), Done::Read(second)) => {
            first.extend(second);
            Done::Read(first)
        }
        (Done::Written(first), Done::Written(second)) => Done::Written(first.start..second.end),
        (first, _) => first,
    })
}

impl<D: RangeDevice> RangeDevice for Members<D> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.shape.check(&request)?;
        match request {
            Request::Read { at, sectors } => Ok(self.submit_read(&(at..at + sectors))),
            Request::Write { at, data } => self.submit_write(at, data),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => self.submit_range(targets, alignment, data),
            Request::Barrier | Request::Flush => Ok(self.submit_barrier(request)),
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        for index in 0..self.members.len() {
            if !self.done.is_empty() {
                break;
            }
            if let Some(completion) = self.members[index].device.poll() {
                self.complete(index, completion);
            }
        }
        self.done.pop_front()
    }

    fn wait(&mut self) -> Option<Completion> {
        while self.done.is_empty() {
            let busy = self.members.iter().position(|member| !member.outstanding.is_empty())?;
            let completion = self.members[busy].device.wait()?;
            self.complete(busy, completion);
        }
        self.done.pop_front()
    }
}
