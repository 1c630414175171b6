//! All objects of a job: an arena that keeps what is said twice the same.
//!
//! ```text
//!   Inode::names   <->  Dir::entries of the parent           what the command sees
//!   Inode::placed  <->  Dir::placed of the container         what the storage has by now
//!   Old::places     =   Dir::entries there, or Dir::gone     what there was before
//!   container:          a new directory itself, or the staging directory of an old one
//! ```
//!
//! Invariants: every name in `Inode::names` is an entry of its parent and the other way round; every name in
//! `Inode::placed` is in `Dir::placed` of its container and the other way round; the base of an old directory (its
//! names before the job) is its entries that are at their original place plus `gone`; no number is used twice; as many
//! descriptors of directories are kept as `kept_handles` says. They hold because only this module and those below it
//! write these fields: [`Inodes::add_name`], [`Inodes::remove_name`], [`Inodes::place`], [`Inodes::unplace`] and what
//! installs what was found on the storage.
//!
//! Not here: what an operation may do ([`super::Model`]), and what follows from it ([`crate::plan`]).

mod bounds;
mod encryption;
mod inode;
mod install;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::PathBuf;

use elbow_file::{Errno, FileType, Handle, Protection, Stat};

use super::boxed_unless_empty::{BoxedUnlessEmpty, EntryKeys};
use super::config::{IN_TRANSIT, Name};
pub(crate) use super::entry_key::EntryKey;
use super::inherit::{Inheritance, group_given};
use crate::api::{Answer, Fetch, Ino, OpError};
use crate::closed::OWNER_ALL;
use crate::route::DirSide;
use crate::staging::is_staging_name;
pub(crate) use inode::{Body, Dir, Dirty, Inode, Old, Staging, Work};
pub(crate) use install::{FoundEntry, FoundXattrs, Listing};

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Inodes {
    slots: Vec<Option<Box<Inode>>>,
    /// Old files with several names, by device and inode number: each subvolume has the same numbers.
    linked: HashMap<(u64, u64), Ino>,
    /// The device of the root, and whether something below it is on another.
    home_device: u64,
    has_bounds: bool,
    /// The root is encrypted; and something below it is, where it is not.
    is_home_encrypted: bool,
    has_encrypted: bool,
    /// Descriptors of directories kept open, and how many may be.
    kept_handles: usize,
    handles_max: usize,
}

/// The descriptor of a directory is of no use.
pub(crate) fn forget_handle(inodes: &mut Inodes, dir: Ino) {
    if let Ok(dir) = inodes.dir_at_checked(dir)
        && dir.handle.take().is_some()
    {
        inodes.kept_handles -= 1;
    }
}

impl Inodes {
    /// The root, which is old, and the place for what has none in the tree for a moment.
    pub(crate) fn new(stat: &Stat, root_handle: Handle, handles_max: usize) -> Self {
        let mut root = Inode::of_stat(stat);
        if let Body::Dir(dir) = &mut root.body {
            dir.handle = Some(root_handle);
        }
        root.old = Some(Box::new(Old {
            seen: Some(*stat),
            names: EntryKeys::default(),
            closed_xattrs: BoxedUnlessEmpty::default(),
            replaced_xattrs: BoxedUnlessEmpty::default(),
        }));
        root.lookups = 1;
        let transit_key = Inode::of_stat(stat);
        Self {
            slots: vec![Some(Box::new(transit_key)), Some(Box::new(root))],
            linked: HashMap::new(),
            home_device: stat.dev,
            has_bounds: false,
            is_home_encrypted: stat.is_encrypted,
            has_encrypted: false,
            kept_handles: 0,
            handles_max,
        }
    }

    /// For tests: as if there were few descriptors.
    #[cfg(test)]
    pub(crate) fn limit_handles(&mut self, most: usize) {
        self.handles_max = most;
    }

    pub(crate) fn get(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.slots
            .get(ino.0 as usize)
            .and_then(Option::as_deref)
            .ok_or(Errno::STALE)
    }

    /// An object whose attributes are known.
    pub(crate) fn known(&self, ino: Ino) -> Answer<&Inode> {
        let inode = self.get(ino)?;
        match inode.old.as_ref().is_some_and(|old| old.seen.is_none()) {
            true => Err(OpError::NeedsStorage(Fetch::Attributes(ino))),
            false => Ok(inode),
        }
    }

    pub(crate) fn get_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.slots
            .get_mut(ino.0 as usize)
            .and_then(Option::as_deref_mut)
            .ok_or(Errno::STALE)
    }

    /// An inode that the model itself refers to; its absence is a bug.
    pub(crate) fn at(&self, ino: Ino) -> &Inode {
        self.get(ino).expect("an inode that is referred to exists")
    }

    pub(crate) fn at_mut(&mut self, ino: Ino) -> &mut Inode {
        self.get_mut(ino).expect("an inode that is referred to exists")
    }

    pub(crate) fn dir_at(&self, ino: Ino) -> &Dir {
        self.at(ino).dir().expect("a container is a directory")
    }

    pub(crate) fn dir_at_checked(&mut self, ino: Ino) -> Result<&mut Dir, Errno> {
        self.get_mut(ino)?.dir_mut()
    }

    pub(crate) fn dir_at_mut(&mut self, ino: Ino) -> &mut Dir {
        self.at_mut(ino).dir_mut().expect("a container is a directory")
    }

    /// All inodes, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.slots
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(n, i)| i.as_deref().map(|i| (Ino(n as u64), i)))
    }

    pub(crate) fn add(&mut self, inode: Inode) -> Ino {
        self.slots.push(Some(Box::new(inode)));
        Ino(self.slots.len() as u64 - 1)
    }

    /// Keeps the descriptor of a directory (or of its staging directory), while there are some left. Without
    /// one, the way to a directory begins at the nearest directory above that has one.
    pub(crate) fn keep_handle(&mut self, side: DirSide, handle: Handle) {
        if self.kept_handles >= self.handles_max {
            return;
        }
        let Ok(dir) = self.dir_at_checked(side.dir()) else {
            return;
        };
        let slot = match side {
            DirSide::Own(_) => &mut dir.handle,
            DirSide::Staging(_) => &mut dir.staging_handle,
        };
        if slot.is_none() {
            *slot = Some(handle);
            self.kept_handles += 1;
        }
    }

    /// The object has a name, or is the root.
    pub(crate) fn is_alive(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.get(ino).is_ok_and(|i| !i.names.is_empty())
    }

    /// New directories that something old gets a name in at the commit, and the new ones above them.
    pub(crate) fn awaiting_old(&self) -> HashSet<Ino> {
        let mut awaiting = HashSet::new();
        let olds = self.all().filter(|(_, inode)| inode.is_old());
        for key in olds.flat_map(|(_, inode)| &inode.names) {
            let mut at = key.dir;
            while !self.at(at).is_old() && awaiting.insert(at) {
                at = self.at(at).names[0].dir;
            }
        }
        awaiting
    }

    /// An old file that lost all names that the job knows, but has others that it never looked at.
    pub(crate) fn has_unknown_names(&self, ino: Ino) -> bool {
        self.get(ino)
            .is_ok_and(|i| i.is_old() && !i.is_dir() && i.names.is_empty() && i.nlink > 0)
    }

    /// The path of an object below the directory of the job, for people.
    pub(crate) fn path(&self, ino: Ino) -> PathBuf {
        let mut parts: Vec<Name> = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            let Ok(inode) = self.get(at) else { break };
            let key = inode.names.first().or_else(|| inode.old_name());
            let Some(key) = key.or_else(|| inode.placed.first()) else {
                break;
            };
            parts.push(key.name.clone());
            at = key.dir;
        }
        parts.iter().rev().map(|name| &**name).collect()
    }

    /// The path that an old object had before the job.
    pub(crate) fn old_path(&self, ino: Ino) -> PathBuf {
        let key = self.at(ino).old_name();
        key.map_or_else(PathBuf::new, |key| self.old_path(key.dir).join(&*key.name))
    }

    /// What chattr(1) protects an old object from.
    pub(crate) fn protection(&self, ino: Ino) -> Protection {
        let old = self.get(ino).ok().and_then(|inode| inode.old.as_ref());
        old.and_then(|old| old.seen)
            .map_or(Protection::None, |seen| seen.protection)
    }

    /// Objects that the storage does not have, or not with all of their content, in the order of their paths.
    pub(crate) fn missing(&self) -> Vec<PathBuf> {
        let is_missing = |inode: &Inode| {
            let has_more = inode.content().is_some_and(|content| !content.dirty.is_empty());
            has_more || inode.old.is_none() && inode.placed.is_empty()
        };
        let missing = self
            .all()
            .filter(|(ino, inode)| *ino != Ino::ROOT && self.is_alive(*ino) && is_missing(inode));
        let mut paths: Vec<PathBuf> = missing.map(|(ino, _)| self.path(ino)).collect();
        paths.sort();
        paths
    }

    /// A listed directory.
    pub(crate) fn listed(&self, ino: Ino) -> Answer<&Dir> {
        let dir = self.get(ino)?.dir()?;
        if dir.complete {
            Ok(dir)
        } else if dir.closed {
            Err(Errno::ACCESS.into())
        } else {
            Err(OpError::NeedsStorage(Fetch::List(ino)))
        }
    }

    pub(crate) fn entry(&self, parent: Ino, name: &OsStr) -> Answer<Option<Ino>> {
        let dir = self.get(parent)?.dir()?;
        if !dir.closed {
            return Ok(self.listed(parent)?.entries.get(name).copied());
        }
        match dir.entries.get(name) {
            Some(ino) => Ok(Some(*ino)),
            None if dir.absent.contains(name) || dir.gone.contains_key(name) || is_staging_name(name) => Ok(None),
            None => Err(OpError::NeedsStorage(Fetch::Name(parent, name.to_owned()))),
        }
    }

    pub(crate) fn check_empty(&self, ino: Ino) -> Answer<()> {
        if self.listed(ino)?.entries.is_empty() {
            Ok(())
        } else {
            Err(Errno::NOTEMPTY.into())
        }
    }

    /// `ino` is `above` or below it.
    pub(crate) fn is_within(&self, ino: Ino, above: Ino) -> bool {
        let mut at = ino;
        loop {
            if at == above {
                return true;
            }
            let Some(key) = self.get(at).ok().and_then(|inode| inode.names.first()) else {
                return false;
            };
            at = key.dir;
        }
    }

    /// The directory that holds a directory (for `..`).
    pub(crate) fn parent(&self, ino: Ino) -> Ino {
        self.get(ino)
            .ok()
            .and_then(|inode| inode.names.first())
            .map_or(Ino::ROOT, |key| key.dir)
    }

    /// Enters a name, in both directions.
    pub(crate) fn add_name(&mut self, ino: Ino, parent: Ino, name: &OsStr) {
        let key = EntryKey::new(parent, name);
        let inode = self.at_mut(ino);
        let is_dir = inode.is_dir();
        if !is_dir {
            inode.nlink += 1;
        }
        inode.names.push(key.clone());
        let above = self.at_mut(parent);
        if is_dir {
            above.nlink += 1;
        }
        let dir = above.dir_mut().expect("a parent is a directory");
        dir.subdirs += u32::from(is_dir);
        if dir.gone.get(name) == Some(&ino) {
            dir.gone.remove(name);
        }
        dir.entries.insert(key.name, ino);
    }

    pub(crate) fn remove_name(&mut self, ino: Ino, parent: Ino, name: &OsStr) {
        let inode = self.at_mut(ino);
        let is_dir = inode.is_dir();
        inode.names.retain(|key| !key.is(parent, name));
        if !is_dir {
            inode.nlink = inode.nlink.saturating_sub(1);
        }
        let was_there = inode.old.as_ref().is_some_and(|old| old.had_name(parent, name));
        let above = self.at_mut(parent);
        if is_dir {
            above.nlink = above.nlink.saturating_sub(1);
        }
        let dir = above.dir_mut().expect("a parent is a directory");
        dir.subdirs -= u32::from(is_dir);
        dir.entries.remove(name);
        if was_there {
            dir.gone.insert(Name::from(name), ino);
        }
    }

    /// Did this name exist in an old directory before the job?
    pub(crate) fn base_has(&self, dir: Ino, name: &OsStr) -> bool {
        let dir_part = self.dir_at(dir);
        let still = |ino: &Ino| self.at(*ino).old.as_ref().is_some_and(|old| old.had_name(dir, name));
        dir_part.gone.contains_key(name) || dir_part.entries.get(name).is_some_and(still)
    }

    /// The storage has an object under a name.
    pub(crate) fn place(&mut self, ino: Ino, key: &EntryKey) {
        self.at_mut(ino).placed.push(key.clone());
        self.dir_at_mut(key.dir).placed.insert(key.name.clone(), ino);
    }

    /// The storage has an object under a name no more.
    pub(crate) fn unplace(&mut self, ino: Ino, key: &EntryKey) {
        self.at_mut(ino).placed.retain(|placed| placed != key);
        self.dir_at_mut(key.dir).placed.remove(&key.name);
    }

    /// The job's own directory on the storage, once it is made.
    pub(crate) fn job_dir(&self) -> Option<Handle> {
        self.dir_at(IN_TRANSIT).handle.clone()
    }

    /// The mode to give to the staging directory of an old directory where what it inherits would shut us out.
    pub(crate) fn opened_staging(&self, ino: Ino) -> Option<u32> {
        let inherited = self.gives(ino).inherited(OWNER_ALL, true).mode;
        let opened = inherited | OWNER_ALL;
        Some(opened).filter(|opened| *opened != inherited)
    }

    /// What the storage has under a name by now.
    pub(crate) fn placed_at(&self, key: &EntryKey) -> Option<Ino> {
        self.dir_at(key.dir).placed.get(&key.name).copied()
    }

    /// Has nobody any more: neither a name, nor somebody who has it open or knows it, nor the storage.
    pub(crate) fn is_unused(&self, ino: Ino) -> bool {
        let Ok(inode) = self.get(ino) else { return false };
        let is_named = !inode.names.is_empty() || !inode.placed.is_empty() || inode.is_old();
        let is_known = inode.lookups > 0 || inode.opens > 0;
        !is_named && !is_known && inode.work == Work::Idle && ino != IN_TRANSIT
    }

    /// Forgets an object that is unused. Its number is not used again.
    pub(crate) fn remove(&mut self, ino: Ino) {
        assert!(self.is_unused(ino), "an object that is still referred to is forgotten");
        if let Ok(dir) = self.at(ino).dir() {
            self.kept_handles -= usize::from(dir.handle.is_some()) + usize::from(dir.staging_handle.is_some());
        }
        self.slots[ino.0 as usize] = None;
    }

    /// The descriptor of an old directory that has no name in the job any more.
    pub(crate) fn take_handle_of_removed(&mut self, ino: Ino) -> Option<Handle> {
        let inode = self.get_mut(ino).ok()?;
        let is_removed = inode.is_old() && inode.names.is_empty();
        let handle = inode.dir_mut().ok().filter(|_| is_removed)?.handle.take()?;
        self.kept_handles -= 1;
        Some(handle)
    }

    /// An old symbolic link has new attributes.
    pub(crate) fn changes_old_links(&self) -> bool {
        let is_changed = |inode: &Inode| inode.kind == FileType::Symlink && inode.is_old() && inode.dirty.any();
        self.all().any(|(_, inode)| is_changed(inode))
    }

    /// An object has another name for one of its own.
    pub(crate) fn move_name(&mut self, ino: Ino, from: (Ino, &OsStr), to: (Ino, &OsStr)) {
        self.remove_name(ino, from.0, from.1);
        self.add_name(ino, to.0, to.1);
    }

    /// The permission bits of a file that is created with all of them in the job's own directory.
    pub(crate) fn inherited_by_all(&self) -> u32 {
        self.gives(Ino::ROOT).inherited(0o777, false).mode
    }

    /// What the storage gives to what is created in the container of a directory: a staging directory inherits from
    /// the old directory that it is in, and gives on what it has inherited.
    pub(crate) fn gives(&self, dir: Ino) -> Inheritance {
        let inode = self.at(dir);
        let seen = inode.seen();
        let (gives, loses_group) = (self.dir_at(dir).gives.clone(), self.dir_at(dir).loses_group);
        Inheritance {
            group: seen.map_or(gives.group, group_given).filter(|_| !loses_group),
            ..gives
        }
    }
}
