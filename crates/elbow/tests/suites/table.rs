//! The differences that are known: the table of `docs/src/reference/outside-suites.md`.

use std::collections::{BTreeMap, BTreeSet};

use crate::testbed::Storage;

const PAGE: &str = include_str!("../../../../docs/src/reference/outside-suites.md");

/// What each case of a suite ended with.
pub(crate) type Results = BTreeMap<String, String>;

/// One line of the table.
struct Row {
    suite: &'static str,
    storages: &'static str,
    case: &'static str,
}

/// The lines that begin with the name of a suite.
fn rows() -> Vec<Row> {
    let lines = PAGE
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| suite"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            assert!(cells.len() == 6 && !cells[5].is_empty(), "no reason in: {line}");
            Row {
                suite: cells[0],
                storages: cells[1],
                case: cells[2].trim_matches('`'),
            }
        })
        .collect()
}

/// The cases of a suite that differ on a storage, and that is known.
pub(crate) fn known(suite: &str, storage: Storage) -> BTreeSet<&'static str> {
    let here = |row: &Row| row.suite == suite && row.storages.split(", ").any(|name| name == storage.name());
    rows().into_iter().filter(here).map(|row| row.case).collect()
}

/// Fails on a difference that the table does not have, and on one that it has and that is none; cases that were not run count as neither.
pub(crate) fn assert_only_known(suite: &str, storage: Storage, native: &Results, job: &Results) {
    assert!(!native.is_empty(), "{suite} ran nothing");
    let cases: BTreeSet<&str> = native.keys().chain(job.keys()).map(String::as_str).collect();
    let differs = |case: &&str| native.get(*case) != job.get(*case);
    let found: BTreeSet<&str> = cases.iter().copied().filter(differs).collect();
    let known = known(suite, storage);
    let describe = |case: &&&str| {
        let of = |results: &Results| results.get(**case).cloned().unwrap_or("not run".into());
        format!("{case}\n  without a job: {}\n  in a job: {}", of(native), of(job))
    };
    let new: Vec<String> = found
        .difference(&known)
        .collect::<Vec<_>>()
        .iter()
        .map(describe)
        .collect();
    assert!(new.is_empty(), "{suite} on {}:\n{}", storage.name(), new.join("\n"));
    let gone: Vec<_> = known.difference(&found).filter(|case| cases.contains(*case)).collect();
    assert!(
        gone.is_empty(),
        "{suite} on {}: no difference any more, but in the table: {gone:?}",
        storage.name()
    );
}

#[test]
fn every_line_of_the_table_is_of_a_suite_and_a_storage() {
    let suites = ["pjdfstest (Rust)", "pjdfstest (C)", "fsx", "fio", "stress-ng"];
    for row in rows() {
        assert!(suites.contains(&row.suite), "{}", row.suite);
        let names = [Storage::Ext4.name(), Storage::Slowfs.name()];
        assert!(
            row.storages.split(", ").all(|name| names.contains(&name)),
            "{}",
            row.storages
        );
    }
}
