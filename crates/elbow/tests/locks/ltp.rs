//! The lock cases of the Linux Test Project (fcntl01 to 39, their twins for large files, flock01 to 07 and the rest of their kind): each natively and then
//! under `elbow lock exec`, where its locks are the service's. One that passes natively must pass there.
//!
//! `LTPROOT=DIR` names an installed LTP, which no package registry has. None of its code is here.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lockd::Lockd;
use crate::preload::{self, said};

/// A case that runs longer hangs.
const PATIENCE_S: &str = "300";
/// What an LTP case says by its exit code when it does not apply to this machine.
const NOT_HERE: i32 = 32;
const TEST: &str = "ltp::cases_of_ltp_that_pass_natively_pass_redirected";

/// How a case ended.
struct Ended {
    code: Option<i32>,
    said: String,
}

/// The names of the lock cases, in order.
fn cases(ltp: &Path) -> Vec<String> {
    let place = ltp.join("testcases/bin");
    let names = fs::read_dir(&place).unwrap_or_else(|error| panic!("LTPROOT, {}: {error}", place.display()));
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut cases: Vec<String> = names.filter(|name| is_of_locks(name)).collect();
    cases.sort();
    cases
}

/// `fcntl14`, `fcntl14_64`, `fcntl_x`, `flock02`; no helper of theirs.
fn is_of_locks(name: &str) -> bool {
    let rest = name.strip_prefix("fcntl").or_else(|| name.strip_prefix("flock"));
    rest.is_some_and(|rest| {
        let numbered = rest.strip_suffix("_64").unwrap_or(rest);
        let is_number = numbered.len() == 2 && numbered.bytes().all(|byte| byte.is_ascii_digit());
        is_number || (rest.starts_with('_') && !rest.ends_with("_child"))
    })
}

/// Runs a case in an empty directory, by the words before it.
fn run(lockd: &Lockd, ltp: &Path, before: &[&str], case: &str) -> Ended {
    let work = lockd.directory.path().join("work");
    let _ = fs::remove_dir_all(&work);
    fs::create_dir(&work).unwrap();
    // Cases act as other users, too.
    for path in [lockd.directory.path(), &work] {
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    let program = ltp.join("testcases/bin").join(case);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = vec![ltp.join("testcases/bin")];
    places.extend(std::env::split_paths(&path));
    let words = [&["timeout", PATIENCE_S], before, &[program.to_str().unwrap()]].concat();
    let output = Command::new(words[0])
        .args(&words[1..])
        .current_dir(&work)
        .env("LTPROOT", ltp)
        .env("TMPDIR", &work)
        .env("PATH", std::env::join_paths(places).unwrap())
        .env_remove("LD_PRELOAD")
        .output()
        .unwrap();
    Ended {
        code: output.status.code(),
        said: said(&output),
    }
}

/// The cases that pass natively and fail redirected, with what they said; and how many passed both ways.
fn compare(ltp: &Path) -> (Vec<(String, Ended)>, usize) {
    let lockd = Lockd::start(&["--users", "any"]);
    let (server, work) = (lockd.address(), lockd.directory.path().join("work"));
    let redirect = [
        env!("CARGO_BIN_EXE_elbow"),
        "lock",
        "exec",
        "--server",
        &server,
        "--prefix",
    ];
    let redirect = [&redirect[..], &[work.to_str().unwrap(), "--"]].concat();
    let (mut differ, mut alike) = (Vec::new(), 0);
    for case in cases(ltp) {
        let native = run(&lockd, ltp, &[], &case);
        match native.code {
            Some(0) => {}
            Some(NOT_HERE) => continue,
            code => {
                println!("{case} fails natively, {code:?}: nothing is asked of it");
                continue;
            }
        }
        let redirected = run(&lockd, ltp, &redirect, &case);
        match redirected.code {
            Some(0) => alike += 1,
            _ => differ.push((case, redirected)),
        }
    }
    (differ, alike)
}

/// The directory is a variable's, because no package registry has LTP: without it, that is said.
#[test]
fn cases_of_ltp_that_pass_natively_pass_redirected() {
    let Some(ltp) = std::env::var_os("LTPROOT").map(PathBuf::from) else {
        // Not eprintln: the test runner would keep it to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: LTPROOT names no directory with an installed LTP"
        );
        return;
    };
    if preload::library("libelbow_fcntl.so").is_none() {
        return;
    }
    let (differ, alike) = compare(&ltp.canonicalize().expect("LTPROOT"));
    let mut text = String::new();
    for (case, Ended { code, said }) in &differ {
        writeln!(
            text,
            "{case} passes natively, and ends with {code:?} under elbow lock exec:\n{said}"
        )
        .unwrap();
    }
    assert!(differ.is_empty(), "{text}{alike} cases pass both ways");
    assert!(alike > 0, "no case of LTPROOT passes natively");
    println!("{alike} cases pass natively and redirected");
}

/// A lock that excludes another process, in the directory of the case.
const PASSES: &str = r#"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    struct flock all = {.l_type = F_WRLCK};
    int file = open("file", O_RDWR | O_CREAT, 0600), status;
    if (file < 0 || fcntl(file, F_SETLK, &all) != 0)
        return 2;
    if (fork() == 0)
        _exit(fcntl(file, F_SETLK, &all) == 0);
    wait(&status);
    return status != 0;
}
"#;

const FAILS_REDIRECTED: &str = r#"
#include <stdlib.h>
#include <string.h>
int main(void) {
    const char *preloaded = getenv("LD_PRELOAD");
    return preloaded != NULL && strstr(preloaded, "elbow_fcntl") != NULL;
}
"#;

const FAILS: &str = "int main(void) { return 1; }";
const DOES_NOT_APPLY: &str = "int main(void) { return 32; }";

fn compile(tree: &Path, case: &str, source: &str) {
    let (text, program) = (tree.join("case.c"), tree.join("testcases/bin").join(case));
    fs::write(&text, source).unwrap();
    let status = Command::new("cc").arg("-o").arg(&program).arg(&text).status();
    assert!(status.unwrap().success());
}

/// The comparison by itself: on a tree that is laid out as LTP's.
#[test]
fn a_case_that_fails_only_when_redirected_is_found_and_named() {
    if preload::library("libelbow_fcntl.so").is_none() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    fs::set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(tree.path().join("testcases/bin")).unwrap();
    compile(tree.path(), "fcntl01_64", PASSES);
    compile(tree.path(), "fcntl02", FAILS);
    compile(tree.path(), "fcntl03", DOES_NOT_APPLY);
    compile(tree.path(), "fork01", FAILS_REDIRECTED);
    let run = || {
        let mut ourselves = Command::new(std::env::current_exe().unwrap());
        ourselves
            .args(["--exact", TEST, "--nocapture"])
            .env("LTPROOT", tree.path());
        let output = ourselves.output().unwrap();
        (output.status.success(), said(&output))
    };
    let (is_well, printed) = run();
    assert!(
        is_well && printed.contains("1 cases pass natively and redirected"),
        "{printed}"
    );
    assert!(printed.contains("fcntl02 fails natively"), "{printed}");
    compile(tree.path(), "flock01", FAILS_REDIRECTED);
    let (is_well, printed) = run();
    assert!(
        !is_well && printed.contains("flock01 passes natively, and ends with Some(1)"),
        "{printed}"
    );
    assert!(!printed.contains("fcntl01_64 passes"), "{printed}");
}

#[test]
fn the_lock_cases_of_ltp_are_known_by_their_names() {
    for case in ["fcntl01", "fcntl39_64", "flock07", "fcntl_setlk"] {
        assert!(is_of_locks(case), "{case}");
    }
    for other in [
        "fork01",
        "fcntl1",
        "flock01.sh",
        "fcntl17_child",
        "fcntl_x_child",
        "flockfile01",
    ] {
        assert!(!is_of_locks(other), "{other}");
    }
}
