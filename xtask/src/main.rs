//! `cargo xtask`: what the workspace checks about itself.
//!
//! ```text
//! cargo xtask tidy    the rules of the house that no compiler checks
//! cargo xtask count   figures of how the code is built: methods of a type, circles, repeated blocks and the like
//! cargo xtask ci      the whole gate: format, tidy, lints, licences, documentation, tests, a tiny bench
//! cargo xtask release [--dry-run] VERSION    a release: version, changelog, checks, commit and tag
//! cargo xtask differ  random system calls natively and in a job, compared; `cargo xtask differ --help` says more
//! ```
//!
//! `make test` and `.ci/run` call `ci`; there is no other gate. Only `release` changes files.

#![allow(clippy::disallowed_methods)] // it reads the workspace; there is no job here

mod ci;
mod count;
mod differ;
mod release;
mod rust_version;
mod structure;
mod tidy;
mod touched;
mod workspace;

use std::process::ExitCode;

use workspace::Workspace;

const USAGE: &str = "usage: cargo xtask tidy|count|ci|release|differ";

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let result = match task.as_deref() {
        // Who asks for help does not want the whole gate.
        Some("tidy" | "count" | "ci") if std::env::args_os().nth(2).is_some() => Err(anyhow::anyhow!(USAGE)),
        Some("tidy") => Workspace::read().and_then(|workspace| tidy::run(&workspace)),
        Some("count") => Workspace::read().and_then(|workspace| count::run(&workspace)),
        Some("ci") => Workspace::read().and_then(|workspace| ci::run(&workspace)),
        Some("release") => release::run(std::env::args_os().skip(2)),
        Some("differ") => return differ::run(std::env::args_os().skip(2)),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
