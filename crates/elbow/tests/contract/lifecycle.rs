//! The life of a mount: ready when the command returns, busy until its end, complete when the end returns.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::stage::{ELBOW, Stage, wait_for};

fn mounted() -> Stage {
    let stage = Stage::new();
    fs::write(stage.path("work/old"), "old").expect("a file");
    stage.make_dir("job");
    stage.elbow(&["mount", ".", "../job"]).assert_code(0);
    stage
}

fn is_mounted(stage: &Stage) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    table.contains(stage.path("job").to_str().expect("plain names"))
}

#[test]
fn commit_returns_when_all_is_there_and_the_mount_is_gone() {
    let stage = mounted();
    fs::write(stage.path("job/new"), "new").expect("writing in the job");
    fs::remove_file(stage.path("job/old")).expect("removing in the job");
    assert_eq!(stage.names(), ["old"], "nothing is visible before the commit");
    stage
        .elbow(&["commit", "../job"])
        .assert_code(0)
        .assert_says(&["committed"]);
    assert_eq!(stage.names(), ["new"]);
    assert!(!is_mounted(&stage));
}

#[test]
fn rollback_leaves_everything_as_it_was() {
    let stage = mounted();
    fs::write(stage.path("job/new"), "new").expect("writing in the job");
    fs::write(stage.path("job/old"), "changed").expect("writing in the job");
    stage
        .elbow(&["rollback", "../job"])
        .assert_code(0)
        .assert_says(&["rolled back"]);
    assert_eq!(stage.names(), ["old"]);
    assert_eq!(fs::read(stage.path("work/old")).expect("the old file"), b"old");
    assert!(!is_mounted(&stage));
}

#[test]
fn a_plain_unmount_is_refused_and_loses_nothing() {
    let stage = mounted();
    fs::write(stage.path("job/new"), "new").expect("writing in the job");
    let said = rustix::mount::unmount(stage.path("job"), rustix::mount::UnmountFlags::empty());
    assert_eq!(said, Err(rustix::io::Errno::BUSY));
    stage.elbow(&["commit", "../job"]).assert_code(0);
    assert_eq!(stage.names(), ["new", "old"]);
}

#[test]
fn a_lazy_unmount_commits() {
    let stage = mounted();
    fs::write(stage.path("job/new"), "new").expect("writing in the job");
    rustix::mount::unmount(stage.path("job"), rustix::mount::UnmountFlags::DETACH).expect("unmounting lazily");
    wait_for("the commit", || stage.names() == ["new", "old"]);
}

#[test]
fn a_forced_unmount_commits() {
    let stage = mounted();
    fs::write(stage.path("job/new"), "new").expect("writing in the job");
    let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
    rustix::mount::unmount(stage.path("job"), flags).expect("unmounting by force");
    wait_for("the commit", || stage.names() == ["new", "old"]);
}

/// At a shutdown, at the end of a session, and by who ends the process: what was done there was seen to succeed, and is not thrown away.
#[test]
fn a_signal_to_the_process_of_a_mount_commits() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let stage = mounted();
        fs::write(stage.path("job/new"), "new").expect("writing in the job");
        fs::remove_file(stage.path("job/old")).expect("removing in the job");
        let status = stage.elbow(&["status", "../job", "--json"]);
        let status: Value = serde_json::from_str(&status.assert_code(0).out).expect("JSON");
        let process = status["pid"]
            .as_i64()
            .and_then(|pid| i32::try_from(pid).ok())
            .expect("a process");
        kill_process(Pid::from_raw(process).expect("a process"), signal).expect("a signal");
        wait_for("the commit", || stage.names() == ["new"]);
        wait_for("the end of the mount", || !is_mounted(&stage));
    }
}

/// So does Ctrl-C where the mount is in the foreground; its exit code tells whether that worked.
#[test]
fn ctrl_c_at_a_mount_in_the_foreground_commits() {
    let stage = Stage::new();
    stage.make_dir("job");
    let mut command = Command::new(ELBOW);
    command.args(["mount", "--foreground", ".", "../job"]).process_group(0);
    let child = stage.start(&mut command);
    wait_for("the mount", || {
        is_mounted(&stage) && stage.elbow(&["status", "../job"]).code == 0
    });
    fs::write(stage.path("job/new"), "new").expect("writing in the job");
    kill_process_group(Pid::from_child(&child), Signal::INT).expect("a signal");
    child.finish().assert_code(0);
    assert_eq!(stage.names(), ["new"]);
    assert!(!is_mounted(&stage));
}

#[test]
fn a_mount_over_its_own_source() {
    let stage = Stage::new();
    stage.elbow(&["mount", ".", "."]).assert_code(0);
    fs::write(stage.path("work/new"), "new").expect("writing in the job");
    let work = stage.work();
    stage
        .elbow(&["commit", work.to_str().expect("plain names")])
        .assert_code(0);
    assert_eq!(stage.names(), ["new"]);
}

#[test]
fn status_and_diff_tell_what_is_going_on() {
    let stage = mounted();
    fs::write(stage.path("job/new"), "12345").expect("writing in the job");
    fs::rename(stage.path("job/old"), stage.path("job/renamed")).expect("renaming in the job");
    let status = stage.elbow(&["status", "../job", "--json"]);
    let status: Value = serde_json::from_str(&status.assert_code(0).out).expect("JSON");
    assert_eq!(status["phase"], "running");
    assert_eq!(status["source"], stage.work().to_str().expect("plain names"));
    assert_eq!(status["counts"]["bytes_acknowledged"], 5);
    assert!(status["pid"].as_u64().is_some_and(|pid| pid > 1), "{status}");
    assert_eq!(status["errors"], Value::Array(Vec::new()));
    let diff = stage.elbow(&["diff", "../job"]);
    let mut lines: Vec<_> = diff.assert_code(0).out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["A new", "R old -> renamed"]);
    stage.elbow(&["rollback", "../job", "--quiet"]).assert_code(0);
}

#[test]
fn a_mount_in_use_is_committed_and_taken_away() {
    let stage = mounted();
    let file = fs::File::create(stage.path("job/open")).expect("a file");
    stage.elbow(&["commit", "../job", "--quiet"]).assert_code(0);
    assert_eq!(stage.names(), ["old", "open"]);
    assert!(!is_mounted(&stage));
    drop(file);
}

/// Names were shown with U+FFFD for what is not UTF-8, and a newline made two lines of one.
#[test]
fn diff_shows_any_name_with_size_and_time() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let stage = mounted();
    let odd = OsStr::from_bytes(b"a b\n\xff\\");
    fs::write(stage.path("job").join(odd), "12345").expect("writing in the job");
    fs::rename(stage.path("job/old"), stage.path("job/zz")).expect("renaming in the job");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let file = fs::File::options()
        .write(true)
        .open(stage.path("job").join(odd))
        .expect("a file");
    file.set_modified(time).expect("a time");
    drop(file);
    let said = stage.elbow(&["diff", "../job"]);
    assert_eq!(said.assert_code(0).out, "A a\\ b\\n\\377\\\\\nR old -> zz\n");
    let said = stage.elbow(&["diff", "--long", "../job"]);
    let long: Vec<&str> = said
        .assert_code(0)
        .out
        .lines()
        .next()
        .expect("a line")
        .split_whitespace()
        .collect();
    assert_eq!(long, ["A", "5", "2001-09-09T01:46:40Z", "a\\", "b\\n\\377\\\\"]);
    let exact = std::process::Command::new(crate::stage::ELBOW)
        .args(["diff", "-0"])
        .arg(stage.path("job"))
        .output()
        .expect("an end");
    assert_eq!(exact.stdout, b"A\0a b\n\xff\\\0R\0old\0zz\0");
    let json: Value = serde_json::from_str(&stage.elbow(&["diff", "--json", "../job"]).out).expect("JSON");
    let change = &json["changes"][0];
    assert_eq!(
        (&change["size_bytes"], &change["mtime_unix_seconds"]),
        (&5.into(), &1e9.into())
    );
    assert_eq!(change["path_bytes"], "6120620aff5c");
    stage.elbow(&["rollback", "-q", "../job"]).assert_code(0);
}
