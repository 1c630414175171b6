//! One visit of a worker to one object: what is to be done on the storage.

use std::ffi::OsString;

use elbow_file::{FileType, Handle, Time};

use crate::api::Ino;
use crate::closed::OWNER_ALL;
use crate::model::{ACCESS_ACL, EntryKey, Fill, Name, apply_mode};
use crate::route::{Route, StorageName};

/// Extended attributes with their new values; `None`: it goes.
pub(crate) type NewXattrs = Vec<(OsString, Option<Vec<u8>>)>;

/// Attributes to set after a creation or on their own.
#[derive(Clone, Debug, Default)]
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
#[derive(Clone, Debug)]
pub(crate) enum Node {
    File,
    Dir,
    Symlink(OsString),
    Special(FileType, u64),
}

/// What a fill is written to.
#[derive(Clone, Debug)]
pub(crate) enum FillTarget {
    Open(Handle),
    Named(StorageName),
    /// The patch file of an old object, in the job's own directory.
    Patch(Route, Name),
    /// The same, which is to be created.
    NewPatch(Route, Name),
}

/// One visit of a worker to one object.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Make the staging directory of an old directory (for the root: the job's own directory).
    Stage {
        at: Route,
        /// The mode to give it where what it inherits would shut us out.
        opened: Option<u32>,
    },
    /// Find out what becomes of the modes of what is created.
    ProbeModes {
        job: Handle,
        inherited: u32,
    },
    /// Find out whether attributes of a symbolic link are the link's own, or (sshfs) those of what it points to.
    ProbeLinks {
        job: Handle,
    },
    Create {
        at: StorageName,
        node: Node,
        mode: u32,
        fill: Fill,
        attrs: NewAttrs,
        keep_open: bool,
    },
    Move {
        from: StorageName,
        to: StorageName,
        clobbers: Option<Ino>,
    },
    Link {
        from: StorageName,
        to: StorageName,
    },
    /// Anything but a directory.
    Remove {
        at: StorageName,
        /// Somebody has it open: it is opened first.
        keep_open: bool,
    },
    RemoveDir {
        at: StorageName,
    },
    Fill {
        target: FillTarget,
        fill: Fill,
        attrs: NewAttrs,
    },
    SetAttributes {
        at: StorageName,
        attrs: NewAttrs,
    },
}

impl Action {
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
            Self::Move { from, to, .. } | Self::Link { from, to } => [Some(from), Some(to)],
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
