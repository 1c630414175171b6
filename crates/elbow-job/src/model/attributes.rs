//! Attributes: mode, owner, times, extended attributes, and what new objects inherit from a default ACL.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use elbow_file::{Errno, Time};

use super::boxed_unless_empty::BoxedUnlessEmpty;
use super::mode::{GROUP_EXECUTE, SETGID, SETUID};
use super::xattrs::{ACCESS_ACL, CAPABILITY, DEFAULT_ACL, acl_is_mode, acl_mode, apply_mode};
use super::{Body, Inode, Inodes, Model, Work};
use crate::abilities::{Ability, xattr_bytes};
use crate::api::{Answer, Attr, Fetch, Ino, OpError, SetAttr, SetIds, SetTime, XattrMode};
use crate::behaviours::Behaviour;

/// Longest name and value of an extended attribute (`XATTR_NAME_MAX`, `XATTR_SIZE_MAX`).
const XATTR_NAME_MAX_BYTES: usize = 255;
const XATTR_VALUE_MAX_BYTES: usize = 65_536;

/// Takes bits from a mode.
pub(super) fn take(inode: &mut Inode, bits: u32) {
    if inode.mode & bits != 0 {
        inode.mode &= !bits;
        inode.dirty.mode = true;
    }
}

/// A write, a change of size and a change of owner take file capabilities away, whoever makes it.
pub(super) fn drop_capability(inode: &mut Inode) {
    let Some(xattrs) = &mut inode.xattrs else {
        // They were not fetched, and when they are, the storage may still have it.
        inode.lost_capability = true;
        return;
    };
    let removed = xattrs.there().and_then(|xattrs| xattrs.remove(OsStr::new(CAPABILITY)));
    if removed.is_some() {
        inode.dirty_xattrs.insert(OsString::from(CAPABILITY));
    }
}

impl Inode {
    /// chmod changes the access ACL too: what was fetched of it is no longer true.
    fn refresh_access_acl(&mut self) {
        let xattrs = self.xattrs.as_mut().and_then(BoxedUnlessEmpty::there);
        if let Some(acl) = xattrs.and_then(|xattrs| xattrs.get_mut(OsStr::new(ACCESS_ACL))) {
            apply_mode(acl, self.mode);
        }
    }

    /// Whether an old object has an extended attribute whose value may not be read.
    fn is_closed_xattr(&self, key: &OsStr) -> bool {
        let old = self.old.as_ref();
        old.is_some_and(|old| old.closed_xattrs.contains(key))
    }

    /// An ACL says more than an attribute: what new entries inherit, and the mode.
    fn note_acl(&mut self, key: &OsStr, value: Option<&[u8]>) {
        if key == DEFAULT_ACL
            && let Ok(dir) = self.dir_mut()
        {
            dir.default_acl = value.map(|acl| std::sync::Arc::new(acl.to_vec()));
        }
        if key == ACCESS_ACL
            && let Some(mode) = value.and_then(acl_mode)
        {
            self.mode = self.mode & !0o777 | mode;
            // The ACL may be gone before it is stored, and the mode that it gave stays.
            self.dirty.mode = true;
        }
    }
}

impl Inodes {
    pub(crate) fn readlink(&self, ino: Ino) -> Answer<OsString> {
        match &self.get(ino)?.body {
            Body::Symlink(Some(target)) => Ok(target.clone()),
            Body::Symlink(None) => Err(OpError::NeedsStorage(Fetch::Target(ino))),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn xattrs(&self, ino: Ino) -> Answer<&BTreeMap<OsString, Vec<u8>>> {
        self.get(ino)?
            .xattrs
            .as_deref()
            .ok_or(OpError::NeedsStorage(Fetch::Xattrs(ino)))
    }
}

impl Model {
    /// The bits of its mode that a change takes from an object.
    pub(crate) fn taken(&self, ino: Ino, set_ids: SetIds) -> Answer<u32> {
        let inode = self.inodes.get(ino)?;
        // Of a directory the bits mean something else, and stay.
        if set_ids == SetIds::Stay || inode.is_dir() {
            return Ok(0);
        }
        let has_both = inode.mode & (SETGID | GROUP_EXECUTE) == SETGID | GROUP_EXECUTE;
        let is_left = inode.mode & SETGID == 0 || has_both || set_ids == SetIds::Go;
        let takes_group = has_both || !is_left && self.traits.file_system_traits()?.strangers_take_set_group_id;
        Ok(if takes_group { SETUID | SETGID } else { SETUID })
    }

    /// Takes bits from a mode.
    pub(crate) fn take(&mut self, ino: Ino, bits: u32) {
        take(self.inodes.at_mut(ino), bits);
    }

    pub(crate) fn set_attr(&mut self, ino: Ino, set: &SetAttr) -> Answer<Attr> {
        self.may_modify()?;
        self.attr(ino)?;
        self.checks().writable(ino)?;
        self.checks().unprotected(ino)?;
        self.checks().owner_and_mode(ino, set)?;
        let taken = self.taken(ino, set.set_ids)?;
        // Whether a truncate(2) to the same size sets times differs between file systems; ftruncate(2) always does.
        let stays = set.by_name && set.size == Some(self.inodes.get(ino)?.size) && !self.truncate_sets(ino)?;
        let size_alone = SetAttr {
            size: set.size,
            by_name: true,
            ..SetAttr::default()
        };
        let is_nothing = stays && *set == size_alone;
        if let Some(size) = set.size {
            self.set_size(ino, size)?;
        }
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        if set.size.is_some() {
            drop_capability(inode);
        }
        if set.size.is_some() && !stays {
            inode.mtime = now;
            inode.dirty.times = true;
        }
        set_owner(inode, set);
        if let Some(mode) = set.mode {
            inode.dirty.mode |= inode.mode != mode & 0o7777;
            inode.mode = mode & 0o7777;
        }
        take(inode, taken);
        set_times(inode, set, now);
        if !is_nothing {
            inode.ctime = now;
        }
        if set.mode.is_some() {
            inode.refresh_access_acl();
        }
        self.scheduler().touched(ino);
        self.attr(ino)
    }

    /// Does truncate(2) set the times of a file whose size stays?
    fn truncate_sets(&self, ino: Ino) -> Answer<bool> {
        let has_data = self.attr(ino)?.blocks > 0;
        self.traits.behaviour(Behaviour::TruncateSets { has_data })
    }

    pub(crate) fn get_xattr(&self, ino: Ino, key: &OsStr) -> Answer<Vec<u8>> {
        // The kernel asks for ACLs on every walk to what is somebody else's: no fetch for what cannot be there. Of EOPNOTSUPP it would make an
        // error of the walk (fs/fuse/acl.c).
        if self.traits.has_no_acls() && (key == ACCESS_ACL || key == DEFAULT_ACL) {
            return Err(Errno::NODATA.into());
        }
        check_key(key)?;
        match self.inodes.xattrs(ino)?.get(key) {
            Some(value) => Ok(value.clone()),
            None if self.inodes.at(ino).is_closed_xattr(key) => Err(Errno::ACCESS.into()),
            None => Err(Errno::NODATA.into()),
        }
    }

    pub(crate) fn list_xattrs(&self, ino: Ino) -> Answer<Vec<OsString>> {
        let open = self.inodes.xattrs(ino)?.keys();
        // listxattr(2) tells names that getxattr(2) refuses.
        let closed = self.inodes.at(ino).old.iter().flat_map(|old| old.closed_xattrs.iter());
        Ok(open.chain(closed).cloned().collect())
    }

    pub(crate) fn set_xattr(&mut self, ino: Ino, key: &OsStr, value: &[u8], mode: XattrMode) -> Answer<()> {
        self.may_modify()?;
        check_key(key)?;
        self.checks().writable(ino)?;
        self.checks().unprotected(ino)?;
        if value.len() > XATTR_VALUE_MAX_BYTES {
            return Err(Errno::TOOBIG.into());
        }
        let is_acl = key == ACCESS_ACL || key == DEFAULT_ACL;
        if self.traits.has_no_xattrs() || self.traits.has_no_acls() && is_acl {
            return Err(Errno::OPNOTSUPP.into());
        }
        self.traits.able(&if is_acl {
            Ability::Acl
        } else {
            Ability::Xattr(namespace(key))
        })?;
        let xattrs = self.inodes.xattrs(ino)?;
        match (
            mode,
            xattrs.contains_key(key) || self.inodes.at(ino).is_closed_xattr(key),
        ) {
            (XattrMode::Create, true) => return Err(Errno::EXIST.into()),
            (XattrMode::Replace, false) => return Err(Errno::NODATA.into()),
            _ => {}
        }
        let others = xattrs.iter().filter(|(other, _)| *other != key);
        let all = others
            .map(|(other, value)| (other.as_os_str(), value.len()))
            .chain([(key, value.len())]);
        self.traits.able(&Ability::XattrBytes(xattr_bytes(all)))?;
        // An ACL that says no more than a mode is a mode: that is how file systems keep it.
        let is_mode = key == ACCESS_ACL && acl_is_mode(value);
        self.change_xattr(ino, key, Some(value).filter(|_| !is_mode));
        self.inodes.at_mut(ino).note_acl(key, Some(value));
        Ok(())
    }

    pub(crate) fn remove_xattr(&mut self, ino: Ino, key: &OsStr) -> Answer<()> {
        self.may_modify()?;
        check_key(key)?;
        self.checks().writable(ino)?;
        self.checks().unprotected(ino)?;
        if !self.inodes.xattrs(ino)?.contains_key(key) && !self.inodes.at(ino).is_closed_xattr(key) {
            // File systems take no ACL for a removed one.
            let is_acl = key == ACCESS_ACL || key == DEFAULT_ACL;
            return if is_acl { Ok(()) } else { Err(Errno::NODATA.into()) };
        }
        self.change_xattr(ino, key, None);
        self.inodes.at_mut(ino).note_acl(key, None);
        Ok(())
    }

    fn change_xattr(&mut self, ino: Ino, key: &OsStr, value: Option<&[u8]>) {
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        let xattrs = inode.xattrs.get_or_insert_default();
        let was = match value {
            Some(value) => xattrs.insert(key.to_owned(), value.to_vec()),
            None => xattrs.remove(key),
        };
        if let Some(old) = &mut inode.old {
            // What the job has set itself it can read.
            let was_closed = old.closed_xattrs.remove(key);
            // A mode that the job has set before has changed what is known of the list.
            let is_unknown = was_closed || key == ACCESS_ACL && inode.dirty.mode;
            if !is_unknown && !inode.dirty_xattrs.contains(key) {
                old.replaced_xattrs.insert(key.to_owned(), was);
            }
        }
        inode.dirty_xattrs.insert(key.to_owned());
        inode.ctime = now;
        self.scheduler().touched(ino);
    }

    /// Opens an object: `truncate` as O_TRUNC does.
    pub(crate) fn open(&mut self, ino: Ino, write: bool, truncate: bool) -> Answer<()> {
        self.attr(ino)?;
        if write || truncate {
            self.may_modify()?;
            self.checks().writable(ino)?;
            self.checks().mutable(ino)?;
        }
        if truncate {
            let set = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            self.set_attr(ino, &set)?;
        }
        let inode = self.inodes.get_mut(ino)?;
        inode.opens += 1;
        inode.write_opens += u32::from(write);
        Ok(())
    }

    pub(crate) fn release(&mut self, ino: Ino, write: bool) {
        let Ok(inode) = self.inodes.get_mut(ino) else { return };
        inode.opens = inode.opens.saturating_sub(1);
        inode.write_opens = inode.write_opens.saturating_sub(u32::from(write));
        let closed = inode.opens == 0;
        // A worker may be using the descriptors at this moment.
        if closed && inode.work != Work::Running {
            self.close_content(ino);
        }
        if closed {
            self.scheduler().queue(ino);
        }
    }
}

/// The namespace of a name that was checked.
fn namespace(key: &OsStr) -> &'static str {
    let is_in = |namespace: &&str| key.as_bytes().starts_with(namespace.as_bytes());
    ["user", "trusted", "security"]
        .into_iter()
        .find(is_in)
        .unwrap_or("user")
}

/// A name is a known namespace and something in it (xattr(7)).
fn check_key(key: &OsStr) -> Result<(), Errno> {
    const NAMESPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let bytes = key.as_bytes();
    if bytes.is_empty() || bytes.len() > XATTR_NAME_MAX_BYTES {
        // As the kernel's own check has it (setxattr(2)).
        return Err(Errno::RANGE);
    }
    if NAMESPACES.contains(&bytes) {
        return Err(Errno::INVAL);
    }
    let known = NAMESPACES.iter().any(|namespace| bytes.starts_with(namespace));
    if known || key == ACCESS_ACL || key == DEFAULT_ACL {
        Ok(())
    } else {
        Err(Errno::OPNOTSUPP)
    }
}

fn set_owner(inode: &mut Inode, set: &SetAttr) {
    if set.uid.is_none() && set.gid.is_none() {
        return;
    }
    let (uid, gid) = (set.uid.unwrap_or(inode.uid), set.gid.unwrap_or(inode.gid));
    inode.dirty.owner |= (uid, gid) != (inode.uid, inode.gid);
    (inode.uid, inode.gid) = (uid, gid);
    // Directories have none.
    if !inode.is_dir() {
        drop_capability(inode);
    }
}

fn set_times(inode: &mut Inode, set: &SetAttr, now: Time) {
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::At(time) => time,
    };
    if let Some(atime) = set.atime {
        inode.atime = time(atime);
        inode.dirty.times = true;
    }
    if let Some(mtime) = set.mtime {
        inode.mtime = time(mtime);
        inode.dirty.times = true;
    }
}
