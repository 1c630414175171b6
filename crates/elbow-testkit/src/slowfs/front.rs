//! Kernel requests in, replies out: each request becomes a [`Request`] of the service and nothing else happens here.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, Config, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request as KernelRequest, SessionACL, TimeOrNow, WriteFlags,
};
use rustix::fs::Stat;
use rustix::io::Result;

use super::SlowOptions;
use super::calls::{Caller, Change, FilePosition, NewMode, NodeAttributes, is_dot};
use super::counters::Op;
use super::service::{Request, Service};
use super::tree::{DirEntry, ROOT, Tree};

/// The extended attribute of the root that reads as the counters, answered at once and not counted.
const STATS_XATTR: &str = "user.slowfs.stats";

/// The largest write and read that the kernel may ask for, as NFS servers do.
const MAX_TRANSFER: u32 = 1 << 20;

/// Asynchronous requests (read-ahead, releases) that the kernel may have under way: so many that the service's own limit
/// is the one that counts.
const MAX_BACKGROUND: u16 = 512;

/// What Linux asks for before the first write to every file. Network file systems do not carry it and answer at once, so
/// it is answered at once, with the truth, and not counted here either: a round trip that no real storage makes would
/// flatter whatever avoids it.
const CAPABILITY_XATTR: &str = "security.capability";

/// What libfuse asks for by default, and what an exact passthrough needs: the caller's umask for default ACLs, and set-id
/// bits dropped by writes of ordinary users.
const WANTED: [InitFlags; 11] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_AUTO_INVAL_DATA,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_READDIRPLUS_AUTO,
];

/// How the mount appears and who may use it.
pub(super) fn mount_config(source: &Path, allow_other: bool) -> Config {
    let mut config = Config::default();
    config.acl = if allow_other {
        SessionACL::All
    } else {
        SessionACL::Owner
    };
    config.mount_options = vec![
        MountOption::FSName(source.to_string_lossy().replace(',', "_")),
        MountOption::Subtype("slowfs".to_owned()),
        MountOption::DefaultPermissions,
    ];
    if rustix::process::geteuid().is_root() {
        config.mount_options.extend([MountOption::Suid, MountOption::Dev]);
    }
    config
}

/// The file system as the kernel sees it.
pub(super) struct Front {
    tree: Arc<Tree>,
    service: Arc<Service>,
    ttl: Duration,
    without_locks: bool,
}

impl Front {
    pub(super) fn new(tree: Arc<Tree>, service: Arc<Service>, options: &SlowOptions) -> Self {
        let SlowOptions { ttl, without_locks, .. } = *options;
        Self {
            tree,
            service,
            ttl,
            without_locks,
        }
    }

    /// Has `act` done by the service and its result told to the kernel by `answer`.
    fn serve<T: 'static>(
        &self,
        kernel_request: RequestContext,
        act: impl FnOnce(&Tree) -> Result<T> + Send + 'static,
        answer: impl FnOnce(std::result::Result<T, Errno>) + Send + 'static,
    ) {
        let tree = Arc::clone(&self.tree);
        let serve = Box::new(move |struck: Option<i32>| match struck {
            Some(errno) => answer(Err(Errno::from_i32(errno))),
            None => answer(act(&tree).map_err(|errno| Errno::from_i32(errno.raw_os_error()))),
        });
        self.service.submit(Request {
            op: kernel_request.op,
            name: kernel_request.name,
            bytes: kernel_request.bytes,
            serve,
        });
    }

    fn about_node(&self, op: Op, ino: INodeNo) -> RequestContext {
        RequestContext {
            op,
            name: self.tree.name(ino.0),
            bytes: 0,
        }
    }
}

/// What a request is about.
struct RequestContext {
    op: Op,
    name: OsString,
    bytes: u64,
}

impl RequestContext {
    fn named(op: Op, name: &OsStr) -> Self {
        Self {
            op,
            name: name.to_owned(),
            bytes: 0,
        }
    }

    fn carrying(self, bytes: usize) -> Self {
        Self {
            bytes: bytes as u64,
            ..self
        }
    }
}

impl Filesystem for Front {
    fn init(&mut self, _asked: &KernelRequest, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            // An older kernel lacks some of them; it then asks more, and gets the same answers.
            let _ = config.add_capabilities(flag);
        }
        if self.without_locks {
            // The kernel then asks us, and does not keep locks itself.
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_LOCKS | InitFlags::FUSE_FLOCK_LOCKS);
        }
        if let Err(most) = config.set_max_readahead(MAX_TRANSFER) {
            let _ = config.set_max_readahead(most);
        }
        let accepted = config.set_max_write(MAX_TRANSFER).is_ok() && config.set_max_background(MAX_BACKGROUND).is_ok();
        if accepted {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }

    fn getlk(
        &self,
        _asked: &KernelRequest,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        reply: ReplyLock,
    ) {
        reply.error(Errno::ENOLCK);
    }

    fn setlk(
        &self,
        _asked: &KernelRequest,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        _start: u64,
        _end: u64,
        _typ: i32,
        _pid: u32,
        _sleep: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOLCK);
    }

    fn lookup(&self, _asked: &KernelRequest, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (about, name, ttl) = (RequestContext::named(Op::Lookup, name), name.to_owned(), self.ttl);
        self.serve(
            about,
            move |tree| tree.lookup(parent.0, &name),
            move |known| answer_entry(reply, ttl, known),
        );
    }

    fn forget(&self, _asked: &KernelRequest, ino: INodeNo, nlookup: u64) {
        self.tree.forget(ino.0, nlookup);
    }

    fn getattr(&self, _asked: &KernelRequest, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        let (about, ttl) = (self.about_node(Op::Getattr, ino), self.ttl);
        self.serve(
            about,
            move |tree| tree.getattr(ino.0),
            move |stat| answer_attr(reply, ino, ttl, stat),
        );
    }

    fn setattr(
        &self,
        kernel_request: &KernelRequest,
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
        let (about, ttl, caller) = (self.about_node(Op::Setattr, ino), self.ttl, caller(kernel_request));
        let change = Change {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
            handle: handle.map(|handle| handle.0),
        };
        let act = move |tree: &Tree| tree.setattr(ino.0, change, caller);
        self.serve(about, act, move |stat| answer_attr(reply, ino, ttl, stat));
    }

    fn readlink(&self, _asked: &KernelRequest, ino: INodeNo, reply: ReplyData) {
        let about = self.about_node(Op::Readlink, ino);
        self.serve(
            about,
            move |tree| tree.readlink(ino.0),
            move |target| match target {
                Ok(target) => reply.data(target.as_bytes()),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn mknod(
        &self,
        kernel_request: &KernelRequest,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (about, name, ttl, caller) = (
            RequestContext::named(Op::Mknod, name),
            name.to_owned(),
            self.ttl,
            caller(kernel_request),
        );
        let act = move |tree: &Tree| tree.mknod(parent.0, &name, NewMode { mode, umask }, rdev, caller);
        self.serve(about, act, move |known| answer_entry(reply, ttl, known));
    }

    fn mkdir(
        &self,
        kernel_request: &KernelRequest,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (about, name, ttl, caller) = (
            RequestContext::named(Op::Mkdir, name),
            name.to_owned(),
            self.ttl,
            caller(kernel_request),
        );
        let act = move |tree: &Tree| tree.mkdir(parent.0, &name, NewMode { mode, umask }, caller);
        self.serve(about, act, move |known| answer_entry(reply, ttl, known));
    }

    fn unlink(&self, _asked: &KernelRequest, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (about, name) = (RequestContext::named(Op::Unlink, name), name.to_owned());
        self.serve(
            about,
            move |tree| tree.unlink(parent.0, &name),
            move |done| answer_done(reply, done),
        );
    }

    fn rmdir(&self, _asked: &KernelRequest, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (about, name) = (RequestContext::named(Op::Rmdir, name), name.to_owned());
        self.serve(
            about,
            move |tree| tree.rmdir(parent.0, &name),
            move |done| answer_done(reply, done),
        );
    }

    fn symlink(&self, kernel_request: &KernelRequest, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (about, ttl, caller) = (
            RequestContext::named(Op::Symlink, name),
            self.ttl,
            caller(kernel_request),
        );
        let (name, target) = (name.to_owned(), target.to_owned());
        let act = move |tree: &Tree| tree.symlink(parent.0, &name, &target, caller);
        self.serve(about, act, move |known| answer_entry(reply, ttl, known));
    }

    fn rename(
        &self,
        _asked: &KernelRequest,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (about, name, new_name) = (
            RequestContext::named(Op::Rename, name),
            name.to_owned(),
            new_name.to_owned(),
        );
        let act = move |tree: &Tree| tree.rename((parent.0, &name), (new_parent.0, &new_name), flags.bits());
        self.serve(about, act, move |done| answer_done(reply, done));
    }

    fn link(&self, _asked: &KernelRequest, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (about, name, ttl) = (RequestContext::named(Op::Link, name), name.to_owned(), self.ttl);
        self.serve(
            about,
            move |tree| tree.link(ino.0, parent.0, &name),
            move |known| answer_entry(reply, ttl, known),
        );
    }

    fn open(&self, kernel_request: &KernelRequest, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (about, caller) = (self.about_node(Op::Open, ino), caller(kernel_request));
        self.serve(
            about,
            move |tree| tree.open_file(ino.0, flags.0, caller),
            move |handle| answer_open(reply, FopenFlags::empty(), handle),
        );
    }

    fn create(
        &self,
        kernel_request: &KernelRequest,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (about, name, ttl, caller) = (
            RequestContext::named(Op::Create, name),
            name.to_owned(),
            self.ttl,
            caller(kernel_request),
        );
        let act = move |tree: &Tree| tree.create(parent.0, &name, NewMode { mode, umask }, flags, caller);
        self.serve(about, act, move |created| match created {
            Ok(((id, stat), handle)) => {
                let attr = attr(INodeNo(id), &stat);
                reply.created(&ttl, &attr, Generation(0), FileHandle(handle), FopenFlags::empty());
            }
            Err(errno) => reply.error(errno),
        });
    }

    fn read(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let service = Arc::clone(&self.service);
        let about = self.about_node(Op::Read, ino).carrying(size as usize);
        let act = move |tree: &Tree| tree.read(handle.0, offset, size);
        self.serve(about, act, move |data| match data {
            Ok(data) => {
                service.moved(Op::Read, data.len() as u64);
                reply.data(&data);
            }
            Err(errno) => reply.error(errno),
        });
    }

    fn write(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let service = Arc::clone(&self.service);
        let about = self.about_node(Op::Write, ino).carrying(data.len());
        let data = data.to_vec();
        let act = move |tree: &Tree| tree.write(handle.0, offset, &data, write_flags);
        self.serve(about, act, move |written| {
            if let Ok(bytes) = written {
                service.moved(Op::Write, bytes as u64);
            }
            answer_written(reply, written);
        });
    }

    fn flush(&self, _asked: &KernelRequest, ino: INodeNo, handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        let about = self.about_node(Op::Flush, ino);
        self.serve(
            about,
            move |tree| tree.flush(handle.0),
            move |done| answer_done(reply, done),
        );
    }

    fn release(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close(Op::Release, ino, handle, reply);
    }

    fn fsync(&self, _asked: &KernelRequest, ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let about = self.about_node(Op::Fsync, ino);
        self.serve(
            about,
            move |tree| tree.sync(handle.0, data_only),
            move |done| answer_done(reply, done),
        );
    }

    fn opendir(&self, _asked: &KernelRequest, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let about = self.about_node(Op::Opendir, ino);
        let answer = move |handle| answer_open(reply, FopenFlags::empty(), handle);
        self.serve(about, move |tree| tree.open_dir(ino.0), answer);
    }

    fn readdir(&self, _asked: &KernelRequest, ino: INodeNo, handle: FileHandle, offset: u64, reply: ReplyDirectory) {
        let about = self.about_node(Op::Readdir, ino);
        let act = move |tree: &Tree| tree.list(handle.0, offset);
        self.serve(about, act, move |entries| match entries {
            Ok(entries) => answer_names(reply, offset, &entries),
            Err(errno) => reply.error(errno),
        });
    }

    fn readdirplus(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let (about, ttl, tree) = (self.about_node(Op::Readdirplus, ino), self.ttl, Arc::clone(&self.tree));
        let act = move |tree: &Tree| tree.list(handle.0, offset);
        self.serve(about, act, move |entries| match entries {
            Ok(entries) => answer_entries(reply, &tree, (ino, offset, ttl), &entries),
            Err(errno) => reply.error(errno),
        });
    }

    fn releasedir(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.close(Op::Releasedir, ino, handle, reply);
    }

    fn fsyncdir(&self, _asked: &KernelRequest, ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let about = self.about_node(Op::Fsyncdir, ino);
        self.serve(
            about,
            move |tree| tree.sync(handle.0, data_only),
            move |done| answer_done(reply, done),
        );
    }

    fn statfs(&self, _asked: &KernelRequest, ino: INodeNo, reply: ReplyStatfs) {
        let about = self.about_node(Op::Statfs, ino);
        self.serve(
            about,
            move |tree| tree.statfs(ino.0),
            move |found| match found {
                Ok(fs) => reply.statfs(
                    fs.f_blocks,
                    fs.f_bfree,
                    fs.f_bavail,
                    fs.f_files,
                    fs.f_ffree,
                    narrow(fs.f_bsize),
                    narrow(fs.f_namemax),
                    narrow(fs.f_frsize),
                ),
                Err(errno) => reply.error(errno),
            },
        );
    }

    fn setxattr(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (about, name, value) = (self.about_node(Op::Setxattr, ino), name.to_owned(), value.to_vec());
        let act = move |tree: &Tree| tree.setxattr(ino.0, &name, &value, flags);
        self.serve(about, act, move |done| answer_done(reply, done));
    }

    fn getxattr(&self, _asked: &KernelRequest, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if ino.0 == ROOT && name == STATS_XATTR {
            let stats = serde_json::to_vec(&self.service.counters()).map_err(|_| Errno::EIO);
            return answer_xattr(reply, size, stats);
        }
        if name == CAPABILITY_XATTR {
            let value = self
                .tree
                .getxattr(ino.0, name)
                .map_err(|errno| Errno::from_i32(errno.raw_os_error()));
            return answer_xattr(reply, size, value);
        }
        let (about, name) = (self.about_node(Op::Getxattr, ino), name.to_owned());
        self.serve(
            about,
            move |tree| tree.getxattr(ino.0, &name),
            move |value| answer_xattr(reply, size, value),
        );
    }

    fn listxattr(&self, kernel_request: &KernelRequest, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (about, who) = (self.about_node(Op::Listxattr, ino), caller(kernel_request));
        self.serve(
            about,
            move |tree| tree.listxattr(ino.0, who),
            move |names| answer_xattr(reply, size, names),
        );
    }

    fn removexattr(&self, _asked: &KernelRequest, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (about, name) = (self.about_node(Op::Removexattr, ino), name.to_owned());
        self.serve(
            about,
            move |tree| tree.removexattr(ino.0, &name),
            move |done| answer_done(reply, done),
        );
    }

    fn fallocate(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let about = self.about_node(Op::Fallocate, ino);
        let act = move |tree: &Tree| tree.fallocate(handle.0, offset, length, mode);
        self.serve(about, act, move |done| answer_done(reply, done));
    }

    fn lseek(
        &self,
        _asked: &KernelRequest,
        ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let about = self.about_node(Op::Lseek, ino);
        let act = move |tree: &Tree| tree.lseek(handle.0, offset, whence);
        self.serve(about, act, move |found| match found {
            Ok(position) => reply.offset(position),
            Err(errno) => reply.error(errno),
        });
    }

    fn copy_file_range(
        &self,
        _asked: &KernelRequest,
        source: INodeNo,
        source_handle: FileHandle,
        source_offset: u64,
        _target: INodeNo,
        target_handle: FileHandle,
        target_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let about = self.about_node(Op::CopyFileRange, source);
        let from = FilePosition {
            handle: source_handle.0,
            offset: source_offset,
        };
        let to = FilePosition {
            handle: target_handle.0,
            offset: target_offset,
        };
        // The reply counts in 32 bits; the caller asks again for the rest.
        let length = length.min(u64::from(u32::MAX >> 1));
        let act = move |tree: &Tree| tree.copy_range(from, to, length);
        self.serve(about, act, move |copied| answer_written(reply, copied));
    }
}

impl Front {
    fn close(&self, op: Op, ino: INodeNo, handle: FileHandle, reply: ReplyEmpty) {
        let (about, tree) = (self.about_node(op, ino), Arc::clone(&self.tree));
        let answer = move |done| {
            tree.close_handle(handle.0); // Closed whatever the answer is: the kernel does not come back.
            answer_done(reply, done);
        };
        self.serve(about, |_| Ok(()), answer);
    }
}

fn caller(kernel_request: &KernelRequest) -> Caller {
    Caller {
        uid: kernel_request.uid(),
        gid: kernel_request.gid(),
    }
}

fn answer_done(reply: ReplyEmpty, done: std::result::Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn answer_entry(reply: ReplyEntry, ttl: Duration, known: std::result::Result<NodeAttributes, Errno>) {
    match known {
        Ok((id, stat)) => reply.entry(&ttl, &attr(INodeNo(id), &stat), Generation(0)),
        Err(errno) => reply.error(errno),
    }
}

fn answer_attr(reply: ReplyAttr, ino: INodeNo, ttl: Duration, stat: std::result::Result<Stat, Errno>) {
    match stat {
        Ok(stat) => reply.attr(&ttl, &attr(ino, &stat)),
        Err(errno) => reply.error(errno),
    }
}

fn answer_open(reply: ReplyOpen, flags: FopenFlags, handle: std::result::Result<u64, Errno>) {
    match handle {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(errno) => reply.error(errno),
    }
}

fn answer_written(reply: ReplyWrite, written: std::result::Result<usize, Errno>) {
    match written {
        Ok(bytes) => reply.written(narrow(bytes as u64)),
        Err(errno) => reply.error(errno),
    }
}

fn answer_xattr(reply: ReplyXattr, size: u32, value: std::result::Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(narrow(value.len() as u64)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}

fn answer_names(mut reply: ReplyDirectory, offset: u64, entries: &[DirEntry]) {
    for (position, entry) in (offset + 1..).zip(entries) {
        if reply.add(INodeNo(entry.ino), position, kind(entry.kind), &entry.name) {
            break;
        }
    }
    reply.ok();
}

/// Names with attributes; the kernel is told about each of them but "." and "..".
fn answer_entries(
    mut reply: ReplyDirectoryPlus,
    tree: &Tree,
    (parent, offset, ttl): (INodeNo, u64, Duration),
    entries: &[DirEntry],
) {
    for (position, entry) in (offset + 1..).zip(entries) {
        let dot = is_dot(&entry.name);
        let found = if dot {
            tree.getattr(parent.0).map(|stat| (entry.ino, stat))
        } else {
            tree.lookup(parent.0, &entry.name)
        };
        let Ok((id, stat)) = found else { continue }; // It has gone since the directory was read.
        let full = reply.add(
            INodeNo(id),
            position,
            &entry.name,
            &ttl,
            &attr(INodeNo(id), &stat),
            Generation(0),
        );
        if full {
            if !dot {
                tree.forget(id, 1);
            }
            break;
        }
    }
    reply.ok();
}

/// Attributes as the kernel wants them. The root keeps its own inode number for `stat`.
fn attr(ino: INodeNo, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: if ino.0 == ROOT { INodeNo(stat.st_ino) } else { ino },
        size: stat.st_size.try_into().unwrap_or(0),
        blocks: stat.st_blocks.try_into().unwrap_or(0),
        atime: system_time(stat.st_atime, stat.st_atime_nsec),
        mtime: system_time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: system_time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
        perm: (stat.st_mode & 0o7777).try_into().unwrap_or(0),
        nlink: narrow(stat.st_nlink),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: (stat.st_rdev & 0xffff_ffff).try_into().unwrap_or(0),
        blksize: stat.st_blksize.try_into().unwrap_or(4096),
        flags: 0,
    }
}

fn system_time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    start.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(nanoseconds)
}

fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Below;
    match kind {
        Below::Directory => FileType::Directory,
        Below::Symlink => FileType::Symlink,
        Below::Fifo => FileType::NamedPipe,
        Below::Socket => FileType::Socket,
        Below::CharacterDevice => FileType::CharDevice,
        Below::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn narrow(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}
