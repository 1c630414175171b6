//! The test programs of the workspace, several at a time.
//!
//! `cargo test` runs one after the other. Many of ours wait most of the time, for a slow storage, a lease, a process that was stopped;
//! meanwhile another one can have the processors. What a program prints is shown when it is over, in one piece.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{cargo, command};
use crate::workspace::Workspace;

/// All that tests need, in one build: what `cargo build` makes for a part of the workspace has other features, and is made anew.
const BUILD: [&str; 8] = [
    "build",
    "--locked",
    "--workspace",
    "--lib",
    "--bins",
    "--tests",
    "--examples",
    "--message-format=json-render-diagnostics",
];

/// The programs that take longest, in that order, by package and target: who begins early does not have to be waited for alone at the end.
const LONGEST: [(&str, &str); 9] = [
    ("elbow", "--test mounted"),
    ("elbow-job", "--lib"),
    ("elbow-mpi", "--test mpi"),
    ("elbow", "--test machines"),
    ("elbow", "--test differ"),
    ("elbow", "--test contract"),
    ("elbow", "--test locks"),
    ("elbow", "--test fire"),
    ("elbow", "--test recipes"),
];

/// They attach block devices and make file systems on them again and again. The namespace of a job that runs meanwhile has copies of their mounts:
/// where unmounting does not spread (`/` is private in containers) the device is in use until that job ends.
const ALONE: [(&str, &str); 2] = [("elbow", "--test disk"), ("elbow-drive", "--test journal")];

/// How many tests of a program run at a time; by themselves it is as many as there are processors.
const THREADS: &str = "RUST_TEST_THREADS";

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The package that it is of.
    package: String,
    /// What cargo calls it: `--lib`, `--bin NAME` or `--test NAME`.
    target: String,
    executable: PathBuf,
    /// The package's directory, where cargo runs its tests.
    directory: PathBuf,
}

impl Program {
    /// Whether this is that integration test of that package.
    pub(super) fn is_test(&self, package: &str, names: &[&str]) -> bool {
        let of_names = |name: &&str| self.target == format!("--test {name}");
        self.package == package && names.iter().any(of_names)
    }

    fn is(&self, (package, target): (&str, &str)) -> bool {
        (self.package.as_str(), self.target.as_str()) == (package, target)
    }

    /// Whether no other program may run meanwhile.
    fn runs_alone(&self) -> bool {
        ALONE.iter().any(|of| self.is(*of))
    }

    /// How early it begins.
    fn rank(&self) -> usize {
        let place = LONGEST.iter().position(|of| self.is(*of));
        place.unwrap_or(LONGEST.len())
    }

    fn says(&self) -> String {
        format!("cargo test -p {} {}", self.package, self.target)
    }

    /// Runs it to its end; what it printed, and whether all its tests passed.
    fn run(&self, threads: usize) -> Result<(String, bool)> {
        let mut printed = tempfile::tempfile()?;
        let status = Command::new(&self.executable)
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            .env(
                THREADS,
                std::env::var_os(THREADS).unwrap_or_else(|| threads.to_string().into()),
            )
            .stdin(Stdio::null())
            .stdout(printed.try_clone()?)
            .stderr(printed.try_clone()?)
            .status()
            .with_context(|| format!("running {}", self.executable.display()))?;
        let mut text = whole(&mut printed)?;
        if !status.success() {
            text += &format!("\n{}: {status}\n", self.executable.display());
        }
        Ok((text, status.success()))
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// What others have written into a file.
fn whole(file: &mut File) -> Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Builds all test programs, and everything that they start.
pub(super) fn build(workspace: &Workspace) -> Result<Vec<Program>> {
    let built = command(workspace, &BUILD).stderr(Stdio::inherit()).output()?;
    ensure!(built.status.success(), "cargo {}: {}", BUILD.join(" "), built.status);
    let mut found = programs(&String::from_utf8_lossy(&built.stdout))?;
    found.sort_by_key(Program::rank);
    ensure!(!found.is_empty(), "cargo named no test program");
    Ok(found)
}

#[derive(Deserialize)]
struct Artifact {
    reason: String,
    #[serde(default)]
    package_id: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The test programs among what cargo says that it has built, a line of JSON each.
fn programs(messages: &str) -> Result<Vec<Program>> {
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let artifact: Artifact = serde_json::from_str(line).context("what cargo says of what it has built")?;
        found.extend(artifact.program());
    }
    Ok(found)
}

impl Artifact {
    fn program(self) -> Option<Program> {
        let (target, executable) = (self.target?, self.executable?);
        if self.reason != "compiler-artifact" || !self.profile?.test {
            return None;
        }
        let kind = target.kind.first()?.as_str();
        let target = match kind {
            "test" | "bin" | "example" => format!("--{kind} {}", target.name),
            _ => "--lib".to_owned(),
        };
        Some(Program {
            package: package_of(&self.package_id).to_owned(),
            target,
            executable,
            directory: self.manifest_path.parent()?.to_owned(),
        })
    }
}

/// The name in a package id: `path+file:///w/crates/elbow#0.1.0`, or with the name where the directory has another one, `..#elbow@0.1.0`.
fn package_of(id: &str) -> &str {
    let (path, fragment) = id.rsplit_once('#').unwrap_or((id, ""));
    match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next().unwrap_or(path),
    }
}

/// Runs all of them, begun in this order, also after one has failed: a gate takes long, and tells all that is wrong at once.
pub(super) fn run(workspace: &Workspace, programs: Vec<Program>) -> Result<()> {
    let lanes = processors();
    let (alone, others): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::runs_alone);
    let waiting = Mutex::new(VecDeque::from(others));
    let failed: Mutex<Vec<Failed>> = Mutex::new(Vec::new());
    let next = || waiting.lock().expect("no lane panics with it").pop_front();
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let run = run_and_show(&program, 2 * lanes);
                    failed.lock().expect("no lane panics with it").extend(run);
                }
            });
        }
    });
    let mut failed = failed.into_inner().expect("no lane is left");
    failed.extend(alone.iter().filter_map(|program| run_and_show(program, lanes)));
    if cargo(workspace, &["test", "--workspace", "--locked", "--doc"]).is_err() {
        failed.push(Failed {
            program: "cargo test --doc".to_owned(),
            why: Vec::new(),
        });
    }
    if failed.is_empty() {
        return Ok(());
    }
    // Among thousands of lines, of which some places show only the last.
    for line in failed.iter().flat_map(|failed| &failed.why) {
        println!("{line}");
    }
    let failed: Vec<String> = failed.into_iter().map(|failed| failed.program).collect();
    bail!("failed: {}", failed.join(", "));
}

/// A program of which not all tests passed.
struct Failed {
    program: String,
    /// What its failed tests printed, but for backtraces, and of each only the last lines.
    why: Vec<String>,
}

/// What the failed tests say in what a program printed.
fn reasons(text: &str) -> Vec<String> {
    const LINES_MAX: usize = 30;
    let is_head = |line: &&str| line.starts_with("---- ") && line.ends_with(" stdout ----");
    let mut lines = text.lines().skip_while(|line| !is_head(line)).peekable();
    let mut reasons = Vec::new();
    while let Some(head) = lines.next() {
        if head == "failures:" {
            break;
        }
        let mut said = Vec::new();
        while let Some(line) = lines.next_if(|line| !is_head(line) && *line != "failures:") {
            said.push(line.to_owned());
        }
        let end = said
            .iter()
            .position(|line| line == "stack backtrace:")
            .unwrap_or(said.len());
        let begin = end.saturating_sub(LINES_MAX);
        reasons.push(head.to_owned());
        reasons.extend(said.drain(begin..end));
    }
    reasons
}

/// Runs one and shows what it printed; what failed of it, if anything did.
fn run_and_show(program: &Program, threads: usize) -> Option<Failed> {
    println!("begun: {}", program.says());
    let start = Instant::now();
    let (text, passed) = program
        .run(threads)
        .unwrap_or_else(|error| (format!("{error:#}\n"), false));
    let took = start.elapsed().as_secs_f64();
    // One call, so that nobody's lines come in between.
    print!("\n     Running {}: {took:.1} s\n{text}", program.says());
    (!passed).then(|| Failed {
        program: program.says(),
        why: reasons(&text),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const MESSAGES: &str = r##"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/elbow#0.1.0","manifest_path":"/w/crates/elbow/Cargo.toml","target":{"kind":["test"],"name":"mounted"},"profile":{"test":true},"executable":"/w/target/debug/deps/mounted-1"}
{"reason":"compiler-artifact","package_id":"path+file:///w/crates/elbow#0.1.0","manifest_path":"/w/crates/elbow/Cargo.toml","target":{"kind":["bin"],"name":"elbow"},"profile":{"test":false},"executable":"/w/target/debug/elbow"}
{"reason":"compiler-artifact","package_id":"path+file:///w/clients/c#elbow-c@0.1.0","manifest_path":"/w/clients/c/Cargo.toml","target":{"kind":["cdylib"],"name":"ba"},"profile":{"test":true},"executable":"/w/target/debug/deps/ba-1"}
{"reason":"build-finished","success":true}
"##;

    #[test]
    fn the_test_programs_are_found_and_named_as_cargo_takes_them() {
        let found = programs(MESSAGES).expect("messages as cargo writes them");
        let said: Vec<String> = found.iter().map(Program::says).collect();
        assert_eq!(
            said,
            ["cargo test -p elbow --test mounted", "cargo test -p elbow-c --lib"]
        );
        assert!(found[0].is_test("elbow", &["differ", "mounted"]));
        assert!(!found[1].is_test("elbow", &["differ", "mounted"]));
    }

    fn shell(script: &str) -> Program {
        let directory = std::env::temp_dir();
        let executable = directory.join(format!("elbow-xtask-{}-{}", std::process::id(), script.len()));
        // Written by a child: what has a copy of a descriptor that we write by, another child that is just being started, keeps a file from
        // being run.
        let mut writer = Command::new("sh")
            .args(["-c", "cat > \"$0\"; chmod 755 \"$0\""])
            .arg(&executable)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut stdin = writer.stdin.take().expect("a pipe");
        write!(stdin, "#!/bin/sh\n{script}\n").expect("a shell that reads");
        drop(stdin);
        assert!(writer.wait().expect("a child of ours").success());
        Program {
            package: "p".into(),
            target: "--lib".into(),
            executable,
            directory,
        }
    }

    #[test]
    fn what_a_program_prints_and_how_it_ends_is_told() {
        let program = shell("echo out; echo err >&2; exit 3");
        let (text, passed) = program.run(1).expect("a shell");
        std::fs::remove_file(&program.executable).expect("a file of ours");
        assert!(!passed);
        assert!(
            text.starts_with("out\nerr\n") && text.contains("exit status: 3"),
            "{text}"
        );
    }

    #[test]
    fn why_tests_failed_is_found_in_what_they_print() {
        const PRINTED: &str = "running 3 tests\ntest a ... FAILED\ntest b ... FAILED\ntest c ... ok\n\nfailures:\n\n---- a stdout ----\nsaid\npanicked at x.rs:1:\n  left: 1\nstack backtrace:\n   0: rust_begin_unwind\n\n---- b stdout ----\nError: no\n\n\nfailures:\n    a\n    b\n\ntest result: FAILED\n";
        assert_eq!(
            reasons(PRINTED),
            [
                "---- a stdout ----",
                "said",
                "panicked at x.rs:1:",
                "  left: 1",
                "---- b stdout ----",
                "Error: no",
                "",
                ""
            ]
        );
        assert_eq!(reasons("test a ... ok\n"), [""; 0]);
    }
}
