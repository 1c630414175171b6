//! The functions of libc that we stand before.
//!
//! Variadic ones are written with fixed arguments: on 64-bit Linux both are passed in the same registers, and an argument
//! that the caller did not give is passed on unread.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

use elbow_lock::LockMode;

use crate::errno::{Errno, check};
use crate::file::{self, LockTarget};
use crate::{calls, config, descriptions, descriptors, inherit, libc_calls, locks, memory, process};
use crate::{losses, range};

/// What is to be done with a call.
enum Route {
    Libc,
    Ours(LockTarget),
    Refused,
}

/// Whether a lock call is ours to answer. Why not is said once in a process: a program that polls would fill its log.
fn route(fd: c_int) -> Route {
    if config::get().is_none() {
        return Route::Libc;
    }
    if calls::is_inside() {
        // A signal handler that interrupted a lock call. The client itself never locks.
        return Route::Refused;
    }
    let target = calls::within(Ok(None), || file::look(fd));
    match target {
        Ok(None) => Route::Libc,
        Err(why) => {
            static IS_TOLD: AtomicBool = AtomicBool::new(false);
            warn_once(&IS_TOLD, || {
                format!("{why}: its lock calls fail with ENOLCK, and those on other such files")
            });
            Route::Refused
        }
        Ok(Some(target)) if process::is_ours() => {
            calls::within((), || warn_of_links(&target));
            Route::Ours(target)
        }
        Ok(Some(_)) => {
            static IS_TOLD: AtomicBool = AtomicBool::new(false);
            warn_once(&IS_TOLD, || {
                "this process was made without libc's fork: its lock calls fail with ENOLCK".to_owned()
            });
            Route::Refused
        }
    }
}

/// Says, once in a process, that a lock by path is one of several that a file may have.
fn warn_of_links(target: &LockTarget) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if target.has_other_names {
        warn_once(&IS_TOLD, || {
            format!(
                "{} has other names too (hard links): who locks it by one of them is not excluded, but with --identity inode",
                target.name
            )
        });
    }
}

fn warn_once(was_warned: &AtomicBool, message: impl FnOnce() -> String) {
    if !was_warned.swap(true, Ordering::Relaxed) {
        crate::errno::warn(&message());
    }
}

fn refused() -> c_int {
    crate::errno::set(libc::ENOLCK);
    -1
}

#[derive(Clone, Copy)]
enum Action {
    Set { waits: bool },
    Get,
}

/// Whose lock, and what to do with it.
fn lock_command(command: c_int) -> Option<(bool, Action)> {
    Some(match command {
        libc::F_SETLK => (false, Action::Set { waits: false }),
        libc::F_SETLKW => (false, Action::Set { waits: true }),
        libc::F_GETLK => (false, Action::Get),
        libc::F_OFD_SETLK => (true, Action::Set { waits: false }),
        libc::F_OFD_SETLKW => (true, Action::Set { waits: true }),
        libc::F_OFD_GETLK => (true, Action::Get),
        _ => return None,
    })
}

fn fcntl_lock(
    fd: c_int,
    target: &LockTarget,
    of_description: bool,
    action: Action,
    flock: &mut libc::flock,
) -> Result<(), Errno> {
    if target.mode & libc::O_PATH != 0 {
        return Err(Errno(libc::EBADF));
    }
    // The kernel looks at these before it looks at the range, and for F_OFD_GETLK only after.
    let is_kind = matches!(i32::from(flock.l_type), libc::F_RDLCK | libc::F_WRLCK);
    if matches!(action, Action::Get) && !of_description && !is_kind {
        return Err(Errno(libc::EINVAL));
    }
    let asked = range::parse(flock, |whence| position(fd, whence))?;
    let is_bad_get = matches!(action, Action::Get) && !is_kind;
    if of_description && (flock.l_pid != 0 || is_bad_get) {
        return Err(Errno(libc::EINVAL));
    }
    match (of_description, action) {
        (false, Action::Set { waits }) => locks::set(fd, target, asked, waits),
        (true, Action::Set { waits }) => descriptions::set(fd, target, asked, waits),
        (false, Action::Get) => locks::get(target, asked).map(|blocker| range::describe(blocker.as_ref(), flock)),
        (true, Action::Get) => {
            descriptions::get(fd, target, asked).map(|blocker| range::describe(blocker.as_ref(), flock))
        }
    }
}

fn position(fd: c_int, whence: c_int) -> Result<i64, Errno> {
    if whence == libc::SEEK_END {
        return file::size(fd);
    }
    #[allow(unsafe_code)]
    // SAFETY: takes no pointers, and does not move.
    match unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } {
        -1 => Err(crate::errno::last()),
        position => Ok(position),
    }
}

fn any_fcntl(fd: c_int, command: c_int, argument: usize, next: fn(c_int, c_int, usize) -> c_int) -> c_int {
    let Some((of_description, action)) = lock_command(command) else {
        return next(fd, command, argument);
    };
    match route(fd) {
        Route::Libc => next(fd, command, argument),
        Route::Refused => refused(),
        Route::Ours(target) => {
            let address = argument as *mut libc::flock;
            calls::answer(|| {
                let mut flock = memory::read(address)?;
                fcntl_lock(fd, &target, of_description, action, &mut flock)?;
                match action {
                    Action::Get => memory::write(address, &flock),
                    Action::Set { .. } => Ok(()),
                }
            })
        }
    }
}

fn lockf_lock(fd: c_int, target: &LockTarget, command: c_int, length: libc::off_t) -> Result<(), Errno> {
    #[allow(unsafe_code)]
    // SAFETY: numbers.
    let mut flock: libc::flock = unsafe { std::mem::zeroed() };
    flock.l_whence = libc::SEEK_CUR as i16;
    flock.l_len = length;
    let (l_type, action) = match command {
        libc::F_TEST => (libc::F_RDLCK, Action::Get),
        libc::F_ULOCK => (libc::F_UNLCK, Action::Set { waits: false }),
        libc::F_LOCK => (libc::F_WRLCK, Action::Set { waits: true }),
        libc::F_TLOCK => (libc::F_WRLCK, Action::Set { waits: false }),
        _ => return Err(Errno(libc::EINVAL)),
    };
    flock.l_type = l_type as i16;
    fcntl_lock(fd, target, false, action, &mut flock)?;
    let is_free = command != libc::F_TEST || i32::from(flock.l_type) == libc::F_UNLCK;
    if is_free { Ok(()) } else { Err(Errno(libc::EACCES)) }
}

fn flock_lock(fd: c_int, target: &LockTarget, operation: c_int) -> Result<(), Errno> {
    let waits = operation & libc::LOCK_NB == 0;
    let mode = match operation & !libc::LOCK_NB {
        libc::LOCK_SH => Some(LockMode::Shared),
        libc::LOCK_EX => Some(LockMode::Exclusive),
        libc::LOCK_UN => None,
        _ => return Err(Errno(libc::EINVAL)),
    };
    descriptions::flock(fd, target, mode, waits)
}

/// The program is about to close a descriptor.
fn release(fd: c_int) {
    if calls::is_inside() || !process::may_hold() {
        return;
    }
    calls::within((), || {
        // One that only stands for a path has no part in the locks of its file.
        let Some(inode) = file::inode(fd).filter(|_| !file::is_path(fd)) else {
            return;
        };
        losses::report_losses();
        locks::release(inode);
        descriptions::release(fd, inode);
    });
}

/// Whether a descriptor is none of the program's business.
fn is_hidden(fd: c_int) -> bool {
    descriptors::is_ours(fd) && !calls::is_inside() && process::is_ours()
}

fn replace(from: c_int, to: c_int, next: impl FnOnce() -> c_int) -> c_int {
    if is_hidden(to) {
        crate::errno::warn(&format!(
            "descriptor {to} is the lock client's; dup2 to it fails with EBUSY"
        ));
        crate::errno::set(libc::EBUSY);
        return -1;
    }
    let is_open = || check(libc_calls::fcntl(from, libc::F_GETFD, 0)).is_ok();
    if from != to && process::may_hold() && calls::within(false, is_open) {
        release(to);
    }
    next()
}

fn release_stream(file: *mut libc::FILE) {
    if calls::is_inside() || file.is_null() || !process::may_hold() {
        return;
    }
    #[allow(unsafe_code)]
    // SAFETY: the caller hands the stream to fclose or freopen, so it is open.
    let fd = unsafe {
        libc::fflush(file); // What is written must be written under the lock.
        libc::fileno(file)
    };
    release(fd);
}

fn before_exec(exec: impl FnOnce() -> c_int) -> c_int {
    if calls::is_inside() {
        return exec();
    }
    if calls::answer(inherit::before_exec) == -1 {
        return -1;
    }
    let result = exec();
    calls::within((), inherit::after_exec);
    result
}

/// Loads the library.
extern "C" fn load() {
    libc_calls::find_all();
    calls::within((), || {
        if config::get().is_some() {
            inherit::begin();
        }
    });
}

#[allow(unsafe_code)]
#[cfg(not(test))]
#[used]
// SAFETY: the loader calls what stands here once, after libc is ready; `load` takes none of its arguments.
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

/// The names that programs call. Not in unit tests, whose process they would change.
#[allow(unsafe_code)]
#[cfg(not(test))]
mod exported {
    use super::*;

    // SAFETY, for all: each has the type of the function of this name in libc, and does what that does.

    #[unsafe(no_mangle)]
    extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        any_fcntl(fd, command, argument, libc_calls::fcntl)
    }

    #[unsafe(no_mangle)]
    extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        any_fcntl(fd, command, argument, libc_calls::fcntl64)
    }

    #[unsafe(no_mangle)]
    extern "C" fn lockf(fd: c_int, command: c_int, length: libc::off_t) -> c_int {
        match route(fd) {
            Route::Libc => libc_calls::lockf(fd, command, length),
            Route::Refused => refused(),
            Route::Ours(target) => calls::answer(|| lockf_lock(fd, &target, command, length)),
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn lockf64(fd: c_int, command: c_int, length: libc::off_t) -> c_int {
        lockf(fd, command, length)
    }

    #[unsafe(no_mangle)]
    extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
        match route(fd) {
            Route::Libc => libc_calls::flock(fd, operation),
            Route::Refused => refused(),
            Route::Ours(target) => calls::answer(|| flock_lock(fd, &target, operation)),
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn close(fd: c_int) -> c_int {
        if is_hidden(fd) {
            crate::errno::set(libc::EBADF);
            return -1;
        }
        release(fd);
        libc_calls::close(fd)
    }

    #[unsafe(no_mangle)]
    extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const CLOSE_RANGE_CLOEXEC: c_int = 4;
        if calls::is_inside() || !process::is_ours() || first > last || flags & CLOSE_RANGE_CLOEXEC != 0 {
            return libc_calls::close_range(first, last, flags);
        }
        if process::may_hold() {
            let all = calls::within(Vec::new(), descriptors::all);
            let within = |fd: &c_int| (first..=last).contains(&fd.cast_unsigned());
            all.into_iter().filter(within).for_each(release);
        }
        let mut first = first;
        while let Some(ours) = descriptors::first_of_ours(first, last) {
            if ours > first && libc_calls::close_range(first, ours - 1, flags) == -1 {
                return -1;
            }
            first = ours + 1;
        }
        if first > last {
            0
        } else {
            libc_calls::close_range(first, last, flags)
        }
    }

    #[unsafe(no_mangle)]
    extern "C" fn closefrom(first: c_int) {
        close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0);
    }

    #[unsafe(no_mangle)]
    extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
        replace(from, to, || libc_calls::dup2(from, to))
    }

    #[unsafe(no_mangle)]
    extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        replace(from, to, || libc_calls::dup3(from, to, flags))
    }

    #[unsafe(no_mangle)]
    extern "C" fn fclose(file: *mut libc::FILE) -> c_int {
        release_stream(file);
        libc_calls::fclose(file)
    }

    #[unsafe(no_mangle)]
    extern "C" fn freopen(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE {
        release_stream(file);
        libc_calls::freopen(path, mode, file)
    }

    #[unsafe(no_mangle)]
    extern "C" fn freopen64(path: *const c_char, mode: *const c_char, file: *mut libc::FILE) -> *mut libc::FILE {
        release_stream(file);
        libc_calls::freopen64(path, mode, file)
    }

    #[unsafe(no_mangle)]
    extern "C" fn vfork() -> libc::pid_t {
        // SAFETY: POSIX lets vfork be fork; the functions around a fork are only called for that.
        unsafe { libc::fork() }
    }

    #[unsafe(no_mangle)]
    extern "C" fn execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        before_exec(|| libc_calls::execve(path, argv, envp))
    }

    #[unsafe(no_mangle)]
    extern "C" fn execv(path: *const c_char, argv: *const *const c_char) -> c_int {
        before_exec(|| libc_calls::execv(path, argv))
    }

    #[unsafe(no_mangle)]
    extern "C" fn execvp(file: *const c_char, argv: *const *const c_char) -> c_int {
        before_exec(|| libc_calls::execvp(file, argv))
    }

    #[unsafe(no_mangle)]
    extern "C" fn execvpe(file: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        before_exec(|| libc_calls::execvpe(file, argv, envp))
    }

    #[unsafe(no_mangle)]
    extern "C" fn fexecve(fd: c_int, argv: *const *const c_char, envp: *const *const c_char) -> c_int {
        before_exec(|| libc_calls::fexecve(fd, argv, envp))
    }
}
