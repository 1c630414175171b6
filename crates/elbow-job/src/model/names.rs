//! Operations on names: lookup, creation, removal, links and renames, answered exactly.

use std::ffi::{OsStr, OsString};

use elbow_file::{Errno, Kind, RenameMode};

use super::rare::Rare;
use super::{Body, Dir, Dirty, Inode, Model, Name, Old, Place, Work};
use crate::abilities::{Ability, of_name};
use crate::api::{Answer, Attr, Caller, Fetch, Ino, Listed, Stop};
use crate::manners::Manner;
use crate::staging::is_staging_name;

/// A symbolic link's target is shorter than this (`PATH_MAX`).
const TARGET_MAX_BYTES: usize = 4096;

/// What a new object is.
pub(crate) struct NewObject<'a> {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) rdev: u64,
    pub(crate) target: Option<&'a OsStr>,
}

impl Model {
    /// The entry of a name; one kernel reference more.
    pub(crate) fn lookup(&mut self, parent: Ino, name: &OsStr) -> Answer<Attr> {
        self.check_length(name)?;
        let ino = self.entry(parent, name)?.ok_or(Errno::NOENT)?;
        let attr = self.attr(ino)?;
        self.at_mut(ino).lookups += 1;
        Ok(attr)
    }

    pub(crate) fn forget(&mut self, ino: Ino, count: u64) {
        if let Ok(inode) = self.get_mut(ino) {
            inode.lookups = inode.lookups.saturating_sub(count);
        }
        self.drop_if_dead(ino);
    }

    /// A listed directory.
    fn listed(&self, ino: Ino) -> Answer<&Dir> {
        let dir = self.get(ino)?.dir()?;
        if dir.complete {
            Ok(dir)
        } else if dir.closed {
            Err(Errno::ACCESS.into())
        } else {
            Err(Stop::Wait(Fetch::List(ino)))
        }
    }

    fn entry(&self, parent: Ino, name: &OsStr) -> Answer<Option<Ino>> {
        let dir = self.get(parent)?.dir()?;
        if !dir.closed {
            return Ok(self.listed(parent)?.entries.get(name).copied());
        }
        match dir.entries.get(name) {
            Some(ino) => Ok(Some(*ino)),
            None if dir.absent.contains(name) || dir.gone.contains_key(name) || is_staging_name(name) => Ok(None),
            None => Err(Stop::Wait(Fetch::Name(parent, name.to_owned()))),
        }
    }

    fn check_length(&self, name: &OsStr) -> Result<(), Errno> {
        if name.len() > self.space.name_max() {
            Err(Errno::NAMETOOLONG)
        } else {
            Ok(())
        }
    }

    /// A name that may be given to something in this directory.
    fn check_new_name(&self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.may_modify()?;
        self.check_length(name)?;
        self.get(parent)?.dir()?;
        if !self.is_alive(parent) {
            return Err(Errno::NOENT.into());
        }
        self.check_writable(parent)?;
        self.check_mutable(parent)?;
        of_name(name).map_or(Ok(()), |ability| self.traits.able(&ability))
    }

    /// All names of a directory.
    pub(crate) fn list(&self, ino: Ino) -> Answer<Vec<Listed>> {
        let dir = self.listed(ino)?;
        let listed = dir.entries.iter().map(|(name, ino)| {
            let inode = self.at(*ino);
            Listed {
                ino: *ino,
                shown_ino: inode.shown_ino,
                kind: inode.kind,
                name: OsString::from(&**name),
            }
        });
        Ok(listed.collect())
    }

    /// Creates an object with one name; one kernel reference.
    pub(crate) fn create(&mut self, caller: Caller, parent: Ino, name: &OsStr, new: &NewObject<'_>) -> Answer<Ino> {
        self.check_new_name(parent, name)?;
        if self.entry(parent, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        if new.target.is_some_and(|target| target.is_empty()) {
            return Err(Errno::NOENT.into());
        }
        if new.target.is_some_and(|target| target.len() >= TARGET_MAX_BYTES) {
            return Err(Errno::NAMETOOLONG.into());
        }
        if !matches!(new.kind, Kind::File | Kind::Dir) {
            self.traits.able(&Ability::Node(new.kind))?;
        }
        let mut inode = self.new_inode(caller, parent, new);
        self.expect_owner(&mut inode)?;
        self.space.reserve(0, 1)?;
        let ino = self.add(inode);
        self.at_mut(ino).shown_ino = crate::api::NEW_INODES + ino.0;
        self.add_name(ino, parent, name);
        self.note_change(parent);
        self.touched(ino);
        Ok(ino)
    }

    /// What somebody else makes belongs to us where the storage gives nothing to others.
    fn expect_owner(&self, inode: &mut Inode) -> Answer<()> {
        if inode.uid == self.own_uid {
            return Ok(());
        }
        match self.traits.able(&Ability::Owner(inode.uid, inode.gid)) {
            Err(Stop::Errno(_)) => (inode.uid, inode.gid) = (self.own_uid, self.own_gid),
            other => other?,
        }
        Ok(())
    }

    fn new_inode(&self, caller: Caller, parent: Ino, new: &NewObject<'_>) -> Inode {
        let gives = self.at(parent).inheritance();
        let is_dir = new.kind == Kind::Dir;
        // A default ACL takes the place of the umask.
        let umask = if gives.default_acl.is_some() { 0 } else { caller.umask };
        let inherited = gives.inherited(new.mode & 0o7777 & !umask, is_dir);
        let is_link = new.kind == Kind::Symlink;
        let body = match new.kind {
            Kind::Dir => Body::Dir(Box::new(Dir {
                complete: true,
                default_acl: inherited.default_acl.clone(),
                ..Dir::default()
            })),
            Kind::File => Body::File(Box::default()),
            Kind::Symlink => Body::Symlink(new.target.map(OsString::from)),
            _ => Body::Special,
        };
        Inode {
            kind: new.kind,
            mode: if is_link { 0o777 } else { inherited.mode },
            uid: caller.uid,
            gid: gives.group.unwrap_or(caller.gid),
            size: new
                .target
                .map_or(if is_dir { 4096 } else { 0 }, |target| target.len() as u64),
            rdev: new.rdev,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            nlink: if is_dir { 2 } else { 0 },
            shown_ino: 0,
            old: None,
            names: Default::default(),
            lookups: 1,
            opens: 0,
            write_opens: 0,
            body,
            xattrs: Some(if is_link {
                Rare::default()
            } else {
                inherited.xattrs().into()
            }),
            dirty_xattrs: Default::default(),
            lost_capability: false,
            placed: Default::default(),
            // A link's own times are set only if the command sets them: nobody looks at them otherwise.
            dirty: Dirty {
                times: new.kind != Kind::Symlink,
                ..Dirty::default()
            },
            work: Work::Idle,
        }
    }

    /// Gives a file one more name; one kernel reference more.
    pub(crate) fn link(&mut self, ino: Ino, parent: Ino, name: &OsStr) -> Answer<Attr> {
        self.check_new_name(parent, name)?;
        self.attr(ino)?;
        if self.get(ino)?.is_dir() {
            return Err(Errno::PERM.into());
        }
        // A file that is open can have lost all names that the job knows, and have others.
        if !self.is_alive(ino) && !self.has_unknown_names(ino) {
            return Err(Errno::NOENT.into());
        }
        if self.entry(parent, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.check_unprotected(ino)?;
        self.check_links_to(ino, parent)?;
        self.traits.able(&Ability::Link)?;
        self.check_links(ino)?;
        // Last, since it is no reason natively.
        self.check_linkable(ino)?;
        self.add_name(ino, parent, name);
        self.nameless.remove(&ino);
        self.note_change(parent);
        let now = self.now;
        let inode = self.at_mut(ino);
        inode.ctime = now;
        inode.lookups += 1;
        self.touched(ino);
        self.attr(ino)
    }

    pub(crate) fn unlink(&mut self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.may_modify()?;
        self.check_length(name)?;
        let ino = self.entry(parent, name)?.ok_or(Errno::NOENT)?;
        if self.at(ino).is_dir() {
            return Err(Errno::ISDIR.into());
        }
        self.attr(ino)?;
        self.check_removable(ino, parent)?;
        self.remove_name(ino, parent, name);
        self.note_change(parent);
        self.name_gone(ino);
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.may_modify()?;
        self.check_length(name)?;
        let ino = self.entry(parent, name)?.ok_or(Errno::NOENT)?;
        if !self.at(ino).is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        self.check_removable(ino, parent)?;
        self.check_empty(ino)?;
        self.remove_name(ino, parent, name);
        self.note_change(parent);
        self.name_gone(ino);
        Ok(())
    }

    /// May an entry of a directory leave it?
    fn check_removable(&self, ino: Ino, parent: Ino) -> Answer<()> {
        self.check_writable(parent)?;
        self.check_unprotected(parent)?;
        Ok(self.check_unprotected(ino)?)
    }

    fn check_empty(&self, ino: Ino) -> Answer<()> {
        if self.listed(ino)?.entries.is_empty() {
            Ok(())
        } else {
            Err(Errno::NOTEMPTY.into())
        }
    }

    /// rename(2) with its flags.
    pub(crate) fn rename(
        &mut self,
        parent: Ino,
        name: &OsStr,
        new_parent: Ino,
        new_name: &OsStr,
        mode: RenameMode,
    ) -> Answer<()> {
        self.may_modify()?;
        self.check_length(name)?;
        let ino = self.entry(parent, name)?.ok_or(Errno::NOENT)?;
        self.check_new_name(new_parent, new_name)?;
        let there = self.entry(new_parent, new_name)?;
        self.attr(ino)?;
        self.check_removable(ino, parent)?;
        if let Some(other) = there.filter(|_| mode != RenameMode::NoReplace) {
            self.attr(other)?;
            self.check_removable(other, new_parent)?;
        }
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => Err(Errno::NOENT.into()),
            _ if self.is_within(new_parent, ino) => Err(Errno::INVAL.into()),
            (RenameMode::Exchange, Some(other)) if self.is_within(parent, other) => Err(Errno::INVAL.into()),
            (RenameMode::Exchange, Some(other)) => {
                self.check_moves(ino, parent, new_parent)?;
                self.check_moves(other, new_parent, parent)?;
                self.exchange((ino, parent, name), (other, new_parent, new_name))
            }
            (_, Some(other)) if other == ino => Ok(()),
            (_, there) => {
                if let Some(other) = there {
                    self.check_kinds(ino, other, parent)?;
                }
                self.check_moves(ino, parent, new_parent)?;
                if let Some(other) = there {
                    self.check_replaceable(other)?;
                    self.remove_name(other, new_parent, new_name);
                    self.name_gone(other);
                }
                self.move_name(ino, (parent, name), (new_parent, new_name));
                self.renamed(ino, parent, new_parent);
                Ok(())
            }
        }
    }

    /// May `ino`, an entry of `parent`, take the name of `other`?
    fn check_kinds(&self, ino: Ino, other: Ino, parent: Ino) -> Answer<()> {
        self.attr(other)?;
        if self.is_within(parent, other) {
            return Err(Errno::NOTEMPTY.into());
        }
        match (self.at(ino).is_dir(), self.at(other).is_dir()) {
            (true, false) => Err(Errno::NOTDIR.into()),
            (false, true) => Err(Errno::ISDIR.into()),
            _ => Ok(()),
        }
    }

    /// A directory that is to be replaced is empty, and no subvolume.
    fn check_replaceable(&self, other: Ino) -> Answer<()> {
        if !self.at(other).is_dir() {
            return Ok(());
        }
        if self.is_bound(other) {
            return Err(Errno::NOTEMPTY.into());
        }
        match self.check_empty(other) {
            Err(Stop::Errno(Errno::NOTEMPTY)) if self.traits.manner(Manner::FullExists)? => Err(Errno::EXIST.into()),
            answer => answer,
        }
    }

    fn exchange(&mut self, a: (Ino, Ino, &OsStr), b: (Ino, Ino, &OsStr)) -> Answer<()> {
        if a.0 == b.0 {
            return Ok(());
        }
        let has_dir = self.at(a.0).is_dir() || self.at(b.0).is_dir();
        let sets_times = a.1 != b.1 && has_dir && self.traits.manner(Manner::ExchangeSets)?;
        self.remove_name(a.0, a.1, a.2);
        self.remove_name(b.0, b.1, b.2);
        self.add_name(a.0, b.1, b.2);
        self.add_name(b.0, a.1, a.2);
        self.renamed(a.0, a.1, b.1);
        self.renamed(b.0, b.1, a.1);
        for ino in [a.0, b.0] {
            if sets_times && self.at(ino).is_dir() {
                self.note_change(ino);
            }
        }
        Ok(())
    }

    fn move_name(&mut self, ino: Ino, from: (Ino, &OsStr), to: (Ino, &OsStr)) {
        self.remove_name(ino, from.0, from.1);
        self.add_name(ino, to.0, to.1);
    }

    fn renamed(&mut self, ino: Ino, from: Ino, to: Ino) {
        self.note_change(from);
        self.note_change(to);
        self.at_mut(ino).ctime = self.now;
        // What it waited for on its way to its old place may be waiting for it now.
        if self.graph.stop_waiting(ino) {
            self.graph.push(ino, self.now);
        }
        self.touched(ino);
    }

    /// `ino` is `above` or below it.
    fn is_within(&self, ino: Ino, above: Ino) -> bool {
        let mut at = ino;
        loop {
            if at == above {
                return true;
            }
            let Some(place) = self.get(at).ok().and_then(|inode| inode.names.first()) else {
                return false;
            };
            at = place.dir;
        }
    }

    /// The directory that holds a directory (for `..`).
    pub(crate) fn parent(&self, ino: Ino) -> Ino {
        self.get(ino)
            .ok()
            .and_then(|inode| inode.names.first())
            .map_or(Ino::ROOT, |place| place.dir)
    }

    /// Enters a name, in both directions.
    pub(super) fn add_name(&mut self, ino: Ino, parent: Ino, name: &OsStr) {
        let place = Place::new(parent, name);
        let inode = self.at_mut(ino);
        let is_dir = inode.is_dir();
        if !is_dir {
            inode.nlink += 1;
        }
        inode.names.push(place.clone());
        let above = self.at_mut(parent);
        if is_dir {
            above.nlink += 1;
        }
        let dir = above.dir_mut().expect("a parent is a directory");
        dir.subdirs += u32::from(is_dir);
        if dir.gone.get(name) == Some(&ino) {
            dir.gone.remove(name);
        }
        dir.entries.insert(place.name, ino);
    }

    fn remove_name(&mut self, ino: Ino, parent: Ino, name: &OsStr) {
        let inode = self.at_mut(ino);
        let is_dir = inode.is_dir();
        inode.names.retain(|place| !place.is(parent, name));
        if !is_dir {
            inode.nlink = inode.nlink.saturating_sub(1);
        }
        let was_there = inode.old.as_ref().is_some_and(|old| old.is_place(parent, name));
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

    /// An object lost a name; maybe its last one.
    fn name_gone(&mut self, ino: Ino) {
        let now = self.now;
        let inode = self.at_mut(ino);
        inode.ctime = now;
        let dead = inode.names.is_empty();
        let unborn = dead && inode.placed.is_empty() && !inode.is_old() && inode.work != Work::Running;
        if unborn {
            self.counts.cancelled += 1;
            self.space.unreserve(0, 1);
        }
        self.note_nameless(ino);
        self.close_removed(ino);
        self.touched(ino);
    }

    /// The entries of a directory changed.
    fn note_change(&mut self, dir: Ino) {
        let now = self.now;
        let inode = self.at_mut(dir);
        inode.mtime = now;
        inode.ctime = now;
        inode.dirty.times = true;
    }

    /// Did this name exist in an old directory before the job?
    pub(crate) fn base_has(&self, dir: Ino, name: &OsStr) -> bool {
        let dir_part = self.dir_at(dir);
        let still = |ino: &Ino| self.at(*ino).old.as_ref().is_some_and(|old| old.is_place(dir, name));
        dir_part.gone.contains_key(name) || dir_part.entries.get(name).is_some_and(still)
    }
}

impl Old {
    pub(crate) fn is_place(&self, dir: Ino, name: &OsStr) -> bool {
        self.places.iter().any(|place| place.is(dir, name))
    }
}
