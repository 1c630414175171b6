//! `elbow bark log` without a zoned device. What it does with one is tried in a machine that has one (`tests/machines/zoned.rs`).

use super::{elbow_of, text};

fn refused(args: &[&str]) -> String {
    let output = elbow_of("bark", args, b"");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{args:?}");
    text(&output.stderr)
}

#[test]
fn a_log_needs_a_zoned_device() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    let on = path.to_str().expect("a name in UTF-8");
    assert!(refused(&["log", on]).contains("No such file"));
    std::fs::write(&path, [7; 8192]).expect("it writes");
    for args in [
        &["log", on][..],
        &["log", on, "--format", "--force"],
        &["log", on, "--append"],
    ] {
        assert!(refused(args).contains("no zoned block device"), "{args:?}");
    }
    assert_eq!(std::fs::read(&path).expect("it reads"), [7; 8192]);
    assert!(refused(&["log", on, "--append", "--format"]).contains("cannot be used with"));
}
