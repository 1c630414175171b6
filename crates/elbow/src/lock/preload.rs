//! Finds a library of ours that a command is to load first.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use elbow_lock::Address;

/// The library `name`: where `variable` says, or beside this program.
#[allow(
    clippy::disallowed_methods,
    reason = "looks for a part of ourselves, not for storage of the user's"
)]
pub(super) fn library(name: &str, variable: &str) -> Result<PathBuf> {
    let candidates = match std::env::var_os(variable) {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let ourselves = std::env::current_exe().context("where is this program?")?;
            let directory = ourselves.parent().unwrap_or(Path::new("/"));
            // Installed; as cargo builds it, alone and for tests.
            ["../lib", "../lib/elbow", ".", "deps"]
                .map(|place| directory.join(place).join(name))
                .into()
        }
    };
    let found = candidates.iter().find_map(|path| std::fs::canonicalize(path).ok());
    let library = found.ok_or_else(|| {
        let list: Vec<_> = candidates.iter().map(|path| path.display().to_string()).collect();
        let list = list.join(", ");
        anyhow!("{name} is not there (looked for {list}); name it in {variable}")
    })?;
    let is_list = library.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte));
    ensure!(
        !is_list,
        "{}: the dynamic linker cannot preload a path with a space or a colon",
        library.display()
    );
    Ok(library)
}

/// The value of `LD_PRELOAD`: what is preloaded already stays, after ours.
pub(super) fn list(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// An address that holds in other directories too.
pub(super) fn absolute(address: &Address) -> Result<Address> {
    Ok(match address {
        Address::Unix(path) => Address::Unix(std::path::absolute(path)?),
        Address::Tcp(place) => Address::Tcp(place.clone()),
    })
}
