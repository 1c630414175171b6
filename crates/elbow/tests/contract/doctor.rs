//! `elbow doctor`: what works is called so, what does not is named with a way out, and nothing is left of the trials.

use std::fs;
use std::process::Command;

use elbow_testkit::program::write_program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::stage::{ELBOW, Said, Stage, wait_for};

/// What was found out, in order.
fn checks(said: &Said) -> Vec<Value> {
    let all: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:#?}"));
    all.as_array().expect("an array").clone()
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    let found = checks.iter().find(|check| check["check"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {checks:#?}"))
}

fn names(checks: &[Value], state: &str) -> Vec<String> {
    let of_state = checks.iter().filter(|check| check["state"] == state);
    of_state
        .map(|check| check["check"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn where_all_works_a_job_runs_and_nothing_is_left() {
    let stage = Stage::new();
    let said = stage.elbow(&["doctor", "--json"]);
    let checks = checks(said.assert_code(0));
    for check in &checks {
        let word = check["state"].as_str().expect("a state");
        assert!(["ok", "limited", "missing"].contains(&word), "{check}");
        assert!(!check["found"].as_str().expect("what was seen").is_empty(), "{check}");
        assert_eq!(
            check["hint"].as_str().expect("what to do").is_empty(),
            word == "ok",
            "{check}"
        );
    }
    for name in [
        "fuse",
        "directory",
        "job",
        "rename-noreplace",
        "hard-links",
        "holes",
        "xattrs",
    ] {
        assert_eq!(check(&checks, name)["state"], "ok", "{checks:#?}");
    }
    assert!(stage.names().is_empty(), "{:?}", stage.names());
    // What no part of elbow uses is no finding.
    for unused in ["fuse-passthrough", "io_uring"] {
        assert!(checks.iter().all(|check| check["check"] != unused), "{checks:#?}");
    }
    // Both libraries had the hint of the one.
    for (library, command) in [
        ("fcntl-library", "`elbow lock exec`"),
        ("mpi-library", "`elbow lock mpi`"),
    ] {
        let check = check(&checks, library);
        let hint = check["hint"].as_str().expect("what to do");
        assert!(check["state"] == "ok" || hint.contains(command), "{check}");
    }
}

#[test]
fn people_read_a_line_for_each_and_what_to_do() {
    let stage = Stage::new();
    let said = stage.apart("mkdir -p m; mount -t ramfs none m; $ELBOW doctor m");
    let lines: Vec<&str> = said.assert_code(0).out.lines().collect();
    let missing = lines.iter().position(|line| line.starts_with("missing  xattrs "));
    let hint = lines[missing.unwrap_or_else(|| panic!("{said:#?}")) + 1];
    assert!(hint.starts_with("         ") && hint.contains("cp -a"), "{hint}");
}

/// The kernel's simplest file system keeps files in memory, and can do little else.
#[test]
fn what_a_storage_cannot_do_is_missing_and_a_job_runs_there_all_the_same() {
    let stage = Stage::new();
    let said = stage.apart("mkdir -p m; mount -t ramfs none m; $ELBOW doctor --json m; ls -A m >&2");
    let checks = checks(said.assert_code(0));
    let missing = names(&checks, "missing");
    for name in ["xattrs", "acls", "holes", "preallocation"] {
        assert!(missing.contains(&name.to_owned()), "{name} in {missing:?}");
    }
    for name in ["hard-links", "symbolic-links", "special-files", "names", "modes", "job"] {
        assert_eq!(check(&checks, name)["state"], "ok");
    }
    assert_eq!(said.err, "", "something was left");
}

#[test]
fn where_no_job_can_run_is_said_with_the_reason_and_the_code() {
    let stage = Stage::new();
    let refused = |script: &str, name: &str, words: &[&str]| {
        let said = stage.apart(script);
        let checks = checks(said.assert_code(1));
        let check = check(&checks, name);
        assert_eq!(check["state"], "missing", "{check}");
        let told = format!("{} {}", check["found"], check["hint"]);
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
    };
    let read_only = "mkdir -p m; mount -t tmpfs -o ro none m; $ELBOW doctor --json m";
    refused(read_only, "directory", &["read-only", "remount"]);
    refused(
        "$ELBOW doctor --json nowhere",
        "directory",
        &["nowhere", "create the directory first"],
    );
    refused(
        "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; $ELBOW doctor --json",
        "job",
        &["/dev/fuse", "modprobe fuse"],
    );
    let no_fuse = "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; $ELBOW doctor --json";
    refused(no_fuse, "fuse", &["No such file", "modprobe fuse"]);
    assert_eq!(stage.names(), ["m"]);
}

#[test]
fn an_ordinary_user_hears_of_what_only_users_need() {
    let stage = Stage::open_to_all();
    let said = stage.apart(
        "exec setpriv --reuid 1 --regid 1 --clear-groups --inh-caps=-all env TMPDIR=\"$PWD/..\" $ELBOW doctor --json",
    );
    let checks = checks(&said);
    for name in ["fusermount3", "user-namespaces", "subordinate-ids"] {
        check(&checks, name);
    }
    assert_eq!(said.code == 0, check(&checks, "job")["state"] == "ok", "{said:#?}");
    assert!(stage.names().is_empty(), "{:?}", stage.names());
}

#[test]
fn a_bundle_names_nobody() {
    let stage = Stage::new();
    let mut command = Command::new(ELBOW);
    command.args(["doctor", "--bundle", "../bundle.json", "nowhere"]);
    command
        .env("HOME", stage.path(""))
        .env("USER", "gwendolyn")
        .env("ELBOW_SSH", "/home/gwendolyn/bin/no-ssh");
    stage.start(&mut command).finish().assert_code(1);
    let text = fs::read_to_string(stage.path("bundle.json")).expect("the bundle");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for secret in ["gwendolyn", stage.path("").to_str().expect("text"), &host] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let bundle: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(bundle["variables"], serde_json::json!(["ELBOW_SSH"]));
    assert!(bundle["kernel"].as_str().expect("a version").contains('.'));
    assert!(text.contains("/home/[user]/bin/no-ssh"), "{text}");
}

#[test]
fn a_bundle_tells_the_file_system_and_its_options() {
    let stage = Stage::new();
    stage
        .apart("mkdir -p m; mount -t ramfs -o noatime none m; $ELBOW doctor --bundle ../bundle.json m")
        .assert_code(0);
    let text = fs::read_to_string(stage.path("bundle.json")).expect("the bundle");
    let bundle: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(bundle["file_system"]["kind"], "ramfs", "{text}");
    assert!(
        bundle["file_system"]["options"]
            .as_str()
            .expect("text")
            .contains("noatime"),
        "{text}"
    );
}

#[test]
fn nothing_is_left_of_a_doctor_that_is_interrupted() {
    let stage = Stage::new();
    let ssh = stage.path("ssh");
    let script = "#!/bin/sh\n: > ../ready\nwhile [ ! -e ../go ]; do sleep 0.02; done\n";
    write_program(&ssh, script).expect("a program");
    let child = stage.start(Command::new(ELBOW).arg("doctor").env("ELBOW_SSH", &ssh));
    wait_for("its question", || stage.path("ready").exists());
    let process = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
    kill_process(process, Signal::INT).expect("it lives");
    fs::write(stage.path("go"), "").expect("a file");
    let said = child.finish();
    said.assert_code(130);
    assert_eq!(said.out, "");
    assert!(stage.names().is_empty(), "{:?}", stage.names());
}
