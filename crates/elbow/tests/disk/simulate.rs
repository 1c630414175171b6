//! `elbow disk simulate`.

use crate::{elbow, json, refused, text};

fn number(args: &[&str], name: &str) -> f64 {
    let report = json(&[&["simulate", "--json", "--requests", "3000"], args].concat(), b"");
    report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}"))
}

#[test]
fn its_report_has_the_mean_and_its_parts() {
    let report = json(
        &[
            "simulate",
            "--disk",
            "hp-c2247a",
            "--scheduler",
            "sptf",
            "--depth",
            "4",
            "--reads",
            "0.5",
            "--json",
        ],
        b"",
    );
    let of = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report}"));
    let parts = ["seek_ms", "rotation_ms", "transfer_ms", "overhead_ms"].map(of);
    assert!(parts.iter().all(|&part| part > 0.0), "{report}");
    assert!((parts.iter().sum::<f64>() - of("mean_ms")).abs() < 1e-6, "{report}");
    assert_eq!(
        of("estimations_per_request"),
        3.0,
        "it picks among three before the fourth comes"
    );
    assert!(of("requests_per_second") > 0.0 && of("mean_ci95_ms") > 0.0, "{report}");
}

#[test]
fn all_that_it_can_be_asked_changes_what_it_says() {
    let mean = |args: &[&str]| number(&[&["--mechanical", "--span", "group:0"], args].concat(), "mean_ms");
    let plain = mean(&[]);
    assert!((plain / 11.55 - 1.0).abs() < 0.03, "{plain}");
    assert!(mean(&["--scheduler", "hrs", "--targets", "8"]) < plain * 0.7);
    assert!(mean(&["--scheduler", "ecs", "--range-sectors", "track"]) < plain * 0.7);
    assert!(mean(&["--scheduler", "ecs:8", "--range-sectors", "32768"]) < plain * 0.3);
    assert_eq!(mean(&["--depth", "2", "--warm-up", "0"]), mean(&["--warm-up", "0"]));
    assert!(mean(&["--depth", "2", "--pick", "after"]) < plain * 0.95);
    assert_ne!(mean(&["--seed", "2"]), plain);
    assert!(mean(&["--reads", "1"]) < plain - 0.4, "reads need not settle");
    assert!(mean(&["--overhead-ms", "1.5"]) > plain + 1.0);
    assert!(number(&["--mechanical"], "mean_ms") > plain * 1.4, "the whole disk");
    assert!(mean(&["--sectors", "96", "--range-sectors", "96"]) > plain + 8.0);
    let waiting = number(&["--arrivals-per-second", "40"], "response_ms");
    assert!(waiting > number(&["--arrivals-per-second", "1"], "response_ms") * 1.2);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    for (args, reason) in [
        (&["--span", "group:62"][..], "62 whole groups"),
        (&["--span", "moon"], "group:N"),
        (&["--depth", "0"], "the depth is 0"),
        (&["--range-sectors", "7"], "8 sectors in a row"),
        (&["--reads", "2"], "from 0 to 1"),
        (&["--scheduler", "ecs:0"], "fcfs, sstf, sptf"),
        (
            &["--arrivals-per-second", "1000", "--requests", "100000"],
            "cannot keep up",
        ),
        (&["--disk", "no-such-disk"], "no-such-disk"),
        (
            &["--overhead-ms", "10000", "--requests", "2000000"],
            "231.6 simulated days (at least 10000.926 ms each): the clock ends after 53",
        ),
        (&["--arrivals-per-second", "1e-8"], "the clock ends after 53"),
        (&["--requests", "18446744073709551615"], "18446744073709551615 requests"),
        (
            &["--warm-up", "18446744073709551615"],
            "18446744073709551615 to warm up",
        ),
    ] {
        let said = refused(&[&["simulate"], args].concat(), b"");
        assert!(said.contains(reason), "{args:?}: {said}");
    }
}

#[test]
fn each_request_can_be_had_as_a_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("requests.csv");
    let csv = path.to_str().expect("text");
    let args = [
        "simulate",
        "--requests",
        "50",
        "--depth",
        "3",
        "--reads",
        "0.5",
        "--per-request",
        csv,
    ];
    let output = elbow(&args, b"");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("rotation"), "and the text report");
    let lines = std::fs::read_to_string(&path).expect("it was written");
    assert_eq!(lines.lines().count(), 51, "{lines}");
    let names: Vec<&str> = lines.lines().next().expect("names").split(',').collect();
    for line in lines.lines().skip(1) {
        let values: Vec<&str> = line.split(',').collect();
        let of = |name: &str| -> f64 {
            let at = names.iter().position(|known| *known == name).expect("a name");
            values[at].parse().expect("a number")
        };
        let parts = of("seek_ms") + of("rotation_ms") + of("transfer_ms") + of("overhead_ms");
        assert!((of("end_ms") - of("start_ms") - parts).abs() < 1e-5, "{line}");
        assert!(of("arrival_ms") <= of("start_ms"), "{line}");
    }
}
