//! How much a client may have under way, and all clients of a drive together.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Requests of a client under way: more than any drive's queue.
const REQUESTS_MAX: usize = 256;
/// What those carry; one request may carry half of it.
const BYTES_MAX: u64 = 64 << 20;

/// What those of all clients carry; more than one client's.
const SHARED_BYTES_MAX: u64 = 256 << 20;

/// What all clients of a drive have under way, in bytes.
#[derive(Debug, Default)]
pub(super) struct SharedRoom {
    taken: Mutex<u64>,
    given_back: Condvar,
}

impl SharedRoom {
    fn take(&self, bytes: u64) {
        let is_full = |taken: &mut u64| *taken + bytes > SHARED_BYTES_MAX;
        let taken = self.given_back.wait_while(lock(&self.taken), is_full);
        *taken.unwrap_or_else(PoisonError::into_inner) += bytes;
    }

    fn give_back(&self, bytes: u64) {
        *lock(&self.taken) -= bytes;
        // One may be too large for what has become free where another is not.
        self.given_back.notify_all();
    }
}

/// What one client has under way. Dropping it gives back what requests without an answer have taken.
#[derive(Debug)]
pub(super) struct Room {
    shared: Arc<SharedRoom>,
    /// Requests and bytes that are taken.
    taken: Mutex<(usize, u64)>,
    given_back: Condvar,
}

impl Room {
    pub(super) fn within(shared: Arc<SharedRoom>) -> Self {
        Self {
            shared,
            taken: Mutex::default(),
            given_back: Condvar::new(),
        }
    }

    /// Waits until there is room for one more request.
    pub(super) fn take(&self, bytes: u64) {
        let is_full = |taken: &mut (usize, u64)| taken.0 >= REQUESTS_MAX || taken.1 + bytes > BYTES_MAX;
        let taken = self.given_back.wait_while(lock(&self.taken), is_full);
        drop(taken);
        // Only its own client takes: what is free here stays free meanwhile.
        self.shared.take(bytes);
        let mut taken = lock(&self.taken);
        taken.0 += 1;
        taken.1 += bytes;
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.shared.give_back(bytes);
        let mut taken = lock(&self.taken);
        taken.0 -= 1;
        taken.1 -= bytes;
        self.given_back.notify_one();
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let bytes = lock(&self.taken).1;
        self.shared.give_back(bytes);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn all_clients_together_have_a_bound() {
        let shared = Arc::new(SharedRoom::default());
        let rooms: Vec<Room> = (0..4).map(|_| Room::within(Arc::clone(&shared))).collect();
        rooms.iter().for_each(|room| room.take(BYTES_MAX));
        let is_given_back = AtomicBool::new(false);
        let next = Room::within(Arc::clone(&shared));
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| {
                next.take(1);
                assert!(is_given_back.load(Ordering::SeqCst), "there was no room");
            });
            // Where there is no bound it has passed by then, as a rule.
            (0..1000).for_each(|_| std::thread::yield_now());
            is_given_back.store(true, Ordering::SeqCst);
            drop(rooms); // Clients that went in the middle of a request.
            taker.join().expect("it waited, and went on");
        });
        drop(next);
        assert_eq!(*lock(&shared.taken), 0);
    }
}
