//! What an object inherits from the directory that it is made in: a group by set-group-id, permissions by a default ACL.
//!
//! Twice, because it is fixed when the command makes an object, by what its directory is in the job at that time; and the
//! storage applies the same rules when the object is created there, by what the directory of its container is on the storage
//! then. The two differ when an object was moved before it was created, and when rights of a directory were changed.
//!
//! Source: acl(5), "Object creation and default ACLs"; inode(7) on set-group-id.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use elbow_file::{FileType, Stat};

use super::mode::SETGID;
use super::xattrs::{ACCESS_ACL, DEFAULT_ACL, apply_mode, inherited_acl, inherited_mode};

/// What a directory gives to new entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inheritance {
    pub(crate) default_acl: Option<Arc<Vec<u8>>>,
    /// The group, if it has set-group-id.
    pub(crate) group: Option<u32>,
}

/// What a new object has by what it was asked to be and what it inherits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Inherited {
    pub(crate) mode: u32,
    pub(crate) default_acl: Option<Arc<Vec<u8>>>,
    access_acl: Option<Vec<u8>>,
}

impl Inheritance {
    /// What an object (not a symbolic link) has that is created with these permission bits.
    pub(crate) fn inherited(&self, asked: u32, is_dir: bool) -> Inherited {
        let acl = self.default_acl.as_ref();
        let mode = acl.map_or(asked, |acl| inherited_mode(asked, acl));
        let setgid = if is_dir && self.group.is_some() { SETGID } else { 0 };
        Inherited {
            mode: mode | setgid,
            default_acl: acl.filter(|_| is_dir).cloned(),
            access_acl: acl.and_then(|acl| inherited_acl(acl, mode)),
        }
    }
}

impl Inherited {
    /// The access ACL after a chmod.
    pub(crate) fn access_acl_with(&self, mode: u32) -> Option<Vec<u8>> {
        let mut acl = self.access_acl.clone()?;
        apply_mode(&mut acl, mode);
        Some(acl)
    }

    /// The ACLs as extended attributes.
    pub(crate) fn xattrs(&self) -> BTreeMap<OsString, Vec<u8>> {
        let access = self.access_acl.clone().map(|acl| (OsString::from(ACCESS_ACL), acl));
        let default = self
            .default_acl
            .as_ref()
            .map(|acl| (OsString::from(DEFAULT_ACL), acl.to_vec()));
        access.into_iter().chain(default).collect()
    }
}

/// The group that a directory gives by set-group-id.
pub(super) fn group_given(stat: &Stat) -> Option<u32> {
    (stat.kind == FileType::Dir && stat.mode & SETGID != 0).then_some(stat.gid)
}
