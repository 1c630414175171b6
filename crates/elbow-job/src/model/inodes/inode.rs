//! One object of the model: what it is to be, and what of that the storage has.
//!
//! The fields that the invariants of the arena are about are its own ([`super::Inodes`]); everybody else reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use elbow_file::{Errno, FileType, Handle, Stat, Time};

use crate::api::Ino;
use crate::closed::OWNER_ALL;
use crate::model::boxed_unless_empty::{BoxedUnlessEmpty, EntryKeys};
use crate::model::config::Name;
use crate::model::entry_key::EntryKey;
use crate::model::file_data::Content;
use crate::model::inherit::Inheritance;
use crate::model::mode::SETGID;

/// What its owner needs to change the names in a directory, or to move it to another.
const OWNER_WRITE_SEARCH: u32 = 0o300;

/// What an object was before the job.
#[derive(Debug)]
pub(crate) struct Old {
    /// Its attributes when the job first saw them; `None` until fetched.
    pub(crate) seen: Option<Stat>,
    /// Its names when the job first saw them.
    pub(super) names: EntryKeys,
    /// Extended attributes of which the job may know the names and not the values.
    pub(crate) closed_xattrs: BoxedUnlessEmpty<BTreeSet<OsString>>,
    /// Of extended attributes that the job has set: what they were before, if that is known.
    pub(crate) replaced_xattrs: BoxedUnlessEmpty<BTreeMap<OsString, Option<Vec<u8>>>>,
}

impl Old {
    /// Its names when the job first saw them.
    pub(crate) fn names(&self) -> &EntryKeys {
        &self.names
    }

    pub(crate) fn had_name(&self, dir: Ino, name: &OsStr) -> bool {
        self.names.iter().any(|key| key.is(dir, name))
    }
}

/// Attributes that the storage does not have yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    pub(crate) mode: bool,
    pub(crate) owner: bool,
    pub(crate) times: bool,
}

impl Dirty {
    pub(crate) fn any(self) -> bool {
        self.mode || self.owner || self.times
    }
}

/// A directory's part of an inode.
#[derive(Debug, Default)]
pub(crate) struct Dir {
    /// What the job sees in it.
    pub(super) entries: BTreeMap<Name, Ino>,
    /// All names are known (from birth, or listed).
    pub(super) complete: bool,
    /// It may be entered and not be read: names are asked for one by one.
    pub(super) closed: bool,
    /// Of such a one: names that were not there.
    pub(super) absent: BTreeSet<Name>,
    /// The command has read it.
    pub(crate) was_read: bool,
    /// Number of directories among the entries.
    pub(super) subdirs: u32,
    /// Old directories: names that existed before and are not at their place any more.
    pub(super) gone: BTreeMap<Name, Ino>,
    /// What the storage has in this directory's container by now.
    pub(super) placed: BTreeMap<Name, Ino>,
    /// Old directories: something of the job was or is to be staged here.
    pub(crate) staging: Staging,
    /// Descriptor of the directory itself on the storage.
    pub(crate) handle: Option<Handle>,
    /// Old directories: descriptor of the staging directory.
    pub(crate) staging_handle: Option<Handle>,
    /// Default ACL (the xattr's bytes) that new entries inherit.
    pub(crate) default_acl: Option<Arc<Vec<u8>>>,
    /// Old directories: the storage lets it be renamed; `None`: not known.
    pub(crate) moves: Option<bool>,
    /// Roots of subvolumes: nothing in it can be changed; `None`: not known.
    pub(crate) is_read_only: Option<bool>,
    /// Old directories: what is made in the staging directory does not get the group that this one gives.
    pub(crate) loses_group: bool,
    /// What new entries inherit on the storage, by what the directory is there by now.
    pub(crate) gives: Inheritance,
}

impl Dir {
    /// A new directory: nothing is in it.
    pub(crate) fn empty(default_acl: Option<Arc<Vec<u8>>>) -> Self {
        Self {
            complete: true,
            default_acl,
            ..Self::default()
        }
    }

    /// What the job sees in it.
    pub(crate) fn entries(&self) -> &BTreeMap<Name, Ino> {
        &self.entries
    }

    /// All names are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// It may be entered and not be read.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Old directories: names that existed before and are not at their place any more.
    pub(crate) fn gone(&self) -> &BTreeMap<Name, Ino> {
        &self.gone
    }

    /// What the storage has in its container by now.
    pub(crate) fn placed(&self) -> &BTreeMap<Name, Ino> {
        &self.placed
    }
}

/// Whether an old directory has a staging directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Staging {
    #[default]
    None,
    Wanted,
    Made,
}

/// What an inode is, with what only that kind has.
#[derive(Debug)]
pub(crate) enum Body {
    Dir(Box<Dir>),
    File(Box<Content>),
    Symlink(Option<OsString>),
    Special,
}

/// Where an inode stands in the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Work {
    #[default]
    Idle,
    Queued,
    Running,
}

/// One object.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) rdev: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) nlink: u32,
    pub(crate) visible_ino: u64,
    pub(crate) old: Option<Box<Old>>,
    /// What the job calls it.
    pub(super) names: EntryKeys,
    pub(crate) lookups: u64,
    pub(crate) opens: u32,
    pub(crate) write_opens: u32,
    pub(crate) body: Body,
    /// `None`: not fetched yet (old objects only).
    pub(crate) xattrs: Option<BoxedUnlessEmpty<BTreeMap<OsString, Vec<u8>>>>,
    pub(crate) dirty_xattrs: BoxedUnlessEmpty<BTreeSet<OsString>>,
    /// File capabilities are gone, whatever the storage says when it is asked for extended attributes.
    pub(crate) lost_capability: bool,
    /// Where the storage has it by now.
    pub(super) placed: EntryKeys,
    pub(crate) dirty: Dirty,
    pub(crate) work: Work,
}

impl Inode {
    /// A new object without a name.
    pub(crate) fn new(kind: FileType, body: Body, now: Time) -> Self {
        Self {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            rdev: 0,
            atime: now,
            mtime: now,
            ctime: now,
            nlink: 0,
            visible_ino: 0,
            old: None,
            names: EntryKeys::default(),
            lookups: 0,
            opens: 0,
            write_opens: 0,
            body,
            xattrs: None,
            dirty_xattrs: BoxedUnlessEmpty::default(),
            lost_capability: false,
            placed: EntryKeys::default(),
            dirty: Dirty::default(),
            work: Work::Idle,
        }
    }

    /// An object that the storage has, with the attributes that it gave.
    pub(crate) fn of_stat(stat: &Stat) -> Self {
        let body = match stat.kind {
            FileType::Dir => Body::Dir(Box::default()),
            FileType::File => Body::File(Box::new(Content::of_old(stat.size))),
            FileType::Symlink => Body::Symlink(None),
            _ => Body::Special,
        };
        Self {
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            rdev: stat.rdev,
            atime: stat.atime,
            mtime: stat.mtime,
            nlink: stat.nlink,
            visible_ino: stat.ino,
            ..Self::new(stat.kind, body, stat.ctime)
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir(_))
    }

    pub(crate) fn is_old(&self) -> bool {
        self.old.is_some()
    }

    /// A directory that its owner cannot change the names in, or move to another one.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_dir() && self.mode & OWNER_WRITE_SEARCH != OWNER_WRITE_SEARCH
    }

    /// The mode that a new object has until the commit: a directory that `awaits` old ones is open until they are there.
    pub(crate) fn staged_mode(&self, awaits: bool) -> u32 {
        match awaits && self.is_locked() {
            true => self.mode | OWNER_ALL,
            false => self.mode,
        }
    }

    /// What it should be differs from what is placed; attributes of directories count when `finishing`.
    pub(crate) fn has_work(&self, finishing: bool) -> bool {
        let content = self.content();
        if self.is_old() {
            let staging = matches!(&self.body, Body::Dir(dir) if dir.staging == Staging::Wanted);
            return staging || content.is_some_and(|content| !content.dirty.is_empty());
        }
        let attributes = self.dirty.any() || !self.dirty_xattrs.is_empty();
        !self.is_settled()
            || attributes && (finishing || !self.is_dir())
            || content.is_some_and(|content| content.needs_fill(self.size, true))
    }

    /// It is on the storage, and only has to be moved to another name, or removed.
    pub(crate) fn only_lacks_names(&self) -> bool {
        let is_there = self.placed.iter().any(|key| !self.names.contains(key));
        !self.is_old() && is_there
    }

    /// It has all of its names on the storage, and no others.
    pub(crate) fn is_settled(&self) -> bool {
        self.names.len() == self.placed.len() && self.names.iter().all(|name| self.placed.contains(name))
    }

    /// What the job calls it.
    pub(crate) fn names(&self) -> &EntryKeys {
        &self.names
    }

    /// Where the storage has it by now.
    pub(crate) fn placed(&self) -> &EntryKeys {
        &self.placed
    }

    /// The name that an old object had before the job.
    pub(crate) fn old_name(&self) -> Option<&EntryKey> {
        self.old.as_ref().and_then(|old| old.names.first())
    }

    /// Its attributes when the job first saw it: `None` for a new object, or before they were fetched.
    pub(crate) fn seen(&self) -> Option<&Stat> {
        self.old.as_ref().and_then(|old| old.seen.as_ref())
    }

    /// Access and modification time before the job.
    pub(crate) fn times_before(&self) -> (Time, Time) {
        self.seen()
            .map_or((self.atime, self.mtime), |seen| (seen.atime, seen.mtime))
    }

    pub(crate) fn dir(&self) -> Result<&Dir, Errno> {
        match &self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn dir_mut(&mut self) -> Result<&mut Dir, Errno> {
        match &mut self.body {
            Body::Dir(dir) => Ok(dir),
            _ => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn content(&self) -> Option<&Content> {
        match &self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    pub(crate) fn content_mut(&mut self) -> Option<&mut Content> {
        match &mut self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// What a directory gives to what is made in it inside the job.
    pub(crate) fn inheritance(&self) -> Inheritance {
        Inheritance {
            default_acl: self.dir().ok().and_then(|dir| dir.default_acl.clone()),
            group: (self.mode & SETGID != 0).then_some(self.gid),
        }
    }

    /// A new directory gets all its attributes on the storage now, and gives what it says from then on.
    pub(crate) fn inherit_anew(&mut self) {
        let gives = self.inheritance();
        if let Body::Dir(dir) = &mut self.body {
            dir.gives = gives;
        }
    }
}
