//! Signals, `--json` and `--dry-run`.

use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::testbed::{ORDER, Said, Testbed, megabytes, sorted, wait_for};

const MEGABYTES: usize = 40;

#[test]
fn a_signal_stops_a_sort_in_place_that_says_how_to_go_on() {
    for signal in [Signal::INT, Signal::TERM] {
        let input = megabytes(MEGABYTES, 1);
        let testbed = Testbed::with(&input);
        let before = testbed.identity("data");
        let child = testbed.start_and_hold(&input);
        child.send(signal);
        let said = child.go_on();
        assert_eq!(
            (said.code, said.err.as_str()),
            (
                130,
                "elbow: stopped as asked\nelbow: nothing is lost; continue with: elbow sort --resume data\n"
            )
        );
        assert!(testbed.is_begun());
        testbed.resume().assert_code(0);
        assert!(testbed.read("data").is_sorted_as(&input), "{signal:?}");
        assert_eq!(
            (testbed.identity("data"), testbed.names()),
            (before, vec!["data".to_owned()])
        );
    }
}

/// A part of its records is in the runs alone: a copy has zeros there, and `-o` over the file itself would have lost them.
#[test]
fn nothing_reads_or_overwrites_a_file_whose_sort_in_place_is_not_finished() {
    let input = megabytes(MEGABYTES, 5);
    let testbed = Testbed::with(&input);
    testbed.write("other", &megabytes(1, 6));
    let held = testbed.start_and_hold(&input);
    held.send(Signal::KILL);
    held.go_on().assert_code(137);
    std::os::unix::fs::symlink("data", testbed.path("link")).expect("a link");
    let left = testbed.read("data");
    let message = "data: a sort in place of this file was begun and is not finished";
    for words in [
        &[&ORDER[..], &["-o", "data", "data"]].concat()[..],
        &[&ORDER[..], &["-o", "out", "other", "link"]].concat(),
        &[&ORDER[..], &["-o", "link", "other"]].concat(),
        &["-o", "out", "data"],
        &["-o", "data", "other"],
        &["-c", "data"],
        &["-m", "other", "link"],
    ] {
        let said = testbed.sort(words);
        assert!(said.code == 2 && said.err.contains(message), "{words:?}: {said:?}");
        assert!(said.out.is_empty() && testbed.read("data") == left, "{words:?}");
    }
    let mut consume = std::process::Command::new(crate::testbed::ELBOW);
    consume.args(["consume", "data"]).current_dir(&testbed.dir);
    let said = Said::of(&consume.output().expect("an end"));
    assert!(said.code == 125 && said.err.contains(message), "{said:?}");
    assert_eq!(
        testbed.names(),
        ["data", "data.elbow-sort", "link", "other"].map(str::to_owned)
    );

    // A copy of both, as of a backup: what it lacks lies in the runs.
    let copies = std::process::Command::new("sh")
        .args(["-c", "mkdir copy && cp -a data data.elbow-sort copy"])
        .current_dir(&testbed.dir)
        .status();
    assert!(copies.expect("sh").success());
    let copy = testbed.sort(&[&ORDER[..], &["-o", "out", "copy/data"]].concat());
    assert!(copy.code == 2 && copy.err.contains(message), "{copy:?}");

    // Another file of the name is no part of that sort.
    std::fs::rename(testbed.path("data"), testbed.path("kept")).expect("another name");
    testbed.write("data", &megabytes(1, 7));
    testbed
        .sort(&[&ORDER[..], &["-o", "out", "data"]].concat())
        .assert_code(0);
    std::fs::rename(testbed.path("kept"), testbed.path("data")).expect("its name");
    testbed.resume().assert_code(0);
    assert!(testbed.read("data").is_sorted_as(&input));
    testbed.sort(&["-o", "out", "data"]).assert_code(0);
}

/// What has no name to look beside, or lies where nobody may look, is sorted as by sort(1).
#[test]
fn what_cannot_have_a_sort_in_place_beside_it_is_sorted() {
    let testbed = Testbed::with(b"b\na\n");
    let elbow = crate::testbed::ELBOW;
    let long = "n".repeat(250);
    for script in [
        format!("exec 3<data; rm data; {elbow} sort /dev/fd/3"),
        format!("exec 3<>data; rm data; {elbow} sort -o /dev/fd/3 /dev/fd/3; cat /dev/fd/3"),
        format!("cp data {long}; {elbow} sort {long}"),
        format!("cp data {long}; {elbow} sort -o {long} {long}; cat {long}"),
        format!("mkdir data.elbow-sort; {elbow} sort data"),
        format!(
            "mkdir data.elbow-sort; truncate -s 15T data.elbow-sort/manifest || truncate -s 1T data.elbow-sort/manifest; {elbow} sort data || echo refused"
        ),
        format!("mkdir data.elbow-sort; mkfifo data.elbow-sort/manifest; {elbow} sort data || echo refused"),
    ] {
        testbed.write("data", b"b\na\n");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).current_dir(&testbed.dir);
        let said = Said::of(&shell.output().expect("an end"));
        let is_refused = said.out == b"refused\n" && said.err.contains("manifest");
        assert!(
            said.code == 0 && (said.out == b"a\nb\n" || is_refused),
            "{script}: {said:?}"
        );
        let _ = std::fs::remove_dir_all(testbed.path("data.elbow-sort"));
    }
}

/// A comparison of megabytes that does not print them.
trait SortedAs {
    fn is_sorted_as(&self, input: &[u8]) -> bool;
}

impl SortedAs for Vec<u8> {
    /// The keys are those of the input in order, whatever is done with equal ones.
    fn is_sorted_as(&self, input: &[u8]) -> bool {
        sorted(self) == *self && crate::testbed::Content::of(self) == crate::testbed::Content::of(input)
    }
}

#[test]
fn a_signal_ends_a_sort_that_waits_for_its_input_and_leaves_nothing() {
    let testbed = Testbed::new();
    testbed.write("out", b"old");
    let mut command = testbed.command(&[&ORDER[..], &["-o", "out", "-"]].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().expect("a start");
    let input = child.stdin.take(); // open, and nothing comes
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).expect("a signal");
    wait_for("the end", || child.try_wait().expect("its state").is_some());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    drop(input);
    Said::of_child(child).assert_code(130);
    assert_eq!(
        (testbed.read("out"), testbed.names()),
        (b"old".to_vec(), vec!["out".to_owned()])
    );
}

#[test]
fn one_json_object_tells_a_success() {
    let testbed = Testbed::with(&megabytes(3, 2));
    let size = testbed.identity("data").1;
    let told = testbed.sort_in_place(&["--json"]).assert_code(0).json();
    assert_eq!(
        (&told["outcome"], told["bytes"].as_u64()),
        (&"sorted".into(), Some(size))
    );
    assert_eq!(told["records"].as_u64(), Some(size / 24));

    testbed.write("copy", &megabytes(1, 2));
    let told = testbed
        .sort(&[&ORDER[..], &["--json", "-o", "out", "copy"]].concat())
        .assert_code(0)
        .json();
    assert_eq!((&told["outcome"], told["passes"].as_u64()), (&"sorted".into(), Some(1)));
}

#[test]
fn one_json_object_tells_a_failure() {
    let testbed = Testbed::with(&megabytes(MEGABYTES, 3));
    testbed.write("odd", &[0; 25]);
    for (words, error) in [
        (&["--in-place", "odd"][..], "has only 1"),
        (&["--in-place", "nothing"], "No such file or directory"),
        (&["-o", "out", "odd"], "has only 1"),
        (&["-u", "data"], "-u is for lines of text, not for records"),
        (&["-o", "nowhere/out", "data"], "No such file or directory"),
    ] {
        let told = testbed
            .sort(&[&ORDER[..], &["--json"], words].concat())
            .assert_code(2)
            .json();
        assert_eq!(
            (&told["outcome"], told["exit_code"].as_u64()),
            (&"failed".into(), Some(2))
        );
        assert!(
            told["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains(error)),
            "{told}"
        );
    }
    let held = testbed.start_and_hold_with(&["--json"], &megabytes(MEGABYTES, 3));
    held.send(Signal::INT);
    let told = held.go_on().assert_code(130).json();
    assert_eq!(told["error"]["message"], "stopped as asked");
    assert_eq!(told["hint"], "nothing is lost; continue with: elbow sort --resume data");
}

#[test]
fn a_dry_run_changes_nothing_and_its_numbers_are_those_of_the_sort() {
    for megabytes_of_input in [1, 6, 45] {
        let input = megabytes(megabytes_of_input, 4);
        let testbed = Testbed::with(&input);
        let (before, modified) = (
            testbed.identity("data"),
            testbed.path("data").metadata().expect("the file").mtime_nsec(),
        );
        let said = testbed.sort_in_place(&["--dry-run", "--json"]).assert_code(0).json();
        assert!(testbed.read("data") == input && testbed.names() == ["data"]);
        assert_eq!(
            testbed.path("data").metadata().expect("the file").mtime_nsec(),
            modified
        );
        let done = testbed.sort_in_place(&["--json"]).assert_code(0).json();
        for number in ["records", "bytes", "runs", "passes", "read_bytes", "written_bytes"] {
            assert!(said[number].is_u64(), "{number} is missing in {said}");
        }
        for number in ["records", "bytes", "runs", "passes", "written_bytes"] {
            assert_eq!(said[number], done[number], "{number} of {megabytes_of_input} MiB");
        }
        let (needed, peak) = (&said["temporary_bytes"], &done["peak_disk_bytes"]);
        let (needed, peak) = (needed.as_u64().expect("a number"), peak.as_u64().unwrap_or(before.1));
        assert!(
            peak <= before.1 + needed,
            "{needed} bytes more than {} were promised to do, it took {peak}",
            before.1
        );
        let (said, done) = (said["read_bytes"].as_f64(), done["read_bytes"].as_f64());
        let more = done.expect("a number") / said.expect("a number");
        assert!((1.0..1.02).contains(&more), "{more} of the reading that was promised");
    }
}
