//! Keeping: what a failed job wrote stays for inspection, and is left alone until somebody names it.
//!
//! ```text
//!   hide     names that were published eagerly move into the staging directories of their directories
//!   times    of old directories are put back, as by a roll back
//!   sync     all of it is durable
//!   mark     the manifest is renamed to `kept`
//! ```
//!
//! A job that dies before the mark is an ordinary dead one, which a recovery rolls back. After it nothing of the job
//! lies outside of staging directories, so that whoever uses the old names later has nothing to fear from its removal.

use std::ffi::OsStr;
use std::path::Path;

use elbow_file::{Errno, Handle, RenameMode};

use super::apply::{gone_is_none, sync_dir};
use super::tree::Tree;
use super::{Leftovers, RECORD, leftovers, put_times_back};
use crate::execute::STAGING_MODE;
use crate::job::Shared;
use crate::lost;
use crate::staging::{JournalEntry, KEPT, MANIFEST, NEW};

impl Shared {
    /// Makes a job that has stopped a kept one.
    pub(super) fn mark_kept(&self) -> Result<(), Errno> {
        let (left, job) = {
            let state = self.state.lock();
            (leftovers(&state.model), state.model.job_dir().ok_or(Errno::NOENT)?)
        };
        let (storage, tree) = (&*self.storage, self.tree());
        for path in &left.visible {
            self.hide(&tree, &job, path, &left)?;
        }
        self.close_journal();
        // The record of a commit that failed at the last moment: a recovery would carry it out.
        gone_is_none(storage.unlink(&job, OsStr::new(RECORD)))?;
        for holder in &left.staging {
            if let Some(dir) = gone_is_none(tree.dir(&holder.path))? {
                put_times_back(storage, &dir, holder.times)?;
            }
        }
        put_times_back(storage, &tree.root, self.root_times)?;
        // What cannot be stored any more is not there to be inspected; the job has failed already.
        let _ = storage.sync_all(&job);
        let (from, to) = (OsStr::new(MANIFEST), OsStr::new(KEPT));
        lost::rename(storage, (&job, from), (&job, to), RenameMode::Replace)?;
        sync_dir(storage, &job)
    }

    /// Moves a visible new object to where it would be if it had been staged.
    fn hide(&self, tree: &Tree<'_>, job: &Handle, path: &Path, left: &Leftovers) -> Result<(), Errno> {
        let Some((dir, name)) = gone_is_none(tree.spot(path))? else {
            return Ok(());
        };
        let staging = match path.parent().filter(|above| !above.as_os_str().is_empty()) {
            Some(above) => self.part(&dir, above, left)?,
            None => tree.storage.open_dir(job, OsStr::new(NEW))?,
        };
        let moved = lost::rename(tree.storage, (&dir, &name), (&staging, &name), RenameMode::Replace);
        gone_is_none(moved).map(|_| ())
    }

    /// The staging directory of an old directory, made if it has none.
    fn part(&self, dir: &Handle, path: &Path, left: &Leftovers) -> Result<Handle, Errno> {
        let storage = &*self.storage;
        if let Some(part) = gone_is_none(storage.open_dir(dir, &self.part_name))? {
            return Ok(part);
        }
        let holder = left.staging.iter().find(|holder| holder.path == path);
        let entry = JournalEntry::Staging {
            dir: path.to_owned(),
            times: holder.map(|holder| holder.times).unwrap_or_default(),
        };
        let mut journal = self.journal.lock();
        journal.as_mut().ok_or(Errno::BADF)?.append(storage, &entry)?;
        storage.mkdir(dir, &self.part_name, STAGING_MODE)?;
        storage.open_dir(dir, &self.part_name)
    }
}
