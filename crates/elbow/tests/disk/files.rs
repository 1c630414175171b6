//! `elbow disk files`: a trace of file operations on ext2.

use serde_json::Value;

use crate::{elbow, json, refused, text};

/// Files of 4 KiB by several processes in turn, in one directory.
fn small(files: u32, processes: u32) -> String {
    let line = |file: u32| {
        let pid = file % processes;
        format!("{pid} create /d/{file}\n{pid} write /d/{file} 0 4096\n{pid} close /d/{file}\n")
    };
    "0 mkdir /d\n".to_owned() + &(0..files).map(line).collect::<String>()
}

/// A cache that writes at once and merges nothing, as the figures of the study have it.
const AT_ONCE: [&str; 10] = [
    "--dirty",
    "256K",
    "--age-s",
    "0",
    "--interval-s",
    "0.1",
    "--merge",
    "none",
    "--overhead-ms",
    "1.07",
];

fn files(args: &[&str], trace: &str) -> Value {
    json(&[&["files", "-", "--json"], args].concat(), trace.as_bytes())
}

fn number(report: &Value, at: &str) -> f64 {
    let found = report.pointer(at).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("{at} in {report}"))
}

#[test]
fn a_trace_is_timed_by_kind_and_what_lies_where_is_told() {
    let report = files(
        &[],
        "1 mkdir /d\n1 create /d/a\n1 write /d/a 0 100000\n1 fsync /d/a\n2 create /d/b\n2 append /d/b - 5000\n2 unlink /d/b\n",
    );
    assert_eq!((&report["schema"], &report["operations"]), (&1.into(), &7.into()));
    assert_eq!(report["bytes_written"], 105_000);
    let there = &report["allocated"];
    assert_eq!(
        (&there["files"], &there["blocks"]),
        (&1.into(), &25.into()),
        "b is gone"
    );
    let by_group = there["groups"].as_array().expect("groups");
    let data: u64 = by_group.iter().filter_map(|group| group["data_blocks"].as_u64()).sum();
    assert_eq!(data, report["requests"]["data"]["blocks"].as_u64().expect("blocks"));
    for kind in ["all", "data", "directories", "inodes", "bitmaps"] {
        let of = |part: &str| number(&report, &format!("/requests/{kind}/{part}"));
        let parts = ["seek_ms", "rotation_ms", "transfer_ms", "overhead_ms"].map(of);
        assert!(
            of("requests") > 0.0 && (of("time_ms") - parts.iter().sum::<f64>()).abs() < 1e-6,
            "{kind}"
        );
    }
    let busy = number(&report, "/busy_seconds");
    assert!((busy * 1000.0 - number(&report, "/requests/all/time_ms")).abs() < 1e-6);
    assert!(number(&report, "/seconds") >= busy && busy > 0.0);
}

#[test]
fn both_allocations_are_compared() {
    let trace = small(400, 16);
    let args = [&["--compare"][..], &AT_ONCE].concat();
    let both = files(&args, &trace);
    let (classic, ranges) = (number(&both, "/classic/seconds"), number(&both, "/ranges/seconds"));
    assert_eq!(number(&both, "/ratio"), ranges / classic);
    assert!(
        ranges < classic * 0.8,
        "many writers in one group are what ranges are for: {ranges} {classic}"
    );
    assert!(number(&both, "/ranges/range_writes") > 300.0 && number(&both, "/classic/range_writes") == 0.0);
    let alone = files(&[&["--allocation", "ranges"][..], &AT_ONCE].concat(), &trace);
    assert_eq!(alone["seconds"], both["ranges"]["seconds"]);
    let group = files(
        &[&["--allocation", "ranges", "--region", "group"][..], &AT_ONCE].concat(),
        &trace,
    );
    assert_ne!(alone["requests"], group["requests"]);
    let told = elbow(&[&["files", "-"][..], &args].concat(), trace.as_bytes());
    let told = text(&told.stdout);
    assert!(told.starts_with("classic:\n") && told.contains("\nranges:\n"), "{told}");
    let last = told.lines().last().expect("a line");
    assert_eq!(
        last,
        format!(
            "ratio {:.3}: {ranges:.3} s with ranges, {classic:.3} s classic",
            ranges / classic
        )
    );
}

#[test]
fn options_change_what_they_say() {
    let trace = small(200, 4);
    let data = |args: &[&str]| {
        files(args, &trace)["requests"]["data"]["requests"]
            .as_u64()
            .expect("a number")
    };
    assert_eq!(data(&AT_ONCE), 200, "nothing is merged");
    assert!(data(&[]) < 50, "neighbours are merged when they are written late");
    let seconds = |args: &[&str]| number(&files(&[&AT_ONCE[..], args].concat(), &trace), "/seconds");
    let plain = seconds(&[]);
    for args in [
        &["--disk", "atlas10k"][..],
        &["--depth", "1"],
        &["--scheduler", "fcfs"],
        &["--full", "80"],
        &["--concurrent"],
        &["--partition", "100M"],
    ] {
        let changed = seconds(args);
        assert!(changed > 0.0 && changed.is_finite(), "{args:?}");
        if args != ["--concurrent"] && args != ["--partition", "100M"] {
            assert_ne!(changed, plain, "{args:?}");
        }
    }
    let full = |seed: &str| seconds(&["--full", "80", "--seed", seed]);
    assert_ne!(full("1"), full("2"));
    assert_eq!(full("2"), full("2"));
}

#[test]
fn strace_and_listings_are_read_and_what_is_left_out_is_told() {
    let calls = "7 openat(AT_FDCWD</t>, \"a\", O_WRONLY|O_CREAT, 0666) = 4</t/a>\n7 write(4</t/a>, \"x\"..., 5000) = 5000\n\
        7 link(\"/t/a\", \"/t/b\") = 0\n";
    let args = ["files", "-", "--json", "--format", "strace", "--below", "/t"];
    let output = elbow(&args, calls.as_bytes());
    assert_eq!(
        text(&output.stderr),
        "elbow: 1 calls of link are left out: they have no counterpart here\n"
    );
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&report["operations"], &report["allocated"]["blocks"]),
        (&2.into(), &2.into())
    );
    assert_eq!(report["notes"].as_array().map(Vec::len), Some(1));
    let report = files(
        &["--format", "listing"],
        "18693\tCOPYING\n10592\tDocumentation/00-INDEX\n",
    );
    assert_eq!(
        (&report["allocated"]["files"], &report["operations"]),
        (&2.into(), &7.into())
    );
}

#[test]
fn errors_name_file_and_line() {
    for (trace, expected) in [
        (
            "1 create /a\n1 write /a zero 5\n",
            "elbow: -:2: offset: \"zero\" is not a number from 0 to 18446744073709551615\n",
        ),
        (
            "# mine\n\n1 read /a 0 5\n",
            "elbow: -:3: 1 read /a 0 5: /a: not found\n",
        ),
    ] {
        assert_eq!(refused(&["files", "-"], trace.as_bytes()), expected);
    }
    let trace = "1 create /a\n1 write /a 0 100000000\n";
    let said = refused(&["files", "-", "--partition", "64M"], trace.as_bytes());
    assert!(
        said.starts_with("elbow: -:2: 1 write /a 0 100000000: /a: no space: "),
        "{said}"
    );
    let said = refused(&["files", "-", "--partition", "4G"], b"");
    assert!(
        said.contains("a partition of 4294967296 bytes is not on HP C2247A"),
        "{said}"
    );
    for (option, value) in [
        ("--full", "100"),
        ("--interval-s", "0"),
        ("--age-s", "nan"),
        ("--memory", "4K"),
        ("--dirty", "1G"),
        ("--depth", "0"),
        ("--full-run-blocks", "0"),
    ] {
        let said = refused(&["files", "-", option, value], b"");
        assert!(said.contains("it has to be from"), "{option} {value}: {said}");
    }
}
