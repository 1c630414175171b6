//! `elbow disk figure` of what `make bench-bark` measured.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::figure::assert_svg;
use crate::{json, refused};

const HEADER: &str = "storage,job,peer,repetition,mean_ms,rejected,problem\n";
const STORAGE: &str = "\"data on an emulated disk, data=ordered\"";

/// The results that are kept with the repository.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results/2026-11-26-vm/journals")
}

fn figure(name: &str, journals: &Path) -> Value {
    let path = journals.to_str().expect("text");
    json(&["figure", name, "--journals", path, "--json"], b"")["figures"][0].clone()
}

fn claim<'v>(figure: &'v Value, says: &str) -> &'v Value {
    let claims = figure["claims"].as_array().expect("claims");
    let found = claims
        .iter()
        .find(|claim| claim["says"].as_str().is_some_and(|text| text.contains(says)));
    found.unwrap_or_else(|| panic!("nothing says {says:?}"))
}

/// A directory of results: rounds of (plain, Bark, null, rejected), uncached and cached.
fn results(rounds: &[(&str, &[[f64; 3]], &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = HEADER.to_owned();
    for (cache, times, rejected) in rounds {
        for (round, times) in times.iter().enumerate() {
            for (journal, ms) in ["plain", "Bark", "null"].iter().zip(times) {
                let _ = writeln!(
                    text,
                    "{STORAGE},\"SQLite, rollback journal, {cache}\",{journal},{round},{ms},{rejected},"
                ); // a string takes all
            }
        }
    }
    std::fs::write(directory.path().join("results.csv"), text).expect("written");
    directory
}

/// The same numbers as in the table that the bench has written beside them.
#[test]
fn the_kept_results_are_judged() {
    let table = figure("table3", &kept());
    let panels = table["panels"].as_array().expect("panels");
    let journal = panels
        .iter()
        .find(|panel| panel["title"] == "data on an emulated disk, data=journal");
    let cached = |name: &str| {
        journal.expect("it was measured")["columns"][name][1]
            .as_f64()
            .expect("a number")
    };
    let [plain, bark, null] = ["plain", "Bark", "null"].map(cached);
    assert_eq!(format!("{plain:.1} {bark:.1} {null:.1}"), "79.7 50.9 38.4");
    assert_eq!(panels.len(), 4, "two places of the data, two modes");
    let faster = claim(&table, "over 61 % faster");
    assert_eq!(
        (&faster["by"], &faster["verdict"]),
        (&"paper".into(), &"in part".into()),
        "{faster}"
    );
}

#[test]
fn a_gain_is_judged_by_the_rounds_in_which_all_went_well() {
    let cached: &[[f64; 3]] = &[[16.2, 10.0, 9.9], [99.0, 10.0, 9.8], [16.4, 10.2, 10.0]];
    let directory = results(&[("cached", cached, "False"), ("uncached", &[[12.0, 10.0, 9.0]], "False")]);
    let table = figure("table3", directory.path());
    let faster = claim(&table, "61 %")["ours"].as_str().expect("text");
    assert!(
        faster.contains("+62 % with data=ordered"),
        "the median of three: {faster}"
    );
    for says in ["61 %", "20 %", "Reads lessen", "costs nothing"] {
        assert_eq!(claim(&table, says)["verdict"], "reproduced", "{table}");
    }

    let slower = results(&[
        ("cached", &[[10.0, 10.0, 5.0]], "False"),
        ("uncached", &[[20.0, 10.0, 10.0]], "False"),
    ]);
    let table = figure("table3", slower.path());
    for says in ["61 %", "20 %", "Reads lessen"] {
        assert_eq!(claim(&table, says)["verdict"], "refuted", "{table}");
    }
    assert_eq!(
        claim(&table, "costs nothing")["verdict"],
        "in part",
        "twice as long, and as long"
    );
}

#[test]
fn times_of_writes_are_a_distribution() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = "storage,job,journal,percent,ms\n".to_owned();
    for (journal, step) in [("plain", 0.16), ("Bark", 0.02)] {
        for percent in 0..=100 {
            let ms = f64::from(percent) * step;
            let _ = writeln!(
                text,
                "{STORAGE},\"SQLite, rollback journal, cached\",{journal},{percent},{ms}"
            ); // a string takes all
        }
    }
    std::fs::write(directory.path().join("figure-13.csv"), text).expect("written");
    let out = directory.path().join("out");
    let [journals, to] = [directory.path(), &out].map(|path| path.to_str().expect("text"));
    let report = json(&["figure", "13", "--journals", journals, "--out", to, "--json"], b"");
    let figure = &report["figures"][0];
    let column = |name: &str| {
        figure["panels"][0]["columns"][name]
            .as_array()
            .expect("a column")
            .iter()
            .map(|value| value.as_f64().expect("a number"))
            .collect::<Vec<f64>>()
    };
    let (plain, bark) = (column("plain"), column("Bark"));
    assert!(
        plain.is_sorted() && plain.first() == Some(&0.0) && plain.last() == Some(&99.0),
        "{plain:?}"
    );
    assert_eq!(bark[10], 99.0, "an eighth of the time, and a sixth of the axis");
    assert_eq!(claim(figure, "less than a third")["verdict"], "reproduced");
    assert_svg(
        "13",
        &std::fs::read_to_string(out.join("figure-13.svg")).expect("drawn"),
    );
}

/// In the model's own time, so the same on each machine: what is after a place that has just passed waits for nearly a turn.
#[test]
fn a_skip_of_nothing_costs_a_turn_and_the_next_place_almost_nothing() {
    let report = json(&["figure", "12", "--json"], b"");
    let figure = &report["figures"][0];
    let at_once: Vec<f64> = figure["panels"][0]["columns"]["after 0.0 ms"]
        .as_array()
        .expect("a column")
        .iter()
        .map(|value| value.as_f64().expect("a number"))
        .collect();
    let least = at_once.iter().copied().fold(f64::MAX, f64::min);
    let turn_ms = 60_000.0 / 5400.0;
    assert!(
        at_once[0] > 0.8 * turn_ms && least < 0.4 * turn_ms,
        "{:.2} ms in order, {least:.2} at best",
        at_once[0]
    );
    assert_eq!(claim(figure, "waits for no rotation")["verdict"], "reproduced");
}

#[test]
fn what_was_not_measured_is_said() {
    let alone = refused(&["figure", "table3"], b"");
    assert_eq!(
        alone,
        "elbow: this is measured and not simulated: name the results of make bench-bark (--journals DIR)\n"
    );
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("text");
    assert_eq!(
        refused(&["figure", "13", "--journals", path], b""),
        format!("elbow: {path} has no figure-13.csv: is it the results of make bench-bark?\n")
    );
    std::fs::write(
        directory.path().join("results.csv"),
        format!("{HEADER}a,b,plain,0,fast,False,\n"),
    )
    .expect("written");
    let invalid = refused(&["figure", "table3", "--journals", path], b"");
    assert!(
        invalid.starts_with(&format!("elbow: {path}/results.csv: ")) && invalid.contains("line: 2"),
        "{invalid}"
    );
    let rejected = results(&[("cached", &[[16.0, 10.0, 10.0]], "True")]);
    let path = rejected.path().to_str().expect("text");
    assert_eq!(
        refused(&["figure", "table3", "--journals", path], b""),
        format!(
            "elbow: {path}/results.csv has nothing to show: no TPC-B on SQLite with a rollback journal, of which all three journals went well\n"
        )
    );
}
