//! The libraries that `elbow lock exec` and `elbow lock mpi` preload, and what a command under them said.

use std::path::{Path, PathBuf};
use std::process::Output;

/// Where a build of the workspace put a library. Without it a test is skipped, but where CI is set it fails.
pub(crate) fn library(name: &str) -> Option<PathBuf> {
    let elbow = Path::new(env!("CARGO_BIN_EXE_elbow"));
    let directory = elbow.parent().unwrap();
    let places = [directory.join(name), directory.join("deps").join(name)];
    let library = places.into_iter().find(|place| place.exists());
    if library.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{name} is not built");
        println!("SKIPPED: {name} is not built (cargo build --workspace)");
    }
    library
}

/// All that it printed.
pub(crate) fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
