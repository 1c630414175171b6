//! A trace to be read.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};

/// The file, or standard input where it is `-`.
#[allow(
    clippy::disallowed_methods,
    reason = "a trace is read once from front to back; it may be a pipe"
)]
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("cannot open the trace {}", path.display()))?;
    Ok(Box::new(file))
}
