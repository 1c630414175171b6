//! `elbow lock exec`: what the command gets, and what is refused. (What the library does is tested in `clients/fcntl`.)

use std::path::PathBuf;
use std::process::Command;

use elbow_testkit::program::write_program;

use crate::lockd::Lockd;
use crate::preload::{self, said};

fn library() -> Option<PathBuf> {
    preload::library("libelbow_fcntl.so")
}

fn exec(lockd: &Lockd, command: &[&str]) -> Command {
    let mut elbow = lockd.elbow(&["lock", "exec", "--prefix", ".", "--"]);
    elbow.args(command).env_remove("LD_PRELOAD");
    elbow
}

#[test]
fn the_command_gets_the_library_the_service_and_the_prefixes() {
    let Some(library) = library() else { return };
    let lockd = Lockd::start(&[]);
    let script = "echo $LD_PRELOAD $ELBOW_LOCKS $ELBOW_FCNTL_PREFIXES $ELBOW_FCNTL_ON_LOSS; exit 7";
    let output = exec(&lockd, &["sh", "-c", script]).output().unwrap();
    let (library, here) = (
        library.canonicalize().unwrap(),
        lockd.directory.path().canonicalize().unwrap(),
    );
    let expected = format!("{} {} {} end\n", library.display(), lockd.address(), here.display());
    assert_eq!(said(&output), expected);
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn its_locks_are_the_services() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let held = exec(&lockd, &["flock", "f", "true"]).output().unwrap();
    assert!(held.status.success(), "{}", said(&held));
    assert_eq!(lockd.total("grants"), 1);
    // fcntl's locks and list locks on one file see each other.
    let lockf = "import fcntl, sys; fcntl.lockf(open('f', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 4096)";
    let mut under = lockd.elbow(&["lock", "hold", "f", "--range", "4096:1", "--"]);
    under
        .arg(env!("CARGO_BIN_EXE_elbow"))
        .args(["lock", "exec", "--prefix", ".", "--", "python3", "-c", lockf]);
    let refused = under.output().unwrap();
    assert!(said(&refused).contains("BlockingIOError"), "{}", said(&refused));
    let granted = exec(&lockd, &["python3", "-c", lockf]).output().unwrap();
    assert!(granted.status.success(), "{}", said(&granted));
}

#[test]
fn what_cannot_be_redirected_is_not_run() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let here = lockd.directory.path();
    let source = here.join("hello.c");
    std::fs::write(
        &source,
        "#include <stdio.h>\nint main(void) { return puts(\"ran\") < 0; }\n",
    )
    .unwrap();
    let compiled = Command::new("cc")
        .args(["-static", "-o"])
        .arg(here.join("static"))
        .arg(&source)
        .status()
        .unwrap();
    assert!(compiled.success());
    write_program(&here.join("script"), "#!/usr/bin/env ./static\n").unwrap();
    for program in ["./static", "./script"] {
        let output = exec(&lockd, &[program]).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(said(&output).contains("linked statically"), "{}", said(&output));
    }
    let output = exec(&lockd, &["./not-there"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", said(&output));
}

#[test]
fn without_service_library_or_directory_nothing_is_run() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let refuse = |command: &mut Command, why: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", said(&output));
        assert!(said(&output).contains(why), "{}", said(&output));
    };
    refuse(
        exec(&lockd, &["echo", "ran"]).env("ELBOW_LOCKS", "unix:/not/there"),
        "cannot reach",
    );
    refuse(
        exec(&lockd, &["echo", "ran"]).env("ELBOW_FCNTL_LIB", "/not/there"),
        "is not there",
    );
    refuse(
        &mut lockd.elbow(&["lock", "exec", "--prefix", "none", "--", "echo", "ran"]),
        "--prefix none",
    );
}

/// A lock by name and one by number are two: all have to choose alike.
#[test]
fn what_is_named_alike_is_one_file_for_a_command_and_for_programs() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let here = lockd.directory.path();
    std::fs::write(here.join("f"), "").unwrap();
    std::fs::hard_link(here.join("f"), here.join("g")).unwrap();
    let try_g = "import fcntl; fcntl.lockf(open('g', 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let excluded = |[outer, inner]: [&str; 2]| {
        let mut under = lockd.elbow(&["lock", "hold", "--identity", outer, "f", "--"]);
        under.arg(env!("CARGO_BIN_EXE_elbow"));
        under.args([
            "lock",
            "exec",
            "--identity",
            inner,
            "--prefix",
            ".",
            "--",
            "python3",
            "-c",
            try_g,
        ]);
        let output = under.output().unwrap();
        assert!(
            output.status.success() || said(&output).contains("BlockingIOError"),
            "{}",
            said(&output)
        );
        !output.status.success()
    };
    assert!(excluded(["inode", "inode"]), "one file under two names");
    assert!(!excluded(["path", "path"]), "two names");
    assert!(
        !excluded(["path", "inode"]) && !excluded(["inode", "path"]),
        "a name and a number"
    );
    // By number a file has to be there.
    let output = lockd
        .elbow(&["lock", "hold", "--identity", "inode", "none", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(said(&output).contains("cannot find none"), "{}", said(&output));
}

#[test]
fn where_inode_numbers_may_lie_is_said_at_the_start() {
    if library().is_none() {
        return;
    }
    let lockd = Lockd::start(&[]);
    let told = |identity: &[&str]| {
        let mut elbow = lockd.elbow(&["lock", "exec", "--prefix", "/proc"]);
        let output = elbow.args(identity).args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        said(&output)
    };
    assert_eq!(told(&[]), "");
    assert!(told(&["--identity", "auto"]).contains("files below /proc are known by their paths"));
    assert!(told(&["--identity", "inode"]).contains("may differ from client to client"));
}
