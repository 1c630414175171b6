//! Power cuts at every moment, in every subset of what was not durable, torn: of regions and of logs, and with mistakes planted.
//!
//! A run writes, trims and flushes by a seed on a small device that takes any place. Then each cut's images are opened; one of them is gone on with,
//! so that crashes follow each other. Whatever is wrong comes back as text, since a planted mistake has to be found.

use std::collections::BTreeMap;
use std::ops::Range;

use elbow_file::Errno;
use elbow_file::range_device::{
    CutImage, MemoryDevice, RangeDevice, RangeError, Request, TearingDevice, VolatileDevice,
};
use elbow_testkit::cases;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::planted::{Bug, PLANTED, finds};
use super::{Log, Lsn, Region, RegionError, least_sectors};

pub(super) type Device = VolatileDevice<MemoryDevice>;
pub(super) type Finding = Result<(), String>;

pub(super) const SECTOR_BYTES: u32 = 128;
pub(super) const LOGICAL: u64 = 16;
/// Little enough that places are used again, and records are moved.
const SECTORS: Range<u64> = 36..56;
const STEPS: usize = 14;
pub(super) const RUNS: u64 = 3;
/// Random cases without `SEED` or `ROUNDS`.
pub(super) const CASES: u64 = 3;
pub(super) const ID: u64 = 0xe1b0;

/// What may be in each logical sector, and since when it has to.
#[derive(Clone, Default)]
pub(super) struct Model {
    /// Number of writes and trims so far.
    pub(super) operations: u32,
    /// Of each sector the operations that wrote it.
    written: BTreeMap<u64, Vec<u32>>,
    /// What an operation wrote into a sector.
    bytes: BTreeMap<(u32, u64), Vec<u8>>,
    /// Of each write that is whole or not at all.
    pub(super) ranges: BTreeMap<u32, Range<u64>>,
    /// A moment, and the number of operations that were durable then.
    pub(super) durable: Vec<(usize, u32)>,
}

/// What has been seen, so that a test knows that it has tested something.
#[derive(Debug, Default)]
struct Seen {
    images: u64,
    lost: u64,
    torn: u64,
    moved: u64,
    forced: u64,
}

impl Model {
    pub(super) fn write(&mut self, range: Range<u64>, data: &[u8]) {
        self.operations += 1;
        for (sector, bytes) in range.clone().zip(data.chunks(SECTOR_BYTES as usize)) {
            self.written.entry(sector).or_default().push(self.operations);
            self.bytes.insert((self.operations, sector), bytes.to_vec());
        }
        self.ranges.insert(self.operations, range);
    }

    fn durable_at(&self, moment: usize) -> u32 {
        let durable = self.durable.iter().rev().find(|(since, _)| *since <= moment);
        durable.map_or(0, |&(_, operations)| operations)
    }

    /// The last operation that left those bytes in a sector; 0 for none.
    fn writer(&self, sector: u64, bytes: &[u8]) -> Option<u32> {
        let writers = self.written.get(&sector).map_or(&[][..], Vec::as_slice);
        let written = writers
            .iter()
            .rev()
            .find(|&&operation| self.bytes[&(operation, sector)] == bytes);
        let is_zeros = bytes.iter().all(|&byte| byte == 0);
        written.copied().or(is_zeros.then_some(0))
    }

    /// Compares what was found after a cut at a moment.
    pub(super) fn check(&self, moment: usize, data: &[u8]) -> Finding {
        self.check_no_part(&self.check_durable(moment, data)?)
    }

    /// The writer of each sector, if that is not too old.
    pub(super) fn check_durable(&self, moment: usize, data: &[u8]) -> Result<BTreeMap<u64, u32>, String> {
        let durable = self.durable_at(moment);
        let mut found = BTreeMap::new();
        for (sector, bytes) in (0..).zip(data.chunks(SECTOR_BYTES as usize)) {
            let writer = self
                .writer(sector, bytes)
                .ok_or_else(|| format!("sector {sector} has what nobody wrote"))?;
            let writers = self.written.get(&sector).map_or(&[][..], Vec::as_slice);
            let least = writers.iter().rev().find(|&&operation| operation <= durable);
            if writer < least.copied().unwrap_or(0) {
                return Err(format!(
                    "sector {sector} has operation {writer}, and {least:?} was durable"
                ));
            }
            found.insert(sector, writer);
        }
        Ok(found)
    }

    /// No write is there in part, but where newer ones are.
    fn check_no_part(&self, found: &BTreeMap<u64, u32>) -> Finding {
        for (&sector, writer) in found {
            let range = self.ranges.get(writer).cloned().unwrap_or(0..0);
            if let Some(older) = range.into_iter().find(|other| found[other] < *writer) {
                return Err(format!("operation {writer} is in sector {sector}, and not in {older}"));
            }
        }
        Ok(())
    }

    /// After a crash: what was found is there, and nothing else.
    pub(super) fn of(data: &[u8]) -> Model {
        let mut model = Model::default();
        model.write(0..LOGICAL, data);
        model.ranges.clear();
        model.durable.push((0, model.operations));
        model
    }
}

/// Writes and trims at random, and flushes now and then. How many were refused comes back.
fn run(region: &mut Region<&mut Device>, model: &mut Model, rng: &mut StdRng) -> u64 {
    let mut refused = 0;
    for _ in 0..STEPS {
        let start = rng.random_range(0..LOGICAL);
        let end = rng.random_range(start + 1..=LOGICAL.min(start + 6));
        let mut next = model.clone();
        let result = match rng.random_range(0..10) {
            0..6 => {
                let data = data(rng, model.operations + 1, end - start);
                next.write(start..end, &data);
                region.write(start, &data)
            }
            6 => {
                next.write(start..end, &vec![0; (end - start) as usize * SECTOR_BYTES as usize]);
                next.ranges.remove(&next.operations); // zeros may be those from before
                region.trim(start..end)
            }
            _ => region.flush().map(|()| {
                let now = region.device().now();
                next.durable.push((now, next.operations));
            }),
        };
        match result {
            Ok(()) => *model = next,
            Err(error) => {
                assert!(may_be_refused(&error), "{error}");
                refused += 1;
            }
        }
    }
    refused
}

/// With a mistake planted the lists of free places may be wrong; without one a device never has to refuse a write.
pub(super) fn may_be_refused(error: &RegionError) -> bool {
    match error {
        RegionError::Full { .. } => true,
        RegionError::Device(RangeError::NoPlace { .. }) | RegionError::Failed(_) => PLANTED.get().is_some(),
        _ => false,
    }
}

/// Bytes that no other write has; sometimes with zeros at the end.
pub(super) fn data(rng: &mut StdRng, operation: u32, sectors: u64) -> Vec<u8> {
    let words = sectors as usize * SECTOR_BYTES as usize / 4;
    let salt = rng.random::<u32>() << 12;
    let mut data: Vec<u8> = (0..words).flat_map(|_| (salt + operation).to_le_bytes()).collect();
    if rng.random_ratio(1, 4) {
        let zeros = rng.random_range(0..SECTOR_BYTES as usize);
        let end = data.len() - zeros;
        data[end..].fill(0);
    }
    data
}

fn settle(device: &mut Device) {
    while device.wait().is_some() {}
}

fn contents<D: RangeDevice>(region: &mut Region<D>) -> Result<Vec<u8>, String> {
    region.read(0, LOGICAL).map_err(|error| error.to_string())
}

fn reopened(device: MemoryDevice) -> Result<(Vec<u8>, u64), String> {
    let mut region = Region::open(device).map_err(|error| error.to_string())?;
    Ok((contents(&mut region)?, region.statistics().torn))
}

/// Opens all that the cuts of a run could have left; one of them comes back.
fn check_cuts(device: &Device, from: usize, model: &Model, seed: u64, seen: &mut Seen) -> Result<CutImage, String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut kept = None;
    for moment in from..=device.now() {
        let cut = device.cut_at(moment);
        seen.lost += u64::from(cut.pending() > 0);
        for image in cut.images(seed) {
            let told = |error| format!("{image} at {moment}: {error}");
            let (data, torn) = reopened(image.to_memory()).map_err(told)?;
            model.check(moment, &data).map_err(told)?;
            seen.images += 1;
            seen.torn += torn;
            if kept.is_none() || rng.random_ratio(1, 400) {
                crash_while_opening(&image, &data)?;
                kept = Some(image);
            }
        }
    }
    Ok(kept.expect("there is an image"))
}

/// A crash while the region is opened changes nothing.
fn crash_while_opening(left: &CutImage, expected: &[u8]) -> Finding {
    let mut device = VolatileDevice::holding(left.to_memory()).expect("it can be read");
    drop(Region::open(&mut device).map_err(|error| error.to_string())?);
    for cut in device.cuts() {
        for image in cut.images(1) {
            let (data, _) = reopened(image.to_memory())?;
            if data != expected {
                return Err(format!("a crash in recovery changed what is found: {image}"));
            }
        }
    }
    Ok(())
}

fn few_sectors(seed: u64) -> u64 {
    SECTORS.start + seed * 7 % (SECTORS.end - SECTORS.start)
}

fn empty(seed: u64) -> MemoryDevice {
    MemoryDevice::capricious(SECTOR_BYTES, few_sectors(seed), seed)
}

/// What a crash left, on a device that takes any place.
fn capricious(left: &CutImage, seed: u64) -> Device {
    holding(left, empty(seed))
}

fn holding(left: &CutImage, mut memory: MemoryDevice) -> Device {
    left.write_to(&mut memory).expect("it is as large");
    VolatileDevice::holding(memory).expect("it can be read")
}

/// Several runs of a region, each ended by a power cut and begun with what the one before left.
fn crashes_in_a_row(seed: u64, seen: &mut Seen) -> Finding {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut device = VolatileDevice::new(empty(seed));
    drop(Region::format(&mut device, LOGICAL, ID).expect("there is room"));
    for _ in 0..RUNS {
        let mut region = Region::open(&mut device).map_err(|error| error.to_string())?;
        let mut model = Model::of(&contents(&mut region)?);
        let from = region.device().now();
        run(&mut region, &mut model, &mut rng);
        seen.moved += region.statistics().moved;
        seen.forced += region.statistics().forced_flushes;
        drop(region);
        settle(&mut device);
        let left = check_cuts(&device, from, &model, seed, seen)?;
        device = capricious(&left, seed);
    }
    Ok(())
}

/// The same at the least size of which no write is refused: each logical sector has a record of its own, and then runs slide.
fn crashes_while_moving(seed: u64, seen: &mut Seen) -> Finding {
    let mut rng = StdRng::seed_from_u64(seed);
    let empty = || MemoryDevice::capricious(SECTOR_BYTES, least_sectors(LOGICAL), seed);
    let mut device = VolatileDevice::new(empty());
    drop(Region::format(&mut device, LOGICAL, ID).expect("there is room"));
    for _ in 0..RUNS {
        let mut region = Region::open(&mut device).map_err(|error| error.to_string())?;
        for sector in 0..LOGICAL {
            let written = region.write(sector, &data(&mut rng, 0, 1));
            written.map_err(|error| format!("sector {sector}: {error}"))?;
        }
        region.flush().map_err(|error| error.to_string())?;
        let mut model = Model::of(&contents(&mut region)?);
        let (from, moved) = (region.device().now(), region.statistics().moved);
        let refused = run(&mut region, &mut model, &mut rng);
        seen.moved += region.statistics().moved - moved;
        seen.forced += region.statistics().forced_flushes;
        drop(region);
        if refused > 0 {
            return Err(format!("{refused} refused"));
        }
        settle(&mut device);
        device = holding(&check_cuts(&device, from, &model, seed, seen)?, empty());
    }
    Ok(())
}

/// A process that dies and another that opens the region, before the power goes: what that one has read stays.
fn handed_over(seed: u64) -> Finding {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut device = VolatileDevice::new(empty(seed));
    let mut region = Region::format(&mut device, LOGICAL, ID).expect("there is room");
    let mut model = Model::of(&contents(&mut region)?);
    run(&mut region, &mut model, &mut rng);
    drop(region); // with writes outstanding: whoever opens the region next waits for them
    let read = contents(&mut Region::open(&mut device).map_err(|error| error.to_string())?)?;
    for image in device.cut_at(device.now()).images(seed) {
        if reopened(image.to_memory())?.0 != read {
            return Err(format!("what was read is lost: {image}"));
        }
    }
    Ok(())
}

#[test]
fn what_was_flushed_survives_any_power_cut() {
    let mut seen = Seen::default();
    for seed in cases::seeds(CASES) {
        crashes_in_a_row(seed, &mut seen).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
    println!("{seen:?}");
    let Seen {
        images,
        lost,
        torn,
        moved,
        forced,
    } = seen;
    assert!(
        images > 0 && lost > 0 && torn > 0,
        "{images} images, {lost} lost something, {torn} torn"
    );
    assert!(
        std::env::var_os("SEED").is_some() || moved > 0 && forced > 0,
        "{moved} moved, {forced} forced flushes"
    );
}

#[test]
fn what_was_flushed_survives_a_power_cut_while_runs_slide() {
    let mut seen = Seen::default();
    for seed in cases::seeds(CASES) {
        crashes_while_moving(seed, &mut seen).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
    println!("{seen:?}");
    let is_one_case = std::env::var_os("SEED").is_some();
    assert!(is_one_case || seen.moved > 0 && seen.forced > 0, "{seen:?}");
}

#[test]
fn a_place_that_is_free_before_the_moved_record_is_durable_is_found() {
    for bug in [Bug::EarlyMove, Bug::EarlyReuse] {
        let case = |seed| crashes_while_moving(seed, &mut Seen::default());
        assert!(finds(bug, case), "{bug:?}");
    }
}

#[test]
fn what_was_read_after_a_restart_survives_a_power_cut() {
    for seed in cases::seeds(20) {
        handed_over(seed).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
}

#[test]
fn planted_mistakes_are_found() {
    let bugs = [
        Bug::NoChecksum,
        Bug::NoSequence,
        Bug::NoIncarnation,
        Bug::EarlyFlush,
        Bug::EarlyReuse,
    ];
    for bug in bugs {
        assert!(
            finds(bug, |seed| crashes_in_a_row(seed, &mut Seen::default())),
            "{bug:?}"
        );
    }
    assert!(finds(Bug::NoFlushAfterScan, handed_over));
}

/// After an error nobody knows what is durable: the region takes nothing more, and opened again has all that was flushed.
#[test]
fn a_failed_request_ends_a_region_until_it_is_opened() {
    let mut fired = 0;
    for failing in 1..40 {
        let mut device = VolatileDevice::new(MemoryDevice::new(SECTOR_BYTES, SECTORS.end));
        drop(Region::format(&mut device, LOGICAL, ID).expect("there is room"));
        let mut region = Region::open(&mut device).expect("a region");
        let mut model = Model::of(&contents(&mut region).expect("zeros"));
        drop(region);
        let mut requests = 0;
        let tears = move |_, request: &Request<'_>| {
            requests += u64::from(!matches!(request, Request::Read { .. }));
            (requests == failing && requests > 4).then_some(1)
        };
        let mut torn = TearingDevice::new(&mut device, Errno::IO, tears);
        let mut region = Region::open(&mut torn).expect("a region");
        let mut rng = StdRng::seed_from_u64(failing);
        let failure = run_until_error(&mut region, &mut model, &mut rng);
        let is_failed = |result: Result<(), RegionError>| matches!(result, Err(RegionError::Failed(_)));
        if failure.is_some() {
            assert!(is_failed(region.flush()) && is_failed(region.write(0, &[1; 128])));
        }
        drop(region);
        fired += torn.fired();
        settle(&mut device);
        for image in device.cut_at(device.now()).images(failing) {
            let (data, _) = reopened(image.to_memory()).expect("a region");
            model
                .check(usize::MAX, &data)
                .unwrap_or_else(|finding| panic!("request {failing}: {finding}"));
        }
    }
    assert!(fired > 20, "{fired} requests failed");
}

fn run_until_error<D: RangeDevice>(region: &mut Region<D>, model: &mut Model, rng: &mut StdRng) -> Option<RegionError> {
    for step in 0..40 {
        let start = rng.random_range(0..LOGICAL - 2);
        let data = data(rng, model.operations + 1, 2);
        let result = match step % 3 {
            2 => region.flush().map(|()| model.durable.push((0, model.operations))),
            _ => {
                model.write(start..start + 2, &data); // it may be there even where it failed
                region.write(start, &data)
            }
        };
        if let Err(error) = result {
            return Some(error);
        }
    }
    None
}

/// What a log may hold after a crash.
#[derive(Clone, Default)]
struct LogModel {
    entries: Vec<(Lsn, Vec<u8>)>,
    start: u64,
    /// A moment, and what was durable then: the start, and the number of entries.
    durable: Vec<(usize, u64, usize)>,
}

impl LogModel {
    fn check(&self, moment: usize, found: &[(Lsn, Vec<u8>)]) -> Finding {
        let durable = self.durable.iter().rev().find(|(since, ..)| *since <= moment);
        let &(_, start, count) = durable.expect("the log was opened before");
        let first = self
            .entries
            .iter()
            .position(|entry| found.first() == Some(entry))
            .unwrap_or(self.entries.len());
        let is_part = found.is_empty() || self.entries[first..].starts_with(found);
        let needed = self.entries[..count]
            .iter()
            .filter(|(lsn, _)| lsn.0 >= self.start.max(start));
        let all_there = needed.clone().all(|entry| found.contains(entry));
        let nothing_older = found.iter().all(|(lsn, _)| lsn.0 >= start);
        // One that was lost in front of those that are there was taken for truncated, where zeros lay there before: from an earlier crash.
        let mut before = self.entries[..first].iter();
        let nothing_skipped = found.is_empty() || before.all(|(lsn, _)| lsn.0 < self.start);
        match is_part && all_there && nothing_older && nothing_skipped {
            true => Ok(()),
            false => Err(format!(
                "{:?}, and durable were {count} from {start}",
                found.iter().map(|(lsn, _)| lsn.0).collect::<Vec<_>>()
            )),
        }
    }
}

fn entries<D: RangeDevice>(log: &mut Log<D>) -> Result<Vec<(Lsn, Vec<u8>)>, String> {
    let entries: Result<Vec<_>, _> = log.iter_from(Lsn(0)).collect();
    entries.map_err(|error| error.to_string())
}

fn run_log(log: &mut Log<&mut Device>, model: &mut LogModel, rng: &mut StdRng) {
    for _ in 0..STEPS {
        match rng.random_range(0..10) {
            0..6 => {
                // Mostly of one length, so that an old entry would fit behind a new one.
                let length = if rng.random_ratio(2, 3) {
                    60
                } else {
                    rng.random_range(0..300)
                };
                let entry: Vec<u8> = (0..length).map(|_| rng.random()).collect();
                match log.append(&entry) {
                    Ok(lsn) => model.entries.push((lsn, entry)),
                    Err(error) => assert!(may_be_refused(&error), "{error}"),
                }
            }
            6 => {
                let lsn = Lsn(rng.random_range(log.start().0..=log.end().0));
                match log.truncate_before(lsn) {
                    Ok(()) => model.start = log.start().0,
                    Err(error) => assert!(PLANTED.get().is_some(), "a full log can be truncated: {error}"),
                }
            }
            _ => match log.sync() {
                Ok(()) => {
                    let now = log.device().now();
                    model.durable.push((now, model.start, model.entries.len()));
                }
                Err(error) => assert!(may_be_refused(&error), "{error}"),
            },
        }
    }
}

/// Several runs of a log, each ended by a power cut.
fn log_crashes_in_a_row(seed: u64, images: &mut u64) -> Finding {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut device = VolatileDevice::new(empty(seed));
    drop(Log::format(&mut device, ID).expect("there is room"));
    for _ in 0..RUNS {
        let mut log = Log::open(&mut device).map_err(|error| error.to_string())?;
        let from = log.device().now();
        let entries_then = entries(&mut log)?;
        let durable = vec![(from, log.start().0, entries_then.len())];
        let mut model = LogModel {
            entries: entries_then,
            start: log.start().0,
            durable,
        };
        run_log(&mut log, &mut model, &mut rng);
        drop(log);
        settle(&mut device);
        let mut kept = None;
        for moment in from..=device.now() {
            for image in device.cut_at(moment).images(seed) {
                let told = |error| format!("{image} at {moment}: {error}");
                let mut log = Log::open(image.to_memory()).map_err(|error| told(error.to_string()))?;
                let found = entries(&mut log).map_err(told)?;
                model.check(moment, &found).map_err(told)?;
                *images += 1;
                if kept.is_none() || rng.random_ratio(1, 200) {
                    crash_while_opening_log(&image, &found)?;
                    kept = Some(image);
                }
            }
        }
        device = capricious(&kept.expect("there is an image"), seed);
    }
    Ok(())
}

fn crash_while_opening_log(left: &CutImage, expected: &[(Lsn, Vec<u8>)]) -> Finding {
    let mut device = VolatileDevice::holding(left.to_memory()).expect("it can be read");
    drop(Log::open(&mut device).map_err(|error| error.to_string())?);
    for cut in device.cuts() {
        for image in cut.images(1) {
            let mut log = Log::open(image.to_memory()).map_err(|error| error.to_string())?;
            if entries(&mut log)? != expected {
                return Err(format!("a crash in recovery changed the log: {image}"));
            }
        }
    }
    Ok(())
}

#[test]
fn what_was_synced_in_a_log_survives_any_power_cut() {
    let mut images = 0;
    for seed in cases::seeds(CASES) {
        log_crashes_in_a_row(seed, &mut images).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
    println!("{images} images");
    assert!(images > 0);
}

#[test]
fn mistakes_planted_in_a_log_are_found() {
    let bugs = [
        Bug::NoSequence,
        Bug::NoIncarnation,
        Bug::EarlyFlush,
        Bug::EarlyReuse,
        Bug::TailKept,
        Bug::TailWrittenOver,
    ];
    for bug in bugs {
        assert!(finds(bug, |seed| log_crashes_in_a_row(seed, &mut 0)), "{bug:?}");
    }
}
