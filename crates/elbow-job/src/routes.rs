//! Where something is on the storage at this moment, and the way to it.
//!
//! ```text
//!   of a new directory      itself                           where its name is placed by now
//!   of an old directory     its staging directory            `--publish eager`: itself, for names that are new in it
//!   of the root             `new` in the job's own directory
//! ```
//!
//! A way begins at the nearest directory that is open: so it stays right while directories above are moved, and is
//! short.

use std::ffi::OsStr;

use crate::api::Ino;
use crate::closed::is_closed;
use crate::model::{EntryKey, IN_TRANSIT, Inodes, ModelConfig, Name};
use crate::options::Publish;
use crate::route::{DirSide, Route, StorageName};
use crate::staging::NEW;

/// See the module's header.
#[derive(Clone, Copy)]
pub(crate) struct Routes<'a> {
    pub(crate) inodes: &'a Inodes,
    pub(crate) config: &'a ModelConfig,
}

impl Routes<'_> {
    /// Would a name in this directory be made under its own name at once?
    pub(crate) fn is_visible(&self, key: &EntryKey) -> bool {
        self.config.publish == Publish::Eager
            && key.dir != IN_TRANSIT
            && self.inodes.at(key.dir).is_old()
            && !self.inodes.base_has(key.dir, &key.name)
            && !self.was_closed(key.dir)
    }

    /// An old directory that its owner cannot change the names in until the commit sets its mode.
    fn was_closed(&self, dir: Ino) -> bool {
        let seen = self.inodes.at(dir).seen();
        seen.is_some_and(|seen| is_closed(seen.mode))
    }

    pub(crate) fn storage_name(&self, key: &EntryKey) -> StorageName {
        let visible = self.is_visible(key);
        let staged = key.dir != IN_TRANSIT && self.inodes.at(key.dir).is_old() && !visible;
        let route = if staged {
            self.route_staging(key.dir)
        } else {
            self.route_dir(key.dir)
        };
        StorageName {
            route,
            key: key.clone(),
            visible,
        }
    }

    /// The way to a directory itself.
    pub(crate) fn route_dir(&self, ino: Ino) -> Route {
        let owner = DirSide::Own(ino);
        if let Some(handle) = &self.inodes.dir_at(ino).handle {
            return Route {
                base: handle.clone(),
                names: Vec::new(),
                owner,
            };
        }
        let inode = self.inodes.at(ino);
        let key = match &inode.old {
            Some(old) => &old.names()[0],
            None => &inode.placed()[0],
        };
        let above = if inode.is_old() {
            self.route_dir(key.dir)
        } else {
            self.storage_name(key).route
        };
        above.join(key.name.clone(), owner)
    }

    /// The names of new directories that the way to a name goes by, the nearest one first: none where that is open.
    pub(crate) fn walked(&self, key: &EntryKey) -> Vec<EntryKey> {
        let mut by: Vec<EntryKey> = Vec::new();
        let mut at = key.dir;
        while at != IN_TRANSIT && !self.inodes.at(at).is_old() && self.inodes.dir_at(at).handle.is_none() {
            // One that is not there yet is waited for by whoever wants to get into it.
            let Some(key) = self.inodes.at(at).placed().first() else {
                break;
            };
            by.push(key.clone());
            at = key.dir;
        }
        by
    }

    /// The way to the staging directory of an old directory.
    pub(crate) fn route_staging(&self, ino: Ino) -> Route {
        let owner = DirSide::Staging(ino);
        if let Some(handle) = &self.inodes.dir_at(ino).staging_handle {
            return Route {
                base: handle.clone(),
                names: Vec::new(),
                owner,
            };
        }
        if ino == Ino::ROOT {
            return self.route_dir(IN_TRANSIT).join(Name::from(OsStr::new(NEW)), owner);
        }
        self.route_dir(ino).join(self.config.part_name.clone(), owner)
    }
}
