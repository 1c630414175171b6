//! What keeps an object from being changed, beside permissions, which the kernel checks.
//!
//! Attributes of chattr(1), read-only subvolumes, boundaries of devices and of encryption, a file's most names. Each is answered as the
//! storage would answer, or says what has to be fetched first.

use elbow_file::{Errno, Protection};

use super::mode::has_set_id;
use super::{Inodes, StorageTraits};
use crate::abilities::Ability;
use crate::api::{Answer, Fetch, Ino, OpError, SetAttr};
use crate::behaviours::Behaviour;

/// See the module's header.
#[derive(Clone, Copy)]
pub(super) struct Checks<'a> {
    pub(super) inodes: &'a Inodes,
    pub(super) traits: &'a StorageTraits,
}

impl Checks<'_> {
    /// May an entry of a directory leave it?
    pub(super) fn removable(&self, ino: Ino, parent: Ino) -> Answer<()> {
        self.writable(parent)?;
        self.unprotected(parent)?;
        Ok(self.unprotected(ino)?)
    }

    /// Fails for an object that may not be renamed, removed, linked or given other attributes, and for a directory that no name
    /// may leave: nor may one come to it, for what is staged in it could never leave it again.
    pub(super) fn unprotected(&self, ino: Ino) -> Result<(), Errno> {
        match self.inodes.protection(ino) {
            Protection::None => Ok(()),
            Protection::AppendOnly | Protection::Immutable => Err(Errno::PERM),
        }
    }

    /// Fails for somebody else's file whose set-id bits the job has taken by writing to it, and the storage has until the commit: nobody but the
    /// owner may link such a file (`protected_hardlinks`, proc_sys_fs(5)).
    pub(super) fn linkable(&self, ino: Ino, own_uid: u32) -> Result<(), Errno> {
        let inode = self.inodes.at(ino);
        let Some(seen) = inode.seen() else { return Ok(()) };
        let is_others = own_uid != 0 && seen.uid != own_uid;
        match is_others && has_set_id(seen.mode) && !has_set_id(inode.mode) {
            true => Err(Errno::PERM),
            false => Ok(()),
        }
    }

    /// Fails for an object that may not even be added to.
    pub(super) fn mutable(&self, ino: Ino) -> Result<(), Errno> {
        match self.inodes.protection(ino) {
            Protection::Immutable => Err(Errno::PERM),
            Protection::None | Protection::AppendOnly => Ok(()),
        }
    }

    /// Fails for an old file that is encrypted, of which what is written, and what is overwritten at the commit, would be staged in plain text.
    pub(super) fn stays_secret(&self, ino: Ino) -> Result<(), Errno> {
        match self.inodes.is_more_secret_than_the_job(ino) {
            true => Err(Errno::OPNOTSUPP),
            false => Ok(()),
        }
    }

    /// Fails for a range of a file that may not be written. Gives where it ends.
    pub(super) fn range(&self, ino: Ino, offset: u64, length: u64) -> Answer<u64> {
        self.mutable(ino)?;
        // The kernel knows nothing of such an attribute (chattr +a) behind FUSE, and lets all writes through.
        if self.inodes.protection(ino) == Protection::AppendOnly && offset != self.inodes.get(ino)?.size {
            return Err(Errno::PERM.into());
        }
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or(Errno::FBIG)?;
        self.inodes.known_file(ino)?;
        self.stays_secret(ino)?;
        Ok(end)
    }

    /// Fails for a file that can have no more names.
    pub(super) fn links(&self, ino: Ino) -> Answer<()> {
        /// So many can be had everywhere.
        const EVERYWHERE: u32 = 1000;
        let links = self.inodes.at(ino).nlink;
        if links < EVERYWHERE {
            return Ok(());
        }
        match self.traits.file_system_traits()?.links_max {
            Some(most) if links >= most => Err(Errno::MLINK.into()),
            _ => Ok(()),
        }
    }

    /// Fails for what the storage does not let be renamed: from one device to another, into a directory that is encrypted otherwise, or
    /// a directory of a lower layer of overlayfs.
    pub(super) fn moves(&self, ino: Ino, from: Ino, to: Ino) -> Answer<()> {
        if !self.inodes.is_let_in(ino, to) {
            return Err(Errno::XDEV.into());
        }
        let is_bound = self.inodes.is_bound(ino);
        if !is_bound && self.inodes.device(from) != self.inodes.device(to) {
            return Err(Errno::XDEV.into());
        }
        if is_bound && from != to {
            // It gets another `..`.
            self.writable(ino)?;
        }
        let inode = self.inodes.at(ino);
        let Some(dir) = inode.dir().ok().filter(|_| inode.is_old()) else {
            return Ok(());
        };
        match dir.moves {
            _ if !is_bound && !self.traits.file_system_traits()?.lower_dirs_stay => Ok(()),
            Some(true) => Ok(()),
            Some(false) => Err(Errno::XDEV.into()),
            None => Err(OpError::NeedsStorage(Fetch::Moves(ino))),
        }
    }

    /// Fails for what is in a read-only subvolume, as most snapshots are.
    pub(super) fn writable(&self, ino: Ino) -> Answer<()> {
        let Some(root) = self.inodes.bound_above(ino) else {
            return Ok(());
        };
        match self.inodes.dir_at(root).is_read_only {
            Some(false) => Ok(()),
            Some(true) => Err(Errno::ROFS.into()),
            None => Err(OpError::NeedsStorage(Fetch::Writable(root))),
        }
    }

    /// Fails for a file that is on another device than the directory that it is to have a name in, or not encrypted as that is.
    pub(super) fn links_to(&self, ino: Ino, dir: Ino) -> Result<(), Errno> {
        if !self.inodes.is_let_in(ino, dir) {
            return Err(Errno::XDEV);
        }
        let is_in = self
            .inodes
            .at(ino)
            .names()
            .first()
            .map(|key| self.inodes.device(key.dir));
        match is_in {
            Some(device) if device != self.inodes.device(dir) => Err(Errno::XDEV),
            _ => Ok(()),
        }
    }

    /// May `ino`, an entry of `parent`, take the name of `other`?
    pub(super) fn kinds(&self, ino: Ino, other: Ino, parent: Ino) -> Answer<()> {
        self.inodes.known(other)?;
        if self.inodes.is_within(parent, other) {
            return Err(Errno::NOTEMPTY.into());
        }
        match (self.inodes.at(ino).is_dir(), self.inodes.at(other).is_dir()) {
            (true, false) => Err(Errno::NOTDIR.into()),
            (false, true) => Err(Errno::ISDIR.into()),
            _ => Ok(()),
        }
    }

    /// A directory that is to be replaced is empty, and no subvolume.
    pub(super) fn replaceable(&self, other: Ino) -> Answer<()> {
        if !self.inodes.at(other).is_dir() {
            return Ok(());
        }
        if self.inodes.is_bound(other) {
            return Err(Errno::NOTEMPTY.into());
        }
        match self.inodes.check_empty(other) {
            Err(OpError::Errno(Errno::NOTEMPTY)) if self.traits.behaviour(Behaviour::FullExists)? => {
                Err(Errno::EXIST.into())
            }
            answer => answer,
        }
    }

    /// Does the storage have such owners and modes?
    pub(super) fn owner_and_mode(&self, ino: Ino, set: &SetAttr) -> Answer<()> {
        let inode = self.inodes.at(ino);
        let (uid, gid) = (set.uid.unwrap_or(inode.uid), set.gid.unwrap_or(inode.gid));
        if (uid, gid) != (inode.uid, inode.gid) {
            self.traits.able(&Ability::Owner(uid, gid))?;
        }
        match set.mode {
            Some(mode) if mode != inode.mode => self.traits.able(&Ability::Mode(mode)),
            _ => Ok(()),
        }
    }
}
