//! Paths below the directory of a job, resolved one open directory at a time and remembered.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use elbow_file::{Errno, Handle, Storage};
use parking_lot::Mutex;

use crate::liveness::Lock;
use crate::ownership::OwnDirectory;

/// Directories that are remembered, and so kept open.
const KNOWN_MAX: usize = 256;

/// What is found where the job had a staging directory.
pub(crate) enum Part {
    Ours(Handle),
    /// Somebody else has put it there.
    OfOthers,
    None,
}

/// The directory of a job as commit and recovery see it.
pub(crate) struct Tree<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) root: Handle,
    pub(crate) threads: usize,
    known: Mutex<HashMap<PathBuf, Handle>>,
    /// The job's own directory, if it is known, and what is known of it.
    job: Option<Handle>,
    own: OnceLock<OwnDirectory>,
    /// Held by whoever works on the job.
    lock: Option<&'a Lock>,
    /// Directories beyond other mounts than this are not entered.
    stays_on: Option<u64>,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(storage: &'a dyn Storage, root: Handle, threads: usize) -> Self {
        Self {
            storage,
            root,
            threads,
            known: Mutex::default(),
            job: None,
            own: OnceLock::new(),
            lock: None,
            stays_on: None,
        }
    }

    /// Of a job whose own directory this is, and this the lock of its manifest.
    pub(crate) fn of_job(mut self, job: Option<Handle>, lock: &'a Lock) -> Self {
        (self.job, self.lock) = (job, Some(lock));
        self
    }

    /// Goes beyond no mount point of this mount: EXDEV.
    pub(crate) fn staying_on(mut self, mount: Option<u64>) -> Self {
        self.stays_on = mount;
        self
    }

    /// The job's own directory, if it is there. By its name it could be another one by now.
    pub(crate) fn job_dir(&self, name: &OsStr) -> Result<Handle, Errno> {
        match &self.job {
            Some(job) => Ok(job.clone()),
            None => self.storage.open_dir(&self.root, name),
        }
    }

    /// Gives up the lock of the manifest, which is about to be removed.
    pub(crate) fn give_up_lock(&self) {
        if let Some(lock) = self.lock {
            lock.give_up(self.storage);
        }
    }

    /// The staging directory of the job in a directory below its own.
    ///
    /// # Errors
    /// ENOENT if there is none; EPERM for one that somebody else has put there.
    pub(crate) fn part(&self, above: &Path, name: &OsStr) -> Result<Handle, Errno> {
        let path = above.join(name);
        if let Some(handle) = self.known.lock().get(&path) {
            return Ok(handle.clone());
        }
        match self.find_part(&self.dir(above)?, name)? {
            Part::Ours(handle) => {
                self.know(path, &handle);
                Ok(handle)
            }
            Part::OfOthers => Err(Errno::PERM),
            Part::None => Err(Errno::NOENT),
        }
    }

    /// The same of an open directory, where that there is none of ours is no error.
    pub(crate) fn find_part(&self, above: &Handle, name: &OsStr) -> Result<Part, Errno> {
        let part = match self.open_dir(above, name) {
            Err(Errno::NOENT) => return Ok(Part::None),
            // A link or a file, where a directory was.
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Part::OfOthers),
            other => other?,
        };
        Ok(if self.has_made(&part)? {
            Part::Ours(part)
        } else {
            Part::OfOthers
        })
    }

    /// The job's own directory and what it is like, if it is known.
    pub(crate) fn own(&self) -> Result<Option<&OwnDirectory>, Errno> {
        let Some(job) = &self.job else { return Ok(None) };
        if self.own.get().is_none() {
            let own = OwnDirectory::of(self.storage, job.clone())?;
            self.own.get_or_init(|| own);
        }
        Ok(self.own.get())
    }

    fn has_made(&self, part: &Handle) -> Result<bool, Errno> {
        match self.own()? {
            Some(own) => Ok(own.made(&self.storage.stat_handle(part)?)),
            None => Ok(true),
        }
    }

    fn open_dir(&self, above: &Handle, name: &OsStr) -> Result<Handle, Errno> {
        let handle = self.storage.open_dir(above, name)?;
        match self.stays_on {
            Some(mount) if self.storage.identity(&handle)?.mount != mount => Err(Errno::XDEV),
            _ => Ok(handle),
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
        let handle = self.open_dir(&self.dir(above)?, name)?;
        self.know(path.to_owned(), &handle);
        Ok(handle)
    }

    fn know(&self, path: PathBuf, handle: &Handle) {
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(path, handle.clone());
    }

    /// The directory of a path and the name in it; the root is `.` of itself.
    pub(crate) fn parent_of(&self, path: &Path) -> Result<(Handle, OsString), Errno> {
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
