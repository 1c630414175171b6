//! The process's table of descriptors: which there are, which are ours, which share an open file description.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::errno::{Errno, check};
use crate::file::{self, Inode};
use crate::libc_calls;

/// Our sockets are put from here on, where programs and shells do not name descriptors by number.
const OURS_FROM: usize = 600;
/// Descriptors beyond this are not remembered as ours.
const REMEMBERED: usize = 1 << 16;

static OURS: [AtomicU64; REMEMBERED / 64] = [const { AtomicU64::new(0) }; REMEMBERED / 64];

/// Whether a descriptor is ours, and not the program's to close.
pub(crate) fn is_ours(fd: c_int) -> bool {
    let (word, bit) = place(fd);
    word.is_some_and(|word| word.load(Ordering::Relaxed) & bit != 0)
}

/// The lowest descriptor of ours in `from..=to`.
pub(crate) fn first_of_ours(from: u32, to: u32) -> Option<u32> {
    let to = to.min(REMEMBERED as u32 - 1);
    (from..=to).find(|&fd| is_ours(fd.cast_signed()))
}

/// Remembers, or forgets, that a descriptor is ours.
pub(crate) fn set_ours(fd: c_int, ours: bool) {
    if let (Some(word), bit) = place(fd) {
        if ours {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

fn place(fd: c_int) -> (Option<&'static AtomicU64>, u64) {
    let index = usize::try_from(fd).unwrap_or(usize::MAX);
    (OURS.get(index / 64), 1 << (index % 64))
}

/// Moves a descriptor out of the program's way, to one that ends with exec, and makes it ours.
pub(crate) fn move_away(fd: c_int) -> c_int {
    let moved = libc_calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, OURS_FROM);
    let fd = if moved == -1 {
        fd
    } else {
        libc_calls::close(fd);
        moved
    };
    set_ours(fd, true);
    fd
}

/// Whether a descriptor ends with exec.
pub(crate) fn ends_with_exec(fd: c_int) -> Option<bool> {
    let flags = check(libc_calls::fcntl(fd, libc::F_GETFD, 0)).ok()?;
    Some(flags & libc::FD_CLOEXEC != 0)
}

/// Makes a descriptor end with exec, or not.
pub(crate) fn let_end_with_exec(fd: c_int, ends: bool) {
    let flags = if ends { libc::FD_CLOEXEC as usize } else { 0 };
    libc_calls::fcntl(fd, libc::F_SETFD, flags);
}

/// All descriptors but ours.
pub(crate) fn all() -> Vec<c_int> {
    let mut found = Vec::new();
    #[allow(unsafe_code)]
    // SAFETY: the directory is open from opendir to closedir, and an entry is read before the next is asked for.
    unsafe {
        let directory = libc::opendir(c"/proc/self/fd".as_ptr());
        if directory.is_null() {
            return found;
        }
        let own = libc::dirfd(directory);
        while let Some(entry) = libc::readdir64(directory).as_ref() {
            let name = std::ffi::CStr::from_ptr(entry.d_name.as_ptr());
            let fd = name.to_str().ok().and_then(|name| name.parse().ok());
            found.extend(fd.filter(|&fd| fd != own && !is_ours(fd)));
        }
        libc::closedir(directory);
    }
    found
}

/// The descriptors of a file.
pub(crate) fn of_file(inode: Inode) -> impl Iterator<Item = c_int> {
    all().into_iter().filter(move |&fd| file::inode(fd) == Some(inode))
}

/// Whether two descriptors share an open file description.
///
/// # Errors
/// `ENOSYS` or `EPERM` where kcmp(2) is not to be had.
pub(crate) fn is_same_description(a: c_int, b: c_int) -> Result<bool, Errno> {
    const KCMP_FILE: c_int = 0;
    if a == b {
        return Ok(true);
    }
    let process = std::process::id();
    #[allow(unsafe_code)]
    // SAFETY: kcmp takes numbers and changes nothing.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, a, b) };
    match order {
        -1 if crate::errno::last() == Errno(libc::EBADF) => Ok(false),
        -1 => Err(crate::errno::last()),
        order => Ok(order == 0),
    }
}
