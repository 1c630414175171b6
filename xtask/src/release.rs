//! `cargo xtask release [--dry-run] VERSION`: a release is one command.
//!
//! ```text
//!   refuse: a changed tree, a version that is not greater, a changelog without entries
//!   a clone in a temporary directory: version everywhere, changelog, Cargo.lock -> tidy, packages -> commit, tag
//!   --dry-run: the diff, and the clone is gone         otherwise: commit and tag are fetched from it
//! ```
//!
//! All is done in the clone, and taken over when it is whole: what fails half-way has changed nothing here. Pushing is not done.

mod changelog;
mod places;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use semver::Version;
use tempfile::TempDir;

use crate::ci::packages;
use crate::tidy;
use crate::workspace::{Workspace, output};

const CHANGELOG: &str = "CHANGELOG.md";

/// Why there is no release.
#[derive(Debug, thiserror::Error)]
enum ReleaseError {
    #[error("usage: cargo xtask release [--dry-run] VERSION")]
    Usage,
    #[error("`{0}` is no version: {1}")]
    NoVersion(String, semver::Error),
    #[error("the tree has changes that are not committed:\n{0}")]
    Changed(String),
    #[error("{asked} is not greater than {current}, which the workspace has")]
    NotGreater { asked: Version, current: Version },
    #[error("there is a tag {0}")]
    TagIsThere(String),
}

/// What the command line asks for.
#[derive(Debug)]
struct Asked {
    version: Version,
    dry_run: bool,
}

/// Makes a release of what is checked out here, or shows what it would be.
pub(crate) fn run(words: impl Iterator<Item = OsString>) -> Result<()> {
    let asked = Asked::parse(words)?;
    let root = Workspace::read()?.root;
    match asked.dry_run {
        true => println!("{}", rehearse(&root, &asked.version, check)?),
        false => release(&root, &asked.version, check)?,
    }
    Ok(())
}

/// A step of the gate: the next version could be released. `None`: there is nothing to release.
pub(crate) fn rehearse_next(workspace: &Workspace) -> Result<Option<()>> {
    if !changelog::has_entries(&workspace.text(Path::new(CHANGELOG))?) {
        return Ok(None);
    }
    let mut next = places::version(&workspace.root)?;
    next.patch += 1;
    let diff = rehearse(&workspace.root, &next, check)?;
    println!("release {next}: {} lines of diff", diff.lines().count());
    Ok(Some(()))
}

impl Asked {
    fn parse(words: impl Iterator<Item = OsString>) -> Result<Self, ReleaseError> {
        let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let (options, versions): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
        let [version] = versions[..] else {
            return Err(ReleaseError::Usage);
        };
        if options.iter().any(|option| *option != "--dry-run") {
            return Err(ReleaseError::Usage);
        }
        let parsed = Version::parse(version).map_err(|why| ReleaseError::NoVersion(version.clone(), why))?;
        Ok(Self {
            version: parsed,
            dry_run: !options.is_empty(),
        })
    }
}

/// What the gate looks at that a version can break.
fn check(root: &Path) -> Result<()> {
    let workspace = Workspace::read_in(root)?;
    tidy::run(&workspace)?;
    packages(&workspace)
}

/// The diff of a release of what is committed. Nothing is left of it.
fn rehearse(root: &Path, version: &Version, check: impl Fn(&Path) -> Result<()>) -> Result<String> {
    if let Err(why) = not_changed(root)? {
        eprintln!("xtask: a release would be refused, and this is one of the last commit: {why}");
    }
    let copy = Copy::of(root, Signed::No)?;
    copy.release(version, check)?;
    copy.git(&["diff", "HEAD~1", "HEAD"])
}

/// Commits and tags a release.
fn release(root: &Path, version: &Version, check: impl Fn(&Path) -> Result<()>) -> Result<()> {
    not_changed(root)??;
    let copy = Copy::of(root, Signed::AsConfigured)?;
    let tag = copy.release(version, check)?;
    let from = copy.path().to_string_lossy().into_owned();
    git(root, &["fetch", "--quiet", "--no-tags", &from, "HEAD"])?;
    git(root, &["merge", "--quiet", "--ff-only", "FETCH_HEAD"])?;
    let of_tag = format!("refs/tags/{tag}:refs/tags/{tag}");
    git(root, &["fetch", "--quiet", "--no-tags", &from, &of_tag])?;
    println!("released: {tag}; publish it with: git push --follow-tags");
    Ok(())
}

fn not_changed(root: &Path) -> Result<Result<(), ReleaseError>> {
    let changed = git(root, &["status", "--porcelain"])?;
    Ok(if changed.is_empty() {
        Ok(())
    } else {
        Err(ReleaseError::Changed(changed))
    })
}

/// Whether commit and tag are those of a person.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Signed {
    AsConfigured,
    /// They are thrown away, on a machine that may know nobody's name.
    No,
}

/// A clone of what is committed, with its own refs and objects.
struct Copy {
    directory: TempDir,
    configured: Vec<String>,
}

impl Copy {
    fn of(root: &Path, signed: Signed) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let into = directory.path().join("copy");
        let words = [root.as_os_str(), into.as_os_str()];
        output(Command::new("git").args(["clone", "--quiet", "--shared"]).args(words))?;
        // What is set for the repository alone is not cloned.
        let of_root = |key: &str| Some(format!("{key}={}", git(root, &["config", "--get", key]).ok()?));
        let configured = match signed {
            Signed::AsConfigured => [
                "user.name",
                "user.email",
                "user.signingKey",
                "commit.gpgSign",
                "tag.gpgSign",
            ]
            .into_iter()
            .filter_map(of_root)
            .collect(),
            Signed::No => [
                "user.name=nobody",
                "user.email=nobody@localhost",
                "commit.gpgSign=false",
                "tag.gpgSign=false",
            ]
            .map(str::to_owned)
            .into(),
        };
        Ok(Self { directory, configured })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("copy")
    }

    fn git(&self, words: &[&str]) -> Result<String> {
        let configured = self.configured.iter().flat_map(|each| ["-c", each]);
        git(
            &self.path(),
            &configured.chain(words.iter().copied()).collect::<Vec<_>>(),
        )
    }

    /// Commits and tags a release in the copy; gives the tag.
    fn release(&self, version: &Version, check: impl Fn(&Path) -> Result<()>) -> Result<String> {
        let tag = format!("v{version}");
        let current = places::version(&self.path())?;
        if *version <= current {
            return Err(ReleaseError::NotGreater {
                asked: version.clone(),
                current,
            }
            .into());
        }
        if !self.git(&["tag", "--list", &tag])?.is_empty() {
            return Err(ReleaseError::TagIsThere(tag).into());
        }
        self.edit(&current, version)?;
        check(&self.path()).with_context(|| format!("checking what would be {tag}"))?;
        let message = format!("Release {version}");
        self.git(&["commit", "--quiet", "--all", "--message", &message])?;
        self.git(&["tag", "--annotate", "--message", &message, &tag])?;
        Ok(tag)
    }

    fn edit(&self, current: &Version, version: &Version) -> Result<()> {
        let root = self.path();
        let changelog = root.join(CHANGELOG);
        let text = std::fs::read_to_string(&changelog).context(CHANGELOG)?;
        let date = output(Command::new("date").args(["--utc", "+%F"]))?;
        std::fs::write(&changelog, changelog::released(&text, version, date.trim())?)?;
        places::set_version(&root, current, version)?;
        // In Cargo.lock only our own crates change.
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        output(
            Command::new(cargo)
                .current_dir(&root)
                .args(["update", "--quiet", "--workspace", "--offline"]),
        )?;
        Ok(())
    }
}

fn git(directory: &Path, words: &[&str]) -> Result<String> {
    let said = output(Command::new("git").current_dir(directory).args(words))?;
    Ok(said.trim_end().to_owned())
}

#[cfg(test)]
mod tests;
