//! From the difference between desired and placed to the next storage action of one object.
//!
//! ```text
//!   dead, placed             -> Remove                      (a directory: once its container is empty)
//!   alive, not placed        -> Create                      (parent placed; name free in its container)
//!   a desired name missing   -> Move from a stale name, or Link
//!   a stale name left        -> Remove
//!   dirty content            -> Fill                        (closed, large, or at a flush)
//!   dirty attributes         -> Attributes                  (directories: when all their entries are there)
//! ```
//!
//! Every intermediate state is allowed, because nobody sees a container before commit. What keeps this from
//! going round in circles: an occupant of a wanted name that cannot go at once is moved to a transit name, and a
//! directory moves only below a directory that is settled up to an old one.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};

use elbow_file::FileType;

use crate::abilities::Modes;
use crate::action::{Action, FillTarget, LinkedObject, NewAttrs, Node};
use crate::api::Ino;
use crate::graph::Graph;
use crate::model::{
    ACCESS_ACL, Body, CAPABILITY, DEFAULT_ACL, EAGER_DRAIN_BYTES, EntryKey, Fill, IN_TRANSIT, Inode, Inodes,
    ModelConfig, Staging, StorageTraits, Work,
};
use crate::options::Publish;
use crate::patch_files::{dir_of_patch, patch_name};
use crate::route::{DirSide, Route, StorageName};
use crate::routes::Routes;
use crate::staging::parked_name;

/// What the owner needs to fill a directory.
const OWNER_ALL: u32 = 0o700;
/// Symbolic links have no permissions of their own.
const SYMLINK_MODE: u32 = 0o777;
/// Mode bits that a write or chown takes away, so they are set last.
const PRIVILEGE_BITS: u32 = 0o7000;

/// What an object needs now.
#[derive(Debug)]
pub(crate) enum Plan {
    Nothing,
    /// Nobody can reach it any more, and the storage does not have it: its written data goes.
    Release,
    /// Another object comes first.
    Blocked(Ino),
    Do(Box<Action>),
}

fn act(action: Action) -> Plan {
    Plan::Do(Box::new(action))
}

/// A step is decided, or nothing is to do here and the next question is asked.
type Step = Option<Plan>;

/// Decides what is to be done of an object next.
pub(crate) struct Planner<'a> {
    pub(crate) inodes: &'a mut Inodes,
    pub(crate) graph: &'a mut Graph,
    pub(crate) traits: &'a mut StorageTraits,
    pub(crate) config: &'a ModelConfig,
    /// New directories that stay open until the commit, because something old gets a name in them.
    pub(crate) awaiting: &'a HashSet<Ino>,
    /// Memory is short: open files are drained too.
    pub(crate) pressure: bool,
}

impl Planner<'_> {
    fn routes(&self) -> Routes<'_> {
        Routes {
            inodes: self.inodes,
            config: self.config,
        }
    }

    fn storage_name(&self, key: &EntryKey) -> StorageName {
        self.routes().storage_name(key)
    }

    /// The next action of an object.
    pub(crate) fn plan(&mut self, ino: Ino) -> Plan {
        match self.plan_next(ino) {
            Plan::Blocked(on) if self.gets_its_names(on) => Plan::Blocked(on),
            // Where only names change, whoever waits for anything else would ask for it for ever.
            Plan::Blocked(_) | Plan::Nothing if self.graph.only_names => {
                self.graph.nameless.insert(ino);
                Plan::Nothing
            }
            plan => plan,
        }
    }

    /// Whether what waits for an object may go on some time.
    fn gets_its_names(&self, ino: Ino) -> bool {
        let lacks_names = || self.inodes.get(ino).is_ok_and(Inode::only_lacks_names);
        !self.graph.only_names || !self.graph.nameless.contains(&ino) && lacks_names()
    }

    fn plan_next(&mut self, ino: Ino) -> Plan {
        self.graph.unpark(ino);
        let Ok(inode) = self.inodes.get(ino) else {
            return Plan::Nothing;
        };
        if inode.is_old() {
            return if self.graph.only_names {
                Plan::Nothing
            } else {
                self.plan_old(ino)
            };
        }
        if self.graph.only_names && !inode.only_lacks_names() {
            return Plan::Nothing;
        }
        // Somebody moves it out of the way at this moment.
        if let Some(holder) = inode.placed().iter().find_map(|key| self.holder(key, ino)) {
            return Plan::Blocked(holder);
        }
        if let Some(other) = self.in_the_way(ino) {
            return Plan::Blocked(other);
        }
        if inode.names().is_empty() {
            return self.plan_dead(ino);
        }
        if self.graph.only_names {
            return self.plan_placement(ino).unwrap_or(Plan::Nothing);
        }
        self.plan_placement(ino)
            .or_else(|| self.plan_content(ino))
            .or_else(|| self.plan_attributes(ino))
            .unwrap_or(Plan::Nothing)
    }

    fn plan_old(&mut self, ino: Ino) -> Plan {
        if matches!(&self.inodes.at(ino).body, Body::Dir(dir) if dir.staging == Staging::Wanted) {
            return self.plan_staging(ino);
        }
        if let Some(job) = self
            .inodes
            .job_dir()
            .filter(|_| ino == Ino::ROOT && self.traits.wants_modes())
        {
            let inherited = self.inodes.inherited_by_all();
            return act(Action::ProbeModes { job, inherited });
        }
        if !self.inodes.is_alive(ino) && !self.inodes.has_unknown_names(ino) {
            return Plan::Nothing;
        }
        self.plan_content(ino).unwrap_or(Plan::Nothing)
    }

    fn plan_staging(&mut self, ino: Ino) -> Plan {
        if ino != Ino::ROOT && self.inodes.job_dir().is_none() {
            return self.want_staging(Ino::ROOT);
        }
        act(Action::Stage {
            at: self.routes().route_dir(ino),
            opened: self.inodes.opened_staging(ino),
        })
    }

    /// Asks for a staging directory and waits for it.
    fn want_staging(&mut self, dir: Ino) -> Plan {
        let part = self.inodes.dir_at_mut(dir);
        if part.staging == Staging::None {
            part.staging = Staging::Wanted;
        }
        Plan::Blocked(dir)
    }

    fn plan_dead(&mut self, ino: Ino) -> Plan {
        let inode = self.inodes.at(ino);
        let Some(key) = inode.placed().first().cloned() else {
            return match inode.opens {
                0 => Plan::Release,
                _ => Plan::Nothing,
            };
        };
        let is_dir = inode.is_dir();
        let keep_open = inode.opens > 0 && inode.content().is_some_and(|content| content.target.is_none());
        if is_dir && let Some(child) = self.inodes.dir_at(ino).placed().values().next() {
            return Plan::Blocked(*child);
        }
        if is_dir && let Some(arriving) = self.graph.holder_in(ino) {
            return Plan::Blocked(arriving);
        }
        let at = self.storage_name(&key);
        act(match is_dir {
            true => Action::RemoveDir { at },
            false => Action::Remove { at, keep_open },
        })
    }

    /// Names: create, move, link or unlink until the placed names are the desired ones.
    fn plan_placement(&mut self, ino: Ino) -> Step {
        let inode = self.inodes.at(ino);
        if inode.placed().is_empty() {
            if self.should_park(inode) {
                self.graph.park(ino);
                return Some(Plan::Nothing);
            }
            let key = inode.names()[0].clone();
            return Some(self.plan_create(ino, &key));
        }
        let missing = inode.names().iter().find(|key| !inode.placed().contains(key)).cloned();
        let stale = inode.placed().iter().find(|key| !inode.names().contains(key)).cloned();
        match (missing, stale) {
            (None, None) => None,
            (None, Some(stale)) => Some(act(Action::Remove {
                at: self.storage_name(&stale),
                keep_open: false,
            })),
            (Some(missing), stale) => Some(self.plan_arrival(ino, &missing, stale.as_ref())),
        }
    }

    fn plan_create(&mut self, ino: Ino, key: &EntryKey) -> Plan {
        if let Some(plan) = self.make_ready(ino, key, false) {
            return plan;
        }
        if self.traits.modes().is_none() && self.inodes.at(ino).kind != FileType::Symlink {
            // `creation_mode` compares with what the storage gives: it has to be known what the storage cuts. The root
            // tries that.
            self.traits.want_modes();
            return Plan::Blocked(Ino::ROOT);
        }
        let at = self.storage_name(key);
        let (mode, opened) = self.creation_mode(ino, key.dir);
        let keep_open = self.inodes.at(ino).opens > 0;
        let node = match &self.inodes.at(ino).body {
            Body::Dir(_) => Node::Dir,
            Body::File(_) => Node::File,
            Body::Symlink(target) => Node::Symlink(target.clone().unwrap_or_default()),
            Body::Special => Node::Special(self.inodes.at(ino).kind, self.inodes.at(ino).rdev),
        };
        let fill = self.take_fill(ino);
        if let Some(plan) = self.plan_probe(ino) {
            return plan;
        }
        // After the fill is known: times are only set with the last one.
        let mut attrs = self.take_attrs(ino, &fill);
        attrs.mode = attrs.mode.or(opened);
        act(Action::Create {
            at,
            node,
            mode,
            fill,
            attrs,
            keep_open,
        })
    }

    fn plan_arrival(&mut self, ino: Ino, to: &EntryKey, stale: Option<&EntryKey>) -> Plan {
        let moves = stale.is_some();
        if let Some(plan) = self.make_ready(ino, to, moves) {
            return plan;
        }
        // Below one that is itself still to be moved it might come to be below itself: no move may make a loop.
        let moves_dir = moves && self.inodes.at(ino).is_dir();
        if let Some(unsettled) = moves_dir.then(|| self.unsettled(to.dir)).flatten() {
            return Plan::Blocked(unsettled);
        }
        let clobbers = self.inodes.placed_at(to);
        let to = self.storage_name(to);
        match stale {
            Some(from) => act(Action::Move {
                from: self.storage_name(from),
                to,
                clobbers,
            }),
            None => {
                let inode = self.inodes.at(ino);
                let from = inode.placed()[0].clone();
                let seen = inode.old.as_ref().and_then(|old| old.seen);
                act(Action::Link {
                    from: self.storage_name(&from),
                    to,
                    seen: seen.as_ref().map(LinkedObject::of),
                })
            }
        }
    }

    /// Sees to it that a name can be taken in its container; `Some` while that is not so.
    fn make_ready(&mut self, ino: Ino, key: &EntryKey, may_clobber: bool) -> Step {
        let above = self.inodes.at(key.dir);
        if above.is_old() {
            if self.inodes.dir_at(key.dir).staging != Staging::Made {
                return Some(self.want_staging(key.dir));
            }
        } else if above.placed().is_empty() {
            return Some(Plan::Blocked(key.dir));
        }
        if let Some(holder) = self.holder(key, ino) {
            return Some(Plan::Blocked(holder));
        }
        let occupant = self.inodes.placed_at(key)?;
        self.plan_occupant(ino, occupant, key, may_clobber)
    }

    /// Something else has the name that `ino` is to have: it goes by being replaced, by itself, or out of the way;
    /// `None`: it is replaced.
    fn plan_occupant(&mut self, ino: Ino, occupant: Ino, key: &EntryKey, may_clobber: bool) -> Step {
        let other = self.inodes.at(occupant);
        // It may be about to leave, and its next state is not known before that.
        if other.work == Work::Running {
            return Some(Plan::Blocked(occupant));
        }
        let is_dead = other.names().is_empty();
        let other_is_dir = other.is_dir();
        // One that is open is removed by an action of its own, which opens it first: its content is still read.
        let is_unread = other.opens == 0;
        // rename(2) replaces a file by a file: one call instead of two.
        let are_files = !other_is_dir && !self.inodes.at(ino).is_dir();
        if may_clobber && is_dead && is_unread && are_files {
            return None;
        }
        let is_empty = !other_is_dir || self.inodes.dir_at(occupant).placed().is_empty();
        // It needs nobody to be removed, so waiting for that cannot go round in a circle.
        if is_dead && is_empty {
            return Some(Plan::Blocked(occupant));
        }
        // It waits for something else, which may be `ino` itself (two names that are exchanged): so it is moved on its
        // behalf.
        let transit_key = self.transit_key(key.dir, occupant);
        if let Some(holder) = self.holder(&transit_key, ino) {
            return Some(Plan::Blocked(holder));
        }
        if let Some(walker) = self.graph.walker(key, ino) {
            return Some(Plan::Blocked(walker));
        }
        let (from, to) = (self.storage_name(key), self.storage_name(&transit_key));
        if self.inodes.at(occupant).placed().contains(&transit_key) {
            // A file with several names waits there already: rename(2) between two names of one file does nothing.
            return Some(act(Action::Remove {
                at: from,
                keep_open: false,
            }));
        }
        Some(act(Action::Move {
            from,
            to,
            clobbers: None,
        }))
    }

    /// Where an object waits that has a name in this container which another needs: in the job's own directory, or where it is, if that is on
    /// another device.
    fn transit_key(&self, dir: Ino, occupant: Ino) -> EntryKey {
        match self.inodes.is_foreign(dir) {
            true => EntryKey::new(dir, &parked_name(&self.config.staging_name, 'x', occupant.0)),
            false => EntryKey::new(IN_TRANSIT, OsStr::new(&format!("m{}", occupant.0))),
        }
    }

    /// Who else has an action under way on this name.
    fn holder(&self, key: &EntryKey, ino: Ino) -> Option<Ino> {
        self.graph.holder(key).filter(|holder| *holder != ino)
    }

    /// Who has an action under way that and one on an object could lead each other astray: it moves a directory that is looked for by name on the
    /// way to the object, or looks for this one, which is to be moved, itself.
    fn in_the_way(&self, ino: Ino) -> Option<Ino> {
        let inode = self.inodes.at(ino);
        let keys = inode.placed().iter().chain(inode.names());
        let mut by = keys.flat_map(|key| self.routes().walked(key));
        let mover = by.find_map(|key| self.holder(&key, ino));
        let is_moved = inode.is_dir() && !inode.is_settled();
        let walkers = || inode.placed().iter().find_map(|key| self.graph.walker(key, ino));
        mover.or_else(|| is_moved.then(walkers).flatten())
    }

    /// The highest directory on the way up from `dir` that is not where it belongs.
    fn unsettled(&self, dir: Ino) -> Option<Ino> {
        let mut at = dir;
        let mut found = None;
        while !self.inodes.at(at).is_old() && at != IN_TRANSIT {
            let inode = self.inodes.at(at);
            if inode.placed().first() != inode.names().first() {
                found = Some(at);
            }
            at = inode.names().first()?.dir;
        }
        found
    }

    /// More may be written before it is closed, and goes with it then: unless there is much of it already, or it is
    /// wanted at once.
    fn should_park(&self, inode: &Inode) -> bool {
        let eager = self.config.publish == Publish::Eager;
        let little = inode
            .content()
            .is_some_and(|content| content.dirty_bytes() < EAGER_DRAIN_BYTES);
        let is_wanted = self.graph.flush || self.pressure || eager;
        inode.write_opens > 0 && little && !is_wanted
    }

    fn plan_content(&mut self, ino: Ino) -> Step {
        let inode = self.inodes.at(ino);
        let last = inode.write_opens == 0 || self.graph.flush;
        let content = inode.content()?;
        if !content.needs_fill(inode.size, last) {
            return None;
        }
        if self.should_park(inode) {
            self.graph.park(ino);
            return Some(Plan::Nothing);
        }
        let target = match self.target(ino) {
            Ok(target) => target,
            Err(plan) => return Some(plan),
        };
        let fill = self.take_fill(ino);
        // Attributes of old objects change at the commit, with the record.
        let old = self.inodes.at(ino).is_old();
        let attrs = if old {
            NewAttrs::default()
        } else {
            self.take_attrs(ino, &fill)
        };
        Some(act(Action::Fill { target, fill, attrs }))
    }

    fn target(&mut self, ino: Ino) -> Result<FillTarget, Plan> {
        let inode = self.inodes.at(ino);
        let content = inode.content().expect("a file");
        if let Some(handle) = &content.target {
            return Ok(FillTarget::Open(handle.clone()));
        }
        if !inode.is_old() {
            return Ok(FillTarget::Named(self.storage_name(&inode.placed()[0])));
        }
        let is_made = content.patch_made;
        match self.inodes.job_dir() {
            Some(base) => {
                let name = patch_name(ino);
                let route = Route {
                    base,
                    names: dir_of_patch(&name).into_iter().collect(),
                    owner: DirSide::Own(IN_TRANSIT),
                };
                Ok(match is_made {
                    true => FillTarget::Patch(route, name),
                    false => FillTarget::NewPatch(route, name),
                })
            }
            None => Err(self.want_staging(Ino::ROOT)),
        }
    }

    fn take_fill(&mut self, ino: Ino) -> Fill {
        let (flush, pressure) = (self.graph.flush, self.pressure);
        let inode = self.inodes.at_mut(ino);
        let last = inode.write_opens == 0 || flush;
        let size = inode.size;
        // Small writes that go on are gathered: one call for all of them when the file is closed.
        let wanted = last || pressure || inode.content().is_some_and(|c| c.dirty_bytes() >= EAGER_DRAIN_BYTES);
        let eager = self.config.publish == Publish::Eager;
        match self.inodes.at_mut(ino).content_mut() {
            Some(content) if wanted || eager => content.fill(size, last),
            _ => Fill::default(),
        }
    }

    /// Before the first attribute of a symbolic link is set: can this storage do that at all?
    fn plan_probe(&mut self, ino: Ino) -> Step {
        let inode = self.inodes.at(ino);
        if inode.kind != FileType::Symlink || !inode.dirty.any() {
            return None;
        }
        match self.traits.link_attributes() {
            None => Some(act(Action::ProbeLinks {
                job: self.inodes.job_dir()?,
            })),
            Some(true) => None,
            Some(false) => {
                // Setting them would hit what it points to; what the job sees of it stays as it was set.
                self.inodes.at_mut(ino).dirty = Default::default();
                None
            }
        }
    }

    fn plan_attributes(&mut self, ino: Ino) -> Step {
        if let Some(plan) = self.plan_probe(ino) {
            return Some(plan);
        }
        if let Some(below) = self.shut_out(ino) {
            return Some(Plan::Blocked(below));
        }
        let attrs = self.take_attrs(ino, &Fill::default());
        if attrs.is_empty() {
            return None;
        }
        let key = self.inodes.at(ino).placed()[0].clone();
        Some(act(Action::SetAttributes {
            at: self.storage_name(&key),
            attrs,
        }))
    }

    /// A directory below that could not be given its attributes any more once this one has a mode that lets nobody in.
    fn shut_out(&self, ino: Ino) -> Option<Ino> {
        const OWNER_SEARCH: u32 = 0o100;
        let is_closed = self.inodes.at(ino).is_dir() && self.inodes.at(ino).mode & OWNER_SEARCH == 0;
        let mut dirs = Vec::from_iter(is_closed.then_some(ino));
        while let Some(dir) = dirs.pop() {
            for entry in self.inodes.dir_at(dir).entries().values() {
                let inode = self.inodes.at(*entry);
                if !inode.is_dir() || inode.is_old() {
                    continue;
                }
                // What is under way counts as done here, and is not yet.
                if inode.work == Work::Running || inode.has_work(self.graph.finishing) {
                    return Some(*entry);
                }
                dirs.push(*entry);
            }
        }
        None
    }

    /// Dirty attributes whose time has come; they count as set from now on. Times come with the last fill, because
    /// any later one would change them.
    fn take_attrs(&mut self, ino: Ino, fill: &Fill) -> NewAttrs {
        let (flush, finishing) = (self.graph.flush, self.graph.finishing);
        let keeps_modes = self.traits.keeps_modes();
        let awaits = self.awaiting.contains(&ino);
        let inode = self.inodes.at_mut(ino);
        // What is made in it later would change its times, and its mode may let nobody in: directories come last.
        if inode.is_dir() && !finishing {
            return NewAttrs::default();
        }
        // From here on the storage inherits from what the directory is now, not from what it was made as.
        inode.inherit_anew();
        let mut attrs = NewAttrs::default();
        let last_fill = inode
            .content()
            .is_none_or(|content| content.dirty.len() == fill.pieces.len());
        let is_written_no_more = inode.write_opens == 0 || flush;
        let quiet = is_written_no_more && last_fill;
        let dirty = inode.dirty;
        if dirty.owner {
            attrs.owner = Some((inode.uid, inode.gid));
        }
        let has_mode = inode.kind != FileType::Symlink;
        // These take set-id bits and file capabilities away, whether the job still wants them or not.
        let takes_rights = attrs.owner.is_some() || fill.changes_file();
        let mut keys = inode.dirty_xattrs.take();
        let xattrs = inode.xattrs.as_ref();
        let value_of = |key: &OsStr| xattrs.and_then(|xattrs| xattrs.get(key)).cloned();
        if takes_rights && value_of(OsStr::new(CAPABILITY)).is_some() {
            keys.insert(CAPABILITY.into());
        }
        // An access ACL is set as one, and gives the mode that it stands for: set-id bits are none of it.
        let takes_bits = takes_rights || keys.contains(OsStr::new(ACCESS_ACL));
        // Where modes are not kept there are none of these bits to be lost.
        let loses_bits = keeps_modes && takes_bits && inode.mode & PRIVILEGE_BITS != 0;
        if has_mode && (dirty.mode || loses_bits) {
            attrs.mode = Some(inode.staged_mode(awaits));
        }
        attrs.xattrs = keys
            .into_iter()
            .map(|key| {
                let value = value_of(&key);
                (key, value)
            })
            .collect();
        if quiet && (dirty.times || !attrs.is_empty()) {
            attrs.times = Some((inode.atime, inode.mtime));
        }
        inode.dirty = crate::model::Dirty {
            times: dirty.times && !quiet,
            ..Default::default()
        };
        attrs
    }

    /// The mode to create an object with. What the storage will give it beside that, by the set-group-id and the default ACL of
    /// the directory that it is created in, is compared with what the job gave it where the job made it: each difference is
    /// marked dirty, and set. Of a directory that would shut us out by what it inherits, also the mode to open it with at once.
    fn creation_mode(&mut self, ino: Ino, parent: Ino) -> (u32, Option<u32>) {
        let gives = self.inodes.gives(parent);
        let modes = self.traits.modes().unwrap_or(Modes { cut: 0, kept: true });
        let (uid, gid) = (self.config.own_uid, gives.group.unwrap_or(self.config.own_gid));
        let inode = self.inodes.at_mut(ino);
        // What we create is ours on the storage, whoever the command was.
        inode.dirty.owner |= (inode.uid, inode.gid) != (uid, gid);
        if inode.kind == FileType::Symlink {
            return (SYMLINK_MODE, None);
        }
        // A directory is filled before it gets a mode that keeps us out of it.
        let needed = if inode.is_dir() { OWNER_ALL } else { 0 };
        // Set-id bits last: what follows would take them away.
        let asked = (inode.mode | needed) & 0o777;
        let inherited = gives.inherited(asked & !modes.cut, inode.is_dir());
        if !modes.kept {
            // What the command has set could be set; what it created has the mode that everything has there.
            return (asked, None);
        }
        // A default ACL may give the owner less than was asked for.
        let opened = inherited.mode | needed;
        inode.dirty.mode = opened != inode.mode;
        let wanted = inode.xattrs.get_or_insert_default();
        if inherited.access_acl_with(inode.mode).as_ref() != wanted.get(OsStr::new(ACCESS_ACL)) {
            inode.dirty_xattrs.insert(OsString::from(ACCESS_ACL));
        }
        if inherited.default_acl.as_deref() != wanted.get(OsStr::new(DEFAULT_ACL)) {
            inode.dirty_xattrs.insert(OsString::from(DEFAULT_ACL));
        }
        (asked, Some(opened).filter(|opened| *opened != inherited.mode))
    }
}
