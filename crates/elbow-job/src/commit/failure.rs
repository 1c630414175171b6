//! A step of a commit that could not be done, and why.

use std::path::{Path, PathBuf};

use elbow_file::{Errno, ShowName};

/// Why a step could not be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The storage refused it.
    Errno(Errno),
    /// Somebody else has changed what it is about.
    Changed(&'static str),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// A step that could not be done.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) step: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) refusal: Refusal,
}

impl Failure {
    /// The record could not be marked as carried out.
    pub(crate) fn of_record(errno: Errno) -> Self {
        failure("finish the commit of", Path::new(""), errno)
    }

    /// Why, in words.
    pub(crate) fn reason(&self) -> String {
        match &self.refusal {
            Refusal::Errno(errno) => errno.to_string(),
            Refusal::Changed(how) => (*how).to_owned(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = match self.path.as_os_str().is_empty() {
            true => Path::new("."),
            false => &self.path,
        };
        write!(f, "{} {}: {}", self.step, path.shown(), self.reason())
    }
}

/// What became of a step.
pub(crate) type StepResult = Result<(), Refusal>;

/// Nothing, if nothing failed.
pub(crate) fn none_of(failures: Vec<Failure>) -> Result<(), Vec<Failure>> {
    if failures.is_empty() { Ok(()) } else { Err(failures) }
}

/// A step that the storage refused.
pub(crate) fn failure(step: &'static str, path: &Path, errno: Errno) -> Failure {
    Failure {
        step,
        path: path.to_owned(),
        refusal: Refusal::Errno(errno),
    }
}
