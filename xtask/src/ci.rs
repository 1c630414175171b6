//! `cargo xtask ci`: the whole gate, in order, cheapest first; stops at the first step that fails.
//!
//! Steps are ordinary commands with their output left as it is, so that what fails here is run by hand in the
//! same words. Advisories need a database from the network: they are checked where it can be had, and where it
//! cannot be had the gate says so.

mod programs;

use std::fmt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::Workspace;
use crate::{release, rust_version, tidy};

const DENY: [&str; 6] = ["deny", "--log-level", "error", "check", "licenses", "bans"];

/// Test programs of `elbow` that only root can run.
const NEED_ROOT: [&str; 6] = ["contract", "differ", "machines", "mounted", "recipes", "suites"];

/// The tests above are of what is built by default; this feature has one of its own. Of the whole workspace, so that what its other crates ask
/// of dependencies is as it was, and not all of them are built anew.
const PARQUET: [&str; 8] = [
    "test",
    "--locked",
    "--workspace",
    "--features",
    "elbow/parquet",
    "--test",
    "disk",
    "parquet",
];

struct Report(Vec<(&'static str, Ended, Duration)>);

/// How a step that did not fail ended.
#[derive(Clone)]
enum Ended {
    Ok,
    /// What it needs is not to be had here; the reason.
    NotChecked(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Ok => f.write_str("ok"),
            Ended::NotChecked(why) => write!(f, "NOT CHECKED ({why})"),
        }
    }
}

/// Runs the gate.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut report = Report(Vec::new());
    report.step("format", || cargo(workspace, &["fmt", "--all", "--check"]))?;
    report.step("tidy", || tidy::run(workspace))?;
    let lints = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    report.step("rust-version", || rust_version::check(workspace))?;
    report.may_skip("the oldest Rust", || oldest_rust(workspace))?;
    report.step("lints", || cargo(workspace, &lints))?;
    report.step("licences and sources", || {
        cargo(workspace, &[&DENY[..], &["sources"]].concat())
    })?;
    report.may_skip("advisories", || advisories(workspace))?;
    report.step("packages", || packages(workspace))?;
    report.may_skip("release, tried", || rehearsed(workspace))?;
    report.step("documentation", || documentation(workspace))?;
    report.step("tests", || tests(workspace))?;
    report.step("Parquet", || cargo(workspace, &PARQUET))?;
    report.step("python", || python(workspace))?;
    report.step("bench, tiny", || tiny_bench(workspace))?;
    report.print();
    Ok(())
}

impl Report {
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.may_skip(name, || work().map(|()| Ended::Ok))
    }

    /// A step that says by itself whether it could look at all.
    fn may_skip(&mut self, name: &'static str, work: impl FnOnce() -> Result<Ended>) -> Result<()> {
        println!("=== {name}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        let ended = result.as_ref().map_or("FAILED".to_owned(), Ended::to_string);
        println!("=== {name}: {ended} in {:.1} s", took.as_secs_f64());
        self.0.push((name, result.context(name)?, took));
        Ok(())
    }

    fn print(&self) {
        println!("\nthe gate is green:");
        for (name, ended, took) in &self.0 {
            let not_checked = match ended {
                Ended::Ok => String::new(),
                Ended::NotChecked(_) => format!(": {ended}"),
            };
            println!("  {:7.1} s  {name}{not_checked}", took.as_secs_f64());
        }
    }
}

/// A cargo command in the workspace's root, with nothing on its standard input.
fn command(workspace: &Workspace, arguments: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(&workspace.root)
        .args(arguments)
        .stdin(Stdio::null());
    command
}

fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    succeed(&mut command(workspace, arguments))
}

/// All tests, also after one has failed. As an ordinary user all but those that only root can run, and that is said, and fails where nothing may be skipped.
fn tests(workspace: &Workspace) -> Result<()> {
    let mut programs = programs::build(workspace)?;
    if !rustix::process::geteuid().is_root() {
        ensure!(
            std::env::var("CI").as_deref() != Ok("true"),
            "CI=true, and this is not root"
        );
        println!("SKIPPED: not root: {NEED_ROOT:?} of elbow, which make mounts, devices and other users");
        programs.retain(|program| !program.is_test("elbow", &NEED_ROOT));
    }
    programs::run(workspace, programs)
}

/// The documentation of everything, private items included: it is for who works on it, so public headers may point there.
fn documentation(workspace: &Workspace) -> Result<()> {
    let arguments = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--locked",
    ];
    succeed(command(workspace, &arguments).env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links"))
}

/// What `cargo package` would upload of each crate but those that are for ourselves. The first has no dependency that is not published,
/// so it is resolved too; the others wait for it, and for each other, in the registry.
pub(crate) fn packages(workspace: &Workspace) -> Result<()> {
    let quick = ["--quiet", "--no-verify", "--allow-dirty", "--offline"];
    cargo(workspace, &[&["package", "-p", "elbow-ranges"][..], &quick].concat())?;
    let all = [
        "package",
        "--workspace",
        "--exclude",
        "xtask",
        "--exclude",
        "elbow-testkit",
    ];
    cargo(workspace, &[&all[..], &["--exclude-lockfile"], &quick].concat())
}

/// The Python package, built as a wheel into an environment of its own, and its tests.
fn python(workspace: &Workspace) -> Result<()> {
    let program = workspace.root.join("clients/python/check.py");
    succeed(Command::new(program).stdin(Stdio::null()))
}

/// How the programs were built that the tests have left, for the benches.
const PROFILE: (&str, &str) = ("ELBOW_BENCH_PROFILE", "dev");

/// The measurements on small inputs: what is measured is of no interest, that they still run is.
fn tiny_bench(workspace: &Workspace) -> Result<()> {
    let programs = [
        "bench/run.py",
        "bench/sort.py",
        "bench/figures_holes.py",
        "bench/locks.py",
        "bench/mpi.py",
        "bench/disk.py",
        "bench/emulated.py",
        "bench/bark.py",
    ];
    programs.iter().try_for_each(|program| {
        let program = workspace.root.join(program);
        succeed(
            Command::new(program)
                .arg("--tiny")
                .env(PROFILE.0, PROFILE.1)
                .stdin(Stdio::null()),
        )
    })?;
    let tests = workspace.root.join("bench/tests");
    let words = ["-B", "-m", "unittest", "discover", "--start-directory"];
    let mut python = Command::new("python3");
    succeed(
        python
            .args(words)
            .arg(tests)
            .env(PROFILE.0, PROFILE.1)
            .stdin(Stdio::null()),
    )
}

/// Checks for known vulnerabilities where the database of them can be fetched.
fn advisories(workspace: &Workspace) -> Result<Ended> {
    let fetched = command(workspace, &["deny", "--log-level", "off", "fetch", "db"])
        .stderr(Stdio::null())
        .status()?;
    if !fetched.success() {
        return Ok(Ended::NotChecked(
            "their database cannot be fetched from here".to_owned(),
        ));
    }
    cargo(
        workspace,
        &["deny", "--log-level", "error", "check", "--disable-fetch", "advisories"],
    )
    .map(|()| Ended::Ok)
}

/// Everything built, as far as the compiler finds mistakes, by the Rust that we say is enough.
fn oldest_rust(workspace: &Workspace) -> Result<Ended> {
    let oldest = rust_version::stated(workspace)?;
    let Some(toolchain) = rust_version::installed(&oldest)? else {
        return Ok(Ended::NotChecked(format!("rustup has no toolchain {oldest} here")));
    };
    let words = [
        "cargo",
        "check",
        "--quiet",
        "--workspace",
        "--locked",
        "--target-dir",
        "target/oldest",
    ];
    let mut rustup = Command::new("rustup");
    rustup
        .current_dir(&workspace.root)
        .arg("run")
        .arg(toolchain)
        .args(words)
        .stdin(Stdio::null());
    succeed(&mut rustup).map(|()| Ended::Ok)
}

fn rehearsed(workspace: &Workspace) -> Result<Ended> {
    Ok(match release::rehearse_next(workspace)? {
        Some(()) => Ended::Ok,
        None => Ended::NotChecked("nothing is unreleased".to_owned()),
    })
}

fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("running {command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_stops_the_gate_and_is_named() {
        let mut report = Report(Vec::new());
        let error = report
            .step("lints", || succeed(&mut Command::new("false")))
            .expect_err("false fails");
        assert!(format!("{error:#}").starts_with("lints: "), "{error:#}");
    }

    #[test]
    fn what_was_not_checked_is_not_called_ok() {
        let mut report = Report(Vec::new());
        let skipped = report.may_skip("advisories", || Ok(Ended::NotChecked("no database".to_owned())));
        assert!(skipped.is_ok());
        let ended: Vec<String> = report.0.iter().map(|(_, ended, _)| ended.to_string()).collect();
        assert_eq!(ended, ["NOT CHECKED (no database)"]);
    }

    #[test]
    fn a_command_that_is_not_there_is_a_failing_step() {
        assert!(succeed(&mut Command::new("/nonexistent/program")).is_err());
    }
}
