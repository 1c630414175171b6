//! Where the small things of a running mount can live: hidden mount points, control sockets.

use std::path::PathBuf;

/// Directories to try in turn, the best first: the user's runtime directory, that of the system, temporary ones.
/// Some of them may not exist or not be writable.
#[must_use]
pub fn runtime_parents() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from);
    let fixed = ["/run", "/tmp", "/var/tmp", "/dev/shm"].map(PathBuf::from);
    runtime.into_iter().chain([std::env::temp_dir()]).chain(fixed).collect()
}
