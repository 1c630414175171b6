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

use elbow_file::{Errno, Kind, Stat};

use super::Model;
use crate::api::{Answer, Fetch, Ino, Stop};

impl Model {
    /// Something was found on the storage.
    pub(super) fn note_device(&mut self, stat: &Stat) {
        self.has_bounds |= stat.kind == Kind::Dir && stat.dev != self.home_device;
    }

    /// The device that a directory is on: of a new one, that of the old one above it. (The job's own is on that of the root.)
    pub(crate) fn device(&self, dir: Ino) -> u64 {
        let mut at = dir;
        while self.has_bounds && at != Ino::ROOT {
            let Ok(inode) = self.get(at) else { break };
            if let Some(seen) = inode.old.as_ref().and_then(|old| old.seen) {
                return seen.dev;
            }
            let before = inode.old.as_ref().and_then(|old| old.places.first());
            let place = before.or(inode.names.first()).or(inode.placed.first());
            let Some(place) = place else { break };
            at = place.dir;
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
        let above = inode.old.as_ref().and_then(|old| old.places.first());
        self.has_bounds && inode.is_dir() && above.is_some_and(|above| self.device(above.dir) != self.device(ino))
    }

    /// Fails for what the storage does not let be renamed: from one device to another, or a directory of a lower layer of overlayfs.
    pub(super) fn check_moves(&self, ino: Ino, from: Ino, to: Ino) -> Answer<()> {
        let is_bound = self.is_bound(ino);
        if !is_bound && self.device(from) != self.device(to) {
            return Err(Errno::XDEV.into());
        }
        if is_bound && from != to {
            // It gets another `..`.
            self.check_writable(ino)?;
        }
        let inode = self.at(ino);
        let Some(dir) = inode.dir().ok().filter(|_| inode.is_old()) else {
            return Ok(());
        };
        match dir.moves {
            _ if !is_bound && !self.traits.nature()?.lower_dirs_stay => Ok(()),
            Some(true) => Ok(()),
            Some(false) => Err(Errno::XDEV.into()),
            None => Err(Stop::Wait(Fetch::Moves(ino))),
        }
    }

    /// Fails for what is in a read-only subvolume, as most snapshots are.
    pub(super) fn check_writable(&self, ino: Ino) -> Answer<()> {
        let Some(root) = self.bound_above(ino) else {
            return Ok(());
        };
        match self.dir_at(root).is_read_only {
            Some(false) => Ok(()),
            Some(true) => Err(Errno::ROFS.into()),
            None => Err(Stop::Wait(Fetch::Writable(root))),
        }
    }

    /// The root of the subvolume that something is in, or is.
    fn bound_above(&self, ino: Ino) -> Option<Ino> {
        let mut at = ino;
        while self.has_bounds && at != Ino::ROOT {
            if self.is_bound(at) {
                return Some(at);
            }
            let inode = self.get(at).ok()?;
            let before = inode.old.as_ref().and_then(|old| old.places.first());
            at = inode.names.first().or(before).or(inode.placed.first())?.dir;
        }
        None
    }

    /// Fails for a file that is on another device than the directory that it is to have a name in.
    pub(super) fn check_links_to(&self, ino: Ino, dir: Ino) -> Result<(), Errno> {
        let is_in = self.at(ino).names.first().map(|place| self.device(place.dir));
        match is_in {
            Some(device) if device != self.device(dir) => Err(Errno::XDEV),
            _ => Ok(()),
        }
    }
}
