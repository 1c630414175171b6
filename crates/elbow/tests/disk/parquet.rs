//! Rows of requests as Parquet: with the feature `parquet` they are those of the comma-separated file, and without it the
//! name is refused.

#[cfg(feature = "parquet")]
use parquet::file::reader::{FileReader, SerializedFileReader};
#[cfg(feature = "parquet")]
use parquet::record::Field;

use crate::{elbow, text};

/// Each format has the same rows: the one that people look at, and the one that programs read.
#[cfg(feature = "parquet")]
#[test]
fn rows_of_a_parquet_file_are_those_of_the_other() {
    let dir = tempfile::tempdir().expect("a directory");
    let written = |name: &str| {
        let path = dir.path().join(name);
        let file = path.to_str().expect("text");
        let args = [
            "simulate",
            "--requests",
            "70000", // more than a group of rows
            "--reads",
            "0.5",
            "--mechanical",
            "--per-request",
            file,
        ];
        let output = elbow(&args, b"");
        assert!(output.status.success(), "{}", text(&output.stderr));
        path
    };
    let csv = std::fs::read_to_string(written("requests.csv")).expect("it was written");
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().expect("names").split(',').collect();
    let parquet = std::fs::File::open(written("requests.parquet")).expect("it was written");
    let reader = SerializedFileReader::new(parquet).expect("a Parquet file");
    assert_eq!(reader.metadata().num_row_groups(), 2);
    let mut rows = 0;
    for (row, line) in reader.get_row_iter(None).expect("rows").zip(&mut lines) {
        let row = row.expect("a row");
        let values: Vec<(&String, String)> = row
            .get_column_iter()
            .map(|(name, field)| (name, shown(field)))
            .collect();
        let expected: Vec<&str> = line.split(',').collect();
        assert!(values.iter().map(|(name, _)| name.as_str()).eq(names.iter().copied()));
        assert!(
            values.iter().map(|(_, value)| value.as_str()).eq(expected),
            "{line}: {values:?}"
        );
        rows += 1;
    }
    assert_eq!((rows, lines.next()), (70_000, None));
}

#[cfg(feature = "parquet")]
fn shown(field: &Field) -> String {
    match field {
        Field::Double(number) => format!("{number:.6}"),
        Field::Str(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(not(feature = "parquet"))]
#[test]
fn a_program_without_parquet_says_so_and_creates_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("requests.parquet");
    let file = path.to_str().expect("text");
    let output = elbow(&["simulate", "--requests", "10", "--per-request", file], b"");
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(
        said.contains("built without Parquet") && said.contains("--features parquet"),
        "{said}"
    );
    assert!(!path.exists());
}
