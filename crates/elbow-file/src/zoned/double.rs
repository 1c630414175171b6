//! Zones in memory, which know what a power cut would leave, and fail where they are told to.
//!
//! ```text
//!   zone 0   append append FLUSH append append append        a cut leaves any number of the sectors behind the flush, in order
//!   zone 1          append       RESET  append               here as well, whatever became of zone 0; and the reset may not have happened
//! ```
//!
//! Each call that changes something is a *moment*. Durable is what was done before a flush that succeeded. In a conventional zone any of the sectors that
//! were written since may be there. The history has no bound: this is for tests.

mod cut;

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Zone, ZoneState, ZonedStorage};
use crate::{Errno, Result};

pub use cut::ZoneCut;

/// How a [`ZonesDouble`] is laid out; lengths in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneGeometry {
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// Zones at the beginning that are written anywhere.
    pub conventional: usize,
    /// Zones behind them that are written in order.
    pub sequential: usize,
    /// From the start of one zone to that of the next.
    pub zone_sectors: u64,
    /// Sectors of a zone that can be written.
    pub capacity: u64,
    /// How many zones may be written in part at a time.
    pub active_max: Option<u32>,
}

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFault {
    /// EIO, and nothing was done.
    Refused,
    /// Of an append so many sectors are written, and then EIO.
    Torn(u64),
    /// The zone becomes read-only or offline, and EIO.
    Becomes(ZoneState),
}

/// Zones in memory.
///
/// ```
/// use elbow_file::zoned::{ZoneGeometry, ZonedStorage, ZonesDouble};
///
/// let geometry =
///     ZoneGeometry { sector_bytes: 512, conventional: 0, sequential: 3, zone_sectors: 16, capacity: 10, active_max: Some(2) };
/// let mut zones = ZonesDouble::new(geometry);
/// let mut second = zones.report()?.swap_remove(1);
/// assert_eq!(zones.append(&mut second, &[1; 1024])?, 16..18);
/// assert_eq!(zones.append(&mut second, &[2; 512])?, 18..19);
/// assert_eq!(zones.read(18, 1)?, [2; 512]);
///
/// // Of three sectors that were not flushed none, one, two or all may be left.
/// let left: Vec<u64> = zones.cut_at(zones.now()).images(1).map(|mut left| left.report().unwrap()[1].write_pointer).collect();
/// assert_eq!(left, [16, 17, 18, 19]);
/// # Ok::<(), elbow_file::Errno>(())
/// ```
#[derive(Clone, Debug)]
pub struct ZonesDouble {
    geometry: ZoneGeometry,
    zones: Vec<Stored>,
    /// What was there in the beginning, all of it durable.
    base: Vec<Stored>,
    history: Vec<Event>,
    calls: u64,
    /// By the number of the call.
    faults: BTreeMap<u64, ZoneFault>,
    fired: u64,
    /// Which of what was pending is there, if it is what a cut left.
    survivors: String,
}

/// A zone and what is written there.
#[derive(Clone, Debug)]
struct Stored {
    zone: Zone,
    bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Event {
    Append(usize, Vec<u8>),
    Overwrite(u64, Vec<u8>),
    Reset(usize),
    Finish(usize),
    Becomes(usize, ZoneState),
    Flush,
}

impl Stored {
    fn empty(zone: Zone, sector_bytes: u32) -> Self {
        let bytes = zone.capacity as usize * sector_bytes as usize;
        let bytes = vec![0; bytes];
        Self { zone, bytes }
    }

    fn append(&mut self, data: &[u8], sector_bytes: u32) {
        let at = (self.zone.write_pointer - self.zone.start) as usize * sector_bytes as usize;
        self.bytes[at..at + data.len()].copy_from_slice(data);
        self.zone.advance(data.len() as u64 / u64::from(sector_bytes));
    }

    fn reset(&mut self) {
        self.zone.reset();
        self.bytes.fill(0);
    }
}

impl ZonesDouble {
    /// Empty zones.
    #[must_use]
    pub fn new(geometry: ZoneGeometry) -> Self {
        let zone = |index: usize| {
            let start = index as u64 * geometry.zone_sectors;
            let is_conventional = index < geometry.conventional;
            let state = if is_conventional {
                ZoneState::Conventional
            } else {
                ZoneState::Empty
            };
            let capacity = if is_conventional {
                geometry.zone_sectors
            } else {
                geometry.capacity
            };
            let write_pointer = if is_conventional { start + capacity } else { start };
            Zone {
                start,
                capacity,
                write_pointer,
                state,
            }
        };
        let zones = (0..geometry.conventional + geometry.sequential).map(zone);
        Self::holding(
            geometry,
            zones.map(|zone| Stored::empty(zone, geometry.sector_bytes)).collect(),
            String::new(),
        )
    }

    fn holding(geometry: ZoneGeometry, zones: Vec<Stored>, survivors: String) -> Self {
        Self {
            geometry,
            base: zones.clone(),
            zones,
            history: Vec::new(),
            calls: 0,
            faults: BTreeMap::new(),
            fired: 0,
            survivors,
        }
    }

    /// Lets a call fail: the first one from now on is 0. Calls of [`report`](ZonedStorage::report) do not count.
    pub fn fail(&mut self, call: u64, fault: ZoneFault) {
        self.faults.insert(self.calls + call, fault);
    }

    /// How many calls have failed because they were told to. A test asks that in the end.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// The medium gives up a zone.
    ///
    /// # Panics
    /// Where there is no such zone.
    pub fn give_up(&mut self, zone: usize, state: ZoneState) {
        self.zones[zone].zone.state = state;
        self.history.push(Event::Becomes(zone, state));
    }

    /// The moment now: the number of calls so far that changed something.
    #[must_use]
    pub fn now(&self) -> usize {
        self.history.len()
    }

    /// How often a zone was reset.
    #[must_use]
    pub fn resets(&self) -> usize {
        let is_reset = |event: &&Event| matches!(event, Event::Reset(_));
        self.history.iter().filter(is_reset).count()
    }

    /// What a power cut at a moment would find.
    ///
    /// # Panics
    /// When that moment has not come.
    #[must_use]
    pub fn cut_at(&self, moment: usize) -> ZoneCut {
        ZoneCut::new(self.geometry, self.base.clone(), &self.history[..moment])
    }

    /// Of what a cut left: how many of the pending steps of each zone are there; nothing of others.
    #[must_use]
    pub fn survivors(&self) -> &str {
        &self.survivors
    }

    fn index(&self, at: u64) -> Result<usize> {
        let index = usize::try_from(at / self.geometry.zone_sectors).map_err(|_| Errno::INVAL)?;
        (index < self.zones.len()).then_some(index).ok_or(Errno::INVAL)
    }

    /// The next fault, if this call has one.
    fn fault(&mut self) -> Option<ZoneFault> {
        let fault = self.faults.remove(&self.calls);
        self.calls += 1;
        self.fired += u64::from(fault.is_some());
        fault
    }

    /// Does to a zone what a fault says, and what the host is told.
    fn carry_out(&mut self, index: usize, fault: ZoneFault, data: &[u8]) -> Errno {
        match fault {
            ZoneFault::Refused => {}
            ZoneFault::Torn(sectors) => {
                let bytes = data.len().min(sectors as usize * self.geometry.sector_bytes as usize);
                self.store(index, &data[..bytes]);
            }
            ZoneFault::Becomes(state) => self.give_up(index, state),
        }
        Errno::IO
    }

    fn store(&mut self, index: usize, data: &[u8]) {
        self.zones[index].append(data, self.geometry.sector_bytes);
        self.history.push(Event::Append(index, data.to_vec()));
    }

    /// What cannot be appended is refused as Linux does: EIO for another place than the write pointer and for a zone that is not written any more,
    /// EOVERFLOW for one zone too many.
    fn check_append(&self, index: usize, zone: &Zone, data: &[u8]) -> Result<()> {
        let truth = &self.zones[index].zone;
        let (bytes, sector_bytes) = (data.len() as u64, u64::from(self.geometry.sector_bytes));
        let rest = truth.rest();
        let fits = bytes / sector_bytes <= rest.end - rest.start;
        let is_active = |stored: &Stored| stored.zone.state == ZoneState::Open;
        let active = self.zones.iter().filter(|stored| is_active(stored)).count();
        let is_new = truth.state == ZoneState::Empty;
        match () {
            () if bytes == 0 || !bytes.is_multiple_of(sector_bytes) => Err(Errno::INVAL),
            () if zone.write_pointer != truth.write_pointer || !fits => Err(Errno::IO),
            () if is_new && self.geometry.active_max.is_some_and(|max| active >= max as usize) => Err(Errno::OVERFLOW),
            () => Ok(()),
        }
    }

    /// Makes of a zone what a call does, and says of it what is so then.
    fn change(&mut self, zone: &mut Zone, change: impl FnOnce(&mut Self, usize) -> Result<()>) -> Result<()> {
        let index = self.index(zone.start)?;
        let changed = match self.fault() {
            Some(fault) => Err(self.carry_out(index, fault, &[])),
            None if !self.zones[index].zone.is_writable() => Err(Errno::IO),
            None => change(self, index),
        };
        zone.clone_from(&self.zones[index].zone);
        changed
    }
}

impl ZonedStorage for ZonesDouble {
    fn sector_bytes(&self) -> u32 {
        self.geometry.sector_bytes
    }

    fn active_max(&self) -> Option<u32> {
        self.geometry.active_max
    }

    fn report(&mut self) -> Result<Vec<Zone>> {
        Ok(self.zones.iter().map(|stored| stored.zone.clone()).collect())
    }

    fn read(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>> {
        let index = self.index(at)?;
        if self.fault().is_some() {
            return Err(Errno::IO);
        }
        let Stored { zone, bytes } = &self.zones[index];
        let is_there = at.checked_add(sectors).is_some_and(|end| end <= zone.write_pointer);
        if zone.state == ZoneState::Offline || !is_there {
            return Err(Errno::IO);
        }
        let byte = |sectors: u64| (sectors * u64::from(self.geometry.sector_bytes)) as usize;
        Ok(bytes[byte(at - zone.start)..byte(at - zone.start + sectors)].to_vec())
    }

    fn append(&mut self, zone: &mut Zone, data: &[u8]) -> Result<Range<u64>> {
        let index = self.index(zone.start)?;
        let checked = self.check_append(index, zone, data);
        let appended = match (checked, self.fault()) {
            (Err(error), _) => Err(error),
            (Ok(()), Some(fault)) => Err(self.carry_out(index, fault, data)),
            (Ok(()), None) => {
                self.store(index, data);
                Ok(())
            }
        };
        let at = zone.write_pointer;
        zone.clone_from(&self.zones[index].zone);
        appended.map(|()| at..at + data.len() as u64 / u64::from(self.geometry.sector_bytes))
    }

    fn overwrite(&mut self, at: u64, data: &[u8]) -> Result<()> {
        let index = self.index(at)?;
        let fault = self.fault();
        let Stored { zone, bytes } = &mut self.zones[index];
        let from = (at - zone.start) as usize * self.geometry.sector_bytes as usize;
        let to = bytes.get_mut(from..from + data.len());
        match (zone.state, to, fault) {
            (ZoneState::Conventional, Some(to), None) => to.copy_from_slice(data),
            _ => return Err(Errno::IO),
        }
        self.history.push(Event::Overwrite(at, data.to_vec()));
        Ok(())
    }

    fn reset(&mut self, zone: &mut Zone) -> Result<()> {
        self.change(zone, |this, index| {
            this.zones[index].reset();
            this.history.push(Event::Reset(index));
            Ok(())
        })
    }

    fn finish(&mut self, zone: &mut Zone) -> Result<()> {
        self.change(zone, |this, index| {
            this.zones[index].zone.finish();
            this.history.push(Event::Finish(index));
            Ok(())
        })
    }

    fn flush(&mut self) -> Result<()> {
        if self.fault().is_some() {
            return Err(Errno::IO);
        }
        self.history.push(Event::Flush);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(conventional: usize, active_max: Option<u32>) -> (ZonesDouble, Vec<Zone>) {
        let geometry = ZoneGeometry {
            sector_bytes: 512,
            conventional,
            sequential: 3,
            zone_sectors: 8,
            capacity: 6,
            active_max,
        };
        let mut zones = ZonesDouble::new(geometry);
        let report = zones.report().expect("a report");
        (zones, report)
    }

    fn sectors(tag: u8, count: usize) -> Vec<u8> {
        vec![tag; 512 * count]
    }

    #[test]
    fn a_zone_is_written_in_order_to_its_capacity_and_freed_as_a_whole() {
        let (mut zones, mut known) = zones(0, None);
        assert_eq!(zones.append(&mut known[1], &sectors(1, 4)), Ok(8..12));
        assert_eq!(zones.append(&mut known[1], &sectors(2, 3)), Err(Errno::IO), "5 of 6");
        let mut stale = Zone {
            write_pointer: 8,
            ..known[1].clone()
        };
        assert_eq!(zones.append(&mut stale, &sectors(3, 1)), Err(Errno::IO), "elsewhere");
        assert_eq!(stale.write_pointer, 12, "it says where");
        assert_eq!(zones.append(&mut known[1], &sectors(4, 2)), Ok(12..14));
        assert_eq!(known[1].state, ZoneState::Full);
        assert_eq!(
            zones.append(&mut known[1], &sectors(5, 1)),
            Err(Errno::IO),
            "it is full"
        );
        assert_eq!(zones.read(14, 1), Err(Errno::IO), "behind the capacity");
        zones.reset(&mut known[1]).expect("a reset");
        assert_eq!(zones.read(8, 1), Err(Errno::IO), "nothing is written");
        assert_eq!(zones.append(&mut known[1], &sectors(6, 1)), Ok(8..9));
        assert_eq!(zones.read(8, 1), Ok(sectors(6, 1)));
    }

    #[test]
    fn no_more_zones_are_written_in_part_than_the_device_has_room_for() {
        let (mut zones, mut known) = zones(0, Some(2));
        for zone in &mut known[..2] {
            zones.append(zone, &sectors(1, 1)).expect("one of two");
        }
        assert_eq!(zones.append(&mut known[2], &sectors(1, 1)), Err(Errno::OVERFLOW));
        zones.finish(&mut known[0]).expect("it is finished");
        assert_eq!(zones.append(&mut known[2], &sectors(1, 1)), Ok(16..17));
    }

    #[test]
    fn a_fault_says_how_much_was_written_and_what_became_of_the_zone() {
        let (mut zones, mut known) = zones(0, None);
        zones.fail(0, ZoneFault::Torn(2));
        zones.fail(1, ZoneFault::Becomes(ZoneState::ReadOnly));
        zones.fail(3, ZoneFault::Refused);
        assert_eq!(zones.append(&mut known[0], &sectors(1, 3)), Err(Errno::IO));
        assert_eq!((known[0].write_pointer, known[0].state), (2, ZoneState::Open));
        assert_eq!(zones.append(&mut known[0], &sectors(1, 1)), Err(Errno::IO));
        assert_eq!((known[0].state, known[0].rest()), (ZoneState::ReadOnly, 2..2));
        assert_eq!(zones.read(0, 2), Ok(sectors(1, 2)));
        assert_eq!(zones.flush(), Err(Errno::IO));
        assert_eq!(zones.reset(&mut known[0]), Err(Errno::IO), "it is read-only");
        assert_eq!(zones.fired(), 3);
    }

    /// Every prefix in each zone, whatever is left of the other one; and what was flushed in all of them.
    #[test]
    fn a_cut_leaves_prefixes_of_what_was_not_flushed() {
        let (mut zones, mut known) = zones(0, None);
        zones.append(&mut known[0], &sectors(1, 1)).expect("an append");
        zones.append(&mut known[1], &sectors(1, 6)).expect("an append");
        zones.flush().expect("a flush");
        zones.append(&mut known[0], &sectors(2, 2)).expect("an append");
        zones.reset(&mut known[1]).expect("a reset");
        zones.append(&mut known[1], &sectors(3, 1)).expect("an append");
        let mut found: Vec<[u64; 2]> = Vec::new();
        for mut image in zones.cut_at(zones.now()).images(1) {
            let report = image.report().expect("a report");
            assert_eq!(image.read(0, 1), Ok(sectors(1, 1)), "{}", image.survivors());
            found.push([report[0].write_pointer, report[1].write_pointer]);
        }
        found.sort_unstable();
        let expected = [
            [1, 8],
            [1, 9],
            [1, 14],
            [2, 8],
            [2, 9],
            [2, 14],
            [3, 8],
            [3, 9],
            [3, 14],
        ];
        assert_eq!(found, expected);
        assert_eq!(zones.cut_at(3).images(1).count(), 1, "all is durable");
    }

    #[test]
    fn a_cut_leaves_any_sectors_of_a_conventional_zone() {
        let (mut zones, _) = zones(1, None);
        zones.overwrite(2, &sectors(1, 1)).expect("a write");
        zones.overwrite(2, &sectors(2, 1)).expect("a write over it");
        zones.overwrite(3, &sectors(3, 1)).expect("a write");
        let mut found: Vec<[u8; 2]> = Vec::new();
        for mut image in zones.cut_at(zones.now()).images(1) {
            let read = image.read(2, 2).expect("a read");
            found.push([read[0], read[512]]);
        }
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [[0, 0], [0, 3], [1, 0], [1, 3], [2, 0], [2, 3]]);
        assert_eq!(
            zones.overwrite(9, &sectors(1, 1)),
            Err(Errno::IO),
            "no conventional zone"
        );
    }
}
