//! `elbow disk replay`: the drive's own queue, formats by the first line, and what is told.

use crate::{MEASURED, elbow, json, refused, text};

/// Twelve requests at once, all over the disk.
fn burst() -> String {
    let line = |at: u64| format!("0.5 0 {} 8 {}\n", at * 7_919_003 % 2_000_000, at % 2);
    (0..12).map(line).collect()
}

fn mean(args: &[&str], trace: &str) -> f64 {
    let report = json(&[&["replay", "--json", "-"], args].concat(), trace.as_bytes());
    report["mean_simulated_ms"].as_f64().expect("a mean")
}

#[test]
fn a_drive_that_knows_more_requests_serves_them_sooner() {
    let trace = burst();
    let plain = mean(&[], &trace);
    assert_eq!(mean(&["--scheduler", "fcfs", "--depth", "1"], &trace), plain);
    assert_eq!(mean(&["--scheduler", "fcfs", "--depth", "12"], &trace), plain);
    assert_eq!(
        mean(&["--scheduler", "sptf"], &trace),
        plain,
        "one request leaves nothing to choose"
    );
    for scheduler in ["sstf", "sptf", "asptf", "asptf:3", "scan", "c-look"] {
        let queued = mean(&["--scheduler", scheduler, "--depth", "12"], &trace);
        assert!(queued < plain * 0.9, "{scheduler}: {queued} {plain}");
    }
    assert!(mean(&["--scheduler", "sptf", "--depth", "12", "--mechanical"], &trace) < plain * 0.8);
}

#[test]
fn its_report_has_percentiles_of_all_and_of_each_kind() {
    let args = [
        "replay",
        "--disk",
        "hp-c2247a",
        "--format",
        "validate",
        "-",
        "--json",
        "--scheduler",
        "sptf",
        "--depth",
        "4",
    ];
    let report = json(&args, MEASURED.as_bytes());
    for kind in ["", "/reads", "/hits", "/writes"] {
        let of = |name: &str| {
            let value = report
                .pointer(&format!("{kind}/{name}"))
                .and_then(serde_json::Value::as_f64);
            value.unwrap_or_else(|| panic!("{kind}/{name} in {report}"))
        };
        for which in ["simulated", "measured"] {
            let at = ["p50", "p90", "p99", "p99_9", "max"].map(|at| of(&format!("percentiles_{which}_ms/{at}")));
            assert!(at[0] > 0.0 && at.is_sorted(), "{kind} {at:?}");
        }
    }
    let shown = text(&elbow(&["replay", "-"], MEASURED.as_bytes()).stdout);
    assert!(
        shown.contains("response: p50 ") && shown.contains(", p99.9 "),
        "{shown}"
    );
    let shown = text(&elbow(&["simulate", "--requests", "100"], b"").stdout);
    assert!(shown.contains("response p50 ") && shown.contains(", max "), "{shown}");
}

#[test]
fn what_is_left_out_is_told() {
    let told = |trace: &str| {
        let output = elbow(&["replay", "-", "--json"], trace.as_bytes());
        assert!(output.status.success());
        (text(&output.stderr), text(&output.stdout))
    };
    let (said, report) = told("8,0 1 1 0.1 7 Q W 96 + 8 [x]\n8,0 1 2 0.2 7 Q D 96 + 8 [x]\n");
    assert_eq!(said, "elbow: 1 discards are left out: a disk has none\n");
    assert!(
        report.contains("\"discards\":1") && report.contains("\"notes\":[\"1 discards"),
        "{report}"
    );
    assert_eq!(told("# only a comment\n").0, "elbow: the trace has no requests\n");
    assert_eq!(told(MEASURED).0, "");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let said = refused(&["replay", "-"], b"MZ whatever\n");
    assert!(
        said.starts_with("elbow: -:1: `MZ whatever` begins no trace of a known format"),
        "{said}"
    );
    for depth in ["0", "65537", "many"] {
        let said = refused(&["replay", "-", "--depth", depth], b"");
        assert!(said.contains("--depth"), "{depth}: {said}");
    }
    let said = refused(&["replay", "-", "--scheduler", "elevator"], b"");
    assert!(said.contains("scan, c-look"), "{said}");
}
