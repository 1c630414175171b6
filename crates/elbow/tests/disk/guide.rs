//! Every command of the guides to the simulated disk that show what is printed, run as it stands there; it prints what the guide says.

use std::path::Path;
use std::process::Command;

use crate::text;

const OSTEP: &str = include_str!("../../../../docs/src/guide/disk-ostep.md");
const FILES: &str = include_str!("../../../../docs/src/guide/disk-files.md");

/// Pieces for a shell, each with what it prints.
fn pieces(guide: &'static str) -> Vec<(&'static str, &'static str)> {
    let piece = |rest: &'static str| {
        let (commands, rest) = rest.split_once("```\n").expect("commands end");
        let printed = rest.strip_prefix("```text\n").expect("what they print follows");
        (commands, printed.split("```\n").next().unwrap_or_default())
    };
    guide.split("```sh\n").skip(1).map(piece).collect()
}

/// What commands print, errors too.
fn printed(commands: &str, directory: &Path) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_elbow")).parent().expect("a directory");
    let path = std::env::var("PATH").expect("a path");
    let output = Command::new("bash")
        .args(["-ec", &format!("exec 2>&1\n{commands}")])
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("LC_ALL", "C")
        .current_dir(directory)
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{commands}{}", text(&output.stdout));
    text(&output.stdout)
}

/// Runs all commands of a guide in one directory; it has so many pieces.
fn prints_what_it_says(guide: &'static str, number: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let pieces = pieces(guide);
    assert_eq!(pieces.len(), number);
    for (commands, said) in pieces {
        assert_eq!(printed(commands, directory.path()), said, "{commands}");
    }
}

#[test]
fn the_guide_to_ostep_prints_what_it_says() {
    prints_what_it_says(OSTEP, 12);
}

#[test]
fn the_guide_to_files_prints_what_it_says() {
    prints_what_it_says(FILES, 5);
}
