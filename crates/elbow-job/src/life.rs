//! Does a job live? It holds the lock of its manifest while it does, and so does who ends it.
//!
//! ```text
//!   lock is taken                                        it lives (or is being ended), wherever that is
//!   lock is free, and its owner's locks are seen here    it is dead: the same mount of the same machine, or a storage that
//!                                                        carries locks from machine to machine
//!   otherwise    same boot, same PID namespace           its process tells
//!                same machine, another boot              it is dead: the machine was started anew
//!                anything else                           nobody can tell; `--force` says that it is dead
//! ```
//!
//! A machine is known by its name and its machine-id(5): of the name alone there may be many.
//!
//! A lock that is taken of a manifest must be that of the one that has the name *now*: whoever locks it looks again.

use elbow_file::{Errno, Handle, Storage};
use parking_lot::Mutex;

use crate::staging::Manifest;

/// What the state of a job is, and how that is said.
pub(crate) enum Life {
    Dead,
    Running(String),
    Unknown(String),
}

/// What came of locking a manifest.
pub(crate) enum Attempt {
    /// We hold it now.
    Locked,
    Taken,
    /// There are no locks on this storage, or there is no manifest to be locked.
    None,
}

/// Tries to lock an open manifest.
pub(crate) fn attempt(storage: &dyn Storage, file: &Handle) -> Result<Attempt, Errno> {
    match storage.try_lock(file) {
        Ok(true) => Ok(Attempt::Locked),
        Ok(false) => Ok(Attempt::Taken),
        Err(errno) if is_lockless(errno) => Ok(Attempt::None),
        Err(errno) => Err(errno),
    }
}

/// Files cannot be locked here.
pub(crate) fn is_lockless(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM
    )
}

/// What can be said of a job by its manifest and its lock, seen from a directory on this device whose storage shares locks
/// among machines or not.
pub(crate) fn of(manifest: &Manifest, attempt: &Attempt, dev: u64, shares_locks: bool) -> Life {
    match attempt {
        Attempt::Taken => Life::Running(holder(manifest)),
        Attempt::Locked if is_seen_here(manifest, dev, shares_locks) => Life::Dead,
        Attempt::Locked | Attempt::None => by_process(manifest),
    }
}

/// Were the job alive, its lock would be seen here.
fn is_seen_here(manifest: &Manifest, dev: u64, shares_locks: bool) -> bool {
    manifest.home.as_ref().is_some_and(|home| {
        let is_same_mount = manifest.is_of_this_boot() && home.dev == dev;
        home.is_locked && (is_same_mount || home.shares_locks && shares_locks)
    })
}

fn by_process(manifest: &Manifest) -> Life {
    if manifest.is_of_this_boot() {
        return match manifest.has_process() {
            Some(true) => Life::Running(running(manifest)),
            Some(false) => Life::Dead,
            None => Life::Unknown("it was started in another container of this machine".into()),
        };
    }
    if manifest.is_of_this_machine() {
        return Life::Dead;
    }
    Life::Unknown(format!("it was started on {}", manifest.host))
}

fn running(manifest: &Manifest) -> String {
    format!("process {} is still running", manifest.pid)
}

/// Who has the lock.
fn holder(manifest: &Manifest) -> String {
    match manifest.has_process() {
        Some(false) if manifest.is_of_this_boot() => "another process is ending it now".into(),
        Some(true) if manifest.is_of_this_boot() => running(manifest),
        _ => format!("process {} on {} is still running", manifest.pid, manifest.host),
    }
}

/// A manifest that is held open for its lock.
#[derive(Debug, Default)]
pub(crate) struct Lock(Mutex<Option<Handle>>);

impl Lock {
    pub(crate) fn hold(&self, manifest: Handle) {
        *self.0.lock() = Some(manifest);
    }

    /// Gives it up, before the manifest is removed: a file that is removed while it is open stays, under another name, on NFS
    /// and FUSE, and with it the directory.
    pub(crate) fn give_up(&self, storage: &dyn Storage) {
        if let Some(manifest) = self.0.lock().take() {
            // Nothing was written that could be lost now.
            let _ = storage.close(&manifest);
        }
    }
}
