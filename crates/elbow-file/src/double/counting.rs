//! Counts what reaches the storage.

use std::array;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Call, Hook, Operation};
use crate::Result;

const OPERATIONS: usize = Operation::ALL.len();

/// Lets every call through and counts it, whatever comes of it.
///
/// ```
/// use std::sync::Arc;
///
/// use elbow_file::double::{Counting, Interposed};
/// use elbow_file::{RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let storage = Interposed::new(Arc::new(RealStorage), Counting::default());
/// storage.list(&root)?;
/// storage.list(&root)?;
/// assert_eq!(storage.hook().counts().into_iter().collect::<Vec<_>>(), [("list", 2)]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Counting {
    calls: [AtomicU64; OPERATIONS],
    bytes: [AtomicU64; OPERATIONS],
}

impl Default for Counting {
    fn default() -> Self {
        let zeros = || array::from_fn(|_| AtomicU64::new(0));
        Self {
            calls: zeros(),
            bytes: zeros(),
        }
    }
}

impl Counting {
    /// Calls of one operation so far.
    pub fn count(&self, operation: Operation) -> u64 {
        self.calls[operation as usize].load(Relaxed)
    }

    /// Bytes that calls of one operation were about: for writes those given, for reads those asked for.
    pub fn bytes(&self, operation: Operation) -> u64 {
        self.bytes[operation as usize].load(Relaxed)
    }

    /// All calls so far.
    pub fn total(&self) -> u64 {
        Operation::ALL.iter().map(|&operation| self.count(operation)).sum()
    }

    /// Method name to number of calls, without those never called.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let counts = Operation::ALL
            .iter()
            .map(|&operation| (operation.name(), self.count(operation)));
        counts.filter(|&(_, count)| count > 0).collect()
    }
}

impl Hook for Counting {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.calls[call.operation as usize].fetch_add(1, Relaxed);
        self.bytes[call.operation as usize].fetch_add(call.bytes, Relaxed);
        make()
    }
}
