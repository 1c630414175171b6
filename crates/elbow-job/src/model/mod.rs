//! The namespace model: what the tree will be once all queued operations are done.
//!
//! Pure bookkeeping. Every operation is answered from here at once or says what has to be fetched first
//! ([`OpError::NeedsStorage`](crate::OpError::NeedsStorage)); nothing here calls the storage, reads a clock or
//! starts a thread. The same inodes carry what is *desired* (names, attributes, content) and what is *placed* (what
//! the storage has by now); the graph ([`crate::graph`]) is the difference of the two.
//!
//! ```text
//!   desired:   entries of directories, attributes, sizes, dirty pieces      <- operations
//!   placed:    names in containers, stored sizes                            <- completed actions
//!   container: a new directory itself, or the staging directory of an old one
//! ```
//!
//! What it is made of, each with its own invariants:
//!
//! ```text
//!   Inodes          all objects, and their names, said twice and kept the same     `inodes/`
//!   SpaceLedger     room on the storage: what is free, what is promised            `ledger`
//!   StorageTraits   what this storage cannot do, or does in its own way            `traits`
//!   Checks          what keeps an object from being changed                        `checks`
//!   Scheduler       when an object comes up to be stored                           `schedule`
//!   Planner         what is to be done of it then                                  `crate::plan`
//! ```
//!
//! The operations of the command are methods of [`Model`], by what they are about: `names`, `content`, `attributes`.

mod attributes;
mod boxed_unless_empty;
mod checks;
mod config;
mod content;
mod copy;
mod copy_source;
mod entry_key;
mod file_data;
mod fill;
mod inherit;
mod inodes;
mod later_times;
mod ledger;
mod looked;
mod mode;
mod names;
mod namesakes;
mod reserve;
mod schedule;
mod traits;
mod xattrs;

use std::cell::Cell;
use std::collections::HashSet;

use elbow_file::{Errno, Handle, Space, Stat, Time};

use crate::api::{Answer, Attr, Ino, Numbered};
use crate::graph::Graph;
use crate::plan::Planner;
use crate::prelist::Prelist;
use crate::report::Counts;
use crate::routes::Routes;
use checks::Checks;
pub(crate) use config::{IN_TRANSIT, ModelConfig, Name};
pub(crate) use copy::copy_range;
pub(crate) use copy_source::{CopyPiece, SourceVersion};
pub(crate) use file_data::{Content, EAGER_DRAIN_BYTES, Segment, SegmentSource};
use fill::MemoryPiece;
pub(crate) use fill::{Chunk, Fill, Piece};
pub(crate) use inodes::{
    Body, Dir, Dirty, EntryKey, FoundEntry, FoundXattrs, Inode, Inodes, Listing, Staging, Work, forget_handle,
};
pub(crate) use ledger::SpaceLedger;
pub(crate) use looked::{install_below, install_looked};
pub(crate) use mode::has_set_id;
pub(crate) use names::NewObject;
pub(crate) use namesakes::namesakes;
pub(crate) use schedule::Scheduler;
pub(crate) use traits::StorageTraits;
pub(crate) use xattrs::{ACCESS_ACL, CAPABILITY, DEFAULT_ACL, apply_mode};

/// The whole model of a job.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) inodes: Inodes,
    pub(crate) graph: Graph,
    /// Descriptors that a worker is to close.
    pub(crate) closing: Vec<(Ino, Handle)>,
    /// Directories to list before they are asked for.
    pub(crate) prelist: Prelist,
    pub(crate) counts: Counts,
    /// The time of the operation under way; set by the owner before each.
    pub(crate) now: Time,
    pub(crate) space: SpaceLedger,
    /// Files without a name whose written data is kept for those who have them open: it is never stored.
    pub(super) nameless: HashSet<Ino>,
    pub(crate) config: ModelConfig,
    /// Modifying operations get this (EROFS at the end of a job, the deferred error after one).
    pub(crate) refuse: Option<Errno>,
    pub(crate) traits: StorageTraits,
    /// The command was answered with an error that is not its own.
    pub(crate) was_refused: Cell<bool>,
    /// It was refused something that a full disk does not refuse: a removal, or a rename.
    pub(crate) was_misled: Cell<bool>,
    /// The command is over: who still changes something is refused that.
    pub(crate) is_frozen: bool,
    /// What [`Inodes::awaiting_old`] says, once nothing changes any more.
    pub(crate) awaiting: HashSet<Ino>,
}

impl Model {
    /// Of a directory with these attributes, that is open, on a storage with so much room.
    pub(crate) fn new(root: &Stat, root_handle: Handle, space: Space, config: ModelConfig) -> Self {
        Self {
            inodes: Inodes::new(root, root_handle, config.handles_max),
            graph: Graph::default(),
            closing: Vec::new(),
            prelist: Prelist::default(),
            counts: Counts::default(),
            now: Time::default(),
            space: SpaceLedger::new(space),
            nameless: HashSet::new(),
            config,
            refuse: None,
            traits: StorageTraits::new(root),
            was_refused: Cell::new(false),
            was_misled: Cell::new(false),
            is_frozen: false,
            awaiting: HashSet::new(),
        }
    }

    /// An old directory that is gone in the job is looked into no more. Were it open when the commit removes it, the
    /// storage would free it only when we close it: at our very end, one after the other.
    ///
    /// At the other end of a connection it is closed with its last clone, and that costs nothing here: a copy of what is in it may still have
    /// to be made by that name, and closing it would close it for that, too.
    fn close_removed(&mut self, ino: Ino) {
        let handle = self.inodes.take_handle_of_removed(ino);
        self.closing
            .extend(handle.filter(Handle::is_here).map(|handle| (ino, handle)));
    }

    /// What brings objects up to be stored.
    pub(crate) fn scheduler(&mut self) -> Scheduler<'_> {
        Scheduler {
            inodes: &mut self.inodes,
            graph: &mut self.graph,
            counts: &mut self.counts,
            now: self.now,
        }
    }

    /// What decides what is to be done of an object. `pressure`: memory is short, so open files are drained too.
    pub(crate) fn planner(&mut self, pressure: bool) -> Planner<'_> {
        Planner {
            inodes: &mut self.inodes,
            graph: &mut self.graph,
            traits: &mut self.traits,
            config: &self.config,
            awaiting: &self.awaiting,
            pressure,
        }
    }

    /// Where things are on the storage.
    pub(crate) fn routes(&self) -> Routes<'_> {
        Routes {
            inodes: &self.inodes,
            config: &self.config,
        }
    }

    fn checks(&self) -> Checks<'_> {
        Checks {
            inodes: &self.inodes,
            traits: &self.traits,
        }
    }

    /// An old symbolic link has new attributes, and nobody knows whether it has any of its own there.
    pub(crate) fn asks_for_link_attributes(&self) -> bool {
        self.traits.link_attributes().is_none() && self.inodes.changes_old_links()
    }

    /// Forgets an object that is neither named, nor open, nor known to the kernel, nor on the storage.
    pub(crate) fn drop_if_dead(&mut self, ino: Ino) {
        if self.inodes.is_unused(ino) {
            self.release_memory(ino);
            self.nameless.remove(&ino);
            self.inodes.remove(ino);
        }
    }

    pub(crate) fn attr(&self, ino: Ino) -> Answer<Attr> {
        let inode = self.inodes.known(ino)?;
        Ok(Attr {
            ino,
            visible_ino: inode.visible_ino,
            number: numbered(inode),
            kind: inode.kind,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            nlink: links(inode, self.traits.counts_subdirs()),
            size: inode.size,
            blocks: blocks(inode),
            rdev: inode.rdev,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
        })
    }

    /// Fails when modifying operations are refused.
    fn may_modify(&self) -> Result<(), Errno> {
        if self.refuse.is_some() && !self.is_frozen {
            self.was_refused.set(true);
        }
        self.refuse.map_or(Ok(()), Err)
    }

    /// The same for what needs no room. Not for attributes: the kernel sets some by itself when a file is closed, and the command knows nothing of that.
    fn may_remove(&self) -> Result<(), Errno> {
        let may = self.may_modify();
        if may.is_err() && !self.is_frozen {
            self.was_misled.set(true);
        }
        may
    }

    /// Objects that the storage does not have as they are.
    pub(crate) fn objects_left(&self) -> u64 {
        self.graph.working + self.graph.parked() as u64
    }

    /// Written bytes that the storage is to get.
    pub(crate) fn bytes_left(&self) -> u64 {
        let nameless = self.nameless.iter().filter(|ino| !self.inodes.has_unknown_names(**ino));
        let nameless = nameless.filter_map(|ino| self.inodes.get(*ino).ok());
        let never_stored: u64 = nameless.filter_map(Inode::content).map(Content::dirty_bytes).sum();
        self.space.reserved_bytes().saturating_sub(never_stored)
    }

    /// A file lost its last name, or one without a name was written to.
    pub(crate) fn note_nameless(&mut self, ino: Ino) {
        let inode = self.inodes.at(ino);
        let has_data = inode.content().is_some_and(|content| !content.dirty.is_empty());
        if inode.names().is_empty() && has_data {
            self.nameless.insert(ino);
        }
    }

    /// All content is there: directories get their final attributes.
    pub(crate) fn finish_directories(&mut self) {
        self.awaiting = self.inodes.awaiting_old();
        self.scheduler().finish_directories();
    }

    /// The newest written data that is in memory: of one file, up to `most` bytes.
    pub(crate) fn newest_memory(&self, most: u64) -> Option<(Ino, Vec<MemoryPiece>)> {
        // What has no name is written nowhere, and so is queued nowhere.
        let nameless = self.nameless.iter().copied();
        self.graph
            .newest()
            .chain(nameless)
            .map(|ino| (ino, self.inodes.memory_pieces(ino, most)))
            .find(|(_, pieces)| !pieces.is_empty())
    }
}

/// Whatever changes an object changes the time of its inode.
fn numbered(inode: &Inode) -> Numbered {
    let seen = inode.old.as_ref().and_then(|old| old.seen);
    match seen.filter(|seen| seen.breaks_links) {
        None => Numbered::Alone,
        Some(seen) if seen.ctime == inode.ctime => Numbered::Shared,
        Some(_) => Numbered::Parted,
    }
}

/// The number of links that stat(2) shows.
fn links(inode: &Inode, counts_subdirs: bool) -> u32 {
    match &inode.body {
        Body::Dir(_) if !counts_subdirs => 1,
        Body::Dir(_) if inode.names().is_empty() && !inode.is_old() => 0,
        _ => inode.nlink,
    }
}

/// The 512-byte blocks that stat(2) shows.
fn blocks(inode: &Inode) -> u64 {
    let seen = inode.seen();
    match (&inode.body, seen) {
        (Body::File(content), _) => content.blocks(inode.size, seen.map(|s| s.blocks)),
        (_, Some(seen)) => seen.blocks,
        (Body::Dir(_), None) => 8,
        _ => 0,
    }
}
