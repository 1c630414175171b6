//! Which clients of a proxy are dead, asked in one call to the kernel, however many there are.
//!
//! A process that has been waited for (waitpid(2)) has its sockets closed, but the task that serves it may not have run yet. Before somebody is told
//! that a lock is another's, that other is looked at here.
//!
//! Invariants: a socket is watched from before its first request until its session is closed.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use crate::message::SessionId;

/// Found dead at a time.
const FOUND_MAX: usize = 64;

/// The sockets of all clients.
#[derive(Debug)]
pub(super) struct ClientSockets(OwnedFd);

impl ClientSockets {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// From now on it is found when the other end of its socket is closed.
    pub(super) fn add(&self, client: SessionId, socket: BorrowedFd<'_>) {
        // That the other end is closed is told whatever is asked for (epoll_ctl(2)). Where it cannot be watched, its task sees it.
        let _ = epoll::add(&self.0, socket, EventData::new_u64(client.0), EventFlags::empty());
    }

    pub(super) fn remove(&self, socket: BorrowedFd<'_>) {
        // It may have gone by itself.
        let _ = epoll::delete(&self.0, socket);
    }

    /// Some whose sockets are closed, or have been shut down, at their ends; all of them when those are removed and this is called until it finds none.
    pub(super) fn gone(&self) -> Vec<SessionId> {
        let mut found = Vec::<Event>::with_capacity(FOUND_MAX);
        let at_once = Timespec::default();
        match epoll::wait(&self.0, rustix::buffer::spare_capacity(&mut found), Some(&at_once)) {
            Ok(_) => found.iter().map(|event| SessionId(event.data.u64())).collect(),
            Err(_) => Vec::new(),
        }
    }
}
