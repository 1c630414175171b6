//! `cargo xtask tidy`: the rules of the house that no compiler checks.
//!
//! Each rule is a module with a pure function from what it looks at to *findings*: lines that say where, what
//! is wrong and what to do. All rules run, all findings are printed, and one finding fails the task.

mod book;
mod circles;
mod floors;
mod links;
mod manifests;
mod promises;
mod sources;
mod versions;

use anyhow::{Result, ensure};

use crate::workspace::Workspace;

/// Runs every rule over the workspace.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut findings = floors::check(&workspace.crates);
    for member in &workspace.crates {
        let manifest = std::fs::read_to_string(&member.manifest_path)?;
        findings.extend(manifests::check(&member.name, &manifest));
    }
    findings.extend(circles::check(workspace)?);
    findings.extend(book::check(workspace)?);
    findings.extend(sources::check(workspace)?);
    findings.extend(promises::check(workspace)?);
    findings.extend(links::check(workspace)?);
    findings.extend(versions::check(workspace)?);

    findings.iter().for_each(|finding| eprintln!("tidy: {finding}"));
    ensure!(findings.is_empty(), "{} finding(s)", findings.len());
    println!(
        "tidy: {} crates, {} files, nothing to say",
        workspace.crates.len(),
        workspace.files.len()
    );
    Ok(())
}
