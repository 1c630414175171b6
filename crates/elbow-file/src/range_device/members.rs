//! Several devices as one: a range write goes to the member that will be done first, if it has a place for it.
//!
//! ```text
//!   sectors   0 .......... 99 | 100 ............ 299 | 300 .. 349
//!             member 0          member 1               member 2
//! ```
//!
//! Which that is says what each took before (`service`), for as much as is outstanding there, one write more and its flush. Among equals, and where members
//! have no clock, it is the one with the fewest sectors outstanding, and then the one with the most target sectors. Where it has no place (any more)
//! the next is asked. Reads and writes of fixed places may cross members; a range write never does.
//!
//! A flush is one of the members that were written to since their last, and a barrier of the others: who was passed over because it is slow is not
//! waited for.
//!
//! No member runs ahead of another past a barrier: what is submitted after one waits here until all members have passed
//! it.
//!
//! Time: members that are all modelled are kept in step, and their time is ours. Otherwise ours is real and begins with
//! our making, and modelled members do what they are asked in no time.

mod choice;
mod service;
mod waiting;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::task::Waker;
use std::time::{Duration, Instant};

use elbow_ranges::RangeSet;

use self::choice::{Choice, Need};
use self::service::{Service, Work};
use super::owned::OwnedRequest;
use super::places::check_deadline;
use super::{Clock, Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket};

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
    started: Instant,
    tickets: u64,
    /// Places of which the members think that the host has been told when we have.
    given: GivenPlaces,
    /// Submitted, and a barrier that has not passed or what is behind one; as long as the caller makes it.
    held: VecDeque<HeldRequest>,
    /// A barrier that the members have, and the places that are forgotten then.
    barrier: Option<(Ticket, RangeSet)>,
    /// Requests with parts that are not complete.
    whole: BTreeMap<Ticket, WholeRequest>,
    /// Complete, not handed out.
    done: VecDeque<Completion>,
    waker: Option<Waker>,
}

#[derive(Debug)]
struct Member<D> {
    device: D,
    /// First sector of it here.
    first: u64,
    end: u64,
    /// What its clock said when ours was 0, if it is a real one.
    zero: Option<Duration>,
    outstanding: BTreeMap<Ticket, Part>,
    service: Service,
    /// It may have something that is not durable; also what was written before it was ours.
    is_dirty: bool,
}

/// What one member does of a request.
#[derive(Debug)]
struct Part {
    whole: Ticket,
    index: usize,
    sectors: u64,
    work: Work,
    /// By the member's clock.
    submitted: Duration,
}

#[derive(Debug)]
struct HeldRequest {
    ticket: Ticket,
    request: OwnedRequest,
    begin_by: Option<Duration>,
    /// Of a barrier: the places that are forgotten then.
    known: RangeSet,
}

#[derive(Debug)]
struct WholeRequest {
    parts: Vec<Option<Result<Done, RangeError>>>,
    at: Duration,
    /// Only of a range write: what is left to try.
    search: Option<Search>,
}

/// A range write on its way through the members.
#[derive(Debug)]
struct Search {
    request: OwnedRequest,
    need: Need,
    begin_by: Option<Duration>,
    /// The best last.
    choices: Vec<Choice>,
    /// Sectors that members said were taken.
    taken: u64,
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
            Member {
                zero: match device.clock() {
                    Clock::Real(zero) => Some(zero),
                    Clock::None | Clock::Modelled(_) => None,
                },
                device,
                first: start,
                end,
                outstanding: BTreeMap::new(),
                service: Service::default(),
                is_dirty: true,
            }
        };
        let members: Vec<_> = devices.into_iter().map(place).collect();
        Self {
            shape: Shape {
                sector_bytes,
                sectors: first,
            },
            members,
            started: Instant::now(),
            tickets: 0,
            given: GivenPlaces::default(),
            held: VecDeque::new(),
            barrier: None,
            whole: BTreeMap::new(),
            done: VecDeque::new(),
            waker: None,
        }
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        self.shape.check(&request)?;
        check_deadline(&request, begin_by)?;
        if begin_by.is_some() && self.members.iter().any(|member| member.device.clock() == Clock::None) {
            return Err(RangeError::Unsupported("a deadline, since a member has no clock"));
        }
        self.keep_in_step();
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if let Some(begin_by) = begin_by.filter(|&begin_by| begin_by < self.clock().time()) {
            self.end(ticket, Err(RangeError::Late { begin_by }));
            return Ok(ticket);
        }
        let request = OwnedRequest::from(request);
        let known = match request {
            OwnedRequest::Barrier | OwnedRequest::Flush => self.given.barrier(),
            _ => RangeSet::new(),
        };
        let held = HeldRequest {
            ticket,
            request,
            begin_by,
            known,
        };
        match self.held.is_empty() && self.may_start(&held.request) {
            true => self.start(held)?,
            false => self.held.push_back(held),
        }
        Ok(ticket)
    }

    /// Gives a request to the members. A range write for which none has a place is refused.
    fn start(&mut self, held: HeldRequest) -> Result<(), RangeError> {
        let HeldRequest {
            ticket,
            request,
            begin_by,
            known,
        } = held;
        match &request {
            OwnedRequest::Read { at, sectors } => {
                let place = *at..*at + *sectors;
                self.start_fixed(ticket, &place, begin_by, |part| Request::Read {
                    at: part.start,
                    sectors: part.end - part.start,
                });
            }
            OwnedRequest::Write { at, data } => {
                let (shape, place) = (self.shape, *at..*at + self.shape.length(data)?);
                self.start_fixed(ticket, &place, begin_by, |part| {
                    let piece = shape.bytes(&(part.start - at..part.end - at));
                    Request::Write {
                        at: part.start,
                        data: &data[piece.start as usize..piece.end as usize],
                    }
                });
            }
            OwnedRequest::WriteRange { .. } => return self.start_range(ticket, request, begin_by),
            OwnedRequest::Barrier | OwnedRequest::Flush => {
                self.barrier = Some((ticket, known));
                self.expect(ticket, self.members.len(), None);
                for index in 0..self.members.len() {
                    let request = self.members[index].separator(&request);
                    self.start_part(index, request, None, ticket, index, 0);
                }
                self.settle(ticket);
            }
        }
        Ok(())
    }

    /// The parts of a fixed place, each as `request` says for its sectors.
    fn start_fixed<'a>(
        &mut self,
        ticket: Ticket,
        place: &Range<u64>,
        begin_by: Option<Duration>,
        request: impl Fn(&Range<u64>) -> Request<'a>,
    ) {
        let within = |(index, member): (usize, &Member<D>)| {
            let (start, end) = (place.start.max(member.first), place.end.min(member.end));
            (start < end).then_some((index, start..end))
        };
        let parts: Vec<_> = self.members.iter().enumerate().filter_map(within).collect();
        self.expect(ticket, parts.len(), None);
        for (number, (index, part)) in parts.into_iter().enumerate() {
            let request = request(&part).moved_down(self.members[index].first);
            self.start_part(index, request, begin_by, ticket, number, part.end - part.start);
        }
        self.settle(ticket);
    }

    fn start_range(
        &mut self,
        ticket: Ticket,
        request: OwnedRequest,
        begin_by: Option<Duration>,
    ) -> Result<(), RangeError> {
        let OwnedRequest::WriteRange {
            targets,
            alignment,
            data,
        } = &request
        else {
            unreachable!("a range write")
        };
        let need = Need {
            sectors: self.shape.length(data)?,
            alignment: *alignment,
        };
        let choices = self.choices(targets, need);
        self.expect(
            ticket,
            1,
            Some(Search {
                request,
                need,
                begin_by,
                choices,
                taken: 0,
            }),
        );
        self.search(ticket).inspect_err(|_| drop(self.whole.remove(&ticket)))
    }

    /// All that can be tried, the best last.
    fn choices(&self, targets: &RangeSet, need: Need) -> Vec<Choice> {
        let room = |member: &Member<D>| {
            let within: RangeSet = std::iter::once(member.first..member.end).collect();
            targets.intersection(&within).total_bytes()
        };
        let mut order: Vec<(Duration, u64, u64, usize)> = (self.members.iter().enumerate())
            .map(|(index, member)| (member.expected(), member.load(), u64::MAX - room(member), index))
            .filter(|&(_, _, missing, _)| missing < u64::MAX)
            .collect();
        order.sort_unstable();
        let choices = |&(.., index): &(Duration, u64, u64, usize)| need.choices(index, self.members[index].first);
        let mut choices: Vec<Choice> = order.iter().flat_map(choices).collect();
        choices.reverse();
        choices
    }

    /// Asks one member after the other for a place, up to the first that does not refuse at once.
    fn search(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        let mut search = self
            .whole
            .get_mut(&ticket)
            .and_then(|whole| whole.search.take())
            .expect("a range write");
        let mut refusal = None;
        while let Some(choice) = search.choices.pop() {
            let OwnedRequest::WriteRange { targets, data, .. } = &search.request else {
                unreachable!("a range write")
            };
            let index = choice.member;
            let place = self.members[index].first..self.members[index].end;
            let Some((own, alignment)) = choice.targets(search.need, &place, targets, self.given.all()) else {
                continue;
            };
            search.choices.extend(choice.next());
            let request = Request::WriteRange {
                targets: &own,
                alignment,
                data,
            };
            match self.try_part(index, request, search.begin_by, ticket, 0, search.need.sectors) {
                Err(RangeError::NoPlace { taken, .. }) => search.taken += taken,
                Err(error) => refusal = Some(error), // another may be well
                Ok(()) => {
                    self.whole.get_mut(&ticket).expect("a range write").search = Some(search);
                    return Ok(());
                }
            }
        }
        Err(refusal.unwrap_or_else(|| self.no_place(&search)))
    }

    fn no_place(&self, search: &Search) -> RangeError {
        let OwnedRequest::WriteRange { targets, .. } = &search.request else {
            unreachable!("a range write")
        };
        let known = targets.intersection(self.given.all()).total_bytes();
        let all = targets.total_bytes();
        RangeError::NoPlace {
            sectors: search.need.sectors,
            alignment: search.need.alignment,
            targets: all,
            taken: all.min(known + search.taken),
        }
    }

    fn try_part(
        &mut self,
        index: usize,
        request: Request<'_>,
        begin_by: Option<Duration>,
        whole: Ticket,
        number: usize,
        sectors: u64,
    ) -> Result<(), RangeError> {
        let now = self.clock().time();
        let member = &mut self.members[index];
        let (work, submitted) = (work_of(&request), member.device.clock().time());
        member.is_dirty |= work == Work::Write;
        let ticket = match begin_by {
            None => member.device.submit(request)?,
            Some(begin_by) => {
                let begin_by = member
                    .device
                    .clock()
                    .time()
                    .saturating_add(begin_by.saturating_sub(now));
                member.device.submit_by(request, begin_by)?
            }
        };
        let part = Part {
            whole,
            index: number,
            sectors,
            work,
            submitted,
        };
        member.outstanding.insert(ticket, part);
        Ok(())
    }

    /// A part that is refused has completed with that error; the others go on.
    fn start_part(
        &mut self,
        index: usize,
        request: Request<'_>,
        begin_by: Option<Duration>,
        ticket: Ticket,
        number: usize,
        sectors: u64,
    ) {
        if let Err(error) = self.try_part(index, request, begin_by, ticket, number, sectors) {
            self.members[index].is_dirty = true; // It may have been a flush.
            let now = self.clock().time();
            let first = self.members[index].first;
            let whole = self.whole.get_mut(&ticket).expect("expected before its parts");
            whole.parts[number] = Some(Err(error.moved_up(first)));
            whole.at = whole.at.max(now);
        }
    }

    fn expect(&mut self, ticket: Ticket, parts: usize, search: Option<Search>) {
        let whole = WholeRequest {
            parts: vec![None; parts],
            at: Duration::ZERO,
            search,
        };
        self.whole.insert(ticket, whole);
    }

    fn complete(&mut self, index: usize, completion: Completion) {
        let at = self.our_time(index, completion.at);
        let member = &mut self.members[index];
        let part = member.outstanding.remove(&completion.ticket);
        let part = part.expect("a member completes what it was asked");
        match &completion.result {
            Ok(_) if completion.at > Duration::ZERO => {
                member.service.completed(part.work, part.submitted, completion.at);
            }
            Err(_) => member.is_dirty |= part.work == Work::Flush,
            Ok(_) => {} // It has no clock.
        }
        let first = member.first;
        let whole = self.whole.get_mut(&part.whole).expect("of a whole");
        whole.at = whole.at.max(at);
        if let (Err(RangeError::NoPlace { taken, .. }), Some(search)) = (&completion.result, &mut whole.search) {
            search.taken += taken;
            if let Err(error) = self.search(part.whole) {
                let whole = self.whole.get_mut(&part.whole).expect("of a whole");
                whole.parts[0] = Some(Err(error));
            }
        } else {
            let result = completion.result;
            whole.parts[part.index] = Some(match result {
                Ok(done) => Ok(done.moved_up(first)),
                Err(error) => Err(error.moved_up(first)),
            });
        }
        self.settle(part.whole);
    }

    /// Completes a request if all its parts are.
    fn settle(&mut self, ticket: Ticket) {
        let complete = |whole: &WholeRequest| whole.parts.iter().all(Option::is_some);
        if !self.whole.get(&ticket).is_some_and(complete) {
            return;
        }
        let WholeRequest { parts, at, search } = self.whole.remove(&ticket).expect("it was there");
        let result = parts.into_iter().flatten().reduce(join).expect("at least a part");
        if search.is_some()
            && let Ok(Done::Written(place)) = &result
        {
            self.given.give(ticket, place.clone());
        }
        self.done.push_back(Completion { ticket, result, at });
        if let Some((_, known)) = self.barrier.take_if(|(barrier, _)| *barrier == ticket) {
            self.given.forget(&known);
        }
        self.release();
    }

    /// Completes a request that no member has.
    fn end(&mut self, ticket: Ticket, result: Result<Done, RangeError>) {
        let at = self.clock().time();
        self.done.push_back(Completion { ticket, result, at });
    }

    /// Nothing passes a barrier; and a barrier waits for range writes, which may still have to go to another member.
    fn may_start(&self, request: &OwnedRequest) -> bool {
        let is_separator = matches!(request, OwnedRequest::Barrier | OwnedRequest::Flush);
        let searches = || self.whole.values().any(|whole| whole.search.is_some());
        self.barrier.is_none() && !(is_separator && searches())
    }

    /// Starts what was held, as far as it may.
    fn release(&mut self) {
        while let Some(held) = self.held.pop_front() {
            if !self.may_start(&held.request) {
                self.held.push_front(held);
                return;
            }
            self.keep_in_step();
            let (ticket, now) = (held.ticket, self.clock().time());
            let begun = match held.begin_by.filter(|&begin_by| begin_by < now) {
                Some(begin_by) => Err(RangeError::Late { begin_by }),
                None => self.start(held),
            };
            if let Err(error) = begun {
                self.end(ticket, Err(error));
            }
        }
    }

    fn hand_out(&mut self) -> Option<Completion> {
        let completion = self.done.pop_front()?;
        self.given.tell(&completion);
        Some(completion)
    }
}

/// What a request is measured as.
fn work_of(request: &Request<'_>) -> Work {
    match request {
        Request::Read { .. } => Work::Read,
        Request::Write { .. } | Request::WriteRange { .. } => Work::Write,
        Request::Flush => Work::Flush,
        Request::Barrier => Work::Other,
    }
}

impl<D: RangeDevice> Member<D> {
    /// A flush is none where there is nothing to make durable.
    fn separator(&mut self, request: &OwnedRequest) -> Request<'static> {
        match request {
            OwnedRequest::Flush if std::mem::take(&mut self.is_dirty) => Request::Flush,
            _ => Request::Barrier,
        }
    }

    /// When one more write would be durable, from now on.
    fn expected(&self) -> Duration {
        let outstanding = self.outstanding.values().map(|part| (part.work, part.submitted));
        self.service.expected(outstanding, self.device.clock().time())
    }

    fn load(&self) -> u64 {
        self.outstanding.values().map(|part| part.sectors).sum()
    }
}

impl<'a> Request<'a> {
    /// As a member says it that begins at `first`.
    fn moved_down(self, first: u64) -> Request<'a> {
        match self {
            Self::Read { at, sectors } => Self::Read {
                at: at - first,
                sectors,
            },
            Self::Write { at, data } => Self::Write { at: at - first, data },
            other => other,
        }
    }
}

impl Done {
    fn moved_up(self, by: u64) -> Self {
        match self {
            Self::Written(place) => Self::Written(place.start + by..place.end + by),
            other => other,
        }
    }
}

impl RangeError {
    fn moved_up(self, by: u64) -> Self {
        match self {
            Self::Io {
                errno,
                place: Some(place),
            } => Self::Io {
                errno,
                place: Some(place.start + by..place.end + by),
            },
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
        self.take(request, None)
    }

    fn poll(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.gather();
        }
        self.hand_out()
    }

    fn wait(&mut self) -> Option<Completion> {
        while self.done.is_empty() {
            self.gather();
            if self.done.is_empty() && !self.wait_for_any() {
                return None;
            }
        }
        self.hand_out()
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.take(request, Some(begin_by))
    }

    /// A request that has parts on several members is not taken back.
    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        if let Some(index) = self.held.iter().position(|held| held.ticket == ticket) {
            if matches!(self.held[index].request, OwnedRequest::Barrier | OwnedRequest::Flush) {
                return Err(RangeError::Begun { ticket });
            }
            self.held.remove(index);
            self.end(ticket, Err(RangeError::Cancelled));
            return Ok(());
        }
        if self.whole.get(&ticket).is_none_or(|whole| whole.parts.len() > 1) {
            return Err(RangeError::Begun { ticket });
        }
        for member in &mut self.members {
            if let Some((&part, _)) = member.outstanding.iter().find(|(_, part)| part.whole == ticket) {
                return member.device.cancel(part).map_err(|error| match error {
                    RangeError::Begun { .. } => RangeError::Begun { ticket },
                    other => other,
                });
            }
        }
        Err(RangeError::Begun { ticket })
    }

    fn clock(&self) -> Clock {
        self.our_clock()
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        match self.done.front() {
            Some(completion) => Some(completion.at),
            None => self.next_of_members(),
        }
    }

    fn pass_until(&mut self, time: Duration) {
        for member in &mut self.members {
            member.device.pass_until(time);
        }
    }

    fn borders(&self) -> Vec<u64> {
        let borders = |member: &Member<D>| {
            let within = member.device.borders().into_iter().map(|border| member.first + border);
            std::iter::once(member.first).chain(within).collect::<Vec<_>>()
        };
        self.members.iter().flat_map(borders).skip(1).collect()
    }

    fn wake(&mut self, waker: &Waker) -> bool {
        self.waker = Some(waker.clone());
        self.wake_by(waker)
    }
}
