//! One visit of a worker to one object: what is to be done on the storage.

use std::ffi::OsString;

use elbow_file::{Errno, FileSystemTraits, FileType, Handle, Stat, Time};
use serde::{Deserialize, Serialize};

use crate::api::Ino;
use crate::closed::OWNER_ALL;
use crate::model::{ACCESS_ACL, EntryKey, Fill, Name, Piece, apply_mode};
use crate::route::{Route, StorageName};

/// Extended attributes with their new values; `None`: it goes.
pub(crate) type NewXattrs = Vec<(OsString, Option<Vec<u8>>)>;

/// Attributes to set after a creation or on their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewAttrs {
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) mode: Option<u32>,
    pub(crate) xattrs: NewXattrs,
    pub(crate) times: Option<(Time, Time)>,
}

impl NewAttrs {
    /// The same for a directory that its owner can still work in: a list of rights sets the mode, too.
    pub(crate) fn open_to_owner(mut self) -> Self {
        self.mode = self.mode.map(|mode| mode | OWNER_ALL);
        let acl = self.xattrs.iter_mut().find(|(key, _)| key == ACCESS_ACL);
        if let (Some(mode), Some((_, Some(acl)))) = (self.mode, acl) {
            apply_mode(acl, mode);
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owner.is_none() && self.mode.is_none() && self.xattrs.is_empty() && self.times.is_none()
    }
}

/// What an object is created as.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Node {
    File,
    Dir,
    Symlink(OsString),
    Special(FileType, u64),
}

/// An old object that gets another name, as the job saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkedObject {
    pub(crate) kind: FileType,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
}

impl LinkedObject {
    pub(crate) fn of(seen: &Stat) -> Self {
        Self {
            kind: seen.kind,
            ino: seen.ino,
            size: seen.size,
            mtime: seen.mtime,
        }
    }

    /// It is that object, whatever was written to it since; where inode numbers say too little, one to which nothing was.
    pub(crate) fn is(&self, now: &Stat, traits: impl FnOnce() -> Result<FileSystemTraits, Errno>) -> bool {
        let (is_ino, is_content) = (self.ino == now.ino, (self.size, self.mtime) == (now.size, now.mtime));
        let is_one = match (is_ino, is_content) {
            (true, true) => true,
            (false, false) => false,
            (true, false) => traits().is_ok_and(|traits| traits.tells_inos_apart),
            (false, true) => !traits().is_ok_and(|traits| traits.keeps_inos),
        };
        is_one && self.kind == now.kind
    }
}

/// What a fill is written to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FillTarget<H = Handle> {
    Open(H),
    Named(StorageName<H>),
    /// The patch file of an old object, below the job's own directory.
    Patch(Route<H>, Name),
    /// The same, which is to be created.
    NewPatch(Route<H>, Name),
}

impl<H> FillTarget<H> {
    /// The same with something else for the handle.
    pub(crate) fn with<K, E>(&self, handle: &mut impl FnMut(&H) -> Result<K, E>) -> Result<FillTarget<K>, E> {
        Ok(match self {
            Self::Open(file) => FillTarget::Open(handle(file)?),
            Self::Named(at) => FillTarget::Named(at.with(handle)?),
            Self::Patch(route, name) => FillTarget::Patch(route.with(handle)?, name.clone()),
            Self::NewPatch(route, name) => FillTarget::NewPatch(route.with(handle)?, name.clone()),
        })
    }
}

/// One visit of a worker to one object. `H` stands for open objects, and `F` for what is written: here they are themselves, and on their way to
/// the far end of a connection ([`crate::far_orders`]) something that can be sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Action<H = Handle, F = Fill> {
    /// Make the staging directory of an old directory (for the root: the job's own directory).
    Stage {
        at: Route<H>,
        /// The mode to give it where what it inherits would shut us out.
        opened: Option<u32>,
    },
    /// Find out what becomes of the modes of what is created.
    ProbeModes {
        job: H,
        inherited: u32,
    },
    /// Find out whether attributes of a symbolic link are the link's own, or (sshfs) those of what it points to.
    ProbeLinks {
        job: H,
    },
    Create {
        at: StorageName<H>,
        node: Node,
        mode: u32,
        fill: F,
        attrs: NewAttrs,
        keep_open: bool,
    },
    Move {
        from: StorageName<H>,
        to: StorageName<H>,
        clobbers: Option<Ino>,
    },
    Link {
        from: StorageName<H>,
        to: StorageName<H>,
        /// What an old object is known by: somebody else may have put another one there.
        seen: Option<LinkedObject>,
    },
    /// Anything but a directory.
    Remove {
        at: StorageName<H>,
        /// Somebody has it open: it is opened first.
        keep_open: bool,
    },
    RemoveDir {
        at: StorageName<H>,
    },
    Fill {
        target: FillTarget<H>,
        fill: F,
        attrs: NewAttrs,
    },
    SetAttributes {
        at: StorageName<H>,
        attrs: NewAttrs,
    },
}

impl<H, F> Action<H, F> {
    /// The same with something else for each handle and for what is written.
    pub(crate) fn with<K, G, E>(
        &self,
        handle: &mut impl FnMut(&H) -> Result<K, E>,
        written: &mut impl FnMut(&F) -> Result<G, E>,
    ) -> Result<Action<K, G>, E> {
        Ok(match self {
            Self::Stage { at, opened } => Action::Stage {
                at: at.with(handle)?,
                opened: *opened,
            },
            Self::ProbeModes { job, inherited } => Action::ProbeModes {
                job: handle(job)?,
                inherited: *inherited,
            },
            Self::ProbeLinks { job } => Action::ProbeLinks { job: handle(job)? },
            Self::Create {
                at,
                node,
                mode,
                fill,
                attrs,
                keep_open,
            } => Action::Create {
                at: at.with(handle)?,
                node: node.clone(),
                mode: *mode,
                fill: written(fill)?,
                attrs: attrs.clone(),
                keep_open: *keep_open,
            },
            Self::Move { from, to, clobbers } => Action::Move {
                from: from.with(handle)?,
                to: to.with(handle)?,
                clobbers: *clobbers,
            },
            Self::Link { from, to, seen } => Action::Link {
                from: from.with(handle)?,
                to: to.with(handle)?,
                seen: *seen,
            },
            Self::Remove { at, keep_open } => Action::Remove {
                at: at.with(handle)?,
                keep_open: *keep_open,
            },
            Self::RemoveDir { at } => Action::RemoveDir { at: at.with(handle)? },
            Self::Fill { target, fill, attrs } => Action::Fill {
                target: target.with(handle)?,
                fill: written(fill)?,
                attrs: attrs.clone(),
            },
            Self::SetAttributes { at, attrs } => Action::SetAttributes {
                at: at.with(handle)?,
                attrs: attrs.clone(),
            },
        })
    }

    /// The ways that it opens directories on, in their order.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Route<H>> {
        let routes = match self {
            Self::Stage { at, .. } => [Some(at), None],
            Self::Create { at, .. }
            | Self::Remove { at, .. }
            | Self::RemoveDir { at }
            | Self::SetAttributes { at, .. }
            | Self::Fill {
                target: FillTarget::Named(at),
                ..
            } => [Some(&at.route), None],
            Self::Move { from, to, .. } | Self::Link { from, to, .. } => [Some(&from.route), Some(&to.route)],
            Self::ProbeModes { .. } | Self::ProbeLinks { .. } | Self::Fill { .. } => [None, None],
        };
        routes.into_iter().flatten()
    }

    /// The names on the storage that it comes from and goes to: nobody else may act on them meanwhile.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &EntryKey> {
        let names = match self {
            Self::Create { at, .. }
            | Self::Remove { at, .. }
            | Self::RemoveDir { at }
            | Self::SetAttributes { at, .. } => [Some(at), None],
            Self::Fill {
                target: FillTarget::Named(at),
                ..
            } => [Some(at), None],
            Self::Move { from, to, .. } | Self::Link { from, to, .. } => [Some(from), Some(to)],
            Self::Stage { .. } | Self::ProbeModes { .. } | Self::ProbeLinks { .. } | Self::Fill { .. } => [None, None],
        };
        names.into_iter().flatten().map(|at| &at.key)
    }

    /// Its name in an error.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Stage { .. } => "stage",
            Self::ProbeModes { .. } | Self::ProbeLinks { .. } => "probe",
            Self::Create { node: Node::File, .. } => "create",
            Self::Create { node: Node::Dir, .. } => "mkdir",
            Self::Create {
                node: Node::Symlink(_), ..
            } => "symlink",
            Self::Create {
                node: Node::Special(..),
                ..
            } => "mknod",
            Self::Move { .. } => "rename",
            Self::Link { .. } => "link",
            Self::RemoveDir { .. } => "rmdir",
            Self::Remove { .. } => "unlink",
            Self::Fill { .. } => "write",
            Self::SetAttributes { .. } => "setattr",
        }
    }
}

impl Action {
    /// The name of what the storage has refused, in an error.
    pub(crate) fn refused_operation(&self, errno: Errno) -> &'static str {
        let copies = |fill: &Fill| fill.pieces.iter().any(|(_, piece)| matches!(piece, Piece::Copy(_)));
        match self {
            _ if errno != Errno::STALE => self.operation(),
            Self::Create { fill, .. } | Self::Fill { fill, .. } if copies(fill) => {
                "copy what somebody else has changed since to"
            }
            Self::Link { .. } => "link what somebody else has replaced since to",
            _ => self.operation(),
        }
    }
}
