//! Answers in the form in which the kernel wants them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::{Errno, Space};
use elbow_job::{Attr, Fetch, Numbered, OpError};
use fuser::{
    Generation, INodeNo, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyStatfs, ReplyXattr,
};

use crate::convert;
use crate::dispatch::FrontCore;
use crate::open_dirs::{Item, Snapshot};

/// How long the kernel may remember: until the mount ends.
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 30);

pub(crate) fn entry(core: &FrontCore, reply: ReplyEntry, answer: Result<Attr, Errno>) {
    match answer {
        Ok(attr) => reply.entry(&remembered(&attr), &core.nodes.entry(&attr), Generation(0)),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

/// How long the kernel may remember the attributes of an object, and its name with them.
pub(crate) fn remembered(attr: &Attr) -> Duration {
    match attr.number {
        Numbered::Alone => FOREVER,
        Numbered::Shared | Numbered::Parted => Duration::ZERO,
    }
}

pub(crate) fn attr(core: &FrontCore, reply: ReplyAttr, answer: Result<Attr, Errno>) {
    match answer {
        Ok(attr) => reply.attr(&remembered(&attr), &core.nodes.shown(&attr)),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn data(reply: ReplyData, answer: Result<Vec<u8>, Errno>) {
    match answer {
        Ok(data) => reply.data(&data),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

/// The two-step protocol of the xattr calls: first the size is asked for, then the bytes.
pub(crate) fn xattr(reply: ReplyXattr, size: u32, answer: Result<Vec<u8>, Errno>) {
    match answer {
        Err(errno) => reply.error(convert::errno(errno)),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
    }
}

pub(crate) fn space(reply: ReplyStatfs, space: &Space) {
    let fragment = u32::try_from(space.fragment_bytes).unwrap_or(u32::MAX);
    reply.statfs(
        space.blocks,
        space.blocks_free,
        space.blocks_available,
        space.files,
        space.files_free,
        fragment,
        space.name_max,
        fragment,
    );
}

pub(crate) fn names(core: &FrontCore, mut reply: ReplyDirectory, offset: u64, snapshot: &Snapshot) {
    for (next, item) in snapshot.from(offset) {
        let number = match item {
            Item::Dot(_, number) => INodeNo(number),
            Item::Name(listed) => core.nodes.node(listed.ino, listed.visible_ino),
        };
        if reply.add(number, next, convert::file_type(item.kind()), item.name()) {
            break;
        }
    }
    reply.ok();
}

/// Names with attributes. Each name handed over counts as a lookup; one that did not fit is taken back.
pub(crate) fn names_plus(core: &Arc<FrontCore>, mut reply: ReplyDirectoryPlus, offset: u64, snapshot: &Arc<Snapshot>) {
    let mut empty = true;
    for (next, item) in snapshot.from(offset) {
        let (attr, time) = match item {
            Item::Dot(_, number) => {
                let ino = INodeNo(number);
                (fuser::FileAttr { ino, ..dot_attr() }, FOREVER)
            }
            Item::Name(listed) => match core.job.lookup(snapshot.dir, &listed.name) {
                Ok(attr) => (core.nodes.entry(&attr), remembered(&attr)),
                Err(OpError::Errno(_)) => continue, // gone since the snapshot
                Err(OpError::NeedsStorage(fetch)) if empty => {
                    return fetch_then_names_plus(core, fetch, reply, offset, snapshot.clone());
                }
                Err(OpError::NeedsStorage(_)) => break, // what is there is sent; the kernel asks for the rest
            },
        };
        if reply.add(attr.ino, next, item.name(), &time, &attr, Generation(0)) {
            if let Item::Name(_) = item {
                core.job.forget(core.nodes.ino(attr.ino), 1);
            }
            break;
        }
        empty = false;
    }
    reply.ok();
}

fn fetch_then_names_plus(
    core: &Arc<FrontCore>,
    fetch: Fetch,
    reply: ReplyDirectoryPlus,
    offset: u64,
    snapshot: Arc<Snapshot>,
) {
    let on_pool = core.clone();
    core.pool(&fetch).run(move || match on_pool.job.fetch(&fetch) {
        Ok(()) => names_plus(&on_pool, reply, offset, &snapshot),
        Err(errno) => reply.error(convert::errno(errno)),
    });
}

/// The kernel takes only the number and the kind of `.` and `..`.
fn dot_attr() -> fuser::FileAttr {
    fuser::FileAttr {
        kind: fuser::FileType::Directory,
        ..convert::no_entry()
    }
}

pub(crate) fn empty(reply: ReplyEmpty, answer: Result<(), Errno>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

pub(crate) fn position(reply: ReplyLseek, answer: Result<u64, Errno>) {
    match answer {
        Ok(found) => reply.offset(found as i64),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

/// Attribute names as listxattr(2) gives them: each ended by a zero byte. Those that only root may read are not told to others (xattr(7)); of values
/// the kernel itself takes care.
pub(crate) fn name_list(names: Vec<OsString>, is_root: bool) -> Vec<u8> {
    names
        .into_iter()
        .filter(|name| is_root || !name.as_bytes().starts_with(b"trusted."))
        .flat_map(|name| [name.as_bytes(), b"\0"].concat())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes_end_with_zero_bytes() {
        assert_eq!(
            name_list(vec!["user.a".into(), "user.b".into()], true),
            b"user.a\0user.b\0"
        );
        assert!(name_list(Vec::new(), true).is_empty());
    }

    /// Everybody was told the names of those that are root's.
    #[test]
    fn only_root_is_told_of_trusted_attributes() {
        let names: Vec<OsString> = vec!["trusted.a".into(), "user.trusted.b".into()];
        assert_eq!(name_list(names.clone(), true), b"trusted.a\0user.trusted.b\0");
        assert_eq!(name_list(names, false), b"user.trusted.b\0");
    }
}
