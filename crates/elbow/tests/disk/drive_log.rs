//! `elbow disk attach --log`: what was asked of an emulated drive, as a trace.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{elbow, json, text};

const BYTES: u64 = 16 << 20;
const BLOCK: usize = 4096;
const THREADS: u64 = 4;
const REQUESTS: u64 = 40;

/// Reads and writes at places that depend on a number.
fn use_blocks(device: &str, thread: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .expect("it opens");
    let mut block = [thread as u8; BLOCK];
    for request in 0..REQUESTS {
        let at = (thread * 7919 + request * 104_729) % (BYTES / BLOCK as u64) * BLOCK as u64;
        match request % 3 {
            0 => file.read_exact_at(&mut block, at).expect("it reads"),
            _ => file.write_all_at(&block, at).expect("it writes"),
        }
    }
}

/// Of a row: when it came, its block, and what it took.
fn rows(log: &Path) -> Vec<[f64; 3]> {
    let written = std::fs::read_to_string(log).expect("a log");
    let (names, rows) = written.split_once('\n').expect("a line of names");
    assert_eq!(names, "arrival_ms,op,lbn,sectors,response_ms,late_us");
    let number = |cell: &str| cell.parse().expect("a number");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        assert!(["R", "W"].contains(&cells[1]), "{line}");
        [cells[0], cells[2], cells[4]].map(number)
    };
    rows.lines().map(row).collect()
}

/// The emulated drive is the simulated one: what several threads asked of it in real time takes the same time, to the picosecond, when it is replayed.
#[test]
fn what_was_asked_takes_as_long_when_it_is_replayed() {
    if !Path::new("/dev/fuse").exists() {
        assert!(std::env::var_os("CI").is_none(), "no /dev/fuse");
        println!("SKIPPED: no /dev/fuse");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let name = |name: &str| directory.path().join(name).display().to_string();
    let [backing, log, file] = ["backing", "asked.csv", "drive"].map(name);
    let size = BYTES.to_string();
    let model = ["--model", "hp-c2247a", "--size", &size];
    let attach = [
        &["attach", "--backing", &backing, "--file", &file, "--log", &log],
        &model[..],
    ]
    .concat();
    let attached = elbow(&attach, b"");
    assert!(attached.status.success(), "{}", text(&attached.stderr));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = &file;
            scope.spawn(move || use_blocks(file, thread));
        }
    });
    let last = elbow(&["detach", &file, "--json"], b"");
    assert!(last.status.success(), "{}", text(&last.stderr));

    let asked = rows(Path::new(&log));
    assert!(asked.len() as u64 >= THREADS * REQUESTS, "{} rows", asked.len());
    assert!(asked.is_sorted_by_key(|row| row[0]), "in the order in which they came");
    let drive = ["--disk", "hp-c2247a", "--scheduler", "asptf", "--depth", "32"];
    let replay = [&["replay", "--format", "csv", &log, "--json"], &drive[..]].concat();
    let report = json(&replay, b"");
    let of = |key: &str| report[key].as_f64().expect("a number");
    assert_eq!(of("requests"), asked.len() as f64);
    // One that waited for another one or met another angle would be milliseconds off.
    assert!(of("rms_demerit_ms") < 1e-6, "{report}");
    assert!(
        (of("mean_measured_ms") - of("mean_simulated_ms")).abs() < 1e-6,
        "{report}"
    );
}
