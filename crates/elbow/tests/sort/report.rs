//! What `elbow sort` says of a sort of text: progress, the final line, `--json`, `--dry-run`; and how a signal ends it.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Output;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stage::{ELBOW, Stage, lines, message, sorted, text};

/// The one object that was said.
fn json(output: &Output, code: i32) -> Value {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let said = message(output);
    assert_eq!(said.lines().count(), 1, "{said}");
    serde_json::from_str(&said).expect(&said)
}

#[test]
fn a_sort_that_needed_temporary_files_ends_with_a_line() {
    let input = lines(50_000);
    let stage = Stage::with(&[("in", &input)]);
    let said = stage.sort(&["--verbose", "-S2M", "-o", "out", "in"], b"");
    assert!(said.status.success() && stage.read("out") == sorted(&input), "{said:?}");
    let said = message(&said);
    assert!(
        said.starts_with("elbow: sorted 5.0 MB in ") && said.lines().count() == 1,
        "{said}"
    );
    let numbers = said.split_once(" s: ").map(|(_, numbers)| numbers).expect(&said);
    assert!(numbers.starts_with("read 10.1 MB, wrote 10.1 MB, at most "), "{said}");
    let times = numbers
        .rsplit_once('(')
        .and_then(|(_, times)| times.split_once("x)"))
        .expect(&said)
        .0;
    let times: f64 = times.parse().expect(&said);
    assert!((1.0..1.5).contains(&times), "{said}");
}

#[test]
fn a_sort_in_memory_or_to_standard_output_or_that_is_to_be_quiet_says_nothing() {
    let input = lines(30_000);
    let stage = Stage::with(&[("in", &input)]);
    for words in [
        &["-o", "out", "in"][..],
        &["-qS2M", "-o", "out", "in"],
        &["-m", "-o", "out", "in"],
        // Nobody looks: standard error is a pipe.
        &["-S2M", "-o", "out", "in"],
    ] {
        assert_eq!(text(&stage.sort(words, b"")), b"", "{words:?}");
    }
    assert!(text(&stage.sort(&["-S2M", "in"], b"")) == sorted(&input));
}

#[test]
fn one_json_object_tells_what_was_done() {
    let input = lines(50_000);
    let stage = Stage::with(&[("in", &input), ("low", b"a\nc\n"), ("high", b"b\n")]);
    let size = input.len() as u64;
    let told = json(&stage.sort(&["--json", "-S2M", "-o", "out", "in"], b""), 0);
    assert_eq!(
        (&told["outcome"], told["bytes"].as_u64()),
        (&"sorted".into(), Some(size)),
        "{told}"
    );
    let number = |key: &str| told[key].as_u64().expect(key);
    assert_eq!(
        (number("read_bytes"), number("written_bytes")),
        (2 * size, 2 * size),
        "{told}"
    );
    assert!(number("runs") > 3 && number("merges") == 0, "{told}");
    assert!((size..size * 15 / 10).contains(&number("peak_disk_bytes")), "{told}");
    assert!(number("freed_bytes") > size * 9 / 10, "{told}");

    let told = json(&stage.sort(&["--json", "-m", "low", "high", "-o", "out"], b""), 0);
    assert_eq!(
        (&told["outcome"], told["bytes"].as_u64()),
        (&"merged".into(), Some(6)),
        "{told}"
    );
    assert_eq!(stage.read("out"), b"a\nb\nc\n");
    let told = json(&stage.sort(&["--json"], b"b\na"), 0);
    assert_eq!(
        (told["bytes"].as_u64(), told["runs"].as_u64()),
        (Some(3), Some(0)),
        "{told}"
    );
    let told = json(&stage.sort(&["--json", "-c", "low"], b""), 0);
    assert_eq!(told["outcome"], "in order");
    let told = json(&stage.sort(&["--json", "-c"], b"b\na\n"), 1);
    assert_eq!(
        (&told["outcome"], told["line_number"].as_u64()),
        (&"disorder".into(), Some(2))
    );
    for words in [&["nosuch"][..], &["-k0", "in"], &["-S2M", "-T", "nosuch", "in"]] {
        let told = json(&stage.sort(&[&["--json"], words].concat(), b""), 2);
        assert_eq!(
            (&told["outcome"], told["exit_code"].as_u64()),
            (&"failed".into(), Some(2)),
            "{told}"
        );
        assert!(
            told["error"]["message"].as_str().is_some_and(|error| !error.is_empty()),
            "{told}"
        );
    }
}

#[test]
fn a_dry_run_changes_nothing_and_its_numbers_are_those_of_the_sort() {
    let input = lines(60_000);
    let stage = Stage::with(&[("in", &input), ("small", b"b\na\n")]);
    for batch in ["--batch-size=200", "--batch-size=4"] {
        let words = ["--json", "-S2M", batch, "-o", "out", "in"];
        let told = json(&stage.sort(&[&words[..], &["--dry-run"]].concat(), b""), 0);
        assert!(!stage.path("out").exists());
        let done = json(&stage.sort(&words, b""), 0);
        let number = |of: &Value, key: &str| of[key].as_u64().expect(key);
        assert_eq!(number(&told, "bytes"), number(&done, "bytes"));
        assert_eq!(number(&told, "merges"), number(&done, "merges"), "{told} {done}");
        assert_eq!(
            number(&told, "runs") + number(&told, "merges"),
            number(&done, "runs"),
            "{told} {done}"
        );
        for key in ["read_bytes", "written_bytes"] {
            let (told, done) = (number(&told, key), number(&done, key));
            assert!(told.abs_diff(done) < done / 20, "{key}: {told} {done}");
        }
        std::fs::remove_file(stage.path("out")).expect("it was made");
    }
    let said = message(&stage.sort(&["--dry-run", "-S2M", "in"], b""));
    assert!(
        said.contains("runs, merged at once, 2.1 MB of memory") && said.contains("disk space needed"),
        "{said}"
    );
    let said = message(&stage.sort(&["--dry-run", "small"], b""));
    assert!(said.contains("all in memory") && said.contains("grows: 0 B;"), "{said}");
    for (words, error) in [
        (&["-"][..], "the size of standard input is not known"),
        (&["-m", "in"], "cannot be combined with -m, -c or -C"),
        (&["."], "only the size of a regular file is known"),
    ] {
        let failed = stage.sort(&[&["--dry-run"], words].concat(), b"");
        assert_eq!(failed.status.code(), Some(2));
        assert!(message(&failed).contains(error), "{failed:?}");
    }
}

/// The bar is on a terminal; script(1) has one. The output is a pipe that nobody empties for a while, so that the sort
/// takes long enough to show a bar. Where what starts the tests has no terminal, the variable TERM is not set either, and a
/// terminal that can do nothing gets no bar.
#[test]
fn progress_is_shown_on_a_terminal() {
    let stage = Stage::with(&[("in", &lines(50_000))]);
    let script = format!(
        "mkfifo slow && {{ {{ sleep 2; cat; }} <slow >out & }} &&
        TERM=vt100 script -qec '{ELBOW} sort -S2M -o slow in' screen >/dev/null && wait"
    );
    let said = stage.run("sh", &["-c", &script], b"");
    assert!(said.status.success(), "{said:?}");
    let screen = String::from_utf8_lossy(&stage.read("screen")).into_owned();
    assert!(
        screen.contains("% ") && screen.contains(" of 5.0 MB, ") && screen.contains(" s left"),
        "{screen}"
    );
    assert!(screen.contains("elbow: sorted 5.0 MB in "), "{screen}");
}

#[test]
fn a_signal_ends_a_sort_which_leaves_nothing_but_its_input() {
    let input = lines(20_000);
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let stage = Stage::with(&[("out", b"old")]);
        std::fs::create_dir(stage.path("tmp")).expect("a directory");
        let mut child = stage.start(ELBOW, &["sort", "-S64K", "-T", "tmp", "-o", "out"]);
        // More is to come, so it reads, and runs are in temporary files.
        child
            .stdin
            .as_mut()
            .expect("a pipe")
            .write_all(&input)
            .expect("a reader");
        let descriptors = format!("/proc/{}/fd", child.id());
        let has_runs = || {
            let links = std::fs::read_dir(&descriptors).expect("a process");
            let mut links = links.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
            links.any(|link| link.starts_with(stage.path("tmp")))
        };
        let began = Instant::now();
        while !has_runs() {
            assert!(began.elapsed() < Duration::from_secs(30), "no temporary file was made");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(Pid::from_child(&child), signal).expect("a signal");
        assert_eq!(child.wait().expect("an end").signal(), Some(signal.as_raw()));
        assert_eq!(std::fs::read_dir(stage.path("tmp")).expect("it").count(), 0);
        assert_eq!(stage.read("out"), b"old", "it is emptied when all has been read");
    }
}
