//! `pcopy SOURCE TARGET`: copies a tree with many threads.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use elbow_testkit::pcopy::copy_tree;

/// Copies what is below SOURCE into the existing directory TARGET, with many threads.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// What to copy
    source: PathBuf,
    /// Where to
    target: PathBuf,
    /// How many operations are under way at once
    #[arg(long, default_value_t = 32)]
    threads: usize,
}

fn main() -> anyhow::Result<()> {
    rustix::process::umask(rustix::fs::Mode::empty()); // Files get their modes from their creation.
    let Arguments {
        source,
        target,
        threads,
    } = Arguments::parse();
    copy_tree(&source, &target, threads)
        .with_context(|| format!("copying {} to {}", source.display(), target.display()))
}
