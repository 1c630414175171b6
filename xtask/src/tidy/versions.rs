//! The version stands in the workspace's `Cargo.toml`, and all that states it elsewhere agrees.
//!
//! Crates take it from there, the Python package by maturin, the Makefile and the scripts of packages by reading that line, `elbow` and
//! the libraries for C when they are built. What is left: the versions by which crates name each other, which cargo wants
//! beside their paths; examples in the documentation; and the changelog. `cargo xtask release` writes them.

use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::workspace::Workspace;

const EXAMPLES: &str = "docs/src/reference/json.md";
const CHANGELOG: &str = "CHANGELOG.md";
const PYTHON: &str = "clients/python/pyproject.toml";

/// The findings about versions.
pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let text = |file: &str| workspace.text(Path::new(file));
    let manifest: Table = text("Cargo.toml")?.parse().context("Cargo.toml")?;
    let version = || manifest.get("workspace")?.get("package")?.get("version")?.as_str();
    let version = version().context("no version in Cargo.toml")?;
    let mut findings = of_dependencies(&manifest, version);
    for member in &workspace.crates {
        let manifest = std::fs::read_to_string(&member.manifest_path)?;
        findings.extend(of_member(&member.name, &manifest.parse().context("a Cargo.toml")?));
    }
    findings.extend(of_examples(&text(EXAMPLES)?, version));
    findings.extend(of_changelog(&text(CHANGELOG)?, version));
    findings.extend(of_python(&text(PYTHON)?.parse().context(PYTHON)?));
    Ok(findings)
}

/// In the workspace's manifest.
fn of_dependencies(manifest: &Table, version: &str) -> Vec<String> {
    let dependencies = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"));
    let ours = dependencies
        .and_then(Value::as_table)
        .into_iter()
        .flatten()
        .filter(|(name, _)| is_ours(name));
    let others = ours.filter(|(_, value)| value.get("version").and_then(Value::as_str) != Some(version));
    others
        .map(|(name, _)| format!("Cargo.toml: write `version = \"{version}\"` for {name}"))
        .collect()
}

fn is_ours(name: &str) -> bool {
    name.starts_with("elbow-")
}

/// In the manifest of a crate.
fn of_member(name: &str, manifest: &Table) -> Vec<String> {
    let tables = ["dependencies", "dev-dependencies", "build-dependencies"];
    let dependencies = tables
        .iter()
        .filter_map(|table| manifest.get(*table)?.as_table())
        .flatten();
    let own = dependencies.filter(|(other, value)| is_ours(other) && value.get("version").is_some());
    own.map(|(other, _)| format!("{name}: take {other} from the workspace, with its version"))
        .collect()
}

fn of_examples(text: &str, version: &str) -> Vec<String> {
    let stated = text
        .split("\"elbow\": \"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next());
    let others = stated.filter(|stated| *stated != version);
    others
        .map(|stated| format!("{EXAMPLES}: an example of {stated}; this is {version}"))
        .collect()
}

/// What was released last is what this is.
fn of_changelog(text: &str, version: &str) -> Option<String> {
    let headings = text
        .lines()
        .filter_map(|line| line.strip_prefix("## [")?.split(']').next());
    let last = headings.into_iter().find(|heading| *heading != "Unreleased")?;
    (last != version).then(|| format!("{CHANGELOG}: {last} was released last; this is {version}"))
}

fn of_python(manifest: &Table) -> Option<String> {
    let stated = manifest
        .get("project")
        .and_then(|project| project.get("version"))
        .is_some();
    stated.then(|| format!("{PYTHON}: write `dynamic = [\"version\"]`: maturin takes it from Cargo.toml"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().expect("a table")
    }

    #[test]
    fn places_that_agree_pass() {
        let manifest =
            table("[workspace.dependencies]\nelbow-a = { path = \"a\", version = \"0.2.0\" }\nother = \"1\"\n");
        assert!(of_dependencies(&manifest, "0.2.0").is_empty());
        let member = table(
            "[dependencies]\nelbow-a.workspace = true\nother = \"1\"\n[dev-dependencies]\nelbow-b = { path = \"b\" }\n",
        );
        assert!(of_member("c", &member).is_empty());
        assert!(of_examples("{ \"elbow\": \"0.2.0\" }", "0.2.0").is_empty());
        assert_eq!(
            of_changelog("## [Unreleased]\n## [0.2.0] - x\n## [0.1.0] - y\n", "0.2.0"),
            None
        );
        assert_eq!(of_changelog("## [Unreleased]\n", "0.2.0"), None);
        assert_eq!(of_python(&table("[project]\ndynamic = [\"version\"]\n")), None);
    }

    #[test]
    fn each_place_that_does_not_is_found() {
        let manifest =
            table("[workspace.dependencies]\nelbow-a = { version = \"0.1.0\" }\nelbow-b = { path = \"b\" }\n");
        assert_eq!(of_dependencies(&manifest, "0.2.0").len(), 2);
        let member = table("[dependencies]\nelbow-a = { path = \"a\", version = \"0.2.0\" }\n");
        assert_eq!(
            of_member("c", &member),
            ["c: take elbow-a from the workspace, with its version"]
        );
        assert_eq!(of_examples("{ \"elbow\": \"0.1.0\" }", "0.2.0").len(), 1);
        assert!(of_changelog("## [Unreleased]\n## [0.1.0] - y\n", "0.2.0").is_some());
        assert!(of_python(&table("[project]\nversion = \"0.2.0\"\n")).is_some());
    }
}
