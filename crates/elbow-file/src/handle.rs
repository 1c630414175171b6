//! An open file or directory, and what a call on it gives.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use rustix::io::Errno;

/// What a storage call gives: its value or the errno of the system call.
pub type Result<T> = std::result::Result<T, Errno>;

/// An open directory or file; cheap to clone, closed with its last clone, or by [`Storage::close`](crate::Storage::close).
#[derive(Clone, Debug)]
pub struct Handle(Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    fd: ManuallyDrop<OwnedFd>,
    closed: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire) {
            // SAFETY: the descriptor was not taken before, and is not used after.
            #[allow(unsafe_code)]
            drop(unsafe { ManuallyDrop::take(&mut self.fd) });
        }
    }
}

impl Handle {
    /// Takes over an open descriptor.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self(Arc::new(Inner {
            fd: ManuallyDrop::new(fd),
            closed: AtomicBool::new(false),
        }))
    }

    /// Uses a descriptor of somebody else's as a handle for the time of a call, which must not keep a clone.
    pub(crate) fn lent<R>(fd: BorrowedFd<'_>, use_it: impl FnOnce(&Self) -> R) -> R {
        struct GiveBack(Handle);
        impl Drop for GiveBack {
            fn drop(&mut self) {
                self.0.0.closed.store(true, Ordering::Release);
            }
        }
        // SAFETY: the descriptor is open for as long as `fd` is borrowed. It is never dropped as ours: it sits in a
        // `ManuallyDrop`, and `closed` says that there is nothing to close, whichever way the call is left.
        #[allow(unsafe_code)]
        let lent = GiveBack(Self::new(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) }));
        use_it(&lent.0)
    }

    /// Closes the descriptor and hears what close(2) says, if nobody else holds the handle.
    pub(crate) fn close(&self) -> Result<()> {
        if Arc::strong_count(&self.0) > 1 || self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: this is the only clone, so nobody uses the descriptor any more; `closed` keeps `drop` from
        // closing it again and `as_fd` from handing it out.
        #[allow(unsafe_code)]
        unsafe {
            rustix::io::try_close(self.0.fd.as_raw_fd())
        }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        assert!(
            !self.0.closed.load(Ordering::Acquire),
            "a handle is not used after it was closed"
        );
        self.0.fd.as_fd()
    }
}
