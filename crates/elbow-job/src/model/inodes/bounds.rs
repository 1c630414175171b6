//! Boundaries of devices below the directory of the job: subvolumes of btrfs.
//!
//! ```text
//!   DIR             device 40
//!   DIR/sub         device 47: the root of a subvolume, and all below it
//!   DIR/sub/inner   device 52
//! ```
//!
//! Nothing is renamed or linked from one of them to another (EXDEV), but for the root of one, which may go anywhere. What the job makes
//! is on the device of the directory that it makes it in, and stays there.
//!
//! Only numbers of directories count: an overlayfs may show those of its layers for everything else. Other mounts below the directory
//! are none of this: a job does not begin where there are any.

use elbow_file::{FileType, Stat};

use super::Inodes;
use crate::api::Ino;

impl Inodes {
    /// Something was found on the storage.
    pub(crate) fn note_device(&mut self, stat: &Stat) {
        self.has_bounds |= stat.kind == FileType::Dir && stat.dev != self.home_device;
    }

    /// The device that a directory is on: of a new one, that of the old one above it. (The job's own is on that of the root.)
    pub(crate) fn device(&self, dir: Ino) -> u64 {
        let mut at = dir;
        while self.has_bounds && at != Ino::ROOT {
            let Ok(inode) = self.get(at) else { break };
            if let Some(seen) = inode.seen() {
                return seen.dev;
            }
            let before = inode.old_name();
            let key = before.or(inode.names.first()).or(inode.placed.first());
            let Some(key) = key else { break };
            at = key.dir;
        }
        self.home_device
    }

    /// The job's own directory is on another device than this one.
    pub(crate) fn is_foreign(&self, dir: Ino) -> bool {
        self.device(dir) != self.home_device
    }

    /// An old directory that is on another device than the one that it was in: the root of a subvolume.
    pub(crate) fn is_bound(&self, ino: Ino) -> bool {
        let Ok(inode) = self.get(ino) else { return false };
        let above = inode.old_name();
        self.has_bounds && inode.is_dir() && above.is_some_and(|above| self.device(above.dir) != self.device(ino))
    }

    /// The root of the subvolume that something is in, or is.
    pub(crate) fn bound_above(&self, ino: Ino) -> Option<Ino> {
        let mut at = ino;
        while self.has_bounds && at != Ino::ROOT {
            if self.is_bound(at) {
                return Some(at);
            }
            let inode = self.get(at).ok()?;
            let before = inode.old_name();
            at = inode.names.first().or(before).or(inode.placed.first())?.dir;
        }
        None
    }
}
