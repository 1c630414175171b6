//! The job behind a front end, and how an operation that cannot be answered at once is answered later.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use elbow_file::{ACCESS_ACL, Errno};
use elbow_job::{Answer, Attr, Fetch, Ino, Job, OpError, Seek, SetAttr, SetIds, XattrMode};
use fuser::{INodeNo, Notifier};

use crate::caller::CallerIds;
use crate::last_files::LastFiles;
use crate::mappable::MappableFiles;
use crate::nodes::Nodes;
use crate::open_dirs::{OpenDirs, Snapshot};
use crate::options::FrontOptions;
use crate::pending_reply::PendingReply;
use crate::pool::Pool;
use crate::prefetch::Prefetch;

/// Threads that ask the storage on behalf of waiting requests.
const ASKING_THREADS_MAX: usize = 64;
/// Threads that hold writers until there is room. They only wait, so few are enough.
const ROOM_THREADS_MAX: usize = 8;

const SET_GROUP_ID: u32 = 0o2000;
const SET_USER_ID: u32 = 0o4000;
const GROUP_EXECUTE: u32 = 0o0010;

/// What all threads of a front end share.
pub(crate) struct FrontCore {
    pub(crate) job: Job,
    pub(crate) nodes: Nodes,
    pub(crate) dirs: OpenDirs,
    pub(crate) prefetch: Prefetch,
    pub(crate) options: FrontOptions,
    /// Which file each thread has opened.
    pub(crate) openers: LastFiles,
    /// Of which it has taken the capabilities.
    pub(crate) takers: LastFiles,
    pub(crate) mappable: MappableFiles,
    /// Asks the kernel for what it keeps; there is one as soon as the mount is served.
    pub(crate) notifier: OnceLock<Notifier>,
    asking: Pool,
    room: Pool,
}

/// An operation, complete with its arguments, that may be tried more than once.
pub(crate) trait Op<T>: Fn(&FrontCore) -> Answer<T> + Send + 'static {}
impl<T, F: Fn(&FrontCore) -> Answer<T> + Send + 'static> Op<T> for F {}

/// What sends the answer to the kernel.
pub(crate) trait Reply<T>: FnOnce(&Arc<FrontCore>, Result<T, Errno>) + Send + 'static {}
impl<T, F: FnOnce(&Arc<FrontCore>, Result<T, Errno>) + Send + 'static> Reply<T> for F {}

/// Tries an operation; replies, or goes on in a pool.
pub(crate) fn answer<T: 'static>(core: &Arc<FrontCore>, asked: PendingReply, op: impl Op<T>, reply: impl Reply<T>) {
    match asked.within(|| op(core)) {
        Ok(value) => reply(core, asked.told(Ok(value))),
        Err(OpError::Errno(errno)) => reply(core, asked.told(Err(errno))),
        Err(OpError::NeedsStorage(fetch)) => later(core, asked, fetch, op, reply),
    }
}

/// Fetches what an operation waits for, in a pool, and tries it again there.
pub(crate) fn later<T: 'static>(
    core: &Arc<FrontCore>,
    asked: PendingReply,
    fetch: Fetch,
    op: impl Op<T>,
    reply: impl Reply<T>,
) {
    let on_pool = core.clone();
    asked.waits_for(&fetch);
    core.pool(&fetch)
        .run(move || match asked.within(|| on_pool.job.fetch(&fetch)) {
            Ok(()) => answer(&on_pool, asked, op, reply),
            Err(errno) => reply(&on_pool, asked.told(Err(errno))),
        });
}

impl FrontCore {
    pub(crate) fn new(job: Job, options: FrontOptions) -> Self {
        let root = job.getattr(Ino::ROOT).map_or(0, |attr| attr.visible_ino);
        Self {
            job,
            nodes: Nodes::new(root),
            dirs: OpenDirs::default(),
            prefetch: Prefetch::default(),
            options,
            openers: LastFiles::default(),
            takers: LastFiles::default(),
            mappable: MappableFiles::default(),
            notifier: OnceLock::new(),
            asking: Pool::new("elbow-ask", ASKING_THREADS_MAX),
            room: Pool::new("elbow-room", ROOM_THREADS_MAX),
        }
    }

    /// The path of a name in a directory, for the log.
    pub(crate) fn path_below(&self, dir: Ino, name: &OsStr) -> PathBuf {
        self.job.path_of(dir).join(name)
    }

    /// Runs what may block on one of the threads that are there for it.
    pub(crate) fn run(&self, task: impl FnOnce() + Send + 'static) {
        self.asking.run(task);
    }

    pub(crate) fn pool(&self, fetch: &Fetch) -> &Pool {
        if matches!(fetch, Fetch::Room(_)) {
            &self.room
        } else {
            &self.asking
        }
    }

    pub(crate) fn snapshot(&self, dir: Ino) -> Answer<Snapshot> {
        let names = self.job.list(dir)?;
        // `.` and `..` are listed with the numbers that stat(2) shows.
        let number = |ino| self.job.getattr(ino).map(|attr| attr.visible_ino);
        let numbers = [number(dir)?, number(self.job.parent(dir))?];
        Ok(Snapshot { dir, numbers, names })
    }

    /// setattr(2) as the kernel leaves it to us with `FUSE_HANDLE_KILLPRIV_V2`: a change of owner, and a change
    /// of size by an ordinary user, take set-user-id and set-group-id away. `to_nobody`: it is a chown(2) to the owner -1 and the group -1,
    /// of whomever; the kernel has not asked whose the file is.
    pub(crate) fn setattr(&self, ino: Ino, set: &SetAttr, who: CallerIds, to_nobody: bool) -> Answer<Attr> {
        let may = || Ok::<_, OpError>(who.user == 0 || who.user == self.job.getattr(ino)?.uid);
        let is_chown = set.uid.is_some() || set.gid.is_some() || to_nobody && may()?;
        let takes = is_chown || set.size.is_some() && who.user != 0;
        let set_ids = match takes && set.mode.is_none() {
            true => self.set_ids(ino, who)?,
            false => SetIds::Stay,
        };
        self.job.setattr(ino, &SetAttr { set_ids, ..*set })
    }

    /// write(2); `takes`: the kernel says that set-user-id and set-group-id go.
    pub(crate) fn write(&self, ino: Ino, offset: u64, data: &[u8], (takes, who): (bool, CallerIds)) -> Answer<usize> {
        let set_ids = if takes { self.set_ids(ino, who)? } else { SetIds::Stay };
        self.job.write(ino, offset, data, set_ids)
    }

    /// copy_file_range(2): as a write, it takes set-user-id and set-group-id away when an ordinary user does it.
    pub(crate) fn copy(&self, from: (Ino, u64), to: (Ino, u64), length: u64, who: CallerIds) -> Answer<u64> {
        let copied = self.job.copy(from, to, length, self.set_ids_of_user(to.0, who)?)?;
        self.note_copied();
        Ok(copied)
    }

    /// fallocate(2): as a write, it takes set-user-id and set-group-id away when an ordinary user does it.
    pub(crate) fn fallocate(&self, ino: Ino, mode: i32, (offset, length): (u64, u64), who: CallerIds) -> Answer<()> {
        self.job
            .fallocate(ino, mode, offset, length, self.set_ids_of_user(ino, who)?)
    }

    fn set_ids_of_user(&self, ino: Ino, who: CallerIds) -> Answer<SetIds> {
        match who.user {
            0 => Ok(SetIds::Stay),
            _ => self.set_ids(ino, who),
        }
    }

    /// setxattr(2). Who is not in the group of an object and sets its access ACL takes set-group-id from it.
    pub(crate) fn set_xattr(
        &self,
        ino: Ino,
        (name, value): (&OsStr, &[u8]),
        mode: XattrMode,
        who: CallerIds,
    ) -> Answer<()> {
        self.job.set_xattr(ino, name, value, mode)?;
        if name != ACCESS_ACL || who.user == 0 {
            return Ok(());
        }
        let attr = self.job.getattr(ino)?;
        if attr.mode & SET_GROUP_ID == 0 || who.is_in(attr.gid) {
            return Ok(());
        }
        let set = SetAttr {
            mode: Some(attr.mode & !SET_GROUP_ID),
            ..SetAttr::default()
        };
        self.job.setattr(ino, &set).map(drop)
    }

    /// Whose change of a file takes which bits.
    fn set_ids(&self, ino: Ino, who: CallerIds) -> Answer<SetIds> {
        let attr = self.job.getattr(ino)?;
        let has = |bits| attr.mode & bits == bits;
        let may_stay = has(SET_GROUP_ID) && !has(GROUP_EXECUTE);
        Ok(match may_stay && who.user != 0 && !who.is_in(attr.gid) {
            true => SetIds::GoByStranger,
            false if has(SET_USER_ID) || has(SET_GROUP_ID | GROUP_EXECUTE) => SetIds::Go,
            false => SetIds::Stay,
        })
    }

    /// Looks for data or holes where the storage or the kernel has to be asked; blocks.
    pub(crate) fn seek_blocking(&self, node: INodeNo, offset: u64, seek: Seek) -> Result<u64, Errno> {
        let ino = self.nodes.ino(node);
        if self.mappable.has(ino) {
            self.fetch_mapped(node);
        }
        match self.job.seek(ino, offset, seek) {
            Ok(found) => return Ok(found),
            Err(OpError::Errno(errno)) => return Err(errno),
            Err(OpError::NeedsStorage(fetch)) => self.job.fetch(&fetch)?,
        }
        self.job.seek_blocking(ino, offset, seek)
    }

    /// Has the kernel write what processes have changed in memory that they map from a file. The kernel writes what it has of a file
    /// before it forgets it. One that it does not know any more has nothing to write; other errors are those of the job.
    pub(crate) fn fetch_mapped(&self, node: INodeNo) {
        if let Some(notifier) = self.notifier.get() {
            let _ = notifier.inval_inode(node, 0, 0);
        }
    }
}
