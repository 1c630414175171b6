//! Keeps a log of all calls, for assertions on what happened and in which order.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use parking_lot::Mutex;

use super::{Call, Hook, Operation};
use crate::{Errno, Result};

/// One call that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// What was called.
    pub operation: Operation,
    /// The object that it was called on, where it was just before the call.
    pub path: PathBuf,
    /// See [`Call::other`].
    pub other: Option<OsString>,
    /// See [`Call::offset`].
    pub offset: u64,
    /// See [`Call::bytes`].
    pub bytes: u64,
    /// The error that came of it.
    pub errno: Option<Errno>,
    /// When it began, in the order of all beginnings and ends of calls.
    pub begun: u64,
    /// When it ended, in the same order.
    pub ended: u64,
}

impl Recorded {
    /// Whether this call was over when the other began.
    #[must_use]
    pub fn is_before(&self, other: &Self) -> bool {
        self.ended < other.begun
    }
}

impl fmt::Display for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.operation.name(), self.path.display())?;
        if let Some(other) = &self.other {
            write!(f, " {}", other.display())?;
        }
        if self.bytes > 0 {
            write!(f, " {}+{}", self.offset, self.bytes)?;
        }
        match self.errno {
            Some(errno) => write!(f, ": {errno}"),
            None => Ok(()),
        }
    }
}

/// Lets every call through and remembers it. The log has no bound: this is for tests.
///
/// ```
/// use std::ffi::OsStr;
/// use std::sync::Arc;
///
/// use elbow_file::double::{Interposed, Operation, Recording};
/// use elbow_file::{RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let storage = Interposed::new(Arc::new(RealStorage), Recording::default());
/// storage.mkdir(&root, OsStr::new("a"), 0o755)?;
/// storage.sync(&root)?;
///
/// let [made, synced] = &storage.hook().log()[..] else { panic!("two calls") };
/// assert!(made.path.ends_with("a") && made.is_before(synced));
/// assert_eq!(synced.operation, Operation::Sync);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Recording {
    clock: AtomicU64,
    log: Mutex<Vec<Recorded>>,
}

impl Recording {
    /// All calls that have ended, in the order in which they began.
    pub fn log(&self) -> Vec<Recorded> {
        let mut log = self.log.lock().clone();
        log.sort_by_key(|call| call.begun);
        log
    }

    /// The calls of one operation, in the order in which they began.
    pub fn calls(&self, operation: Operation) -> Vec<Recorded> {
        self.log()
            .into_iter()
            .filter(|call| call.operation == operation)
            .collect()
    }

    /// Forgets all calls so far.
    pub fn clear(&self) {
        self.log.lock().clear();
    }
}

impl Hook for Recording {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let path = call.path();
        let begun = self.clock.fetch_add(1, SeqCst);
        let result = make();
        let ended = self.clock.fetch_add(1, SeqCst);
        self.log.lock().push(Recorded {
            operation: call.operation,
            path,
            other: call.other.map(ToOwned::to_owned),
            offset: call.offset,
            bytes: call.bytes,
            errno: result.as_ref().err().copied(),
            begun,
            ended,
        });
        result
    }
}
