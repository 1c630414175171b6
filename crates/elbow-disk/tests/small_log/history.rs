//! A random history of a log, what may be found of it at each moment, and the power cuts that look for it.
//!
//! ```text
//!   script on an empty device ──cut at each moment──> images ──opened, compared with what was promised then
//!                                                       └ some of them ──another script──cut at each moment──> ...
//! ```

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use elbow_file::range_device::{CutImage, RangeDevice, RangeError};
use elbow_ranges::RangeSet;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::rig::{Fault, Remembering, Rig};
use crate::small_log::{Log, LogError};
use crate::{SECTORS, SLOT_SECTORS};

/// Steps of a script.
const STEPS: u64 = 14;
/// A log that was found is written to and cut again, up to so many times.
const DEPTH: u64 = 3;
/// So many images of a history are gone on with.
const GONE_ON: usize = 2;

/// What happens to a log, from a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    seed: u64,
    fault: Fault,
    /// How many logs there were on the medium before.
    depth: u64,
}

impl Script {
    pub(crate) fn new(seed: u64) -> Self {
        let (fault, depth) = (Fault::None, 1);
        Self { seed, fault, depth }
    }

    pub(crate) fn with(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    fn next(self) -> Self {
        let depth = self.depth + 1;
        Self { depth, ..self }
    }

    /// Half of the scripts append the same again after a power cut, as a program does that begins anew.
    fn payload(self, number: u64, step: u64) -> Vec<u8> {
        let text = match self.seed % 2 {
            0 => format!("{number}"),
            _ => format!("{number} in step {step} of log {}", self.depth),
        };
        text.bytes().cycle().take(900).collect()
    }
}

/// What the cuts have met.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Most writes at a cut that may survive or not.
    pub(crate) pending: usize,
    /// Images in which a write survived in part.
    pub(crate) torn: usize,
    /// Records appended when there had been more than slots.
    pub(crate) reused: u64,
    /// Places at which the device failed.
    pub(crate) bad: u64,
    pub(crate) deepest: u64,
}

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.pending = self.pending.max(other.pending);
        self.torn += other.torn;
        self.reused += other.reused;
        self.bad += other.bad;
        self.deepest = self.deepest.max(other.deepest);
    }
}

/// What is promised of a log at a moment.
#[derive(Clone, Debug, Default)]
struct Promise {
    /// What may be in it; empty are the records by which it is trimmed.
    appended: BTreeMap<u64, Vec<u8>>,
    /// All before are durable.
    durable: u64,
    /// Trimmed up to here for certain, and perhaps.
    trimmed: u64,
    trimmed_perhaps: u64,
}

impl Promise {
    fn check(&self, found: &BTreeMap<u64, Vec<u8>>) {
        let first = found
            .keys()
            .next()
            .copied()
            .unwrap_or(self.trimmed_perhaps.max(self.durable));
        assert!(
            (self.trimmed..=self.trimmed_perhaps).contains(&first),
            "it begins with {first}, and was trimmed to {} or {}",
            self.trimmed,
            self.trimmed_perhaps
        );
        let missing = (first..self.durable).find(|number| !found.contains_key(number));
        assert!(missing.is_none(), "{missing:?} was acknowledged");
        for (number, payload) in found {
            let is_known = self.appended.get(number) == Some(payload);
            assert!(is_known, "{number} is not what was appended, or was not");
        }
    }

    /// A device on which there was no log: it begins with an empty record.
    fn of_nothing() -> Self {
        let appended = BTreeMap::from([(0, Vec::new())]);
        Self {
            appended,
            ..Self::default()
        }
    }

    fn of(found: BTreeMap<u64, Vec<u8>>) -> Self {
        let next = found.keys().last().map_or(0, |last| last + 1);
        let first = found.keys().next().copied().unwrap_or(next);
        Self {
            appended: found,
            durable: next,
            trimmed: first,
            trimmed_perhaps: first,
        }
    }
}

/// Runs a script, cuts the power at each moment of it, opens all that it leaves, and goes on with some.
pub(crate) fn cut_everywhere(script: &Script, device: Box<dyn RangeDevice>) -> Seen {
    cut_all(*script, Remembering::empty(device, script.fault), Promise::of_nothing())
}

/// The promise is that of the log before: it holds until the log has been opened.
fn cut_all(script: Script, rig: Remembering, before: Promise) -> Seen {
    let (rig, promises, mut seen) = Run::new(script, rig, before).run();
    let mut random = StdRng::seed_from_u64(script.seed ^ 0xc0ffee);
    let mut kept = Vec::new();
    let mut images = 0_u32;
    for (moment, cut) in rig.volatile().cuts().enumerate() {
        let promise = promises.range(..=moment).next_back().expect("one of the beginning").1;
        seen.pending = seen.pending.max(cut.pending());
        for image in cut.images(script.seed) {
            let told = format!("log {}, moment {moment}, {image}", script.depth);
            seen.torn += usize::from(told.contains('~'));
            let _told = TellOnPanic(&told);
            promise.check(&found(&image, script.fault));
            images += 1;
            if script.depth < DEPTH && random.random_range(0..images) < GONE_ON as u32 {
                kept.truncate(GONE_ON - 1);
                kept.insert(random.random_range(0..=kept.len()), (image, promise.clone()));
            }
        }
    }
    for (image, promise) in kept {
        seen += cut_all(script.next(), Remembering::found(&image, script.fault), promise);
    }
    seen
}

struct TellOnPanic<'a>(&'a str);

impl Drop for TellOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("{}", self.0);
        }
    }
}

fn all_of(device: &impl RangeDevice) -> RangeSet {
    std::iter::once(0..device.shape().sectors).collect()
}

/// What a log on an image holds.
fn found(image: &CutImage, fault: Fault) -> BTreeMap<u64, Vec<u8>> {
    let rig = Rig::new(image.to_memory(), fault);
    let sectors = all_of(&rig);
    records(&mut Log::open(rig, &sectors).unwrap())
}

fn records<D: RangeDevice>(log: &mut Log<D>) -> BTreeMap<u64, Vec<u8>> {
    let numbers = log.numbers();
    numbers.map(|number| (number, log.read(number).unwrap())).collect()
}

/// A script under way.
struct Run {
    script: Script,
    log: Log<Remembering>,
    now: Promise,
    /// From which moment on what holds.
    promises: BTreeMap<usize, Promise>,
    random: StdRng,
    bad: RangeSet,
    seen: Seen,
}

impl Run {
    fn new(script: Script, rig: Remembering, before: Promise) -> Self {
        let sectors = all_of(&rig);
        let mut log = opened(script, rig, &sectors);
        let found = records(&mut log);
        before.check(&found);
        let now = Promise::of(found);
        let opened = log.device().volatile().now();
        Self {
            script,
            log,
            promises: BTreeMap::from([(0, before), (opened, now.clone())]),
            random: StdRng::seed_from_u64(script.seed << 8 | script.depth),
            bad: RangeSet::new(),
            seen: Seen {
                deepest: script.depth,
                ..Seen::default()
            },
            now,
        }
    }

    fn run(mut self) -> (Remembering, BTreeMap<usize, Promise>, Seen) {
        for step in 0..STEPS {
            match self.random.random_range(0..16) {
                0..=8 => self.append(step),
                9..=11 => self.flush(),
                12..=13 => self.trim(step),
                14 if self.random.random() => self.append_and_cancel(step),
                14 => self.append_late(step),
                _ => self = self.open_again(),
            }
        }
        self.flush();
        self.seen.bad += self.log.bad().len() as u64;
        (self.log.into_device(), self.promises, self.seen)
    }

    /// From now on the promise is this.
    fn promise(&mut self) {
        let moment = self.log.device().volatile().now();
        self.promises.insert(moment, self.now.clone());
    }

    fn append(&mut self, step: u64) {
        let number = self.log.numbers().end;
        let payload = self.script.payload(number, step);
        let before = self.now.appended.insert(number, payload.clone());
        self.promise();
        match self.log.append(&payload) {
            Ok(given) => {
                assert_eq!(given, number);
                self.seen.reused += u64::from(number >= SECTORS / SLOT_SECTORS);
            }
            Err(LogError::Full) => self.forget(number, before),
            Err(error) => panic!("{error}"),
        }
    }

    /// It was not written.
    fn forget(&mut self, number: u64, before: Option<Vec<u8>>) {
        match before {
            Some(before) => self.now.appended.insert(number, before),
            None => self.now.appended.remove(&number),
        };
        self.promise();
    }

    fn append_and_cancel(&mut self, step: u64) {
        let number = self.log.numbers().end;
        self.append(step);
        match self.log.cancel() {
            Ok(()) => self.forget(number.min(self.log.numbers().end), None),
            Err(LogError::Written | LogError::Device(RangeError::Begun { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn append_late(&mut self, step: u64) {
        let number = self.log.numbers().end;
        let payload = self.script.payload(number, step);
        match self.log.append_by(&payload, Duration::ZERO) {
            Err(LogError::Full | LogError::Device(RangeError::Late { .. })) => {}
            Ok(_) => drop(self.now.appended.insert(number, payload)), // no time had gone by
            Err(error) => panic!("{error}"),
        }
        self.promise();
    }

    fn flush(&mut self) {
        self.now.durable = self.log.flush().unwrap();
        self.promise();
    }

    fn trim(&mut self, step: u64) {
        let numbers = self.log.numbers();
        let head = self.random.random_range(numbers.start..=numbers.end);
        if head == numbers.start {
            return;
        }
        self.now.trimmed_perhaps = head;
        if self.script.fault == Fault::ReusesEarly {
            self.promise();
            self.log.give_back(head);
            (0..3).for_each(|_| self.append(step));
        }
        let number = self.log.numbers().end;
        self.now.appended.insert(number, Vec::new());
        self.promise();
        self.log.trim(head).unwrap();
        self.now.durable = self.log.numbers().end;
        self.now.trimmed = head;
        self.promise();
    }

    /// The program ends, but the power does not.
    fn open_again(mut self) -> Self {
        self.bad = self.bad.union(self.log.bad());
        self.seen.bad += self.log.bad().len() as u64;
        let rig = self.log.into_device();
        let sectors = all_of(&rig).difference(&self.bad);
        let mut log = opened(self.script, rig, &sectors);
        let found = records(&mut log);
        self.now.check(&found);
        self.now = Promise::of(found);
        let mut this = Self { log, ..self };
        this.promise();
        this
    }
}

fn opened(script: Script, rig: Remembering, sectors: &RangeSet) -> Log<Remembering> {
    let opens = std::rc::Rc::clone(&rig.opens);
    opens.set(true);
    let mut log = Log::open(rig, sectors).unwrap();
    opens.set(false);
    if script.fault == Fault::SameIncarnation {
        log.incarnation = 1;
    }
    log
}
