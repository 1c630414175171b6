//! `elbow run --trace` and `elbow explain`: what is written of real jobs, and what is said of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use elbow_testkit::slowfs::{Fault, SlowOptions};
use serde_json::Value;

use crate::commands::{Run, wait_for};
use crate::slow_storage::SlowStorage;
use crate::test_dir::TestDir;
use crate::via::Testbed;

const OLD: &str = "mkdir d; printf 1 > d/old; seq 100000 > file; printf 2 > gone";
const WORK: &str =
    "mkdir -p n/m; for i in $(seq 60); do seq $i > n/$i; chmod 640 n/$i; done; mv n/7 n/m/seven; ln -s m n/link
    cat file d/old > all; printf more >> file; rm gone; head -c 9000000 /dev/zero > zeros; mv d/old d/new";
const TRACE: [&str; 2] = ["--trace", "../out/trace"];
/// Of the slow storage, and so the least that anything takes there.
const LATENCY: Duration = Duration::from_millis(5);

/// The events of a trace that is whole.
fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("a trace");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn of<'a>(events: &'a [Value], category: &'a str) -> impl Iterator<Item = &'a Value> + Clone {
    events.iter().filter(move |event| event["cat"] == category)
}

fn sum(events: &[Value], field: &str) -> u64 {
    of(events, "action")
        .map(|action| action["args"][field].as_u64().expect(field))
        .sum()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The object that `--json` prints as the last line.
fn report(run: &Run) -> Value {
    let last = run.err.lines().last().expect("a line");
    serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}\n{}", run.err))
}

fn explained(test_dir: &TestDir) -> Value {
    let run = explain(test_dir, &["--json"]);
    run.assert_code(0);
    serde_json::from_str(&run.out).expect("JSON")
}

/// Runs `elbow explain` on the trace.
fn explain(test_dir: &TestDir, options: &[&str]) -> Run {
    let path = test_dir.outside("trace");
    test_dir.elbow(&[&["explain", path.to_str().expect("UTF-8")], options].concat())
}

fn slow() -> SlowOptions {
    SlowOptions {
        latency: LATENCY,
        ..SlowOptions::default()
    }
}

/// How long the command waited for a reason, all waits one after the other, in seconds; and on what.
fn waits(events: &[Value], reason: &str) -> (f64, BTreeSet<String>) {
    let all = of(events, "wait").filter(|wait| wait["name"] == reason);
    let paths = all
        .clone()
        .map(|wait| wait["args"]["path"].as_str().expect("a path").to_owned());
    (all.map(|wait| number(&wait["dur"])).sum::<f64>() / 1e6, paths.collect())
}

#[test]
fn the_actions_of_a_trace_are_those_of_the_report() {
    let test_dir = TestDir::new(OLD);
    let run = test_dir.job(&[&TRACE[..], &["--json"]].concat(), WORK);
    run.assert_code(0);
    let (events, report) = (events(&test_dir.outside("trace")), report(&run));
    assert_eq!(sum(&events, "calls"), report["storage_calls"]);
    assert_eq!(sum(&events, "bytes"), report["bytes_written"]);
    let merged = sum(&events, "merged");
    assert!(
        (60..=report["merged"].as_u64().expect("merged")).contains(&merged),
        "{merged}"
    );
    let paths: BTreeSet<&str> = of(&events, "action")
        .filter_map(|action| action["args"]["path"].as_str())
        .collect();
    for path in ["n", "n/1", "n/m/seven", "n/link", "all", "zeros"] {
        assert!(paths.contains(path), "{path} is missing: {paths:?}");
    }
    let counts = &of(&events, "job").next().expect("the job's numbers")["args"]["counts"];
    for name in ["operations", "storage_calls", "merged", "bytes_written"] {
        assert_eq!(counts[name], report[name], "{name}");
    }
    let explained = explained(&test_dir);
    assert_eq!(explained["actions"]["calls"], report["storage_calls"]);
    assert_eq!(explained["complete"], true);
}

/// Of one worker each action begins when the one before is over, and every object has waited before it is taken up. Gives the workers.
fn assert_in_order(events: &[Value]) -> BTreeSet<u64> {
    let mut workers: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    for action in of(events, "action") {
        let (began, took) = (number(&action["ts"]), number(&action["dur"]));
        assert!(number(&action["args"]["queued"]) <= began, "{action}");
        let worker = action["tid"].as_u64().expect("a worker");
        workers.entry(worker).or_default().push((began, began + took));
    }
    for spans in workers.values_mut() {
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Microseconds are told to three places.
        assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0 + 0.002), "{spans:?}");
    }
    workers.into_keys().collect()
}

#[test]
fn times_of_a_trace_are_in_order() {
    let test_dir = TestDir::new(OLD);
    test_dir.job(&TRACE, WORK).assert_code(0);
    let events = events(&test_dir.outside("trace"));
    assert_in_order(&events);
    let steps: Vec<&str> = of(&events, "step")
        .filter(|step| step["ph"] == "B")
        .filter_map(|step| step["name"].as_str())
        .collect();
    let order = [
        "command", "drain", "sync", "turn", "check", "rehearse", "record", "publish", "clean up",
    ];
    let mut rest = steps.iter();
    assert!(order.iter().all(|step| rest.any(|found| found == step)), "{steps:?}");
}

#[test]
fn waits_of_the_command_are_told_with_their_reason() {
    let test_dir = SlowStorage::new(OLD, &slow());
    let run = test_dir.job(&TRACE, "ls d > $OUT/names; cat file > $OUT/seen; printf x > new");
    run.assert_code(0);
    let events = events(&test_dir.outside().join("trace"));
    let (listing, listed) = waits(&events, "list");
    assert!(
        listing >= LATENCY.as_secs_f64() && listed.contains("d"),
        "{listing} {listed:?}"
    );
    let (reading, read) = waits(&events, "read");
    assert!(
        reading >= LATENCY.as_secs_f64() && read.contains("file"),
        "{reading} {read:?}"
    );
    assert!(!read.contains("new"), "what is written is in memory");
    assert_eq!(waits(&events, "fsync").0, 0.0);
}

#[test]
fn only_a_durable_job_waits_for_fsync() {
    const SYNCING: &str =
        "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=f$i bs=10k count=1 conv=fsync 2>/dev/null; done";
    let test_dir = SlowStorage::new(OLD, &slow());
    test_dir.job(&TRACE, SYNCING).assert_code(0);
    let trace = test_dir.outside().join("trace");
    assert!(waits(&events(&trace), "fsync").1.is_empty());
    test_dir
        .job(&[&TRACE[..], &["--durable"]].concat(), &SYNCING.replace("of=f", "of=g"))
        .assert_code(0);
    let (took, paths) = waits(&events(&trace), "fsync");
    assert!(took >= 8.0 * LATENCY.as_secs_f64(), "{took}");
    assert!((1..=8).all(|i| paths.contains(&format!("g{i}"))), "{paths:?}");
}

#[test]
fn a_full_memory_is_told() {
    let options = SlowOptions {
        bandwidth: Some(20_000_000),
        ..slow()
    };
    let test_dir = SlowStorage::new(OLD, &options);
    let big = "head -c 24000000 /dev/zero > big";
    test_dir
        .job(&[&TRACE[..], &["--mem", "8M"]].concat(), big)
        .assert_code(0);
    let trace = test_dir.outside().join("trace");
    assert!(waits(&events(&trace), "memory full").0 > 0.0);
    test_dir
        .job(&[&TRACE[..], &["--mem", "256M"]].concat(), big)
        .assert_code(0);
    assert_eq!(waits(&events(&trace), "memory full").0, 0.0);
}

#[test]
fn what_the_storage_refuses_is_told() {
    let test_dir = SlowStorage::new(OLD, &slow());
    test_dir.set_faults(vec!["create:ENOSPC:name=refused".parse::<Fault>().expect("a fault")]);
    let run = test_dir.job(&TRACE, "printf x > refused");
    assert!(test_dir.faults_fired() > 0 && run.code != 0, "{}", run.err);
    let events = events(&test_dir.outside().join("trace"));
    let refused = of(&events, "action").find(|action| action["args"]["path"] == "refused");
    assert_eq!(refused.expect("an action")["args"]["errno"], 28);
}

/// kill -9 leaves what was written until then, whatever the last line is.
#[test]
fn the_trace_of_a_killed_job_is_read() {
    let test_dir = TestDir::new(OLD);
    let script = format!("{WORK}; while :; do sleep 0.05; done");
    let job = test_dir.start_job(&TRACE, &script);
    let trace = test_dir.outside("trace");
    let text = || fs::read_to_string(&trace).unwrap_or_default();
    wait_for("an action in the trace", || text().contains("\"path\":\"zeros\""));
    // It does nothing for a while, which is told, too.
    wait_for("a sign of life", || text().contains("\"alive\""));
    job.kill_alone();
    let whole = text();
    assert!(!whole.trim_end().ends_with(']'), "nobody has closed it");
    let found = explained(&test_dir);
    assert_eq!(
        (&found["complete"], &found["unfinished"][0]),
        (&false.into(), &"command".into())
    );
    assert!(found["actions"]["number"].as_u64().expect("a number") > 0);
    assert!(
        number(&found["total_seconds"]) >= 5.0 && found["command"][0] == "sh",
        "{found}"
    );
    fs::write(&trace, &whole[..whole.len() - 12]).expect("a shorter file");
    assert_eq!(explained(&test_dir)["torn"], true);
    let said = explain(&test_dir, &[]);
    said.assert_code(0);
    assert!(
        said.out.contains("ends, in the middle of a line, during: command"),
        "{}",
        said.out
    );
    let work = test_dir.work("");
    test_dir
        .elbow(&["recover", work.to_str().expect("UTF-8")])
        .assert_code(0);
}

#[test]
fn where_the_time_went_is_said_in_words() {
    let test_dir = TestDir::new(OLD);
    test_dir.job(&TRACE, &format!("{WORK}; sleep 0.5")).assert_code(0);
    let said = explain(&test_dir, &[]);
    said.assert_code(0);
    for words in [
        "command computing",
        "drain after the command",
        "sync",
        "the slowest actions",
        "create",
    ] {
        assert!(said.out.contains(words), "{words}\n{}", said.out);
    }
    let found = explained(&test_dir);
    let seconds = |name: &str| number(&found[name]);
    assert!(seconds("computing_seconds") >= 0.5, "{found}");
    let parts = [
        "computing_seconds",
        "waiting_seconds",
        "drain_seconds",
        "commit_seconds",
        "rest_seconds",
    ];
    let all: f64 = parts.iter().map(|part| seconds(part)).sum();
    assert!((all - seconds("total_seconds")).abs() < 1e-3, "{all}: {found}");
    assert_eq!(found["slowest"].as_array().map(Vec::len), Some(10));
}

#[test]
fn what_is_no_trace_is_refused_with_its_line() {
    let test_dir = TestDir::new(OLD);
    test_dir.job(&TRACE, WORK).assert_code(0);
    let trace = test_dir.outside("trace");
    let text = fs::read_to_string(&trace).expect("a trace");
    let lines: Vec<&str> = text.lines().collect();
    let broken = [&lines[..8], &["{\"name\":"], &lines[8..]].concat().join("\n");
    for (content, line) in [("a\nb\n", "line 1"), ("", "line 1"), (&broken, "line 9")] {
        fs::write(&trace, content).expect("a file");
        let said = explain(&test_dir, &[]);
        said.assert_code(125);
        assert!(said.err.contains(&format!("trace: {line}: ")), "{}", said.err);
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_before_the_command_runs() {
    let test_dir = TestDir::new(OLD);
    let run = test_dir.job(&["--trace", "/nowhere/trace"], ": > $OUT/ran");
    run.assert_code(125);
    assert!(run.err.contains("--trace /nowhere/trace"), "{}", run.err);
    assert!(!test_dir.outside("ran").exists());
    let run = test_dir.job(&["--trace", "/dev/full"], "printf x > new");
    run.assert_code(0);
    assert!(run.err.contains("the trace is not complete"), "{}", run.err);
}

/// By ssh no thread of ours carries an action out: each has a number that no other under way has.
#[test]
fn actions_by_ssh_are_told_when_they_are_answered() {
    let Some(testbed) = Testbed::new() else { return };
    // Not by cat(1), which has the far end copy it.
    // The shell makes all of them itself, at once: they are under way together.
    let script = "cd near; mkdir new; for i in $(seq 60); do echo $i > new/$i; done; rev log > new/log";
    let run = testbed.start(&["--json", "--trace", "out/trace"], script).finish();
    run.assert_code(0);
    let (events, report) = (events(&testbed.path("out/trace")), report(&run));
    assert_eq!(sum(&events, "calls"), report["storage_calls"]);
    let workers = assert_in_order(&events);
    assert!(
        workers.len() > 3 && workers.iter().all(|worker| *worker >= 10_000_000),
        "{workers:?}"
    );
    assert!(waits(&events, "list").0 > 0.0 && waits(&events, "read").1.contains("log"));
    assert!(of(&events, "step").any(|step| step["name"] == "publish"));
}
