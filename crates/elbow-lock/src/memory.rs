//! What all locks, requests and unsent answers of a service take together, and the bound on it.
//!
//! ```text
//!   Memory (one of a service)  used <= bytes_max
//!     Room of a session     its locks, held and waiting: LOCK_BYTES each, and their lists
//!     Room of the files     of a shard: FILE_BYTES each, and their names
//!     Room of a connection  a long request that is not all there; answers that its client does not read
//! ```
//!
//! Whoever wants to grow asks [`Memory::has`] and refuses where there is none left; a [`Room`] notes what is taken, and gives it back when it is
//! dropped, so that nothing can be forgotten. Several shards that look at one time may together go past the bound by one request each.
//!
//! What a lock takes is counted as a number of bytes that was estimated once, not by the allocator: the core stays deterministic.
//!
//! Not here: who is refused, and with which words (`shard::limits`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory of one lock or request, in the table, its queue and its session, without its list: some 700 bytes in trees that are half full.
pub(crate) const LOCK_BYTES: usize = 768;
/// Memory of a file of which anything is locked, without its name.
pub(crate) const FILE_BYTES: usize = 3 << 10;

/// A bound on memory that many share. Clones are the same one.
///
/// ```
/// let memory = elbow_lock::Memory::new(1 << 30);
/// assert_eq!((memory.used_bytes(), memory.bytes_max()), (0, 1 << 30));
/// ```
#[derive(Clone, Debug)]
pub struct Memory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes_max: usize,
    used: AtomicUsize,
}

impl Memory {
    /// Nothing is taken yet of so many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        let used = AtomicUsize::new(0);
        Self(Arc::new(Inner { bytes_max, used }))
    }

    /// The bound.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.0.bytes_max
    }

    /// What is taken.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Whether there is room for so much more.
    pub(crate) fn has(&self, bytes: usize) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.0.bytes_max
    }

    /// Room that is empty at first.
    pub(crate) fn room(&self) -> Room {
        Room {
            memory: self.clone(),
            bytes: 0,
        }
    }
}

/// A part of a [`Memory`] that is taken; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Room {
    memory: Memory,
    bytes: usize,
}

impl Room {
    /// Takes so much in all, more or less than before; whether there is room is asked before.
    pub(crate) fn set(&mut self, bytes: usize) {
        let used = &self.memory.0.used;
        if bytes > self.bytes {
            used.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }

    /// Takes so much in all if there is room.
    #[cfg(feature = "server")]
    pub(crate) fn grow_to(&mut self, bytes: usize) -> bool {
        let is_room = bytes <= self.bytes || self.memory.has(bytes - self.bytes);
        if is_room {
            self.set(bytes.max(self.bytes));
        }
        is_room
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_given_back() {
        let memory = Memory::new(100);
        let (mut a, mut b) = (memory.room(), memory.room());
        a.set(60);
        assert!(memory.has(40) && !memory.has(41));
        b.set(30);
        a.set(20);
        assert_eq!((memory.used_bytes(), a.bytes(), b.bytes()), (50, 20, 30));
        drop(a);
        drop(b);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[cfg(feature = "server")]
    #[test]
    fn a_room_grows_as_long_as_there_is_room() {
        let memory = Memory::new(100);
        let mut room = memory.room();
        assert!(room.grow_to(100) && !room.grow_to(101));
        assert!(room.grow_to(50), "it has that already");
        assert_eq!(room.bytes(), 100);
    }
}
