//! `cargo xtask differ`: builds `elbow` and the differential fuzzer, and starts it with the same arguments.
//!
//! `--release` before the others builds and tests what is installed, which is quicker for many seeds.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Starts it; its exit code is ours.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let is_release = arguments.first().is_some_and(|first| first == "--release");
    let profile: &[&str] = if is_release { &["--release"] } else { &[] };
    let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let build = ["build", "--quiet", "--locked", "-p", "elbow"];
    match cargo().args(build).args(profile).status() {
        Ok(status) if status.success() => {}
        _ => return trouble("elbow could not be built"),
    }
    let start = ["run", "--quiet", "--locked", "-p", "elbow-testkit", "--bin", "differ"];
    let rest = &arguments[usize::from(is_release)..];
    let ended = cargo().args(start).args(profile).arg("--").args(rest).status();
    match ended.map(|status| status.code()) {
        Ok(Some(code)) => ExitCode::from(u8::try_from(code).unwrap_or(2)),
        _ => trouble("the fuzzer could not be started, or was killed"),
    }
}

fn trouble(what: &str) -> ExitCode {
    eprintln!("xtask: {what}");
    ExitCode::from(2)
}
