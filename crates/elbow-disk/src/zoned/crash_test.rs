//! A log on zones: power cuts at every moment, with every number of sectors that each zone may keep, and with mistakes planted.
//!
//! A run appends, syncs and truncates by a seed in few small zones, so that they are reset all the time. Then each cut's images are opened; one of them is
//! gone on with, so that crashes follow each other. Whatever is wrong comes back as text, since a planted mistake has to be found.

use elbow_file::zoned::{ZoneFault, ZoneGeometry, ZoneState, ZonesDouble};
use elbow_testkit::cases;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::ZonedDevice;
use crate::region::planted::{Bug, CASES_PER_BUG, finds};
use crate::region::{Log, Lsn, RegionError};

type Finding = Result<(), String>;
type Entries = Vec<(Lsn, Vec<u8>)>;

const SECTOR_BYTES: u32 = 128;
const CAPACITY: u64 = 8;
const STEPS: usize = 24;
const RUNS: u64 = 3;
/// Random cases without `SEED` or `ROUNDS`.
const CASES: u64 = 4;
const ID: u64 = 0xe1b0;

/// What may be in the log, and since when it has to.
struct Model {
    entries: Entries,
    /// Entries that were truncated.
    start: usize,
    /// A moment, and the number of entries that had been appended and truncated when all was synced.
    durable: Vec<(usize, usize, usize)>,
    /// The same of every truncation, synced or not.
    truncated: Vec<(usize, usize)>,
}

/// What has been seen, so that a test knows that it has tested something.
#[derive(Debug, Default)]
struct Seen {
    images: u64,
    lost: u64,
    full: u64,
    resets: usize,
    given_up: u64,
}

impl Model {
    fn of(entries: Entries) -> Self {
        let durable = vec![(0, entries.len(), 0)];
        Self {
            entries,
            start: 0,
            durable,
            truncated: vec![(0, 0)],
        }
    }

    /// Compares what was found after a cut at a moment: a part of what was appended, without a gap, from where it was truncated to where it was synced.
    fn check(&self, moment: usize, found: &Entries) -> Finding {
        let durable = self.durable.iter().rev().find(|(since, ..)| *since <= moment);
        let (_, synced, truncated) = *durable.ok_or("nothing was durable")?;
        let last = self.truncated.iter().rev().find(|(since, _)| *since <= moment);
        let truncated_last = last.map_or(0, |&(_, start)| start);
        let Some((first, _)) = found.first() else {
            return if truncated_last >= synced {
                Ok(())
            } else {
                Err(format!(
                    "nothing was found, and {truncated_last} of {synced} were truncated"
                ))
            };
        };
        let at = self.entries.iter().position(|(lsn, _)| lsn == first);
        let at = at.ok_or_else(|| format!("LSN {first} was never given"))?;
        let end = at + found.len();
        if self.entries.get(at..end) != Some(&found[..]) {
            return Err(format!("entries {at} to {end} are not those that were appended"));
        }
        if at < truncated || at > truncated_last || end < synced {
            return Err(format!(
                "entries {at} to {end} were found; synced were {synced}, and {truncated} to {truncated_last} were truncated"
            ));
        }
        Ok(())
    }
}

fn zones(conventional: usize) -> ZonesDouble {
    ZonesDouble::new(ZoneGeometry {
        sector_bytes: SECTOR_BYTES,
        conventional,
        sequential: 7,
        zone_sectors: 10,
        capacity: CAPACITY,
        active_max: Some(2),
    })
}

fn open(zones: &mut ZonesDouble) -> Result<Log<ZonedDevice<&mut ZonesDouble>>, String> {
    let device = ZonedDevice::open(zones).map_err(|error| error.to_string())?;
    Log::open(device).map_err(|error| error.to_string())
}

fn entries(zones: &mut ZonesDouble) -> Result<Entries, String> {
    let mut log = open(zones)?;
    let entries: Result<Entries, RegionError> = log.iter_from(Lsn(0)).collect();
    entries.map_err(|error| error.to_string())
}

/// Bytes that no other entry has.
fn entry(rng: &mut StdRng) -> Vec<u8> {
    let length = rng.random_range(8..4 * SECTOR_BYTES as usize);
    let tag = rng.random::<u64>().to_le_bytes();
    tag.into_iter().cycle().take(length).collect()
}

/// Appends, syncs and truncates at random.
fn run(zones: &mut ZonesDouble, rng: &mut StdRng, seen: &mut Seen) -> Result<Model, String> {
    let mut log = open(zones)?;
    let found: Result<Entries, RegionError> = log.iter_from(Lsn(0)).collect();
    let mut model = Model::of(found.map_err(|error| error.to_string())?);
    model.durable[0].0 = log.device().storage().now();
    model.truncated[0].0 = log.device().storage().now();
    for _ in 0..STEPS {
        match rng.random_range(0..8) {
            0..4 => {
                let bytes = entry(rng);
                match log.append(&bytes) {
                    Ok(lsn) => model.entries.push((lsn, bytes)),
                    Err(RegionError::Full { .. }) => {
                        seen.full += 1;
                        truncate(&mut log, &mut model, rng)?;
                    }
                    Err(error) => return Err(error.to_string()),
                }
            }
            4 => truncate(&mut log, &mut model, rng)?,
            _ => {
                log.sync().map_err(|error| error.to_string())?;
                let now = log.device().storage().now();
                model.durable.push((now, model.entries.len(), model.start));
            }
        }
    }
    Ok(model)
}

fn truncate(log: &mut Log<ZonedDevice<&mut ZonesDouble>>, model: &mut Model, rng: &mut StdRng) -> Finding {
    let start = rng.random_range(model.start..=model.entries.len());
    let lsn = model.entries.get(start).map_or(log.end(), |(lsn, _)| *lsn);
    model.start = start;
    // It may be there from now on, whatever else has to be done for it before.
    model.truncated.push((log.device().storage().now(), start));
    log.truncate_before(lsn).map_err(|error| format!("truncating: {error}"))
}

/// Opens all that the cuts of a run could have left; one of them comes back.
fn check_cuts(zones: &ZonesDouble, model: &Model, seed: u64, seen: &mut Seen) -> Result<ZonesDouble, String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut kept = None;
    for moment in model.durable[0].0..=zones.now() {
        let cut = zones.cut_at(moment);
        seen.lost += u64::from(cut.pending() > 0);
        for mut image in cut.images(seed ^ moment as u64) {
            let told = |error| format!("{} at {moment}: {error}", image.survivors());
            let left = image.clone();
            let found = entries(&mut image.clone()).map_err(told)?;
            model.check(moment, &found).map_err(told)?;
            seen.images += 1;
            if kept.is_none() || rng.random_ratio(1, 300) {
                crash_while_opening(&mut image, &found)?;
                kept = Some(left);
            }
        }
    }
    kept.ok_or_else(|| "there is no image".to_owned())
}

/// A crash while the log is opened changes nothing.
fn crash_while_opening(left: &mut ZonesDouble, expected: &Entries) -> Finding {
    drop(open(left)?);
    for moment in 0..=left.now() {
        for mut image in left.cut_at(moment).images(1) {
            if entries(&mut image)? != *expected {
                return Err(format!(
                    "a crash in recovery changed what is found: {}",
                    image.survivors()
                ));
            }
        }
    }
    Ok(())
}

/// Several runs of a log, each ended by a power cut and begun with what the one before left.
fn crashes_in_a_row(conventional: usize, seed: u64, seen: &mut Seen) -> Finding {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut left = zones(conventional);
    let device = ZonedDevice::open(&mut left).map_err(|error| error.to_string())?;
    drop(Log::format(device, ID).map_err(|error| error.to_string())?);
    for _ in 0..RUNS {
        let model = run(&mut left, &mut rng, seen)?;
        seen.resets += left.resets();
        left = check_cuts(&left, &model, seed, seen)?;
    }
    Ok(())
}

/// The medium gives a zone up in the middle of an append: the log goes on elsewhere, and what was synced is there.
fn a_zone_is_given_up(seed: u64, seen: &mut Seen) -> Finding {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut left = zones(1);
    let device = ZonedDevice::open(&mut left).map_err(|error| error.to_string())?;
    drop(Log::format(device, ID).map_err(|error| error.to_string())?);
    drop(open(&mut left)?);
    left.fail(rng.random_range(10..60), ZoneFault::Becomes(ZoneState::ReadOnly));
    let model = run(&mut left, &mut rng, seen);
    let is_given_up = left.fired() > 0;
    seen.given_up += u64::from(is_given_up && model.is_ok());
    match model {
        Ok(model) => check_cuts(&left, &model, seed, seen).map(drop),
        // A read or flush that fails, and one that is told to a zone without a zone, end the log; that is told.
        Err(_) if is_given_up => Ok(()),
        Err(error) => Err(error),
    }
}

#[test]
fn what_was_synced_on_zones_survives_any_power_cut() {
    let mut seen = Seen::default();
    for seed in cases::seeds(CASES) {
        let conventional = (seed % 2) as usize;
        crashes_in_a_row(conventional, seed, &mut seen).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
    println!("{seen:?}");
    assert!(seen.lost > 0 && seen.full > 0 && seen.resets > 0, "{seen:?}");
}

#[test]
fn a_log_goes_on_when_the_medium_gives_a_zone_up() {
    let mut seen = Seen::default();
    for seed in cases::seeds(CASES * 4) {
        a_zone_is_given_up(seed, &mut seen).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
    println!("{seen:?}");
    assert!(seen.given_up > 0, "{seen:?}");
}

#[test]
fn planted_mistakes_with_zones_are_found() {
    let bugs = [
        Bug::ZoneResetEarly,
        Bug::EarlyReuse,
        Bug::EarlyFlush,
        Bug::TailKept,
        Bug::TailWrittenOver,
    ];
    for bug in bugs {
        let case = |seed| crashes_in_a_row(0, seed, &mut Seen::default());
        assert!(finds(bug, case), "{bug:?} was not found in {CASES_PER_BUG} cases");
    }
}
