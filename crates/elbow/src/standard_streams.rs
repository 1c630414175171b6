//! Standard input and output as this process got them. What was closed is opened as /dev/null by the runtime before `main`, so that no file gets its number: then
//! nothing would tell who sorts into nowhere of it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// Standard input and output.
static WERE_CLOSED: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];

/// Called before the runtime of Rust begins (System V ABI, "Initialization and Termination Functions").
#[used]
#[allow(unsafe_code)]
// SAFETY: the loader calls what stands there, in no special state but for the runtime, which it does not use.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    for (number, was_closed) in (0..).zip(&WERE_CLOSED) {
        // SAFETY: the call takes a number, and says whether it is a descriptor.
        #[allow(unsafe_code)]
        let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
        was_closed.store(!is_open, Ordering::Relaxed);
    }
}

/// # Errors
/// EBADF: it was closed.
pub(crate) fn stdin() -> io::Result<File> {
    open(0, io::stdin())
}

/// # Errors
/// EBADF: it was closed.
pub(crate) fn stdout() -> io::Result<File> {
    open(1, io::stdout())
}

fn open(number: usize, stream: impl AsFd) -> io::Result<File> {
    if WERE_CLOSED[number].load(Ordering::Relaxed) {
        return Err(Errno::BADF.into());
    }
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}
