//! One file with all that helps to find a fault from afar, and nothing that is nobody's business.
//!
//! Values of variables, command lines, names of files and addresses are never in it; names of the user, the machine and directories that stand in
//! messages are replaced.

#![allow(
    clippy::disallowed_methods,
    reason = "files of the system and one that the user names, not the storage of a job"
)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use elbow_file::ShowName;
use elbow_mount::MountedFileSystem;
use serde::Serialize;

use super::check::{Check, State};
use crate::json;

/// Shorter names are parts of words.
const NAME_MIN: usize = 3;

#[derive(Serialize)]
struct Bundle<'a> {
    system: String,
    kernel: String,
    /// The type and the options of the file system of DIR.
    file_system: Option<FileSystem>,
    limits: BTreeMap<String, String>,
    /// Which variables of ours are set; not to what.
    variables: Vec<String>,
    checks: Vec<Redacted<'a>>,
}

#[derive(Serialize)]
struct FileSystem {
    kind: String,
    options: String,
}

#[derive(Serialize)]
struct Redacted<'a> {
    check: &'a str,
    state: State,
    found: String,
    hint: String,
}

/// Writes it to a file, which is new or replaced.
pub(super) fn write(file: &Path, checks: &[Check], directory: &Path) -> anyhow::Result<()> {
    let names = names(directory);
    let kernel = rustix::system::uname();
    let bundle = Bundle {
        system: system(),
        kernel: format!(
            "{} {}",
            kernel.release().to_string_lossy(),
            kernel.version().to_string_lossy()
        ),
        file_system: file_system(directory),
        limits: limits(),
        variables: variables(),
        checks: checks.iter().map(|check| redacted(check, &names)).collect(),
    };
    let text = json::line(&bundle)?;
    let mut to = std::fs::File::create(file).with_context(|| file.shown().to_string())?;
    writeln!(to, "{text}").with_context(|| file.shown().to_string())
}

fn redacted<'a>(check: &'a Check, names: &[(String, &'static str)]) -> Redacted<'a> {
    Redacted {
        check: check.check,
        state: check.state,
        found: redact(&check.found, names),
        hint: redact(&check.hint, names),
    }
}

/// What may not be in it, and what stands there instead: longer names first, since shorter ones may be parts of them.
fn names(directory: &Path) -> Vec<(String, &'static str)> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut names = vec![(path(directory), "[dir]")];
    names.extend(directory.canonicalize().map(|whole| (path(&whole), "[dir]")));
    names.extend(
        std::env::current_exe()
            .ok()
            .and_then(|exe| Some((path(exe.parent()?), "[bin]"))),
    );
    for (variable, word) in [
        ("HOME", "[home]"),
        ("TMPDIR", "[tmpdir]"),
        ("USER", "[user]"),
        ("LOGNAME", "[user]"),
    ] {
        names.extend(std::env::var(variable).map(|value| (value, word)));
    }
    names.push((
        rustix::system::uname().nodename().to_string_lossy().into_owned(),
        "[host]",
    ));
    names.retain(|(name, _)| name.len() >= NAME_MIN);
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names
}

fn redact(text: &str, names: &[(String, &'static str)]) -> String {
    names
        .iter()
        .fold(text.to_owned(), |text, (name, word)| text.replace(name, word))
}

/// What the distribution calls itself (os-release(5)).
fn system() -> String {
    let file = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = file.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("unknown").trim_matches('"').to_owned()
}

fn file_system(directory: &Path) -> Option<FileSystem> {
    let MountedFileSystem { kind, options } = elbow_mount::file_system_of(directory).ok()?;
    Some(FileSystem { kind, options })
}

/// Soft and hard, by name (proc_pid_limits(5)).
fn limits() -> BTreeMap<String, String> {
    let table = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let lines = table.lines().skip(1).filter_map(|line| {
        let (name, values) = line.split_at_checked(26)?;
        let values: Vec<&str> = values.split_whitespace().take(2).collect();
        Some((name.trim().to_owned(), values.join(" to ")))
    });
    lines.collect()
}

fn variables() -> Vec<String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("ELBOW_")).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_names_are_replaced_before_those_that_are_in_them() {
        let names = [
            ("/home/alice/data".to_owned(), "[dir]"),
            ("/home/alice".to_owned(), "[home]"),
            ("alice".to_owned(), "[user]"),
        ];
        let text = "/home/alice/data/x: alice may not write; ask /home/alice/bin/help";
        assert_eq!(
            redact(text, &names),
            "[dir]/x: [user] may not write; ask [home]/bin/help"
        );
    }

    #[test]
    fn the_limits_of_a_process_are_told_by_name() {
        assert!(limits()["Max open files"].contains(" to "));
    }
}
