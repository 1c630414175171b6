//! The Rust that we say is enough is enough for all that we depend on.
//!
//! For our own sources `clippy::incompatible_msrv` compares what they call with `rust-version`; no lint looks at the
//! crates in `Cargo.lock`. Where rustup has a toolchain of that age, the gate builds with it, too.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use toml::Table;

use crate::workspace::{Workspace, output};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    /// `None` for those of the workspace.
    source: Option<String>,
    rust_version: Option<String>,
}

/// Finds the dependencies that need a newer Rust than the workspace says.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let json = output(Command::new(cargo).current_dir(&workspace.root).args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
    ]))?;
    let metadata: Metadata = serde_json::from_str(&json).context("what `cargo metadata` printed")?;
    let newer = newer(&metadata.packages);
    ensure!(
        newer.is_empty(),
        "need a newer Rust than `rust-version`: {}",
        newer.join(", ")
    );
    Ok(())
}

/// What the workspace says is enough, as `1.88`.
pub(crate) fn stated(workspace: &Workspace) -> Result<String> {
    let manifest: Table = workspace.text(Path::new("Cargo.toml"))?.parse().context("Cargo.toml")?;
    let stated = || manifest.get("workspace")?.get("package")?.get("rust-version")?.as_str();
    Ok(stated().context("no `rust-version` in [workspace.package]")?.to_owned())
}

/// The toolchain of rustup that is this version, if it has one, or if there is a rustup.
pub(crate) fn installed(version: &str) -> Result<Option<String>> {
    let listed = Command::new("rustup").args(["toolchain", "list"]).output();
    match listed {
        Ok(listed) => Ok(of_version(&String::from_utf8_lossy(&listed.stdout), version)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("rustup"),
    }
}

fn of_version(listed: &str, version: &str) -> Option<String> {
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    let is_it = |name: &&str| {
        let rest = name.strip_prefix(version);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    names.into_iter().find(is_it).map(str::to_owned)
}

/// Each with its version and what it needs.
fn newer(packages: &[Package]) -> Vec<String> {
    let (others, ours): (Vec<&Package>, Vec<&Package>) = packages.iter().partition(|package| package.source.is_some());
    let enough = ours
        .iter()
        .filter_map(|package| needs(package))
        .min()
        .unwrap_or_default();
    others
        .into_iter()
        .filter_map(|package| {
            let needed = package
                .rust_version
                .as_ref()
                .filter(|_| needs(package) > Some(enough))?;
            Some(format!("{} {} ({needed})", package.name, package.version))
        })
        .collect()
}

/// Major and minor version of Rust; a patch does not bring anything that is called.
fn needs(package: &Package) -> Option<(u32, u32)> {
    let mut parts = package.rust_version.as_ref()?.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next().and_then(Result::ok).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, source: Option<&str>, rust_version: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            source: source.map(str::to_owned),
            rust_version: rust_version.map(str::to_owned),
        }
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_found() {
        let packages = [
            package("ours", None, Some("1.88")),
            package("old", Some("registry"), Some("1.56.1")),
            package("same", Some("registry"), Some("1.88.1")),
            package("silent", Some("registry"), None),
            package("new", Some("registry"), Some("1.90.0")),
        ];
        assert_eq!(newer(&packages), ["new 1.0.0 (1.90.0)"]);
    }

    #[test]
    fn a_toolchain_of_the_version_is_found() {
        let listed =
            "stable-x86_64-unknown-linux-gnu (active, default)\n1.8-x\n1.88.0-x86_64-unknown-linux-gnu\n1.95.0-x\n";
        assert_eq!(
            of_version(listed, "1.88").as_deref(),
            Some("1.88.0-x86_64-unknown-linux-gnu")
        );
        assert_eq!(of_version(listed, "1.9"), None);
        assert_eq!(of_version("no installed toolchains\n", "1.88"), None);
    }
}
