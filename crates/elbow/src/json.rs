//! What is said to programs: JSON objects, one on a line, with the version of their fields; errors too.
//!
//! The fields are described in `docs/src/reference/json.md`, whose examples are compared with what is said.

use std::path::Path;
use std::process::ExitCode;

use elbow_extmem::sort::SortError;
use elbow_extmem::store::StoreError;
use elbow_file::{Errno, ShowName};
use elbow_job::JobError;
use elbow_mount::MountError;
use serde::{Deserialize, Serialize};

use crate::names::PathName;
use crate::output::{answer, sentence};
use crate::{errno_name, exit};

/// Grows when a field goes or gets another meaning; new fields do not count.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct Versioned<'a, T> {
    schema: u32,
    #[serde(flatten)]
    body: &'a T,
}

/// The object on one line.
pub(crate) fn line<T: Serialize>(body: &T) -> serde_json::Result<String> {
    serde_json::to_string(&Versioned { schema: SCHEMA, body })
}

/// What went wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Problem {
    message: String,
    errno: Option<i32>,
    errno_name: Option<String>,
    #[serde(flatten)]
    path: PathName,
}

impl Problem {
    /// An error about a path, unless the error knows better.
    pub(crate) fn of(error: &anyhow::Error, path: Option<&Path>) -> Self {
        let errno = error.chain().find_map(errno_in);
        let found = error
            .chain()
            .find_map(path_in)
            .filter(|found| *found != Path::new("."))
            .or(path);
        Self {
            message: sentence(error),
            errno,
            errno_name: errno.and_then(errno_name::of).map(str::to_owned),
            path: found.map(PathName::of).unwrap_or_default(),
        }
    }
}

fn errno_in(cause: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let of_system = || cause.downcast_ref::<std::io::Error>()?.raw_os_error();
    let of_call = || cause.downcast_ref::<Errno>().map(|errno| errno.raw_os_error());
    let of_mount = || Some(cause.downcast_ref::<MountError>()?.errno()?.raw_os_error());
    let of_job = || match cause.downcast_ref::<JobError>()? {
        JobError::Storage { errno, .. } => Some(errno.raw_os_error()),
        _ => None,
    };
    let of_sort = || match cause.downcast_ref::<SortError>()? {
        SortError::Storage { errno, .. } => Some(errno.raw_os_error()),
        _ => None,
    };
    let of_store = || match cause.downcast_ref::<StoreError>()? {
        StoreError::NoSpace { errno, .. } | StoreError::Io { errno, .. } => Some(errno.raw_os_error()),
        _ => None,
    };
    let of_words = || {
        cause
            .downcast_ref::<WordedError>()
            .map(|words| words.errno.raw_os_error())
    };
    of_system()
        .or_else(of_call)
        .or_else(of_mount)
        .or_else(of_job)
        .or_else(of_sort)
        .or_else(of_store)
        .or_else(of_words)
}

fn path_in<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Path> {
    let of_job = || match cause.downcast_ref::<JobError>()? {
        JobError::Storage { path, .. }
        | JobError::Damaged { path, .. }
        | JobError::Scratch { path, .. }
        | JobError::Protected { path, .. } => Some(&**path),
        JobError::Unfinished { directory, .. } => Some(&**directory),
        _ => None,
    };
    let of_sort = || match cause.downcast_ref::<SortError>()? {
        SortError::Storage { path, .. } => Some(&**path),
        _ => None,
    };
    cause
        .downcast_ref::<MountError>()
        .and_then(MountError::path)
        .or_else(of_job)
        .or_else(of_sort)
}

/// An error of the system in words of ours, which still knows its number.
#[derive(Debug)]
pub(crate) struct WordedError {
    pub(crate) message: String,
    pub(crate) errno: Errno,
}

impl std::fmt::Display for WordedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WordedError {}

impl WordedError {
    /// The system's own words about a path.
    pub(crate) fn of(path: &Path, errno: Errno) -> Self {
        let message = format!("{}: {}", path.shown(), std::io::Error::from(errno));
        Self { message, errno }
    }
}

/// The object of a command that failed.
#[derive(Serialize)]
pub(crate) struct Failed {
    error: Problem,
    exit_code: u8,
}

impl Failed {
    /// With the exit code for our own failures.
    pub(crate) fn of(error: &anyhow::Error, path: Option<&Path>) -> Self {
        Self {
            error: Problem::of(error, path),
            exit_code: exit::ELBOW_FAILED,
        }
    }
}

/// How a command ended, which may be about a path: with `--json` its error is its answer.
pub(crate) fn answered<'a>(
    json: bool,
    path: impl Into<Option<&'a Path>>,
    ended: anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    match ended {
        Err(error) if json => {
            answer(line(&Failed::of(&error, path.into()))?)?;
            Ok(ExitCode::from(exit::ELBOW_FAILED))
        }
        ended => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errno_of_a_full_disk_is_told_by_sorts_and_stores() {
        let sort = SortError::Storage {
            tried: "writing",
            path: "/scratch/run".into(),
            errno: Errno::NOSPC,
        };
        let store = StoreError::NoSpace {
            file: "/scratch/store".into(),
            what: "write block 1",
            errno: Errno::NOSPC,
        };
        let asked = Some(Path::new("/scratch"));
        let of_sort = Problem::of(&anyhow::Error::new(sort).context("sorting"), asked);
        let of_store = Problem::of(&store.into(), asked);
        assert_eq!(
            [of_sort.errno_name, of_store.errno_name],
            [Some("ENOSPC".to_owned()), Some("ENOSPC".to_owned())]
        );
        assert_eq!(of_sort.path, PathName::of(Path::new("/scratch/run")));
        assert_eq!(of_store.path, PathName::of(Path::new("/scratch")));
    }
}
