//! Where a directory really is.

#![allow(clippy::disallowed_methods)] // a directory before there is a job

use std::path::{Path, PathBuf};

use crate::mount_error::{MountError, errno_of, unreachable};

/// The path of an existing directory, absolute and without symbolic links.
pub(crate) fn directory(path: &Path) -> Result<PathBuf, MountError> {
    let real = path
        .canonicalize()
        .map_err(|error| unreachable(path, errno_of(&error)))?;
    let stat = rustix::fs::stat(&real).map_err(|errno| unreachable(path, errno))?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        Ok(real)
    } else {
        Err(MountError::NotADirectory(path.to_owned()))
    }
}
