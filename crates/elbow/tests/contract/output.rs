//! What is printed, where, and for whom.

use serde_json::Value;

use crate::stage::{Said, Stage};

const NUMBERS: [&str; 11] = [
    "exit_code",
    "command_seconds",
    "drain_seconds",
    "commit_seconds",
    "operations",
    "storage_calls",
    "merged",
    "cancelled",
    "bytes_acknowledged",
    "bytes_written",
    "mean_in_flight",
];

fn json(said: &Said) -> Value {
    let last = said.err.lines().last().expect("a last line");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {said:#?}"))
}

#[test]
fn a_json_object_is_the_last_line_of_standard_error() {
    let stage = Stage::new();
    let said = stage.elbow(&[
        "run",
        "--json",
        "--",
        "sh",
        "-c",
        "printf 12345 > new; echo out; echo err >&2",
    ]);
    said.assert_code(0);
    assert_eq!(said.out, "out\n");
    assert_eq!(said.err.lines().count(), 2, "{said:#?}");
    let report = json(&said);
    assert_eq!(report["outcome"], "committed");
    for field in NUMBERS {
        assert!(report[field].is_number(), "{field}: {report}");
    }
    assert_eq!(
        (&report["bytes_acknowledged"], &report["bytes_written"]),
        (&5.into(), &5.into())
    );
    assert_eq!(report["errors"], Value::Array(Vec::new()));
}

#[test]
fn a_failed_command_is_told_in_json_too() {
    let stage = Stage::new();
    let said = stage.elbow(&["run", "--json", "--", "sh", "-c", "printf x > new; exit 9"]);
    let report = json(said.assert_code(9));
    assert_eq!(
        (&report["outcome"], &report["exit_code"]),
        (&"rolled_back".into(), &9.into())
    );
    assert!(stage.names().is_empty());
    let report = json(
        stage
            .elbow(&["run", "--json", "--", "no-such-command"])
            .assert_code(127),
    );
    assert_eq!(report["exit_code"], 127);
    let report = json(
        stage
            .elbow(&["run", "--json", "--on", "nowhere", "--", "true"])
            .assert_code(125),
    );
    assert_eq!(
        (&report["outcome"], &report["exit_code"]),
        (&"rolled_back".into(), &125.into())
    );
}

#[test]
fn a_kept_job_says_where_it_is() {
    let stage = Stage::new();
    let said = stage.elbow(&[
        "run",
        "--json",
        "--keep",
        "--",
        "sh",
        "-c",
        "seq 99999 > new; sleep 0.3; exit 9",
    ]);
    let report = json(said.assert_code(9));
    assert_eq!(report["outcome"], "kept");
    let kept = report["kept"][0].as_str().expect("a path");
    assert!(std::path::Path::new(kept).is_dir(), "{kept}");
}

#[test]
fn quiet_says_nothing_of_success_and_failure_of_the_command() {
    let stage = Stage::new();
    for (script, code) in [("printf x > new", 0), ("printf x > other; exit 4", 4)] {
        let said = stage.elbow(&["run", "--quiet", "--", "sh", "-c", script]);
        said.assert_code(code);
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""));
    }
}

#[test]
fn people_get_a_summary_on_standard_error() {
    let stage = Stage::new();
    let said = stage.elbow(&["run", "--", "sh", "-c", "printf x > new"]);
    said.assert_code(0)
        .assert_says(&["elbow: committed", "operations", "storage calls", "drain", "commit"]);
    assert_eq!(said.out, "");
    let said = stage.elbow(&["run", "--", "sh", "-c", "printf x > other; exit 4"]);
    said.assert_code(4).assert_says(&["rolled back", "exited with 4"]);
}

#[test]
fn the_command_finds_everything_as_it_was() {
    let stage = Stage::new();
    // Of the signals, those that are not real-time signals: of these the C library keeps some for itself.
    let look = "pwd; id; umask; ulimit -n; ulimit -Hn; tty; env | sort | grep -v ^_=
        sed -n \"s/^\\(Sig[BIC][lg][kn]:\\).\\{10\\}/\\1/p\" /proc/self/status";
    let script = |elbow: &str| format!("umask 027; ulimit -Sn 500; trap '' USR1; {elbow} sh -c '{look}'");
    let native = stage.apart(&script(""));
    let job = stage.apart(&script("$ELBOW run --"));
    job.assert_code(0);
    assert!(
        native.out.contains("SigIgn:0000200") && native.out.contains("SigBlk:"),
        "{native:#?}"
    );
    assert_eq!(job.out, native.out);
}

/// A reader that goes away early changes neither the outcome nor the exit code.
#[test]
fn nobody_has_to_read_what_is_said() {
    let stage = Stage::new();
    let said = stage.apart("(sleep 0.2; exec $ELBOW run -- sh -c 'printf x > new'; ) 2>&- && (set +e; $ELBOW run -- touch other; echo $? > ../code) 2>&1 | true; cat ../code");
    assert_eq!(said.assert_code(0).out, "0\n");
    assert_eq!(stage.names(), ["new", "other"]);
}

/// "elbow: Broken pipe", and 125.
#[test]
fn scripts_and_pages_may_be_read_in_part() {
    let stage = Stage::new();
    for words in [
        "completions bash",
        "man",
        "config show",
        "disk describe",
        "--version --verbose",
        "--help",
        "--version",
    ] {
        // A reader that is gone before the first word.
        let script = format!("(sleep 0.3; set +e; $ELBOW {words}; echo $? > ../code) | true; cat ../code");
        let said = stage.apart(&script);
        assert_eq!((said.out.as_str(), said.err.as_str()), ("0\n", ""), "{words}");
    }
}

#[test]
fn an_answer_that_has_no_room_is_a_failure() {
    let stage = Stage::new();
    for words in [
        "completions bash",
        "man",
        "config show",
        "--version --verbose",
        "--version",
        "--help",
        "jobs",
        "recover .",
        "recover --show --json .",
        "holes file",
        "zero --json file",
        "sort --help",
        "sort --version",
    ] {
        let said = stage.apart(&format!("echo x > file; exec $ELBOW {words} > /dev/full"));
        let code = if words.starts_with("sort") { 2 } else { 125 };
        said.assert_code(code)
            .assert_says(&["elbow: standard output: No space left on device"]);
    }
}

/// Some daemons start their children with SIGCHLD ignored, which makes waiting for children fail.
#[test]
fn a_parent_that_ignores_its_children_does_no_harm() {
    let stage = Stage::new();
    let script = "import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(os.environ['ELBOW'], ['elbow', 'run', '-q', '--', 'sh', '-c', 'printf x > new; exit 5'])";
    stage.apart(&format!("exec python3 -c \"{script}\"")).assert_code(5);
    assert!(stage.names().is_empty());
}

#[test]
fn pages_and_completions_are_printed() {
    let stage = Stage::new();
    assert!(stage.elbow(&["man"]).assert_code(0).out.contains(".TH ELBOW"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            stage
                .elbow(&["completions", shell])
                .assert_code(0)
                .out
                .contains("elbow"),
            "{shell}"
        );
    }
    stage.elbow(&["man", "."]).assert_code(0);
    for page in ["elbow-run.1", "elbow-lock-hold.1", "elbow-disk-replay.1"] {
        assert!(stage.names().contains(&page.to_owned()), "{:?}", stage.names());
    }
}
