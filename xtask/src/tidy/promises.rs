//! Every promise of `SEMANTICS.md` is run as a test.
//!
//! A promise is a table row `| S7 | text | `test_name`, `other_test` |`. Promises are numbered without gaps, but for those that were
//! added between others and have a letter (`S7p`); each names at least one test, and each test named is a `#[test]` function somewhere in the tree, or
//! one of Python whose name begins with `test_`.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;

use crate::workspace::Workspace;

const DOCUMENT: &str = "SEMANTICS.md";

/// The findings about the promises of the workspace.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let document = workspace.text(Path::new(DOCUMENT))?;
    let mut tests = BTreeSet::new();
    for file in workspace.rust_files() {
        tests.extend(test_names(&workspace.text(file)?));
    }
    for file in workspace.files_with("py") {
        tests.extend(python_test_names(&workspace.text(file)?));
    }
    Ok(promise_findings(&promises(&document), &tests))
}

#[derive(Debug, PartialEq, Eq)]
struct Promise {
    number: usize,
    /// Of one that was added between others.
    letter: Option<char>,
    tests: Vec<String>,
}

fn promises(document: &str) -> Vec<Promise> {
    document.lines().filter_map(promise).collect()
}

/// The promise in a line, if the line is a row of a table of promises.
fn promise(line: &str) -> Option<Promise> {
    let cells: Vec<&str> = line.trim().strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
    let name = cells.first()?.trim().strip_prefix('S')?;
    let digits = name.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    // Every second piece between back quotes is a quoted one; but a command or a place that has the tests beside it.
    let quoted = cells.last()?.split('`').skip(1).step_by(2);
    Some(Promise {
        number: digits.parse().ok()?,
        letter: name[digits.len()..].chars().next(),
        tests: quoted
            .filter(|quoted| !quoted.contains([' ', '/']))
            .map(str::to_owned)
            .collect(),
    })
}

/// Names of the functions that carry a `#[test]` attribute.
fn test_names(source: &str) -> Vec<String> {
    let mut is_test = false;
    let mut names = Vec::new();
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some((_, signature)) = line.split_once("fn ").filter(|_| !line.starts_with("//")) {
            let name = signature.split(['(', '<']).next().unwrap_or_default();
            names.extend(is_test.then(|| name.to_owned()));
            is_test = false;
        }
    }
    names
}

/// Names of the functions that pytest runs.
fn python_test_names(source: &str) -> impl Iterator<Item = String> {
    let functions = source.lines().filter_map(|line| line.strip_prefix("def "));
    let names = functions.filter_map(|signature| signature.split('(').next());
    names.filter(|name| name.starts_with("test_")).map(str::to_owned)
}

fn promise_findings(promises: &[Promise], tests: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    if promises.is_empty() {
        findings.push(format!("{DOCUMENT}: no row `| S1 | promise | `test` |` in it"));
    }
    let numbered = promises.iter().filter(|promise| promise.letter.is_none());
    for (index, Promise { number, .. }) in numbered.enumerate() {
        if *number != index + 1 {
            findings.push(format!("{DOCUMENT}: S{number} stands where S{} is due", index + 1));
        }
    }
    for promise in promises {
        let name = format!(
            "S{}{}",
            promise.number,
            promise.letter.map(String::from).unwrap_or_default()
        );
        if promise.tests.is_empty() {
            findings.push(format!("{DOCUMENT}: {name} names no test that runs it"));
        }
        for test in promise.tests.iter().filter(|test| !tests.contains(*test)) {
            findings.push(format!("{DOCUMENT}: {name} names `{test}`, and no test has that name"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\nfn holds() {}\n#[test]\n#[cfg(unix)]\nfn also_holds() {}\nfn no_test() {}\n";

    fn findings(document: &str) -> Vec<String> {
        promise_findings(&promises(document), &test_names(SOURCE).into_iter().collect())
    }

    #[test]
    fn only_test_functions_count() {
        assert_eq!(test_names(SOURCE), ["holds", "also_holds"]);
        let python = "def test_runs(place):\n    def test_inner(): pass\ndef helper(): pass\n";
        assert_eq!(python_test_names(python).collect::<Vec<_>>(), ["test_runs"]);
        assert_eq!(test_names("// #[test] fn x()\n#[test]\n// fn y\nfn z() {}"), ["z"]);
    }

    #[test]
    fn promises_with_tests_pass() {
        assert!(findings("| S1 | a | `holds` |\ntext\n| S2 | b `x` | `also_holds`, `holds` |\n").is_empty());
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        assert_eq!(
            findings("| S1 | with `code` in it | |\n"),
            ["SEMANTICS.md: S1 names no test that runs it"]
        );
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        assert_eq!(findings("| S1 | a | `no_test` |\n").len(), 1);
        assert_eq!(findings("| S1 | a | `invented` |\n").len(), 1);
        let added = "| S1 | a | `holds` |\n| S1p | b | `holds`; in `make soak` `invented` |\n";
        assert_eq!(
            findings(added),
            ["SEMANTICS.md: S1p names `invented`, and no test has that name"]
        );
    }

    #[test]
    fn gaps_and_an_empty_document_are_found() {
        assert_eq!(findings("| S1 | a | `holds` |\n| S3 | b | `holds` |\n").len(), 1);
        assert_eq!(findings("# nothing\n").len(), 1);
    }
}
