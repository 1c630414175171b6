//! What a job says of itself: counts, progress, errors, changes, its end.

use std::borrow::Cow;
use std::ffi::OsString;
use std::path::PathBuf;

use elbow_file::{Errno, Protection, ShowName, Time};

use crate::clock::clock;
use crate::commit::{Failure, Refusal};
use crate::os_path;

/// Numbers of a job so far. Those marked *now* go up and down, the others only up.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Counts {
    /// Modifying operations acknowledged to the command.
    pub operations: u64,
    /// Modifying calls that reached the storage.
    pub storage_calls: u64,
    /// Operations that were merged into a call that was needed anyway.
    pub merged: u64,
    /// Objects created and removed again before the storage heard of them.
    pub cancelled: u64,
    /// Bytes written by the command.
    pub bytes_acknowledged: u64,
    /// Bytes written to the storage.
    pub bytes_written: u64,
    /// Bytes that went through the spill file.
    pub spilled_bytes: u64,
    /// Times that an object had work and the storage has all of it; more than the objects where one changed again later.
    pub objects_stored: u64,
    /// Now: objects that the storage does not have as they are, those under way included.
    pub objects_left: u64,
    /// Now: bytes written by the command that the storage does not have, in memory or spilled. What the command has
    /// overwritten, cut or removed before it was stored is not left any more.
    pub bytes_left: u64,
    /// Now: objects with work left.
    pub queued: u64,
    /// Now: actions under way.
    pub in_flight: u64,
    /// Now: bytes of written data in memory.
    pub memory_bytes: u64,
    /// Sum over time of the actions under way, in action-seconds, while there was work.
    pub in_flight_seconds: f64,
    /// Time while there was work ready, in seconds.
    pub busy_seconds: f64,
}

/// Whether a storage answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StorageProgress {
    /// Another number whenever something has come back from it, or the command has done something.
    pub answers: u64,
    /// Something is under way that waits for it.
    pub is_waiting: bool,
}

/// A background operation that failed.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DeferredError {
    /// What was tried: `create`, `write`, ...
    pub operation: Cow<'static, str>,
    /// On what, below the directory of the job.
    #[serde(with = "os_path")]
    pub path: PathBuf,
    /// What the storage answered.
    pub errno: i32,
    /// When, in seconds since 1970.
    pub unix_seconds: f64,
}

impl std::fmt::Display for DeferredError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let errno = std::io::Error::from_raw_os_error(self.errno);
        write!(f, "{} {}: {errno}", self.operation, self.path.shown())
    }
}

/// How a job ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// All of it is on the storage, under its own names.
    Committed,
    /// Nothing of it is left.
    RolledBack(Cause),
    /// Nothing of it is visible, but its staging area was kept.
    Kept(Cause, Kept),
}

/// What was kept of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The job's own staging directory.
    pub path: PathBuf,
    /// All that it made is there, and [`resume`](crate::resume()) can go on with it.
    pub is_whole: bool,
    /// Objects that could not be stored, or not whole, in the order of their paths.
    pub missing: Vec<PathBuf>,
    /// Where these were saved: [`restore`](crate::restore()) brings them back, before anything else can go on.
    pub saved: Option<PathBuf>,
    /// All of the job is there, and its own staging directory was never made.
    pub is_all_saved: bool,
}

/// What is kept of a job that cannot be committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// It is rolled back.
    #[default]
    Nothing,
    /// All that it made, if that is complete and only the storage has refused to publish it; else it is rolled back.
    Complete,
    /// Whatever it made, complete or not.
    Everything,
}

impl Keep {
    /// The same for a job that belongs to one that has committed: if anything is kept, then all.
    #[must_use]
    pub fn more(self) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Complete | Self::Everything => Self::Everything,
        }
    }
}

/// Why a job was rolled back.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Cause {
    /// It was asked for.
    Asked,
    /// Background operations failed.
    Deferred(Vec<DeferredError>),
    /// Old objects changed below the job: path and what differs.
    Conflict(#[serde(with = "os_path::pairs")] Vec<(PathBuf, String)>),
    /// It removes or moves directories that hold files of other jobs, running or kept: path and whose.
    OtherJobs(#[serde(with = "os_path::pairs")] Vec<(PathBuf, String)>),
    /// The storage failed while the commit was prepared.
    Storage(String),
}

/// What is said of a conflict that not even [`OnConflict::Overwrite`](crate::OnConflict::Overwrite) decides.
pub const NOT_WON: &str = "it was written to or replaced by somebody else, and the job has written only a part of it";

/// The same of a number that may be none of an error.
pub(crate) fn is_no_room(errno: i32) -> bool {
    [Errno::NOSPC, Errno::DQUOT]
        .iter()
        .any(|full| full.raw_os_error() == errno)
}

/// A disk, or a quota, is full.
pub(crate) fn is_out_of_space(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

impl Cause {
    /// The storage has refused something that it might do another time.
    pub(crate) fn is_of_the_storage(&self) -> bool {
        matches!(self, Self::Deferred(_) | Self::Storage(_))
    }

    /// Something is not there any more as it was seen.
    pub(crate) fn is_stale(&self) -> bool {
        let is_stale = |error: &DeferredError| error.errno == Errno::STALE.raw_os_error();
        matches!(self, Self::Deferred(errors) if errors.iter().any(is_stale))
    }

    /// Another attempt may end otherwise: there was no room.
    pub(crate) fn may_pass(&self) -> bool {
        let no_room = |error: &DeferredError| is_no_room(error.errno);
        matches!(self, Self::Deferred(errors) if errors.iter().all(no_room))
    }

    /// The same with what else was refused.
    pub(crate) fn beside(self, more: Vec<DeferredError>) -> Self {
        match self {
            Self::Deferred(mut errors) => {
                errors.extend(more);
                Self::Deferred(errors)
            }
            Self::Storage(message) => {
                let more = more.iter().map(ToString::to_string);
                Self::Storage([message].into_iter().chain(more).collect::<Vec<_>>().join("; "))
            }
            cause => cause,
        }
    }

    /// The same with what else failed then.
    pub(crate) fn and(self, failures: &[Failure]) -> Self {
        match (self, cause_of(failures, clock())) {
            (Self::Deferred(mut errors), Self::Deferred(more)) => {
                errors.extend(more);
                Self::Deferred(errors)
            }
            (Self::Storage(message), _) => {
                let more: Vec<String> = failures.iter().map(ToString::to_string).collect();
                Self::Storage(format!("{message}; {}", more.join(", ")))
            }
            (cause, _) => cause,
        }
    }

    /// What the storage answered, after what was tried.
    pub(crate) fn with(self, errno: Errno) -> Self {
        match self {
            Self::Storage(tried) => Self::Storage(format!("{tried}: {errno}")),
            cause => cause,
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let list = |all: Vec<String>| all.join(", ");
        match self {
            Self::Asked => f.write_str("it was asked for"),
            Self::Deferred(errors) => f.write_str(&list(errors.iter().map(ToString::to_string).collect())),
            Self::Conflict(found) | Self::OtherJobs(found) => {
                let each = found.iter().map(|(path, what)| format!("{} ({what})", path.shown()));
                f.write_str(&list(each.collect()))
            }
            Self::Storage(message) => f.write_str(message),
        }
    }
}

/// A job could not begin, end or be recovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A call on the staging area or the directory itself failed.
    #[error("{tried} {}: {errno}{}", path.shown(), advice(tried, *errno))]
    Storage {
        /// What was tried, so that the path can follow: `reading the attributes of`.
        tried: &'static str,
        /// What it was tried on: the directory of the job, or something below it.
        path: PathBuf,
        /// What the storage answered.
        errno: Errno,
    },
    /// Nothing that is staged in the directory could ever leave it.
    #[error(
        "{}: {} (chattr(1)), so that the hidden staging directory of a job could not be taken out of it again; name a directory below it, or ask its \
         owner for `chattr -{}`", path.shown(), protection_words(*protection).0, protection_words(*protection).1
    )]
    Protected {
        /// The directory of the job.
        path: PathBuf,
        /// What it is protected from.
        protection: Protection,
    },
    /// Written data cannot be spilled.
    #[error("{}: {source}; written data beyond the memory cannot go there, name another directory", path.shown())]
    Scratch {
        /// The scratch directory.
        path: PathBuf,
        /// What the system answered.
        source: std::io::Error,
    },
    /// A commit record or manifest could not be read.
    #[error("{}: {found}; nothing was changed", path.shown())]
    Damaged {
        /// The record or manifest, below the directory of the job.
        path: PathBuf,
        /// What was found in it.
        found: String,
    },
    /// A job that is to be dropped is not a kept one.
    #[error("{job}: {found}; nothing was dropped")]
    NotKept {
        /// The name that was given.
        job: String,
        /// What it is instead.
        found: String,
    },
    /// A job that is to go on cannot.
    #[error("{job}: {found}; nothing was changed")]
    NotWhole {
        /// The name that was given.
        job: String,
        /// What it is instead.
        found: String,
    },
    /// What was saved of a job cannot be restored.
    #[error("{}: {found}", path.shown())]
    NotSaved {
        /// The directory that it was saved in.
        path: PathBuf,
        /// What is wrong with it.
        found: String,
    },
    /// A job that is to be given up is none that is stuck.
    #[error("{job}: {found}; nothing was changed")]
    NotStuck {
        /// The name that was given.
        job: String,
        /// What it is instead.
        found: String,
    },
    /// The connection to the storage has ended before it said how the commit ended.
    #[error(
        "{}: the connection ended while the job was being committed; the far end finishes it if its commit record was written, and else rolls it back \
         (`elbow recover --show` says what is left)",
        directory.shown()
    )]
    Disconnected {
        /// The directory of the job.
        directory: PathBuf,
    },
    /// The connection to the storage has ended before the job did.
    #[error(
        "the connection ended before the job did; the machine there rolls the job back as soon as it notices, unless what served the job there has died, too"
    )]
    Parted,
    /// The job was not committed, and what it has staged could not be removed either.
    #[error("{cause}; {failed}")]
    NotRolledBack {
        /// Why it was to be rolled back.
        cause: Cause,
        /// Why that failed.
        failed: Box<JobError>,
    },
    /// The storage does not answer, and the job was left as it is.
    #[error("the storage has not answered for {seconds} s, and the job was left as it is")]
    Silent {
        /// For so long nothing has come back.
        seconds: u64,
    },
    /// The commit record is written but applying it failed; `elbow recover` finishes it.
    #[error(
        "the job is committed but {} of its steps failed ({first}); run `elbow recover {}` to finish it",
        failed, directory.shown()
    )]
    Unfinished {
        /// Number of failed steps.
        failed: usize,
        /// The first of them.
        first: String,
        /// The directory of the job.
        directory: PathBuf,
    },
}

/// What is tried when what a job has staged is removed.
pub(crate) const ROLLING_BACK: &str = "rolling back what was staged in";

/// A protection in words, and the letter of chattr(1).
fn protection_words(protection: Protection) -> (&'static str, char) {
    match protection {
        Protection::AppendOnly => ("append-only", 'a'),
        Protection::Immutable | Protection::None => ("immutable", 'i'),
    }
}

impl JobError {
    /// What the storage answered when something was tried on a path.
    pub(crate) fn storage(tried: &'static str, path: impl Into<PathBuf>) -> impl Fn(Errno) -> Self {
        let path = path.into();
        move |errno| Self::Storage {
            tried,
            path: path.clone(),
            errno,
        }
    }
}

fn advice(tried: &str, errno: Errno) -> &'static str {
    match errno {
        _ if tried == ROLLING_BACK => "",
        Errno::ACCESS | Errno::PERM => " (the directory of a job must be writable: its staging area is created in it)",
        Errno::ROFS => " (a job needs a writable file system)",
        _ => "",
    }
}

/// One changed name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened to it.
    pub kind: ChangeKind,
    /// The name, below the directory of the job; the old one of something removed.
    pub path: PathBuf,
    /// The old name of something renamed.
    pub from: Option<PathBuf>,
}

/// What a job did to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It is gone.
    Removed,
    /// It had another name.
    Renamed,
    /// Its content was written or cut.
    Written,
    /// Its mode, owner, times or extended attributes were set.
    Attributes,
}

/// Where an ending job is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// The numbers of the job at this moment.
    pub counts: Counts,
    /// How much is done of a phase that goes through a list; nothing of nothing in the others.
    pub steps: Steps,
}

/// Part of a list of steps, some of which copy bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// Steps that are done by now.
    pub done: u64,
    /// All steps, as far as they are known; never fewer than are done.
    pub total: u64,
    /// Bytes that are copied by now, of those that the steps copy.
    pub bytes_done: u64,
    /// All bytes to be copied.
    pub bytes_total: u64,
}

/// The steps of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Queued operations go to the storage.
    Draining,
    /// Old objects are compared with what the job saw of them.
    Checking,
    /// What the storage does not take is saved elsewhere.
    Saving,
    /// The storage makes them durable.
    Syncing,
    /// The commit record is applied.
    Publishing,
    /// What was staged is removed.
    RollingBack,
    /// What is no longer needed is removed.
    CleaningUp,
}

/// One job that `recover` found, and what became of it.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Recovered {
    /// Its staging directory's name.
    pub job: String,
    /// What has become of it.
    pub action: RecoverAction,
    /// The command that it ran, with its arguments; empty where no manifest tells.
    pub command: Vec<OsString>,
    /// A sentence for people.
    pub message: String,
}

/// What `recover` did with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoverAction {
    /// It had not committed: nothing of it is left.
    RolledBack,
    /// It had committed: all of it is there.
    Finished,
    /// It is alive: left alone.
    Running,
    /// It belongs to another host: left alone unless forced.
    Foreign,
    /// Its files could not be read: left alone.
    Damaged,
    /// Ending it failed: it is left as it was then, for another attempt.
    Failed,
    /// It is somebody else's, or nobody's: left alone, and not looked into.
    NotOurs,
    /// It failed and was kept for inspection: left alone until it is dropped by name.
    Kept,
    /// It had been kept, and was asked to go: nothing of it is left.
    Dropped,
}

/// Why a job whose steps were refused was rolled back.
pub(crate) fn cause_of(failures: &[Failure], now: Time) -> Cause {
    let unix_seconds = now.seconds as f64 + f64::from(now.nanoseconds) / 1e9;
    let changed = failures.iter().filter_map(|failure| match &failure.refusal {
        Refusal::Changed(how) => Some((failure.path.clone(), (*how).to_owned())),
        Refusal::Errno(_) => None,
    });
    let changed: Vec<_> = changed.collect();
    if !changed.is_empty() {
        return Cause::Conflict(changed);
    }
    let errors = failures.iter().filter_map(|failure| match failure.refusal {
        Refusal::Errno(errno) => Some(DeferredError {
            operation: failure.step.into(),
            path: failure.path.clone(),
            errno: errno.raw_os_error(),
            unix_seconds,
        }),
        Refusal::Changed(_) => None,
    });
    Cause::Deferred(errors.collect())
}
