//! The commands of *OSTEP's disk.py with real drives* print what stands below them.

use std::path::Path;
use std::process::Command;

const GUIDE: &str = include_str!("../../../../docs/src/guide/disk-ostep.md");

/// Pieces for a shell, each with what it prints.
fn pieces() -> Vec<(&'static str, &'static str)> {
    let piece = |rest: &'static str| {
        let (commands, rest) = rest.split_once("```\n").expect("commands end");
        let printed = rest.strip_prefix("```text\n").expect("what they print follows");
        (commands, printed.split("```\n").next().unwrap_or_default())
    };
    GUIDE.split("```sh\n").skip(1).map(piece).collect()
}

#[test]
fn the_guide_prints_what_it_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let elbow = Path::new(env!("CARGO_BIN_EXE_elbow"))
        .parent()
        .expect("it lies somewhere");
    let path = format!("{}:{}", elbow.display(), std::env::var("PATH").expect("a path"));
    let pieces = pieces();
    assert!(pieces.len() >= 10, "{pieces:?}");
    for (commands, printed) in pieces {
        let mut shell = Command::new("bash");
        shell.args(["-e", "-c", commands]).env("PATH", &path).env("LC_ALL", "C");
        let output = shell.current_dir(&directory).output().expect("bash runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{commands}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(said, printed, "{commands}");
    }
}
