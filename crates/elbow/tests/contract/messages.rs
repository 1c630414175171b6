//! What is said of a mistake: each cause once, in the system's words without its numbers, and no advice that cannot be taken.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use elbow_testkit::slowfs::{SlowFs, SlowOptions};

use crate::stage::{ELBOW, Stage, wait_for, word};

const NOT_THERE: &str = "No such file or directory";
const CLOSED: &str = "Permission denied";

/// Mistakes, and what is said of them. There are `file`, `dir`, `ok.csv`, `secret` and `closed`, of which the last two are root's.
const MISTAKES: [(&str, &str); 51] = [
    ("zero nowhere", NOT_THERE),
    ("zero dir", "name a file"),
    ("zero file/x", "Not a directory"),
    ("holes nowhere", NOT_THERE),
    ("holes dir", "name a file"),
    ("holes --dig nowhere", NOT_THERE),
    ("sort nowhere", NOT_THERE),
    ("sort dir", "Is a directory"),
    ("sort -o nowhere/x file", NOT_THERE),
    ("sort --files0-from nowhere", NOT_THERE),
    ("sort -m nowhere", NOT_THERE),
    ("sort --record 2 nowhere", NOT_THERE),
    ("sort --record 2 dir", "Is a directory"),
    ("sort --record 2 -o nowhere/x file", NOT_THERE),
    ("sort --record 2 -o dir file", "dir"),
    ("sort --record 2 --in-place nowhere", NOT_THERE),
    ("sort --resume nowhere", NOT_THERE),
    ("bench ep -T nowhere", NOT_THERE),
    ("bench s24 -T file", "Not a directory"),
    ("disk describe nowhere", NOT_THERE),
    ("disk describe dir", "Is a directory"),
    ("disk replay --format csv nowhere", NOT_THERE),
    ("disk replay --format csv dir", "Is a directory"),
    ("disk replay --format csv --disk nowhere ok.csv", NOT_THERE),
    ("disk replay --format csv --per-request nowhere/x ok.csv", NOT_THERE),
    ("disk simulate --requests 10 --per-request nowhere/x", NOT_THERE),
    ("disk figure 5 --quick --out file", "File exists"),
    ("disk figure table2 --quick --listing nowhere", NOT_THERE),
    ("lock break file --server unix:nowhere", NOT_THERE),
    ("lock hold file -- true", "--server"),
    ("lock hold file --server unix:nowhere -- true", NOT_THERE),
    (
        "lock hold file --server tcp:127.0.0.1:1 --key-file nowhere -- true",
        NOT_THERE,
    ),
    ("lock hold file --server tcp:localhost:1 -- true", "refused"),
    ("lock status --server unix:nowhere", NOT_THERE),
    ("lock top --looks 1 --server unix:nowhere", NOT_THERE),
    ("lockd serve --listen unix:nowhere/x", NOT_THERE),
    ("lockd serve --listen unix:s --state dir", "dir"),
    ("lockd serve --listen tcp:127.0.0.1:0 --key-file nowhere", NOT_THERE),
    ("lockd proxy --listen unix:s --server unix:nowhere", NOT_THERE),
    ("mount dir nowhere", NOT_THERE),
    ("status nowhere", NOT_THERE),
    ("diff nowhere", NOT_THERE),
    ("commit nowhere", NOT_THERE),
    ("rollback nowhere", NOT_THERE),
    ("run --on dir -- nosuch", NOT_THERE),
    ("man nowhere", NOT_THERE),
    ("man file", "Not a directory"),
    ("config show nowhere", NOT_THERE),
    ("config show file", "Not a directory"),
    ("run --pass-through /etc -- true", "/etc: cannot be passed through"),
    (
        "consume file --confirm 99",
        "--confirm 99: no descriptor of this number is open",
    ),
];

/// What an ordinary user may not do.
const FORBIDDEN: [(&str, &str); 14] = [
    ("zero secret", CLOSED),
    ("holes secret", CLOSED),
    ("holes --dig secret", CLOSED),
    ("sort secret", CLOSED),
    ("sort --record 2 secret", CLOSED),
    ("sort --record 2 --in-place secret", CLOSED),
    ("bench s24 -T closed", CLOSED),
    ("disk describe secret", CLOSED),
    ("disk replay --format csv secret", CLOSED),
    ("disk figure 5 --quick --out closed/x", CLOSED),
    ("lock hold file --server unix:closed/x -- true", CLOSED),
    ("lock status --server tcp:127.0.0.1:1 --key-file secret", CLOSED),
    ("lockd serve --listen unix:closed/x", CLOSED),
    ("man closed", CLOSED),
];

fn stage() -> Stage {
    let stage = Stage::new();
    for name in ["", "work", "work/dir", "work/closed"] {
        let _ = std::fs::create_dir(stage.path(name));
        let mode = if name == "work/closed" { 0o700 } else { 0o777 };
        std::fs::set_permissions(stage.path(name), PermissionsExt::from_mode(mode)).expect("a mode");
    }
    for (name, content) in [
        ("file", "x\n"),
        ("secret", "x\n"),
        ("ok.csv", "lbn,sectors,op\n1,8,W\n"),
    ] {
        std::fs::write(stage.path("work").join(name), content).expect("a file");
    }
    std::fs::set_permissions(stage.path("work/secret"), PermissionsExt::from_mode(0o600)).expect("a mode");
    stage
}

/// Makes a mistake in `work` without a lock service in the environment, and looks at what is said.
fn check(stage: &Stage, command: &mut Command, words: &str, expected: &str) {
    command
        .args(words.split(' '))
        .env_remove("ELBOW_LOCKS")
        .env_remove("ELBOW_LOCKS_KEY");
    let said = stage.start(command).finish();
    assert_ne!(said.code, 0, "{words}: {said:#?}");
    assert!(
        said.err.contains(expected),
        "{words}: `{expected}` is missing in {said:#?}"
    );
    assert!(
        !said.err.contains("os error"),
        "{words}: a number of the system: {said:#?}"
    );
    for line in said.err.lines() {
        let mut counts = BTreeMap::new();
        line.split(": ").for_each(|part| *counts.entry(part).or_insert(0) += 1);
        let twice = counts.iter().find(|(part, count)| !part.is_empty() && **count > 1);
        assert_eq!(twice, None, "{words}: said twice: {line}");
    }
    let words_of_command = if is_nested(words) { 2 } else { 1 };
    let command: Vec<_> = words.split(' ').take(words_of_command).collect();
    let help = stage.elbow(&[&command[..], &["--help"]].concat()).out;
    for option in options(&said.err) {
        assert!(
            help.contains(option),
            "{words}: advises {option}, which is not there: {said:#?}"
        );
    }
}

fn is_nested(words: &str) -> bool {
    ["lock ", "lockd ", "disk ", "bench "]
        .iter()
        .any(|group| words.starts_with(group))
}

/// The long options that a text names.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '-');
    words.filter(|word| word.starts_with("--") && word.len() > 2)
}

/// Commands with `--json` that fail, and what their errors are about: half of them told it in words.
const JSON_MISTAKES: [(&str, Option<&str>); 22] = [
    ("zero nowhere", Some("nowhere")),
    ("holes nowhere", Some("nowhere")),
    ("explain nowhere", Some("nowhere")),
    ("status nowhere", Some("nowhere")),
    ("diff nowhere", Some("nowhere")),
    ("recover nowhere", Some("nowhere")),
    ("commit nowhere", Some("nowhere")),
    ("rollback nowhere", Some("nowhere")),
    ("config show nowhere", Some("nowhere")),
    ("disk describe nowhere", Some("nowhere")),
    ("disk replay --format csv nowhere", Some("nowhere")),
    ("disk files nowhere", Some("nowhere")),
    ("disk figure 5 --quick --out file", None),
    ("disk simulate --disk nowhere", None),
    ("disk status nowhere", Some("nowhere")),
    ("disk powercut nowhere", Some("nowhere")),
    ("disk detach nowhere", Some("nowhere")),
    ("bark status nowhere", Some("nowhere")),
    ("bark detach nowhere", Some("nowhere")),
    ("bark profile nowhere", Some("nowhere")),
    ("lock status --server unix:nowhere", None),
    ("bench ep -T nowhere", Some("nowhere")),
];

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let stage = stage();
    for (words, path) in JSON_MISTAKES {
        let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        let said = stage.elbow(&words);
        said.assert_code(125);
        // A job's end is told behind what its command has said.
        let (answer, rest) = match words[0] {
            "commit" | "rollback" => (&said.err, &said.out),
            _ => (&said.out, &said.err),
        };
        let told: serde_json::Value = serde_json::from_str(answer).unwrap_or_else(|error| panic!("{error}: {said:#?}"));
        assert_eq!(
            (&told["schema"], &told["exit_code"]),
            (&1.into(), &125.into()),
            "{words:?}"
        );
        let message = told["error"]["message"].as_str();
        assert!(message.is_some_and(|message| !message.is_empty()), "{words:?}: {told}");
        assert_eq!(told["error"]["path"].as_str(), path, "{words:?}: {told}");
        assert_eq!(rest, "", "{words:?}");
    }
    let told = stage.elbow(&["bench", "s24", "-T", "file", "--json"]);
    assert!(told.assert_code(125).out.contains("\"ENOTDIR\""), "{told:#?}");
}

/// "cannot reach ...: No such file or directory (os error 2): No such file or directory (os error 2)", it said.
#[test]
fn each_cause_is_said_once_and_in_words() {
    let stage = stage();
    for (words, expected) in MISTAKES {
        check(&stage, &mut Command::new(ELBOW), words, expected);
    }
}

#[test]
fn what_a_user_may_not_do_is_said_in_the_same_way() {
    let stage = stage();
    for (words, expected) in FORBIDDEN {
        let mut user = Command::new("setpriv");
        user.args(["--reuid", "1", "--regid", "1", "--clear-groups", ELBOW]);
        check(&stage, &mut user, words, expected);
    }
}

/// It was raised to eight without a word.
#[test]
fn less_memory_than_works_is_told() {
    let stage = Stage::new();
    let said = stage.elbow(&["run", "--mem", "1M", "--", "true"]);
    said.assert_code(0).assert_says(&["--mem 1.0 MB: raised to 8.4 MB"]);
    let said = stage.elbow(&["run", "--mem", "8M", "--", "true"]);
    assert!(!said.assert_code(0).err.contains("raised"), "{said:?}");
}

/// Whether a job over a directory has this on the storage.
fn is_staged(directory: &Path, name: &str) -> bool {
    let entries = std::fs::read_dir(directory).expect("the directory of the job");
    let mut staged = entries.map(|entry| entry.expect("an entry").path().join("new").join(name));
    staged.any(|path| path.exists())
}

/// "rolling back the job in .", whatever directory that was.
#[test]
fn messages_name_the_directory() {
    let stage = Stage::new();
    for name in ["below", "slow"] {
        stage.make_dir(name);
    }
    let slow = SlowFs::mount(&stage.path("below"), &stage.path("slow"), &SlowOptions::default()).expect("storage");
    let directory = stage.path("slow");
    let mut command = Command::new(ELBOW);
    command.args(["run", "--on", word(&directory), "--", "sh", "-c"]);
    let mut job = stage.start(command.arg("cd ../slow; mkdir d; exec sleep 100"));
    wait_for("a directory that is staged", || is_staged(&stage.path("below"), "d"));
    job.kill().expect("a signal");
    job.wait().expect("an end");
    slow.set_faults(vec!["rmdir:EIO".parse().expect("a fault")]);
    let said = stage.elbow(&["recover", "../slow"]);
    assert!(slow.faults_fired() > 0, "{said:?}");
    let all = format!("{}{}", said.out, said.err);
    assert!(all.contains(word(&directory)) && !all.contains(" .: "), "{all}");
    slow.set_faults(Vec::new());
    stage.elbow(&["recover", "../slow"]).assert_code(0);
}

/// Only those with other writers were in the report.
#[test]
fn a_conflict_with_the_files_of_another_job_is_reported() {
    let stage = Stage::new();
    stage.make_dir("work/sub");
    stage
        .elbow(&["run", "--keep", "--", "sh", "-c", "echo x > sub/new; sleep 0.3; exit 1"])
        .assert_code(1);
    let said = stage.elbow(&["run", "-q", "--report", "../report", "--", "rm", "-r", "sub"]);
    said.assert_code(125);
    let report = std::fs::read(stage.path("report")).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    assert_eq!(report["conflicts"][0]["path"], "sub", "{report}");
    assert!(
        report["conflicts"][0]["what"]
            .as_str()
            .is_some_and(|what| !what.is_empty())
    );
}

/// A conflict on a file of such a name printed a line of its own, sent the rest to the terminal, and was two sentences in JSON.
#[test]
fn a_name_begins_no_line_and_sends_a_terminal_nothing() {
    const NAME: &str = "old\nelbow: committed all\u{1b}[2J";
    const SHOWN: &str = "old\\nelbow: committed all\\033[2J";
    let stage = Stage::new();
    for options in [&["--json"][..], &[]] {
        std::fs::write(stage.path("work").join(NAME), "old").expect("a file");
        let mut command = Command::new(ELBOW);
        let script = "for f in old*; do echo new > \"$f\"; done; : > ../ready; until [ -e ../go ]; do sleep 0.02; done";
        command.arg("run").args(options).args(["--", "sh", "-c", script]);
        let child = stage.start(&mut command);
        wait_for("the command", || stage.path("ready").exists());
        std::fs::write(stage.path("work").join(NAME), "somebody else's").expect("a change");
        std::fs::write(stage.path("go"), "").expect("a file");
        let said = child.finish();
        said.assert_code(125);
        assert!(
            !said.err.contains("\u{1b}") && !said.err.contains("\nelbow: committed"),
            "{}",
            said.err
        );
        match options.is_empty() {
            true => assert!(said.err.contains(&format!("{SHOWN} (")), "{}", said.err),
            false => {
                let last = said.err.lines().last().expect("a line");
                let report: serde_json::Value = serde_json::from_str(last).expect("JSON");
                assert_eq!(report["messages"].as_array().map(Vec::len), Some(1), "{last}");
                assert!(
                    report["messages"][0].as_str().is_some_and(|told| told.contains(SHOWN)),
                    "{last}"
                );
                assert_eq!(report["conflicts"][0]["path"], NAME, "{last}");
            }
        }
        for name in ["ready", "go"] {
            std::fs::remove_file(stage.path(name)).expect("a file");
        }
    }
}

/// A line of `elbow jobs` was the name of a directory as it is, and a command that was told could not be typed.
#[test]
fn the_name_of_a_directory_begins_no_line() {
    let stage = Stage::new();
    let directory = "d\nelbow: it's all right\u{1b}[2J";
    stage.make_dir(&format!("work/{directory}"));
    let kept = stage.elbow(&[
        "run",
        "--keep",
        "--on",
        directory,
        "--",
        "sh",
        "-c",
        "cd d*; echo x > new; sleep 0.3; exit 1",
    ]);
    kept.assert_code(1);
    let jobs = stage.elbow(&["jobs"]).out;
    let asked = stage.elbow(&["status", directory]);
    asked.assert_code(125).assert_says(&["is kept", "elbow recover"]);
    for told in [&kept.err, &jobs, &asked.err] {
        assert!(!told.contains('\u{1b}') && !told.contains("\nelbow: it's"), "{told}");
        assert!(
            told.contains("d\\nelbow: it") && told.contains("right\\033[2J"),
            "{told}"
        );
    }
    let command = kept
        .err
        .lines()
        .find_map(|line| line.split_once("to remove it: elbow "));
    let (_, words) = command.expect("a command");
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("exec \"$ELBOW\" {words}")]);
    stage.start(&mut bash).finish().assert_code(0);
    assert!(!stage.elbow(&["jobs"]).out.contains("it's all right"));
}
