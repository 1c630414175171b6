//! The border between the program and us: what every call of ours keeps.
//!
//! Within our code the calls that we stand before go straight to libc: the client itself opens and closes sockets. errno
//! changes only when a call fails. No panic reaches the program.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errno::{self, Errno};

thread_local! {
    /// Has no destructor, so that it takes no memory and lives as long as its thread.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is in our code: then a call is the client's own, or that of a signal handler.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// This thread never runs the program's code.
pub(crate) fn enter_for_good() {
    INSIDE.set(true);
}

/// For pairs of functions, such as those around fork.
pub(crate) fn set_inside(inside: bool) {
    INSIDE.set(inside);
}

/// Runs our code.
pub(crate) fn within<T>(on_panic: T, body: impl FnOnce() -> T) -> T {
    let errno = errno::get();
    INSIDE.set(true);
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(on_panic);
    INSIDE.set(false);
    errno::set(errno);
    result
}

/// Runs our code and gives its result as libc does.
pub(crate) fn answer(body: impl FnOnce() -> Result<(), Errno>) -> c_int {
    match within(Err(Errno(libc::ENOLCK)), body) {
        Ok(()) => 0,
        Err(Errno(number)) => {
            errno::set(number);
            -1
        }
    }
}
