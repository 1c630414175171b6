//! Errors of the lock service as exceptions of `elbowroom._errors`.

use std::path::Path;

use elbow_lock::{BadCredentials, LockError, Refusal};
use elbow_ranges::PatternError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The exception that says the same.
pub(crate) fn exception(py: Python<'_>, error: &LockError) -> PyErr {
    let message = error.to_string();
    match class_name(error) {
        None => PyValueError::new_err(message),
        Some(name) => named(py, name, message),
    }
}

/// A key file, or a directory of certificates, that is none.
pub(crate) fn bad_credentials(path: &Path, error: BadCredentials) -> PyErr {
    match error {
        BadCredentials::Unreadable { source, .. } => source.into(),
        error => PyValueError::new_err(format!("{}: {error}", path.display())),
    }
}

/// A lock that is not ours, or not here.
pub(crate) fn lost(py: Python<'_>, message: &str) -> PyErr {
    named(py, "Lost", message.to_owned())
}

/// A footprint that is none.
pub(crate) fn bad_pattern(error: &PatternError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn class_name(error: &LockError) -> Option<&'static str> {
    Some(match error {
        LockError::BadAddress(_) | LockError::BadName { .. } | LockError::TooLong { .. } => return None,
        LockError::Unreachable { .. } => "Unreachable",
        LockError::Lost { .. } => "Lost",
        LockError::Refused { why, .. } => match why {
            Refusal::WouldBlock => "WouldBlock",
            Refusal::TimedOut => "TimedOut",
            Refusal::Deadlock { .. } => "Deadlock",
            _ => "LockError",
        },
        _ => "LockError",
    })
}

fn named(py: Python<'_>, name: &str, message: String) -> PyErr {
    let class = py.import("elbowroom._errors").and_then(|module| module.getattr(name));
    match class.and_then(|class| class.call1((message,))) {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}
