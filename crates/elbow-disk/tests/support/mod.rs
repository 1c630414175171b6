//! What tests of the disk share: the data that the model is checked against, and seeds.
//!
//! The data lies beside the repository, in `../shared/data`, or where `ELBOW_SHARED_DATA` says; a test that does not find it
//! says `SKIPPED`. Some lines of it are in `tests/data`, so that no test of the model is idle anywhere.

#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::disallowed_methods, reason = "reads the data of tests")]

use std::io::Read;
use std::path::PathBuf;

use elbow_disk::{Lbn, Request};

/// The path of a file of the data, or a message that it is not there.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("ELBOW_SHARED_DATA").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data")),
        PathBuf::from,
    );
    let path = root.join(name);
    if !path.is_file() {
        println!(
            "SKIPPED: no {} (name the directory of the data in ELBOW_SHARED_DATA)",
            path.display()
        );
        return None;
    }
    Some(path)
}

/// The text of a gzipped file of the data.
pub(crate) fn shared_text(name: &str) -> Option<String> {
    let file = std::fs::File::open(shared(name)?).expect("the data can be read");
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("gzip");
    Some(text)
}

/// The lines of a file that are in the repository, and the whole file if it is there.
pub(crate) fn sample_and_whole(sample: &'static str, name: &str) -> Vec<String> {
    std::iter::once(sample.to_owned()).chain(shared_text(name)).collect()
}

/// The numbers on a line.
pub(crate) fn numbers(line: &str) -> Vec<f64> {
    line.split_whitespace()
        .map(|word| word.parse().expect("a number"))
        .collect()
}

/// A read of sectors in a row.
pub(crate) fn read(lbn: u64, sectors: u32) -> Request {
    let lbn = Lbn(lbn);
    let write = false;
    Request { lbn, sectors, write }
}

/// A write of sectors in a row.
pub(crate) fn write(lbn: u64, sectors: u32) -> Request {
    Request {
        write: true,
        ..read(lbn, sectors)
    }
}
