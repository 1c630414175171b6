//! Error numbers, and the last words on standard error.

use std::ffi::c_int;
use std::time::{Duration, Instant};

/// A pipe that is ready takes so many bytes at once (pipe(7)).
const READY_BYTES: usize = 4096;

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
pub(crate) fn warn(message: &str) {
    write(line(message).as_bytes());
}

/// As [`warn`], but what standard error does not take within this time is not said: its reader may be stopped.
pub(crate) fn warn_within(message: &str, time: Duration) {
    let until = Instant::now() + time;
    for part in line(message).as_bytes().chunks(READY_BYTES) {
        if !can_be_written(until) {
            return;
        }
        write(part);
    }
}

fn line(message: &str) -> String {
    format!("elbow lock exec: process {}: {message}\n", std::process::id())
}

fn write(bytes: &[u8]) {
    #[allow(unsafe_code)]
    // SAFETY: the bytes are as many as we say. There is nowhere else to say it if this fails.
    unsafe {
        libc::write(libc::STDERR_FILENO, bytes.as_ptr().cast(), bytes.len());
    }
}

/// Waits for standard error, but not longer.
fn can_be_written(until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut waits = libc::pollfd {
            fd: libc::STDERR_FILENO,
            events: libc::POLLOUT,
            revents: 0,
        };
        #[allow(unsafe_code)]
        // SAFETY: it is one.
        let ready = unsafe {
            libc::poll(
                &raw mut waits,
                1,
                c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX),
            )
        };
        if ready != -1 || last() != Errno(libc::EINTR) || left.is_zero() {
            return ready == 1;
        }
    }
}
