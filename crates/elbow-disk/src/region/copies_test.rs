//! Copies of a region: power cuts of both devices at once, one that is lost besides, one that was away, and crashes while they are made equal.

use std::cell::RefCell;
use std::rc::Rc;

use elbow_file::Errno;
use elbow_file::range_device::{
    Blocking, Completion, CutImage, Members, MemoryDevice, RangeDevice, RangeError, Request, Shape, TearingDevice,
    Ticket, VolatileDevice,
};
use elbow_testkit::cases;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::crash_test::{CASES, Device, Finding, ID, LOGICAL, Model, RUNS, SECTOR_BYTES, data, may_be_refused};
use super::planted::{Bug, finds};
use super::{Copies, Log, Lsn, Region, RegionError, probe};

const SECTORS: u64 = 48;
const STEPS: usize = 14;
/// Pairs of images that are tried of each moment.
const PAIRS: usize = 3;

/// Both devices, and what happened on them in one order.
struct Pair {
    devices: [Device; 2],
    /// Moments of both, after each event.
    timeline: Vec<[usize; 2]>,
}

type Shared = Rc<RefCell<Pair>>;

/// One of them.
#[derive(Debug)]
struct Disk(Shared, usize);

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair")
    }
}

impl Pair {
    fn of(devices: [Device; 2]) -> Shared {
        let timeline = vec![devices.each_ref().map(VolatileDevice::now)];
        Rc::new(RefCell::new(Pair { devices, timeline }))
    }

    fn happened(&mut self) {
        self.timeline.push(self.devices.each_ref().map(VolatileDevice::now));
    }

    /// What a cut at a moment of both could leave.
    fn images(&self, moment: usize, rng: &mut StdRng) -> [CutImage; 2] {
        let moments = self.timeline[moment];
        [0, 1].map(|index| {
            let cut = self.devices[index].cut_at(moments[index]);
            let images = cut.images(rng.random());
            images.take(rng.random_range(1..=40)).last().expect("there is one")
        })
    }
}

impl RangeDevice for Disk {
    fn shape(&self) -> Shape {
        self.0.borrow().devices[self.1].shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        let mut pair = self.0.borrow_mut();
        let ticket = pair.devices[self.1].submit(request)?;
        pair.happened();
        Ok(ticket)
    }

    fn poll(&mut self) -> Option<Completion> {
        let mut pair = self.0.borrow_mut();
        let completion = pair.devices[self.1].poll();
        pair.happened();
        completion
    }

    fn wait(&mut self) -> Option<Completion> {
        let mut pair = self.0.borrow_mut();
        let completion = pair.devices[self.1].wait();
        pair.happened();
        completion
    }
}

fn both(pair: &Shared) -> Vec<Disk> {
    vec![Disk(Rc::clone(pair), 0), Disk(Rc::clone(pair), 1)]
}

/// Opens them, without the one that is away.
fn open(pair: &Shared, tag: u64, away: Option<usize>) -> Result<Copies<Disk>, String> {
    let devices = both(pair).into_iter();
    let devices = devices.map(|disk| (away != Some(disk.1)).then_some(disk)).collect();
    Copies::open(devices, tag).map_err(|error| error.to_string())
}

/// Those that may be lost besides: not the one without which the other is too old.
fn expendable(away: Option<usize>) -> impl Iterator<Item = usize> {
    [0, 1]
        .into_iter()
        .filter(move |&missing| away.is_none_or(|away| away == missing))
}

fn settle(pair: &Shared) {
    for device in &mut pair.borrow_mut().devices {
        while device.wait().is_some() {}
    }
}

/// On a device that takes any place.
fn left(image: &CutImage, seed: u64) -> Device {
    let mut memory = MemoryDevice::capricious(SECTOR_BYTES, SECTORS, seed);
    image.write_to(&mut memory).expect("it is as large");
    VolatileDevice::holding(memory).expect("it can be read")
}

fn contents<D: RangeDevice>(copies: &mut Copies<D>) -> Result<Vec<u8>, String> {
    copies.read(0, LOGICAL).map_err(|error| error.to_string())
}

/// Opens what is left, one of them perhaps not.
fn found(images: &[CutImage; 2], missing: Option<usize>) -> Result<Vec<u8>, String> {
    let device = |index: usize| (missing != Some(index)).then(|| images[index].to_memory());
    let mut copies = Copies::open(vec![device(0), device(1)], 77).map_err(|error| error.to_string())?;
    contents(&mut copies)
}

fn run(copies: &mut Copies<Disk>, pair: &Shared, model: &mut Model, rng: &mut StdRng) {
    for _ in 0..STEPS {
        let start = rng.random_range(0..LOGICAL);
        let end = rng.random_range(start + 1..=LOGICAL.min(start + 4));
        let mut next = model.clone();
        let result = match rng.random_range(0..10) {
            0..6 => {
                let data = data(rng, model.operations + 1, end - start);
                next.write(start..end, &data);
                copies.write(start, &data)
            }
            6 => {
                next.write(start..end, &vec![0; (end - start) as usize * SECTOR_BYTES as usize]);
                next.ranges.remove(&next.operations); // zeros may be those from before
                copies.trim(start..end)
            }
            _ => copies.flush().map(|()| {
                let now = pair.borrow().timeline.len() - 1;
                next.durable.push((now, next.operations));
            }),
        };
        match result {
            Ok(()) => *model = next,
            Err(error) => assert!(may_be_refused(&error), "{error}"),
        }
    }
}

/// A crash while the copies are opened loses nothing that was durable, also where one of them is lost then.
fn crash_while_opening(
    images: &[CutImage; 2],
    away: Option<usize>,
    model: &Model,
    moment: usize,
    rng: &mut StdRng,
) -> Finding {
    let pair = Pair::of([0, 1].map(|index| left(&images[index], 1)));
    drop(open(&pair, 5, None)?);
    settle(&pair);
    let pair = pair.borrow();
    for opening in 0..pair.timeline.len() {
        let images = pair.images(opening, rng);
        model.check(moment, &found(&images, None)?)?;
        for missing in expendable(away) {
            model.check_durable(moment, &found(&images, Some(missing))?)?;
        }
    }
    Ok(())
}

/// What has been seen, so that a test knows that it has tested something.
#[derive(Debug, Default)]
struct Seen {
    images: u64,
    different: u64,
    /// Runs without one of them.
    away: u64,
}

/// Several runs, some without one of them, each ended by a power cut of both and begun with what the one before left.
fn crashes_in_a_row(seed: u64, seen: &mut Seen) -> Finding {
    let mut rng = StdRng::seed_from_u64(seed);
    let empty = |index| VolatileDevice::new(MemoryDevice::capricious(SECTOR_BYTES, SECTORS, seed + index));
    let mut pair = Pair::of([empty(0), empty(1)]);
    drop(Copies::format(both(&pair), LOGICAL, ID).expect("there is room"));
    let mut away: Option<usize> = None;
    for round in 0..RUNS {
        // One that is too old is not opened alone.
        away = match away {
            Some(away) => rng.random_ratio(1, 2).then_some(away),
            None => rng.random_ratio(1, 2).then(|| rng.random_range(0..2)),
        };
        seen.away += u64::from(away.is_some());
        let mut copies = open(&pair, 2 * (seed + round), away)?;
        let mut model = Model::of(&contents(&mut copies)?);
        let from = pair.borrow().timeline.len() - 1;
        model.durable = vec![(0, model.operations)];
        run(&mut copies, &pair, &mut model, &mut rng);
        drop(copies);
        settle(&pair);
        let cut = pair.borrow();
        let mut kept = None;
        for moment in from..cut.timeline.len() {
            for _ in 0..PAIRS {
                let images = cut.images(moment, &mut rng);
                let told = |error| format!("{} and {} at {moment}: {error}", images[0], images[1]);
                let whole = found(&images, None).map_err(told)?;
                model.check(moment, &whole).map_err(told)?;
                for missing in expendable(away) {
                    let alone = found(&images, Some(missing)).map_err(told)?;
                    model.check(moment, &alone).map_err(told)?;
                    seen.different += u64::from(alone != whole);
                }
                seen.images += 1;
                if kept.is_none() || rng.random_ratio(1, 60) {
                    crash_while_opening(&images, away, &model, moment, &mut rng).map_err(told)?;
                    kept = Some(images);
                }
            }
        }
        let kept = kept.expect("there is one");
        drop(cut);
        pair = Pair::of([0, 1].map(|index| left(&kept[index], seed)));
    }
    Ok(())
}

#[test]
fn what_was_flushed_is_in_each_copy_after_any_power_cut() {
    let mut seen = Seen::default();
    for seed in cases::seeds(CASES) {
        crashes_in_a_row(seed, &mut seen).unwrap_or_else(|finding| panic!("SEED={seed}: {finding}"));
    }
    println!("{seen:?}");
    let Seen {
        images,
        different,
        away,
    } = seen;
    assert!(
        images > 0 && different > 0 && (away > 0 || std::env::var_os("SEED").is_some()),
        "{images}, {different}, {away}"
    );
}

fn formatted() -> [MemoryDevice; 2] {
    let mut devices = [0, 1].map(|_| MemoryDevice::new(SECTOR_BYTES, SECTORS));
    drop(Copies::format(devices.iter_mut().collect(), LOGICAL, ID).expect("there is room"));
    devices
}

fn put<D: RangeDevice>(devices: Vec<Option<D>>, tag: u64, byte: u8) {
    let mut copies = Copies::open(devices, tag).expect("they are copies");
    copies.write(3, &[byte; SECTOR_BYTES as usize]).expect("there is room");
    copies.flush().expect("nothing fails");
}

fn byte<D: RangeDevice>(devices: Vec<Option<D>>) -> Result<u8, RegionError> {
    Ok(Copies::open(devices, 90)?.read(3, 1)?[0])
}

/// One that was away has older bytes, and is made equal when it comes back, before it is asked.
fn one_was_away(away: u64) -> Finding {
    for away in [away as usize % 2, 1 - away as usize % 2] {
        let mut devices = formatted();
        put(devices.iter_mut().map(Some).collect(), 1, 1);
        let left = devices.iter_mut().enumerate();
        put(
            left.map(|(index, device)| (index != away).then_some(device)).collect(),
            2,
            2,
        );
        let came_back = byte(devices.iter_mut().map(Some).collect()).map_err(|error| error.to_string())?;
        if came_back != 2 {
            return Err(format!("{came_back} after copy {away} came back"));
        }
        let alone = devices.iter_mut().enumerate();
        let alone = alone.map(|(index, device)| (index == away).then_some(device)).collect();
        let alone = byte(alone).map_err(|error| error.to_string())?;
        if alone != 2 {
            return Err(format!("{alone} in copy {away} alone"));
        }
    }
    Ok(())
}

#[test]
fn a_copy_that_was_away_does_not_bring_older_bytes_back() {
    one_was_away(0).expect("nothing older");
}

/// Both were opened alone, once or more often: what the one or the other has would be lost.
fn both_were_away(_: u64) -> Finding {
    for openings in 1..3 {
        let [mut a, mut b] = formatted();
        (0..openings).for_each(|_| put(vec![Some(&mut a), None], 2, 2));
        put(vec![None, Some(&mut b)], 4, 4);
        match byte(vec![Some(&mut a), Some(&mut b)]) {
            Err(RegionError::Diverged) => {}
            other => return Err(format!("{other:?} after {openings}")),
        }
        // As the message says.
        let mut blank = MemoryDevice::new(SECTOR_BYTES, SECTORS);
        match byte(vec![Some(&mut blank), Some(&mut b)]) {
            Ok(4) => {}
            other => return Err(format!("{other:?} after {openings}")),
        }
    }
    Ok(())
}

#[test]
fn copies_that_went_on_without_each_other_are_refused() {
    both_were_away(0).expect("refused, and then one of them");
}

#[test]
fn planted_mistakes_with_copies_are_found() {
    let crashes = |seed| crashes_in_a_row(seed, &mut Seen::default());
    for bug in [Bug::OneCopyFlushed, Bug::EarlyFlush, Bug::EarlyReuse, Bug::NoSequence] {
        assert!(finds(bug, crashes), "{bug:?}");
    }
    assert!(finds(Bug::StaleCopy, one_was_away));
    assert!(finds(Bug::TagIgnored, both_were_away));
    assert!(finds(Bug::DamageIsTruth, damaged));
}

/// Turns a bit in the payload of the record of such bytes; its head stays whole.
fn damage(device: &mut MemoryDevice, byte: u8) {
    let mut device = Blocking::new(device);
    for at in 2..SECTORS {
        let mut sector = device.read(at, 1).expect("it reads");
        if sector[80..].iter().all(|&found| found == byte) {
            sector[100] ^= 1;
            return device.write(at, &sector).expect("it writes");
        }
    }
    panic!("no sector has {byte}");
}

/// Each copy has lost something else that was flushed.
fn damaged(_: u64) -> Finding {
    let mut devices = formatted();
    let mut copies = Copies::open(devices.iter_mut().map(Some).collect(), 1).expect("two copies");
    for byte in 1..=4 {
        let data = [byte; SECTOR_BYTES as usize];
        copies.write(u64::from(byte) * 3, &data).expect("there is room");
    }
    copies.flush().expect("nothing fails");
    drop(copies);
    for (device, bytes) in devices.iter_mut().zip([[1, 3], [2, 4]]) {
        bytes.iter().for_each(|&byte| damage(device, byte));
    }
    for left in [[true, true], [true, false], [false, true]] {
        let there = devices.iter_mut().zip(left);
        let there = there.map(|(device, is_there)| is_there.then_some(device)).collect();
        let mut copies = Copies::open(there, 2).expect("two copies");
        for byte in 1..=4 {
            let found = copies.read(u64::from(byte) * 3, 1).expect("it reads");
            if found != [byte; SECTOR_BYTES as usize] {
                return Err(format!("{} in place of {byte}, with copies {left:?}", found[0]));
            }
        }
    }
    Ok(())
}

/// The story: the first copy was the truth, so that what a failing disk had damaged there was written over what was whole in the other.
#[test]
fn what_is_damaged_in_one_copy_is_taken_from_another() {
    damaged(0).expect("each has what the other has lost");
}

#[test]
fn a_device_in_place_of_a_lost_one_is_made_a_copy() {
    let [mut a, _lost] = formatted();
    let mut new = MemoryDevice::new(SECTOR_BYTES, SECTORS);
    put(vec![Some(&mut a), None], 1, 7);
    assert_eq!(byte(vec![Some(&mut new), Some(&mut a)]), Ok(7));
    assert_eq!(byte(vec![Some(&mut new), None]), Ok(7));
}

#[test]
fn what_is_no_copy_of_the_same_region_is_refused() {
    let [mut a, mut b] = formatted();
    assert_eq!(Region::open(&mut a).err(), Some(RegionError::Copy { copies: 2 }));
    let mut other = MemoryDevice::new(SECTOR_BYTES, SECTORS);
    drop(Region::format(&mut other, LOGICAL, ID).expect("there is room"));
    let refused = Some(RegionError::OtherCopies { count: 2 });
    assert_eq!(Copies::open(vec![Some(&mut a), Some(&mut other)], 1).err(), refused);
    let three = Some(RegionError::OtherCopies { count: 3 });
    assert_eq!(Copies::open(vec![Some(&mut a), Some(&mut b), None], 1).err(), three);
    let mut blank = MemoryDevice::new(SECTOR_BYTES, SECTORS);
    assert_eq!(
        Copies::open(vec![Some(&mut blank), None], 1).err(),
        Some(RegionError::NoRegion)
    );
}

/// A crash while a copy is made leaves one that has a part: alone it is refused.
#[test]
fn a_copy_that_is_being_made_is_none_by_itself() {
    let [mut a, _lost] = formatted();
    put(vec![Some(&mut a), None], 1, 7);
    let mut new = VolatileDevice::new(MemoryDevice::new(SECTOR_BYTES, SECTORS));
    drop(Copies::open(vec![Some(&mut a as &mut dyn RangeDevice), Some(&mut new)], 3).expect("it is made"));
    let (mut incomplete, mut complete) = (0, 0);
    for cut in new.cuts() {
        for image in cut.images(1) {
            match byte(vec![None, Some(image.to_memory())]) {
                Err(RegionError::Incomplete) => incomplete += 1,
                Err(RegionError::NoRegion) => {}
                Ok(7) => complete += 1,
                other => panic!("{other:?} in {image}"),
            }
        }
    }
    assert!(incomplete > 0 && complete > 0, "{incomplete} and {complete}");
}

/// After one has failed nothing is acknowledged, and what was synced is read from the other: at once, and when it is opened alone.
#[test]
fn a_log_is_read_up_to_its_last_sync_when_a_device_dies() {
    for dying in [0, 1] {
        let mut devices = [0, 1].map(|_| MemoryDevice::new(512, 200));
        drop(Log::format_copies(devices.iter_mut().collect(), ID).expect("there is room"));
        let died = std::cell::Cell::new(false);
        let mut fired = 0;
        let torn = devices.iter_mut().enumerate().map(|(index, device)| {
            let died = &died;
            TearingDevice::new(device, Errno::IO, move |_, _: &Request<'_>| {
                (died.get() && index == dying).then_some(0)
            })
        });
        let mut torn: Vec<_> = torn.collect();
        let mut log = Log::open_copies(torn.iter_mut().map(Some).collect(), 3).expect("two copies");
        for number in 0..5_u8 {
            log.append(&[number; 40]).expect("there is room");
        }
        log.sync().expect("both have it");
        died.set(true);
        let appended = log.append(&[9; 40]).and_then(|_| log.sync());
        assert!(matches!(appended, Err(RegionError::Device(_))), "{appended:?}");
        assert!(
            matches!(log.sync(), Err(RegionError::Failed(_))),
            "nothing is acknowledged any more"
        );
        let entries: Result<Vec<_>, _> = log.iter_from(Lsn(0)).collect();
        let entries = entries.expect("the other has them");
        assert!(entries.len() >= 5 && (0..5).all(|number| entries[number].1 == [number as u8; 40]));
        drop(log);
        torn.iter().for_each(|device| fired += device.fired());
        assert!(fired > 0, "it died");
        drop(torn);
        let left = devices.iter_mut().enumerate();
        let left = left.map(|(index, device)| (index != dying).then_some(device)).collect();
        let mut log = Log::open_copies(left, 4).expect("one is enough");
        let entries: Vec<_> = log.iter_from(Lsn(0)).map(|entry| entry.expect("whole").1).collect();
        assert!(entries.len() >= 5 && (0..5).all(|number| entries[number] == [number as u8; 40]));
        log.append(&[10; 40]).expect("there is room");
        log.sync().expect("it goes on alone");
        drop(log);
        let mut log = Log::open_copies(devices.iter_mut().map(Some).collect(), 5).expect("the other is made equal");
        let again: Vec<_> = log.iter_from(Lsn(0)).map(|entry| entry.expect("whole").1).collect();
        assert_eq!(again.len(), entries.len() + 1);
        assert_eq!(again.last().map(Vec::as_slice), Some(&[10; 40][..]));
    }
}

/// Writes of both are under way before either is waited for.
#[test]
fn copies_are_written_and_flushed_at_once() {
    let pair = Pair::of([0, 1].map(|_| VolatileDevice::new(MemoryDevice::new(SECTOR_BYTES, SECTORS))));
    let mut copies = Copies::format(both(&pair), LOGICAL, ID).expect("there is room");
    let before = pair.borrow().timeline.len() - 1;
    copies.write(0, &[1; SECTOR_BYTES as usize]).expect("there is room");
    copies.flush().expect("nothing fails");
    let pair = pair.borrow();
    let begun = |index: usize| {
        let moments = pair.timeline.iter().map(|moments| moments[index]);
        moments.skip(before).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((begun(0), begun(1)), (5, 5), "a write, its end, a flush, its end");
    let flushed = |index: usize| {
        pair.timeline
            .iter()
            .position(|moments| moments[index] == pair.timeline[before][index] + 4)
    };
    let flushing = |index: usize| {
        pair.timeline
            .iter()
            .position(|moments| moments[index] == pair.timeline[before][index] + 3)
    };
    assert!(
        flushing(1) < flushed(0),
        "the second was asked before the first was done"
    );
}

/// A copy that was made again used to have the id of the one before, and its records were taken where the header of that one was lost.
#[test]
fn what_lies_behind_a_lost_header_does_not_come_back() {
    let [mut a, mut b] = formatted();
    // The second lies behind the first place, which the record of the new copy takes.
    for round in 1..3_u8 {
        put(vec![Some(&mut a), Some(&mut b)], u64::from(round), round);
    }
    put(vec![None, Some(&mut b)], 3, 3);
    let mut blanked = Blocking::new(&mut a);
    blanked.write(0, &[0; 2 * SECTOR_BYTES as usize]).expect("it writes");
    assert_eq!(byte(vec![Some(&mut a), Some(&mut b)]), Ok(3));
    assert_eq!(byte(vec![Some(&mut a), None]), Ok(3), "older records came back");
}

/// A write that fails is told by what comes after it. A read was answered from the other copy, and nobody could say that one had failed.
#[test]
fn a_failure_that_a_read_finds_is_known() {
    let [mut a, mut b] = formatted();
    let mut torn = TearingDevice::new(&mut a, Errno::IO, |_, request: &Request<'_>| {
        matches!(request, Request::WriteRange { .. }).then_some(0)
    });
    let devices: Vec<Option<&mut dyn RangeDevice>> = vec![Some(&mut torn), Some(&mut b)];
    let mut copies = Copies::open(devices, 1).expect("they are copies");
    copies
        .write(3, &[1; SECTOR_BYTES as usize])
        .expect("it is not waited for");
    assert_eq!(copies.read(3, 1).expect("the other has it")[0], 1);
    assert!(
        matches!(copies.failure(), Some(RegionError::Device(_))),
        "{:?}",
        copies.failure()
    );
    assert_eq!(copies.whole(), 1);
    drop(copies);
    assert!(torn.fired() > 0, "it failed");
}

fn shared(devices: [&mut MemoryDevice; 3]) -> Members<&mut MemoryDevice> {
    Members::new(devices.into_iter().collect())
}

/// Any device of the size of a lost one was taken for it, and written over.
#[test]
fn a_device_that_shares_a_region_is_not_taken_for_another() {
    let mut devices = [0, 1, 2].map(|_| MemoryDevice::new(SECTOR_BYTES, SECTORS));
    let mut others = [0, 1, 2].map(|_| MemoryDevice::new(SECTOR_BYTES, SECTORS));
    for (devices, id) in [(&mut devices, ID), (&mut others, ID + 1)] {
        drop(Region::format(shared(devices.each_mut()), LOGICAL, id).expect("there is room"));
    }
    let mut blank = MemoryDevice::new(SECTOR_BYTES, SECTORS);
    let [a, b, c] = &mut devices;
    let [_, other, _] = &mut others;
    let refused = |devices: [&mut MemoryDevice; 3], number| {
        let refused = Some(RegionError::OtherDevice { number });
        let mut members = shared(devices);
        assert_eq!(probe(&mut members).err(), refused);
        assert_eq!(Region::open(members).err(), refused);
    };
    refused([a, &mut blank, c], 2);
    refused([a, b, &mut blank], 3);
    refused([a, other, c], 2);
    refused([a, c, b], 2);
    let untouched = Blocking::new(&mut blank).read(0, SECTORS).expect("it reads");
    assert!(untouched.iter().all(|&byte| byte == 0));
    Region::open(shared([a, b, c])).expect("as it was made");
}

#[test]
fn devices_of_one_copy_are_not_taken_for_those_of_another() {
    let mut devices = [0, 1, 2, 3].map(|_| MemoryDevice::new(SECTOR_BYTES, SECTORS));
    let [a, b, c, d] = &mut devices;
    let copies = vec![
        Members::new(vec![&mut *a, &mut *b]),
        Members::new(vec![&mut *c, &mut *d]),
    ];
    drop(Copies::format(copies, LOGICAL, ID).expect("there is room"));
    let refused = Some(RegionError::OtherDevice { number: 2 });
    let crossed = vec![
        Some(Members::new(vec![&mut *a, &mut *d])),
        Some(Members::new(vec![&mut *c, &mut *b])),
    ];
    assert_eq!(Copies::open(crossed, 1).err(), refused);
    let copies = vec![Some(Members::new(vec![a, b])), Some(Members::new(vec![c, d]))];
    Copies::open(copies, 1).expect("as they were made");
}

fn same(device: &mut MemoryDevice) -> MemoryDevice {
    let bytes = Blocking::new(device).read(0, SECTORS).expect("it reads");
    let mut same = MemoryDevice::new(SECTOR_BYTES, SECTORS);
    Blocking::new(&mut same).write(0, &bytes).expect("it writes");
    same
}

/// Its header has a new id then and its labels the old one, or none. Nothing of it is needed: it is made once more.
#[test]
fn a_copy_that_several_devices_share_is_made_again_after_any_crash() {
    let half = || {
        Members::new(vec![
            MemoryDevice::new(SECTOR_BYTES, SECTORS / 2),
            MemoryDevice::new(SECTOR_BYTES, SECTORS / 2),
        ])
    };
    for is_old in [false, true] {
        let (mut a, mut shared) = (MemoryDevice::new(SECTOR_BYTES, SECTORS), half());
        let devices: Vec<&mut dyn RangeDevice> = vec![&mut a, &mut shared];
        drop(Copies::format(devices, LOGICAL, ID).expect("there is room"));
        put(vec![Some(&mut a), None], 1, 7);
        let before = if is_old { shared } else { half() };
        let mut kept = same(&mut a);
        let mut again = VolatileDevice::holding(before).expect("it can be read");
        drop(Copies::open(vec![Some(&mut a as &mut dyn RangeDevice), Some(&mut again)], 3).expect("it is made"));
        let mut unfinished = 0;
        for cut in again.cuts() {
            for image in cut.images(1) {
                let mut left = half();
                image.write_to(&mut left).expect("it is as large");
                unfinished += u64::from(matches!(
                    byte(vec![None, Some(&mut left)]),
                    Err(RegionError::Incomplete)
                ));
                let mut left = half();
                image.write_to(&mut left).expect("it is as large");
                let mut first = same(&mut kept);
                let devices: Vec<Option<&mut dyn RangeDevice>> = vec![Some(&mut first), Some(&mut left)];
                assert_eq!(byte(devices), Ok(7), "{image}");
            }
        }
        assert!(unfinished > 0);
    }
}
