//! libelbow_fcntl (floor 5): to be preloaded, so that the locks of a program that knows nothing of it go to a lock service.
//!
//! ```text
//!   program --- fcntl, lockf, flock ---> entry --- range, file ---> process: who holds what here
//!                close, dup2, fclose        |                         |
//!                fork, exec                 |                       sessions at the service
//!                                           |                         one for fcntl's locks: they are the process's
//!                                           '--- all else ---> libc   one per open file description: they outlive fork
//! ```
//!
//! Invariants: files outside the configured directories never reach the service, files inside never reach the kernel's
//! locks. A lock that the service has granted is either held, or the program is told (and by default ended) as soon as the
//! connection shows that it is not. What cannot be done as the kernel does it is refused with `ENOLCK` and a line on
//! standard error, never passed through.
//!
//! fcntl's locks belong to the process: released with any `close` of the file, not inherited by `fork`, kept over `exec`.
//! Those of `F_OFD_*` and `flock` belong to the open file description. Theirs is a socket of its own, which children
//! inherit together with the descriptor: the service sees the end of the session when the last copy is closed, as the
//! kernel would. kcmp(2) says which descriptors share a description. flock's have a file name of their own at the service,
//! so that they and fcntl's do not see each other, as on local file systems of Linux.
//!
//! Not seen: programs without a dynamic linker, set-user-ID programs, system calls made without libc, `execl` and its
//! like (variadic, so not for Rust; fcntl locks end there), and `close` within libc other than by `fclose` and `freopen`.
//!
//! Signal handlers: `close` and unlocking are as safe here as allocation is; a handler that interrupts a lock call of its
//! own thread gets `ENOLCK`.
//!
//! Source: fcntl(2) "Advisory record locking" and "Open file description locks (non-POSIX)", flock(2), lockf(3).

#![cfg_attr(
    test,
    allow(
        dead_code,
        unused_imports,
        reason = "unit tests do not export libc's names, which lead to all of it"
    )
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the redirect knows the calling convention and struct flock of 64-bit Linux");

mod calls;
mod config;
mod connect;
mod descriptions;
mod descriptors;
mod entry;
mod epoll;
mod errno;
mod file;
mod inherit;
mod libc_calls;
mod locks;
mod losses;
mod memory;
mod process;
mod range;
mod reader;
mod session;
