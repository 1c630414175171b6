//! A name of an object: in which directory, and which.

use std::ffi::OsStr;

use serde::{Deserialize, Serialize};

use super::config::Name;
use crate::api::Ino;

/// A name in a directory of the model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct EntryKey {
    pub(crate) dir: Ino,
    pub(crate) name: Name,
}

impl EntryKey {
    pub(crate) fn new(dir: Ino, name: &OsStr) -> Self {
        Self {
            dir,
            name: Name::from(name),
        }
    }

    pub(crate) fn is(&self, dir: Ino, name: &OsStr) -> bool {
        self.dir == dir && *self.name == *name
    }
}
