//! What the directory of a job can be known by, when it is looked at again later or does not answer any more.

use std::path::{Path, PathBuf};

use elbow_file::{Handle, Storage, Time};

/// What the directory of a job can be known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RootId {
    pub(crate) path: PathBuf,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// When it was made, where that is kept.
    pub(crate) born: Option<Time>,
}

impl RootId {
    /// Of an open directory with this path.
    pub(crate) fn of(storage: &dyn Storage, root: &Handle, path: &Path) -> Self {
        let stat = storage.stat_handle(root);
        let (dev, ino) = stat.map_or((0, 0), |stat| (stat.dev, stat.ino));
        let born = storage.identity(root).ok().and_then(|identity| identity.born);
        Self::new(path, (dev, ino), born)
    }

    /// Of a directory with this path that was looked at.
    #[allow(
        clippy::disallowed_methods,
        reason = "its name for people and later runs, not what is in it"
    )]
    pub(crate) fn new(path: &Path, (dev, ino): (u64, u64), born: Option<Time>) -> Self {
        Self {
            path: std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            dev,
            ino,
            born,
        }
    }

    /// The same directory? One that was moved has another path, a file system that was mounted again another device number, and one that was made
    /// since may have all the numbers of one that is gone, but not its time.
    pub(crate) fn is(&self, now: &Self) -> bool {
        match (self.born, now.born) {
            (Some(then), Some(now_born)) => then == now_born && self.ino == now.ino,
            (None, None) => self.path == now.path || (self.dev, self.ino) == (now.dev, now.ino),
            // A file system has this for all or for none: what was mounted there is not.
            _ => false,
        }
    }
}
