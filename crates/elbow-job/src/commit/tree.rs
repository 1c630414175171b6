//! Paths below the directory of a job, resolved one open directory at a time and remembered.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use elbow_file::{Errno, Handle, Storage};
use parking_lot::Mutex;

/// Directories that are remembered, and so kept open.
const KNOWN_MAX: usize = 256;

/// The directory of a job as commit and recovery see it.
pub(crate) struct Tree<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) root: Handle,
    pub(crate) threads: usize,
    known: Mutex<HashMap<PathBuf, Handle>>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, root: Handle, threads: usize) -> Self {
        Self {
            storage,
            root,
            threads,
            known: Mutex::default(),
        }
    }

    /// Opens a directory by path.
    pub(crate) fn dir(&self, path: &Path) -> Result<Handle, Errno> {
        let Some((above, name)) = split(path) else {
            return Ok(self.root.clone());
        };
        if let Some(handle) = self.known.lock().get(path) {
            return Ok(handle.clone());
        }
        let handle = self.storage.open_dir(&self.dir(above)?, name)?;
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(path.to_owned(), handle.clone());
        Ok(handle)
    }

    /// The directory of a path and the name in it; the root is `.` of itself.
    pub(crate) fn spot(&self, path: &Path) -> Result<(Handle, OsString), Errno> {
        match split(path) {
            Some((above, name)) => Ok((self.dir(above)?, name.to_owned())),
            None => Ok((self.root.clone(), OsString::from("."))),
        }
    }

    /// Directories have moved: paths mean something else now.
    pub(crate) fn forget(&self) {
        self.known.lock().clear();
    }
}

fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    Some((path.parent()?, path.file_name()?))
}
