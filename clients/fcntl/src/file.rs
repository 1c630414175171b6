//! From a descriptor to the file that it is open on.

use std::ffi::c_int;

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
pub(crate) struct Target {
    pub(crate) inode: Inode,
    pub(crate) name: FileName,
    /// `O_ACCMODE` and `O_PATH` of the descriptor.
    pub(crate) mode: c_int,
}

const DELETED: &[u8] = b" (deleted)";

/// What a descriptor is open on, if it is a regular file below a prefix.
pub(crate) fn target(fd: c_int) -> Option<Target> {
    let config = config::get()?;
    let stat = status(fd)?;
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let mut path = path(fd)?;
    // All who have the file open agree on its name, whether they came before or after it was removed. A FUSE mount says so of files that are there, too,
    // and a file may be called so.
    if path.ends_with(DELETED) && !is_name_of(&path, &stat) {
        path.truncate(path.len() - DELETED.len());
    }
    let name = FileName::new(&config.name_of(&path, stat.st_ino)?)?;
    let mode = check(crate::libc_calls::fcntl(fd, libc::F_GETFL, 0)).ok()?;
    Some(Target {
        inode: inode_of(&stat),
        name,
        mode: mode & (libc::O_ACCMODE | libc::O_PATH),
    })
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
