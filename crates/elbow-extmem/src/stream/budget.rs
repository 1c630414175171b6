//! One bound on the memory of many readers and writers.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::sort::{Result, SortError};

/// Bytes that all who share it may use together; cheap to clone.
///
/// ```
/// use elbow_extmem::stream::MemoryBudget;
///
/// let budget = MemoryBudget::new(100);
/// let half = budget.reserve(60)?;
/// assert!(budget.reserve(60).is_err());
/// drop(half);
/// assert_eq!(budget.left_bytes(), 100);
/// # Ok::<(), elbow_extmem::sort::SortError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    all: usize,
    used: Arc<Mutex<usize>>,
}

/// A part of a budget, given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: usize,
    used: Arc<Mutex<usize>>,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            all: bytes,
            used: Arc::default(),
        }
    }

    /// Takes a part of it.
    ///
    /// # Errors
    /// When less is left; the text says how much.
    pub fn reserve(&self, bytes: usize) -> Result<Reservation> {
        let mut used = self.used.lock();
        let left = self.all - *used;
        if bytes > left {
            return Err(SortError::Refused(format!(
                "{bytes} bytes of memory are needed, but only {left} of the budget of {} are left",
                self.all
            )));
        }
        *used += bytes;
        let used = self.used.clone();
        Ok(Reservation { bytes, used })
    }

    /// Bytes that nobody has taken.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        self.all - *self.used.lock()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *self.used.lock() -= self.bytes;
    }
}
