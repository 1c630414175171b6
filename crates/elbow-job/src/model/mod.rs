//! The namespace model: what the tree will be once all queued operations are done.
//!
//! Pure bookkeeping. Every operation is answered from here at once or says what has to be fetched first
//! ([`Stop::Wait`]); nothing here calls the storage, reads a clock or starts a thread. The same inodes carry
//! what is *desired* (names, attributes, content) and what is *placed* (what the storage has by now); the
//! graph ([`crate::graph`]) is the difference of the two.
//!
//! ```text
//!   desired:   entries of directories, attributes, sizes, dirty pieces      <- operations
//!   placed:    names in containers, stored sizes                            <- completed actions
//!   container: a new directory itself, or the staging directory of an old one
//! ```
//!
//! Invariants: every name in `Inode::names` is an entry of its parent and the other way round; every name
//! in `Inode::placed` is in `Dir::placed` of its container and the other way round; the `base` of an old
//! directory (its names before the job) is `entries` at their original place plus `gone`.

mod attributes;
mod bounds;
mod content;
mod inherit;
mod install;
mod ledger;
mod names;
mod rare;
mod reserve;
mod traits;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use elbow_file::{Errno, Handle, Kind, Protection, Space, Stat, Time};

use crate::ahead::Ahead;
use crate::api::{Answer, Attr, Fetch, Ino, Stop};
use crate::closed::OWNER_ALL;
use crate::graph::Graph;
use crate::report::{Counts, Publish};
use crate::staging::part_name;
pub(crate) use attributes::{ACCESS_ACL, CAPABILITY, DEFAULT_ACL, has_set_id};
pub(crate) use content::{Content, EAGER_DRAIN_BYTES, Fill, Piece, Segment, Source};
pub(crate) use inherit::Inheritance;
pub(crate) use install::{FoundEntry, FoundXattrs, Listing};
pub(crate) use ledger::SpaceLedger;
pub(crate) use names::NewObject;
use rare::{Places, Rare};
pub(crate) use traits::StorageTraits;

/// One path component.
pub(crate) type Name = Arc<OsStr>;

/// The job's own directory (`.elbow-<id>`), as a container for what has no place in the tree for a moment.
pub(crate) const LIMBO: Ino = Ino(0);

/// What its owner needs to change the names in a directory, or to move it to another.
const OWNER_WRITE_SEARCH: u32 = 0o300;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) dir: Ino,
    pub(crate) name: Name,
}

impl Place {
    pub(crate) fn new(dir: Ino, name: &OsStr) -> Self {
        Self {
            dir,
            name: Name::from(name),
        }
    }

    pub(crate) fn is(&self, dir: Ino, name: &OsStr) -> bool {
        self.dir == dir && *self.name == *name
    }
}

/// What an object was before the job.
#[derive(Debug)]
pub(crate) struct Old {
    /// Its attributes when the job first saw them; `None` until fetched.
    pub(crate) seen: Option<Stat>,
    /// Its names when the job first saw them.
    pub(crate) places: Places,
    /// Extended attributes of which the job may know the names and not the values.
    pub(crate) closed_xattrs: Rare<BTreeSet<OsString>>,
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
    pub(crate) entries: BTreeMap<Name, Ino>,
    /// All names are known (from birth, or listed).
    pub(crate) complete: bool,
    /// It may be entered and not be read: names are asked for one by one.
    pub(crate) closed: bool,
    /// Of such a one: names that were not there.
    pub(crate) absent: BTreeSet<Name>,
    /// The command has read it.
    pub(crate) was_read: bool,
    /// Number of directories among the entries.
    pub(crate) subdirs: u32,
    /// Old directories: names that existed before and are not at their place any more.
    pub(crate) gone: BTreeMap<Name, Ino>,
    /// What the storage has in this directory's container by now.
    pub(crate) placed: BTreeMap<Name, Ino>,
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
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) rdev: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) nlink: u32,
    pub(crate) shown_ino: u64,
    pub(crate) old: Option<Box<Old>>,
    pub(crate) names: Places,
    pub(crate) lookups: u64,
    pub(crate) opens: u32,
    pub(crate) write_opens: u32,
    pub(crate) body: Body,
    /// `None`: not fetched yet (old objects only).
    pub(crate) xattrs: Option<Rare<BTreeMap<OsString, Vec<u8>>>>,
    pub(crate) dirty_xattrs: Rare<BTreeSet<OsString>>,
    /// File capabilities are gone, whatever the storage says when it is asked for extended attributes.
    pub(crate) lost_capability: bool,
    pub(crate) placed: Places,
    pub(crate) dirty: Dirty,
    pub(crate) work: Work,
}

impl Inode {
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
        let settled = self.names.len() == self.placed.len() && self.names.iter().all(|name| self.placed.contains(name));
        let attributes = self.dirty.any() || !self.dirty_xattrs.is_empty();
        !settled
            || attributes && (finishing || !self.is_dir())
            || content.is_some_and(|content| content.needs_fill(self.size, true))
    }

    /// Access and modification time before the job.
    pub(crate) fn times_before(&self) -> (Time, Time) {
        let seen = self.old.as_ref().and_then(|old| old.seen);
        seen.map_or((self.atime, self.mtime), |seen| (seen.atime, seen.mtime))
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
}

/// The whole model of a job.
#[derive(Debug)]
pub(crate) struct Model {
    inodes: Vec<Option<Box<Inode>>>,
    /// Old files with several names, by device and inode number: each subvolume has the same numbers.
    linked: HashMap<(u64, u64), Ino>,
    /// The device of the root, and whether something below it is on another.
    home_device: u64,
    has_bounds: bool,
    pub(crate) graph: Graph,
    /// Descriptors that a worker is to close.
    pub(crate) closing: Vec<(Ino, Handle)>,
    /// Directories to list before they are asked for.
    pub(crate) ahead: Ahead,
    /// Descriptors of directories kept open, and how many may be.
    kept_handles: usize,
    handles_max: usize,
    pub(crate) counts: Counts,
    /// The time of the operation under way; set by the owner before each.
    pub(crate) now: Time,
    pub(crate) space: SpaceLedger,
    /// Objects whose work is not idle.
    working: u64,
    /// Files without a name whose written data is kept for those who have them open: it is never stored.
    pub(super) nameless: HashSet<Ino>,
    pub(crate) memory_limit: u64,
    pub(crate) publish: Publish,
    /// Modifying operations get this (EROFS at the end of a job, the deferred error after one).
    pub(crate) refuse: Option<Errno>,
    /// The name of the job's own directory.
    pub(crate) staging_name: Name,
    /// The name of its staging directories below that of the job.
    pub(crate) part_name: Name,
    /// What the storage gives to objects that this process creates.
    pub(crate) own_uid: u32,
    pub(crate) own_gid: u32,
    pub(crate) traits: StorageTraits,
    /// The command was answered with an error that is not its own.
    pub(crate) was_refused: Cell<bool>,
    /// The command is over: who still changes something is refused that.
    pub(crate) is_frozen: bool,
    /// What [`Model::awaiting_old`] says, once nothing changes any more.
    pub(crate) awaiting: HashSet<Ino>,
}

/// What a model needs to know at birth.
pub(crate) struct Birth {
    pub(crate) root: Stat,
    pub(crate) root_handle: Handle,
    pub(crate) space: Space,
    pub(crate) staging_name: Name,
    pub(crate) memory_limit: u64,
    pub(crate) publish: Publish,
    pub(crate) own_uid: u32,
    pub(crate) own_gid: u32,
    /// Descriptors of directories that may be kept open.
    pub(crate) handles_max: usize,
}

impl Model {
    pub(crate) fn new(birth: Birth) -> Self {
        let mut root = inode_of(&birth.root);
        if let Body::Dir(dir) = &mut root.body {
            dir.handle = Some(birth.root_handle);
        }
        root.old = Some(Box::new(Old {
            seen: Some(birth.root),
            places: Places::default(),
            closed_xattrs: Rare::default(),
        }));
        root.lookups = 1;
        let mut limbo = inode_of(&birth.root);
        limbo.old = None;
        Self {
            inodes: vec![Some(Box::new(limbo)), Some(Box::new(root))],
            linked: HashMap::new(),
            home_device: birth.root.dev,
            has_bounds: false,
            graph: Graph::default(),
            closing: Vec::new(),
            ahead: Ahead::default(),
            kept_handles: 0,
            handles_max: birth.handles_max,
            counts: Counts::default(),
            now: Time::default(),
            space: SpaceLedger::new(birth.space),
            working: 0,
            nameless: HashSet::new(),
            memory_limit: birth.memory_limit,
            publish: birth.publish,
            refuse: None,
            part_name: Name::from(&*part_name(&birth.staging_name)),
            staging_name: birth.staging_name,
            own_uid: birth.own_uid,
            own_gid: birth.own_gid,
            traits: StorageTraits::new(&birth.root),
            was_refused: Cell::new(false),
            is_frozen: false,
            awaiting: HashSet::new(),
        }
    }

    pub(crate) fn get(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.inodes
            .get(ino.0 as usize)
            .and_then(Option::as_deref)
            .ok_or(Errno::STALE)
    }

    pub(crate) fn get_mut(&mut self, ino: Ino) -> Result<&mut Inode, Errno> {
        self.inodes
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

    /// For tests: as if there were few descriptors.
    #[cfg(test)]
    pub(crate) fn limit_handles(&mut self, most: usize) {
        self.handles_max = most;
    }

    /// Keeps the descriptor of a directory (or of its staging directory), while there are some left. Without
    /// one, the way to a directory begins at the nearest directory above that has one.
    pub(crate) fn keep_handle(&mut self, ino: Ino, staging: bool, handle: Handle) {
        if self.kept_handles >= self.handles_max {
            return;
        }
        let Ok(dir) = self.dir_at_checked(ino) else { return };
        let slot = if staging {
            &mut dir.staging_handle
        } else {
            &mut dir.handle
        };
        if slot.is_none() {
            *slot = Some(handle);
            self.kept_handles += 1;
        }
    }

    /// An old directory that is gone in the job is looked into no more. Were it open when the commit removes it, the
    /// storage would free it only when we close it: at our very end, one after the other.
    fn close_removed(&mut self, ino: Ino) {
        let Ok(inode) = self.get_mut(ino) else { return };
        let is_removed = inode.is_old() && inode.names.is_empty();
        let Some(handle) = inode
            .dir_mut()
            .ok()
            .filter(|_| is_removed)
            .and_then(|dir| dir.handle.take())
        else {
            return;
        };
        self.kept_handles -= 1;
        self.closing.push((ino, handle));
    }

    pub(crate) fn dir_at_mut(&mut self, ino: Ino) -> &mut Dir {
        self.at_mut(ino).dir_mut().expect("a container is a directory")
    }

    /// An old symbolic link has new attributes, and nobody knows whether it has any of its own there.
    pub(crate) fn asks_for_link_attributes(&self) -> bool {
        let is_asking = |inode: &Inode| inode.kind == Kind::Symlink && inode.is_old() && inode.dirty.any();
        self.traits.link_attributes().is_none() && self.all().any(|(_, inode)| is_asking(inode))
    }

    /// All inodes, oldest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.inodes
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(n, i)| i.as_deref().map(|i| (Ino(n as u64), i)))
    }

    fn add(&mut self, inode: Inode) -> Ino {
        self.inodes.push(Some(Box::new(inode)));
        Ino(self.inodes.len() as u64 - 1)
    }

    /// Forgets an object that is neither named, nor open, nor known to the kernel, nor on the storage.
    pub(crate) fn drop_if_dead(&mut self, ino: Ino) {
        let Ok(inode) = self.get(ino) else { return };
        let used = !inode.names.is_empty()
            || inode.is_old()
            || inode.lookups > 0
            || inode.opens > 0
            || !inode.placed.is_empty()
            || inode.work != Work::Idle;
        if !used && ino != LIMBO {
            self.release_memory(ino);
            if let Ok(dir) = self.at(ino).dir() {
                self.kept_handles -= usize::from(dir.handle.is_some()) + usize::from(dir.staging_handle.is_some());
            }
            self.nameless.remove(&ino);
            self.inodes[ino.0 as usize] = None;
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
        for place in olds.flat_map(|(_, inode)| &inode.names) {
            let mut at = place.dir;
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

    pub(crate) fn attr(&self, ino: Ino) -> Answer<Attr> {
        let inode = self.get(ino)?;
        if inode.old.as_ref().is_some_and(|old| old.seen.is_none()) {
            return Err(Stop::Wait(Fetch::Attributes(ino)));
        }
        Ok(Attr {
            ino,
            shown_ino: inode.shown_ino,
            kind: inode.kind,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            nlink: self.nlink(inode),
            size: inode.size,
            blocks: blocks(inode),
            rdev: inode.rdev,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
        })
    }

    fn nlink(&self, inode: &Inode) -> u32 {
        match &inode.body {
            Body::Dir(_) if !self.traits.counts_subdirs() => 1,
            Body::Dir(_) if inode.names.is_empty() && !inode.is_old() => 0,
            _ => inode.nlink,
        }
    }

    /// The path of an object below the directory of the job, for people.
    pub(crate) fn path(&self, ino: Ino) -> PathBuf {
        let mut parts: Vec<Name> = Vec::new();
        let mut at = ino;
        while at != Ino::ROOT {
            let Ok(inode) = self.get(at) else { break };
            let place = inode
                .names
                .first()
                .or_else(|| inode.old.as_ref().and_then(|old| old.places.first()));
            let Some(place) = place.or_else(|| inode.placed.first()) else {
                break;
            };
            parts.push(place.name.clone());
            at = place.dir;
        }
        parts.iter().rev().map(|name| &**name).collect()
    }

    /// The path that an old object had before the job.
    pub(crate) fn old_path(&self, ino: Ino) -> PathBuf {
        let place = self.at(ino).old.as_ref().and_then(|old| old.places.first());
        place.map_or_else(PathBuf::new, |place| self.old_path(place.dir).join(&*place.name))
    }

    /// Fails when modifying operations are refused.
    fn may_modify(&self) -> Result<(), Errno> {
        if self.refuse.is_some() && !self.is_frozen {
            self.was_refused.set(true);
        }
        self.refuse.map_or(Ok(()), Err)
    }

    /// What chattr(1) protects an old object from.
    pub(super) fn protection(&self, ino: Ino) -> Protection {
        let old = self.get(ino).ok().and_then(|inode| inode.old.as_ref());
        old.and_then(|old| old.seen)
            .map_or(Protection::None, |seen| seen.protection)
    }

    /// Fails for an object that may not be renamed, removed, linked or given other attributes, and for a directory that no name
    /// may leave.
    pub(super) fn check_unprotected(&self, ino: Ino) -> Result<(), Errno> {
        match self.protection(ino) {
            Protection::None => Ok(()),
            Protection::AppendOnly | Protection::Immutable => Err(Errno::PERM),
        }
    }

    /// Fails for somebody else's file whose set-id bits the job has taken by writing to it, and the storage has until the commit: nobody but the
    /// owner may link such a file (`protected_hardlinks`, proc_sys_fs(5)).
    pub(super) fn check_linkable(&self, ino: Ino) -> Result<(), Errno> {
        let inode = self.at(ino);
        let Some(seen) = inode.old.as_ref().and_then(|old| old.seen) else {
            return Ok(());
        };
        let is_others = self.own_uid != 0 && seen.uid != self.own_uid;
        match is_others && has_set_id(seen.mode) && !has_set_id(inode.mode) {
            true => Err(Errno::PERM),
            false => Ok(()),
        }
    }

    /// Fails for an object that may not even be added to.
    pub(super) fn check_mutable(&self, ino: Ino) -> Result<(), Errno> {
        match self.protection(ino) {
            Protection::Immutable => Err(Errno::PERM),
            Protection::None | Protection::AppendOnly => Ok(()),
        }
    }

    /// Counts a modifying operation on an object and queues the work that follows from it.
    pub(crate) fn touched(&mut self, ino: Ino) {
        self.counts.operations += 1;
        if self.at(ino).work == Work::Queued {
            self.counts.merged += 1;
        }
        self.queue(ino);
    }

    /// Queues an object unless it is waiting already.
    pub(crate) fn queue(&mut self, ino: Ino) {
        let now = self.now;
        let Ok(inode) = self.get_mut(ino) else { return };
        match inode.work {
            Work::Idle => {
                inode.work = Work::Queued;
                self.working += 1;
                self.graph.unpark(ino);
                self.graph.push(ino, now);
            }
            Work::Queued | Work::Running => {}
        }
    }

    /// Fails for a file that can have no more names.
    fn check_links(&self, ino: Ino) -> Answer<()> {
        /// So many can be had everywhere.
        const EVERYWHERE: u32 = 1000;
        let links = self.at(ino).nlink;
        if links < EVERYWHERE {
            return Ok(());
        }
        match self.traits.nature()?.links_max {
            Some(most) if links >= most => Err(Errno::MLINK.into()),
            _ => Ok(()),
        }
    }

    /// The job's own directory is needed now.
    pub(crate) fn stage_root(&mut self) {
        let root = self.dir_at_mut(Ino::ROOT);
        if root.staging == Staging::None {
            root.staging = Staging::Wanted;
        }
        let root = self.at_mut(Ino::ROOT);
        if root.work == Work::Idle {
            root.work = Work::Queued;
            self.working += 1;
            self.graph.push_next(Ino::ROOT);
        }
    }

    /// The next object for a worker: the first that has rested and need not wait at the door of a directory.
    pub(crate) fn next_work(&mut self) -> Option<Ino> {
        while self.graph.is_ready(self.now) {
            let ino = self.graph.take(0)?;
            match self.arrives_in(ino) {
                Some(dir) if !self.graph.enter(ino, dir) => {}
                _ => return Some(ino),
            }
        }
        None
    }

    /// The directory that a new object has to be created in.
    fn arrives_in(&self, ino: Ino) -> Option<Ino> {
        let inode = self.get(ino).ok()?;
        let place = inode.names.first()?;
        (inode.placed.is_empty() && !inode.is_old()).then_some(place.dir)
    }

    /// Has an object rested long enough since its last change, or is there too much of it to wait?
    pub(crate) fn rested(&self, ino: Ino) -> bool {
        let Ok(inode) = self.get(ino) else { return true };
        let large = inode
            .content()
            .is_some_and(|content| content.dirty_bytes() >= EAGER_DRAIN_BYTES);
        large || inode.is_old() || self.graph.has_rested(inode.ctime, self.now)
    }

    /// The object needs nothing now, or nothing before it is closed.
    pub(crate) fn rest(&mut self, ino: Ino) {
        let Ok(inode) = self.get_mut(ino) else { return };
        let before = std::mem::replace(&mut inode.work, Work::Idle);
        self.working -= u64::from(before != Work::Idle);
        // One that came up and needed nothing, or only to be cancelled, was never stored.
        self.counts.objects_stored += u64::from(before == Work::Running && !self.graph.is_parked(ino));
    }

    /// Objects that the storage does not have as they are.
    pub(crate) fn objects_left(&self) -> u64 {
        self.working + self.graph.parked() as u64
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

    /// Written bytes that the storage is to get.
    pub(crate) fn bytes_left(&self) -> u64 {
        let nameless = self.nameless.iter().filter(|ino| !self.has_unknown_names(**ino));
        let nameless = nameless.filter_map(|ino| self.get(*ino).ok());
        let never_stored: u64 = nameless.filter_map(Inode::content).map(Content::dirty_bytes).sum();
        self.space.reserved_bytes().saturating_sub(never_stored)
    }

    /// A file lost its last name, or one without a name was written to.
    pub(crate) fn note_nameless(&mut self, ino: Ino) {
        let inode = self.at(ino);
        let has_data = inode.content().is_some_and(|content| !content.dirty.is_empty());
        if inode.names.is_empty() && has_data {
            self.nameless.insert(ino);
        }
    }

    /// Puts an object that changed just now to the end of the queue.
    pub(crate) fn rest_again(&mut self, ino: Ino) {
        let now = self.now;
        self.graph.push(ino, now);
    }

    /// Memory is short: files that are kept open come up too.
    pub(crate) fn wake_parked(&mut self) {
        for ino in self.graph.take_parked() {
            self.queue(ino);
        }
    }

    /// From now on everything goes to the storage at once, open files included.
    pub(crate) fn flush(&mut self) {
        self.graph.flush = true;
        self.graph.take_parked();
        self.queue_all(|inode| inode.has_work(false));
    }

    /// All content is there: directories get their final attributes.
    pub(crate) fn finish_directories(&mut self) {
        self.graph.finishing = true;
        self.awaiting = self.awaiting_old();
        self.queue_all(|inode| inode.has_work(true));
    }

    /// Nothing but names changes from here on: of objects that the storage has.
    pub(crate) fn finish_names(&mut self) {
        self.graph.only_names = true;
        let all = self.all().map(|(ino, _)| ino).filter(|ino| self.only_lacks_names(*ino));
        let all: Vec<Ino> = all.collect();
        all.into_iter().for_each(|ino| self.queue(ino));
    }

    fn queue_all(&mut self, which: impl Fn(&Inode) -> bool) {
        let all: Vec<Ino> = self
            .all()
            .filter(|(_, inode)| which(inode))
            .map(|(ino, _)| ino)
            .collect();
        all.into_iter().for_each(|ino| self.queue(ino));
    }

    /// The newest written data that is in memory: of one file, up to `most` bytes.
    pub(crate) fn newest_memory(&self, most: u64) -> Option<(Ino, Vec<content::MemoryPiece>)> {
        // What has no name is written nowhere, and so is queued nowhere.
        let nameless = self.nameless.iter().copied();
        self.graph
            .newest()
            .chain(nameless)
            .map(|ino| (ino, self.memory_pieces(ino, most)))
            .find(|(_, pieces)| !pieces.is_empty())
    }
}

fn blocks(inode: &Inode) -> u64 {
    let seen = inode.old.as_ref().and_then(|old| old.seen.as_ref());
    match (&inode.body, seen) {
        (Body::File(content), _) => content.blocks(inode.size, seen.map(|s| s.blocks)),
        (_, Some(seen)) => seen.blocks,
        (Body::Dir(_), None) => 8,
        _ => 0,
    }
}

/// An inode with the attributes that the storage gave.
fn inode_of(stat: &Stat) -> Inode {
    let body = match stat.kind {
        Kind::Dir => Body::Dir(Box::default()),
        Kind::File => Body::File(Box::new(Content::of_old(stat.size))),
        Kind::Symlink => Body::Symlink(None),
        _ => Body::Special,
    };
    Inode {
        kind: stat.kind,
        mode: stat.mode,
        uid: stat.uid,
        gid: stat.gid,
        size: stat.size,
        rdev: stat.rdev,
        atime: stat.atime,
        mtime: stat.mtime,
        ctime: stat.ctime,
        nlink: stat.nlink,
        shown_ino: stat.ino,
        old: None,
        names: Places::default(),
        lookups: 0,
        opens: 0,
        write_opens: 0,
        body,
        xattrs: None,
        dirty_xattrs: Rare::default(),
        lost_capability: false,
        placed: Places::default(),
        dirty: Dirty::default(),
        work: Work::Idle,
    }
}
