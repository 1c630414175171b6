//! Kernel requests in, operations of the job out. No policy.
//!
//! One thread (fuser's) reads requests and answers all that the model can answer at once, which is nearly everything;
//! more reader threads measured slower. What has to ask the storage first ([`OpError::NeedsStorage`]) is handed to a
//! pool of threads that may block, which asks, tries again and replies. Writers that wait for room have a pool of their
//! own, so that they never hold up a reader.
//!
//! ```text
//!   request ──> op(job) ──> Ok / Errno ──────────────────────────> reply
//!                  └─> NeedsStorage(fetch) ──> pool: job.fetch ──> op(job) ... ──> reply
//! ```
//!
//! The kernel may remember names, missing names, attributes, link targets and data for ever: every change of the
//! tree comes through this mount, and the kernel keeps its own memory right for those.
//!
//! Readers of slow storage are read ahead for ([`crate::prefetch`]).
//!
//! What the kernel does for us: permission checks (`default_permissions`, POSIX ACLs), file locks, path lookup,
//! `O_APPEND` (it knows the size), readahead. What is refused: ioctls, and `copy_file_range` where the storage is not at the far end of a
//! connection (the kernel falls back).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use elbow_file::{Errno, RenameMode};
use elbow_job::{Attr, Caller, Ino, Job, OpError, Seek, SetAttr, SetIds, XattrMode};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use crate::caller::CallerIds;
use crate::convert;
use crate::dispatch::{FrontCore, Op, Reply, answer, later};
use crate::open_dirs::Snapshot;
use crate::options::FrontOptions;
use crate::pending_reply::{PendingReply, asked};
use crate::reply::{self, FOREVER};

/// The virtual attribute of the root that names the control socket of a mount.
pub const CONTROL_XATTR: &str = "user.elbow.control";

/// Largest write request; what the kernel's default limit of 256 pages carries.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Largest readahead asked for; the kernel may allow less.
const READAHEAD_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may have under way without a caller waiting, mostly readahead.
const BACKGROUND_MAX: u16 = 64;
/// Files stay cached between opens, and closing one is nobody's business.
const FILE_FLAGS: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);
/// Listings stay cached until the kernel changes the directory.
const DIR_FLAGS: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_CACHE_DIR);

/// `lseek` constants that reach a FUSE file system.
const SEEK_DATA: i32 = libc::SEEK_DATA;
const SEEK_HOLE: i32 = libc::SEEK_HOLE;

/// A job as a `fuser` file system.
pub struct Front {
    core: Arc<FrontCore>,
    /// The kernel leaves the umask to us (needed for default ACLs).
    takes_umask: bool,
}

impl Front {
    /// A front end over a job.
    #[must_use]
    pub fn new(job: Job, options: FrontOptions) -> Self {
        Self {
            core: Arc::new(FrontCore::new(job, options)),
            takes_umask: false,
        }
    }

    pub(crate) fn core(&self) -> Arc<FrontCore> {
        self.core.clone()
    }

    fn ino(&self, node: INodeNo) -> Ino {
        self.core.nodes.ino(node)
    }

    fn caller(&self, request: &Request, umask: u32) -> Caller {
        Caller {
            uid: request.uid(),
            gid: request.gid(),
            umask: if self.takes_umask { umask } else { 0 },
        }
    }

    fn path(&self, ino: Ino) -> PathBuf {
        self.core.job.path_of(ino)
    }

    fn ask<T: 'static>(&self, asked: PendingReply, op: impl Op<T>, reply: impl Reply<T>) {
        answer(&self.core, asked, op, reply);
    }

    fn ask_entry(&self, asked: PendingReply, op: impl Op<Attr>, reply: ReplyEntry) {
        self.ask(asked, op, |core, answer| reply::entry(core, reply, answer));
    }

    fn ask_empty(&self, asked: PendingReply, op: impl Op<()>, reply: ReplyEmpty) {
        self.ask(asked, op, |_, answer| reply::empty(reply, answer));
    }

    fn list(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: impl Reply<Arc<Snapshot>>,
    ) {
        let ino = self.ino(node);
        match self.core.dirs.get(handle.0) {
            // Who goes on must see the listing that it began with; from the beginning it is read anew (rewinddir(3)).
            Some(snapshot) if offset > 0 => reply(&self.core, Ok(snapshot)),
            _ => {
                let op = move |core: &FrontCore| core.snapshot(ino);
                let asked = asked!("readdir", request, self.path(ino));
                self.ask(asked, op, move |core, answer| {
                    let answer = answer.map(Arc::new);
                    if let Ok(snapshot) = &answer {
                        core.dirs.put(handle.0, snapshot.clone());
                    }
                    reply(core, answer);
                });
            }
        }
    }
}

/// Asks the kernel for all that helps; what an older kernel lacks is done without.
///
/// Not `FUSE_ATOMIC_O_TRUNC`: the kernel looks whether a program of the file is running after the open with its truncation. `O_RDONLY | O_TRUNC` was answered
/// with ETXTBSY, and the file was empty and the program died.
fn negotiate(config: &mut KernelConfig) {
    let wanted = InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_POSIX_ACL
        | InitFlags::FUSE_HANDLE_KILLPRIV_V2
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_CACHE_SYMLINKS
        | InitFlags::FUSE_ASYNC_DIO;
    let offered = wanted & config.capabilities();
    // These cannot fail: `offered` is what the kernel offers, and the setters name the nearest value they take.
    let _ = config.add_capabilities(offered);
    let _ = config.set_max_write(WRITE_BYTES_MAX);
    let _ = config.set_max_background(BACKGROUND_MAX);
    if let Err(most) = config.set_max_readahead(READAHEAD_BYTES_MAX) {
        let _ = config.set_max_readahead(most);
    }
}

fn rename_mode(flags: RenameFlags) -> Option<RenameMode> {
    match flags.bits() {
        0 => Some(RenameMode::Replace),
        libc::RENAME_NOREPLACE => Some(RenameMode::NoReplace),
        libc::RENAME_EXCHANGE => Some(RenameMode::Exchange),
        _ => None,
    }
}

/// A file handle remembers only what it may do.
fn handle_of(mode: OpenAccMode) -> FileHandle {
    FileHandle(match mode {
        OpenAccMode::O_RDONLY => 0,
        OpenAccMode::O_WRONLY => 1,
        OpenAccMode::O_RDWR => 2,
    })
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.takes_umask = config.capabilities().contains(InitFlags::FUSE_DONT_MASK);
        negotiate(config);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, name) = (self.ino(parent), name.to_owned());
        let asked = asked!("lookup", request, self.core.path_below(parent, &name));
        let op = move |core: &FrontCore| core.job.lookup(parent, &name);
        self.ask(asked, op, |core, answer| match answer {
            // The kernel remembers that the name is free, too: nobody else can take it.
            Err(Errno::NOENT) => reply.entry(&FOREVER, &convert::no_entry(), Generation(0)),
            answer => reply::entry(core, reply, answer),
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.core.job.forget(self.ino(ino), lookups);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ino = self.ino(ino);
        let asked = asked!("getattr", request, self.path(ino));
        self.ask(
            asked,
            move |core: &FrontCore| core.job.getattr(ino),
            |core, answer| reply::attr(core, reply, answer),
        );
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (node, ino, who) = (ino, self.ino(ino), CallerIds::of(request));
        let asked = asked!("setattr", request, self.path(ino), ?mode, ?size);
        let set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            by_name: handle.is_none() && !(size == Some(0) && self.core.openers.is_last(request.pid(), ino)),
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            set_ids: SetIds::Stay,
        };
        // Another one comes before a write that takes capabilities.
        let to_nobody = is_nothing(&set) && !self.core.takers.is_last(request.pid(), ino);
        let op = move |core: &FrontCore| core.setattr(ino, &set, who, to_nobody);
        // What was written through a map before is stored before: later it would change the time that is set here. (Never with a size: until that
        // is answered, the kernel holds all writes to the file back.)
        if set.mtime.is_some() && set.size.is_none() && self.core.mappable.has(ino) {
            let core = self.core.clone();
            self.core.run(move || {
                core.fetch_mapped(node);
                answer(&core, asked, op, |core, answer| reply::attr(core, reply, answer));
            });
            return;
        }
        self.ask(asked, op, |core, answer| reply::attr(core, reply, answer));
    }

    fn readlink(&self, request: &Request, ino: INodeNo, reply: ReplyData) {
        let ino = self.ino(ino);
        let asked = asked!("readlink", request, self.path(ino));
        let op = move |core: &FrontCore| core.job.readlink(ino);
        self.ask(asked, op, |_, answer| {
            reply::data(reply, answer.map(|target| target.as_bytes().to_vec()));
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = convert::kind_of_mode(mode) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let (caller, parent, name) = (self.caller(request, umask), self.ino(parent), name.to_owned());
        let (mode, rdev) = (mode & 0o7777, convert::from_kernel_device(rdev));
        let asked = asked!("mknod", request, self.core.path_below(parent, &name));
        self.ask_entry(
            asked,
            move |core: &FrontCore| core.job.mknod(caller, parent, &name, kind, mode, rdev),
            reply,
        );
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (caller, parent, name) = (self.caller(request, umask), self.ino(parent), name.to_owned());
        let asked = asked!("mkdir", request, self.core.path_below(parent, &name));
        self.ask_entry(
            asked,
            move |core: &FrontCore| core.job.mkdir(caller, parent, &name, mode & 0o7777),
            reply,
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (self.ino(parent), name.to_owned());
        let asked = asked!("unlink", request, self.core.path_below(parent, &name));
        self.ask_empty(asked, move |core: &FrontCore| core.job.unlink(parent, &name), reply);
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (self.ino(parent), name.to_owned());
        let asked = asked!("rmdir", request, self.core.path_below(parent, &name));
        self.ask_empty(asked, move |core: &FrontCore| core.job.rmdir(parent, &name), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (caller, parent) = (self.caller(request, 0), self.ino(parent));
        let (name, target) = (name.to_owned(), target.as_os_str().to_owned());
        let asked = asked!("symlink", request, self.core.path_below(parent, &name));
        self.ask_entry(
            asked,
            move |core: &FrontCore| core.job.symlink(caller, parent, &name, &target),
            reply,
        );
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(mode) = rename_mode(flags) else {
            return reply.error(fuser::Errno::EINVAL);
        };
        let (parent, name) = (self.ino(parent), name.to_owned());
        let (new_parent, new_name) = (self.ino(new_parent), new_name.to_owned());
        let path = |dir, name: &OsStr| self.core.path_below(dir, name);
        let asked = asked!("rename", request, path(parent, &name), to = ?path(new_parent, &new_name));
        self.ask_empty(
            asked,
            move |core: &FrontCore| core.job.rename(parent, &name, new_parent, &new_name, mode),
            reply,
        );
    }

    fn link(&self, request: &Request, ino: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let (ino, new_parent, new_name) = (self.ino(ino), self.ino(new_parent), new_name.to_owned());
        let asked = asked!("link", request, self.path(ino), to = ?self.core.path_below(new_parent, &new_name));
        self.ask_entry(
            asked,
            move |core: &FrontCore| core.job.link(ino, new_parent, &new_name),
            reply,
        );
    }

    /// What is to be truncated too is truncated by `setattr`.
    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let ino = self.ino(ino);
        self.core.openers.note(request.pid(), ino);
        let mode = flags.acc_mode();
        let write = mode != OpenAccMode::O_RDONLY;
        let asked = asked!("open", request, self.path(ino), write);
        let op = move |core: &FrontCore| core.job.open(ino, write, false);
        self.ask(asked, op, move |core, answer| match answer {
            Ok(()) => {
                // Before the reply: the first write through a map may come right after it.
                core.mappable.opened(ino, mode);
                reply.opened(handle_of(mode), FILE_FLAGS);
                if !write {
                    core.read_siblings(ino);
                }
            }
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (ino, length) = (self.ino(ino), size as usize);
        let asked = asked!("read", request, self.path(ino), offset, length);
        match self.core.job.read(ino, offset, length) {
            Ok(data) => reply::data(reply, asked.told(Ok(data))),
            Err(OpError::Errno(errno)) => reply::data(reply, asked.told(Err(errno))),
            Err(OpError::NeedsStorage(fetch)) => {
                let core = self.core.clone();
                asked.waits_for(&fetch);
                self.core.run(move || {
                    let read = asked.within(|| core.read_from_storage(&fetch, ino, offset, length));
                    reply::data(reply, asked.told(read));
                });
                self.core.read_ahead(ino, offset, length);
            }
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ino = self.ino(ino);
        let set_ids = (
            write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            CallerIds::of(request),
        );
        let send = move |_: &Arc<FrontCore>, answer: Result<usize, Errno>| match answer {
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(convert::errno(errno)),
        };
        let asked = asked!("write", request, self.path(ino), offset, length = data.len());
        match self.core.write(ino, offset, data, set_ids) {
            Ok(written) => send(&self.core, asked.told(Ok(written))),
            Err(OpError::Errno(errno)) => send(&self.core, asked.told(Err(errno))),
            Err(OpError::NeedsStorage(fetch)) => {
                // The request's own buffer is gone when this returns.
                let data = data.to_vec();
                later(
                    &self.core,
                    asked,
                    fetch,
                    move |core: &FrontCore| core.write(ino, offset, &data, set_ids),
                    send,
                );
            }
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS); // the kernel does not ask again
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let ino = self.ino(ino);
        let asked = asked!("release", request, self.path(ino));
        self.core.openers.forget(ino);
        // mmap(2): only such a descriptor can be mapped shared and writable.
        if handle == handle_of(OpenAccMode::O_RDWR) {
            self.core.mappable.closed(ino);
        }
        self.core.job.release(ino, handle != handle_of(OpenAccMode::O_RDONLY));
        self.core.let_go(ino);
        reply::empty(reply, asked.told(Ok(())));
    }

    fn fsync(&self, request: &Request, ino: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let ino = self.ino(ino);
        let asked = asked!("fsync", request, self.path(ino));
        let sync = move |core: &FrontCore| reply::empty(reply, asked.told(core.job.fsync(ino)));
        // Without it there is nothing to wait for: nothing is published before all of it is durable.
        if self.core.options.durable {
            let core = self.core.clone();
            self.core.run(move || sync(&core));
        } else {
            sync(&self.core);
        }
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, handle: FileHandle, datasync: bool, reply: ReplyEmpty) {
        self.fsync(request, ino, handle, datasync, reply);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(self.core.dirs.open()), DIR_FLAGS);
    }

    fn readdir(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.list(request, ino, handle, offset, move |core, answer| match answer {
            Ok(snapshot) => reply::names(core, reply, offset, &snapshot),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn readdirplus(&self, request: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.list(request, ino, handle, offset, move |core, answer| match answer {
            Ok(snapshot) => reply::names_plus(core, reply, offset, &snapshot),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.core.dirs.close(handle.0);
        reply.ok();
    }

    fn statfs(&self, request: &Request, _: INodeNo, reply: ReplyStatfs) {
        let asked = asked!("statfs", request, Path::new(""));
        self.ask(
            asked,
            |core: &FrontCore| core.job.statfs(),
            |_, answer| match answer {
                Ok(space) => reply::space(reply, &space),
                Err(errno) => reply.error(convert::errno(errno)),
            },
        );
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            0 => XattrMode::Any,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let (ino, name, value) = (self.ino(ino), name.to_owned(), value.to_vec());
        let who = CallerIds::of(request);
        let asked = asked!("setxattr", request, self.path(ino), ?name);
        self.ask_empty(
            asked,
            move |core: &FrontCore| core.set_xattr(ino, (&name, &value), mode, who),
            reply,
        );
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let ino = self.ino(ino);
        // It is on no storage: by this `elbow status` finds the process that serves the mount.
        if ino == Ino::ROOT
            && name == CONTROL_XATTR
            && let Some(control) = &self.core.options.control
        {
            return reply::xattr(reply, size, Ok(control.as_bytes().to_vec()));
        }
        let name = name.to_owned();
        let asked = asked!("getxattr", request, self.path(ino), ?name);
        let op = move |core: &FrontCore| core.job.get_xattr(ino, &name);
        self.ask(asked, op, move |_, answer| reply::xattr(reply, size, answer));
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (ino, is_root) = (self.ino(ino), request.uid() == 0);
        let asked = asked!("listxattr", request, self.path(ino));
        let op = move |core: &FrontCore| core.job.list_xattrs(ino);
        self.ask(asked, op, move |_, answer| {
            reply::xattr(reply, size, answer.map(|names| reply::name_list(names, is_root)));
        });
    }

    fn removexattr(&self, request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (ino, name) = (self.ino(ino), name.to_owned());
        let asked = asked!("removexattr", request, self.path(ino), ?name);
        // The kernel does this before a write to such a file, and then sends a setattr of nothing, which is no chown.
        if name == "security.capability" {
            self.core.takers.note(request.pid(), ino);
        }
        self.ask_empty(asked, move |core: &FrontCore| core.job.remove_xattr(ino, &name), reply);
    }

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS); // the kernel checks by itself
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, parent, name) = (self.caller(request, umask), self.ino(parent), name.to_owned());
        let asked = asked!("create", request, self.core.path_below(parent, &name));
        // Also one that is only read: the job has opened it for writing, and closes it so.
        let opened = match OpenFlags(flags).acc_mode() {
            OpenAccMode::O_RDWR => OpenAccMode::O_RDWR,
            _ => OpenAccMode::O_WRONLY,
        };
        let op = move |core: &FrontCore| core.job.create(caller, parent, &name, mode & 0o7777);
        self.ask(asked, op, move |core, answer| match answer {
            Ok(attr) => {
                core.mappable.opened(attr.ino, opened);
                reply.created(
                    &reply::remembered(&attr),
                    &core.nodes.entry(&attr),
                    Generation(0),
                    handle_of(opened),
                    FILE_FLAGS,
                );
            }
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let ino = self.ino(ino);
        let who = CallerIds::of(request);
        let asked = asked!("fallocate", request, self.path(ino), mode, offset, length);
        self.ask_empty(
            asked,
            move |core: &FrontCore| core.fallocate(ino, mode, (offset, length), who),
            reply,
        );
    }

    fn copy_file_range(
        &self,
        request: &Request,
        source: INodeNo,
        _: FileHandle,
        from: u64,
        ino: INodeNo,
        _: FileHandle,
        to: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (source, ino) = (self.ino(source), self.ino(ino));
        let who = CallerIds::of(request);
        let asked = asked!("copy_file_range", request, self.path(source), to = ?self.path(ino), length);
        let op = move |core: &FrontCore| core.copy((source, from), (ino, to), length, who);
        self.ask(asked, op, |_, answer| match answer {
            Ok(copied) => reply.written(u32::try_from(copied).expect("a copy is made in small parts")),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn lseek(&self, request: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(fuser::Errno::ENXIO);
        };
        let (node, ino) = (ino, self.ino(ino));
        let seek = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        // What is written through a map is no hole: the kernel has to be asked for it, and this thread has to take it.
        let known = match self.core.mappable.has(ino) {
            true => None,
            false => self.core.job.seek(ino, offset, seek).ok(),
        };
        let asked = asked!("lseek", request, self.path(ino), offset, ?seek);
        match known {
            Some(found) => reply::position(reply, asked.told(Ok(found))),
            None => {
                let core = self.core.clone();
                self.core.run(move || {
                    let found = asked.within(|| core.seek_blocking(node, offset, seek));
                    reply::position(reply, asked.told(found));
                });
            }
        }
    }
}

/// Whether a request changes nothing.
fn is_nothing(set: &SetAttr) -> bool {
    *set == SetAttr {
        by_name: set.by_name,
        ..SetAttr::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_that_we_do_not_know_are_refused() {
        assert_eq!(rename_mode(RenameFlags::empty()), Some(RenameMode::Replace));
        assert_eq!(rename_mode(RenameFlags::RENAME_NOREPLACE), Some(RenameMode::NoReplace));
        assert_eq!(rename_mode(RenameFlags::RENAME_EXCHANGE), Some(RenameMode::Exchange));
        assert_eq!(rename_mode(RenameFlags::RENAME_WHITEOUT), None);
        assert_eq!(
            rename_mode(RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE),
            None
        );
    }
}
