//! Several devices as one: a range write goes to the emptiest member that has a place for it.
//!
//! ```text
//!   sectors   0 .......... 99 | 100 ............ 299 | 300 .. 349
//!             member 0          member 1               member 2
//! ```
//!
//! The emptiest member is the one with the fewest sectors outstanding, and among those the one with the most target sectors. Reads and
//! writes of fixed places may cross members; a range write never does.
//!
//! Members need not begin at a multiple of the alignment: such a member is given places that are aligned here, each as a range of
//! its own, so that it can still choose.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use elbow_ranges::RangeSet;

use super::places::{first_aligned_fit, fits};
use super::{Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket};

/// More places than this are not named one by one: a member that is not aligned has choice enough.
const PLACES_MAX: usize = 1 << 12;

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
    /// Places of which the members think that the host has been told when we have.
    given: GivenPlaces,
    /// Range writes that are not handed out.
    range_writes: BTreeMap<Ticket, RangeWrite>,
}

/// A range write, so that another member can be asked where one finds all its places taken.
#[derive(Debug)]
struct RangeWrite {
    targets: RangeSet,
    alignment: u64,
    data: Vec<u8>,
    sectors: u64,
    /// Members that are still to be asked, each with one of the turns of [`Member::places`].
    attempts: VecDeque<(usize, u64)>,
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
            given: GivenPlaces::default(),
            range_writes: BTreeMap::new(),
        }
    }

    fn submit_range(&mut self, targets: &RangeSet, alignment: u64, data: &[u8]) -> Result<Ticket, RangeError> {
        let write = RangeWrite {
            targets: targets.clone(),
            alignment,
            data: data.to_vec(),
            sectors: self.shape.length(data)?,
            attempts: VecDeque::new(),
        };
        let attempts = self.attempts(&write);
        let ticket = self.expect(1);
        self.range_writes.insert(ticket, RangeWrite { attempts, ..write });
        match self.ask_next(ticket) {
            Ok(()) => Ok(ticket),
            Err(refusal) => {
                self.range_writes.remove(&ticket);
                self.whole.remove(&ticket);
                Err(refusal)
            }
        }
    }

    /// Members that may have a place, the emptiest first.
    fn attempts(&self, write: &RangeWrite) -> VecDeque<(usize, u64)> {
        let free = self.given.without(&write.targets);
        let mut candidates: Vec<(u64, u64, usize)> = (0..self.members.len())
            .map(|index| (index, self.members[index].own(&free)))
            .filter(|(_, own)| first_aligned_fit(own, write.sectors, write.alignment).is_some())
            .map(|(index, own)| (self.members[index].load(), u64::MAX - own.total_bytes(), index))
            .collect();
        candidates.sort_unstable();
        candidates
            .into_iter()
            .flat_map(|(_, _, index)| (0..self.members[index].turns(write)).map(move |turn| (index, turn)))
            .collect()
    }

    /// Asks the next member for a place.
    fn ask_next(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        let write = self.range_writes.get_mut(&ticket).expect("a range write");
        let free = self.given.without(&write.targets);
        while let Some((index, turn)) = write.attempts.pop_front() {
            match self.members[index].submit_range(&free, write, turn, ticket) {
                Err(RangeError::NoPlace { .. }) => {}
                other => return other,
            }
        }
        let targets = write.targets.total_bytes();
        Err(RangeError::NoPlace {
            sectors: write.sectors,
            alignment: write.alignment,
            targets,
            taken: targets - free.total_bytes(),
        })
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

    /// No member may run ahead of another past a barrier: all are drained, before it too, since a write that finds no place in
    /// one goes to another.
    fn submit_barrier(&mut self, request: Request<'_>) -> Ticket {
        let known = self.given.barrier();
        self.drain();
        let ticket = self.expect(self.members.len());
        for index in 0..self.members.len() {
            self.submit_part(index, request, ticket, index, 0);
        }
        self.drain();
        self.given.forget(&known);
        self.settle(ticket)
    }

    fn drain(&mut self) {
        while let Some(index) = self.next_member()
            && let Some(completion) = self.members[index].device.wait()
        {
            self.complete(index, completion);
        }
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
        let mut result = completion.result.map(|done| done.moved(first));
        if let Err(RangeError::NoPlace { .. }) = result {
            // Others were given its places meanwhile; another member may have one.
            match self.ask_next(part.whole) {
                Ok(()) => return,
                Err(refusal) => result = Err(refusal),
            }
        }
        let whole = self.whole.get_mut(&part.whole).expect("of a whole");
        whole.parts[part.index] = Some(result);
        self.settle(part.whole);
    }

    /// Completes a request if all its parts are.
    fn settle(&mut self, ticket: Ticket) -> Ticket {
        let complete = |whole: &Whole| whole.parts.iter().all(Option::is_some);
        if self.whole.get(&ticket).is_some_and(complete) {
            let parts = self.whole.remove(&ticket).into_iter().flat_map(|whole| whole.parts);
            let result = parts.flatten().reduce(join).expect("at least a part");
            if let (true, Ok(Done::Written(place))) = (self.range_writes.contains_key(&ticket), &result) {
                self.given.give(place);
            }
            self.done.push_back(Completion { ticket, result });
        }
        ticket
    }

    fn hand_out(&mut self) -> Option<Completion> {
        let completion = self.done.pop_front()?;
        let range_write = self.range_writes.remove(&completion.ticket);
        if let (Some(_), Ok(Done::Written(place))) = (range_write, &completion.result) {
            self.given.hand_out(place);
        }
        Some(completion)
    }

    /// The member whose next completion comes first: one that knows of none in its own time counts as the first.
    fn next_member(&mut self) -> Option<usize> {
        let busy = self.members.iter_mut().enumerate();
        busy.filter(|(_, member)| !member.outstanding.is_empty())
            .map(|(index, member)| (member.device.next_completion_at(), index))
            .min()
            .map(|(_, index)| index)
    }
}

impl<D: RangeDevice> Member<D> {
    /// What of targets lies in this member.
    fn own(&self, targets: &RangeSet) -> RangeSet {
        targets.intersection(&std::iter::once(self.first..self.end).collect())
    }

    /// Whether places that are aligned here are aligned there.
    fn is_aligned(&self, write: &RangeWrite) -> bool {
        self.first.is_multiple_of(write.alignment)
    }

    /// In how many turns the member is asked.
    fn turns(&self, write: &RangeWrite) -> u64 {
        match self.is_aligned(write) {
            true => 1,
            false => write.sectors / write.alignment + 1,
        }
    }

    fn submit_range(
        &mut self,
        targets: &RangeSet,
        write: &RangeWrite,
        turn: u64,
        whole: Ticket,
    ) -> Result<(), RangeError> {
        let own = self.own(targets);
        let (targets, alignment) = match self.is_aligned(write) {
            true => (self.moved(own.iter()), write.alignment),
            false => (self.moved(self.places(&own, write, turn)), 1),
        };
        let request = Request::WriteRange {
            targets: &targets,
            alignment,
            data: &write.data,
        };
        self.submit(request, whole, 0, write.sectors)
    }

    /// Ranges of the length of the write leave the member one place in each. They must not touch, or they would be one range with
    /// more places: neighbours are in different turns.
    fn places(&self, own: &RangeSet, write: &RangeWrite, turn: u64) -> impl Iterator<Item = Range<u64>> {
        let (sectors, alignment, turns) = (write.sectors, write.alignment, self.turns(write));
        let places: Vec<_> = own
            .iter()
            .flat_map(|range| fits(&range, sectors, alignment))
            .filter(|at| (at / alignment) % turns == turn)
            .take(PLACES_MAX)
            .collect();
        places.into_iter().map(move |at| at..at + sectors)
    }

    /// Ranges as the member counts sectors.
    fn moved(&self, ranges: impl Iterator<Item = Range<u64>>) -> RangeSet {
        ranges
            .map(|range| range.start - self.first..range.end - self.first)
            .collect()
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
        self.hand_out()
    }

    /// That of any member: what is there already before anybody is waited for.
    fn wait(&mut self) -> Option<Completion> {
        loop {
            if let Some(completion) = self.poll() {
                return Some(completion);
            }
            let next = self.next_member()?;
            let completion = self.members[next].device.wait()?;
            self.complete(next, completion);
        }
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        let next = self.next_member()?;
        self.members[next].device.next_completion_at()
    }
}
