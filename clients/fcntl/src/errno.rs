//! Error numbers, and the last words on standard error.

use std::ffi::c_int;

/// Why a call fails, as C programs know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

/// The calling thread's errno.
pub(crate) fn get() -> c_int {
    #[allow(unsafe_code)]
    // SAFETY: it points to the calling thread's errno.
    unsafe {
        *libc::__errno_location()
    }
}

/// Sets the calling thread's errno.
pub(crate) fn set(number: c_int) {
    #[allow(unsafe_code)]
    // SAFETY: it points to the calling thread's errno.
    unsafe {
        *libc::__errno_location() = number;
    }
}

/// The errno that a system call has just set.
pub(crate) fn last() -> Errno {
    Errno(get())
}

/// Turns -1 into the errno.
pub(crate) fn check(result: c_int) -> Result<c_int, Errno> {
    if result == -1 { Err(last()) } else { Ok(result) }
}

/// A line on standard error, written at once.
pub(crate) fn say(message: &str) {
    let line = format!("elbow lock exec: process {}: {message}\n", std::process::id());
    #[allow(unsafe_code)]
    // SAFETY: the bytes are `line`'s. There is nowhere else to say it if this fails.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
    }
}
