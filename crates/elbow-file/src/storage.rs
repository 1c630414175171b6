//! The seam: every call that a job makes to the storage below it.
//!
//! Calls are `openat`-style: an object is named by an open directory and one path component, never by a
//! path. No call follows a symbolic link in its last component. An implementation keeps no state of its own
//! beyond counters: what a call means is what the system call of the same name means.

use std::ffi::{OsStr, OsString};
use std::io::IoSlice;

use serde::{Deserialize, Serialize};

use crate::far_end::FarEnd;
use crate::handle::{Errno, Handle, Result};
use crate::owners::OwnerSwap;
use crate::stat::{DirEntry, FileType, Space, Stat, Time};
use crate::{FileSystemTraits, Identity};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RenameMode {
    /// It is replaced.
    Replace,
    /// It is an error (EEXIST).
    NoReplace,
    /// The two names are exchanged.
    Exchange,
}

/// The storage below a job. All methods may block; all may be called from any thread.
///
/// What not every storage can do (nodes, extended attributes, holes, reserved space) has the answer of one that cannot.
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
    ///
    /// Without an implementation: a file is made, and nothing else (EPERM), as mknod(2) has it of file systems without nodes.
    fn mknod(&self, dir: &Handle, name: &OsStr, kind: FileType, mode: u32, _rdev: u64) -> Result<()> {
        match kind {
            FileType::File => self.create(dir, name, mode).and_then(|file| self.close(&file)),
            FileType::Dir | FileType::Symlink => Err(Errno::INVAL),
            _ => Err(Errno::PERM),
        }
    }
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
    /// The same as another machine sees them now, where a client of a network file system would answer from what it has seen before.
    fn stat_uncached(&self, dir: &Handle, name: &OsStr) -> Result<Stat>;
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
    fn list_xattrs(&self, _: &Handle, _: &OsStr) -> Result<Vec<OsString>> {
        Err(Errno::OPNOTSUPP)
    }
    /// Value of one extended attribute; ENODATA where there is none.
    fn get_xattr(&self, _: &Handle, _: &OsStr, _: &OsStr) -> Result<Vec<u8>> {
        Err(Errno::OPNOTSUPP)
    }
    /// Sets one extended attribute.
    fn set_xattr(&self, _: &Handle, _: &OsStr, _: &OsStr, _: &[u8]) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }
    /// Value of one extended attribute of an open file; ENODATA where there is none.
    fn get_xattr_handle(&self, _: &Handle, _: &OsStr) -> Result<Vec<u8>> {
        Err(Errno::OPNOTSUPP)
    }
    /// Sets one extended attribute of an open file.
    fn set_xattr_handle(&self, _: &Handle, _: &OsStr, _: &[u8]) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }
    /// Removes one extended attribute.
    fn remove_xattr(&self, _: &Handle, _: &OsStr, _: &OsStr) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }
    /// Removes one extended attribute of an open file.
    fn remove_xattr_handle(&self, _: &Handle, _: &OsStr) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    /// Reads up to `buffer.len()` bytes at an offset; fewer only at the end of the file.
    fn read(&self, file: &Handle, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Reads a part of an open file that somebody is going to read soon, so that it is near then: where nothing else keeps it, the storage does,
    /// for a short while. What is wrong with it is said to whoever reads it.
    ///
    /// Without an implementation it is read, which leaves it in the memory of the file system.
    fn read_ahead(&self, file: &Handle, offset: u64, length: usize) -> Result<()> {
        self.read(file, &mut vec![0; length], offset).map(drop)
    }
    /// Writes all pieces, one after the other, from an offset on. Of nothing to be written it is tried whether something could be.
    fn write(&self, file: &Handle, pieces: &[IoSlice<'_>], offset: u64) -> Result<()>;
    /// Sets the size of an open file.
    fn truncate(&self, file: &Handle, size: u64) -> Result<()>;
    /// Sets the size of a named file, as truncate(2) does: where that is the size that it has, its times may stay.
    fn truncate_named(&self, dir: &Handle, name: &OsStr, size: u64) -> Result<()>;
    /// Frees a range of an open file, which then reads as zeros; EOPNOTSUPP where holes cannot be punched.
    fn punch(&self, _: &Handle, _: u64, _: u64) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }
    /// Reserves blocks for a range of an open file that has none there, as fallocate(2): what reads as zeros still does. With `keep_size` a
    /// range behind the end of the file does not make it longer. EOPNOTSUPP where space cannot be reserved.
    fn allocate(&self, _: &Handle, _: u64, _: u64, _: bool) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }
    /// Copies a range of one open file into another without bringing it here, as copy_file_range(2), and gives how much of it was copied: less
    /// at the end of the source. EOPNOTSUPP where that cannot be done, also of no bytes: so it is found out.
    fn copy_range(&self, _: &Handle, _: u64, _: &Handle, _: u64, _: u64) -> Result<u64> {
        Err(Errno::OPNOTSUPP)
    }
    /// As [`copy_range`](Self::copy_range), and what the source is like when that is done: if it is as it was seen before, so are the bytes.
    fn copy_and_look(&self, source: &Handle, from: u64, file: &Handle, to: u64, length: u64) -> Result<(u64, Stat)> {
        let copied = self.copy_range(source, from, file, to, length)?;
        Ok((copied, self.stat_handle(source)?))
    }
    /// The first range of data at or after an offset, as `(start, end)`; `None` when only a hole follows.
    fn next_data(&self, file: &Handle, offset: u64) -> Result<Option<(u64, u64)>>;
    /// Closes an open file, if this is its only clone, and reports what close(2) reports: network file systems
    /// tell of failed writes here. The handle must not be used again.
    fn close(&self, file: &Handle) -> Result<()>;
    /// Takes the lock of a file that is open for writing, without waiting: `false` when it is taken through another open of
    /// the file, in this process or any other. It is held until the last clone of the handle is closed, or the process
    /// ends, or given up before by [`unlock_open_file`](crate::unlock_open_file); a file has it under every name, also after a rename. It keeps nobody from reading or writing. ENOLCK or
    /// EOPNOTSUPP, or ENOSYS, where files cannot be locked.
    fn try_lock(&self, file: &Handle) -> Result<bool>;
    /// Which object this is and how it was reached. The server is not asked.
    fn identity(&self, handle: &Handle) -> Result<Identity>;
    /// What the file system that holds an object is like.
    fn file_system_traits(&self, handle: &Handle) -> Result<FileSystemTraits>;
    /// Makes one open file or directory durable.
    fn sync(&self, handle: &Handle) -> Result<()>;
    /// Makes all of the file system that holds an object durable.
    fn sync_all(&self, handle: &Handle) -> Result<()>;

    /// The users and groups that have other numbers where the storage is than here: what is written there to be read by whoever comes next
    /// has those of that machine. `None` where none has.
    ///
    /// # Errors
    /// ENOTCONN, where the other machine has to be asked.
    fn owners_there(&self) -> Result<Option<OwnerSwap>> {
        Ok(None)
    }

    /// The other end of the connection, where the storage is elsewhere and whole pieces of work can be sent there.
    fn far_end(&self) -> Option<&dyn FarEnd> {
        None
    }
}

/// The calls of [`Storage`] in one table, for who stands in front of a storage: the name of the operation, the method, and what is to be seen
/// of the call beside the object that it is about ([`double::Call`](crate::double::Call)).
macro_rules! storage_calls {
    ($make:ident) => {
        $make! {
            /// [`Storage::open_dir`]
            OpenDir: open_dir(dir: &Handle, name: &OsStr) -> Handle = dir.named(name);
            /// [`Storage::create`]
            Create: create(dir: &Handle, name: &OsStr, mode: u32) -> Handle = dir.named(name);
            /// [`Storage::create_unnamed`]
            CreateUnnamed: create_unnamed(dir: &Handle, name: &OsStr, mode: u32) -> Handle = dir.named(name);
            /// [`Storage::open`]
            Open: open(dir: &Handle, name: &OsStr, access: Access) -> Handle = dir.named(name).with_access(access);
            /// [`Storage::mkdir`]
            Mkdir: mkdir(dir: &Handle, name: &OsStr, mode: u32) -> () = dir.named(name);
            /// [`Storage::symlink`]
            Symlink: symlink(target: &OsStr, dir: &Handle, name: &OsStr) -> () = dir.named(name).and(target);
            /// [`Storage::mknod`]
            Mknod: mknod(dir: &Handle, name: &OsStr, kind: FileType, mode: u32, rdev: u64) -> () = dir.named(name);
            /// [`Storage::link`]
            Link: link(dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr) -> ()
                = dir.named(name).and(new_name).within(new_dir);
            /// [`Storage::rename`]
            Rename: rename(dir: &Handle, name: &OsStr, new_dir: &Handle, new_name: &OsStr, mode: RenameMode) -> ()
                = dir.named(name).and(new_name).within(new_dir).how(mode);
            /// [`Storage::unlink`]
            Unlink: unlink(dir: &Handle, name: &OsStr) -> () = dir.named(name);
            /// [`Storage::rmdir`]
            Rmdir: rmdir(dir: &Handle, name: &OsStr) -> () = dir.named(name);
            /// [`Storage::stat`]
            Stat: stat(dir: &Handle, name: &OsStr) -> Stat = dir.named(name);
            /// [`Storage::stat_uncached`]
            StatUncached: stat_uncached(dir: &Handle, name: &OsStr) -> Stat = dir.named(name);
            /// [`Storage::stat_handle`]
            StatHandle: stat_handle(handle: &Handle) -> Stat = handle;
            /// [`Storage::list`]
            List: list(dir: &Handle) -> Vec<DirEntry> = dir;
            /// [`Storage::readlink`]
            Readlink: readlink(dir: &Handle, name: &OsStr) -> OsString = dir.named(name);
            /// [`Storage::space`]
            Space: space(handle: &Handle) -> Space = handle;
            /// [`Storage::chmod`]
            Chmod: chmod(dir: &Handle, name: &OsStr, mode: u32) -> () = dir.named(name);
            /// [`Storage::chmod_handle`]
            ChmodHandle: chmod_handle(file: &Handle, mode: u32) -> () = file;
            /// [`Storage::chown`]
            Chown: chown(dir: &Handle, name: &OsStr, uid: Option<u32>, gid: Option<u32>) -> () = dir.named(name);
            /// [`Storage::chown_handle`]
            ChownHandle: chown_handle(file: &Handle, uid: Option<u32>, gid: Option<u32>) -> () = file;
            /// [`Storage::set_times`]
            SetTimes: set_times(dir: &Handle, name: &OsStr, atime: Option<Time>, mtime: Option<Time>) -> () = dir.named(name);
            /// [`Storage::touch`]
            Touch: touch(dir: &Handle, name: &OsStr) -> () = dir.named(name);
            /// [`Storage::set_times_handle`]
            SetTimesHandle: set_times_handle(file: &Handle, atime: Option<Time>, mtime: Option<Time>) -> () = file;
            /// [`Storage::list_xattrs`]
            ListXattrs: list_xattrs(dir: &Handle, name: &OsStr) -> Vec<OsString> = dir.named(name);
            /// [`Storage::get_xattr`]
            GetXattr: get_xattr(dir: &Handle, name: &OsStr, key: &OsStr) -> Vec<u8> = dir.named(name).and(key);
            /// [`Storage::set_xattr`]
            SetXattr: set_xattr(dir: &Handle, name: &OsStr, key: &OsStr, value: &[u8]) -> ()
                = dir.named(name).and(key).of(value.len() as u64);
            /// [`Storage::get_xattr_handle`]
            GetXattrHandle: get_xattr_handle(file: &Handle, key: &OsStr) -> Vec<u8> = file.and(key);
            /// [`Storage::set_xattr_handle`]
            SetXattrHandle: set_xattr_handle(file: &Handle, key: &OsStr, value: &[u8]) -> ()
                = file.and(key).of(value.len() as u64);
            /// [`Storage::remove_xattr`]
            RemoveXattr: remove_xattr(dir: &Handle, name: &OsStr, key: &OsStr) -> () = dir.named(name).and(key);
            /// [`Storage::remove_xattr_handle`]
            RemoveXattrHandle: remove_xattr_handle(file: &Handle, key: &OsStr) -> () = file.and(key);
            /// [`Storage::read`]
            Read: read(file: &Handle, buffer: &mut [u8], offset: u64) -> usize = file.at(offset).of(buffer.len() as u64);
            /// [`Storage::read_ahead`]
            ReadAhead: read_ahead(file: &Handle, offset: u64, length: usize) -> () = file.at(offset).of(length as u64);
            /// [`Storage::write`]
            Write: write(file: &Handle, pieces: &[IoSlice<'_>], offset: u64) -> ()
                = file.at(offset).of(pieces.iter().map(|piece| piece.len() as u64).sum());
            /// [`Storage::truncate`]
            Truncate: truncate(file: &Handle, size: u64) -> () = file.of(size);
            /// [`Storage::truncate_named`]
            TruncateNamed: truncate_named(dir: &Handle, name: &OsStr, size: u64) -> () = dir.named(name).of(size);
            /// [`Storage::punch`]
            Punch: punch(file: &Handle, offset: u64, length: u64) -> () = file.at(offset).of(length);
            /// [`Storage::allocate`]
            Allocate: allocate(file: &Handle, offset: u64, length: u64, keep_size: bool) -> () = file.at(offset).of(length);
            /// [`Storage::copy_range`]
            CopyRange: copy_range(source: &Handle, from: u64, file: &Handle, to: u64, length: u64) -> u64
                = file.at(to).of(length);
            /// [`Storage::copy_and_look`]
            CopyAndLook: copy_and_look(source: &Handle, from: u64, file: &Handle, to: u64, length: u64) -> (u64, Stat)
                = file.at(to).of(length);
            /// [`Storage::next_data`]
            NextData: next_data(file: &Handle, offset: u64) -> Option<(u64, u64)> = file.at(offset);
            /// [`Storage::close`]
            Close: close(file: &Handle) -> () = file;
            /// [`Storage::try_lock`]
            TryLock: try_lock(file: &Handle) -> bool = file;
            /// [`Storage::identity`]
            Identity: identity(handle: &Handle) -> Identity = handle;
            /// [`Storage::file_system_traits`]
            FileSystemTraits: file_system_traits(handle: &Handle) -> FileSystemTraits = handle;
            /// [`Storage::sync`]
            Sync: sync(handle: &Handle) -> () = handle;
            /// [`Storage::sync_all`]
            SyncAll: sync_all(handle: &Handle) -> () = handle;
        }
    };
}

pub(crate) use storage_calls;
