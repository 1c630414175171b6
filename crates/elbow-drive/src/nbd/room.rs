//! How much a client may have under way.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Requests of a client under way: more than any drive's queue.
const REQUESTS_MAX: usize = 256;
/// What those carry; one request may carry half of it.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct Room {
    /// Requests and bytes that are taken.
    taken: Mutex<(usize, u64)>,
    given_back: Condvar,
}

impl Room {
    fn taken(&self) -> MutexGuard<'_, (usize, u64)> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for one more request.
    pub(super) fn take(&self, bytes: u64) {
        let is_full = |taken: &mut (usize, u64)| taken.0 >= REQUESTS_MAX || taken.1 + bytes > BYTES_MAX;
        let taken = self.given_back.wait_while(self.taken(), is_full);
        let mut taken = taken.unwrap_or_else(PoisonError::into_inner);
        taken.0 += 1;
        taken.1 += bytes;
    }

    pub(super) fn give_back(&self, bytes: u64) {
        let mut taken = self.taken();
        taken.0 -= 1;
        taken.1 -= bytes;
        self.given_back.notify_one();
    }
}
