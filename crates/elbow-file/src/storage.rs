//! The seam: every call that a job makes to the storage below it.
//!
//! Calls are `openat`-style: an object is named by an open directory and one path component, never by a
//! path. No call follows a symbolic link in its last component. An implementation keeps no state of its own
//! beyond counters: what a call means is what the system call of the same name means.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use rustix::io::Errno;

use crate::{Identity, Nature};

/// What a storage call gives: its value or the errno of the system call.
pub type Result<T> = std::result::Result<T, Errno>;

/// An open directory or file; cheap to clone, closed with its last clone, or by [`Storage::close`].
#[derive(Clone, Debug)]
pub struct Handle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    fd: ManuallyDrop<OwnedFd>,
    closed: AtomicBool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.closed.load(Ordering::Acquire) {
            // SAFETY: the descriptor was not taken before, and is not used after.
            #[allow(unsafe_code)]
            drop(unsafe { ManuallyDrop::take(&mut self.fd) });
        }
    }
}

impl Handle {
    /// Takes over an open descriptor.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self(Arc::new(Inner {
            fd: ManuallyDrop::new(fd),
            closed: AtomicBool::new(false),
        }))
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

    /// Closes the descriptor and hears what close(2) says, if nobody else holds the handle.
    pub(crate) fn close(&self) -> Result<()> {
        if Arc::strong_count(&self.0) > 1 || self.0.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: this is the only clone, so nobody uses the descriptor any more; `closed` keeps `drop` from
        // closing it again and `as_fd` from handing it out.
        #[allow(unsafe_code)]
        unsafe {
            rustix::io::try_close(self.0.fd.as_raw_fd())
        }
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        assert!(
            !self.0.closed.load(Ordering::Acquire),
            "a handle is not used after it was closed"
        );
        self.0.fd.as_fd()
    }
}

/// The kind of a file system object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A point in time: seconds since 1970 and nanoseconds within the second, as `struct timespec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds since the epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds, `0..1_000_000_000`.
    pub nanoseconds: u32,
}

/// The attributes of an object, as stat(2) gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky: `mode & 0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Size in bytes (length of the target for a symbolic link).
    pub size: u64,
    /// Space taken, in 512-byte units.
    pub blocks: u64,
    /// Device numbers of a device node, as `st_rdev`.
    pub rdev: u64,
    /// Inode number.
    pub ino: u64,
    /// Device that holds the object, as `st_dev`.
    pub dev: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// What it is protected from, whatever its mode says.
    pub protection: Protection,
}

/// What nobody may do to an object before chattr(1) allows it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protection {
    /// Nothing; or the storage does not say.
    #[default]
    None,
    /// Anything but appending, or, to a directory, making names in it.
    AppendOnly,
    /// Any change.
    Immutable,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, never `.` or `..`.
    pub name: OsString,
    /// What the directory says it is; `None` where the file system does not say.
    pub kind: Option<Kind>,
    /// Inode number as the directory gives it.
    pub ino: u64,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For reading and writing.
    ReadWrite,
    /// For writing alone, as a file that may not be read allows.
    Write,
    /// For writing at its end alone, wherever a write says that it goes.
    Append,
}

/// What rename(2) does when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// It is an error (EEXIST).
    NoReplace,
    /// The two names are exchanged.
    Exchange,
}

/// Free and total space, as statvfs(3) gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Fragment size in bytes: the unit of the block counts.
    pub fragment_bytes: u64,
    /// All blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for ordinary users.
    pub blocks_available: u64,
    /// All inodes; 0 where the file system does not count them.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// The storage below a job. All methods may block; all may be called from any thread.
pub trait Storage: Send + Sync {
    /// Opens a directory for use as the base of other calls (`O_PATH`).
    fn open_dir(&self, dir: &Handle, name: &OsStr) -> Result<Handle>;
    /// Creates a regular file that must not exist, open for reading and writing; `mode` is taken as it is
    /// (the process runs with umask 0).
    fn create(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle>;
    /// Creates a regular file for reading and writing that is gone when it is closed. Where files cannot be made without
    /// a name it has this one for a moment.
    fn create_unnamed(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        let file = self.create(dir, name, mode)?;
        self.unlink(dir, name)?;
        Ok(file)
    }
    /// Opens an existing regular file. Anything else is refused (EISDIR, ESPIPE for pipes and sockets, ENODEV for devices,
    /// ELOOP for links) and does not keep the caller waiting.
    fn open(&self, dir: &Handle, name: &OsStr, access: Access) -> Result<Handle>;
    /// Creates a directory.
    fn mkdir(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()>;
    /// Creates a symbolic link.
    fn symlink(&self, target: &OsStr, dir: &Handle, name: &OsStr) -> Result<()>;
    /// Creates a pipe, socket, device node or empty regular file.
    fn mknod(&self, dir: &Handle, name: &OsStr, kind: Kind, mode: u32, rdev: u64) -> Result<()>;
    /// Gives an object one more name.
    fn link(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr) -> Result<()>;
    /// Moves an object to another name.
    fn rename(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr, mode: RenameMode) -> Result<()>;
    /// Removes a name of anything but a directory.
    fn unlink(&self, dir: &Handle, name: &OsStr) -> Result<()>;
    /// Removes an empty directory.
    fn rmdir(&self, dir: &Handle, name: &OsStr) -> Result<()>;

    /// Attributes of a named object.
    fn stat(&self, dir: &Handle, name: &OsStr) -> Result<Stat>;
    /// Attributes of an open object.
    fn stat_handle(&self, handle: &Handle) -> Result<Stat>;
    /// All names in a directory but `.` and `..`, in the storage's order.
    fn list(&self, dir: &Handle) -> Result<Vec<DirEntry>>;
    /// Target of a symbolic link.
    fn readlink(&self, dir: &Handle, name: &OsStr) -> Result<OsString>;
    /// Free and total space of the file system that holds an object.
    fn space(&self, handle: &Handle) -> Result<Space>;

    /// Sets permission bits of a named object (not of symbolic links).
    fn chmod(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()>;
    /// Sets permission bits of an open file.
    fn chmod_handle(&self, file: &Handle, mode: u32) -> Result<()>;
    /// Sets owner and group of a named object; `None` leaves one as it is.
    fn chown(&self, dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> Result<()>;
    /// Sets owner and group of an open file.
    fn chown_handle(&self, file: &Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()>;
    /// Sets access and modification time of a named object; `None` leaves one as it is.
    fn set_times(&self, dir: &Handle, name: &OsStr, atime: Option<Time>, mtime: Option<Time>) -> Result<()>;
    /// Sets both times of a named object to now, by the clock of the storage, as whoever may write to it is allowed to.
    fn touch(&self, dir: &Handle, name: &OsStr) -> Result<()>;
    /// Sets access and modification time of an open file.
    fn set_times_handle(&self, file: &Handle, atime: Option<Time>, mtime: Option<Time>) -> Result<()>;

    /// Names of the extended attributes of a named object.
    fn list_xattrs(&self, dir: &Handle, name: &OsStr) -> Result<Vec<OsString>>;
    /// Value of one extended attribute; ENODATA where there is none.
    fn get_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<Vec<u8>>;
    /// Sets one extended attribute.
    fn set_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr, value: &[u8]) -> Result<()>;
    /// Value of one extended attribute of an open file; ENODATA where there is none.
    fn get_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<Vec<u8>>;
    /// Sets one extended attribute of an open file.
    fn set_xattr_handle(&self, file: &Handle, key: &OsStr, value: &[u8]) -> Result<()>;
    /// Removes one extended attribute.
    fn remove_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<()>;
    /// Removes one extended attribute of an open file.
    fn remove_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<()>;

    /// Reads up to `buffer.len()` bytes at an offset; fewer only at the end of the file.
    fn read(&self, file: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes all pieces, one after the other, from an offset on.
    fn write(&self, file: &Handle, pieces: &[IoSlice<'_>], offset: u64) -> Result<()>;
    /// Sets the size of an open file.
    fn truncate(&self, file: &Handle, size: u64) -> Result<()>;
    /// Sets the size of a named file, as truncate(2) does: where that is the size that it has, its times may stay.
    fn truncate_named(&self, dir: &Handle, name: &OsStr, size: u64) -> Result<()>;
    /// Frees a range of an open file, which then reads as zeros; EOPNOTSUPP where holes cannot be punched.
    fn punch(&self, file: &Handle, offset: u64, length: u64) -> Result<()>;
    /// Reserves blocks for a range of an open file that has none there, as fallocate(2): what reads as zeros still does. With `keep_size` a
    /// range behind the end of the file does not make it longer. EOPNOTSUPP where space cannot be reserved.
    fn allocate(&self, file: &Handle, offset: u64, length: u64, keep_size: bool) -> Result<()>;
    /// The first range of data at or after an offset, as `(start, end)`; `None` when only a hole follows.
    fn next_data(&self, file: &Handle, offset: u64) -> Result<Option<(u64, u64)>>;
    /// Closes an open file, if this is its only clone, and reports what close(2) reports: network file systems
    /// tell of failed writes here. The handle must not be used again.
    fn close(&self, file: &Handle) -> Result<()>;
    /// Takes the lock of a file that is open for writing, without waiting: `false` when it is taken through another open of
    /// the file, in this process or any other. It is held until the last clone of the handle is closed, or the process
    /// ends; a file has it under every name, also after a rename. It keeps nobody from reading or writing. ENOLCK or
    /// EOPNOTSUPP, or ENOSYS, where files cannot be locked.
    fn try_lock(&self, file: &Handle) -> Result<bool>;
    /// Which object this is and how it was reached. The server is not asked.
    fn identity(&self, handle: &Handle) -> Result<Identity>;
    /// What the file system that holds an object is like.
    fn nature(&self, handle: &Handle) -> Result<Nature>;
    /// Makes one open file or directory durable.
    fn sync(&self, handle: &Handle) -> Result<()>;
    /// Makes all of the file system that holds an object durable.
    fn sync_all(&self, handle: &Handle) -> Result<()>;
}
