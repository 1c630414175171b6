//! A storage whose open objects are lost when another machine removes them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Call, Hook, Operation};
use crate::{Errno, Handle, RealStorage, Result, Storage};

/// Answers ESTALE for an open object that has no name any more, unless it was removed through this very storage: as a server of NFS
/// does, whose client keeps under another name what it removes itself, and knows nothing of what other machines remove.
#[derive(Debug, Default)]
pub struct StaleHandles {
    /// Device and inode of what was removed through here.
    removed: Mutex<HashSet<(u64, u64)>>,
    answered: AtomicU64,
}

impl StaleHandles {
    /// How many calls were answered with ESTALE.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    fn is_stale(&self, handle: &Handle) -> bool {
        let stat = RealStorage.stat_handle(handle);
        stat.is_ok_and(|stat| stat.nlink == 0 && !self.removed.lock().contains(&(stat.dev, stat.ino)))
    }

    fn note_removed(&self, dir: &Handle, name: &OsStr) {
        if let Ok(stat) = RealStorage.stat(dir, name) {
            self.removed.lock().insert((stat.dev, stat.ino));
        }
    }
}

impl Hook for StaleHandles {
    fn around<T: 'static>(&self, call: &Call<'_>, make: impl FnOnce() -> Result<T>) -> Result<T> {
        match (call.operation, call.name, call.other_dir.zip(call.other)) {
            // There are no files without a name.
            (Operation::CreateUnnamed, ..) => return Err(Errno::OPNOTSUPP),
            // No server is asked.
            (Operation::Close | Operation::Identity, ..) => return make(),
            (Operation::Unlink | Operation::Rmdir, Some(name), _) => self.note_removed(call.handle, name),
            (Operation::Rename, _, Some((dir, name))) => self.note_removed(dir, name),
            _ => {}
        }
        if self.is_stale(call.handle) {
            self.answered.fetch_add(1, Ordering::Relaxed);
            return Err(Errno::STALE);
        }
        make()
    }
}
