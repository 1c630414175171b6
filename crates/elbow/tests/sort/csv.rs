//! `elbow sort --csv` and `--count`: what is written is what was read, in the order that other readers of tables see.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use elbow_testkit::cases::seed;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::stage::{Stage, message, text};

const TABLE: &str =
    "name,price,note\r\n\"Cy, \"\"the\"\" first\",10,\"two\r\nlines\"\r\nAnn,9,\r\n\"Bob\",100,\"a,b\"\r\n";

#[test]
fn rows_are_sorted_by_columns_and_the_header_stays() {
    let stage = Stage::with(&[("t.csv", TABLE.as_bytes())]);
    let rows = |text: &[u8]| -> Vec<String> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text);
        reader.records().map(|row| row.expect("a row")[0].to_owned()).collect()
    };
    for (words, expected) in [
        (
            &["--csv", "--key", "price:n", "t.csv"][..],
            ["name", "Ann", "Cy, \"the\" first", "Bob"],
        ),
        (
            &["--csv", "--key", "2:nr", "t.csv"],
            ["name", "Bob", "Cy, \"the\" first", "Ann"],
        ),
        (
            &["--csv", "-n", "--key", "price", "t.csv"],
            ["name", "Ann", "Cy, \"the\" first", "Bob"],
        ),
        (
            &["--csv", "--key", "name", "t.csv"],
            ["name", "Ann", "Bob", "Cy, \"the\" first"],
        ),
        (
            &["--csv", "--key", "note:r", "-s", "t.csv"],
            ["name", "Cy, \"the\" first", "Bob", "Ann"],
        ),
    ] {
        let sorted = stage.sort(words, b"");
        assert_eq!(rows(text(&sorted)), expected, "{words:?}");
        assert_eq!(sorted.stdout.len(), TABLE.len());
    }
    let sorted = stage.sort(&["--csv", "--key=name", "t.csv"], b"");
    let expected =
        "name,price,note\r\nAnn,9,\r\n\"Bob\",100,\"a,b\"\r\n\"Cy, \"\"the\"\" first\",10,\"two\r\nlines\"\r\n";
    assert_eq!(String::from_utf8_lossy(text(&sorted)), expected, "byte for byte");
    assert_eq!(
        text(&stage.sort(&["--csv", "-t", ";", "-k2"], b"a;b\n\"1;\";2\n3;1")),
        b"a;b\n3;1\n\"1;\";2\n"
    );
    assert_eq!(text(&stage.sort(&["--csv"], b"only,a header")), b"only,a header\n");
}

#[test]
fn several_tables_have_one_header() {
    let other = TABLE
        .replace("name,price,note\r\n", "name,\"price\",note\r\n")
        .replace("Ann", "Dan");
    let stage = Stage::with(&[
        ("one", TABLE.as_bytes()),
        ("two", other.as_bytes()),
        ("three", b"name,cost,note\nx,1,\n"),
    ]);
    let sorted = stage.sort(&["--csv", "-k", "name", "-o", "one", "one", "two"], b"");
    assert!(sorted.status.success(), "{sorted:?}");
    let merged = stage.read("one");
    let read: Vec<String> = csv::Reader::from_reader(&merged[..])
        .records()
        .map(|row| row.expect("a row")[0].to_owned())
        .collect();
    assert_eq!(
        read,
        ["Ann", "Bob", "Bob", "Cy, \"the\" first", "Cy, \"the\" first", "Dan"]
    );
    assert_eq!(text(&stage.sort(&["--csv", "-m", "-k", "name", "one"], b"")), merged);
    let refused = stage.sort(&["--csv", "two", "three"], b"");
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        message(&refused).starts_with("elbow: three: its header is another"),
        "{}",
        message(&refused)
    );
}

#[test]
fn what_is_no_table_is_refused_with_its_line_and_the_output_stays() {
    for (table, words) in [
        ("a,b\n1,2\n\"x\n,3\n", "line 3: a quote is opened here and never closed"),
        ("a,b\n1,2\n\"x\ny\",3\n1\n", "line 5: 1 fields, and the header has 2"),
        ("a,b\n1,2,3\n", "line 2: 3 fields, and the header has 2"),
        (
            "a,b\n1,\"2\" 3\n",
            "line 2: after the closing quote of field 2 comes ' '",
        ),
        ("a,b\n1,2\" disk\n", "line 2: a quote within field 2"),
        ("", "it is empty"),
    ] {
        let stage = Stage::with(&[("t", table.as_bytes()), ("out", b"as it was")]);
        let refused = stage.sort(&["--csv", "-o", "out", "t"], b"");
        assert_eq!(refused.status.code(), Some(2), "{table:?}");
        let said = message(&refused);
        assert!(said.contains(words) && said.contains(": t: "), "{table:?}: {said}");
        assert_eq!(stage.read("out"), b"as it was");
    }
    let stage = Stage::with(&[("t", TABLE.as_bytes())]);
    for (words, said) in [
        (
            &["--csv", "--key", "cost", "t"][..],
            "there is no column `cost`; there are name, price, note",
        ),
        (&["--csv", "--key", "4", "t"], "there is no column `4`"),
        (&["--csv", "-t", "\"", "t"], "separates no fields"),
        (&["--csv", "--record", "8", "t"], "--csv"),
        (&["--count", "t"], "--unique"),
    ] {
        let refused = stage.sort(words, b"");
        assert_eq!(refused.status.code(), Some(2), "{words:?}");
        assert!(message(&refused).contains(said), "{words:?}: {}", message(&refused));
    }
}

/// A table that is some times as large as its memory, with anything in its fields; and the same rows in order.
fn table(rows: u32, random: &mut StdRng) -> (String, Vec<(u64, String)>) {
    let (mut text, mut expected) = ("id,\"the value\",note\n".to_owned(), Vec::new());
    for id in 0..rows {
        let value = random.random_range(0..u64::from(rows));
        let note: String = (0..random.random_range(0..40))
            .map(|_| ['a', ',', '\n', 'é', '\u{1}'][random.random_range(0..5)])
            .collect();
        let row = format!("{id},{value},\"{note}\"\"\"\n");
        text += &row;
        expected.push((value, row));
    }
    expected.sort();
    (text, expected)
}

#[test]
fn a_table_larger_than_memory_is_sorted_in_its_own_space() {
    let mut random = StdRng::seed_from_u64(seed());
    let (table, expected) = table(120_000, &mut random);
    let stage = Stage::with(&[("t", table.as_bytes())]);
    let mut sorted = "id,\"the value\",note\n".to_owned();
    expected.iter().for_each(|(_, row)| sorted += row);
    for lanes in ["1", "3"] {
        let words = [
            "--csv",
            "-k",
            "the value:n",
            "-S",
            "2M",
            "--parallel",
            lanes,
            "--json",
            "-o",
            "out",
            "t",
        ];
        let said = stage.sort(&words, b"");
        assert!(said.status.success(), "{said:?}");
        assert!(stage.read("out") == sorted.as_bytes(), "{lanes}");
        let report: serde_json::Value = serde_json::from_str(&message(&said)).expect("JSON");
        let number = |name: &str| report[name].as_u64().expect("a number");
        assert!(number("runs") > 4, "{report}");
        assert!(number("peak_disk_bytes") < number("bytes") * 3 / 2, "{report}");
    }
}

#[test]
fn lines_are_counted_as_uniq_counts_them() {
    let mut random = StdRng::seed_from_u64(seed());
    let lines: Vec<String> = (0..60_000)
        .map(|_| format!("{:04} and some more of it", random.random_range(0..3000)))
        .collect();
    let text_of_lines = lines.join("\n") + "\n";
    let stage = Stage::with(&[("t", text_of_lines.as_bytes())]);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    lines.iter().for_each(|line| *counts.entry(line).or_default() += 1);
    let mut expected = String::new();
    for (line, count) in counts {
        writeln!(expected, "{count:7} {line}").expect("memory");
    }
    for memory in ["1M", "64M"] {
        let counted = stage.sort(&["--unique", "--count", "-S", memory, "--parallel", "2", "t"], b"");
        assert!(text(&counted) == expected.as_bytes(), "{memory}");
        let counted = stage.sort(
            &["-u", "--count", "-S", memory, "--parallel", "2", "-o", "out", "t"],
            b"",
        );
        assert!(
            counted.status.success() && stage.read("out") == expected.as_bytes(),
            "{memory}"
        );
    }
    let by_key = stage.sort(&["-u", "--count", "-k1,1"], b"b 1\na 1\nb 2\n");
    assert_eq!(text(&by_key), b"      1 a 1\n      2 b 1\n");
    let table = stage.sort(&["--csv", "-u", "--count", "-k", "a"], b"a,b\r\n2,x\r\n1,y\r\n2,z");
    assert_eq!(text(&table), b"count,a,b\r\n1,1,y\r\n2,2,x\r\n");
}

#[test]
fn a_table_is_checked_as_a_table() {
    let stage = Stage::new();
    assert_eq!(
        stage
            .sort(&["--csv", "-c", "-k2"], b"b,a\n\"2\n\",1\n1,2\n")
            .status
            .code(),
        Some(0)
    );
    let found = stage.sort(&["--csv", "-c", "-k", "a:n"], b"b,a\nx,1\ny,10\nz,9\n");
    assert_eq!(found.status.code(), Some(1));
    assert_eq!(message(&found), "elbow: -:4: disorder: z,9\n");
}
