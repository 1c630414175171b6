//! Random options and inputs, against the sort(1) of the system in the C locale.
//!
//! Our engine runs in this process with very little memory, so that runs and several passes of merging are the rule for
//! all but the smallest inputs; sort(1) runs as a process for each case, many of them started by one shell, on files in
//! memory. Some cases are large, with runs on a disk and the result in a file: those are merged in several lanes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use elbow_extmem::text::{
    Fields, Input, KeyOptions, KeySpec, OrderOptions, Output, SortOptions, Summary, TextError, TextOrder, TextSort,
};
use elbow_file::Handle;
use elbow_testkit::cases;
use rand::Rng as _;

use crate::generate::{self, Case, Random, Task};

/// Cases that one shell runs.
const BATCH: usize = 250;
const ROUNDS: usize = 5000;

/// What a sort gives: exit code, output or message.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    code: i32,
    output: Vec<u8>,
    message: Vec<u8>,
}

#[test]
fn random_options_and_inputs_give_what_sort_gives() {
    let (seed, rounds) = (cases::seed(), cases::rounds(ROUNDS as u64) as usize);
    let total = Total::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // A batch depends on the seed and its number alone.
                while let Some(first) = Some(next.fetch_add(BATCH, Relaxed)).filter(|first| *first < rounds) {
                    batch(seed, first, rounds.min(first + BATCH), &total);
                }
            });
        }
    });
    println!("{total:?}");
    if rounds >= ROUNDS {
        assert!(
            total.spilled.load(Relaxed) > rounds / 10,
            "too few cases had more than memory: {total:?}"
        );
        assert!(
            total.several_passes.load(Relaxed) > rounds / 50,
            "too few cases took several passes: {total:?}"
        );
        assert!(
            total.refused.load(Relaxed) > 0 && total.disorders.load(Relaxed) > 0,
            "{total:?}"
        );
        assert!(
            total.large.load(Relaxed) > rounds / 500,
            "too few cases were merged in lanes: {total:?}"
        );
    }
}

fn batch(seed: u64, first: usize, end: usize, total: &Total) {
    let mut rng = Random::new(seed.wrapping_add(first as u64));
    let mut cases: Vec<Case> = (first..end).map(|_| generate::case(&mut rng)).collect();
    cases.iter_mut().for_each(avoid_what_is_undefined);
    if !version().contains(" 9.1") {
        cases.iter_mut().for_each(avoid_what_newer_ones_do_differently);
    }
    let theirs = theirs(&cases);
    assert_eq!(theirs.len(), cases.len(), "sort(1) has ended for each");
    for (index, (case, theirs)) in cases.iter().zip(theirs).enumerate() {
        let ours = ours(case, &mut rng, total);
        assert!(
            ours == theirs,
            "SEED={seed}, case {}:\n{}",
            first + index,
            difference(case, &ours, &theirs)
        );
    }
}

/// What the cases were like.
#[derive(Debug, Default)]
struct Total {
    spilled: AtomicUsize,
    several_passes: AtomicUsize,
    large: AtomicUsize,
    refused: AtomicUsize,
    disorders: AtomicUsize,
}

fn version() -> String {
    let said = Command::new("sort")
        .arg("--version")
        .output()
        .expect("sort(1) is there");
    let text = String::from_utf8_lossy(&said.stdout);
    text.lines().next().unwrap_or_default().to_owned()
}

/// Two NaN of `-g` are compared by their bytes in memory, of which sort(1) leaves six as they happen to be.
fn avoid_what_is_undefined(case: &mut Case) {
    if !format!("{} {}", case.letters, case.keys.join(" ")).contains('g') {
        return;
    }
    for text in &mut case.inputs {
        for at in 0..text.len().saturating_sub(2) {
            if text[at..at + 3].eq_ignore_ascii_case(b"nan") {
                text[at..at + 3].copy_from_slice(b"nil");
            }
        }
    }
}

/// Since 9.2, R and Q are units of `-h`, and `-V` orders `.0` before `.a`; that the byte 0x80 does not count in a number is
/// no promise either.
fn avoid_what_newer_ones_do_differently(case: &mut Case) {
    let options = format!("{} {}", case.letters, case.keys.join(" "));
    for byte in case.inputs.iter_mut().flatten() {
        match *byte {
            b'R' | b'Q' if options.contains('h') => *byte = b'X',
            b'.' if options.contains('V') => *byte = b'-',
            0x80 => *byte = 0x81,
            _ => (),
        }
    }
}

fn ours(case: &Case, rng: &mut Random, total: &Total) -> Outcome {
    let mut outcome = Outcome {
        code: 0,
        output: Vec::new(),
        message: Vec::new(),
    };
    match run(case, rng, total) {
        Err(error) => {
            total.refused.fetch_add(1, Relaxed);
            outcome.code = 2;
            outcome.message = format!("sort: {error}\n").into_bytes();
        }
        Ok((Some(disorder), _)) => {
            total.disorders.fetch_add(1, Relaxed);
            outcome.code = 1;
            outcome.message = disorder;
        }
        Ok((None, Some((output, summary)))) => {
            total.spilled.fetch_add(usize::from(summary.runs > 0), Relaxed);
            total.several_passes.fetch_add(usize::from(summary.merges > 0), Relaxed);
            outcome.output = output;
        }
        Ok((None, None)) => (),
    }
    outcome
}

type Ran = (Option<Vec<u8>>, Option<(Vec<u8>, Summary)>);

/// Where files are in memory, if there is such a place.
fn memory() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

fn order(case: &Case) -> Result<TextOrder, TextError> {
    let keys = case.keys.iter().map(|key| KeySpec::parse(key));
    TextOrder::new(&OrderOptions {
        options: KeyOptions::parse(&case.letters)?,
        keys: keys.collect::<Result<_, _>>()?,
        fields: case.separator.map_or(Fields::Blanks, Fields::Separated),
        stable: case.stable,
        unique: case.unique,
        count: false,
    })
}

fn options(case: &Case, rng: &mut Random) -> SortOptions {
    let options = SortOptions {
        terminator: if case.zero_terminated { 0 } else { b'\n' },
        threads: rng.random_range(1..4),
        ..SortOptions::default()
    };
    if is_large(case) {
        return SortOptions {
            memory_bytes: rng.random_range(200_000..400_000),
            ..options
        };
    }
    // Merging what is not sorted gives the same only in one pass.
    let may_take_passes = case.task != Task::Merge && rng.random_ratio(1, 2);
    SortOptions {
        memory_bytes: rng.random_range(1..20_000),
        fan_in: may_take_passes.then(|| rng.random_range(2..5)),
        directories: vec![memory()],
        ..options
    }
}

/// So many bytes are worth lanes.
fn is_large(case: &Case) -> bool {
    case.task == Task::Sort && case.inputs.iter().map(Vec::len).sum::<usize>() > 100_000
}

fn run(case: &Case, rng: &mut Random, total: &Total) -> Result<Ran, TextError> {
    let options = options(case, rng);
    let terminator = options.terminator;
    let sort = TextSort::new(order(case)?, options);
    let name = |index: usize| format!("i{index}");
    let input = |(index, text): (usize, &Vec<u8>)| {
        let text = std::io::Cursor::new(text.clone());
        Input::new(name(index), || Ok(text))
    };
    let mut inputs: Vec<Input> = case.inputs.iter().enumerate().map(input).collect();
    let output = Output::new("memory", || Ok(Vec::new()));
    match case.task {
        Task::Sort if is_large(case) => {
            total.large.fetch_add(1, Relaxed);
            sort_to_file(&sort, inputs).map(|sorted| (None, Some(sorted)))
        }
        Task::Sort => sort.sort(inputs, output).map(|sorted| (None, Some(sorted))),
        Task::Merge => sort.merge(inputs, output).map(|merged| (None, Some(merged))),
        Task::Check => {
            let disorder = sort.check(inputs.remove(0))?.map(|found| {
                let mut message = format!("sort: {}:{}: disorder: ", name(0), found.line_number).into_bytes();
                message.extend_from_slice(&found.line);
                message.push(terminator);
                message
            });
            Ok((disorder, None))
        }
    }
}

fn sort_to_file(sort: &TextSort, inputs: Vec<Input>) -> Result<(Vec<u8>, Summary), TextError> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let handle = Handle::new(file.reopen().expect("it").into());
    let output = Output::file("file", || Ok((std::io::sink(), handle)));
    let (_, summary) = sort.sort(inputs, output)?;
    Ok((std::fs::read(file.path()).expect("it"), summary))
}

/// Each case has a directory of its own; exit codes are in one file.
fn theirs(cases: &[Case]) -> Vec<Outcome> {
    let place = tempfile::tempdir_in(memory()).expect("a directory");
    let codes = place.path().join("codes");
    let mut script = format!("export LC_ALL=C\nexec 9>{}\n", codes.display()).into_bytes();
    for (number, case) in cases.iter().enumerate() {
        let directory = place.path().join(number.to_string());
        std::fs::create_dir(&directory).expect("a directory");
        writeln!(script, "cd {}", directory.display()).expect("memory");
        script.extend_from_slice(&command(case));
        script.extend_from_slice(b" >o 2>e; echo $? >&9\n");
        for (index, text) in case.inputs.iter().enumerate() {
            std::fs::write(directory.join(format!("i{index}")), text).expect("room");
        }
    }
    let path = place.path().join("script");
    std::fs::write(&path, script).expect("room");
    assert!(Command::new("sh").arg(&path).status().expect("a shell").success());
    let codes = std::fs::read_to_string(codes).expect("a code for each");
    let outcomes = codes.lines().enumerate();
    outcomes
        .map(|(number, code)| outcome(&place.path().join(number.to_string()), code))
        .collect()
}

fn outcome(directory: &Path, code: &str) -> Outcome {
    let read = |name: &str| std::fs::read(directory.join(name)).expect(name);
    Outcome {
        code: code.parse().expect("a number"),
        output: read("o"),
        message: read("e"),
    }
}

/// A command for a shell; it may hold any byte but NUL.
fn command(case: &Case) -> Vec<u8> {
    let mut words = "sort".to_owned();
    let task = match case.task {
        Task::Sort => "",
        Task::Merge => "m",
        Task::Check => "c",
    };
    let flags = [(case.stable, "s"), (case.unique, "u"), (case.zero_terminated, "z")];
    let flags: String = flags
        .iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, flag)| *flag)
        .collect();
    if !(task.is_empty() && flags.is_empty() && case.letters.is_empty()) {
        write!(words, " -{}{flags}{task}", case.letters).expect("memory");
    }
    for key in &case.keys {
        write!(words, " -k {key}").expect("memory");
    }
    match case.separator {
        Some(0) => words += " -t '\\0'",
        Some(byte) => write!(words, " -t '{}'", char::from(byte)).expect("memory"),
        None => (),
    }
    for index in 0..case.inputs.len() {
        write!(words, " i{index}").expect("memory");
    }
    words.into_bytes()
}

fn difference(case: &Case, ours: &Outcome, theirs: &Outcome) -> String {
    let shell = String::from_utf8_lossy(&command(case)).into_owned();
    let terminator = if case.zero_terminated { 0 } else { b'\n' };
    let show = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut text = format!("{shell}\n");
    for (what, outcome) in [("ours", ours), ("theirs", theirs)] {
        writeln!(
            text,
            "{what}: {} {} bytes, {}",
            outcome.code,
            outcome.output.len(),
            show(&outcome.message)
        )
        .expect("memory");
    }
    let lines = |outcome: &Outcome| {
        outcome
            .output
            .split(|byte| *byte == terminator)
            .map(show)
            .collect::<Vec<_>>()
    };
    let (ours, theirs) = (lines(ours), lines(theirs));
    let at = ours
        .iter()
        .zip(&theirs)
        .take_while(|(ours, theirs)| ours == theirs)
        .count();
    let near = |lines: &[String]| lines[at.min(lines.len())..].iter().take(3).cloned().collect::<Vec<_>>();
    write!(
        text,
        "line {}: ours {:?}, theirs {:?}",
        at + 1,
        near(&ours),
        near(&theirs)
    )
    .expect("memory");
    text
}
