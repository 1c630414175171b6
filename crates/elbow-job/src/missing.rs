//! What is not there is no error where it was to go, or may have gone.

use elbow_file::{Errno, Handle, Storage};

/// What is gone already needs not be removed.
pub(crate) fn ignore_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// What is gone is none, and no error.
pub(crate) fn none_if_missing<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The same of a path in which something that is no directory stands for one: where the step that puts a directory there was not carried out.
pub(crate) fn none_if_no_path<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
        other => none_if_missing(other),
    }
}

/// Some file systems cannot sync a directory; they have nothing to lose then.
pub(crate) fn sync_dir(storage: &dyn Storage, dir: &Handle) -> Result<(), Errno> {
    match storage.sync(dir) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}
