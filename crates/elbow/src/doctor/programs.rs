//! Programs and libraries that parts of Elbowroom work with.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use elbow_file::ShowName;

use super::check::{Check, State};
use crate::lock::preloaded;
use crate::output::without_numbers;

const LAUNCHERS: [&str; 2] = ["mpirun", "mpiexec"];

/// All of them.
pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    if !rustix::process::geteuid().is_root() {
        checks.push(fusermount());
    }
    checks.extend([ssh(), mpi()]);
    checks.extend(preloaded().map(|(check, command, library)| match library {
        Ok(path) => Check::ok(check, path.shown().to_string()),
        Err(error) => Check::new(
            check,
            State::Missing,
            without_numbers(&format!("{error:#}")),
            format!("`{command}` needs it, and nothing else: `make install` puts it beside elbow"),
        ),
    }));
    checks
}

fn fusermount() -> Check {
    match version("fusermount3".into(), "--version") {
        Some(version) => Check::ok("fusermount3", version),
        None => Check::new(
            "fusermount3",
            State::Missing,
            "not in the search path",
            "ordinary users need it to mount: apt install fuse3 (Debian and Ubuntu)",
        ),
    }
}

fn ssh() -> Check {
    let program = std::env::var_os("ELBOW_SSH").unwrap_or_else(|| "ssh".into());
    let shown = program.to_string_lossy().into_owned();
    match version(program, "-V") {
        Some(version) => Check::ok("ssh", version),
        None => Check::new(
            "ssh",
            State::Missing,
            format!("{shown} cannot be run"),
            "--via needs it: apt install openssh-client (Debian and Ubuntu)",
        ),
    }
}

fn mpi() -> Check {
    let found = LAUNCHERS
        .iter()
        .find_map(|launcher| version((*launcher).into(), "--version"));
    match found {
        Some(version) => Check::ok("mpi", version),
        None => Check::new(
            "mpi",
            State::Missing,
            format!("neither {} nor {} in the search path", LAUNCHERS[0], LAUNCHERS[1]),
            "only `elbow lock mpi` needs one",
        ),
    }
}

/// The first line that a program says of itself, wherever it says it.
fn version(program: OsString, option: &str) -> Option<String> {
    let mut command = Command::new(PathBuf::from(program));
    let ended = command.arg(option).stdin(Stdio::null()).output().ok()?;
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.lines()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .map(str::to_owned)
}
