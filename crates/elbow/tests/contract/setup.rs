//! `scripts/setup.sh` finds what a machine lacks before anything is built, and says it in a line each.
//!
//! The machine is this one with programs of ours before its own in the PATH: a compiler that fails, an apt-get that only
//! writes down what it was asked, a sudo that refuses.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use elbow_testkit::program::write_program;

use crate::stage::{Said, word};

const NO_HEADERS: &str = "echo 'program.c:1:10: fatal error: stdio.h: No such file or directory' >&2; exit 1";
const REFUSES: &str = "echo 'sorry' >&2; exit 1";

/// A checkout with what the script reads, on a machine whose programs are these before all others.
struct Machine(tempfile::TempDir);

impl Machine {
    fn with(programs: &[(&str, &str)]) -> Self {
        let machine = Self(tempfile::tempdir().expect("a directory"));
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["scripts", "bin"] {
            fs::create_dir(machine.0.path().join(name)).expect("a directory");
        }
        for name in ["scripts/setup.sh", "Cargo.toml"] {
            fs::copy(checkout.join(name), machine.0.path().join(name)).expect("a copy");
        }
        let apt_get = format!("echo \"$@\" >> {}/asked", word(machine.0.path()));
        for (name, script) in [("apt-get", apt_get.as_str())].iter().chain(programs) {
            let path = machine.0.path().join("bin").join(name);
            write_program(&path, &format!("#!/bin/sh\n{script}\n")).expect("a program");
        }
        machine
    }

    fn set_up(&self, before: &[&str]) -> Said {
        let script = self.0.path().join("scripts/setup.sh");
        let words = [before, &["sh", word(&script), "build"]].concat();
        let path = std::env::var("PATH").expect("a PATH");
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env("PATH", format!("{}/bin:{path}", word(self.0.path())))
            .env_remove("CARGO_TARGET_DIR")
            .stdin(std::process::Stdio::null());
        Said::of(&command.output().expect("a shell"))
    }

    /// What apt-get was asked for.
    fn asked(&self) -> String {
        fs::read_to_string(self.0.path().join("asked")).unwrap_or_default()
    }
}

/// It asked only whether there is a `cc`, and the build ended with a linker error of 40 lines.
#[test]
fn a_compiler_without_headers_is_found_and_they_are_installed() {
    let machine = Machine::with(&[("cc", NO_HEADERS)]);
    let said = machine.set_up(&[]);
    said.assert_code(1)
        .assert_says(&["cc does not make programs: program.c:1:10: fatal error"]);
    assert!(
        machine.asked().contains(" install gcc libc6-dev\n"),
        "{}",
        machine.asked()
    );
}

#[test]
fn who_may_not_install_is_told_the_command_in_one_line() {
    let rust = "echo rustc 99.0.0";
    let machine = Machine::with(&[("cc", NO_HEADERS), ("sudo", REFUSES), ("cargo", rust), ("rustc", rust)]);
    fs::set_permissions(machine.0.path(), Permissions::from_mode(0o755)).expect("open to all");
    let user = ["setpriv", "--reuid=1", "--regid=1", "--clear-groups", "--inh-caps=-all"];
    let said = machine.set_up(&user);
    said.assert_code(1).assert_says(&[
        "neither root nor let in by sudo; as root: apt-get",
        "install gcc libc6-dev\n",
    ]);
    assert!(
        said.err.lines().count() == 2 && !said.err.contains("sorry"),
        "{}",
        said.err
    );
    assert_eq!(machine.asked(), "");
}

#[test]
fn too_little_space_and_too_old_a_compiler_are_said_together() {
    let df = "echo Filesystem 1M-blocks Used Available Capacity Mounted; echo none 9 2 7 1% /";
    let rust = "echo rustc 1.60.0";
    let machine = Machine::with(&[("df", df), ("cargo", rust), ("rustc", rust)]);
    let said = machine.set_up(&[]);
    said.assert_code(1).assert_says(&[
        "Rust 1.60.0 is too old",
        "7 MB are free there",
        "too little space for it",
    ]);
    assert_eq!(machine.asked(), "");
}
