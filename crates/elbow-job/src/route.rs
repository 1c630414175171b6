//! The way to something on the storage.
//!
//! A way begins at the nearest directory that is open: so it stays right while directories above are moved, and is
//! short. Where things are is found in `routes`.

use std::ffi::OsStr;

use elbow_file::Handle;

use crate::api::Ino;
use crate::model::{EntryKey, Name};

/// One of the two directories that a directory of the model can have on the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirSide {
    /// The directory itself.
    Own(Ino),
    /// The staging directory of an old one.
    Staging(Ino),
}

impl DirSide {
    /// Whose it is.
    pub(crate) fn dir(self) -> Ino {
        let (Self::Own(dir) | Self::Staging(dir)) = self;
        dir
    }
}

/// The way to a directory on the storage: an open ancestor and the names from there.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) base: Handle,
    pub(crate) names: Vec<Name>,
    /// Who keeps the descriptor once it is open.
    pub(crate) owner: DirSide,
}

/// A name on the storage.
#[derive(Clone, Debug)]
pub(crate) struct StorageName {
    pub(crate) route: Route,
    pub(crate) key: EntryKey,
    /// A name in an old directory itself (`--publish eager`): a roll back has to know it.
    pub(crate) visible: bool,
}

impl Route {
    pub(crate) fn join(mut self, name: Name, owner: DirSide) -> Self {
        self.names.push(name);
        self.owner = owner;
        self
    }
}

/// The name of an old object's patch file in the job's own directory.
pub(crate) fn patch_name(ino: Ino) -> Name {
    Name::from(OsStr::new(&format!("p{}", ino.0)))
}
