//! What was fetched from the storage enters the model.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use elbow_file::{DirEntry, Errno, FileType, Handle, Stat};

use super::{Body, EntryKey, Inode, Inodes, Old};
use crate::api::Ino;
use crate::model::attributes::drop_capability;
use crate::model::xattrs::{ACCESS_ACL, DEFAULT_ACL, apply_mode};
use crate::route::DirSide;
use crate::staging::is_staging_name;

/// One name of a listed directory, with its attributes if they were fetched.
#[derive(Clone, Debug)]
pub(crate) struct FoundEntry {
    pub(crate) entry: DirEntry,
    pub(crate) stat: Option<Stat>,
    /// It was looked for extended attributes, and has none.
    pub(crate) has_no_xattrs: bool,
}

/// What listing an old directory gave.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) handle: Handle,
    pub(crate) entries: Vec<FoundEntry>,
    /// [`Errno::NODATA`]: none; [`Errno::OPNOTSUPP`]: the storage has no ACLs.
    pub(crate) default_acl: Result<Vec<u8>, Errno>,
}

/// Extended attributes of an old object.
#[derive(Debug, Default)]
pub(crate) struct FoundXattrs {
    pub(crate) values: BTreeMap<OsString, Vec<u8>>,
    /// Names whose values may not be read.
    pub(crate) closed: BTreeSet<OsString>,
}

impl Inodes {
    pub(crate) fn install_listing(&mut self, ino: Ino, listing: Listing) {
        if self.dir_at(ino).complete {
            return;
        }
        for found in listing.entries {
            if !is_staging_name(&found.entry.name) {
                self.install_entry(ino, &found);
            }
        }
        self.dir_at_mut(ino).complete = true;
        self.install_default_acl(ino, listing.default_acl);
        self.keep_handle(DirSide::Own(ino), listing.handle);
    }

    /// A directory that may be entered and not be read.
    pub(crate) fn install_closed(&mut self, ino: Ino, handle: Handle, default_acl: Result<Vec<u8>, Errno>) {
        self.dir_at_mut(ino).closed = true;
        self.install_default_acl(ino, default_acl);
        self.keep_handle(DirSide::Own(ino), handle);
    }

    /// What a name in such a directory is, if it is there.
    pub(crate) fn install_name(&mut self, parent: Ino, name: &OsStr, stat: Option<Stat>) {
        let Ok(dir) = self.get_mut(parent).and_then(Inode::dir_mut) else {
            return;
        };
        if dir.entries.contains_key(name) || dir.gone.contains_key(name) {
            return; // somebody else was first
        }
        let Some(found) = stat else {
            dir.absent.insert(name.into());
            return;
        };
        let entry = DirEntry {
            name: name.to_owned(),
            kind: Some(found.kind),
            ino: found.ino,
        };
        let has_no_xattrs = false;
        self.install_entry(
            parent,
            &FoundEntry {
                entry,
                stat,
                has_no_xattrs,
            },
        );
    }

    fn install_default_acl(&mut self, ino: Ino, default_acl: Result<Vec<u8>, Errno>) {
        let acl = default_acl.ok().map(Arc::new);
        // The job may have set another one before it looked into the directory.
        let is_set = self.at(ino).dirty_xattrs.contains(OsStr::new(DEFAULT_ACL));
        let dir = self.dir_at_mut(ino);
        if !is_set {
            dir.default_acl = acl.clone();
        }
        dir.gives.default_acl = acl;
    }

    fn install_entry(&mut self, parent: Ino, found: &FoundEntry) {
        let key = EntryKey::new(parent, &found.entry.name);
        let is_one = |stat: &Stat| stat.kind != FileType::Dir && stat.nlink > 1 && !stat.breaks_links;
        let several = found.stat.filter(is_one);
        found.stat.iter().for_each(|stat| self.note(stat));
        let known = several.and_then(|stat| self.linked.get(&(stat.dev, stat.ino)).copied());
        let ino = known.unwrap_or_else(|| {
            let mut inode = found
                .stat
                .as_ref()
                .map_or_else(|| unknown(&found.entry), Inode::of_stat);
            inode.old = Some(Box::new(Old {
                seen: found.stat,
                names: Default::default(),
                closed_xattrs: Default::default(),
                replaced_xattrs: Default::default(),
            }));
            self.add(inode)
        });
        if let Some(stat) = several {
            self.linked.insert((stat.dev, stat.ino), ino);
        }
        let inode = self.at_mut(ino);
        if found.has_no_xattrs && inode.xattrs.is_none() {
            inode.xattrs = Some(BTreeMap::new().into());
        }
        let is_dir = inode.is_dir();
        inode.names.push(key.clone());
        inode.old.as_mut().expect("an old object").names.push(key.clone());
        let dir = self.dir_at_mut(parent);
        dir.subdirs += u32::from(is_dir);
        dir.entries.insert(key.name, ino);
    }

    /// Something was found on the storage.
    fn note(&mut self, stat: &Stat) {
        self.note_device(stat);
        self.note_encryption(stat);
    }

    /// Attributes of an object whose name was known before.
    pub(crate) fn install_attributes(&mut self, ino: Ino, stat: &Stat) {
        self.note(stat);
        let Ok(inode) = self.get_mut(ino) else { return };
        if inode.old.as_ref().is_none_or(|old| old.seen.is_some()) {
            return;
        }
        let fresh = Inode::of_stat(stat);
        let same_kind = inode.kind == fresh.kind;
        let (names, lookups, mut old) = (inode.names.clone(), inode.lookups, inode.old.take());
        if let Some(old) = &mut old {
            old.seen = Some(*stat);
        }
        if same_kind && inode.is_dir() {
            let body = std::mem::replace(&mut inode.body, Body::Special);
            *inode = Inode { body, ..fresh };
        } else {
            *inode = fresh;
        }
        inode.names = names;
        inode.lookups = lookups;
        inode.old = old;
    }

    pub(crate) fn install_target(&mut self, ino: Ino, target: OsString) {
        if let Ok(inode) = self.get_mut(ino)
            && let Body::Symlink(known) = &mut inode.body
        {
            known.get_or_insert(target);
        }
    }

    pub(crate) fn install_xattrs(&mut self, ino: Ino, FoundXattrs { values, closed }: FoundXattrs) {
        let Ok(inode) = self.get_mut(ino) else { return };
        if let Some(old) = inode.old.as_mut().filter(|_| inode.xattrs.is_none()) {
            old.closed_xattrs = closed.into();
        }
        let found = inode.xattrs.get_or_insert(values.into());
        // A mode that the job has set before the storage was asked counts for the list of rights that was found.
        if inode.dirty.mode
            && let Some(acl) = found.there().and_then(|found| found.get_mut(OsStr::new(ACCESS_ACL)))
        {
            apply_mode(acl, inode.mode);
        }
        if std::mem::take(&mut inode.lost_capability) {
            drop_capability(inode);
        }
    }
}

/// An object of which only the name, and maybe the kind, is known.
fn unknown(entry: &DirEntry) -> Inode {
    let time = elbow_file::Time::default();
    Inode::of_stat(&Stat {
        kind: entry.kind.unwrap_or(FileType::File),
        mode: 0,
        uid: 0,
        gid: 0,
        nlink: 1,
        size: 0,
        blocks: 0,
        rdev: 0,
        ino: entry.ino,
        dev: 0,
        atime: time,
        mtime: time,
        ctime: time,
        protection: elbow_file::Protection::None,
        is_encrypted: false,
        breaks_links: false,
    })
}
