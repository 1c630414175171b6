//! A session that is open, as all who answer it know it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ahash::AHashMap;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::outbox::Outbox;
use crate::memory::Memory;
use crate::message::{LockId, SessionId};

/// The number of a shard.
pub(super) type ShardIndex = usize;

/// Of a map of fewer names than this, the room is kept.
const PLACES_KEPT: usize = 1 << 10;

/// A session that is open.
#[derive(Debug)]
pub(crate) struct ServerSession {
    pub(crate) id: SessionId,
    /// For people.
    pub(crate) name: String,
    pub(crate) opened_ms: u64,
    pub(crate) outbox: Outbox,
    /// In which shard a lock is, for requests that name only the lock.
    pub(super) places: Mutex<AHashMap<LockId, ShardIndex>>,
    /// Whether it ends when nothing is heard of it.
    pub(crate) has_lease: bool,
    /// Whose process it is, by the kernel's word; nobody's known, over TCP.
    pub(crate) uid: Option<u32>,
    /// Somebody else has ended it, and its client may not know.
    is_broken: AtomicBool,
    /// It ends with this connection.
    socket: OnceLock<OwnedFd>,
}

impl ServerSession {
    pub(crate) fn new(
        id: SessionId,
        name: String,
        opened_ms: u64,
        has_lease: bool,
        uid: Option<u32>,
        memory: &Memory,
    ) -> Arc<Self> {
        let (outbox, places) = (Outbox::new(memory), Mutex::default());
        Arc::new(Self {
            id,
            name,
            opened_ms,
            outbox,
            places,
            has_lease,
            uid,
            is_broken: AtomicBool::new(false),
            socket: OnceLock::new(),
        })
    }

    /// Names that are free again; where the last of them was.
    pub(super) fn forget(&self, ids: &[LockId]) -> Option<ShardIndex> {
        if ids.is_empty() {
            return None;
        }
        let mut places = self.places.lock();
        let last = ids.iter().fold(None, |_, id| places.remove(id));
        if places.capacity() > PLACES_KEPT && places.len() < places.capacity() / 8 {
            let twice = 2 * places.len();
            places.shrink_to(twice);
        }
        last
    }

    /// Somebody else ends it. False: that has happened already.
    pub(super) fn end_from_outside(&self) -> bool {
        !self.is_broken.swap(true, Ordering::AcqRel)
    }

    /// Whether somebody else has ended it: its client has yet to say that it uses its locks no more.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Its locks are no more when the other end of this is closed.
    pub(crate) fn ends_with(&self, socket: OwnedFd) {
        // A session has one connection.
        let _ = self.socket.set(socket);
    }

    /// By which the kernel says whether it is alive, where it does.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.get().map(AsFd::as_fd)
    }

    /// Has its process closed the connection, or died? Whoever serves it may not have seen that yet.
    pub(super) fn is_closed_by_client(&self) -> bool {
        self.socket.get().is_some_and(|socket| {
            let mut polled = [PollFd::new(socket, PollFlags::empty())];
            poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().contains(PollFlags::HUP)
        })
    }
}
