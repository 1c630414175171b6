//! From a descriptor to the file that it is open on.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use elbow_lock::FileName;

use crate::config;
use crate::errno::{Errno, check};

/// What two descriptors of one file have in common, as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inode {
    pub(crate) device: u64,
    pub(crate) number: u64,
}

/// A regular file whose locks go to the service.
#[derive(Clone, Debug)]
pub(crate) struct LockTarget {
    pub(crate) inode: Inode,
    pub(crate) name: FileName,
    /// `O_ACCMODE` and `O_PATH` of the descriptor.
    pub(crate) mode: c_int,
    /// It has hard links, and is known by one of its names only.
    pub(crate) has_other_names: bool,
}

const DELETED: &[u8] = b" (deleted)";

/// What a descriptor is open on, if it is a regular file below a prefix that has a name.
pub(crate) fn target(fd: c_int) -> Option<LockTarget> {
    look(fd).ok().flatten()
}

/// Such a file has no name for the service.
#[derive(Debug, thiserror::Error)]
#[error("{path}: it has no name by which all who lock it know it ({source})")]
pub(crate) struct UnnamedFile {
    path: String,
    source: std::io::Error,
}

/// The same.
///
/// # Errors
/// Such a file has no name for the service.
pub(crate) fn look(fd: c_int) -> Result<Option<LockTarget>, UnnamedFile> {
    let (Some(config), Some(stat)) = (config::get(), status(fd)) else {
        return Ok(None);
    };
    let path = path(fd).filter(|_| stat.st_mode & libc::S_IFMT == libc::S_IFREG);
    let Some(mut path) = path.filter(|path| config.covers(path)) else {
        return Ok(None);
    };
    // All who have the file open agree on its name, whether they came before or after it was removed. A FUSE mount says so of files that are there, too,
    // and a file may be called so.
    if path.ends_with(DELETED) && !is_name_of(&path, &stat) {
        path.truncate(path.len() - DELETED.len());
    }
    let Ok(mode) = check(crate::libc_calls::fcntl(fd, libc::F_GETFL, 0)) else {
        return Ok(None);
    };
    #[allow(unsafe_code)]
    // SAFETY: it was open just now, and is only looked at; a number that is closed meanwhile gives an error.
    let file = unsafe { BorrowedFd::borrow_raw(fd) };
    let name = config.identity.of_open(file, &path).map_err(|source| UnnamedFile {
        path: String::from_utf8_lossy(&path).into_owned(),
        source,
    })?;
    Ok(Some(LockTarget {
        inode: inode_of(&stat),
        has_other_names: stat.st_nlink > 1 && name.as_bytes() == path,
        name,
        mode: mode & (libc::O_ACCMODE | libc::O_PATH),
    }))
}

/// Whether a path leads to this file.
fn is_name_of(path: &[u8], stat: &libc::stat) -> bool {
    let Ok(path) = std::ffi::CString::new(path) else {
        return false;
    };
    let mut found = std::mem::MaybeUninit::uninit();
    #[allow(unsafe_code)]
    // SAFETY: the path ends with a zero, and there is room for the answer, which is complete when the call succeeds.
    let found = unsafe { (libc::lstat(path.as_ptr(), found.as_mut_ptr()) == 0).then(|| found.assume_init()) };
    found.is_some_and(|found| inode_of(&found) == inode_of(stat))
}

/// Which file a descriptor is open on.
pub(crate) fn inode(fd: c_int) -> Option<Inode> {
    status(fd).map(|stat| inode_of(&stat))
}

/// Whether a descriptor is not open on its file, and only stands for its path.
pub(crate) fn is_path(fd: c_int) -> bool {
    check(crate::libc_calls::fcntl(fd, libc::F_GETFL, 0)).is_ok_and(|mode| mode & libc::O_PATH != 0)
}

/// The size of the file, for `SEEK_END`.
pub(crate) fn size(fd: c_int) -> Result<i64, Errno> {
    status(fd).map(|stat| stat.st_size).ok_or(Errno(libc::EBADF))
}

fn inode_of(stat: &libc::stat) -> Inode {
    Inode {
        device: stat.st_dev,
        number: stat.st_ino,
    }
}

fn status(fd: c_int) -> Option<libc::stat> {
    let mut stat = std::mem::MaybeUninit::uninit();
    #[allow(unsafe_code)]
    // SAFETY: there is room for the answer, which is complete when the call succeeds.
    unsafe {
        (libc::fstat(fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init())
    }
}

fn path(fd: c_int) -> Option<Vec<u8>> {
    let link = format!("/proc/self/fd/{fd}\0");
    let mut path = vec![0; 4096 + DELETED.len()];
    #[allow(unsafe_code)]
    // SAFETY: the link's name ends with a zero, and the buffer is as long as we say.
    let length = unsafe { libc::readlink(link.as_ptr().cast(), path.as_mut_ptr().cast(), path.len()) };
    path.truncate(usize::try_from(length).ok()?);
    Some(path)
}
