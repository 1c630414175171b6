//! The commands `elbow disk` and `elbow bark`: what they print, and what they refuse.

#![allow(clippy::disallowed_methods, reason = "files of tests, and the command's own process")]

mod bark;
mod bark_log;
mod bark_placed;
mod bark_profile;
mod drive;
mod drive_log;
mod figure;
mod figure_measured;
mod files;
mod guide;
mod parquet;
mod replay;
mod show;
mod simulate;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde_json::Value;

fn elbow(args: &[&str], input: &[u8]) -> Output {
    elbow_of("disk", args, input)
}

fn elbow_of(command: &str, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_elbow"))
        .arg(command)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("elbow runs");
    // It may end, by an error, before it has read all.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("elbow ends")
}

/// Whoever frees a loop device and uses its number still has this alone: that number is the first that anybody else is given.
static LOOP_DEVICES: RwLock<()> = RwLock::new(());

/// As long as this is held, loop devices may be taken.
fn takes_loop_devices() -> RwLockReadGuard<'static, ()> {
    LOOP_DEVICES.read().unwrap_or_else(PoisonError::into_inner)
}

/// As long as this is held, nobody else of this process takes one.
fn alone_with_loop_devices() -> RwLockWriteGuard<'static, ()> {
    LOOP_DEVICES.write().unwrap_or_else(PoisonError::into_inner)
}

/// What a command says at last that is tried again while what it ends is in use: a process that another test is just starting has copies of our
/// descriptors, and a mount namespace copies of our mounts.
fn when_free(run: impl Fn() -> Output) -> Output {
    const TRIES: u32 = 400;
    for _ in 1..TRIES {
        let output = run();
        let said = refusal(&output);
        if output.status.success() || !(said.contains("in use") || said.contains("busy")) {
            return output;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    run()
}

/// Why a command did nothing: with `--json` that is in the object that it answers, and standard error is empty.
fn refusal(output: &Output) -> String {
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    text(&output.stderr) + message
}

/// Unmounts what nobody but those keeps in use.
fn unmount(point: &Path) {
    let umount = || Command::new("umount").arg(point).output().expect("umount");
    let output = when_free(umount);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn json(args: &[&str], input: &[u8]) -> Value {
    let output = elbow(args, input);
    let said = || (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}: {:?}", said());
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// Exit code 125, nothing on standard output, and the message.
fn refused(args: &[&str], input: &[u8]) -> String {
    let output = elbow(args, input);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(125), 0), "{args:?}");
    text(&output.stderr)
}

const MEASURED: &str =
    "R Miss 564347 2 14095.370 13876.270\nR Hit 564349 2 1414.270 18746.770\nW Doub 1194877 15 17221.000 21894.380\n";

#[test]
fn a_replay_reports_all_requests_and_each_kind() {
    let report = json(
        &["replay", "--disk", "hp-c2247a", "--format", "validate", "-", "--json"],
        MEASURED.as_bytes(),
    );
    for (kind, requests) in [("/", 3), ("/reads/", 1), ("/hits/", 1), ("/writes/", 1)] {
        let of = |key: &str| {
            report
                .pointer(&format!("{kind}{key}"))
                .cloned()
                .unwrap_or_else(|| panic!("{kind}{key}"))
        };
        assert_eq!(of("requests"), requests);
        for key in ["mean_measured_ms", "mean_simulated_ms", "rms_demerit_ms"] {
            assert!(of(key).as_f64().is_some_and(f64::is_finite), "{kind}{key}");
        }
    }
    assert_eq!(report["hits_simulated"], 1);
}

#[test]
fn a_trace_without_measured_times_has_no_demerit() {
    let report = json(
        &["replay", "--format", "csv", "-", "--json", "--mechanical"],
        b"lbn,sectors,op\n5,8,R\n9,8,W\n",
    );
    assert_eq!(
        (&report["requests"], &report["rms_demerit_ms"], &report["overhead_ms"]),
        (&2.into(), &Value::Null, &0.0.into())
    );
}

/// Of no request the percentiles were 0.000.
#[test]
fn a_trace_without_requests_has_no_times() {
    let told = text(&elbow(&["replay", "--format", "csv", "-"], b"lbn,sectors,op\n").stdout);
    assert!(told.ends_with("response: -\n") && !told.contains("0.000"), "{told}");
}

#[test]
fn each_request_gets_a_line_in_a_file_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("times.csv");
    let path = file.to_str().expect("text");
    json(
        &["replay", "--format", "validate", "-", "--json", "--per-request", path],
        MEASURED.as_bytes(),
    );
    let lines = std::fs::read_to_string(&file).expect("written");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 4);
    assert!(lines[0].starts_with("line,arrival_ms,lbn,sectors,op,hit,measured_ms,response_ms,"));
    assert!(
        lines[2].starts_with("2,") && lines[2].contains(",564349,2,R,1,1.414270,1.375470,"),
        "{}",
        lines[2]
    );
}

#[test]
fn a_wrong_trace_is_refused_with_file_line_and_reason() {
    let args = ["replay", "--format", "disksim", "-"];
    let message = refused(&args, b"0 0 5 8 0\n1 0 2054860 8 0\n");
    assert_eq!(
        message,
        "elbow: -:2: sectors 2054860 to 2054867 are not on the drive, which has 2054864\n"
    );
    assert_eq!(
        refused(&args, b"0 0 5 8 0\n1 0 50"),
        "elbow: -:2: the line ends before the number of sectors\n"
    );
}

#[test]
fn a_drive_is_described_and_a_wrong_one_refused() {
    let built_in = json(&["describe", "hp-c2247a", "--json"], b"");
    assert_eq!(
        (&built_in["sectors"], built_in["zones"].as_array().map(Vec::len)),
        (&2_054_864.into(), Some(8))
    );
    let toml = text(&elbow(&["describe", "hp-c2247a", "--toml"], b"").stdout);
    let directory = tempfile::tempdir().expect("a directory");
    let save = |name: &str, toml: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, toml).expect("written");
        path
    };
    let copy = save("copy.toml", &toml);
    let shown = |path: &Path| path.to_str().expect("text").to_owned();
    assert_eq!(json(&["describe", &shown(&copy), "--json"], b""), built_in);
    let wrong = save("wrong.toml", &toml.replace("[559, 760]", "[400, 760]"));
    let message = refused(&["describe", &shown(&wrong)], b"");
    let start = format!("elbow: {}:", shown(&wrong));
    assert!(message.starts_with(&start), "{message}");
    assert!(
        message.contains("key `zone[1].cylinders`: zone 400 to 760 overlaps the zone before it, 0 to 558"),
        "{message}"
    );
    assert!(refused(&["describe", "no-such-drive"], b"").contains("built in are: hp-c2247a, generic-7200"));
}

#[test]
fn the_drives_that_need_no_file_are_listed() {
    let listed = text(&elbow(&["describe"], b"").stdout);
    let names: Vec<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(names[..2], ["hp-c2247a", "generic-7200"]);
    for name in names {
        assert_eq!(
            json(&["describe", name, "--json"], b"")["name"]
                .as_str()
                .map(|name| listed.contains(name)),
            Some(true)
        );
    }
}

#[test]
fn a_drive_of_disksim_is_taken_over_from_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let save = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
    save("d.parv", "source d.diskspecs\n");
    save(
        "d.diskspecs",
        "disksim_disk D {\n Model = source d.model,\n Preseeking level = 1 }\n",
    );
    save(
        "d.model",
        "dm_disk M { Number of data surfaces = 2, Number of cylinders = 9, Layout Model = dm_layout_g1 {
          Sparing scheme used = 0, Zones = [ dm_layout_g1_zone {
            First cylinder number = 0, Last cylinder number = 8, Blocks per track = 50 } ] },
          Mechanical Model = dm_mech_g1 { Seek type = extracted, Full seek curve = d.seek, Rotation speed (in rpms) = 7200 } }",
    );
    save("d.seek", "Seek distances measured: 1\n1, 2.5\n");
    let parv = directory.path().join("d.parv");
    let parv = parv.to_str().expect("text");
    let imported = elbow(&["import", parv], b"");
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let notes = text(&imported.stderr);
    assert!(
        notes.contains("elbow: left out: `Preseeking level` = 1: the arm goes on"),
        "{notes}"
    );
    let toml = text(&imported.stdout);
    assert!(
        toml.starts_with(&format!(
            "# Taken over from {parv}, a parameter file of DiskSim.\n# Left out: "
        )),
        "{toml}"
    );
    save("d.toml", &toml);
    let described = directory.path().join("d.toml");
    let described = json(&["describe", described.to_str().expect("text"), "--json"], b"");
    assert_eq!(
        (&described["sectors"], &described["seek_next_ms"]),
        (&900.into(), &2.5.into())
    );
    save("d.seek", "Seek distances measured: 1\n1; 2.5\n");
    assert_eq!(
        refused(&["import", parv], b""),
        "elbow: d.seek:2: expected `distance, time in ms`\n"
    );
}
