//! Sorts in place that are killed at random moments, and resumed, and killed again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::process::Child;
use std::time::{Duration, Instant};

use elbow_testkit::cases::{rounds, seed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::fs::SeekFrom;

use crate::testbed::{Content, RECORD_BYTES, Testbed, assert_in_order, begins_with_data, megabytes, sorted_records_of};

/// Kills in a normal test run.
const KILLS: u64 = 210;
const KILLS_OF_SEVERAL_PASSES: u64 = 25;
/// Each part of a sort has to be hit by at least the SHARE-th part of the kills; there are more until that is so, at
/// most PATIENCE times as many.
const SHARE: u64 = 10;
const PATIENCE: u64 = 3;
/// How the time that a sort takes is corrected by each kill before a sort had begun, by each other one, and by each sort that came to its end: it is another
/// time while other work begins and ends on the machine. These leave it as it is where a sort is killed about four times before its end.
const BEGUN_LATER: f64 = 1.1;
const LONGER: f64 = 1.02;
const SHORTER: f64 = 0.9;
/// What file systems free at a time.
const BLOCK_BYTES: u64 = 4096;
/// So long that offsets, which are multiples of a record and of a page, leave memory for the blocks of seven runs only:
/// few megabytes take two passes.
const LONG_RECORD_BYTES: usize = 19 * RECORD_BYTES;

/// What a killed sort was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    NotBegun,
    Forming,
    Merging,
    /// The file is whole, or about to be: before the first run is durable, or after the last byte is written.
    Edge,
}

/// Looks at what is there. While runs are formed the input is freed from its beginning; when they are merged the file
/// has nothing in it but what was written so far, and its end comes last.
fn moment(testbed: &Testbed) -> Moment {
    if !testbed.is_begun() {
        return Moment::NotBegun;
    }
    let file = File::open(testbed.path("data")).expect("the file");
    // What is beyond the last whole block is never freed.
    let last = file.metadata().expect("its size").len() / BLOCK_BYTES * BLOCK_BYTES - 1;
    let ends_with_data = rustix::fs::seek(&file, SeekFrom::Data(last)) == Ok(last);
    match (begins_with_data(&file), ends_with_data) {
        (_, false) => Moment::Merging,
        (false, true) => Moment::Forming,
        (true, true) => Moment::Edge,
    }
}

/// Kills a sort after a while; `false` when it ended by itself before that, and well.
fn killed_after(mut child: Child, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if child.try_wait().expect("its state").is_some() {
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    let _ = child.kill();
    let output = child.wait_with_output().expect("an end");
    assert!(
        output.status.success() || output.status.code().is_none(),
        "a sort that nobody disturbed: {output:?}"
    );
    output.status.code().is_none()
}

struct Killer {
    rng: StdRng,
    /// How long a sort takes that is not killed.
    whole: Duration,
    /// Kills of sorts that had begun.
    kills: BTreeMap<Moment, u64>,
    /// The others, which count for nothing.
    early: u64,
}

impl Killer {
    fn new(seed: u64, input: &[u8], begin: &[&str]) -> Self {
        let whole = (0..3).map(|_| {
            let testbed = Testbed::with(input);
            let began = Instant::now();
            testbed.sort(begin).assert_code(0);
            began.elapsed()
        });
        Self {
            rng: StdRng::seed_from_u64(seed),
            whole: whole.min().expect("three times"),
            kills: BTreeMap::new(),
            early: 0,
        }
    }

    fn total(&self) -> u64 {
        self.kills.values().sum()
    }

    /// Were runs formed, and merged, at a good share of the kills?
    fn has_hit_all(&self) -> bool {
        let hits = |moment| self.kills.get(&moment).copied().unwrap_or(0);
        hits(Moment::Forming) * SHARE >= self.total() && hits(Moment::Merging) * SHARE >= self.total()
    }

    fn note(&mut self, moment: Moment) {
        if moment == Moment::NotBegun {
            self.early += 1;
            self.whole = self.whole.mul_f64(BEGUN_LATER);
        } else {
            *self.kills.entry(moment).or_default() += 1;
            self.whole = self.whole.mul_f64(LONGER);
        }
    }

    /// Kills one sort again and again until one of its processes comes to the end.
    fn torment(&mut self, testbed: &Testbed, begin: &[&str]) {
        loop {
            let words = if testbed.is_begun() {
                &["--resume", "-S", "8M", "data"]
            } else {
                begin
            };
            // What comes first is over soon: it would be hit by the first kill of a sort at most.
            let most = if moment(testbed) == Moment::Merging { 1.0 } else { 0.4 };
            let time = self.whole.mul_f64(self.rng.random_range(0.0..most));
            if !killed_after(testbed.start(words), time) {
                self.whole = self.whole.mul_f64(SHORTER);
                return;
            }
            self.note(moment(testbed));
        }
    }
}

/// Torments sorts of one input until so many processes are killed; every other sort is stable.
fn kill_and_check(seed: u64, (bytes, input): (usize, &[u8]), kills: u64) {
    let (expected, content) = (sorted_records_of(bytes, input), Content::of(input));
    let begin = order(bytes);
    let begin: Vec<&str> = begin.iter().map(String::as_str).collect();
    let mut killer = Killer::new(seed, input, &begin);
    for round in 0.. {
        let is_enough = killer.total() >= kills && killer.has_hit_all();
        if is_enough || killer.total().max(killer.early) >= PATIENCE * kills {
            break;
        }
        let testbed = Testbed::with(input);
        let before = testbed.identity("data");
        let stable: &[&str] = if round % 2 == 0 { &["-s"] } else { &[] };
        killer.torment(&testbed, &[&begin[..], stable].concat());
        let output = testbed.read("data");
        assert_in_order(bytes, &output);
        assert!(
            Content::of(&output) == content,
            "round {round}: records are lost or doubled"
        );
        assert!(stable.is_empty() || output == expected, "round {round}: not stable");
        assert_eq!(testbed.identity("data"), before, "round {round}: inode and size");
        assert_eq!(testbed.names(), ["data"], "round {round}: something is left");
    }
    let Killer {
        whole, kills, early, ..
    } = &killer;
    // Not println: the test runner would keep it to itself.
    let _ = writeln!(
        std::io::stderr(),
        "kills of sorts of {whole:?} each: {kills:?}, and {early} before they began"
    );
    assert!(killer.has_hit_all(), "a part of the sort was hardly hit: {kills:?}");
}

/// The command to sort records of so many bytes in place.
fn order(bytes: usize) -> Vec<String> {
    let bytes = bytes.to_string();
    let words = [
        "--record",
        &bytes,
        "--key",
        "0:4:u32le",
        "-S",
        "8M",
        "--in-place",
        "data",
    ];
    words.map(str::to_owned).to_vec()
}

#[test]
fn a_sort_in_place_that_is_killed_at_any_moment_is_resumed() {
    let (seed, kills) = (seed(), rounds(KILLS).min(10 * KILLS));
    kill_and_check(seed, (RECORD_BYTES, &megabytes(4, seed)), kills);
}

#[test]
fn a_sort_in_place_of_several_passes_that_is_killed_is_resumed() {
    let (seed, kills) = (seed(), KILLS_OF_SEVERAL_PASSES);
    let mut input = megabytes(12, seed);
    input.truncate(input.len() / LONG_RECORD_BYTES * LONG_RECORD_BYTES);
    let testbed = Testbed::with(&input);
    let begin = order(LONG_RECORD_BYTES);
    let mut words: Vec<&str> = begin.iter().map(String::as_str).collect();
    words.extend(["--dry-run", "--json"]);
    let need = testbed.sort(&words);
    assert!(need.json()["passes"].as_u64() > Some(1), "{need:?}");
    kill_and_check(seed, (LONG_RECORD_BYTES, &input), kills);
}
