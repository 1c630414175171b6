//! The storage itself: each call of the seam is the system call of the same name.
//!
//! Invariants: a name is one path component (`.` is allowed and means the directory itself; anything that would
//! walk, such as `..` or `a/b`, is refused with EINVAL, so that a damaged record cannot reach outside its tree); no
//! call follows a symbolic link in its last component; EINTR is retried; reads and writes are complete.
//!
//! Directories are held as `O_PATH` descriptors, which need no permission to read. What the kernel does not offer
//! on those (listing, syncing) opens `.` for the one call; what it does not offer relative to a directory at all
//! (xattrs, chmod without following links, opening what was looked at) goes through `/proc/self/fd`, which therefore has to be mounted.
//!
//! Source: open(2), path_resolution(7), proc_pid_fd(5), and the man page of each call.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::ffi::{CString, OsStr, OsString};
use std::fmt::Write as _;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Statx, StatxAttributes, StatxFlags,
    Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::retry_on_intr;
use rustix::path::Arg;

use crate::overlay::breaks_links;
use crate::stat::regular;
use crate::{
    Access, DirEntry, Errno, FileSystemTraits, FileType, Handle, Identity, Protection, RenameMode, Result, Space, Stat,
    Storage, Time, file_system_traits, lock,
};

/// Bytes asked of the kernel per getdents64(2): some thousand names.
const LIST_BYTES: usize = 128 << 10;
/// First try for an xattr value or list; nearly all fit.
const XATTR_BYTES_FIRST: usize = 1 << 10;
/// The kernel's limit for both (XATTR_SIZE_MAX, XATTR_LIST_MAX).
const XATTR_BYTES_MAX: usize = 64 << 10;
/// The kernel's limit for the pieces of one write (UIO_MAXIOV).
const PIECES_MAX: usize = 1024;

/// The storage itself, by system calls. It has no state.
///
/// ```
/// use std::ffi::OsStr;
/// use std::io::IoSlice;
///
/// use elbow_file::{Errno, RealStorage, Storage};
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let file = RealStorage.create(&root, OsStr::new("greeting"), 0o644)?;
/// RealStorage.write(&file, &[IoSlice::new(b"hello "), IoSlice::new(b"world")], 0)?;
/// assert_eq!(RealStorage.stat(&root, OsStr::new("greeting"))?.size, 11);
/// assert_eq!(RealStorage.unlink(&root, OsStr::new("../greeting")), Err(Errno::INVAL)); // a name, not a path
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RealStorage;

impl RealStorage {
    /// Opens the directory that everything else is relative to.
    ///
    /// # Errors
    /// Those of open(2) with `O_PATH | O_DIRECTORY`.
    pub fn open_root(path: &Path) -> Result<Handle> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).map(Handle::new)
    }
}

impl Storage for RealStorage {
    fn open_dir(&self, dir: &Handle, name: &OsStr) -> Result<Handle> {
        open_at(dir, name, OFlags::PATH | OFlags::DIRECTORY, 0).map(Handle::new)
    }

    fn create(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        open_at(dir, name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, mode).map(Handle::new)
    }

    fn create_unnamed(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<Handle> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match retry_on_intr(|| rustix::fs::openat(dir, ".", flags, mode_of(mode))) {
            // EISDIR: a kernel or file system that takes the flag for an attempt to write to the directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let file = self.create(dir, name, mode)?;
                self.unlink(dir, name)?;
                Ok(file)
            }
            opened => opened.map(Handle::new),
        }
    }

    fn open(&self, dir: &Handle, name: &OsStr, access: Access) -> Result<Handle> {
        open_regular(dir, name, flags_of(access)).map(Handle::new)
    }

    fn mkdir(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        let name = component(name)?;
        retry_on_intr(|| rustix::fs::mkdirat(dir, name, mode_of(mode)))
    }

    fn symlink(&self, target: &OsStr, dir: &Handle, name: &OsStr) -> Result<()> {
        let name = component(name)?;
        retry_on_intr(|| rustix::fs::symlinkat(target, dir, name))
    }

    fn mknod(&self, dir: &Handle, name: &OsStr, kind: FileType, mode: u32, rdev: u64) -> Result<()> {
        let name = component(name)?;
        let file_type = match kind {
            FileType::File => rustix::fs::FileType::RegularFile,
            FileType::Fifo => rustix::fs::FileType::Fifo,
            FileType::Socket => rustix::fs::FileType::Socket,
            FileType::CharDevice => rustix::fs::FileType::CharacterDevice,
            FileType::BlockDevice => rustix::fs::FileType::BlockDevice,
            FileType::Dir | FileType::Symlink => return Err(Errno::INVAL),
        };
        retry_on_intr(|| rustix::fs::mknodat(dir, name, file_type, mode_of(mode), rdev))
    }

    fn link(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr) -> Result<()> {
        let (name, new_name) = (component(name)?, component(new_name)?);
        retry_on_intr(|| rustix::fs::linkat(dir, name, new_dir, new_name, AtFlags::empty()))
    }

    fn rename(&self, dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr, mode: RenameMode) -> Result<()> {
        let (name, new_name) = (component(name)?, component(new_name)?);
        let flags = match mode {
            // Not every file system takes renameat2(2), and without flags there is no need for it.
            RenameMode::Replace => return retry_on_intr(|| rustix::fs::renameat(dir, name, new_dir, new_name)),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        retry_on_intr(|| rustix::fs::renameat_with(dir, name, new_dir, new_name, flags))
    }

    fn unlink(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        let name = component(name)?;
        retry_on_intr(|| rustix::fs::unlinkat(dir, name, AtFlags::empty()))
    }

    fn rmdir(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        let name = component(name)?;
        retry_on_intr(|| rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR))
    }

    fn stat(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        let name = component(name)?;
        let found = look(|flags, wanted| rustix::fs::statx(dir, name, flags | AtFlags::SYMLINK_NOFOLLOW, wanted))?;
        with_links(found, dir, name)
    }

    fn stat_uncached(&self, dir: &Handle, name: &OsStr) -> Result<Stat> {
        let name = component(name)?;
        // A client of NFS looks a name up again only when it has heard that the directory has changed, so that is asked for first.
        look(|flags, wanted| {
            rustix::fs::statx(dir, "", flags | AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, wanted)
        })?;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let found = look(|none, wanted| rustix::fs::statx(dir, name, none | flags, wanted))?;
        with_links(found, dir, name)
    }

    fn stat_handle(&self, handle: &Handle) -> Result<Stat> {
        let found = look(|flags, wanted| rustix::fs::statx(handle, "", flags | AtFlags::EMPTY_PATH, wanted))?;
        with_links(found, handle, "")
    }

    fn list(&self, dir: &Handle) -> Result<Vec<DirEntry>> {
        let readable = reopen_dir(dir)?;
        let mut buffer = vec![MaybeUninit::uninit(); LIST_BYTES];
        let mut names = RawDir::new(readable, &mut buffer);
        let mut entries = Vec::new();
        while let Some(next) = names.next() {
            match next {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => (),
                Ok(entry) => entries.push(DirEntry {
                    name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                    kind: kind_of(entry.file_type()),
                    ino: entry.ino(),
                }),
                Err(Errno::INTR) => (),
                Err(errno) => return Err(errno),
            }
        }
        Ok(entries)
    }

    fn readlink(&self, dir: &Handle, name: &OsStr) -> Result<OsString> {
        let name = component(name)?;
        let target = retry_on_intr(|| rustix::fs::readlinkat(dir, name, Vec::new()))?;
        Ok(OsString::from_vec(target.into_bytes()))
    }

    fn space(&self, handle: &Handle) -> Result<Space> {
        let found = retry_on_intr(|| rustix::fs::fstatvfs(handle))?;
        Ok(Space {
            fragment_bytes: found.f_frsize,
            blocks: found.f_blocks,
            blocks_free: found.f_bfree,
            blocks_available: found.f_bavail,
            files: found.f_files,
            files_free: found.f_ffree,
            name_max: u32::try_from(found.f_namemax).unwrap_or(u32::MAX),
        })
    }

    fn chmod(&self, dir: &Handle, name: &OsStr, mode: u32) -> Result<()> {
        // fchmodat(2) follows links, and fchmodat2(2) is younger than the kernels we run on.
        let object = open_at(dir, name, OFlags::PATH, 0)?;
        retry_on_intr(|| rustix::fs::chmod(proc_path(object.as_fd(), None), mode_of(mode)))
    }

    fn chmod_handle(&self, file: &Handle, mode: u32) -> Result<()> {
        retry_on_intr(|| rustix::fs::fchmod(file, mode_of(mode)))
    }

    fn chown(&self, dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let name = component(name)?;
        let (owner, group) = owner_of(uid, gid);
        retry_on_intr(|| rustix::fs::chownat(dir, name, owner, group, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn chown_handle(&self, file: &Handle, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let (owner, group) = owner_of(uid, gid);
        retry_on_intr(|| rustix::fs::fchown(file, owner, group))
    }

    fn set_times(&self, dir: &Handle, name: &OsStr, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        let name = component(name)?;
        let times = timestamps(atime, mtime)?;
        retry_on_intr(|| rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn touch(&self, dir: &Handle, name: &OsStr) -> Result<()> {
        let name = component(name)?;
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        retry_on_intr(|| rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW))
    }

    fn set_times_handle(&self, file: &Handle, atime: Option<Time>, mtime: Option<Time>) -> Result<()> {
        let times = timestamps(atime, mtime)?;
        retry_on_intr(|| rustix::fs::futimens(file, &times))
    }

    fn list_xattrs(&self, dir: &Handle, name: &OsStr) -> Result<Vec<OsString>> {
        let path = proc_path(dir.as_fd(), Some(component(name)?));
        let list = grown(|buffer| rustix::fs::llistxattr(&path, buffer))?;
        let keys = list.split(|&byte| byte == 0).filter(|key| !key.is_empty());
        Ok(keys.map(|key| OsStr::from_bytes(key).to_owned()).collect())
    }

    fn get_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<Vec<u8>> {
        let path = proc_path(dir.as_fd(), Some(component(name)?));
        grown(|buffer| rustix::fs::lgetxattr(&path, key, buffer))
    }

    fn set_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr, value: &[u8]) -> Result<()> {
        let path = proc_path(dir.as_fd(), Some(component(name)?));
        retry_on_intr(|| rustix::fs::lsetxattr(&path, key, value, XattrFlags::empty()))
    }

    fn get_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<Vec<u8>> {
        grown(|buffer| rustix::fs::fgetxattr(file, key, buffer))
    }

    fn set_xattr_handle(&self, file: &Handle, key: &OsStr, value: &[u8]) -> Result<()> {
        retry_on_intr(|| rustix::fs::fsetxattr(file, key, value, XattrFlags::empty()))
    }

    fn remove_xattr(&self, dir: &Handle, name: &OsStr, key: &OsStr) -> Result<()> {
        let path = proc_path(dir.as_fd(), Some(component(name)?));
        retry_on_intr(|| rustix::fs::lremovexattr(&path, key))
    }

    fn remove_xattr_handle(&self, file: &Handle, key: &OsStr) -> Result<()> {
        retry_on_intr(|| rustix::fs::fremovexattr(file, key))
    }

    fn read(&self, file: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match retry_on_intr(|| rustix::io::pread(file, &mut buffer[done..], offset + done as u64))? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    fn write(&self, file: &Handle, pieces: &[IoSlice<'_>], mut offset: u64) -> Result<()> {
        let mut pieces = pieces.to_vec();
        let mut left = &mut pieces[..];
        IoSlice::advance_slices(&mut left, 0); // drops empty pieces in front
        if left.is_empty() {
            return retry_on_intr(|| rustix::io::pwrite(file, &[], offset)).map(|_| ());
        }
        while !left.is_empty() {
            let batch = &left[..left.len().min(PIECES_MAX)];
            let written = retry_on_intr(|| rustix::io::pwritev(file, batch, offset))?;
            if written == 0 {
                return Err(Errno::IO); // no file system may do this; it must not become an endless loop
            }
            offset += written as u64;
            IoSlice::advance_slices(&mut left, written);
        }
        Ok(())
    }

    fn truncate(&self, file: &Handle, size: u64) -> Result<()> {
        retry_on_intr(|| rustix::fs::ftruncate(file, size))
    }

    #[allow(unsafe_code)]
    fn truncate_named(&self, dir: &Handle, name: &OsStr, size: u64) -> Result<()> {
        let object = open_at(dir, name, OFlags::PATH, 0)?;
        let path = proc_path(object.as_fd(), None).into_os_string().into_vec();
        let path = CString::new(path).map_err(|_| Errno::INVAL)?;
        let size = i64::try_from(size).map_err(|_| Errno::FBIG)?;
        // SAFETY: the path ends in a zero byte and outlives the call.
        retry_on_intr(|| match unsafe { libc::truncate(path.as_ptr(), size) } {
            0 => Ok(()),
            _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        })
    }

    fn punch(&self, file: &Handle, offset: u64, length: u64) -> Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, length))
    }

    fn allocate(&self, file: &Handle, offset: u64, length: u64, keep_size: bool) -> Result<()> {
        let flags = if keep_size {
            FallocateFlags::KEEP_SIZE
        } else {
            FallocateFlags::empty()
        };
        retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, length))
    }

    fn copy_range(&self, source: &Handle, from: u64, file: &Handle, to: u64, length: u64) -> Result<u64> {
        let (mut from, mut to, mut copied) = (from, to, 0);
        while copied < length {
            let most = usize::try_from(length - copied).unwrap_or(usize::MAX);
            let call = || rustix::fs::copy_file_range(source, Some(&mut from), file, Some(&mut to), most);
            match retry_on_intr(call) {
                Ok(0) => break,
                Ok(part) => copied += part as u64,
                // Of two file systems, or of one that cannot: copy_file_range(2).
                Err(Errno::XDEV | Errno::NOSYS | Errno::INVAL) if copied == 0 => return Err(Errno::OPNOTSUPP),
                Err(errno) => return Err(errno),
            }
        }
        Ok(copied)
    }

    fn next_data(&self, file: &Handle, offset: u64) -> Result<Option<(u64, u64)>> {
        let Some(start) = seek_extent(file, SeekFrom::Data(offset))? else {
            return Ok(None);
        };
        let end = seek_extent(file, SeekFrom::Hole(start))?; // None: truncated in between
        Ok(end.map(|end| (start, end)))
    }

    fn close(&self, file: &Handle) -> Result<()> {
        file.close()
    }

    fn try_lock(&self, file: &Handle) -> Result<bool> {
        lock::try_lock_open_file(file)
    }

    fn identity(&self, handle: &Handle) -> Result<Identity> {
        file_system_traits::identity(handle)
    }

    fn file_system_traits(&self, handle: &Handle) -> Result<FileSystemTraits> {
        file_system_traits::of(handle)
    }

    fn sync(&self, handle: &Handle) -> Result<()> {
        with_syncable(handle, |fd| retry_on_intr(|| rustix::fs::fsync(fd)))
    }

    fn sync_all(&self, handle: &Handle) -> Result<()> {
        with_syncable(handle, |fd| retry_on_intr(|| rustix::fs::syncfs(fd)))
    }
}

/// A name, if it is one component and stays where it is.
fn component(name: &OsStr) -> Result<&OsStr> {
    match name.as_bytes() {
        b"" | b".." => Err(Errno::INVAL),
        bytes if bytes.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(name),
    }
}

/// How open(2) is asked for access.
pub(crate) fn flags_of(access: Access) -> OFlags {
    match access {
        Access::Read => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
        Access::Write => OFlags::WRONLY,
        Access::Append => OFlags::WRONLY | OFlags::APPEND,
    }
}

fn open_at(dir: &Handle, name: &OsStr, flags: OFlags, mode: u32) -> Result<OwnedFd> {
    let name = component(name)?;
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::openat(dir, name, flags, mode_of(mode)))
}

/// Opens what must be a regular file. It is held and looked at before it is opened, because to open a pipe is to wait for its
/// other end, and to open a device may set it going.
fn open_regular(dir: &Handle, name: &OsStr, flags: OFlags) -> Result<OwnedFd> {
    let object = open_at(dir, name, OFlags::PATH, 0)?;
    match kind_held(object.as_fd())? {
        FileType::Symlink => return Err(Errno::LOOP),
        kind => regular(kind)?,
    }
    let flags = flags | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(proc_path(object.as_fd(), None), flags, Mode::empty()))
}

/// The kind of an open object, which never changes: the server is not asked again.
fn kind_held(fd: BorrowedFd<'_>) -> Result<FileType> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = retry_on_intr(|| rustix::fs::statx(fd, "", flags, StatxFlags::TYPE))?;
    kind_of(rustix::fs::FileType::from_raw_mode(found.stx_mode.into())).ok_or(Errno::IO)
}

/// An open directory, once more, for reading.
fn reopen_dir(dir: &Handle) -> Result<OwnedFd> {
    open_at(dir, OsStr::new("."), OFlags::RDONLY | OFlags::DIRECTORY, 0)
}

/// Runs a call that does not take `O_PATH` descriptors.
fn with_syncable(handle: &Handle, call: impl Fn(BorrowedFd<'_>) -> Result<()>) -> Result<()> {
    if rustix::fs::fcntl_getfl(handle)?.contains(OFlags::PATH) {
        return call(reopen_dir(handle)?.as_fd());
    }
    call(handle.as_fd())
}

/// The path of an open object, or of a name in an open directory, for calls that take no descriptor.
fn proc_path(fd: BorrowedFd<'_>, name: Option<&OsStr>) -> PathBuf {
    let mut path = String::from("/proc/self/fd/");
    write!(path, "{}", fd.as_raw_fd()).expect("a String takes all that is written");
    let path = PathBuf::from(path);
    match name {
        Some(name) => path.join(name),
        None => path,
    }
}

/// Runs a call with the usual buffer, then with the largest that can be needed.
fn grown(call: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let attempt = |capacity: usize| {
        let mut buffer = vec![0; capacity];
        let length = retry_on_intr(|| call(&mut buffer))?;
        buffer.truncate(length);
        Ok(buffer)
    };
    match attempt(XATTR_BYTES_FIRST) {
        Err(Errno::RANGE) => attempt(XATTR_BYTES_MAX),
        result => result,
    }
}

/// Seeks to data or a hole; `None` where there is no more (ENXIO).
fn seek_extent(file: &Handle, to: SeekFrom) -> Result<Option<u64>> {
    match retry_on_intr(|| rustix::fs::seek(file, to)) {
        Err(Errno::NXIO) => Ok(None),
        result => result.map(Some),
    }
}

fn mode_of(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

/// Owner and group as chown(2) takes them, where the highest id says "leave it" too.
fn owner_of(uid: Option<u32>, gid: Option<u32>) -> (Option<Uid>, Option<Gid>) {
    let id = |id: Option<u32>| id.filter(|&id| id != u32::MAX);
    (id(uid).map(Uid::from_raw), id(gid).map(Gid::from_raw))
}

/// Times as utimensat(2) takes them; EINVAL for nanoseconds that it would take for a command.
fn timestamps(atime: Option<Time>, mtime: Option<Time>) -> Result<Timestamps> {
    let timespec = |time: Option<Time>| match time {
        Some(Time {
            nanoseconds: 1_000_000_000..,
            ..
        }) => Err(Errno::INVAL),
        Some(time) => Ok(Timespec {
            tv_sec: time.seconds,
            tv_nsec: time.nanoseconds.into(),
        }),
        None => Ok(Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        }),
    };
    Ok(Timestamps {
        last_access: timespec(atime)?,
        last_modification: timespec(mtime)?,
    })
}

fn kind_of(file_type: rustix::fs::FileType) -> Option<FileType> {
    match file_type {
        rustix::fs::FileType::RegularFile => Some(FileType::File),
        rustix::fs::FileType::Directory => Some(FileType::Dir),
        rustix::fs::FileType::Symlink => Some(FileType::Symlink),
        rustix::fs::FileType::Fifo => Some(FileType::Fifo),
        rustix::fs::FileType::Socket => Some(FileType::Socket),
        rustix::fs::FileType::CharacterDevice => Some(FileType::CharDevice),
        rustix::fs::FileType::BlockDevice => Some(FileType::BlockDevice),
        rustix::fs::FileType::Unknown => None,
    }
}

/// Attributes by statx(2), which says what stat(2) does not.
fn look(call: impl Fn(AtFlags, StatxFlags) -> Result<Statx>) -> Result<Stat> {
    let found = retry_on_intr(|| call(AtFlags::empty(), StatxFlags::BASIC_STATS))?;
    let time = |time: rustix::fs::StatxTimestamp| Time {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    };
    let mode = u32::from(found.stx_mode);
    Ok(Stat {
        kind: kind_of(rustix::fs::FileType::from_raw_mode(mode)).ok_or(Errno::IO)?,
        mode: mode & 0o7777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        nlink: found.stx_nlink,
        size: found.stx_size,
        blocks: found.stx_blocks,
        rdev: rustix::fs::makedev(found.stx_rdev_major, found.stx_rdev_minor),
        ino: found.stx_ino,
        dev: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        atime: time(found.stx_atime),
        mtime: time(found.stx_mtime),
        ctime: time(found.stx_ctime),
        protection: protection_of(found.stx_attributes),
        is_encrypted: found.stx_attributes.contains(StatxAttributes::ENCRYPTED),
        breaks_links: false,
    })
}

/// The same, and whether its names are links to one file for ever.
fn with_links(found: Stat, dir: &Handle, name: impl Arg) -> Result<Stat> {
    if found.kind == FileType::Dir || found.nlink < 2 {
        return Ok(found);
    }
    let breaks_links = name.into_with_c_str(|name| Ok(breaks_links(dir, name, found.dev)))?;
    Ok(Stat { breaks_links, ..found })
}

fn protection_of(attributes: StatxAttributes) -> Protection {
    if attributes.contains(StatxAttributes::IMMUTABLE) {
        Protection::Immutable
    } else if attributes.contains(StatxAttributes::APPEND) {
        Protection::AppendOnly
    } else {
        Protection::None
    }
}
