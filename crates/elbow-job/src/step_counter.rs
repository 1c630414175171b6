//! Steps of a phase, counted by the threads that do them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::report::Steps;

/// Steps of a phase, counted by the threads that do them.
#[derive(Debug, Default)]
pub(crate) struct StepCounter {
    steps: AtomicU64,
    bytes: AtomicU64,
    total: Steps,
}

impl StepCounter {
    /// Of so many steps, in which so many bytes are copied.
    pub(crate) fn of(steps: usize, bytes: u64) -> Self {
        let total = Steps {
            total: steps as u64,
            bytes_total: bytes,
            ..Steps::default()
        };
        Self {
            total,
            ..Self::default()
        }
    }

    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn copied(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// More may turn out to be done than was foreseen; it is never more than there is.
    pub(crate) fn so_far(&self) -> Steps {
        let (done, bytes_done) = (self.steps.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        Steps {
            done,
            total: self.total.total.max(done),
            bytes_done,
            bytes_total: self.total.bytes_total.max(bytes_done),
        }
    }
}
