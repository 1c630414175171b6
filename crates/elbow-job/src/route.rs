//! The way to something on the storage.
//!
//! A way begins at the nearest directory that is open: so it stays right while directories above are moved, and is
//! short. Where things are is found in `routes`.

use elbow_file::{Errno, Handle, Storage};
use serde::{Deserialize, Serialize};

use crate::api::Ino;
use crate::model::{EntryKey, Name};

/// One of the two directories that a directory of the model can have on the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Route<H = Handle> {
    pub(crate) base: H,
    pub(crate) names: Vec<Name>,
    /// Who keeps the descriptor once it is open.
    pub(crate) owner: DirSide,
}

/// A name on the storage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StorageName<H = Handle> {
    pub(crate) route: Route<H>,
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

impl<H> Route<H> {
    /// The same with something else for the handle.
    pub(crate) fn with<K, E>(&self, handle: &mut impl FnMut(&H) -> Result<K, E>) -> Result<Route<K>, E> {
        Ok(Route {
            base: handle(&self.base)?,
            names: self.names.clone(),
            owner: self.owner,
        })
    }
}

impl<H> StorageName<H> {
    /// The same with something else for the handle.
    pub(crate) fn with<K, E>(&self, handle: &mut impl FnMut(&H) -> Result<K, E>) -> Result<StorageName<K>, E> {
        Ok(StorageName {
            route: self.route.with(handle)?,
            key: self.key.clone(),
            visible: self.visible,
        })
    }
}

/// Opens the directory that a way leads to.
pub(crate) fn open_route(storage: &dyn Storage, route: &Route) -> Result<Handle, Errno> {
    route
        .names
        .iter()
        .try_fold(route.base.clone(), |at, name| storage.open_dir(&at, name))
}
