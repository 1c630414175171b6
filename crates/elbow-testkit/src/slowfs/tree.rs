//! What the kernel knows of the directory below: nodes and open files.
//!
//! A node is an `O_PATH` descriptor and the number of times that the kernel was told about it; it goes when the kernel
//! has forgotten it as often. Its number is the inode number below, which cannot be reused while the descriptor is open.
//!
//! Sources: fuse(4), `FUSE_LOOKUP` and `FUSE_FORGET`; open(2), "O_PATH".

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat};
use rustix::io::{Errno, Result};

use super::hidden::Hidden;

/// The number that the kernel gives the root.
pub(super) const ROOT: u64 = 1;

/// One inode that the kernel knows.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) fd: OwnedFd,
}

/// An open file or directory.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) fd: OwnedFd,
    /// The node that it is open on.
    pub(super) node: u64,
    /// What a directory contained when it was last read from its start.
    pub(super) listing: Mutex<Vec<DirEntry>>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(super) struct DirEntry {
    pub(super) name: OsString,
    pub(super) ino: u64,
    pub(super) kind: rustix::fs::FileType,
}

/// All nodes and handles.
#[derive(Debug)]
pub(super) struct Tree {
    root_dev: u64,
    root_ino: u64,
    /// Whether owners can be given away, as the caller of a request is not who serves it.
    pub(super) privileged: bool,
    nodes: Mutex<HashMap<u64, Entry>>,
    handles: Mutex<HashMap<u64, Arc<Handle>>>,
    next_handle: AtomicU64,
    /// Removed names of open files, where they are to stay.
    pub(super) hidden: Option<Mutex<Hidden>>,
}

#[derive(Debug)]
struct Entry {
    node: Arc<Node>,
    /// The name under which it was last looked up, created or renamed.
    name: OsString,
    /// How often the kernel has been told and has not forgotten.
    known: u64,
}

impl Tree {
    pub(super) fn open(source: &Path, hide_open: bool) -> Result<Self> {
        let fd = openat(
            CWD,
            source,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let stat = fstat(&fd)?;
        let root = Entry {
            node: Arc::new(Node { fd }),
            name: OsString::new(),
            known: 1,
        };
        Ok(Self {
            root_dev: stat.st_dev,
            root_ino: stat.st_ino,
            privileged: rustix::process::geteuid().is_root(),
            nodes: Mutex::new(HashMap::from([(ROOT, root)])),
            handles: Mutex::new(HashMap::new()),
            next_handle: AtomicU64::new(1),
            hidden: hide_open.then(Mutex::default),
        })
    }

    /// The node of that number.
    pub(super) fn node(&self, id: u64) -> Result<Arc<Node>> {
        self.nodes
            .lock()
            .get(&id)
            .map(|entry| Arc::clone(&entry.node))
            .ok_or(Errno::STALE)
    }

    /// The last known name of a node.
    pub(super) fn name(&self, id: u64) -> OsString {
        self.nodes
            .lock()
            .get(&id)
            .map(|entry| entry.name.clone())
            .unwrap_or_default()
    }

    /// Takes note that the kernel is about to be told of this file once more.
    pub(super) fn learn(&self, fd: OwnedFd, name: &OsStr) -> Result<(u64, Stat)> {
        let stat = fstat(&fd)?;
        let id = self.number(&stat);
        let mut nodes = self.nodes.lock();
        let fresh = || Entry {
            node: Arc::new(Node { fd }),
            name: OsString::new(),
            known: 0,
        };
        let entry = nodes.entry(id).or_insert_with(fresh);
        entry.known += 1;
        name.clone_into(&mut entry.name);
        Ok((id, stat))
    }

    /// Takes note that a known file has a new name.
    pub(super) fn renamed(&self, stat: &Stat, name: &OsStr) {
        if let Some(entry) = self.nodes.lock().get_mut(&self.number(stat)) {
            name.clone_into(&mut entry.name);
        }
    }

    /// Takes note that the kernel has forgotten `times` of what it was told.
    pub(super) fn forget(&self, id: u64, times: u64) {
        let mut nodes = self.nodes.lock();
        let Some(entry) = nodes.get_mut(&id).filter(|_| id != ROOT) else {
            return;
        };
        entry.known = entry.known.saturating_sub(times);
        let forgotten = (entry.known == 0).then(|| nodes.remove(&id));
        drop(nodes);
        drop(forgotten); // Closing the last descriptor of an unlinked file can take a while.
    }

    pub(super) fn open_handle(&self, node: u64, fd: OwnedFd) -> u64 {
        let id = self.next_handle.fetch_add(1, Ordering::Relaxed);
        if let Some(hidden) = &self.hidden {
            hidden.lock().opened(node);
        }
        let handle = Handle {
            fd,
            node,
            listing: Mutex::new(Vec::new()),
        };
        self.handles.lock().insert(id, Arc::new(handle));
        id
    }

    pub(super) fn handle(&self, id: u64) -> Result<Arc<Handle>> {
        self.handles.lock().get(&id).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn close_handle(&self, id: u64) {
        let Some(closed) = self.handles.lock().remove(&id) else {
            return;
        };
        if let Some(hidden) = &self.hidden {
            hidden.lock().closed(closed.node);
        }
    }

    /// The number of a file: its inode number, made distinct where that is taken or where another file system begins.
    pub(super) fn number(&self, stat: &Stat) -> u64 {
        let own = stat.st_dev == self.root_dev;
        match stat.st_ino {
            ino if own && ino == self.root_ino => ROOT,
            ino if own && ino != ROOT => ino,
            ino => ino ^ (stat.st_dev.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63),
        }
    }
}
