//! Kernel requests in, operations of the job out. No policy.
//!
//! One thread (fuser's) reads requests and answers all that the model can answer at once, which is nearly
//! everything; more reader threads measured slower. What has to ask the storage first ([`Stop::Wait`]) is handed
//! to a pool of threads that may block, which asks, tries again and replies. Writers that wait for room have a
//! pool of their own, so that they never hold up a reader.
//!
//! ```text
//!   request ──> op(job) ──> Ok / Errno ──────────────────────────> reply
//!                  └─> Wait(fetch) ──> pool: job.fetch ──> op(job) ... ──> reply
//! ```
//!
//! The kernel may remember names, missing names, attributes, link targets and data for ever: every change of the
//! tree comes through this mount, and the kernel keeps its own memory right for those.
//!
//! What the kernel does for us: permission checks (`default_permissions`, POSIX ACLs), file locks, path lookup,
//! `O_APPEND` (it knows the size), readahead. What is refused: `copy_file_range` and ioctls (callers fall back).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use elbow_file::{Errno, Kind, RenameMode, Space};
use elbow_job::{Answer, Attr, Caller, Fetch, Ino, Job, Seek, SetAttr, Stop, XattrMode};
use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};

use crate::convert;
use crate::nodes::Nodes;
use crate::open_dirs::{Item, OpenDirs, Snapshot};
use crate::pool::Pool;

/// The virtual attribute of the root that names the control socket of a mount.
pub const CONTROL_XATTR: &str = "user.elbow.control";

/// How long the kernel may remember: until the mount ends.
const FOREVER: Duration = Duration::from_secs(1 << 30);
/// Largest write request; what the kernel's default limit of 256 pages carries.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Largest readahead asked for; the kernel may allow less.
const READAHEAD_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel may have under way without a caller waiting, mostly readahead.
const BACKGROUND_MAX: u16 = 64;
/// Threads that ask the storage on behalf of waiting requests.
const ASKING_THREADS_MAX: usize = 64;
/// Threads that hold writers until there is room. They only wait, so few are enough.
const ROOM_THREADS_MAX: usize = 8;

/// Files stay cached between opens, and closing one is nobody's business.
const FILE_FLAGS: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);
/// Listings stay cached until the kernel changes the directory.
const DIR_FLAGS: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_CACHE_DIR);

/// `lseek` constants that reach a FUSE file system.
const SEEK_DATA: i32 = libc::SEEK_DATA;
const SEEK_HOLE: i32 = libc::SEEK_HOLE;

/// What a front end has to know besides its job.
#[derive(Clone, Debug, Default)]
pub struct FrontOptions {
    /// Value of [`CONTROL_XATTR`] on the root; `None`: there is no such attribute.
    pub control: Option<OsString>,
    /// fsync(2) may block until data is on the storage, so it must not keep the reader thread.
    pub durable: bool,
}

/// A job as a `fuser` file system.
pub struct Front {
    core: Arc<Core>,
    /// The kernel leaves the umask to us (needed for default ACLs).
    takes_umask: bool,
}

struct Core {
    job: Job,
    nodes: Nodes,
    dirs: OpenDirs,
    asking: Pool,
    room: Pool,
    options: FrontOptions,
}

impl Front {
    /// A front end over a job.
    #[must_use]
    pub fn new(job: Job, options: FrontOptions) -> Self {
        let core = Core {
            job,
            nodes: Nodes::default(),
            dirs: OpenDirs::default(),
            asking: Pool::new("elbow-ask", ASKING_THREADS_MAX),
            room: Pool::new("elbow-room", ROOM_THREADS_MAX),
            options,
        };
        Self {
            core: Arc::new(core),
            takes_umask: false,
        }
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

    fn ask<T: 'static>(&self, op: impl Op<T>, reply: impl Reply<T>) {
        answer(&self.core, op, reply);
    }

    fn ask_entry(&self, op: impl Op<Attr>, reply: ReplyEntry) {
        self.ask(op, |core, answer| reply_entry(core, reply, answer));
    }

    fn ask_empty(&self, op: impl Op<()>, reply: ReplyEmpty) {
        self.ask(op, |_, answer| match answer {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn list(&self, node: INodeNo, handle: FileHandle, offset: u64, reply: impl Reply<Arc<Snapshot>>) {
        let ino = self.ino(node);
        match self.core.dirs.get(handle.0) {
            Some(snapshot) if offset > 0 => reply(&self.core, Ok(snapshot)),
            _ => {
                let op = move |core: &Core| core.snapshot(ino);
                self.ask(op, move |core, answer| {
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

/// An operation, complete with its arguments, that may be tried more than once.
trait Op<T>: Fn(&Core) -> Answer<T> + Send + 'static {}
impl<T, F: Fn(&Core) -> Answer<T> + Send + 'static> Op<T> for F {}

/// What sends the answer to the kernel.
trait Reply<T>: FnOnce(&Arc<Core>, Result<T, Errno>) + Send + 'static {}
impl<T, F: FnOnce(&Arc<Core>, Result<T, Errno>) + Send + 'static> Reply<T> for F {}

/// Tries an operation; replies, or goes on in a pool.
fn answer<T: 'static>(core: &Arc<Core>, op: impl Op<T>, reply: impl Reply<T>) {
    match op(core) {
        Ok(value) => reply(core, Ok(value)),
        Err(Stop::Errno(errno)) => reply(core, Err(errno)),
        Err(Stop::Wait(fetch)) => later(core, fetch, op, reply),
    }
}

/// Fetches what an operation waits for, in a pool, and tries it again there.
fn later<T: 'static>(core: &Arc<Core>, fetch: Fetch, op: impl Op<T>, reply: impl Reply<T>) {
    let on_pool = core.clone();
    core.pool(&fetch).run(move || match on_pool.job.fetch(&fetch) {
        Ok(()) => answer(&on_pool, op, reply),
        Err(errno) => reply(&on_pool, Err(errno)),
    });
}

impl Core {
    fn pool(&self, fetch: &Fetch) -> &Pool {
        if matches!(fetch, Fetch::Room(_)) {
            &self.room
        } else {
            &self.asking
        }
    }

    fn snapshot(&self, dir: Ino) -> Answer<Snapshot> {
        let names = self.job.list(dir)?;
        let number = |ino| self.job.getattr(ino).map(|attr| attr.shown_ino);
        let numbers = [number(dir)?, number(self.job.parent(dir))?];
        Ok(Snapshot { dir, numbers, names })
    }

    /// setattr(2) as the kernel leaves it to us with `FUSE_HANDLE_KILLPRIV_V2`: a change of owner, and a change
    /// of size by an ordinary user, take set-user-id and set-group-id away.
    fn setattr(&self, ino: Ino, set: &SetAttr, by_root: bool) -> Answer<Attr> {
        let kills = set.uid.is_some() || set.gid.is_some() || (set.size.is_some() && !by_root);
        let kill_suid = kills && set.mode.is_none() && self.is_set_id(ino)?;
        self.job.setattr(ino, &SetAttr { kill_suid, ..*set })
    }

    fn open(&self, ino: Ino, write: bool, truncate: bool, by_root: bool) -> Answer<()> {
        let kill_suid = truncate && !by_root && self.is_set_id(ino)?;
        if kill_suid {
            self.job.setattr(
                ino,
                &SetAttr {
                    kill_suid,
                    ..SetAttr::default()
                },
            )?;
        }
        self.job.open(ino, write, truncate)
    }

    fn is_set_id(&self, ino: Ino) -> Answer<bool> {
        let attr = self.job.getattr(ino)?;
        Ok(attr.kind == Kind::File && attr.mode & 0o6000 != 0)
    }

    /// Reads what is not in memory; blocks.
    fn read_from_storage(&self, fetch: &Fetch, ino: Ino, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        self.job.fetch(fetch)?;
        self.job.read_blocking(ino, offset, length)
    }

    /// Looks for data or holes where the storage has to be asked; blocks.
    fn seek_on_storage(&self, fetch: &Fetch, ino: Ino, offset: u64, seek: Seek) -> Result<u64, Errno> {
        self.job.fetch(fetch)?;
        self.job.seek_blocking(ino, offset, seek)
    }
}

fn reply_entry(core: &Core, reply: ReplyEntry, answer: Result<Attr, Errno>) {
    match answer {
        Ok(attr) => reply.entry(&FOREVER, &core.nodes.entry(&attr), Generation(0)),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn reply_attr(core: &Core, reply: ReplyAttr, answer: Result<Attr, Errno>) {
    match answer {
        Ok(attr) => reply.attr(&FOREVER, &core.nodes.shown(&attr)),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn reply_data(reply: ReplyData, answer: Result<Vec<u8>, Errno>) {
    match answer {
        Ok(data) => reply.data(&data),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

/// The two-step protocol of the xattr calls: first the size is asked for, then the bytes.
fn reply_xattr(reply: ReplyXattr, size: u32, answer: Result<Vec<u8>, Errno>) {
    match answer {
        Err(errno) => reply.error(convert::errno(errno)),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

fn reply_space(reply: ReplyStatfs, space: &Space) {
    let fragment = u32::try_from(space.fragment_bytes).unwrap_or(u32::MAX);
    reply.statfs(
        space.blocks,
        space.blocks_free,
        space.blocks_available,
        space.files,
        space.files_free,
        fragment,
        space.name_max,
        fragment,
    );
}

fn reply_names(core: &Core, mut reply: ReplyDirectory, offset: u64, snapshot: &Snapshot) {
    for (next, item) in snapshot.from(offset) {
        let number = match item {
            Item::Dot(_, number) => INodeNo(number),
            Item::Name(listed) => core.nodes.node(listed.ino, listed.shown_ino),
        };
        if reply.add(number, next, convert::file_type(item.kind()), item.name()) {
            break;
        }
    }
    reply.ok();
}

/// Names with attributes. Each name handed over counts as a lookup; one that did not fit is taken back.
fn reply_names_plus(core: &Arc<Core>, mut reply: ReplyDirectoryPlus, offset: u64, snapshot: &Arc<Snapshot>) {
    let mut empty = true;
    for (next, item) in snapshot.from(offset) {
        let attr = match item {
            Item::Dot(_, number) => fuser::FileAttr {
                ino: INodeNo(number),
                ..dot_attr()
            },
            Item::Name(listed) => match core.job.lookup(snapshot.dir, &listed.name) {
                Ok(attr) => core.nodes.entry(&attr),
                Err(Stop::Errno(_)) => continue, // gone since the snapshot
                Err(Stop::Wait(fetch)) if empty => {
                    return fetch_then_names_plus(core, fetch, reply, offset, snapshot.clone());
                }
                Err(Stop::Wait(_)) => break, // what is there is sent; the kernel asks for the rest
            },
        };
        if reply.add(attr.ino, next, item.name(), &FOREVER, &attr, Generation(0)) {
            if let Item::Name(_) = item {
                core.job.forget(core.nodes.ino(attr.ino), 1);
            }
            break;
        }
        empty = false;
    }
    reply.ok();
}

fn fetch_then_names_plus(
    core: &Arc<Core>,
    fetch: Fetch,
    reply: ReplyDirectoryPlus,
    offset: u64,
    snapshot: Arc<Snapshot>,
) {
    let on_pool = core.clone();
    core.pool(&fetch).run(move || match on_pool.job.fetch(&fetch) {
        Ok(()) => reply_names_plus(&on_pool, reply, offset, &snapshot),
        Err(errno) => reply.error(convert::errno(errno)),
    });
}

/// The kernel takes only the number and the kind of `.` and `..`.
fn dot_attr() -> fuser::FileAttr {
    fuser::FileAttr {
        kind: fuser::FileType::Directory,
        ..convert::no_entry()
    }
}

/// Asks the kernel for all that helps; what an older kernel lacks is done without.
fn negotiate(config: &mut KernelConfig) {
    let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
        | InitFlags::FUSE_DONT_MASK
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

/// Attribute names as listxattr(2) gives them: each ended by a zero byte.
fn name_list(names: Vec<OsString>) -> Vec<u8> {
    names
        .into_iter()
        .flat_map(|name| [name.as_bytes(), b"\0"].concat())
        .collect()
}

/// A file handle remembers only whether it may write.
fn handle_of(write: bool) -> FileHandle {
    FileHandle(u64::from(write))
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.takes_umask = config.capabilities().contains(InitFlags::FUSE_DONT_MASK);
        negotiate(config);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (parent, name) = (self.ino(parent), name.to_owned());
        let op = move |core: &Core| core.job.lookup(parent, &name);
        self.ask(op, |core, answer| match answer {
            Err(Errno::NOENT) => reply.entry(&FOREVER, &convert::no_entry(), Generation(0)),
            answer => reply_entry(core, reply, answer),
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.core.job.forget(self.ino(ino), lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ino = self.ino(ino);
        self.ask(
            move |core: &Core| core.job.getattr(ino),
            |core, answer| reply_attr(core, reply, answer),
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
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (ino, by_root) = (self.ino(ino), request.uid() == 0);
        let set = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(convert::set_time),
            mtime: mtime.map(convert::set_time),
            kill_suid: false,
        };
        let op = move |core: &Core| core.setattr(ino, &set, by_root);
        self.ask(op, |core, answer| reply_attr(core, reply, answer));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let ino = self.ino(ino);
        let op = move |core: &Core| core.job.readlink(ino);
        self.ask(op, |_, answer| {
            reply_data(reply, answer.map(|target| target.as_bytes().to_vec()));
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
        self.ask_entry(
            move |core: &Core| core.job.mknod(caller, parent, &name, kind, mode, rdev),
            reply,
        );
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let (caller, parent, name) = (self.caller(request, umask), self.ino(parent), name.to_owned());
        self.ask_entry(
            move |core: &Core| core.job.mkdir(caller, parent, &name, mode & 0o7777),
            reply,
        );
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (self.ino(parent), name.to_owned());
        self.ask_empty(move |core: &Core| core.job.unlink(parent, &name), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (parent, name) = (self.ino(parent), name.to_owned());
        self.ask_empty(move |core: &Core| core.job.rmdir(parent, &name), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (caller, parent) = (self.caller(request, 0), self.ino(parent));
        let (name, target) = (name.to_owned(), target.as_os_str().to_owned());
        self.ask_entry(
            move |core: &Core| core.job.symlink(caller, parent, &name, &target),
            reply,
        );
    }

    fn rename(
        &self,
        _: &Request,
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
        self.ask_empty(
            move |core: &Core| core.job.rename(parent, &name, new_parent, &new_name, mode),
            reply,
        );
    }

    fn link(&self, _: &Request, ino: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let (ino, new_parent, new_name) = (self.ino(ino), self.ino(new_parent), new_name.to_owned());
        self.ask_entry(move |core: &Core| core.job.link(ino, new_parent, &new_name), reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (ino, by_root) = (self.ino(ino), request.uid() == 0);
        let write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        let truncate = flags.0 & libc::O_TRUNC != 0;
        let op = move |core: &Core| core.open(ino, write, truncate, by_root);
        self.ask(op, move |_, answer| match answer {
            Ok(()) => reply.opened(handle_of(write), FILE_FLAGS),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (ino, length) = (self.ino(ino), size as usize);
        match self.core.job.read(ino, offset, length) {
            Ok(data) => reply.data(&data),
            Err(Stop::Errno(errno)) => reply.error(convert::errno(errno)),
            Err(Stop::Wait(fetch)) => {
                let core = self.core.clone();
                self.core
                    .pool(&fetch)
                    .run(move || reply_data(reply, core.read_from_storage(&fetch, ino, offset, length)));
            }
        }
    }

    fn write(
        &self,
        _: &Request,
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
        let kill_suid = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let send = move |_: &Arc<Core>, answer: Result<usize, Errno>| match answer {
            Ok(written) => reply.written(written as u32),
            Err(errno) => reply.error(convert::errno(errno)),
        };
        match self.core.job.write(ino, offset, data, kill_suid) {
            Ok(written) => send(&self.core, Ok(written)),
            Err(Stop::Errno(errno)) => send(&self.core, Err(errno)),
            Err(Stop::Wait(fetch)) => {
                let data = data.to_vec();
                later(
                    &self.core,
                    fetch,
                    move |core: &Core| core.job.write(ino, offset, &data, kill_suid),
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
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.core.job.release(self.ino(ino), handle == handle_of(true));
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let ino = self.ino(ino);
        let sync = move |core: &Core| match core.job.fsync(ino) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(convert::errno(errno)),
        };
        if self.core.options.durable {
            let core = self.core.clone();
            self.core.asking.run(move || sync(&core));
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

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.list(ino, handle, offset, move |core, answer| match answer {
            Ok(snapshot) => reply_names(core, reply, offset, &snapshot),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        self.list(ino, handle, offset, move |core, answer| match answer {
            Ok(snapshot) => reply_names_plus(core, reply, offset, &snapshot),
            Err(errno) => reply.error(convert::errno(errno)),
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.core.dirs.close(handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.ask(
            |core: &Core| core.job.statfs(),
            |_, answer| match answer {
                Ok(space) => reply_space(reply, &space),
                Err(errno) => reply.error(convert::errno(errno)),
            },
        );
    }

    fn setxattr(
        &self,
        _: &Request,
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
        self.ask_empty(move |core: &Core| core.job.set_xattr(ino, &name, &value, mode), reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let ino = self.ino(ino);
        if ino == Ino::ROOT
            && name == CONTROL_XATTR
            && let Some(control) = &self.core.options.control
        {
            return reply_xattr(reply, size, Ok(control.as_bytes().to_vec()));
        }
        let name = name.to_owned();
        let op = move |core: &Core| core.job.get_xattr(ino, &name);
        self.ask(op, move |_, answer| reply_xattr(reply, size, answer));
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let ino = self.ino(ino);
        let op = move |core: &Core| core.job.list_xattrs(ino);
        self.ask(op, move |_, answer| reply_xattr(reply, size, answer.map(name_list)));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (ino, name) = (self.ino(ino), name.to_owned());
        self.ask_empty(move |core: &Core| core.job.remove_xattr(ino, &name), reply);
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
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, parent, name) = (self.caller(request, umask), self.ino(parent), name.to_owned());
        let op = move |core: &Core| core.job.create(caller, parent, &name, mode & 0o7777);
        self.ask(op, |core, answer| match answer {
            Ok(attr) => reply.created(
                &FOREVER,
                &core.nodes.entry(&attr),
                Generation(0),
                handle_of(true),
                FILE_FLAGS,
            ),
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
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let ino = self.ino(ino);
        self.ask_empty(move |core: &Core| core.job.fallocate(ino, mode, offset, length), reply);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(fuser::Errno::ENXIO);
        };
        let ino = self.ino(ino);
        let seek = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        match self.core.job.seek(ino, offset, seek) {
            Ok(found) => reply.offset(found as i64),
            Err(Stop::Errno(errno)) => reply.error(convert::errno(errno)),
            Err(Stop::Wait(fetch)) => {
                let core = self.core.clone();
                self.core
                    .pool(&fetch)
                    .run(move || match core.seek_on_storage(&fetch, ino, offset, seek) {
                        Ok(found) => reply.offset(found as i64),
                        Err(errno) => reply.error(convert::errno(errno)),
                    });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes_end_with_zero_bytes() {
        assert_eq!(name_list(vec!["user.a".into(), "user.b".into()]), b"user.a\0user.b\0");
        assert!(name_list(Vec::new()).is_empty());
    }

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
