//! Random options for sort(1), and text that is hard to sort.

use rand::seq::IndexedRandom;
use rand::{Rng, RngCore};

/// Random numbers that cost little even where nothing is optimized (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl RngCore for Random {
    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        bytes
            .chunks_mut(8)
            .for_each(|chunk| chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]));
    }
}

/// What sort(1) is asked, and with what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Case {
    /// Ordering options of the command line.
    pub(crate) letters: String,
    pub(crate) keys: Vec<String>,
    pub(crate) separator: Option<u8>,
    pub(crate) stable: bool,
    pub(crate) unique: bool,
    pub(crate) zero_terminated: bool,
    pub(crate) task: Task,
    pub(crate) inputs: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Task {
    #[default]
    Sort,
    Merge,
    Check,
}

/// What texts are made of: each group is what one option is about.
const TOKENS: [&[&str]; 8] = [
    &[
        "a",
        "b",
        "A",
        "B",
        "ab",
        "aB",
        "Ab",
        "abcdefgh",
        "abcdefghi",
        "abcdefghI",
        "z",
        "_",
        "-",
        "!",
        "~",
        "\u{7f}",
        "a\u{1}b",
    ],
    &[
        "0",
        "1",
        "-1",
        "+1",
        "007",
        "10",
        "9",
        "-0",
        "-0.0",
        ".5",
        "-.5",
        "0.50",
        "1.",
        "1..2",
        "--1",
        "1,000",
        "- 1",
        "12345678901234567890",
        "12345678901234567891",
        "-12345678901234567890.5",
        "0.00000000000000000001",
        "0000000000000000000000000000000001",
        "99999999999999999999999999999999999999999999",
    ],
    &[
        "1K", "1k", "2K", "1M", "0.5M", "1000", "1024", "-1K", "-2K", "-1M", "0K", "-0G", "1G", "1T", "1P", "1E", "1Z",
        "1Y", "1Ki", "1KB", ".1M", "1.M", "5m", "K",
    ],
    &[
        "JAN", "jan", "Feb", "MARCH", "may", "Ju", "jul", "AUG", "sept", "oCt", "NOV", "dec", "DECEMBER", "foo",
    ],
    &[
        "1e3",
        "1E3",
        "1e-3",
        "1000",
        "0x10",
        "0x1p4",
        "16",
        "inf",
        "-INF",
        "infinity",
        "nan",
        "-nan",
        "NaN(1)",
        "nan(0x7)",
        "1e5000",
        "-1e5000",
        "1e-5000",
        "1e4931",
        "0.1",
        "0.10",
        "1e-1",
        "0.1000000000000000055511151231257827",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551617",
        "9007199254740993",
        "9007199254740992.5",
        "1e",
        "1e+",
        "0x",
        "0x.8",
        "+5",
        "3.14159265358979323846264338327950288",
        "2e-4951",
        "x1",
        "\u{b}7",
    ],
    &[
        "a.txt",
        "a1.txt",
        "a10.txt",
        "a2.txt",
        "a02.txt",
        "a-1.2.3",
        "a-1.2.10",
        "a-1.2~rc1",
        "a.b.c",
        ".a",
        ".b",
        ".",
        "..",
        ".0",
        "..a",
        "a.tar.gz",
        "a-1.tar.gz",
        "a~",
        "a.~1~",
        "1.0",
        "1.0.1",
        "1.00",
        "lib1.0-2",
        "lib1.0+2",
        "z",
        "zz",
        "0",
        "00",
        "a.1a",
        "a.1",
        "x.y1.z",
        "1~",
        "1~~a",
    ],
    &[
        "word",
        "Word",
        "WORD",
        "two words",
        "www.example.org/index",
        "www.example.org/inde",
        "www.example.org/index.html",
    ],
    &[
        "\u{e4}", "\u{4e2d}", "\u{80}", "5\u{80}", "\u{ff}", "\u{0}", "\u{0}a", "a\u{0}b", "\r", "\u{b}", "\u{c}",
        "\u{1b}",
    ],
];

const SEPARATORS: [&str; 8] = ["", " ", "  ", "\t", ":", " \t ", ",", "::"];

/// A case of any kind.
pub(crate) fn case(rng: &mut Random) -> Case {
    let task = match rng.random_range(0..20) {
        0 => Task::Merge,
        1 => Task::Check,
        _ => Task::Sort,
    };
    let zero_terminated = rng.random_ratio(1, 8);
    let separator = rng
        .random_ratio(1, 3)
        .then(|| *b":, \t\0a\n1".choose(rng).expect("some"));
    let keys = (0..[0, 1, 1, 1, 2, 3].choose(rng).copied().unwrap_or(0))
        .map(|_| key(rng))
        .collect();
    Case {
        letters: if rng.random_ratio(1, 2) {
            letters(rng)
        } else {
            String::new()
        },
        keys,
        separator,
        stable: rng.random_ratio(1, 5),
        unique: rng.random_ratio(1, 5),
        zero_terminated,
        task,
        inputs: inputs(rng, task, if zero_terminated { 0 } else { b'\n' }),
    }
}

/// Mostly one kind of order, sometimes with what goes or does not go with it.
fn letters(rng: &mut Random) -> String {
    let mut letters = String::new();
    if rng.random_ratio(4, 5) {
        letters.push(*['n', 'g', 'h', 'M', 'V', 'f', 'd', 'i'].choose(rng).expect("some"));
    }
    for (letter, odds) in [('r', 4), ('b', 4), ('f', 6), ('d', 30), ('i', 30), ('n', 60), ('V', 60)] {
        if rng.random_ratio(1, odds) {
            letters.push(letter);
        }
    }
    letters
}

fn key(rng: &mut Random) -> String {
    let position = |rng: &mut Random, least: u32| {
        let field = rng.random_range(1..5);
        match rng.random_ratio(1, 3) {
            true => format!("{field}.{}", rng.random_range(least..6)),
            false => field.to_string(),
        }
    };
    let mut key = position(rng, 1);
    if rng.random_ratio(1, 2) {
        key += &letters(rng);
    }
    if rng.random_ratio(2, 3) {
        key += ",";
        key += &position(rng, 0);
        if rng.random_ratio(1, 4) {
            key += &letters(rng);
        }
    }
    key
}

fn inputs(rng: &mut Random, task: Task, terminator: u8) -> Vec<Vec<u8>> {
    let files = match task {
        Task::Sort => *[1, 1, 1, 2, 3].choose(rng).expect("some"),
        Task::Merge => rng.random_range(1..8),
        Task::Check => 1,
    };
    let lines = match rng.random_range(0..200) {
        0..20 => 0..3,
        20..140 => 0..60,
        140 if task == Task::Sort => 6000..12_000,
        _ => 100..500,
    };
    let favourites = [TOKENS.choose(rng), TOKENS.choose(rng)].map(|group| *group.expect("some"));
    (0..files)
        .map(|_| {
            let lines = rng.random_range(lines.clone());
            text(rng, lines, &favourites, terminator)
        })
        .collect()
}

fn text(rng: &mut Random, lines: usize, favourites: &[&[&str]], terminator: u8) -> Vec<u8> {
    // Some texts are the same few lines again and again, as levels of a log or a column of states are.
    let repeated = *[0.25, 0.25, 0.25, 0.97].choose(rng).expect("some");
    let mut earlier: Vec<Vec<u8>> = Vec::new();
    let mut text = Vec::new();
    for _ in 0..lines {
        let line = match earlier.choose(rng) {
            Some(again) if rng.random_bool(repeated) => again.clone(),
            _ => line(rng, favourites),
        };
        text.extend_from_slice(&line);
        text.push(terminator);
        earlier.push(line);
    }
    if rng.random_ratio(1, 3) {
        text.pop(); // no end of the last line
    }
    text
}

fn line(rng: &mut Random, favourites: &[&[&str]]) -> Vec<u8> {
    let mut line = Vec::new();
    for _ in 0..*[0, 1, 1, 1, 2, 3, 4].choose(rng).expect("some") {
        let group = if rng.random_ratio(9, 10) {
            favourites.choose(rng)
        } else {
            TOKENS.choose(rng)
        };
        let token = group.and_then(|group| group.choose(rng)).expect("some");
        line.extend_from_slice(SEPARATORS.choose(rng).expect("some").as_bytes());
        match rng.random_range(0..40) {
            0 => line.extend((0..rng.random_range(1..6)).map(|_| rng.random::<u8>())),
            1 => line.extend(std::iter::repeat_n(
                *b"0 19aA:".choose(rng).expect("some"),
                rng.random_range(1..400),
            )),
            2 => line.extend(rng.random_range(-1000..1000).to_string().bytes()),
            _ => line.extend_from_slice(token.as_bytes()),
        }
    }
    if rng.random_ratio(1, 6) {
        line.extend_from_slice(SEPARATORS.choose(rng).expect("some").as_bytes());
    }
    line
}
