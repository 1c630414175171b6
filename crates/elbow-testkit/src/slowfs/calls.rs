//! Requests as system calls: each function does what one request means on the directory below, with no delay.
//!
//! Permissions are the kernel's affair (`default_permissions`). What is created gets the owner that it would have got
//! from the caller itself, group inheritance and default ACLs included.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{TimeOrNow, WriteFlags};
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Stat, StatVfs, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat, copy_file_range, fallocate, fchmod,
    fcntl_getfl, fdatasync, fstat, fstatvfs, fsync, ftruncate, getxattr, linkat, listxattr, mkdirat, mknodat, openat,
    readlinkat, removexattr, renameat_with, seek, setxattr, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::{Errno, Result, pread, pwrite};
use rustix::process::umask;

use super::tree::{DirEntry, Tree};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The mode of something to be created and the caller's umask, which a default ACL overrides.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewMode {
    pub(super) mode: u32,
    pub(super) umask: u32,
}

/// What `FUSE_SETATTR` changes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
    pub(super) handle: Option<u64>,
}

impl Change {
    fn is_nothing(&self) -> bool {
        let times = self.atime.is_some() || self.mtime.is_some();
        !(self.mode.is_some() || self.uid.is_some() || self.gid.is_some() || self.size.is_some() || times)
    }
}

/// A place in a file, for [`Tree::copy_range`].
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePosition {
    pub(super) handle: u64,
    pub(super) offset: u64,
}

/// A node and its attributes, as an answer to the kernel.
pub(super) type NodeAttributes = (u64, Stat);

const SUID: u32 = libc::S_ISUID;
const SGID: u32 = libc::S_ISGID;

impl Tree {
    pub(super) fn lookup(&self, parent: u64, name: &OsStr) -> Result<NodeAttributes> {
        let parent = self.node(parent)?;
        let fd = openat(
            &parent.fd,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        self.learn(fd, name)
    }

    pub(super) fn getattr(&self, id: u64) -> Result<Stat> {
        fstat(&self.node(id)?.fd)
    }

    pub(super) fn setattr(&self, id: u64, change: Change, caller: Caller) -> Result<Stat> {
        let node = self.node(id)?;
        if let Some(mode) = change.mode {
            chmodat(CWD, proc_path(&node.fd), Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        // Of chown(2) to the owner -1 and the group -1 nothing is left but the request.
        let is_nothing = change.is_nothing() && [0, fstat(&node.fd)?.st_uid].contains(&caller.uid);
        if change.uid.is_some() || change.gid.is_some() || is_nothing {
            let (owner, group) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            chownat(&node.fd, "", owner, group, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = change.size {
            self.truncate(id, change.handle, size)?;
            drop_privileges(&node.fd, caller.uid != 0)?;
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(change.atime),
                last_modification: timespec(change.mtime),
            };
            utimensat(&node.fd, "", &times, AtFlags::EMPTY_PATH)?;
        }
        fstat(&node.fd)
    }

    fn truncate(&self, id: u64, handle: Option<u64>, size: u64) -> Result<()> {
        match handle.map(|handle| self.handle(handle)).transpose()? {
            Some(handle) => ftruncate(&handle.fd, size),
            None => ftruncate(reopen(&self.node(id)?.fd, OFlags::WRONLY | OFlags::NONBLOCK)?, size),
        }
    }

    pub(super) fn readlink(&self, id: u64) -> Result<CString> {
        readlinkat(&self.node(id)?.fd, "", Vec::new())
    }

    pub(super) fn mknod(
        &self,
        parent: u64,
        name: &OsStr,
        new: NewMode,
        rdev: u32,
        caller: Caller,
    ) -> Result<NodeAttributes> {
        let dir = self.node(parent)?;
        let kind = match FileType::from_raw_mode(new.mode) {
            FileType::Unknown => FileType::RegularFile,
            kind => kind,
        };
        umask(Mode::from_raw_mode(new.umask));
        mknodat(&dir.fd, name, kind, Mode::from_raw_mode(new.mode), u64::from(rdev))?;
        self.adopt(parent, name, new.mode, caller)
    }

    pub(super) fn mkdir(&self, parent: u64, name: &OsStr, new: NewMode, caller: Caller) -> Result<NodeAttributes> {
        umask(Mode::from_raw_mode(new.umask));
        mkdirat(&self.node(parent)?.fd, name, Mode::from_raw_mode(new.mode))?;
        self.adopt(parent, name, 0, caller)
    }

    pub(super) fn symlink(&self, parent: u64, name: &OsStr, target: &Path, caller: Caller) -> Result<NodeAttributes> {
        symlinkat(target, &self.node(parent)?.fd, name)?;
        self.adopt(parent, name, 0, caller)
    }

    pub(super) fn link(&self, id: u64, parent: u64, name: &OsStr) -> Result<NodeAttributes> {
        linkat(
            CWD,
            proc_path(&self.node(id)?.fd),
            &self.node(parent)?.fd,
            name,
            AtFlags::SYMLINK_FOLLOW,
        )?;
        self.lookup(parent, name)
    }

    /// Creates a file, or opens one that is there and may be.
    pub(super) fn create(
        &self,
        parent: u64,
        name: &OsStr,
        new: NewMode,
        flags: i32,
        caller: Caller,
    ) -> Result<(NodeAttributes, u64)> {
        let dir = self.node(parent)?;
        let asked = OFlags::from_bits_retain(flags.cast_unsigned()) - OFlags::DIRECT;
        let fixed = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        umask(Mode::from_raw_mode(new.umask));
        let (fd, known) = match openat(&dir.fd, name, asked | fixed, Mode::from_raw_mode(new.mode)) {
            Ok(fd) => (fd, self.adopt(parent, name, new.mode, caller)?),
            Err(Errno::EXIST) if !asked.contains(OFlags::EXCL) => {
                let known = self.lookup(parent, name)?;
                (reopen(&self.node(known.0)?.fd, asked - OFlags::CREATE)?, known)
            }
            Err(errno) => return Err(errno),
        };
        Ok((known, self.open_handle(known.0, fd)))
    }

    /// Gives what was just created the owner it would have got from the caller itself.
    fn adopt(&self, parent: u64, name: &OsStr, mode: u32, caller: Caller) -> Result<NodeAttributes> {
        let (id, stat) = self.lookup(parent, name)?;
        if !self.privileged || (caller.uid == 0 && caller.gid == 0) {
            return Ok((id, stat));
        }
        let inherits_group = fstat(&self.node(parent)?.fd)?.st_mode & SGID != 0;
        let group = (!inherits_group).then(|| Gid::from_raw(caller.gid));
        let node = self.node(id)?;
        chownat(
            &node.fd,
            "",
            Some(Uid::from_raw(caller.uid)),
            group,
            AtFlags::EMPTY_PATH,
        )?;
        if mode & (SUID | SGID) != 0 {
            chmodat(
                CWD,
                proc_path(&node.fd),
                Mode::from_raw_mode(stat.st_mode),
                AtFlags::empty(),
            )?;
        }
        Ok((id, fstat(&node.fd)?))
    }

    pub(super) fn unlink(&self, parent: u64, name: &OsStr) -> Result<()> {
        if self.hide_if_open(parent, name)? {
            Ok(())
        } else {
            unlinkat(&self.node(parent)?.fd, name, AtFlags::empty())
        }
    }

    /// Renames a file that is open instead of letting it go, where that is what this storage does.
    fn hide_if_open(&self, parent: u64, name: &OsStr) -> Result<bool> {
        let Some(hidden) = &self.hidden else { return Ok(false) };
        let dir = self.node(parent)?;
        match statat(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Directory => {
                hidden.lock().hide(self.number(&stat), &dir, name)
            }
            _ => Ok(false), // Whoever asks gets the error from the call that was meant.
        }
    }

    pub(super) fn rmdir(&self, parent: u64, name: &OsStr) -> Result<()> {
        unlinkat(&self.node(parent)?.fd, name, AtFlags::REMOVEDIR)
    }

    pub(super) fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Result<()> {
        let (old, new) = (self.node(from.0)?, self.node(to.0)?);
        if flags == 0 && from != to {
            self.hide_if_open(to.0, to.1)?;
        }
        renameat_with(&old.fd, from.1, &new.fd, to.1, RenameFlags::from_bits_retain(flags))?;
        if let Ok(stat) = statat(&new.fd, to.1, AtFlags::SYMLINK_NOFOLLOW) {
            self.renamed(&stat, to.1);
        }
        Ok(())
    }

    pub(super) fn open_file(&self, id: u64, flags: i32, caller: Caller) -> Result<u64> {
        let node = self.node(id)?;
        let asked = OFlags::from_bits_retain(flags.cast_unsigned());
        let fd = reopen(
            &node.fd,
            asked - OFlags::CREATE - OFlags::EXCL - OFlags::NOFOLLOW - OFlags::DIRECT,
        )?;
        if asked.contains(OFlags::TRUNC) {
            drop_privileges(&node.fd, caller.uid != 0)?;
        }
        Ok(self.open_handle(id, fd))
    }

    pub(super) fn read(&self, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>> {
        let handle = self.handle(handle)?;
        let mut data = vec![0; size as usize];
        let mut filled = 0;
        while filled < data.len() {
            match pread(&handle.fd, &mut data[filled..], offset + filled as u64)? {
                0 => break,
                more => filled += more,
            }
        }
        data.truncate(filled);
        Ok(data)
    }

    pub(super) fn write(&self, handle: u64, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        let handle = self.handle(handle)?;
        // What was written in memory has its place, whatever the file was opened for; pwrite(2) would append it.
        let is_page = flags.contains(WriteFlags::FUSE_WRITE_CACHE) && fcntl_getfl(&handle.fd)?.contains(OFlags::APPEND);
        let in_place = is_page.then(|| reopen(&handle.fd, OFlags::WRONLY)).transpose()?;
        let fd = in_place.as_ref().unwrap_or(&handle.fd);
        let mut written = 0;
        while written < data.len() {
            match pwrite(fd, &data[written..], offset + written as u64) {
                Ok(more) => written += more,
                Err(_) if written > 0 => break, // What is there counts; the next write gets the error.
                Err(errno) => return Err(errno),
            }
        }
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            drop_privileges(&handle.fd, true)?;
        }
        Ok(written)
    }

    /// What closing one descriptor of an open file may have to say.
    pub(super) fn flush(&self, handle: u64) -> Result<()> {
        drop(rustix::io::fcntl_dupfd_cloexec(&self.handle(handle)?.fd, 0)?);
        Ok(())
    }

    pub(super) fn sync(&self, handle: u64, data_only: bool) -> Result<()> {
        let handle = self.handle(handle)?;
        if data_only {
            fdatasync(&handle.fd)
        } else {
            fsync(&handle.fd)
        }
    }

    pub(super) fn open_dir(&self, id: u64) -> Result<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(self.open_handle(id, openat(&self.node(id)?.fd, ".", flags, Mode::empty())?))
    }

    /// The entries from a position on; position 0 reads the directory again.
    pub(super) fn list(&self, handle: u64, offset: u64) -> Result<Vec<DirEntry>> {
        let handle = self.handle(handle)?;
        let mut listing = handle.listing.lock();
        if offset == 0 {
            *listing = read_dir(&handle.fd)?;
        }
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX).min(listing.len());
        Ok(listing[skipped..].to_vec())
    }

    pub(super) fn statfs(&self, id: u64) -> Result<StatVfs> {
        fstatvfs(&self.node(id)?.fd)
    }

    pub(super) fn setxattr(&self, id: u64, name: &OsStr, value: &[u8], flags: i32) -> Result<()> {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        setxattr(proc_path(&self.node(id)?.fd), name, value, flags)
    }

    pub(super) fn getxattr(&self, id: u64, name: &OsStr) -> Result<Vec<u8>> {
        let path = proc_path(&self.node(id)?.fd);
        with_room(|room| getxattr(&path, name, room))
    }

    /// The names that local file systems tell: those of trusted attributes to root alone.
    pub(super) fn listxattr(&self, id: u64, who: Caller) -> Result<Vec<u8>> {
        let path = proc_path(&self.node(id)?.fd);
        let names = with_room(|room| listxattr(&path, room))?;
        let is_told = |name: &&[u8]| who.uid == 0 || !name.starts_with(b"trusted.");
        Ok(names
            .split_inclusive(|byte| *byte == 0)
            .filter(is_told)
            .collect::<Vec<_>>()
            .concat())
    }

    pub(super) fn removexattr(&self, id: u64, name: &OsStr) -> Result<()> {
        removexattr(proc_path(&self.node(id)?.fd), name)
    }

    pub(super) fn fallocate(&self, handle: u64, offset: u64, length: u64, mode: i32) -> Result<()> {
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        fallocate(&self.handle(handle)?.fd, mode, offset, length)
    }

    pub(super) fn lseek(&self, handle: u64, offset: i64, whence: i32) -> Result<i64> {
        let at = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let position = match whence {
            libc::SEEK_DATA => SeekFrom::Data(at),
            libc::SEEK_HOLE => SeekFrom::Hole(at),
            _ => return Err(Errno::INVAL),
        };
        seek(&self.handle(handle)?.fd, position)?
            .try_into()
            .map_err(|_| Errno::OVERFLOW)
    }

    pub(super) fn copy_range(&self, from: FilePosition, to: FilePosition, length: u64) -> Result<usize> {
        let (source, target) = (self.handle(from.handle)?, self.handle(to.handle)?);
        let (mut source_at, mut target_at) = (from.offset, to.offset);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        copy_file_range(
            &source.fd,
            Some(&mut source_at),
            &target.fd,
            Some(&mut target_at),
            length,
        )
    }
}

/// A path that leads to an open file, whatever its name is now.
fn proc_path(fd: &impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
}

fn reopen(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd> {
    openat(CWD, proc_path(fd), flags | OFlags::CLOEXEC, Mode::empty())
}

/// Takes the set-id bits away, as a change of the data by an ordinary user does.
fn drop_privileges(fd: &impl AsFd, ordinary_user: bool) -> Result<()> {
    if !ordinary_user {
        return Ok(());
    }
    let stat = fstat(fd)?;
    let sgid_counts = stat.st_mode & SGID != 0 && stat.st_mode & libc::S_IXGRP != 0;
    let dropped = (stat.st_mode & SUID) | if sgid_counts { SGID } else { 0 };
    if dropped == 0 || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let mode = Mode::from_raw_mode(stat.st_mode & !dropped);
    match fchmod(fd, mode) {
        Err(Errno::BADF) => chmodat(CWD, proc_path(fd), mode, AtFlags::empty()), // An O_PATH descriptor.
        other => other,
    }
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |nanoseconds| Timespec {
        tv_sec: 0,
        tv_nsec: nanoseconds,
    };
    match time {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => exact_timespec(time),
    }
}

/// The inverse of what `fuser` makes of the kernel's seconds and nanoseconds: before 1970 it subtracts both.
fn exact_timespec(time: SystemTime) -> Timespec {
    let parts = |span: std::time::Duration| (i64::try_from(span.as_secs()).unwrap_or(i64::MAX), span.subsec_nanos());
    let (tv_sec, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => parts(after),
        Err(before) => {
            let (seconds, nanoseconds) = parts(before.duration());
            (-seconds, nanoseconds)
        }
    };
    Timespec {
        tv_sec,
        tv_nsec: nanoseconds.into(),
    }
}

fn read_dir(fd: &OwnedFd) -> Result<Vec<DirEntry>> {
    let mut dir = Dir::read_from(fd)?;
    dir.rewind();
    let entry = |entry: rustix::fs::DirEntry| DirEntry {
        name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
        ino: entry.ino(),
        kind: entry.file_type(),
    };
    dir.map(|found| found.map(entry)).collect()
}

/// The largest extended attribute, and the largest list of their names, that Linux has.
const MAX_XATTR: usize = 64 * 1024;

fn with_room(get: impl FnOnce(&mut Vec<u8>) -> Result<usize>) -> Result<Vec<u8>> {
    let mut room = vec![0; MAX_XATTR];
    let length = get(&mut room)?;
    room.truncate(length);
    Ok(room)
}

/// Whether a name is one of the two that every directory has.
pub(super) fn is_dot(name: &OsStr) -> bool {
    matches!(name.as_bytes(), b"." | b"..")
}
