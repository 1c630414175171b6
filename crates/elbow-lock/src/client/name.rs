//! The name of a file for its locks.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::LockError;
use crate::message::FileName;

/// The name under which a file is locked: its absolute path without symbolic links, so that all who come to it by any
/// path agree. A file that does not exist yet gets the name that it will have. Hard links are different files.
///
/// ```
/// use elbow_lock::file_name;
///
/// assert_eq!(file_name("/tmp/../tmp/./not-there".as_ref())?.to_string(), "/tmp/not-there");
/// # Ok::<(), elbow_lock::LockError>(())
/// ```
///
/// # Errors
/// When the directory that it is in cannot be reached, or its path is too long.
pub fn file_name(path: &Path) -> Result<FileName, LockError> {
    let path = resolve(path).map_err(|source| LockError::BadPath {
        path: path.to_owned(),
        source,
    })?;
    let name = path.as_os_str().as_bytes();
    FileName::new(name).ok_or(LockError::BadName { bytes: name.len() })
}

#[allow(
    clippy::disallowed_methods,
    reason = "looks a path up and touches nothing; a client has no storage seam"
)]
fn resolve(path: &Path) -> io::Result<PathBuf> {
    match std::fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let name = path.file_name().ok_or(error)?;
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(std::fs::canonicalize(directory.unwrap_or(Path::new(".")))?.join(name))
        }
        resolved => resolved,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "makes what is looked at")]
    fn all_ways_to_a_file_give_one_name() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path(), &link).unwrap();
        let name = |path: &str| file_name(&directory.path().join(path)).unwrap();
        assert_eq!(name("link/f"), name("f"));
        assert_eq!(name("link/link/./f"), name("f"));
        assert_ne!(name("g"), name("f"));
        assert!(matches!(
            file_name(&directory.path().join("no/f")),
            Err(LockError::BadPath { .. })
        ));
    }
}
