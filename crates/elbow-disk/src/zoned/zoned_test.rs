//! A zoned device by itself: where range writes go, what is freed, what is refused.

use elbow_file::Errno;
use elbow_file::range_device::{Blocking, RangeDevice, RangeError, ZoneRoom};
use elbow_file::zoned::{ZoneFault, ZoneGeometry, ZoneState, ZonedStorage, ZonesDouble};
use elbow_ranges::RangeSet;

use super::{FIXED_SECTORS, ZonedDevice, ZonedError};
use crate::region::planted::{Bug, PLANTED};
use crate::region::{Log, Lsn, Region, RegionError};

const CAPACITY: u64 = 8;
const GEOMETRY: ZoneGeometry = ZoneGeometry {
    sector_bytes: 128,
    conventional: 0,
    sequential: 6,
    zone_sectors: 10,
    capacity: CAPACITY,
    active_max: Some(2),
};

type Device = Blocking<ZonedDevice<ZonesDouble>>;

fn device() -> Device {
    Blocking::new(ZonedDevice::open(ZonesDouble::new(GEOMETRY)).expect("a device"))
}

/// Addresses of a zone.
fn zone(index: u64) -> std::ops::Range<u64> {
    let first = FIXED_SECTORS + index * CAPACITY;
    first..first + CAPACITY
}

fn all(device: &Device) -> RangeSet {
    std::iter::once(FIXED_SECTORS..device.shape().sectors).collect()
}

fn sectors(tag: u8, count: usize) -> Vec<u8> {
    vec![tag; 128 * count]
}

#[test]
fn a_range_write_is_an_append_and_says_where() {
    let mut device = device();
    assert_eq!(device.shape().sectors, FIXED_SECTORS + 4 * CAPACITY);
    let targets = all(&device);
    assert_eq!(device.write_range(&targets, 1, &sectors(1, 3)), Ok(zone(0).start));
    assert_eq!(device.write_range(&targets, 1, &sectors(2, 3)), Ok(zone(0).start + 3));
    assert_eq!(
        device.write_range(&targets, 1, &sectors(3, 3)),
        Ok(zone(1).start),
        "2 of 3 are left"
    );
    assert_eq!(device.read(zone(0).start + 3, 3), Ok(sectors(2, 3)));
    assert_eq!(device.read(zone(2).start, 2), Ok(sectors(0, 2)), "never written");
    let across = [sectors(1, 3), sectors(2, 3)].concat();
    let read = device.read(zone(0).start, CAPACITY + 3).expect("two zones");
    assert_eq!(read[..across.len()], across);
    assert_eq!(read[read.len() - 3 * 128..], sectors(3, 3));
}

#[test]
fn only_what_follows_the_write_pointer_is_taken() {
    let mut device = device();
    let targets = all(&device);
    device.write_range(&targets, 1, &sectors(1, 3)).expect("an append");
    let elsewhere: RangeSet = std::iter::once(zone(0).start + 4..zone(0).end).collect();
    let refused = device.write_range(&elsewhere, 1, &sectors(2, 2));
    assert!(matches!(refused, Err(RangeError::NoPlace { .. })), "{refused:?}");
    let refused = device.write(zone(0).start, &sectors(2, 1));
    assert!(matches!(refused, Err(RangeError::Unsupported(_))), "{refused:?}");
    assert_eq!(device.read(zone(0).start, 3), Ok(sectors(1, 3)));
}

/// A host that names all of a zone has no use for it; one that does not know of all that was written there has not said that.
#[test]
fn a_zone_is_freed_when_all_of_it_is_a_target_of_a_host_that_knows_what_is_there() {
    let mut device = device();
    let targets = all(&device);
    for index in 0..4 {
        let at = device.write_range(&targets, 1, &sectors(1 + index, 7));
        assert_eq!(at, Ok(zone(index.into()).start));
    }
    let refused = device.write_range(&targets, 1, &sectors(9, 7));
    assert!(
        matches!(refused, Err(RangeError::NoPlace { .. })),
        "places were given: {refused:?}"
    );
    device.flush().expect("a flush");
    let mut part = targets.clone();
    (0..4).for_each(|index| part.remove(zone(index).start + 3, zone(index).start + 4));
    let refused = device.write_range(&part, 1, &sectors(9, 2));
    assert!(
        matches!(refused, Err(RangeError::NoPlace { .. })),
        "one sector of each is needed: {refused:?}"
    );
    part.insert(zone(2).start, zone(2).end);
    assert_eq!(device.write_range(&part, 1, &sectors(9, 2)), Ok(zone(2).start));
    let resets = device.device().storage().resets();
    assert_eq!(resets, 1);
    assert_eq!(
        device.read(zone(2).start, 3),
        Ok([sectors(9, 2), sectors(0, 1)].concat())
    );
    assert_eq!(device.read(zone(1).start, 7), Ok(sectors(2, 7)));
}

#[test]
fn what_is_left_is_told() {
    let mut device = device();
    let targets = all(&device);
    let room = |device: &Device| device.room_in_zones(&targets).expect("it has zones");
    let (zone, head) = (CAPACITY, 0);
    assert_eq!(room(&device), ZoneRoom { head, fresh: 4, zone });
    device.write_range(&targets, 1, &sectors(1, 3)).expect("an append");
    assert_eq!(
        room(&device),
        ZoneRoom {
            head: 5,
            fresh: 3,
            zone
        }
    );
    device.write_range(&targets, 1, &sectors(1, 6)).expect("an append");
    assert_eq!(
        room(&device),
        ZoneRoom {
            head: 2,
            fresh: 2,
            zone
        },
        "what was given is not free"
    );
    device.flush().expect("a flush");
    assert_eq!(
        room(&device),
        ZoneRoom {
            head: 2,
            fresh: 3,
            zone
        }
    );
}

#[test]
fn a_zone_that_is_given_up_is_left() {
    let mut device = device();
    let targets = all(&device);
    device.write_range(&targets, 1, &sectors(1, 3)).expect("an append");
    device
        .device()
        .storage()
        .fail(0, ZoneFault::Becomes(ZoneState::ReadOnly));
    assert_eq!(device.write_range(&targets, 1, &sectors(2, 2)), Ok(zone(1).start));
    assert_eq!(device.read(zone(0).start, 3), Ok(sectors(1, 3)), "it is still read");
    assert_eq!(device.device().storage().fired(), 1);
    device.device().storage().fail(0, ZoneFault::Torn(1));
    let failed = device.write_range(&targets, 1, &sectors(3, 2));
    assert!(
        matches!(failed, Err(RangeError::Io { errno: Errno::IO, .. })),
        "{failed:?}"
    );
    assert_eq!(
        device.write_range(&targets, 1, &sectors(4, 2)),
        Ok(zone(1).start + 3),
        "behind what was torn"
    );
}

#[test]
fn the_fixed_sectors_are_written_anew_for_ever() {
    for conventional in [0, 1] {
        let mut storage = ZonesDouble::new(ZoneGeometry {
            conventional,
            ..GEOMETRY
        });
        for round in 0..20 {
            let mut device = Blocking::new(ZonedDevice::open(&mut storage).expect("a device"));
            assert_eq!(device.read(0, 1), Ok(sectors(round, 1)), "{conventional} conventional");
            device.write(0, &sectors(round + 1, 1)).expect("a write");
            device.write(1, &sectors(round, 1)).expect("a write");
            assert_eq!(
                device.read(0, 2),
                Ok([sectors(round + 1, 1), sectors(round, 1)].concat())
            );
        }
        assert_eq!(storage.resets() > 0, conventional == 0, "zones took turns");
    }
}

/// Cuts while the fixed sectors are written and now and then flushed: what is found is not older than what was flushed.
fn fixed_sectors_after_cuts() -> Result<(), String> {
    let mut storage = ZonesDouble::new(GEOMETRY);
    let mut device = Blocking::new(ZonedDevice::open(&mut storage).expect("a device"));
    let mut flushed = vec![(0, 0)];
    for tag in 1..12 {
        device.write(u64::from(tag % 2), &sectors(tag, 1)).expect("a write");
        if tag == 3 || tag == 8 {
            device.flush().expect("a flush");
            flushed.push((device.device().storage().now(), tag));
        }
    }
    drop(device);
    for moment in 0..=storage.now() {
        let durable = flushed
            .iter()
            .rev()
            .find(|(since, _)| *since <= moment)
            .map_or(0, |&(_, tag)| tag);
        for mut image in storage.cut_at(moment).images(1) {
            let mut left = Blocking::new(ZonedDevice::open(&mut image).expect("a device"));
            let found = left.read(0, FIXED_SECTORS).expect("a read");
            let (newest, other) = (found[0].max(found[128]), found[0].min(found[128]));
            if newest < durable || (newest > 0 && other != newest - 1) {
                return Err(format!("{other} and {newest} at {moment}, and {durable} was flushed"));
            }
        }
    }
    Ok(())
}

#[test]
fn what_was_flushed_of_the_fixed_sectors_survives_any_power_cut() {
    fixed_sectors_after_cuts().expect("nothing older");
    PLANTED.set(Some(Bug::HeaderZoneResetEarly));
    let found = fixed_sectors_after_cuts();
    PLANTED.set(None);
    found.expect_err("the zone with what was flushed was begun anew too early");
}

/// The one that has the newest block is not the one that is begun anew.
#[test]
fn a_failure_in_one_zone_of_the_headers_does_not_lose_what_the_other_has() {
    for call in 0..5 {
        for fault in [
            ZoneFault::Refused,
            ZoneFault::Torn(2),
            ZoneFault::Becomes(ZoneState::ReadOnly),
        ] {
            let mut storage = ZonesDouble::new(GEOMETRY);
            let mut device = Blocking::new(ZonedDevice::open(&mut storage).expect("a device"));
            (1..5).for_each(|tag| device.write(0, &sectors(tag, 1)).expect("a write"));
            device.flush().expect("a flush");
            device.device().storage().fail(call, fault);
            let written: Vec<bool> = (5..7).map(|tag| device.write(0, &sectors(tag, 1)).is_ok()).collect();
            let newest = if written[1] { 6 } else { 4 + u8::from(written[0]) };
            assert!(device.read(0, 1).expect("a read")[0] >= 4);
            drop(device);
            let mut left = Blocking::new(ZonedDevice::open(&mut storage).expect("a device"));
            let found = left.read(0, 1).expect("a read")[0];
            assert!(
                found >= newest,
                "{fault:?} at {call}: {found} was found, {newest} was written"
            );
        }
    }
}

#[test]
fn a_full_log_is_truncated_entry_by_entry() {
    let mut zones = ZonesDouble::new(GEOMETRY);
    let mut log = Log::format(ZonedDevice::open(&mut zones).expect("a device"), 7).expect("a log");
    let mut lsns: Vec<Lsn> = Vec::new();
    for round in 0..6 {
        let full = loop {
            match log.append(&[1; 100]) {
                Ok(lsn) => lsns.push(lsn),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, RegionError::Full { .. }), "{full}");
        let mut refused = 0;
        while log.append(&[1; 100]).map(|lsn| lsns.push(lsn)).is_err() {
            refused += 1;
            lsns.remove(0);
            let next = lsns.first().copied().unwrap_or(log.end());
            log.truncate_before(next)
                .unwrap_or_else(|error| panic!("round {round}: {error}"));
            log.sync().expect("a sync");
        }
        assert!(refused > 0 && !lsns.is_empty(), "round {round}: {refused} refused");
    }
    log.sync().expect("a sync");
    drop(log);
    let mut log = Log::open(ZonedDevice::open(&mut zones).expect("a device")).expect("a log");
    let found: Result<Vec<Lsn>, RegionError> = log.iter_from(Lsn(0)).map(|entry| entry.map(|(lsn, _)| lsn)).collect();
    assert_eq!(found, Ok(lsns));
}

#[test]
fn what_cannot_be_is_refused_and_says_why() {
    let opened = |geometry| ZonedDevice::open(ZonesDouble::new(geometry)).map(|device| device.shape().sectors);
    let few = opened(ZoneGeometry {
        sequential: 4,
        ..GEOMETRY
    });
    assert_eq!(few, Err(ZonedError::TooFew { found: 2, needed: 3 }));
    let one = opened(ZoneGeometry {
        sequential: 1,
        ..GEOMETRY
    });
    assert_eq!(one, Err(ZonedError::TooFew { found: 1, needed: 2 }));
    let active_max = Some(1);
    let active = opened(ZoneGeometry { active_max, ..GEOMETRY });
    assert_eq!(active, Err(ZonedError::Active { found: 1, needed: 2 }));
    let conventional = 1;
    assert!(
        opened(ZoneGeometry {
            active_max,
            conventional,
            ..GEOMETRY
        })
        .is_ok()
    );

    let mut zones = ZonesDouble::new(GEOMETRY);
    let region = Region::format(ZonedDevice::open(&mut zones).expect("a device"), 8, 7);
    assert!(matches!(region, Err(RegionError::Zones { logical_sectors: 8 })));
    let mut log = Log::format(ZonedDevice::open(&mut zones).expect("a device"), 7).expect("a log");
    let long = log.append(&[1; 128 * 9]);
    assert!(matches!(long, Err(RegionError::Length { .. })), "{long:?}");
}

/// Zones are named by their order: with one that has gone the rest have other addresses, and that is seen.
#[test]
fn a_log_whose_zone_went_offline_is_refused() {
    let mut zones = ZonesDouble::new(GEOMETRY);
    drop(Log::format(ZonedDevice::open(&mut zones).expect("a device"), 7).expect("a log"));
    zones.give_up(3, ZoneState::Offline);
    assert!(zones.report().is_ok_and(|zones| zones[3].state == ZoneState::Offline));
    let opened = Log::open(ZonedDevice::open(&mut zones).expect("a device"));
    assert!(matches!(opened, Err(RegionError::Shape { .. })));
}
