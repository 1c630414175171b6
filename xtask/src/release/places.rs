//! The places where the version stands. `cargo xtask tidy` checks that there are no others, and that they agree (`tidy/versions.rs`).

use std::path::Path;

use anyhow::{Context, Result};
use semver::Version;
use toml::Table;

const MANIFEST: &str = "Cargo.toml";
/// Its examples are of this version.
const JSON: &str = "docs/src/reference/json.md";

/// The version of a workspace.
pub(super) fn version(root: &Path) -> Result<Version> {
    let text = std::fs::read_to_string(root.join(MANIFEST)).context(MANIFEST)?;
    let manifest: Table = text.parse().context(MANIFEST)?;
    let version = || manifest.get("workspace")?.get("package")?.get("version")?.as_str();
    Ok(version().context("no `version` in [workspace.package]")?.parse()?)
}

/// Writes another version to all places but `Cargo.lock`, which is cargo's.
pub(super) fn set_version(root: &Path, current: &Version, next: &Version) -> Result<()> {
    let edit = |file: &str, edited: fn(&str, &Version, &Version) -> String| {
        let path = root.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| file.to_owned())?;
        std::fs::write(&path, edited(&text, current, next)).with_context(|| file.to_owned())
    };
    edit(MANIFEST, in_manifest)?;
    edit(JSON, in_json)
}

/// In `[workspace.package]`, and behind the names of our crates.
fn in_manifest(text: &str, current: &Version, next: &Version) -> String {
    let (old, new) = (format!("version = \"{current}\""), format!("version = \"{next}\""));
    let is_ours = |line: &str| line.trim_end() == old || line.starts_with("elbow-");
    let lines = text.split_inclusive('\n');
    lines
        .map(|line| {
            if is_ours(line) {
                line.replace(&old, &new)
            } else {
                line.to_owned()
            }
        })
        .collect()
}

fn in_json(text: &str, current: &Version, next: &Version) -> String {
    text.replace(&format!("\"elbow\": \"{current}\""), &format!("\"elbow\": \"{next}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_versions_change() {
        let text = "[workspace.package]\nversion = \"0.1.0\"\n[workspace.dependencies]\nelbow-a = { path = \"a\", version = \"0.1.0\" }\n\
            other = { version = \"0.1.0\" }\nthird = \"0.1.0\"\n";
        let expected = text.replacen("0.1.0", "0.2.0", 2);
        assert_eq!(
            in_manifest(text, &Version::new(0, 1, 0), &Version::new(0, 2, 0)),
            expected
        );
    }
}
