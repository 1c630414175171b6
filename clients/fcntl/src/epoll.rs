//! What the thread that reads waits on: the sockets of sessions, whose replies or only whose end it is told of.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::errno::{Errno, check};

/// What the thread waits on; -1 while there is none.
pub(crate) static EPOLL: AtomicI32 = AtomicI32::new(-1);

/// Has a session's replies read, or only its end noticed, or what the service says of it.
pub(crate) fn watch(descriptor: c_int, replies: bool) {
    let _ = control(libc::EPOLL_CTL_MOD, descriptor, replies);
}

/// Adds a descriptor, changes what is told of it, or takes it out: epoll_ctl(2).
pub(crate) fn control(operation: c_int, descriptor: c_int, replies: bool) -> Result<(), Errno> {
    // What is left there for another process to read is told of once, when it comes.
    let once = if replies { 0 } else { libc::EPOLLET };
    let mut event = libc::epoll_event {
        events: (libc::EPOLLIN | libc::EPOLLRDHUP | once).cast_unsigned(),
        u64: u64::from(descriptor.cast_unsigned()),
    };
    #[allow(unsafe_code)]
    // SAFETY: the event is copied.
    let result = unsafe { libc::epoll_ctl(EPOLL.load(Ordering::Relaxed), operation, descriptor, &raw mut event) };
    check(result).map(|_| ())
}

/// Whether the other side has closed a connection, or we have ended the reading of it.
pub(crate) fn has_ended(descriptor: c_int) -> bool {
    let mut waits = libc::pollfd {
        fd: descriptor,
        events: libc::POLLRDHUP,
        revents: 0,
    };
    #[allow(unsafe_code)]
    // SAFETY: it is one, and nothing is waited for.
    let ready = unsafe { libc::poll(&raw mut waits, 1, 0) };
    ready == 1
}
