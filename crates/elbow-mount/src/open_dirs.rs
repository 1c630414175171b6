//! What each open directory is being read from: a snapshot of its names, taken when reading starts.
//!
//! A position in a directory is an index into the snapshot (0 is `.`, 1 is `..`), so reading goes on undisturbed
//! while the command removes what it has read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::FileType;
use elbow_job::{Ino, Listed};
use parking_lot::Mutex;

/// The names of a directory at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) dir: Ino,
    /// Inode number to show for the directory, and for the one above it.
    pub(crate) numbers: [u64; 2],
    pub(crate) names: Vec<Listed>,
}

/// One name at its position.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item<'a> {
    /// `.` or `..`, with the inode number to show.
    Dot(&'static str, u64),
    /// An entry.
    Name(&'a Listed),
}

impl<'a> Item<'a> {
    pub(crate) fn name(self) -> &'a OsStr {
        match self {
            Item::Dot(name, _) => OsStr::new(name),
            Item::Name(listed) => &listed.name,
        }
    }

    pub(crate) fn kind(self) -> FileType {
        match self {
            Item::Dot(..) => FileType::Dir,
            Item::Name(listed) => listed.kind,
        }
    }
}

impl Snapshot {
    /// The items from a position on, each with the position after it.
    pub(crate) fn from(&self, position: u64) -> impl Iterator<Item = (u64, Item<'_>)> {
        let dots = [Item::Dot(".", self.numbers[0]), Item::Dot("..", self.numbers[1])];
        let all = dots.into_iter().chain(self.names.iter().map(Item::Name));
        (1..).zip(all).skip(usize::try_from(position).unwrap_or(usize::MAX))
    }
}

/// The snapshots of all open directories, by handle.
#[derive(Debug, Default)]
pub(crate) struct OpenDirs {
    last: AtomicU64,
    snapshots: Mutex<HashMap<u64, Arc<Snapshot>>>,
}

impl OpenDirs {
    /// A handle for a directory that is being opened; nothing is kept until it is read.
    pub(crate) fn open(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn get(&self, handle: u64) -> Option<Arc<Snapshot>> {
        self.snapshots.lock().get(&handle).cloned()
    }

    pub(crate) fn put(&self, handle: u64, snapshot: Arc<Snapshot>) {
        self.snapshots.lock().insert(handle, snapshot);
    }

    pub(crate) fn close(&self, handle: u64) {
        self.snapshots.lock().remove(&handle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let listed = |name: &str| Listed {
            ino: Ino(9),
            visible_ino: 9,
            kind: FileType::File,
            name: name.into(),
        };
        Snapshot {
            dir: Ino(2),
            numbers: [20, 10],
            names: vec![listed("a"), listed("b")],
        }
    }

    fn names_from(position: u64) -> Vec<(u64, String)> {
        snapshot()
            .from(position)
            .map(|(next, item)| (next, item.name().to_string_lossy().into_owned()))
            .collect()
    }

    #[test]
    fn dots_come_first_and_every_position_can_be_resumed() {
        let all = names_from(0);
        assert_eq!(
            all.iter().map(|(_, n)| n.as_str()).collect::<Vec<_>>(),
            [".", "..", "a", "b"]
        );
        for (i, (next, _)) in all.iter().enumerate() {
            assert_eq!(names_from(*next), all[i + 1..], "after {next}");
        }
        assert!(names_from(u64::MAX).is_empty());
    }

    #[test]
    fn a_closed_directory_keeps_nothing() {
        let dirs = OpenDirs::default();
        let handle = dirs.open();
        assert!(dirs.get(handle).is_none());
        dirs.put(handle, Arc::new(snapshot()));
        assert!(dirs.get(handle).is_some());
        dirs.close(handle);
        assert!(dirs.get(handle).is_none());
        assert_ne!(dirs.open(), handle);
    }
}
