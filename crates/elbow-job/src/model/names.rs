//! Operations on names: lookup, creation, removal, links and renames, answered exactly.

use std::ffi::{OsStr, OsString};

use elbow_file::{Errno, FileType, RenameMode, Time};

use super::inherit::Inheritance;
use super::{Body, Dir, Inode, Model, Work};
use crate::abilities::{Ability, of_name};
use crate::api::{Answer, Attr, Caller, Ino, Listed, OpError};
use crate::behaviours::Behaviour;
use crate::job_files::STAGING_MODE;
use crate::staging::is_directory_of_a_job;

/// A symbolic link's target is shorter than this (`PATH_MAX`).
const TARGET_MAX_BYTES: usize = 4096;

/// What a new object is.
pub(crate) struct NewObject<'a> {
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    pub(crate) rdev: u64,
    pub(crate) target: Option<&'a OsStr>,
}

impl Model {
    /// The entry of a name; one kernel reference more.
    pub(crate) fn lookup(&mut self, parent: Ino, name: &OsStr) -> Answer<Attr> {
        self.space.check_name(name)?;
        let ino = self.inodes.entry(parent, name)?.ok_or(Errno::NOENT)?;
        let attr = self.attr(ino)?;
        self.inodes.at_mut(ino).lookups += 1;
        Ok(attr)
    }

    pub(crate) fn forget(&mut self, ino: Ino, count: u64) {
        if let Ok(inode) = self.inodes.get_mut(ino) {
            inode.lookups = inode.lookups.saturating_sub(count);
        }
        self.drop_if_dead(ino);
    }

    /// A name that may be given to something in this directory.
    fn check_new_name(&self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.may_modify()?;
        self.space.check_name(name)?;
        self.inodes.get(parent)?.dir()?;
        // A process may stand in a directory that was removed.
        if !self.inodes.is_alive(parent) {
            return Err(Errno::NOENT.into());
        }
        self.checks().writable(parent)?;
        self.checks().unprotected(parent)?;
        of_name(name).map_or(Ok(()), |ability| self.traits.able(&ability))
    }

    /// Fails for a name that no later job would show: only directories of jobs have those. A job in this one makes such a directory itself, under its
    /// name and open to nobody else.
    fn not_of_a_job(name: &OsStr, new: Option<&NewObject<'_>>) -> Result<(), Errno> {
        let is_staging = |new: &NewObject<'_>| new.kind == FileType::Dir && new.mode & 0o777 == STAGING_MODE;
        match is_directory_of_a_job(name) && !new.is_some_and(is_staging) {
            true => Err(Errno::PERM),
            false => Ok(()),
        }
    }

    /// All names of a directory.
    pub(crate) fn list(&self, ino: Ino) -> Answer<Vec<Listed>> {
        let dir = self.inodes.listed(ino)?;
        let listed = dir.entries().iter().map(|(name, ino)| {
            let inode = self.inodes.at(*ino);
            Listed {
                ino: *ino,
                visible_ino: inode.visible_ino,
                kind: inode.kind,
                name: OsString::from(&**name),
            }
        });
        Ok(listed.collect())
    }

    /// Creates an object with one name; one kernel reference.
    pub(crate) fn create(&mut self, caller: Caller, parent: Ino, name: &OsStr, new: &NewObject<'_>) -> Answer<Ino> {
        self.check_new_name(parent, name)?;
        if self.inodes.entry(parent, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        Self::not_of_a_job(name, Some(new))?;
        if new.target.is_some_and(|target| target.is_empty()) {
            return Err(Errno::NOENT.into());
        }
        let target_bytes = new.target.map_or(0, OsStr::len);
        if target_bytes >= TARGET_MAX_BYTES {
            return Err(Errno::NAMETOOLONG.into());
        }
        if !matches!(new.kind, FileType::File | FileType::Dir) {
            self.traits.able(&Ability::Node(new.kind))?;
        }
        self.traits.able(&Ability::Target(target_bytes))?;
        let mut inode = new_inode(caller, &self.inodes.at(parent).inheritance(), new, self.now);
        self.expect_owner(&mut inode)?;
        // After all checks: nothing gives the promise back when one of them refuses.
        self.space.reserve(0, 1)?;
        let ino = self.inodes.add(inode);
        self.inodes.at_mut(ino).visible_ino = crate::api::NEW_INODES + ino.0;
        self.inodes.add_name(ino, parent, name);
        self.note_change(parent);
        self.scheduler().touched(ino);
        Ok(ino)
    }

    /// What somebody else makes belongs to us where the storage gives nothing to others.
    fn expect_owner(&self, inode: &mut Inode) -> Answer<()> {
        if inode.uid == self.config.own_uid {
            return Ok(());
        }
        match self.traits.able(&Ability::Owner(inode.uid, inode.gid)) {
            Err(OpError::Errno(_)) => (inode.uid, inode.gid) = (self.config.own_uid, self.config.own_gid),
            other => other?,
        }
        Ok(())
    }

    /// Gives a file one more name; one kernel reference more.
    pub(crate) fn link(&mut self, ino: Ino, parent: Ino, name: &OsStr) -> Answer<Attr> {
        self.check_new_name(parent, name)?;
        self.attr(ino)?;
        if self.inodes.get(ino)?.is_dir() {
            return Err(Errno::PERM.into());
        }
        // A file that is open can have lost all names that the job knows, and have others.
        if !self.inodes.is_alive(ino) && !self.inodes.has_unknown_names(ino) {
            return Err(Errno::NOENT.into());
        }
        if self.inodes.entry(parent, name)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        Self::not_of_a_job(name, None)?;
        self.checks().unprotected(ino)?;
        self.checks().links_to(ino, parent)?;
        self.traits.able(&Ability::Link)?;
        self.checks().links(ino)?;
        // Last, since it is no reason natively.
        self.checks().linkable(ino, self.config.own_uid)?;
        self.inodes.add_name(ino, parent, name);
        self.nameless.remove(&ino);
        self.note_change(parent);
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        inode.ctime = now;
        inode.lookups += 1;
        self.scheduler().touched(ino);
        self.attr(ino)
    }

    pub(crate) fn unlink(&mut self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.may_remove()?;
        self.space.check_name(name)?;
        let ino = self.inodes.entry(parent, name)?.ok_or(Errno::NOENT)?;
        if self.inodes.at(ino).is_dir() {
            return Err(Errno::ISDIR.into());
        }
        self.attr(ino)?;
        self.checks().removable(ino, parent)?;
        self.inodes.remove_name(ino, parent, name);
        self.note_change(parent);
        self.name_gone(ino);
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, parent: Ino, name: &OsStr) -> Answer<()> {
        self.may_remove()?;
        self.space.check_name(name)?;
        let ino = self.inodes.entry(parent, name)?.ok_or(Errno::NOENT)?;
        if !self.inodes.at(ino).is_dir() {
            return Err(Errno::NOTDIR.into());
        }
        self.checks().removable(ino, parent)?;
        self.inodes.check_empty(ino)?;
        self.inodes.remove_name(ino, parent, name);
        self.note_change(parent);
        self.name_gone(ino);
        Ok(())
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
        self.may_remove()?;
        self.space.check_name(name)?;
        let ino = self.inodes.entry(parent, name)?.ok_or(Errno::NOENT)?;
        self.check_new_name(new_parent, new_name)?;
        let there = self.inodes.entry(new_parent, new_name)?;
        self.attr(ino)?;
        Self::not_of_a_job(new_name, None)?;
        if mode == RenameMode::Exchange {
            Self::not_of_a_job(name, None)?;
        }
        self.checks().removable(ino, parent)?;
        // What exists is EEXIST then, whoever may remove it.
        if let Some(other) = there.filter(|_| mode != RenameMode::NoReplace) {
            self.attr(other)?;
            self.checks().removable(other, new_parent)?;
        }
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => Err(Errno::EXIST.into()),
            (RenameMode::Exchange, None) => Err(Errno::NOENT.into()),
            _ if self.inodes.is_within(new_parent, ino) => Err(Errno::INVAL.into()),
            (RenameMode::Exchange, Some(other)) if self.inodes.is_within(parent, other) => Err(Errno::INVAL.into()),
            (RenameMode::Exchange, Some(other)) => {
                self.checks().moves(ino, parent, new_parent)?;
                self.checks().moves(other, new_parent, parent)?;
                self.exchange((ino, parent, name), (other, new_parent, new_name))
            }
            // rename(2) of one hard link over another does nothing.
            (_, Some(other)) if other == ino => Ok(()),
            (_, there) => {
                if let Some(other) = there {
                    self.checks().kinds(ino, other, parent)?;
                }
                self.checks().moves(ino, parent, new_parent)?;
                if let Some(other) = there {
                    self.checks().replaceable(other)?;
                    self.inodes.remove_name(other, new_parent, new_name);
                    self.name_gone(other);
                }
                self.inodes.move_name(ino, (parent, name), (new_parent, new_name));
                self.renamed(ino, parent, new_parent);
                Ok(())
            }
        }
    }

    fn exchange(&mut self, a: (Ino, Ino, &OsStr), b: (Ino, Ino, &OsStr)) -> Answer<()> {
        if a.0 == b.0 {
            return Ok(());
        }
        // Only the `..` of a directory changes with its parent, and file systems differ in whether that sets its times.
        let has_dir = self.inodes.at(a.0).is_dir() || self.inodes.at(b.0).is_dir();
        let sets_times = a.1 != b.1 && has_dir && self.traits.behaviour(Behaviour::ExchangeSets)?;
        self.inodes.remove_name(a.0, a.1, a.2);
        self.inodes.remove_name(b.0, b.1, b.2);
        self.inodes.add_name(a.0, b.1, b.2);
        self.inodes.add_name(b.0, a.1, a.2);
        self.renamed(a.0, a.1, b.1);
        self.renamed(b.0, b.1, a.1);
        for ino in [a.0, b.0] {
            if sets_times && self.inodes.at(ino).is_dir() {
                self.note_change(ino);
            }
        }
        Ok(())
    }

    fn renamed(&mut self, ino: Ino, from: Ino, to: Ino) {
        self.note_change(from);
        self.note_change(to);
        self.inodes.at_mut(ino).ctime = self.now;
        // What it waited for on its way to its old place may be waiting for it now.
        if self.graph.stop_waiting(ino) {
            self.graph.push(ino, self.now);
        }
        self.scheduler().touched(ino);
    }

    /// An object lost a name; maybe its last one.
    fn name_gone(&mut self, ino: Ino) {
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        inode.ctime = now;
        let dead = inode.names().is_empty();
        // It never reaches the storage.
        let unborn = dead && inode.placed().is_empty() && !inode.is_old() && inode.work != Work::Running;
        if unborn {
            self.counts.cancelled += 1;
            self.space.unreserve(0, 1);
        }
        self.note_nameless(ino);
        self.close_removed(ino);
        self.scheduler().touched(ino);
    }

    /// The entries of a directory changed.
    fn note_change(&mut self, dir: Ino) {
        let now = self.now;
        let inode = self.inodes.at_mut(dir);
        inode.mtime = now;
        inode.ctime = now;
        inode.dirty.times = true;
    }
}

/// A new object in a directory that gives this to it.
fn new_inode(caller: Caller, gives: &Inheritance, new: &NewObject<'_>, now: Time) -> Inode {
    let is_dir = new.kind == FileType::Dir;
    // A default ACL takes the place of the umask.
    let umask = if gives.default_acl.is_some() { 0 } else { caller.umask };
    let inherited = gives.inherited(new.mode & 0o7777 & !umask, is_dir);
    let is_link = new.kind == FileType::Symlink;
    let body = match new.kind {
        FileType::Dir => Body::Dir(Box::new(Dir::empty(inherited.default_acl.clone()))),
        FileType::File => Body::File(Box::default()),
        FileType::Symlink => Body::Symlink(new.target.map(OsString::from)),
        _ => Body::Special,
    };
    let mut inode = Inode::new(new.kind, body, now);
    inode.mode = if is_link { 0o777 } else { inherited.mode };
    inode.uid = caller.uid;
    inode.gid = gives.group.unwrap_or(caller.gid);
    inode.size = new
        .target
        .map_or(if is_dir { 4096 } else { 0 }, |target| target.len() as u64);
    inode.rdev = new.rdev;
    inode.nlink = if is_dir { 2 } else { 0 };
    inode.lookups = 1;
    let xattrs = (!is_link).then(|| inherited.xattrs());
    inode.xattrs = Some(xattrs.unwrap_or_default().into());
    // A link's own times are set only if the command sets them: nobody looks at them otherwise.
    inode.dirty.times = !is_link;
    inode
}
