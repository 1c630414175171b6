//! Zones as a range device: a range write is an append to a zone.
//!
//! ```text
//!   addresses   0 1 | zone .......... | zone .......... | zone ..........          sectors that can be written, one zone behind the other
//!                │      written  ^head    written: all      empty
//!                └ two sectors that are written anew in their place: in a conventional zone, else in two zones of their own
//!
//!   range write {rest of the head, ..}              ──> an append to the zone that is the head; its place is the answer
//!   range write {.., all of a zone}                 ──> where it does not fit into the head: that zone is reset, and is the head
//! ```
//!
//! In a range write (OSDI 2008) the host names all places that it would take, and the device says which it took. In a zone (NVMe Zone Append) the device
//! alone knows the place, and says it. One is the other: the targets that can be taken are what follows the write pointer. And freeing needs no word of
//! its own: whoever names *all* sectors of a zone as targets has no use for any of it, and so allows the reset. What always holds:
//!
//! - one zone is written at a time, the head; what does not fit begins another, the next in a circle that is empty or may be reset, and the old one is
//!   finished. So at most two zones are written in part, one of them that of the two fixed sectors;
//! - a zone is reset only for a write all of whose targets are there, without the places that were given since the last barrier;
//! - a zone that the medium gives up while it is written is left, and the write goes elsewhere: any other target is as good;
//! - the two fixed sectors are read as they were at the last flush or later, whatever is lost ([`fixed`]).
//!
//! A [`Log`](crate::region::Log) lives on that as it is: its records die in the order in which they were written, so zones become free as a whole.
//! Requests are carried out as they are submitted. Zones that are offline are left out: they have no addresses.
//!
//! Not here: moving what lives out of zones that are mostly dead, so no region but a log; and several heads at a time.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), section 3; NVM Express, *Zoned Namespace Command Set*,
//! section 3.4.1 (Zone Append); Bjørling et al., *ZNS: Avoiding the Block Interface Tax for Flash-based SSDs*, USENIX ATC 2021.
//! Why it is so: `docs/design/zoned.md`.

#[cfg(test)]
mod crash_test;
mod error;
mod fixed;
#[cfg(test)]
mod zoned_test;

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use elbow_file::Errno;
use elbow_file::range_device::{
    Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket, ZoneRoom,
};
use elbow_file::zoned::{Zone, ZoneState, ZonedStorage};
use elbow_ranges::RangeSet;

use crate::region::planted::{Bug, has};

pub use error::ZonedError;
pub use fixed::FIXED_SECTORS;

use fixed::Fixed;

/// One that is written, one that is kept for truncating, and one that is to be freed.
const ZONES_MIN: usize = 3;

/// A zoned device as a range device. See the [module](self) for what holds.
///
/// ```
/// use elbow_disk::region::Log;
/// use elbow_disk::zoned::ZonedDevice;
/// use elbow_file::zoned::{ZoneGeometry, ZonesDouble};
///
/// let geometry =
///     ZoneGeometry { sector_bytes: 512, conventional: 0, sequential: 6, zone_sectors: 64, capacity: 48, active_max: Some(2) };
/// let mut zones = ZonesDouble::new(geometry);
/// let mut log = Log::format(ZonedDevice::open(&mut zones)?, 7)?;
/// let first = log.append(b"debit 5")?;
/// let second = log.append(b"credit 5")?;
/// log.sync()?;
/// log.truncate_before(second)?;
/// drop(log);
///
/// let mut log = Log::open(ZonedDevice::open(&mut zones)?)?;
/// let entries: Result<Vec<_>, _> = log.iter_from(first).collect();
/// assert_eq!(entries?, [(second, b"credit 5".to_vec())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ZonedDevice<Z> {
    storage: Z,
    shape: Shape,
    fixed: Fixed,
    /// In the order of their addresses.
    zones: Vec<DataZone>,
    /// The one that is written.
    head: Option<usize>,
    tickets: u64,
    /// Carried out and not handed out; as long as the caller makes it.
    done: VecDeque<Completion>,
    given: GivenPlaces,
    /// Of the first flush that failed.
    flush_error: Option<Errno>,
}

/// A zone that takes range writes.
#[derive(Debug)]
struct DataZone {
    zone: Zone,
    /// Address of its first sector on the range device.
    first: u64,
}

impl DataZone {
    /// Addresses of sectors of the zone.
    fn addresses(&self, sectors: &Range<u64>) -> Range<u64> {
        self.first + sectors.start - self.zone.start..self.first + sectors.end - self.zone.start
    }

    /// All of it is empty, or may be for all that the host cares.
    fn is_fresh(&self, free: &RangeSet) -> bool {
        let places = self.addresses(&self.zone.places());
        let is_free = match has(Bug::ZoneResetEarly) {
            true => free.contains(places.start),
            false => free.covers(places.start, places.end),
        };
        self.zone.is_writable() && is_free
    }

    /// Whether a write fits from a sector of the zone on, among the free places.
    fn fits(&self, from: u64, free: &RangeSet, sectors: u64, alignment: u64) -> bool {
        let place = self.addresses(&(from..from + sectors));
        place.start.is_multiple_of(alignment)
            && from + sectors <= self.zone.places().end
            && (free.covers(place.start, place.end) || has(Bug::ZoneResetEarly))
    }
}

impl<Z: ZonedStorage> ZonedDevice<Z> {
    /// Looks at the zones of a storage. Nothing is written.
    ///
    /// # Errors
    /// Those of the storage; [`ZonedError::TooFew`], [`ZonedError::Active`].
    pub fn open(mut storage: Z) -> Result<Self, ZonedError> {
        let call = |what| move |errno| ZonedError::Storage { what, errno };
        let sector_bytes = storage.sector_bytes();
        let mut zones = storage.report().map_err(call("the zones are asked for"))?;
        let fixed = Fixed::open(&mut storage, &mut zones)?;
        let is_used = |zone: &Zone| !matches!(zone.state, ZoneState::Conventional | ZoneState::Offline);
        zones.retain(is_used);
        if zones.len() < ZONES_MIN {
            let (found, needed) = (zones.len(), ZONES_MIN);
            return Err(ZonedError::TooFew { found, needed });
        }
        let needed = 1 + u32::from(fixed.is_appended());
        if let Some(found) = storage.active_max().filter(|&max| max < needed) {
            return Err(ZonedError::Active { found, needed });
        }
        let zones = addressed(zones);
        let last = zones.last().expect("there are some");
        let sectors = last.first + last.zone.capacity;
        Ok(Self {
            storage,
            shape: Shape { sector_bytes, sectors },
            fixed,
            head: begun(&zones),
            zones,
            tickets: 0,
            done: VecDeque::new(),
            given: GivenPlaces::default(),
            flush_error: None,
        })
    }

    /// The storage below.
    pub fn storage(&mut self) -> &mut Z {
        &mut self.storage
    }

    fn carry_out(&mut self, request: &Request<'_>) -> Result<Done, RangeError> {
        match *request {
            Request::Read { at, sectors } => self.read(at, sectors),
            Request::Write { at, data } => self.write_fixed(at, data),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => self.append(targets, alignment, data),
            Request::Barrier => Ok(Done::Passed),
            Request::Flush => self.flush(),
        }
    }

    /// Of what was never written: zeros.
    fn read(&mut self, at: u64, sectors: u64) -> Result<Done, RangeError> {
        let sector_bytes = u64::from(self.shape.sector_bytes);
        let mut data = vec![0; usize::try_from(sectors * sector_bytes).expect("it fits into memory")];
        let mut put = |place: &Range<u64>, bytes: &[u8]| {
            let from = ((place.start - at) * sector_bytes) as usize;
            data[from..from + bytes.len()].copy_from_slice(bytes);
        };
        let wanted = at..at + sectors;
        let fixed = common(&wanted, &(0..FIXED_SECTORS));
        put(&fixed, self.fixed.content(&fixed));
        let first = self.zones.partition_point(|zone| zone.first + zone.zone.capacity <= at);
        for zone in self.zones[first..].iter().take_while(|zone| zone.first < wanted.end) {
            let place = common(&wanted, &zone.addresses(&zone.zone.written()));
            if !place.is_empty() {
                let from = zone.zone.start + (place.start - zone.first);
                let read = self.storage.read(from, place.end - place.start);
                put(&place, &read.map_err(|errno| at_place(errno, &place))?);
            }
        }
        Ok(Done::Read(data))
    }

    fn write_fixed(&mut self, at: u64, data: &[u8]) -> Result<Done, RangeError> {
        let place = at..at + data.len() as u64 / u64::from(self.shape.sector_bytes);
        if place.end > FIXED_SECTORS {
            return Err(RangeError::Unsupported("a write at a fixed place of a zone"));
        }
        // A zone of theirs may have to be begun.
        let finished = self.finish_all_but(self.head);
        let written = finished.and_then(|()| self.fixed.write(&mut self.storage, at, data));
        written.map_err(|errno| at_place(errno, &place))?;
        Ok(Done::Written(place))
    }

    fn append(&mut self, targets: &RangeSet, alignment: u64, data: &[u8]) -> Result<Done, RangeError> {
        let sectors = data.len() as u64 / u64::from(self.shape.sector_bytes);
        let free = self.given.without(targets);
        let mut given_up = None;
        while let Some((index, is_new)) = self.pick(&free, sectors, alignment) {
            let begun = if is_new { self.begin(index) } else { Ok(()) };
            let appended = begun.and_then(|()| self.storage.append(&mut self.zones[index].zone, data));
            let zone = &self.zones[index];
            match appended {
                Ok(place) => return Ok(Done::Written(zone.addresses(&place))),
                // The medium has given it up. There is one zone less to choose from each time.
                Err(errno) if !zone.zone.is_writable() => given_up = Some((errno, index)),
                Err(errno) => return Err(at_place(errno, &zone.addresses(&zone.zone.places()))),
            }
        }
        let Some((errno, index)) = given_up else {
            let total = targets.total_bytes();
            return Err(RangeError::NoPlace {
                sectors,
                alignment,
                targets: total,
                taken: total - free.total_bytes(),
            });
        };
        // It may be there, in whole even: that is no refusal.
        let zone = &self.zones[index];
        Err(at_place(errno, &zone.addresses(&zone.zone.places())))
    }

    /// The zone that is written, if it has room, else the next in the circle that is empty, or may be; and whether it is begun anew.
    fn pick(&self, free: &RangeSet, sectors: u64, alignment: u64) -> Option<(usize, bool)> {
        let has_rest = |&index: &usize| {
            let zone = &self.zones[index];
            let rest = zone.zone.rest();
            rest.end - rest.start >= sectors && zone.fits(rest.start, free, sectors, alignment)
        };
        let is_fresh = |&index: &usize| {
            let zone = &self.zones[index];
            zone.is_fresh(free) && zone.fits(zone.zone.start, free, sectors, alignment)
        };
        let first = self.head.map_or(0, |head| head + 1);
        let mut circle = (first..self.zones.len()).chain(0..first);
        let head = self.head.filter(has_rest).map(|head| (head, false));
        head.or_else(|| circle.find(is_fresh).map(|next| (next, true)))
    }

    /// Begins a zone anew, as the head.
    fn begin(&mut self, index: usize) -> Result<(), Errno> {
        self.finish_all_but(Some(index))?;
        self.head = Some(index);
        let zone = &mut self.zones[index].zone;
        match zone.state {
            ZoneState::Empty => Ok(()),
            _ => self.storage.reset(zone),
        }
    }

    /// Finishes all zones that were begun but one, so that the device has room for one more. There is one at most where no crash has left more.
    fn finish_all_but(&mut self, stays: Option<usize>) -> Result<(), Errno> {
        for (index, DataZone { zone, .. }) in self.zones.iter_mut().enumerate() {
            if Some(index) != stays && zone.state == ZoneState::Open {
                let finished = self.storage.finish(zone);
                finished.or_else(|errno| if zone.is_writable() { Err(errno) } else { Ok(()) })?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<Done, RangeError> {
        if self.flush_error.is_none() {
            self.flush_error = self.storage.flush().err(); // fsync(2) tells an error once, and succeeds the next time
        }
        self.flush_error.map_or(Ok(Done::Passed), |errno| Err(errno.into()))
    }
}

/// One behind the other, behind the fixed sectors.
fn addressed(zones: Vec<Zone>) -> Vec<DataZone> {
    let mut next = FIXED_SECTORS;
    let zones = zones.into_iter().map(|zone| {
        let first = next;
        next += zone.capacity;
        DataZone { zone, first }
    });
    zones.collect()
}

/// The zone that was begun and has the most room. A crash may leave more than one, but only one where nothing was lost.
fn begun(zones: &[DataZone]) -> Option<usize> {
    let rest = |index: &usize| {
        let rest = zones[*index].zone.rest();
        rest.end - rest.start
    };
    let is_begun = |index: &usize| zones[*index].zone.state == ZoneState::Open;
    (0..zones.len()).filter(is_begun).max_by_key(rest)
}

fn common(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

fn at_place(errno: Errno, place: &Range<u64>) -> RangeError {
    let place = Some(place.clone());
    RangeError::Io { errno, place }
}

impl<Z: ZonedStorage> RangeDevice for ZonedDevice<Z> {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.shape.check(&request)?;
        let result = self.carry_out(&request);
        if let Err(refusal @ (RangeError::NoPlace { .. } | RangeError::Unsupported(_))) = result {
            return Err(refusal);
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.given.carried_out(ticket, &request, &result);
        let at = Duration::ZERO;
        self.done.push_back(Completion { ticket, result, at });
        Ok(ticket)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.done.pop_front()?;
        self.given.tell(&completion);
        Some(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        self.poll()
    }

    fn room_in_zones(&self, targets: &RangeSet) -> Option<ZoneRoom> {
        let free = self.given.without(targets);
        let rest = self.head.map_or(0..0, |head| {
            let head = &self.zones[head];
            head.addresses(&head.zone.rest())
        });
        let is_fresh = |&(index, zone): &(usize, &DataZone)| self.head != Some(index) && zone.is_fresh(&free);
        Some(ZoneRoom {
            head: if free.covers(rest.start, rest.end) {
                rest.end - rest.start
            } else {
                0
            },
            fresh: self.zones.iter().enumerate().filter(is_fresh).count() as u64,
            zone: self.zones.iter().map(|zone| zone.zone.capacity).min().unwrap_or(0),
        })
    }
}
