//! Writes that are sieved: as whole as others, with fewer requests, and nothing between the pieces is lost.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use elbow_lock::{Client, file_name};
use elbow_testkit::cases::{rounds, seed};

use crate::implementations;
use crate::service::Service;
use crate::testbed::{Output, Run, Testbed};
use crate::{ROUNDS, SLOW};

/// Of tests/c/overlap.c.
const PIECES: u64 = 48;
const METHODS: [&str; 4] = ["write_at", "write", "iwrite_at", "iwrite_at_all"];
const VARIABLE: &str = "ELBOW_MPI_SIEVING";

/// Runs one method of overlap.c, which must be whole and lose nothing in the gaps.
fn whole(testbed: &Testbed, mpi: &implementations::Mpi, url: &str, variable: (&str, &str), method: &str) -> Output {
    let how = Run {
        service: Some(url),
        variable: Some(variable),
        ..SLOW
    };
    whole_on(testbed, mpi, how, method)
}

fn whole_on(testbed: &Testbed, mpi: &implementations::Mpi, how: Run<'_>, method: &str) -> Output {
    let (program, variable) = (mpi.compile("c/overlap.c", testbed.path()), how.variable);
    let (rounds, seed) = (rounds(ROUNDS).to_string(), seed().to_string());
    let output = testbed.run(mpi, how, &program, &[method, &rounds, &seed]);
    let expected = format!("{method}: torn 0 of {rounds} rounds, gaps lost in 0");
    assert!(output.succeeded, "{} {variable:?}: {}", mpi.name, output.printed);
    assert_eq!(output.torn(), [expected], "{} {variable:?}", mpi.name);
    output
}

/// A sieved access writes back the gaps, into which one process writes by list locks at the same time.
#[test]
fn sieved_writes_are_whole_and_lose_nothing_in_the_gaps() {
    let (testbed, rounds, writers) = (Testbed::new(), rounds(ROUNDS), u64::from(SLOW.ranks) - 1);
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        for method in METHODS {
            let output = whole(&testbed, &mpi, &service.url, (VARIABLE, "always"), method);
            // One each, one that is made to see how long a request takes, and what the library writes for itself.
            let most = 4 * rounds * writers;
            let writes = output.writes().unwrap_or(u64::MAX);
            assert!(
                writes <= most,
                "{} {method}: {writes} writes, not sieved: {}",
                mpi.name,
                output.printed
            );
        }
    }
}

#[test]
fn processes_that_sieve_and_others_that_do_not_are_whole_together() {
    let (testbed, rounds) = (Testbed::new(), rounds(ROUNDS));
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        for method in METHODS {
            let output = whole(&testbed, &mpi, &service.url, ("MIXED", "1"), method);
            // Of four writers two write piece by piece.
            let (least, writes) = (2 * rounds * PIECES, output.writes().unwrap_or(0));
            assert!(
                (least..least + 8 * rounds).contains(&writes),
                "{} {method}: {writes} writes: {}",
                mpi.name,
                output.printed
            );
        }
    }
}

#[test]
fn who_forbids_sieving_gets_one_request_for_each_piece() {
    let (testbed, rounds, writers) = (Testbed::new(), rounds(ROUNDS), u64::from(SLOW.ranks) - 1);
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        let output = whole(&testbed, &mpi, &service.url, (VARIABLE, "never"), "write_at");
        let writes = output.writes().unwrap_or(0);
        assert!(
            writes >= rounds * writers * PIECES,
            "{}: {writes} writes: {}",
            mpi.name,
            output.printed
        );
    }
}

/// Small pieces on slow storage: what it costs is found out, and sieved it is. The storage is so slow that what a busy machine adds is little.
#[test]
fn small_pieces_on_slow_storage_are_sieved_by_themselves() {
    let (testbed, rounds, writers) = (Testbed::new(), rounds(ROUNDS), u64::from(SLOW.ranks) - 1);
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        let how = Run {
            service: Some(&service.url),
            variable: Some((VARIABLE, "automatic")),
            write_delay_us: 10 * SLOW.write_delay_us,
            ..SLOW
        };
        let output = whole_on(&testbed, &mpi, how, "write_at");
        let writes = output.writes().unwrap_or(u64::MAX);
        assert!(
            writes < rounds * writers * PIECES / 2,
            "{}: {writes} writes: {}",
            mpi.name,
            output.printed
        );
    }
}

/// Runs of slower.c, until one begins on a fast storage.
const TRIES: u32 = 40;

/// How many writes each access made that was of that kind.
fn writes_of(output: &Output, kind: &str) -> Vec<u64> {
    let lines = output.printed.lines().filter_map(|line| line.strip_prefix(kind));
    let counts = lines.filter_map(|line| line.strip_suffix(" writes"));
    counts.map(|count| count.parse().unwrap()).collect()
}

/// A process had to write two accesses piece by piece before it believed that the storage had become slow: seconds where windows take milliseconds.
#[test]
fn a_storage_that_has_become_slow_is_noticed_before_the_next_access() {
    for mpi in implementations::installed() {
        let testbed = Testbed::in_memory();
        let service = Service::start(testbed.path());
        let program = mpi.compile("c/slower.c", testbed.path());
        let how = Run {
            ranks: 1,
            service: Some(&service.url),
            variable: Some((VARIABLE, "automatic")),
            ..Run::default()
        };
        // A busy machine may make a fast storage look slow: then the run tells nothing.
        let (output, slow) = (0..TRIES)
            .find_map(|_| {
                let output = testbed.run(&mpi, how, &program, &[]);
                assert!(output.succeeded, "{}: {}", mpi.name, output.printed);
                let (fast, slow) = (writes_of(&output, "fast: "), writes_of(&output, "slow: "));
                (*fast.last()? >= 150).then_some((output, slow))
            })
            .unwrap_or_else(|| panic!("{}: it was slow from the beginning {TRIES} times", mpi.name));
        assert_eq!(slow.len(), 2, "{}: {}", mpi.name, output.printed);
        // Of 49 MB in chunks of 4 MiB, and what is written to see how long it takes.
        assert!(slow.iter().all(|&writes| writes <= 15), "{}: {slow:?}", mpi.name);
    }
}

/// The same bytes at the same places, whatever lies in memory and in the file, with the same status and file pointer.
#[test]
fn a_sieved_write_leaves_what_an_ordinary_one_leaves() {
    let testbed = Testbed::new();
    let service = Service::start(testbed.path());
    for mpi in implementations::installed() {
        let program = mpi.compile("c/sieve.c", testbed.path());
        let how = Run {
            ranks: 1,
            service: Some(&service.url),
            variable: Some((VARIABLE, "always")),
            ..Run::default()
        };
        let cases = rounds(40).to_string();
        let output = testbed.run(&mpi, how, &program, &[&cases, &seed().to_string()]);
        assert!(
            output.succeeded && output.printed.contains(&format!("{cases} cases are the same")),
            "{}: {}",
            mpi.name,
            output.printed
        );
    }
}

/// Of tests/c/lost.c.
const STRIDE: u64 = 4 << 10;
const FILE_BYTES: u64 = 40 << 20;

/// The story: the lock was looked at when it was granted and when all was written, so that a write of many chunks put back into the gaps what
/// it had read there, over what others wrote under locks of their own since.
#[test]
fn who_loses_the_lock_writes_back_no_gaps_any_more() {
    for mpi in implementations::installed() {
        let testbed = Testbed::new();
        let service = Service::start(testbed.path());
        let program = mpi.compile("c/lost.c", testbed.path());
        let how = Run {
            ranks: 1,
            service: Some(&service.url),
            variable: Some((VARIABLE, "always")),
            write_delay_us: 500_000, // So that it hears of it while it writes what was on the way.
            ..Run::default()
        };
        let (data, broken_note) = (testbed.data(), testbed.path().join("broken"));
        let (is_over, lost) = (AtomicBool::new(false), AtomicU64::new(0));
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                // Other tests may run before the program does.
                while read_byte(&data, 0) != Some(b'n') && !is_over.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let client = Client::connect(&service.url).unwrap();
                let broken = client.break_locks(&file_name(&data).unwrap(), None, true).unwrap();
                assert_eq!(broken.len(), 1, "{}: it held nothing", mpi.name);
                std::fs::write(&broken_note, "").unwrap();
                lost.store(write_into_gap(&data, &is_over), Ordering::Relaxed);
            });
            let _ends = SetOnDrop(&is_over);
            testbed.run(&mpi, how, &program, &[broken_note.to_str().unwrap()])
        });
        assert!(
            output.printed.contains("lost as it should be"),
            "{}: {}",
            mpi.name,
            output.printed
        );
        let lost = lost.into_inner();
        assert_eq!(lost, 0, "{}: of the other's writes: {}", mpi.name, output.printed);
        // That of the probe, those of two chunks at most, and what the library writes for itself.
        let writes = output.writes().unwrap_or(u64::MAX);
        assert!(writes <= 5, "{}: it went on: {}", mpi.name, output.printed);
    }
}

/// Says that something is over, also when it has panicked.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes one number after the other into the last gap until it is over, and counts those that are gone when the next one is written.
fn write_into_gap(data: &Path, is_over: &AtomicBool) -> u64 {
    let gap = FILE_BYTES - STRIDE - 1;
    let file = std::fs::OpenOptions::new().write(true).open(data).unwrap();
    let mut numbers = (1..=u8::MAX).cycle();
    let mut lost = 0;
    while !is_over.load(Ordering::Relaxed) {
        let number = numbers.next().unwrap();
        file.write_all_at(&[number], gap).unwrap();
        std::thread::sleep(Duration::from_millis(5));
        lost += u64::from(read_byte(data, gap) != Some(number));
    }
    lost
}

fn read_byte(path: &Path, at: u64) -> Option<u8> {
    let mut byte = [0];
    let file = std::fs::File::open(path).ok()?;
    file.read_exact_at(&mut byte, at).ok()?;
    Some(byte[0])
}
