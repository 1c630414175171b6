//! An open file or directory, and what a call on it gives.

use std::any::Any;
use std::fmt;
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
    object: Object,
    closed: AtomicBool,
}

/// What stands for the open object.
enum Object {
    Descriptor(ManuallyDrop<OwnedFd>),
    /// It is open elsewhere, and closed there when this is dropped.
    Elsewhere(Box<dyn Any + Send + Sync>),
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(fd) => fd.fmt(f),
            Self::Elsewhere(_) => f.write_str("elsewhere"),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (Object::Descriptor(fd), false) = (&mut self.object, self.closed.load(Ordering::Acquire)) {
            // SAFETY: the descriptor was not taken before, and is not used after.
            #[allow(unsafe_code)]
            drop(unsafe { ManuallyDrop::take(fd) });
        }
    }
}

impl Handle {
    /// Takes over an open descriptor.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self::of(Object::Descriptor(ManuallyDrop::new(fd)))
    }

    /// Takes over what stands for an object that is open elsewhere, as on another machine; only the storage that made it knows what to
    /// do with it, and finds it again by [`Handle::elsewhere`]. Dropping it has to close the object there.
    #[must_use]
    pub fn of_elsewhere<T: Any + Send + Sync>(object: T) -> Self {
        Self::of(Object::Elsewhere(Box::new(object)))
    }

    fn of(object: Object) -> Self {
        Self(Arc::new(Inner {
            object,
            closed: AtomicBool::new(false),
        }))
    }

    /// Whether it is a descriptor of this machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        matches!(self.0.object, Object::Descriptor(_))
    }

    /// What [`Handle::of_elsewhere`] took over; `None` for a descriptor, and for what another storage has made.
    #[must_use]
    pub fn elsewhere<T: Any>(&self) -> Option<&T> {
        match &self.0.object {
            Object::Elsewhere(object) => object.downcast_ref(),
            Object::Descriptor(_) => None,
        }
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

    /// Whether what is open elsewhere is to be closed now: it was not closed before, and counts as closed from here on. Other clones of the
    /// handle are of no use then; a number that is used too late is an error there, and not another file, as it would be of a descriptor.
    #[must_use]
    pub fn begin_close(&self) -> bool {
        !self.0.closed.swap(true, Ordering::AcqRel)
    }

    /// Closes the descriptor and hears what close(2) says, if nobody else holds the handle.
    pub(crate) fn close(&self) -> Result<()> {
        let Object::Descriptor(fd) = &self.0.object else {
            return Err(Errno::BADF);
        };
        if Arc::strong_count(&self.0) > 1 || !self.begin_close() {
            return Ok(());
        }
        // SAFETY: this is the only clone, so nobody uses the descriptor any more; `closed` keeps `drop` from
        // closing it again and `as_fd` from handing it out.
        #[allow(unsafe_code)]
        unsafe {
            rustix::io::try_close(fd.as_raw_fd())
        }
    }
}

/// Of a handle that was closed, or of what is open elsewhere, there is no descriptor: that one is asked for is a mistake of the caller, who
/// has mixed up two storages, and a panic.
impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        assert!(
            !self.0.closed.load(Ordering::Acquire),
            "a handle is not used after it was closed"
        );
        match &self.0.object {
            Object::Descriptor(fd) => fd.as_fd(),
            Object::Elsewhere(_) => panic!("the handle of one storage was given to another"),
        }
    }
}
