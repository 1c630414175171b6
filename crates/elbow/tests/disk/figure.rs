//! `elbow disk figure`.

use std::path::Path;

use serde_json::Value;

use crate::{elbow, json, refused, text};

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One line of names, and lines of as many cells, numbers behind the first two where there are any.
fn assert_csv(name: &str, csv: &str) {
    // No name here holds a quotation mark, or a comma but inside quotation marks.
    let cells = |line: &str| {
        line.split('"')
            .step_by(2)
            .map(|plain| plain.matches(',').count())
            .sum::<usize>()
            + 1
    };
    let (names, lines) = csv.split_once('\n').expect("a line of names");
    assert!(names.starts_with("panel,") && cells(names) >= 3, "{name}: {names}");
    assert!(lines.lines().count() >= 2, "{name}: {csv}");
    for line in lines.lines() {
        assert_eq!(cells(line), cells(names), "{name}: {line}");
        let mut numbers = line.split(',').skip(2).filter(|cell| !cell.is_empty()).peekable();
        assert!(numbers.peek().is_some(), "{name}: {line}");
        assert!(
            numbers.all(|cell| cell.parse().is_ok_and(f64::is_finite)),
            "{name}: {line}"
        );
    }
}

/// Well-formed, as far as elements that open and close go.
fn assert_svg(name: &str, svg: &str) {
    let mut open = Vec::new();
    let mut shapes = 0;
    for part in svg.split('<').skip(1) {
        let (tag, rest) = part.split_once('>').unwrap_or_else(|| panic!("{name}: <{part}"));
        assert!(!rest.contains('&') || rest.contains(';'), "{name}: {rest}");
        match tag {
            _ if tag.starts_with(['?', '!']) => {}
            _ if tag.ends_with('/') => shapes += 1,
            _ => match tag.strip_prefix('/') {
                Some(closed) => assert_eq!(open.pop(), Some(closed), "{name}"),
                None => open.push(tag.split_whitespace().next().expect("a name")),
            },
        }
    }
    assert!(
        open.is_empty() && shapes > 10,
        "{name}: {shapes} shapes, {open:?} left open"
    );
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
}

#[test]
fn all_figures_are_made_drawn_and_judged() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("study");
    let report = json(
        &[
            "figure",
            "all",
            "--quick",
            "--seed",
            "3",
            "--json",
            "--out",
            out.to_str().expect("text"),
        ],
        b"",
    );
    let figures = report["figures"].as_array().expect("figures");
    let names: Vec<&str> = figures
        .iter()
        .map(|figure| figure["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names,
        ["targets", "4", "5", "6", "7", "8", "work", "9", "10", "11", "table2"]
    );
    let table = read(&out.join("claims.md"));
    for (figure, name) in figures.iter().zip(names) {
        let file = name
            .parse::<u32>()
            .map_or(name.to_owned(), |number| format!("figure-{number}"));
        assert_csv(name, &read(&out.join(format!("{file}.csv"))));
        assert_svg(name, &read(&out.join(format!("{file}.svg"))));
        for claim in figure["claims"].as_array().expect("claims") {
            let [says, verdict, reason] = ["says", "verdict", "reason"].map(|key| claim[key].as_str().expect("text"));
            assert!(
                verdict == "reproduced" || reason.len() > 1,
                "{says}: {verdict}, and no reason"
            );
            assert!(table.contains(says) && table.contains(reason), "{says}");
        }
    }
}

/// What costs little is sure enough to be asserted with few requests, too.
#[test]
fn the_cheap_claims_hold() {
    for name in ["4", "5", "6", "8", "work", "9", "10"] {
        let report = json(&["figure", name, "--quick", "--json"], b"");
        let claims = report
            .pointer("/figures/0/claims")
            .and_then(Value::as_array)
            .expect("claims");
        assert!(!claims.is_empty(), "{name}");
        for claim in claims {
            // Figure 8: the one that is refuted for good.
            let expected = if claim["says"]
                .as_str()
                .is_some_and(|says| says.starts_with("More choices"))
            {
                "refuted"
            } else {
                "reproduced"
            };
            assert_eq!(claim["verdict"], expected, "{name}: {claim}");
        }
    }
}

#[test]
fn a_figure_is_shown_with_its_claims_and_the_same_again() {
    let args = ["figure", "8", "--quick"];
    let output = elbow(&args, b"");
    assert!(output.status.success());
    let shown = text(&output.stdout);
    assert!(
        shown.starts_with("Figure 8: ") && shown.ends_with("2 of 3 claims reproduced\n"),
        "{shown}"
    );
    assert_eq!(shown, text(&elbow(&args, b"").stdout));
}

#[test]
fn the_table_takes_a_tree_of_ones_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let listing = directory.path().join("tree.tsv");
    std::fs::write(&listing, "5000\ta/b\n70000\ta/c\n").expect("written");
    let path = listing.to_str().expect("text");
    let report = json(&["figure", "table2", "--quick", "--json", "--listing", path], b"");
    let caption = report
        .pointer("/figures/0/caption")
        .and_then(Value::as_str)
        .expect("a caption");
    assert!(caption.contains(path), "{caption}");
    std::fs::write(&listing, "5000\ta/b\nwhat\n").expect("written");
    assert_eq!(
        refused(&["figure", "table2", "--quick", "--listing", path], b""),
        format!("elbow: {path}:2: \"what\" is not a size, a tab and a path\n")
    );
}

#[test]
fn other_figures_are_refused_with_those_there_are() {
    let said = refused(&["figure", "3"], b"");
    assert!(said.contains("no figure \"3\"") && said.contains("table2"), "{said}");
    assert!(refused(&["figure", "8", "--listing", "/no/such/file"], b"").contains("cannot open /no/such/file"));
}
