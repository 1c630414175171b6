//! What the checks look at: the crates as cargo knows them, and the files as git knows them.
//!
//! Read once, from `cargo metadata` and `git ls-files`; the checks themselves are pure functions of this.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The workspace: its root, its crates, and all its files that git does not ignore.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Directory of the workspace's `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// The members of the workspace.
    pub(crate) crates: Vec<Crate>,
    /// Tracked files, and new ones that are not ignored; relative to the root, sorted.
    pub(crate) files: Vec<PathBuf>,
}

/// A member of the workspace.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Crate {
    /// Its package name.
    pub(crate) name: String,
    /// Its `Cargo.toml`.
    pub(crate) manifest_path: PathBuf,
    /// All that it depends on, inside and outside of the workspace.
    pub(crate) dependencies: Vec<Dependency>,
}

/// One arrow from a crate.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dependency {
    /// Package name of what is depended on.
    pub(crate) name: String,
    /// What for.
    #[serde(default, deserialize_with = "normal_when_null")]
    pub(crate) kind: DependencyKind,
}

/// What a dependency is for.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DependencyKind {
    /// For the crate itself.
    #[default]
    Normal,
    /// For its tests, examples and benches.
    Dev,
    /// For its build script.
    Build,
}

/// `cargo metadata` writes a normal dependency as `null`.
fn normal_when_null<'de, D: serde::Deserializer<'de>>(from: D) -> Result<DependencyKind, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
    workspace_root: PathBuf,
}

impl Workspace {
    /// Reads the workspace around the current directory.
    pub(crate) fn read() -> Result<Self> {
        Self::read_in(Path::new("."))
    }

    /// Reads the workspace around a directory.
    pub(crate) fn read_in(directory: &Path) -> Result<Self> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut metadata = Command::new(cargo);
        metadata
            .current_dir(directory)
            .args(["metadata", "--format-version", "1", "--no-deps"]);
        let json = output(&mut metadata)?;
        let metadata: Metadata = serde_json::from_str(&json).context("what `cargo metadata` printed")?;
        let listing = output(Command::new("git").current_dir(&metadata.workspace_root).args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]))?;
        let files = existing_files(&metadata.workspace_root, &listing);
        Ok(Self {
            root: metadata.workspace_root,
            crates: metadata.packages,
            files,
        })
    }

    /// The text of a file of the workspace.
    pub(crate) fn text(&self, file: &Path) -> Result<String> {
        std::fs::read_to_string(self.root.join(file)).with_context(|| format!("reading {}", file.display()))
    }

    /// The files whose name ends in `.rs`.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &Path> {
        self.files_with("rs")
    }

    /// The files whose name ends in this, behind a dot.
    pub(crate) fn files_with(&self, extension: &'static str) -> impl Iterator<Item = &Path> {
        let files = self.files.iter().map(PathBuf::as_path);
        files.filter(move |file| file.extension().is_some_and(|found| found == extension))
    }
}

/// The files of a `git ls-files -z` listing that are there (a file may be deleted and not yet committed).
fn existing_files(root: &Path, listing: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = listing
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|file| {
            root.join(file)
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_file())
        })
        .collect();
    files.sort();
    files.dedup();
    files
}

/// What a command prints, if it succeeds.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("what {command:?} printed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_cargo_writes_them() {
        let json = r#"[{"name":"a","kind":null},{"name":"b","kind":"dev"},{"name":"c","kind":"build"}]"#;
        let read: Vec<Dependency> = serde_json::from_str(json).expect("valid");
        let kinds: Vec<_> = read.iter().map(|dependency| dependency.kind).collect();
        assert_eq!(
            kinds,
            [DependencyKind::Normal, DependencyKind::Dev, DependencyKind::Build]
        );
    }

    #[test]
    fn a_failing_command_is_an_error_with_its_message() {
        let error = output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).expect_err("it failed");
        assert!(error.to_string().contains("broken"), "{error}");
    }
}
