//! What every range device must do, as a test that any device can be put to.
//!
//! [`check`] makes devices again and again, and panics with the broken rule and the seed. It uses only a window of the
//! device, so that a modelled drive of a gigabyte can be tested as well; the device has to keep what is written in that
//! window.

#![allow(clippy::single_range_in_vec_init, reason = "a set of one range")]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use elbow_ranges::RangeSet;

use super::{Blocking, Clock, Completion, Done, RangeDevice, RangeError, Request, Ticket};

/// Sectors of a device that the contract needs.
pub const SECTORS_MIN: u64 = 64;
/// Sectors that it uses at most.
const WINDOW: u64 = 256;
/// Requests of a random case.
const STEPS: u64 = 200;

/// Puts devices, each freshly made, of at least [`SECTORS_MIN`] sectors, to the test: every rule once, and random
/// requests from so many seeds.
///
/// ```
/// use elbow_file::range_device::{MemoryDevice, contract};
///
/// contract::check(&mut || MemoryDevice::new(512, 128), 0..3);
/// ```
///
/// # Panics
/// When a rule is broken.
pub fn check<D: RangeDevice>(make: &mut dyn FnMut() -> D, seeds: Range<u64>) {
    ordinary_writes_are_read_back(make());
    a_range_write_says_where_it_went(make());
    overlapping_ranges_get_different_places(make());
    a_place_is_given_once_until_a_barrier(make());
    a_barrier_speaks_of_what_its_host_was_told(make());
    what_is_taken_back_is_not_written(make());
    what_is_late_is_not_written(make());
    completions_are_dated(make());
    no_place_is_an_error_that_says_so(make());
    what_cannot_be_is_refused(make());
    barriers_separate(make());
    for seed in seeds {
        let _told = TellOnPanic(seed);
        Case::new(make(), seed).run();
    }
}

struct TellOnPanic(u64);

impl Drop for TellOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("contract of a range device: seed {}", self.0);
        }
    }
}

fn set(ranges: &[Range<u64>]) -> RangeSet {
    ranges.iter().cloned().collect()
}

/// Sectors that all differ from each other and from those of other tags.
fn pattern(sector_bytes: u32, sectors: u64, tag: u64) -> Vec<u8> {
    let sector = |number: u64| {
        let mark = (tag << 16 | number).to_le_bytes();
        mark.into_iter().cycle().take(sector_bytes as usize)
    };
    (0..sectors).flat_map(sector).collect()
}

fn ordinary_writes_are_read_back<D: RangeDevice>(device: D) {
    let mut device = Blocking::new(device);
    let bytes = device.shape().sector_bytes;
    let (old, new) = (pattern(bytes, 8, 1), pattern(bytes, 2, 2));
    device.write(3, &old).expect("a write");
    device.write(5, &new).expect("a write over it");
    device.flush().expect("a flush");
    let sector = bytes as usize;
    let expected = [&old[..2 * sector], &new, &old[4 * sector..]].concat();
    assert!(device.read(3, 8) == Ok(expected), "what was written last is read");
}

fn a_range_write_says_where_it_went<D: RangeDevice>(device: D) {
    let mut device = Blocking::new(device);
    let bytes = device.shape().sector_bytes;
    let before = device.read(0, SECTORS_MIN).expect("a read");
    let data = pattern(bytes, 4, 3);
    let at = device.write_range(&set(&[5..8, 9..14, 33..40]), 4, &data);
    let at = at.expect("36..40 fits");
    assert_eq!(at, 36, "the only place that is aligned and within one range");
    let after = device.read(0, SECTORS_MIN).expect("a read");
    let place = at as usize * bytes as usize..(at as usize + 4) * bytes as usize;
    assert!(
        after[place.clone()] == data,
        "the data lies where the answer says, in order"
    );
    assert!(
        after[..place.start] == before[..place.start] && after[place.end..] == before[place.end..],
        "nothing else was written"
    );
}

fn overlapping_ranges_get_different_places<D: RangeDevice>(mut device: D) {
    let data = pattern(device.shape().sector_bytes, 1, 4);
    let targets = set(&[10..14, 20..24]);
    let request = Request::WriteRange {
        targets: &targets,
        alignment: 1,
        data: &data,
    };
    for _ in 0..8 {
        device.submit(request).expect("one of eight places");
    }
    let mut places = RangeSet::new();
    while let Some(completion) = device.wait() {
        let Ok(Done::Written(place)) = completion.result else {
            panic!("a range write gave {completion:?}")
        };
        assert!(
            !places.overlaps(place.start, place.end),
            "{place:?} was given twice, before: {places:?}"
        );
        places.insert(place.start, place.end);
    }
    assert_eq!(places, targets, "eight sectors for eight writes");
}

/// Targets are made before it is known where the write before went: that place is not given to the next one.
fn a_place_is_given_once_until_a_barrier<D: RangeDevice>(device: D) {
    let mut device = Blocking::new(device);
    let bytes = device.shape().sector_bytes;
    let targets = set(&[10..12]);
    let mut places = Vec::new();
    for tag in 30..32 {
        let at = device
            .write_range(&targets, 1, &pattern(bytes, 1, tag))
            .expect("one of two places");
        assert!(
            device.read(at, 1) == Ok(pattern(bytes, 1, tag)),
            "the write of sector {at} is there"
        );
        assert!(!places.contains(&at), "sector {at} was given twice without a barrier");
        places.push(at);
    }
    for separator in [Request::Barrier, Request::Flush] {
        let third = device.write_range(&targets, 1, &pattern(bytes, 1, 32));
        assert!(
            matches!(third, Err(RangeError::NoPlace { taken: 2, .. })),
            "both places were given since the last barrier: {third:?}"
        );
        let ticket = device.submit(separator).expect("a separator");
        assert_eq!(device.wait_for(ticket), Ok(Done::Passed));
        let at = device.write_range(&targets, 2, &pattern(bytes, 2, 33));
        assert_eq!(at, Ok(10), "after {separator:?} both places may be given again");
    }
}

/// A host knows of a place when it has taken the completion that names it: a barrier from before that says nothing of
/// it.
fn a_barrier_speaks_of_what_its_host_was_told<D: RangeDevice>(mut device: D) {
    let data = pattern(device.shape().sector_bytes, 1, 34);
    let targets = set(&[10..12]);
    let write = Request::WriteRange {
        targets: &targets,
        alignment: 1,
        data: &data,
    };
    for request in [write, Request::Barrier, write] {
        device.submit(request).expect("there is room");
    }
    let mut places = RangeSet::new();
    while let Some(completion) = device.wait() {
        if let Done::Written(place) = completion.result.expect("room for two") {
            assert!(!places.overlaps(place.start, place.end), "{place:?} was given twice");
            places.insert(place.start, place.end);
        }
    }
    assert_eq!(places, targets);
}

fn no_place_is_an_error_that_says_so<D: RangeDevice>(device: D) {
    let mut device = Blocking::new(device);
    let bytes = device.shape().sector_bytes;
    let before = device.read(0, SECTORS_MIN).expect("a read");
    let (one, three) = (pattern(bytes, 1, 5), pattern(bytes, 3, 6));
    for (targets, alignment, data) in [
        (set(&[]), 1, &one),
        (set(&[4..6, 7..9]), 1, &three),
        (set(&[5..8]), 4, &three),
        (set(&[17..32]), 16, &one),
    ] {
        let result = device.write_range(&targets, alignment, data);
        assert!(
            matches!(result, Err(RangeError::NoPlace { .. })),
            "{targets:?} aligned to {alignment}: {result:?}"
        );
    }
    assert!(device.read(0, SECTORS_MIN) == Ok(before), "nothing was written");
    assert_full_is_no_place(&mut device, &one);
    device.barrier().expect("a barrier");
    let at = device.write_range(&set(&[8..9]), 1, &one);
    assert_eq!(at, Ok(8), "a place may be given again behind a barrier");
}

/// One place for two outstanding writes: one gets it, the other is told.
fn assert_full_is_no_place<D: RangeDevice>(device: &mut Blocking<D>, data: &[u8]) {
    let targets = set(&[8..9]);
    let request = Request::WriteRange {
        targets: &targets,
        alignment: 1,
        data,
    };
    let tickets: Vec<_> = (0..2).map(|_| device.submit(request)).collect();
    let results: Vec<_> = tickets
        .into_iter()
        .map(|ticket| ticket.and_then(|ticket| device.wait_for(ticket)))
        .collect();
    assert_eq!(
        results
            .iter()
            .filter(|result| **result == Ok(Done::Written(8..9)))
            .count(),
        1
    );
    let refused = |result: &&Result<Done, RangeError>| matches!(result, Err(RangeError::NoPlace { .. }));
    assert_eq!(results.iter().filter(refused).count(), 1, "{results:?}");
}

fn what_cannot_be_is_refused<D: RangeDevice>(device: D) {
    let mut device = Blocking::new(device);
    let shape = device.shape();
    let one = pattern(shape.sector_bytes, 1, 7);
    let outside = |result: Result<(), RangeError>| matches!(result, Err(RangeError::Outside { .. }));
    assert!(
        outside(device.read(shape.sectors, 1).map(drop)),
        "a read behind the end"
    );
    assert!(
        outside(device.read(u64::MAX, 2).map(drop)),
        "a read whose end overflows"
    );
    assert!(outside(device.write(shape.sectors, &one)), "a write behind the end");
    let beyond = set(&[0..1, shape.sectors..shape.sectors + 1]);
    assert!(
        outside(device.write_range(&beyond, 1, &one).map(drop)),
        "a target behind the end"
    );
    let length = |result: Result<(), RangeError>| matches!(result, Err(RangeError::Length { .. }));
    assert!(length(device.write(0, &one[1..])), "a piece of a sector");
    assert!(length(device.write(0, &[])), "a write of nothing");
    assert!(length(device.read(0, 0).map(drop)), "a read of nothing");
    assert_eq!(device.write_range(&set(&[0..1]), 0, &one), Err(RangeError::Alignment));
}

fn barriers_separate<D: RangeDevice>(mut device: D) {
    let bytes = device.shape().sector_bytes;
    let mut before = Vec::new();
    for round in 0..4 {
        let data = pattern(bytes, 1, 8 + round);
        for at in 0..4 {
            before.push(device.submit(Request::Write { at, data: &data }).expect("a write"));
        }
        let separator = if round == 2 { Request::Flush } else { Request::Barrier };
        before.push(device.submit(separator).expect("a barrier"));
    }
    let mut order = Vec::new();
    while let Some(Completion { ticket, result, .. }) = device.wait() {
        result.expect("a write or a barrier");
        order.push(ticket);
    }
    for (expected, found) in before.chunks(5).zip(order.chunks(5)) {
        assert_eq!(
            expected.last(),
            found.last(),
            "a barrier comes after what was before it"
        );
        let mut found = found.to_vec();
        found.sort();
        assert_eq!(expected, found, "and before what comes after it");
    }
    assert_eq!(before.len(), order.len(), "each ticket completes once");
}

/// A device may take nothing back, but it says so, and what it takes back has not happened.
fn what_is_taken_back_is_not_written<D: RangeDevice>(device: D) {
    let mut device = Blocking::new(device);
    let bytes = device.shape().sector_bytes;
    let data = [30, 31, 32, 33].map(|tag| pattern(bytes, 1, tag));
    let mut tickets = Vec::new();
    for data in &data {
        tickets.push(device.submit(Request::Write { at: 5, data }).expect("a write"));
    }
    let barrier = device.submit(Request::Barrier).expect("a barrier");
    assert!(
        device.cancel(barrier).is_err(),
        "what comes after it rests on a barrier"
    );
    let never = device.cancel(Ticket(u64::MAX));
    assert!(never.is_err(), "a ticket that was never given");
    let cancelled = device.cancel(tickets[3]);
    for &ticket in &tickets[..3] {
        assert_eq!(device.wait_for(ticket), Ok(Done::Written(5..6)));
    }
    let (expected, content) = match cancelled {
        Ok(()) => (Err(RangeError::Cancelled), &data[2]),
        Err(RangeError::Begun { .. } | RangeError::Unsupported(_)) => (Ok(Done::Written(5..6)), &data[3]),
        Err(error) => panic!("cancelling gave {error:?}"),
    };
    assert_eq!(device.wait_for(tickets[3]), expected);
    assert_eq!(device.wait_for(barrier), Ok(Done::Passed));
    assert!(
        device.read(5, 1).as_ref() == Ok(content),
        "what was cancelled was not written"
    );
    assert!(device.cancel(tickets[0]).is_err(), "it is complete");
}

fn what_is_late_is_not_written<D: RangeDevice>(device: D) {
    let mut device = Blocking::new(device);
    let bytes = device.shape().sector_bytes;
    let [old, new] = [34, 35].map(|tag| pattern(bytes, 1, tag));
    device.write(6, &old).expect("a write");
    let write = Request::Write { at: 6, data: &new };
    let then = device.device().clock();
    let hour = then.time() + Duration::from_secs(3600);
    if then == Clock::None {
        let refused = device.submit_by(write, hour);
        assert!(
            matches!(refused, Err(RangeError::Unsupported(_))),
            "no clock, and {refused:?}"
        );
        return;
    }
    assert!(matches!(
        device.submit_by(Request::Barrier, hour),
        Err(RangeError::Unsupported(_))
    ));
    let (targets, alignment) = (&set(&[6..7]), 1);
    let anywhere = Request::WriteRange {
        targets,
        alignment,
        data: &new,
    };
    let_pass(device.device(), Duration::from_millis(1));
    for late in [write, anywhere] {
        let ticket = device.submit_by(late, then.time()).expect("a request");
        assert_eq!(device.wait_for(ticket), Err(RangeError::Late { begin_by: then.time() }));
        assert!(device.read(6, 1).as_ref() == Ok(&old), "what was late was not written");
    }
    for early in [write, anywhere] {
        let ticket = device.submit_by(early, hour).expect("a request");
        assert_eq!(device.wait_for(ticket), Ok(Done::Written(6..7)), "nothing else waits");
    }
    assert!(device.read(6, 1) == Ok(new), "what was in time was written");
}

/// Time goes by, and longer than so long.
fn let_pass(device: &mut impl RangeDevice, time: Duration) {
    match device.clock() {
        Clock::Modelled(now) => device.pass_until(now + 2 * time),
        Clock::Real(_) | Clock::None => std::thread::sleep(2 * time),
    }
}

fn completions_are_dated<D: RangeDevice>(mut device: D) {
    let data = pattern(device.shape().sector_bytes, 1, 36);
    let mut last = device.clock().time();
    for at in 0..8 {
        let request = if at % 2 == 0 {
            Request::Write { at, data: &data }
        } else {
            Request::Barrier
        };
        device.submit(request).expect("a request");
    }
    while let Some(completion) = device.wait() {
        let (at, now) = (completion.at, device.clock());
        if now != Clock::None {
            assert!(
                last <= at && at <= now.time(),
                "{last:?}, {at:?}, {now:?}: barriers order times, too"
            );
            last = at;
        }
    }
}

/// Random requests, many outstanding, against what is known about them.
struct Case<D> {
    device: D,
    random: u64,
    /// Content of the window, where it is known: sector to tag and number within the write.
    known: BTreeMap<u64, Vec<u8>>,
    /// Outstanding range writes, with what was given to others meanwhile and since the barrier before them.
    writes: BTreeMap<Ticket, Outstanding>,
    reads: BTreeMap<Ticket, (u64, Vec<u8>)>,
    /// Range writes that were taken back.
    cancelled: BTreeSet<Ticket>,
    /// Those outstanding, with what comes before each.
    barriers: BTreeMap<Ticket, BTreeSet<Ticket>>,
    window: u64,
    /// Sectors not yet owned by a completed write, as the owner of the device keeps them.
    free: RangeSet,
    /// The same at some moment since the last barrier: what targets are made of.
    stale: RangeSet,
    /// Places of which completions told since the last barrier.
    told: RangeSet,
}

struct Outstanding {
    targets: RangeSet,
    alignment: u64,
    data: Vec<u8>,
    others: RangeSet,
}

impl<D: RangeDevice> Case<D> {
    fn new(device: D, seed: u64) -> Self {
        let window = device.shape().sectors.min(WINDOW);
        Self {
            device,
            random: seed,
            known: BTreeMap::new(),
            writes: BTreeMap::new(),
            reads: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            barriers: BTreeMap::new(),
            window,
            free: set(&[0..window]),
            stale: set(&[0..window]),
            told: RangeSet::new(),
        }
    }

    /// A number below `bound` (SplitMix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn run(&mut self) {
        for step in 0..STEPS {
            match self.below(11) {
                0..4 => self.write_range(step),
                10 => self.cancel(),
                8 => self.barrier(),
                9 => self.stale = self.free.clone(),
                4 => self.read(),
                5 => self.give_back(),
                6 => {
                    while let Some(completion) = self.device.poll() {
                        self.completed(completion);
                    }
                }
                _ => {
                    if let Some(completion) = self.device.wait() {
                        self.completed(completion);
                    }
                }
            }
        }
        while let Some(completion) = self.device.wait() {
            self.completed(completion);
        }
        assert!(
            self.writes.is_empty() && self.reads.is_empty() && self.barriers.is_empty(),
            "each ticket completes"
        );
        self.read_all();
    }

    /// Nothing that was handed out was written over.
    fn read_all(&mut self) {
        for (at, expected) in std::mem::take(&mut self.known) {
            self.device.submit(Request::Read { at, sectors: 1 }).expect("a read");
            let result = self.device.wait().expect("it is outstanding").result;
            assert!(result == Ok(Done::Read(expected)), "sector {at} in the end");
        }
    }

    /// The lists are fresh: they know of all that was told.
    fn barrier(&mut self) {
        let request = [Request::Barrier, Request::Flush][self.below(2) as usize];
        let ticket = self.device.submit(request).expect("a barrier");
        let before = self.writes.keys().chain(self.reads.keys()).chain(self.barriers.keys());
        let before = before.copied().collect();
        self.barriers.insert(ticket, before);
        self.stale = self.free.clone();
        self.told = RangeSet::new();
    }

    /// Targets may be any sectors that were free at some moment since the last barrier, and mostly overlap those of
    /// outstanding writes.
    fn write_range(&mut self, tag: u64) {
        let (start, length) = (self.below(self.window), 1 + self.below(100));
        let targets = self.stale.intersection(&set(&[start..start + length]));
        let (sectors, alignment) = (1 + self.below(5), 1 << self.below(3));
        let data = pattern(self.device.shape().sector_bytes, sectors, tag);
        let request = Request::WriteRange {
            targets: &targets,
            alignment,
            data: &data,
        };
        match self.device.submit(request) {
            Ok(ticket) => {
                let others = self.told.clone();
                let write = Outstanding {
                    targets,
                    alignment,
                    data,
                    others,
                };
                assert!(self.writes.insert(ticket, write).is_none(), "{ticket:?} was used twice");
            }
            Err(RangeError::NoPlace { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads a sector that no outstanding write may touch.
    fn read(&mut self) {
        let at = self.below(self.window);
        let Some(expected) = self.known.get(&at).cloned() else {
            return;
        };
        let ticket = self.device.submit(Request::Read { at, sectors: 1 }).expect("a read");
        self.reads.insert(ticket, (at, expected));
    }

    /// Takes a range write back, if the device lets it: its place is then another's.
    fn cancel(&mut self) {
        let nth = self.below(self.writes.len().max(1) as u64);
        let Some(&ticket) = self.writes.keys().nth(nth as usize) else {
            return;
        };
        match self.device.cancel(ticket) {
            Ok(()) => self.cancelled.extend([ticket]),
            Err(RangeError::Begun { .. } | RangeError::Unsupported(_)) => {}
            Err(error) => panic!("cancelling gave {error}"),
        }
    }

    /// Frees a sector, unless somebody still reads it.
    fn give_back(&mut self) {
        let at = self.below(self.window);
        if !self.reads.values().any(|(place, _)| *place == at) && self.known.remove(&at).is_some() {
            self.free.insert(at, at + 1);
        }
    }

    fn completed(&mut self, completion: Completion) {
        if self.cancelled.remove(&completion.ticket) {
            // At once, before or after barriers.
            assert_eq!(completion.result, Err(RangeError::Cancelled), "it was taken back");
            self.writes.remove(&completion.ticket).expect("it was outstanding");
            self.barriers
                .values_mut()
                .for_each(|before| _ = before.remove(&completion.ticket));
            return;
        }
        for (barrier, before) in &mut self.barriers {
            let is_before = before.remove(&completion.ticket) || completion.ticket == *barrier;
            assert!(is_before, "{completion:?} overtook {barrier:?}");
        }
        if let Some(before) = self.barriers.remove(&completion.ticket) {
            assert!(before.is_empty(), "{completion:?} overtook {before:?}");
            return assert_eq!(completion.result, Ok(Done::Passed), "a barrier");
        }
        if let Some((at, expected)) = self.reads.remove(&completion.ticket) {
            assert!(completion.result == Ok(Done::Read(expected)), "a read of sector {at}");
            return;
        }
        let write = self.writes.remove(&completion.ticket);
        let write = write.unwrap_or_else(|| panic!("{completion:?} was not outstanding"));
        match completion.result {
            Ok(Done::Written(place)) => self.written(&write, &place),
            Err(RangeError::NoPlace { .. }) => {}
            other => panic!("a range write gave {other:?}"),
        }
    }

    fn written(&mut self, write: &Outstanding, place: &Range<u64>) {
        let sector_bytes = self.device.shape().sector_bytes as usize;
        assert_eq!((place.end - place.start) as usize * sector_bytes, write.data.len());
        assert!(
            place.start.is_multiple_of(write.alignment) && write.targets.covers(place.start, place.end),
            "{place:?} is not in {:?} or not aligned to {}",
            write.targets,
            write.alignment
        );
        assert!(
            !write.others.overlaps(place.start, place.end),
            "{place:?} was given to another that was outstanding at the same time, or since the last barrier"
        );
        for other in self.writes.values_mut() {
            other.others.insert(place.start, place.end);
        }
        self.told.insert(place.start, place.end);
        self.free.remove(place.start, place.end);
        for (sector, data) in place.clone().zip(write.data.chunks(sector_bytes)) {
            self.known.insert(sector, data.to_vec());
        }
    }
}
