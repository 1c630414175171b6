//! `elbow disk simulate --show`: what is shown happens when the simulation of the same list says so.

use std::path::Path;

use serde_json::Value;

use crate::{elbow, json, refused, text};

const LBNS: [u64; 4] = [90, 2_000_000, 30_000, 1_234_560];
const LIST: [&str; 8] = [
    "simulate",
    "--show",
    "--lbns",
    "90,2000000,30000,1234560",
    "--scheduler",
    "sptf",
    "--depth",
    "3",
];

fn of(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// The steps of a list in their order: what is done, from when, until when.
fn steps(shown: &Value) -> Vec<(String, f64, f64)> {
    let requests = shown["requests"].as_array().expect("requests");
    let steps = requests
        .iter()
        .flat_map(|request| request["steps"].as_array().expect("steps"));
    let step = |step: &Value| {
        let doing = step["doing"].as_str().expect("a name").to_owned();
        (doing, of(step, "from_ms"), of(step, "to_ms"))
    };
    steps.map(step).collect()
}

/// What a replay of the list says of each request, in the order of service: its sector and its parts.
fn replayed(directory: &Path) -> Vec<[f64; 5]> {
    let file = directory.join("rows.csv");
    let trace: String = LBNS.map(|lbn| format!("{lbn},8,W,0\n")).concat();
    let rows = file.to_str().expect("text");
    let args = [
        "--mechanical",
        "--scheduler",
        "sptf",
        "--depth",
        "3",
        "--per-request",
        rows,
        "-",
    ];
    let trace = format!("lbn,sectors,op,arrival_ms\n{trace}");
    assert!(
        elbow(&[&["replay"], &args[..]].concat(), trace.as_bytes())
            .status
            .success()
    );
    let lines = std::fs::read_to_string(file).expect("written");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        [2, 7, 8, 9, 10].map(|column| cells[column].parse().expect("a number"))
    };
    lines.lines().skip(1).map(row).collect()
}

#[test]
fn its_times_are_those_of_a_replay_of_the_list() {
    let directory = tempfile::tempdir().expect("a directory");
    let shown = json(&[&LIST[..], &["--json"]].concat(), b"");
    let requests = shown["requests"].as_array().expect("requests");
    let replayed = replayed(directory.path());
    assert_eq!(requests.len(), replayed.len());
    for (request, row) in requests.iter().zip(replayed) {
        let names = ["lbn", "end_ms", "seek_ms", "rotation_ms", "transfer_ms"];
        for (name, expected) in names.into_iter().zip(row) {
            assert!(
                (of(request, name) - expected).abs() < 2e-6,
                "{name}: {request}, {row:?}"
            );
        }
    }
    let steps = steps(&shown);
    assert_eq!(steps[0].1, 0.0);
    assert!(steps.windows(2).all(|pair| pair[0].2 == pair[1].1), "{steps:?}");
    assert_eq!(steps.last().map(|last| last.2), shown["end_ms"].as_f64());
}

#[test]
fn each_moment_is_a_line_of_text() {
    let shown = json(&[&LIST[..], &["--json"]].concat(), b"");
    let said = text(&elbow(&LIST, b"").stdout);
    let expected: Vec<String> = steps(&shown)
        .into_iter()
        .map(|(doing, from, to)| format!("{from:.3} {doing} {:.3}", to - from))
        .collect();
    let lines = said.lines().skip_while(|line| !line.contains("from ms")).skip(1);
    let found: Vec<String> = lines.take_while(|line| !line.is_empty()).map(moment).collect();
    assert_eq!(found, expected);
}

/// Of a line: from when on, what, and for how long.
fn moment(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let takes = (2..).find(|&at| words[at].parse::<f64>().is_ok()).expect("a time");
    format!("{} {} {}", words[0], words[2..takes].join(" "), words[takes])
}

/// When, in simulated ms, the frames of an animation of CSS are.
fn frames(svg: &str, name: &str, slower: f64) -> Vec<f64> {
    let (_, rest) = svg.split_once(&format!("@keyframes {name}{{")).expect("it moves");
    let (rule, rest) = rest.split_once("}}").expect("it ends");
    let (_, rest) = rest
        .split_once(&format!("animation:{name} "))
        .expect("it takes a while");
    let seconds: f64 = rest
        .split('s')
        .next()
        .and_then(|seconds| seconds.parse().ok())
        .expect("seconds");
    let percents = rule
        .split('%')
        .filter_map(|part| part.rsplit('}').next()?.parse::<f64>().ok());
    percents
        .map(|percent| percent / 100.0 * seconds * 1000.0 / slower)
        .collect()
}

#[test]
fn the_picture_moves_when_the_arm_does() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("a.svg");
    let args = [
        &LIST[..2],
        &[file.to_str().expect("text")],
        &LIST[2..],
        &["--json", "--slower", "100"],
    ]
    .concat();
    let shown = json(&args, b"");
    let svg = std::fs::read_to_string(&file).expect("written");
    crate::figure::assert_svg("show", &svg);
    let moves: Vec<f64> = steps(&shown)
        .into_iter()
        .filter(|(doing, ..)| doing == "seek" || doing == "next track")
        .flat_map(|(_, from, to)| [from, to])
        .collect();
    let arm = frames(&svg, "arm", 100.0);
    assert_eq!(
        arm.len(),
        moves.len() + 2,
        "the start, and the end until which the last is seen"
    );
    for (frame, time) in arm[1..].iter().zip(&moves) {
        assert!((frame - time).abs() < 0.01, "{arm:?}, {moves:?}");
    }
    let turns = frames(&svg, "platter", 100.0);
    assert!((turns[1] - of(&shown, "end_ms")).abs() < 0.01, "{turns:?}");
    let degrees = 360.0 * of(&shown, "end_ms") / of(&shown, "turn_ms");
    assert!(svg.contains(&format!("rotate(-{degrees:.4}deg)")), "{degrees}");
}

#[test]
fn a_list_comes_from_a_trace_or_from_the_load() {
    let trace = b"lbn,sectors,op,arrival_ms\n5,8,R,0\n2000000,16,W,100\n";
    let shown = json(&["simulate", "--show", "--trace", "-", "--json"], trace);
    let steps = steps(&shown);
    assert!(
        steps.iter().any(|(doing, _, to)| doing == "idle" && *to == 100.0),
        "{steps:?}"
    );
    assert_eq!(shown["requests"][1]["sectors"], 16);
    let random = |seed: &str| json(&["simulate", "--show", "--json", "--seed", seed], b"")["requests"].clone();
    assert_eq!(random("1").as_array().map(Vec::len), Some(5));
    assert_ne!(random("1"), random("2"));
}

#[test]
fn what_cannot_be_shown_is_refused() {
    let long: String = (0..101).map(|lbn| format!("{lbn},")).collect();
    for (args, reason) in [
        (
            &["--lbns", "1,2054860"][..],
            "sectors 2054860 to 2054867 are not on the drive",
        ),
        (&["--lbns", "1,x"], "--lbns"),
        (&["--lbns", long.trim_end_matches(',')], "show 100 or fewer"),
        (&["--lbns", "1", "--reads", "0.5"], "writes (0) or reads (1)"),
        (&["--requests", "101"], "show 100 or fewer"),
        (&["--start-cylinder", "2051"], "cylinders 0 to 2050 and heads 0 to 12"),
        (&["--start-angle", "360"], "below 360"),
        (&["--depth", "0"], "--depth is 0"),
        (&["--trace", "/no/such"], "cannot open the trace /no/such"),
    ] {
        let said = refused(&[&["simulate", "--show"], args].concat(), b"");
        assert!(said.contains(reason), "{args:?}: {said}");
    }
    assert!(refused(&["simulate", "--lbns", "1"], b"").contains("--show"));
    assert!(refused(&["simulate", "--show", "a.gif"], b"").contains(".svg or .png"));
    let waits = b"lbn,sectors,op,think_ms\n5,8,R,1\n";
    assert!(refused(&["simulate", "--show", "--trace", "-"], waits).contains("-:2: a request that waits"));
}
