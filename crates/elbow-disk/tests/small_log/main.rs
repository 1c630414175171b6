//! The small log of the guide: what a power cut leaves of it is what it promises, at every moment and with every subset
//! of what was not flushed; mistakes made on purpose are found; the guide quotes the program and what it prints.
#![allow(clippy::unwrap_used)]

mod history;
mod rig;
#[path = "../../examples/small_log.rs"]
#[allow(dead_code, reason = "its main is not called here")]
mod small_log;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use elbow_disk::Drive;
use elbow_disk::device::{ModelledDevice, Setup};
use elbow_file::range_device::{Blocking, MemoryDevice, RangeError, Request, TearingDevice};
use elbow_file::{Access, Errno, RealStorage, Storage};
use elbow_ranges::RangeSet;
use elbow_testkit::cases::seeds;

use history::{Script, cut_everywhere};
use rig::Fault;
use small_log::{Log, LogError, SLOT_SECTORS};

/// Random cases without `SEED` or `ROUNDS`.
const CASES: u64 = 3;
/// Sectors of the devices: so few slots that most are used again and again.
const SECTORS: u64 = 10 * SLOT_SECTORS;
/// Mistakes are looked for in so many cases.
const MISTAKE_CASES: u64 = 40;

fn sectors(range: std::ops::Range<u64>) -> RangeSet {
    std::iter::once(range).collect()
}

fn memory(seed: u64) -> MemoryDevice {
    MemoryDevice::capricious(512, SECTORS, seed)
}

#[test]
fn a_power_cut_loses_nothing_that_was_flushed_and_brings_nothing_back() {
    let mut seen = history::Seen::default();
    for seed in seeds(CASES) {
        println!("SEED={seed}");
        seen += cut_everywhere(&Script::new(seed), Box::new(memory(seed)));
    }
    println!("{seen:?}");
    assert!(
        seen.pending > 0 && seen.torn > 0 && seen.reused > 0 && seen.deepest == 3,
        "cuts lost something, slots were used again, and what was recovered was cut again: {seen:?}"
    );
}

/// Places are chosen by the model of a drive, of one track.
#[test]
fn a_power_cut_on_a_modelled_drive_loses_nothing_that_was_flushed() {
    let text = "name = 'track'\nheads = 1\nrotation_ms = 11.111\nseek = { head_switch_ms = 0, points_ms = [[1, 1]] }\n\
        zone = [{ cylinders = [0, 0], sectors_per_track = 20 }]";
    let drive = Arc::new(Drive::parse("track.toml", text).unwrap());
    for seed in seeds(2) {
        println!("SEED={seed}");
        // Leaked, since a device in a box outlives this test.
        let drive: &'static Arc<Drive> = Box::leak(Box::new(Arc::clone(&drive)));
        let seen = cut_everywhere(
            &Script::new(seed),
            Box::new(ModelledDevice::new(drive, Setup::default())),
        );
        assert!(seen.pending > 0, "{seen:?}");
    }
}

/// Writes fail with a part of them on the medium, and go elsewhere.
#[test]
fn a_power_cut_after_bad_places_loses_nothing_that_was_flushed() {
    let mut fired = 0;
    for seed in seeds(2) {
        println!("SEED={seed}");
        let mut writes = seed % 5;
        let tears = move |number: u64, request: &Request<'_>| {
            let is_write = matches!(request, Request::WriteRange { .. });
            writes += u64::from(is_write);
            (is_write && writes.is_multiple_of(6)).then_some(number % 3)
        };
        // So large that bad places never take the last slot, without which a log cannot go on.
        let device = MemoryDevice::capricious(512, 2 * SECTORS, seed);
        let torn = TearingDevice::new(device, Errno::IO, tears);
        fired += cut_everywhere(&Script::new(seed), Box::new(torn)).bad;
    }
    assert!(fired > 0);
}

/// Whether the cases find something that cannot be.
fn is_found(fault: Fault) -> bool {
    (0..MISTAKE_CASES).any(|seed| {
        let script = Script::new(seed).with(fault);
        catch_unwind(AssertUnwindSafe(|| cut_everywhere(&script, Box::new(memory(seed))))).is_err()
    })
}

#[test]
fn mistakes_are_found() {
    for fault in [
        Fault::NoChecksum,
        Fault::FlushesAreBarriers,
        Fault::ReusesEarly,
        Fault::SameIncarnation,
        Fault::OpensWithoutFlush,
    ] {
        assert!(is_found(fault), "{fault:?} stays unseen");
    }
}

/// A device that is handed on has given places of which the new owner does not know.
#[test]
fn a_log_opened_on_a_used_device_can_use_all_of_it() {
    let area = sectors(0..SECTORS);
    let open = |device| Log::open(device, &area);
    let mut log = open(memory(1)).unwrap();
    while log.append(b"not waited for").is_ok() {}
    for times in 1..4 {
        log = open(log.into_device()).unwrap();
        assert_eq!(
            (log.numbers(), log.incarnation),
            (0..9, 1 + times),
            "full, and opened again"
        );
        assert!(matches!(log.append(b"more"), Err(LogError::Full)));
    }
    let mut device = log.into_device();
    let zeros = vec![0; 512 * SECTORS as usize];
    Blocking::new(&mut device).write(0, &zeros).unwrap();
    let mut log = open(device).unwrap();
    for number in 1..9 {
        assert_eq!(log.append(b"again").unwrap(), number);
        log.flush().unwrap();
    }
    assert!(matches!(log.append(b"more"), Err(LogError::Full)));
    log.trim(3).unwrap();
    assert_eq!(log.read(3).unwrap(), b"again");
    assert!(matches!(log.read(2), Err(LogError::Unknown { .. })));
}

/// What comes after a record that is not there could not be found.
#[test]
fn a_log_that_has_failed_acknowledges_nothing_more() {
    let mut writes = 0;
    let failing = TearingDevice::new(memory(2), Errno::IO, move |_, request| {
        writes += u64::from(matches!(request, Request::WriteRange { .. }));
        (matches!(request, Request::WriteRange { .. }) && writes > 1).then_some(0)
    });
    let mut log = Log::open(failing, &sectors(0..SECTORS)).unwrap();
    let first = log.append(b"first").unwrap();
    let place = |error: LogError| match error {
        LogError::Device(RangeError::Io { place, .. }) => place,
        other => panic!("{other}"),
    };
    assert!(place(log.flush().unwrap_err()).is_some());
    assert_eq!((log.device().fired(), log.bad().total_bytes()), (5, 4 * SLOT_SECTORS));
    assert!(matches!(log.append(b"second"), Err(LogError::Failed)) && matches!(log.flush(), Err(LogError::Failed)));
    assert!(log.read(first).is_err());

    let mut flushes = 0;
    let failing = TearingDevice::new(memory(3), Errno::IO, move |_, request| {
        flushes += u64::from(matches!(request, Request::Flush));
        (matches!(request, Request::Flush) && flushes == 2).then_some(0)
    });
    let mut log = Log::open(failing, &sectors(0..SECTORS)).unwrap();
    log.append(b"first").unwrap();
    assert!(matches!(log.flush(), Err(LogError::Device(_))) && matches!(log.flush(), Err(LogError::Failed)));
}

/// Bad sectors are an error and not an older log, and a log without them.
#[test]
fn a_sector_that_cannot_be_read_is_named() {
    let mut reads = 0;
    let failing = TearingDevice::new(memory(4), Errno::IO, move |_, request| {
        reads += u64::from(matches!(request, Request::Read { .. }));
        (matches!(request, Request::Read { .. }) && reads == 1).then_some(0)
    });
    let mut blocking = Blocking::new(failing);
    let error = Log::open(blocking.device(), &sectors(0..SECTORS))
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("at sectors 0 to 20"), "{error}");
    let odd = sectors(3..SECTORS - 1);
    let mut log = Log::open(blocking.device(), &odd).unwrap();
    for _ in 0..SECTORS / SLOT_SECTORS - 5 {
        log.append(b"in whole slots").unwrap();
    }
    assert!(matches!(log.append(b"more"), Err(LogError::Full)));
    log.flush().unwrap();
}

#[test]
fn what_cannot_be_a_record_is_refused() {
    let mut log = Log::open(memory(5), &sectors(0..SECTORS)).unwrap();
    assert!(matches!(log.append(&[]), Err(LogError::Length { most: 980, .. })));
    assert!(matches!(
        log.append(&[1; 981]),
        Err(LogError::Length { bytes: 981, .. })
    ));
    let number = log.append(&[1; 980]).unwrap();
    assert_eq!(log.read(number).unwrap(), [1; 980]);
    assert!(matches!(log.cancel(), Err(LogError::Written)));
}

/// A record with one after it was taken back, and the one after it was lost.
#[test]
fn only_the_newest_record_can_be_taken_back() {
    let mut log = Log::open(memory(6), &sectors(0..SECTORS)).unwrap();
    log.append(b"under way").unwrap();
    let hour = Duration::from_secs(3600);
    log.append_by(b"waited for", hour).unwrap();
    assert!(matches!(log.cancel(), Err(LogError::Written)));
    let taken_back = log.append(b"taken back").unwrap();
    log.cancel().unwrap();
    assert_eq!(log.append(b"in its place").unwrap(), taken_back);
    let late = log.append_by(b"late", Duration::ZERO);
    assert!(matches!(late, Err(LogError::Device(RangeError::Late { .. }))));
    assert_eq!(log.flush().unwrap(), 4);
    let mut log = Log::open(log.into_device(), &sectors(0..SECTORS)).unwrap();
    let payloads = log.numbers().map(|number| log.read(number).unwrap());
    assert_eq!(
        payloads.collect::<Vec<_>>(),
        [&b""[..], b"under way", b"waited for", b"in its place"]
    );
}

/// The lines of a file are there when the program is started again, and it makes room by itself.
#[test]
fn a_file_keeps_its_lines() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let handle = RealStorage::open_file(file.path(), Access::ReadWrite).unwrap();
    RealStorage.truncate(&handle, 32 * 1024).unwrap();
    let run = |lines: &str| {
        let mut out = Vec::new();
        small_log::on_a_file(file.path(), &mut lines.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(run("one\ntwo\n"), "records before 3 are durable; bad places: {}\n");
    assert!(run("three\n").starts_with("1: one\n2: two\nrecords before 4"));
    assert!(run("\n").contains("records before 4 "), "an empty line is no record");
    let too_long = format!("four\n{}\nfive\n", "x".repeat(2000));
    let mut out = Vec::new();
    let error = small_log::on_a_file(file.path(), &mut too_long.as_bytes(), &mut out).unwrap_err();
    assert!(error.to_string().contains("2000"), "{error}");
    let shown = run("");
    assert!(shown.contains(": four\n") && !shown.contains(": five\n"), "{shown}");
    run(&"line\n".repeat(100));
    let shown = run("");
    let lines = shown.lines().filter(|line| line.ends_with(": line")).count();
    assert!((10..32).contains(&lines), "{shown}");
}

/// Every piece of the program, in order, and what it prints.
#[test]
fn the_guide_is_the_program() {
    let page = include_str!("../../../../docs/src/guide/small-log.md");
    let program = include_str!("../../examples/small_log.rs");
    let blocks = |kind: &str| -> Vec<&str> {
        let begins = format!("```{kind}\n");
        page.split(&begins)
            .skip(1)
            .map(|rest| rest.split("```\n").next().unwrap())
            .collect()
    };
    let code = |text: &str| -> Vec<String> {
        let is_doc = |line: &&str| line.starts_with("//!") || line.is_empty();
        text.lines().filter(|line| !is_doc(line)).map(str::to_owned).collect()
    };
    let (quoted, expected) = (code(&blocks("rust").concat()), code(program));
    for (at, (quoted, expected)) in quoted.iter().zip(&expected).enumerate() {
        assert_eq!(quoted, expected, "line {at} of the program in the guide");
    }
    assert_eq!(quoted.len(), expected.len());
    let mut out = Vec::new();
    small_log::on_a_drive(&mut out).unwrap();
    assert_eq!(blocks("text")[0], String::from_utf8(out).unwrap());
}
