//! What the process holds, and the sessions that it holds it in.
//!
//! Order of mutexes: `PROCESS`, then a session's, then `reader::SESSIONS`. None is held while the service is waited for, but for
//! the hello of a new session.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use elbow_lock::{FileName, LockMode, Owner};
use elbow_ranges::RangeSet;

use crate::descriptors;
use crate::errno::Errno;
use crate::file::{Inode, LockTarget};
use crate::range::PROCESS_OWNER;
use crate::session::{Session, take};

static PROCESS: Mutex<Process> = Mutex::new(Process::new());
/// Whose memory this is: a child of vfork, or one made without libc, has another number.
static HERE: AtomicU32 = AtomicU32::new(0);
/// While it is 0 a close concerns nobody.
static TRACKED: AtomicUsize = AtomicUsize::new(0);

pub(crate) struct Process {
    /// Of fcntl's locks.
    pub(crate) session: Option<Arc<Session>>,
    /// Files that the process has, or may have, fcntl's locks on.
    pub(crate) files: BTreeMap<Inode, File>,
    pub(crate) descriptions: Vec<Description>,
    /// Descriptors that other processes share, without a session that they share too.
    pub(crate) inherited_fds: Vec<(c_int, Inode)>,
    /// fcntl's locks were lost, and no call has failed for it yet.
    pub(crate) was_lost: bool,
    /// Locks were lost, and a thread is about to end the process for it. Its sessions stay open until then, so that nobody gets what
    /// the others may still be writing to.
    pub(crate) is_ending: bool,
}

pub(crate) struct File {
    pub(crate) name: FileName,
    pub(crate) held: RangeSet,
}

impl File {
    pub(crate) fn new(target: &LockTarget) -> Self {
        Self {
            name: target.name.clone(),
            held: RangeSet::new(),
        }
    }
}

impl Process {
    const fn new() -> Self {
        Self {
            session: None,
            files: BTreeMap::new(),
            descriptions: Vec::new(),
            inherited_fds: Vec::new(),
            was_lost: false,
            is_ending: false,
        }
    }

    /// Call after each change of what a close concerns.
    pub(crate) fn count(&self) {
        let count = self.files.len() + self.descriptions.len() + self.inherited_fds.len();
        TRACKED.store(count, Ordering::Relaxed);
    }

    /// Whether we know of any lock.
    pub(crate) fn holds_any(&self) -> bool {
        self.files.values().any(|file| !file.held.is_empty()) || self.descriptions.iter().any(Description::holds)
    }

    /// Forgets what was held over a session; the files, and those that only others may have locked over it.
    pub(crate) fn forget(&mut self, session: &Arc<Session>) -> (Vec<FileName>, Vec<FileName>) {
        let (mut files, mut doubtful) = (Vec::new(), Vec::new());
        if self.session.as_ref().is_some_and(|ours| Arc::ptr_eq(ours, session)) {
            self.session = None;
            let held = std::mem::take(&mut self.files).into_values();
            files.extend(held.filter(|file| !file.held.is_empty()).map(|file| file.name));
            self.was_lost |= !files.is_empty();
        }
        for description in &mut self.descriptions {
            if Arc::ptr_eq(&description.session, session) && !description.was_lost {
                let into = if description.holds() { &mut files } else { &mut doubtful };
                into.push(description.name.clone());
                description.was_lost = true;
            }
        }
        self.count();
        (files, doubtful)
    }

    /// The session of fcntl's locks, as far as it works.
    pub(crate) fn live_session(&self) -> Option<&Arc<Session>> {
        self.session.as_ref().filter(|session| session.broken().is_none())
    }
}

pub(crate) fn lock() -> MutexGuard<'static, Process> {
    take(&PROCESS)
}

/// Whether a close may release anything.
pub(crate) fn may_hold() -> bool {
    TRACKED.load(Ordering::Relaxed) > 0 && is_ours()
}

/// Whether what we remember is this process's.
pub(crate) fn is_ours() -> bool {
    HERE.load(Ordering::Relaxed) == std::process::id()
}

/// From now on it is.
pub(crate) fn begin() {
    HERE.store(std::process::id(), Ordering::Relaxed);
}

/// The process as an owner of fcntl's locks.
pub(crate) fn owner() -> Owner {
    Owner(PROCESS_OWNER | u64::from(std::process::id()))
}

/// An open file description that is, or may be, locked.
pub(crate) struct Description {
    pub(crate) session: Arc<Session>,
    pub(crate) owner: Owner,
    pub(crate) inode: Inode,
    pub(crate) name: FileName,
    /// What the file was called before, if other processes may have locked it by that name for us.
    pub(crate) former: Option<FileName>,
    /// One of its descriptors.
    pub(crate) representative_fd: c_int,
    /// Other processes may lock and unlock it too: what we remember may be wrong.
    pub(crate) is_shared: bool,
    pub(crate) flock: Option<LockMode>,
    pub(crate) held: RangeSet,
    /// The session has ended, and no call has failed for it yet.
    pub(crate) was_lost: bool,
}

impl Description {
    /// Whether we know of a lock.
    pub(crate) fn holds(&self) -> bool {
        self.flock.is_some() || !self.held.is_empty()
    }

    pub(crate) fn over(session: Session, owner: Owner, representative_fd: c_int, target: &LockTarget) -> Self {
        Self {
            session: Arc::new(session),
            owner,
            inode: target.inode,
            name: target.name.clone(),
            former: None,
            representative_fd,
            is_shared: false,
            flock: None,
            held: RangeSet::new(),
            was_lost: false,
        }
    }

    /// The socket ends with exec if the descriptor does.
    pub(crate) fn follow_representative_fd(&self) {
        // A lease needs this process to renew it, so the next program gets no copy.
        let ends = self.session.has_lease() || descriptors::ends_with_exec(self.representative_fd).unwrap_or(true);
        descriptors::let_end_with_exec(self.session.descriptor(), ends);
    }

    pub(crate) fn may_be_elsewhere(&self) -> bool {
        !self.session.has_lease()
            && (self.is_shared || descriptors::ends_with_exec(self.session.descriptor()) != Some(true))
    }

    pub(crate) fn is_of(&self, fd: c_int, inode: Inode) -> Result<bool, Errno> {
        Ok(self.inode == inode && descriptors::is_same_description(self.representative_fd, fd)?)
    }
}
