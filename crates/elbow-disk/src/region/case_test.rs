//! Layouts and contents that random runs do not come to: each was a mistake once, or is made by somebody who means harm.

use elbow_file::range_device::{CutImage, Members, MemoryDevice, RangeDevice, Request, VolatileDevice};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::format::{self, Age, Header};
use super::planted::{Bug, PLANTED};
use super::{Log, Region, RegionError, least_sectors};

const ID: u64 = 7;
const SECTOR_BYTES: u32 = 512;

fn age(incarnation: u64, sequence: u64) -> Age {
    Age { incarnation, sequence }
}

fn put(device: &mut impl RangeDevice, at: u64, data: &[u8]) {
    device.submit(Request::Write { at, data }).expect("it is on the device");
    let completion = device.wait().expect("it is outstanding");
    completion.result.expect("nothing fails");
}

/// An empty region of so many sectors.
fn formatted(sectors: u64, logical_sectors: u64) -> MemoryDevice {
    let mut device = MemoryDevice::new(SECTOR_BYTES, sectors);
    drop(Region::format(&mut device, logical_sectors, ID).expect("there is room"));
    device
}

fn header_of(device: &MemoryDevice, incarnation: u64) -> Header {
    let sectors = device.shape().sectors;
    Header {
        sector_bytes: SECTOR_BYTES,
        id: ID,
        incarnation,
        logical_sectors: 20,
        sectors,
        mark: None,
    }
}

/// The last sector of a superseded record begins like the record that took its place.
#[test]
fn the_end_of_a_record_does_not_hide_the_next() {
    let mut stale = vec![0; 512];
    stale[..448].fill(1);
    stale[448] = b'E'; // the first of a second sector, as that of a record is
    let mut device = formatted(20, 1);
    put(
        &mut device,
        2,
        &format::record(ID, age(0, 1), &(0..1), &stale, SECTOR_BYTES),
    );
    put(
        &mut device,
        3,
        &format::record(ID, age(0, 2), &(0..1), &[7; 100], SECTOR_BYTES),
    );
    let mut expected = vec![7; 100];
    expected.resize(512, 0);
    for (bug, is_found) in [(None, true), (Some(Bug::PaddingUnchecked), false)] {
        PLANTED.set(bug);
        let data = Region::open(&mut device).expect("a region").read(0, 1).expect("whole");
        PLANTED.set(None);
        assert_eq!(data == expected, is_found, "{bug:?}");
    }
}

/// Ten sectors that are outstanding, and one that the device writes before them into the middle of what is free.
#[test]
fn a_later_write_does_not_take_the_place_of_an_earlier_one() {
    for seed in 0..200 {
        let mut device = MemoryDevice::capricious(SECTOR_BYTES, 2 + 12, seed);
        let mut region = Region::format(&mut device, 20, ID).expect("there is room");
        region.write(0, &[1; 9 * 512]).expect("there is room");
        region
            .write(15, &[[2; 100].as_slice(), &[0; 412]].concat())
            .expect("there is room");
        region.flush().unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

#[test]
fn a_full_log_can_be_truncated() {
    for is_reopened in [false, true] {
        let mut device = MemoryDevice::new(SECTOR_BYTES, 40);
        let mut log = Log::format(&mut device, ID).expect("there is room");
        let mut lsns = Vec::new();
        let refused = loop {
            match log.append(&[3; 200]) {
                Ok(lsn) => lsns.push(lsn),
                Err(refused) => break refused,
            }
        };
        assert!(matches!(refused, RegionError::Full { free: 1, .. }), "{refused}");
        if is_reopened {
            drop(log);
            log = Log::open(&mut device).expect("a log");
        }
        for &lsn in &lsns[1..] {
            log.truncate_before(lsn).expect("a sector is kept for it");
        }
        let last = log.append(&[4; 200]).expect("there is room now");
        log.sync().expect("nothing fails");
        let mut log = Log::open(&mut device).expect("a log");
        let left: Vec<_> = log.iter_from(lsns[0]).map(|entry| entry.expect("whole").0).collect();
        assert_eq!(left, [lsns[lsns.len() - 1], last]);
    }
}

/// Either copy of the header is enough for all that was flushed, and for what is written after.
#[test]
fn one_damaged_header_copy_loses_nothing() {
    for openings in 0..3 {
        for copy in 0..2 {
            let mut device = formatted(40, 20);
            for _ in 0..openings {
                drop(Region::open(&mut device).expect("a region"));
            }
            let mut region = Region::open(&mut device).expect("a region");
            region.write(3, &[1; 512]).expect("there is room");
            region.flush().expect("nothing fails");
            put(&mut device, copy, &[9; 512]);
            for byte in 2..5 {
                let mut region = Region::open(&mut device).expect("a region");
                let first = region.read(3, 1).expect("whole")[0];
                assert_eq!(first, byte - 1, "{openings}, copy {copy}");
                region.write(3, &[byte; 512]).expect("there is room");
                region.flush().expect("nothing fails");
                let damaged = (copy + u64::from(byte)) % 2; // the one and then the other
                put(&mut device, damaged, &[9; 512]);
            }
        }
    }
}

/// Images of all cuts of what is done to a region on a device with a cache.
fn images(device: &VolatileDevice<MemoryDevice>, from: usize) -> Vec<CutImage> {
    let cuts = (from..=device.now()).map(|moment| device.cut_at(moment));
    cuts.flat_map(|cut| cut.images(1).collect::<Vec<_>>()).collect()
}

/// R has three sectors and C lies over the first of them; neither is durable when R is in the way. The device takes any place.
#[test]
fn a_record_is_not_torn_by_moving_its_rest() {
    let mut moved = 0;
    for seed in 0..60 {
        let mut device = VolatileDevice::new(MemoryDevice::capricious(SECTOR_BYTES, 14, seed));
        let mut region = Region::format(&mut device, 20, ID).expect("there is room");
        let from = region.device().now();
        for data in [vec![1; 3 * 512], vec![2; 512]] {
            region.write(0, &data).expect("there is room");
            region.settle().expect("nothing fails");
        }
        let _ = region.write(10, &[3; 3 * 512]); // it may be full
        moved += region.statistics().moved;
        region.flush().expect("nothing fails");
        drop(region);
        for image in images(&device, from) {
            let mut region = Region::open(image.to_memory()).expect("a region");
            let data = region.read(0, 3).expect("whole");
            let is_torn = data[512] != data[1024] || (data[0], data[512]) == (0, 1);
            assert!(!is_torn, "seed {seed}, {image}");
        }
    }
    assert!(moved > 0);
}

/// A region that was left with one copy of the header behind, and the other damaged.
#[test]
fn records_one_incarnation_above_the_header_count() {
    let mut device = formatted(40, 20);
    put(&mut device, 0, &[9; 512]);
    put(
        &mut device,
        2,
        &format::record(ID, age(0, 5), &(0..1), &[1; 512], SECTOR_BYTES),
    );
    put(
        &mut device,
        4,
        &format::record(ID, age(1, 0), &(0..1), &[2; 512], SECTOR_BYTES),
    );
    let mut region = Region::open(&mut device).expect("a region");
    assert_eq!(region.read(0, 1).expect("whole"), [2; 512]);
}

#[test]
fn what_is_outstanding_is_waited_for() {
    for seed in 0..50 {
        let mut device = MemoryDevice::capricious(SECTOR_BYTES, 40, seed);
        let mut region = Region::format(&mut device, 20, ID).expect("there is room");
        region.write(3, &[1; 512]).expect("there is room");
        drop(region);
        let mut region = Region::open(&mut device).expect("a region");
        assert_eq!(region.read(3, 1).expect("whole")[0], 1, "{seed}");
    }
}

#[test]
fn the_same_id_does_not_bring_an_earlier_region_back() {
    let mut device = formatted(40, 20);
    for _ in 0..3 {
        let mut region = Region::format(&mut device, 20, ID).expect("there is room");
        assert_eq!(region.read(3, 1).expect("zeros"), [0; 512]);
        region.write(3, &[1; 512]).expect("there is room");
        region.flush().expect("nothing fails");
        drop(Region::format(&mut device, 20, ID).expect("there is room"));
        assert_eq!(Region::open(&mut device).expect("a region").statistics().found, 0);
    }
}

/// Contents that no region writes, with checksums that are right.
#[test]
fn hostile_contents_are_refused_or_passed_by() {
    let mut device = MemoryDevice::new(SECTOR_BYTES, 40);
    drop(Log::format(&mut device, ID).expect("there is room"));
    let log_sectors = 1 << 48;
    put(
        &mut device,
        2,
        &format::record(ID, age(0, 1), &(0..log_sectors), &[1], SECTOR_BYTES),
    );
    let mut log = Log::open(&mut device).expect("a log");
    assert_eq!((log.start(), log.end()), (super::Lsn(0), super::Lsn(0)));
    assert_eq!(
        (log.statistics().found, log.statistics().torn),
        (0, 1),
        "a byte in 2^48 sectors"
    );
    log.append(b"entry").expect("there is room");

    let mut device = formatted(40, 20);
    put(
        &mut device,
        2,
        &format::record(ID, age(0, u64::MAX), &(0..1), &[1; 512], SECTOR_BYTES),
    );
    put(
        &mut device,
        5,
        &format::record(ID, age(u64::MAX, 1), &(0..1), &[2; 512], SECTOR_BYTES),
    );
    for byte in 1..4 {
        let mut region = Region::open(&mut device).expect("a region");
        assert_eq!(region.read(0, 1).expect("whole"), [byte; 512]);
        region.write(0, &[byte + 1; 512]).expect("there is room");
        region.flush().expect("nothing fails");
    }

    for found in [1 << 63, u64::MAX] {
        let header = header_of(&device, found);
        put(&mut device, 0, &header.to_sector());
        assert_eq!(
            Region::open(&mut device).err(),
            Some(RegionError::Incarnation { found })
        );
    }
}

#[test]
fn small_sectors_are_refused() {
    for sector_bytes in [16, 64, 127] {
        let mut device = MemoryDevice::new(sector_bytes, 1000);
        let too_small = RegionError::TooSmall {
            needed: 4,
            sectors: 1000,
            sector_bytes,
        };
        assert_eq!(Region::open(&mut device).err(), Some(too_small.clone()));
        assert_eq!(Region::format(&mut device, 10, ID).err(), Some(too_small));
    }
    assert!(matches!(
        Header::from_sector(b"ELBREGN\0\x01\0\0\0\x10\0\0\0"),
        Ok(None)
    ));
}

/// Free sectors on both sides of a border counted as one range: a write was refused a place, and the region had failed.
#[test]
fn a_region_on_several_devices_is_full_before_it_fails() {
    let mut full = 0;
    for seed in 0..30 {
        let mut rng = StdRng::seed_from_u64(seed);
        let sectors = [0; 3].map(|_| rng.random_range(9..14));
        let members = sectors.map(|sectors| MemoryDevice::capricious(SECTOR_BYTES, sectors, seed));
        let mut device = Members::new(members.into());
        assert_eq!(device.borders(), [sectors[0], sectors[0] + sectors[1]]);
        let mut region = Region::format(&mut device, 20, ID).expect("there is room");
        for step in 0..120_u8 {
            let start = rng.random_range(0..17);
            let data = vec![step + 1; rng.random_range(1..4) * 512];
            match region.write(start, &data).and_then(|()| region.settle()) {
                Ok(()) => {}
                Err(RegionError::Full { .. }) => full += 1,
                other => panic!("seed {seed}, step {step}: {other:?}"),
            }
        }
        let before = region.read(0, 20).expect("whole");
        region.flush().expect("nothing fails");
        drop(region);
        assert_eq!(Region::open(&mut device).expect("a region").read(0, 20), Ok(before));
    }
    assert!(full > 0);
}

/// Region of so many sectors after each logical one was written alone, several times; where it was full, when.
fn write_alone(device: MemoryDevice, logical_sectors: u64) -> Result<(), (u8, u64)> {
    let mut region = Region::format(device, logical_sectors, ID).expect("there is room");
    for round in 1..5_u8 {
        for number in 0..logical_sectors {
            let at = (number * 37 + u64::from(round)) % logical_sectors;
            region.write(at, &[round; 512]).map_err(|_| (round, number))?;
        }
    }
    Ok(())
}

/// A region of twice its size had no room for its size in single sectors, whatever was flushed.
#[test]
fn a_region_of_the_least_size_takes_each_sector_again_and_again() {
    for logical_sectors in [1, 100, 500] {
        let sectors = least_sectors(logical_sectors);
        assert_eq!(
            write_alone(MemoryDevice::new(SECTOR_BYTES, sectors), logical_sectors),
            Ok(())
        );
        for seed in 0..8 {
            let device = MemoryDevice::capricious(SECTOR_BYTES, sectors, seed);
            assert_eq!(
                write_alone(device, logical_sectors),
                Ok(()),
                "{logical_sectors}, seed {seed}"
            );
        }
    }
    let twice = MemoryDevice::new(SECTOR_BYTES, 2 * 500);
    assert_eq!(write_alone(twice, 500), Err((1, 498)), "less is too little");
}
