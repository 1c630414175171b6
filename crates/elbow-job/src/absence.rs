//! What is not there is no error where it was to go, or may have gone.

use elbow_file::Errno;

/// What is gone already needs not be removed.
pub(crate) fn gone_is_fine(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// What is gone is none, and no error.
pub(crate) fn gone_is_none<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}
