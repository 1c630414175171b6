//! What belongs to one process, and what a child that it forked may do with its copy.
//!
//! A child has its parent's sockets open. It must not speak over them; and it should close them, because the lock
//! service takes a session for alive as long as anybody has its socket. Closing means dropping, and dropping takes the
//! session's mutex, which some thread of the parent may have held when it forked and which then nobody ever releases. So
//! the copy is dropped if no thread was at work at that moment, and leaked otherwise: then the parent's locks
//! may outlive it for as long as the child lives.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Threads of this process that may hold a mutex of a session.
static AT_WORK: AtomicUsize = AtomicUsize::new(0);
/// Whether none was when this process was forked.
static INHERITED_AT_REST: AtomicBool = AtomicBool::new(false);

/// A value of the process that made it.
pub(crate) struct ProcessLocal<T> {
    value: Option<T>,
    process: u32,
    /// A thread of its own renews its session's lease, unseen by us; and the lease ends the session in any case.
    has_lease: bool,
}

impl<T> ProcessLocal<T> {
    pub(crate) fn new(value: T, has_lease: bool) -> Self {
        Self {
            value: Some(value),
            process: std::process::id(),
            has_lease,
        }
    }

    /// The value, in its process.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.process == std::process::id())
    }

    /// The value, in its process.
    pub(crate) fn take(mut self) -> Option<T> {
        match self.process == std::process::id() {
            true => self.value.take(),
            false => None,
        }
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        let may_drop =
            self.process == std::process::id() || (!self.has_lease && INHERITED_AT_REST.load(Ordering::Relaxed));
        if let Some(value) = self.value.take()
            && !may_drop
        {
            std::mem::forget(value);
        }
    }
}

/// Calls into a session.
pub(crate) fn at_work<R>(call: impl FnOnce() -> R) -> R {
    struct Count;
    impl Drop for Count {
        fn drop(&mut self) {
            AT_WORK.fetch_sub(1, Ordering::Relaxed);
        }
    }
    AT_WORK.fetch_add(1, Ordering::Relaxed);
    let _count = Count;
    call()
}

/// To be called in a child right after it was forked.
#[pyo3::pyfunction]
pub(crate) fn forked() {
    let inherited = AT_WORK.swap(0, Ordering::Relaxed);
    INHERITED_AT_REST.store(inherited == 0, Ordering::Relaxed);
    crate::pending::forget_callers();
}
