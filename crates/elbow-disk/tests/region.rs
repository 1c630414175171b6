//! A log on the modelled drive: what an append and its sync take, in the drive's own time; and regions where there is little room.

use std::sync::Arc;
use std::time::Duration;

use elbow_disk::Drive;
use elbow_disk::device::{ModelledDevice, Setup};
use elbow_disk::region::{Log, Lsn, Region, RegionError, least_sectors};
use elbow_file::range_device::{
    Clock, Completion, Members, MemoryDevice, RangeDevice, RangeError, Request, Shape, Ticket,
};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The first sectors of a drive.
struct First<D>(D, u64);

impl<D: RangeDevice> RangeDevice for First<D> {
    fn shape(&self) -> Shape {
        Shape {
            sectors: self.1,
            ..self.0.shape()
        }
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.0.submit(request)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.0.poll()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.0.wait()
    }

    fn clock(&self) -> Clock {
        self.0.clock()
    }

    fn pass_until(&mut self, time: Duration) {
        self.0.pass_until(time);
    }
}

/// 4 MiB, of which a third is kept.
const SECTORS: u64 = 8192;
const KEPT: usize = 2700;
const APPENDS: usize = 6000;
const ENTRY: [u8; 200] = [5; 200];

fn hp() -> Arc<Drive> {
    Arc::new(Drive::named("hp-c2247a").expect("built in"))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn think(device: &mut impl RangeDevice, random: &mut Xoshiro256PlusPlus, most: Duration) {
    let time = device.clock().time() + most.mul_f64(random.random());
    device.pass_until(time);
}

/// Median of append and sync in a region of so many sectors, with that much to think between them.
fn in_a_region(most: Duration) -> Duration {
    let drive = hp();
    let mut device = First(ModelledDevice::new(&drive, Setup::default()), SECTORS);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut log = Log::format(&mut device, 1).expect("there is room");
    let mut times = Vec::new();
    let mut lsns: Vec<Lsn> = Vec::new();
    for number in 0..APPENDS {
        think(log.device(), &mut random, most);
        if number >= KEPT && number % 100 == 0 {
            log.truncate_before(lsns[number - KEPT]).expect("it is there");
        }
        let begin = log.device().clock().time();
        lsns.push(log.append(&ENTRY).expect("there is room"));
        log.sync().expect("nothing fails");
        times.push(log.device().clock().time() - begin);
    }
    let statistics = log.statistics();
    assert_eq!((statistics.forced_flushes, statistics.moved), (0, 0), "{statistics:?}");
    let mut log = Log::open(&mut device).expect("a log");
    let found: Vec<_> = log.iter_from(Lsn(0)).map(|entry| entry.expect("whole")).collect();
    assert_eq!(
        found.last().map(|(lsn, entry)| (*lsn, &entry[..])),
        lsns.last().map(|lsn| (*lsn, &ENTRY[..]))
    );
    assert!((KEPT..=KEPT + 100).contains(&found.len()), "{}", found.len());
    median(times)
}

/// The same written at fixed places, one after the other.
fn plain(most: Duration) -> Duration {
    let drive = hp();
    let mut device = ModelledDevice::new(&drive, Setup::default());
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut times = Vec::new();
    for number in 0..APPENDS as u64 {
        think(&mut device, &mut random, most);
        let begin = device.clock().time();
        let at = number % SECTORS;
        device
            .submit(Request::Write { at, data: &[5; 512] })
            .expect("it is on the drive");
        device.submit(Request::Flush).expect("it has a flush");
        while device.wait().is_some() {}
        times.push(device.clock().time() - begin);
    }
    median(times)
}

/// The goal: less than a third of the time at fixed places, with nothing to do between appends and with up to two rotations.
#[test]
fn an_append_does_not_wait_for_a_rotation() {
    for most in [0, 22] {
        let most = Duration::from_millis(most);
        let (region, plain) = (in_a_region(most), plain(most));
        println!("up to {most:?} between appends: p50 {region:?} in a region, {plain:?} at fixed places");
        assert!(region * 3 < plain, "{region:?}, {plain:?}");
    }
}

/// Records that are outstanding together go to the member with the least to do.
#[test]
fn a_log_on_two_drives_writes_on_both() {
    let drive = hp();
    let members = || {
        Members::new(
            (0..2)
                .map(|_| First(ModelledDevice::new(&drive, Setup::default()), 4096))
                .collect(),
        )
    };
    let one = First(ModelledDevice::new(&drive, Setup::default()), 8192);
    let (two, one) = (time_of_appends(members()), time_of_appends(one));
    println!("400 appends: {two:?} on two drives, {one:?} on one");
    assert!(two * 4 < one * 3, "{two:?}, {one:?}");
}

fn time_of_appends(mut device: impl RangeDevice) -> Duration {
    let mut log = Log::format(&mut device, 1).expect("there is room");
    let begin = log.device().clock().time();
    for number in 0..400_u32 {
        log.append(&number.to_le_bytes()).expect("there is room");
        if number % 8 == 7 {
            log.sync().expect("nothing fails");
        }
    }
    let time = log.device().clock().time() - begin;
    let mut log = Log::open(&mut device).expect("a log");
    let found = log.iter_from(Lsn(0)).map(|entry| entry.expect("whole").1);
    assert!(found.eq((0..400_u32).map(|number| number.to_le_bytes())));
    time
}

/// Free sectors that are no four in a row: records are moved, and nothing is lost.
#[test]
fn a_full_region_moves_what_is_in_the_way() {
    let mut region = Region::format(MemoryDevice::new(512, 2 + 17), 16, 1).expect("there is room");
    for at in 0..8 {
        region.write(at, &[at as u8 + 1; 512]).expect("two sectors each");
    }
    region.flush().expect("nothing fails");
    for at in [1, 3, 5] {
        let one_sector = [[100 + at as u8; 1].as_slice(), &[0; 511]].concat();
        assert_eq!(
            region.write(at, &one_sector),
            Err(RegionError::Full { sectors: 1, free: 1 })
        );
    }
    assert_eq!(
        region.read(0, 8).expect("whole"),
        (1..=8).flat_map(|byte| [byte; 512]).collect::<Vec<_>>()
    );

    let mut region = Region::format(MemoryDevice::new(512, 2 + 18), 16, 1).expect("there is room");
    for at in 0..8 {
        region.write(at, &[at as u8 + 1; 512]).expect("two sectors each");
    }
    for at in [1, 3, 5] {
        region.trim(at..at + 1).expect("one sector each");
        region.flush().expect("nothing fails");
    }
    region.write(8, &[9; 3 * 512]).expect("four sectors");
    assert!(region.statistics().moved > 0, "{:?}", region.statistics());
    let expected = [1, 0, 3, 0, 5, 0, 7, 8, 9, 9, 9].map(|byte| [byte; 512]).concat();
    assert_eq!(region.read(0, 11).expect("whole"), expected);
    region.flush().expect("nothing fails");
}

/// On a modelled drive at the least size, writes that overlap in part: none is refused, and the region opened again has them all.
#[test]
fn a_region_of_the_least_size_is_never_full_on_a_drive() {
    let drive = hp();
    let mut device = First(ModelledDevice::new(&drive, Setup::default()), least_sectors(300));
    let mut region = Region::format(&mut device, 300, 1).expect("there is room");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut expected = vec![0; 300 * 512];
    for write in 0..1000 {
        let most = if random.random() { 8 } else { 250 };
        let sectors: usize = random.random_range(1..=most);
        let start = random.random_range(0..=300 - sectors);
        let bytes = start * 512..(start + sectors) * 512;
        expected[bytes.clone()].fill(write as u8);
        let written = region.write(start as u64, &expected[bytes]);
        written.unwrap_or_else(|error| panic!("write {write}: {error}"));
    }
    assert!(region.statistics().moved > 0, "{:?}", region.statistics());
    region.flush().expect("nothing fails");
    let mut region = Region::open(&mut device).expect("a region");
    assert!(region.read(0, 300).expect("whole") == expected);
}

#[test]
fn what_is_refused_says_why() {
    let mut device = MemoryDevice::new(512, 100);
    assert_eq!(Region::open(&mut device).err(), Some(RegionError::NoRegion));
    let mut region = Region::format(&mut device, 20, 1).expect("there is room");
    let outside = RegionError::Outside {
        at: 19,
        sectors: 2,
        logical_sectors: 20,
    };
    assert_eq!(region.write(19, &[1; 1024]), Err(outside.clone()));
    assert_eq!(region.read(19, 2), Err(outside));
    assert!(matches!(
        region.write(0, &[1; 100]),
        Err(RegionError::Length { bytes: 100, .. })
    ));
    assert_eq!(
        Log::open(&mut device).err(),
        Some(RegionError::NoLog { logical_sectors: 20 })
    );
    let mut log = Log::format(&mut device, 1).expect("there is room");
    let longest = log.entry_bytes_max() as usize;
    assert!(matches!(
        log.append(&vec![1; longest + 1]),
        Err(RegionError::Length { .. })
    ));
    assert!(matches!(
        log.append(&vec![1; longest]),
        Err(RegionError::Full { sectors: 257, free: 98 })
    ));
    assert_eq!(log.append(b""), Ok(Lsn(0)));
}

/// A region that was made anew does not show what an earlier one had left.
#[test]
fn an_earlier_region_does_not_come_back() {
    let mut device = MemoryDevice::new(512, 100);
    let mut region = Region::format(&mut device, 20, 1).expect("there is room");
    region.write(3, &[1; 512]).expect("there is room");
    region.flush().expect("nothing fails");
    drop(Region::format(&mut device, 20, 2).expect("there is room"));
    let mut region = Region::open(&mut device).expect("a region");
    assert_eq!(region.read(3, 1).expect("zeros"), [0; 512]);
    assert_eq!(region.statistics().found, 0);
}

/// A sector that changed under the region is told, and not handed out.
#[test]
fn damage_is_told() {
    let mut device = MemoryDevice::new(512, 100);
    let mut region = Region::format(&mut device, 20, 1).expect("there is room");
    region.write(3, &[1; 1024]).expect("there is room");
    region.flush().expect("nothing fails");
    let below = region.device();
    below
        .submit(Request::Write { at: 3, data: &[9; 512] })
        .expect("it is on the device");
    below.wait().expect("it is outstanding");
    assert_eq!(region.read(3, 1), Err(RegionError::Damaged { at: 2 }));
}
