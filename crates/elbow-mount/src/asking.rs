//! The job behind a front end, and how an operation that cannot be answered at once is answered later.

use std::sync::Arc;

use elbow_file::{Errno, Kind};
use elbow_job::{Answer, Attr, Fetch, Ino, Job, Seek, SetAttr, Stop};

use crate::front::FrontOptions;
use crate::nodes::Nodes;
use crate::open_dirs::{OpenDirs, Snapshot};
use crate::pool::Pool;
use crate::prefetch::Prefetch;

/// Threads that ask the storage on behalf of waiting requests.
const ASKING_THREADS_MAX: usize = 64;
/// Threads that hold writers until there is room. They only wait, so few are enough.
const ROOM_THREADS_MAX: usize = 8;

/// What all threads of a front end share.
pub(crate) struct Core {
    pub(crate) job: Job,
    pub(crate) nodes: Nodes,
    pub(crate) dirs: OpenDirs,
    pub(crate) prefetch: Prefetch,
    pub(crate) options: FrontOptions,
    asking: Pool,
    room: Pool,
}

/// An operation, complete with its arguments, that may be tried more than once.
pub(crate) trait Op<T>: Fn(&Core) -> Answer<T> + Send + 'static {}
impl<T, F: Fn(&Core) -> Answer<T> + Send + 'static> Op<T> for F {}

/// What sends the answer to the kernel.
pub(crate) trait Reply<T>: FnOnce(&Arc<Core>, Result<T, Errno>) + Send + 'static {}
impl<T, F: FnOnce(&Arc<Core>, Result<T, Errno>) + Send + 'static> Reply<T> for F {}

/// Tries an operation; replies, or goes on in a pool.
pub(crate) fn answer<T: 'static>(core: &Arc<Core>, op: impl Op<T>, reply: impl Reply<T>) {
    match op(core) {
        Ok(value) => reply(core, Ok(value)),
        Err(Stop::Errno(errno)) => reply(core, Err(errno)),
        Err(Stop::Wait(fetch)) => later(core, fetch, op, reply),
    }
}

/// Fetches what an operation waits for, in a pool, and tries it again there.
pub(crate) fn later<T: 'static>(core: &Arc<Core>, fetch: Fetch, op: impl Op<T>, reply: impl Reply<T>) {
    let on_pool = core.clone();
    core.pool(&fetch).run(move || match on_pool.job.fetch(&fetch) {
        Ok(()) => answer(&on_pool, op, reply),
        Err(errno) => reply(&on_pool, Err(errno)),
    });
}

impl Core {
    pub(crate) fn new(job: Job, options: FrontOptions) -> Self {
        Self {
            job,
            nodes: Nodes::default(),
            dirs: OpenDirs::default(),
            prefetch: Prefetch::default(),
            options,
            asking: Pool::new("elbow-ask", ASKING_THREADS_MAX),
            room: Pool::new("elbow-room", ROOM_THREADS_MAX),
        }
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
        let number = |ino| self.job.getattr(ino).map(|attr| attr.shown_ino);
        let numbers = [number(dir)?, number(self.job.parent(dir))?];
        Ok(Snapshot { dir, numbers, names })
    }

    /// setattr(2) as the kernel leaves it to us with `FUSE_HANDLE_KILLPRIV_V2`: a change of owner, and a change
    /// of size by an ordinary user, take set-user-id and set-group-id away.
    pub(crate) fn setattr(&self, ino: Ino, set: &SetAttr, by_root: bool) -> Answer<Attr> {
        let kills = set.uid.is_some() || set.gid.is_some() || (set.size.is_some() && !by_root);
        let kill_suid = kills && set.mode.is_none() && self.is_set_id(ino)?;
        self.job.setattr(ino, &SetAttr { kill_suid, ..*set })
    }

    fn is_set_id(&self, ino: Ino) -> Answer<bool> {
        let attr = self.job.getattr(ino)?;
        Ok(attr.kind == Kind::File && attr.mode & 0o6000 != 0)
    }

    /// Looks for data or holes where the storage has to be asked; blocks.
    pub(crate) fn seek_on_storage(&self, fetch: &Fetch, ino: Ino, offset: u64, seek: Seek) -> Result<u64, Errno> {
        self.job.fetch(fetch)?;
        self.job.seek_blocking(ino, offset, seek)
    }
}
