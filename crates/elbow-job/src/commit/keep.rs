//! Keeping: what a failed job wrote stays for inspection, and is left alone until somebody names it.
//!
//! ```text
//!   hide     names that were published eagerly move into the staging directories of their directories
//!   times    of old directories are put back, as by a roll back
//!   sync     all of it is durable
//!   rest     `resume`: the record of what is left to be done, if all that the job made is there
//!   mark     the manifest is renamed to `kept`
//! ```
//!
//! A job that dies before the mark is an ordinary dead one, which a recovery rolls back; one with a record to go on from is kept by it. After it nothing of the job
//! lies outside of staging directories, so that whoever uses the old names later has nothing to fear from its removal.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::path::Path;

use elbow_file::{Access, Errno, Handle, RenameMode, Storage};

use super::draft;
use super::leftovers::{Leftovers, put_times_back};
use super::record::{Patch, Record};
use super::sealed::write_sealed;
use super::tree::Tree;
use crate::closed;
use crate::job_files::{PRIVATE_FILE_MODE, RECORD, RECORD_DRAFT, RESUME, STAGING_MODE, WHY_BYTES_MAX};
use crate::lost_answers;
use crate::missing::{none_if_missing, sync_dir};
use crate::options::Publish;
use crate::patch_files::PatchDirs;
use crate::report::Cause;
use crate::shared::Shared;
use crate::staging::{JournalEntry, KEPT, MANIFEST, NEW, WHY};

/// Patches of whose content a part is lost, because a commit that was taken back could not put it back.
pub(crate) fn lost_content<'a>(
    storage: &dyn Storage,
    job: &Handle,
    record: &'a Record,
) -> Result<Vec<&'a Patch>, Errno> {
    let (dirs, mut lost) = (PatchDirs::of(job.clone()), Vec::new());
    for patch in record.patches.iter().filter(|patch| !patch.written.is_empty()) {
        if none_if_missing(storage.stat(&dirs.of_patch(storage, &patch.slot)?, &patch.slot))?.is_none() {
            lost.push(patch);
        }
    }
    Ok(lost)
}

/// Writes down why a job is kept. Who is told of it by that alone can be without it.
pub(crate) fn write_why(storage: &dyn Storage, job: &Handle, cause: &Cause) {
    let text = cause.to_string().into_bytes();
    let text = &text[..text.len().min(WHY_BYTES_MAX)];
    let name = OsStr::new(WHY);
    let write = || {
        none_if_missing(storage.unlink(job, name))?;
        let file = storage.create(job, name, PRIVATE_FILE_MODE)?;
        storage.write(&file, &[IoSlice::new(text)], 0)?;
        storage.close(&file)
    };
    let _: Result<(), Errno> = write();
}

/// The record of what is left to be done, in a file without a name that says anything yet. It is written as soon as all is staged, so that what fills the disk from then on
/// keeps nobody from committing, or from keeping what was earned.
pub(crate) struct RecordDraft {
    /// Closed before it is removed: some storages keep what is open under another name.
    file: Option<Handle>,
    bytes: Vec<u8>,
}

impl RecordDraft {
    /// Somebody else has written one, or none, and may have given it a name.
    pub(crate) fn unknown() -> Self {
        Self {
            file: None,
            bytes: Vec::new(),
        }
    }

    pub(crate) fn write(storage: &dyn Storage, job: &Handle, record: &Record) -> Result<Self, Errno> {
        let bytes = record.encode_for(storage)?;
        let file = storage.create(job, OsStr::new(RECORD_DRAFT), PRIVATE_FILE_MODE)?;
        storage.write(&file, &[IoSlice::new(&bytes)], 0)?;
        Ok(Self {
            file: Some(file),
            bytes,
        })
    }

    /// Makes it this record, durable, and gives it a name.
    pub(crate) fn give_name(
        &mut self,
        storage: &dyn Storage,
        job: &Handle,
        name: &str,
        record: &Record,
    ) -> Result<(), Errno> {
        let (draft, name) = (OsStr::new(RECORD_DRAFT), OsStr::new(name));
        let bytes = record.encode_for(storage)?;
        let file = match self.file.take() {
            Some(file) => file,
            None => match storage.open(job, draft, Access::ReadWrite) {
                Err(Errno::NOENT) => return write_sealed(storage, job, name, &bytes),
                opened => opened?,
            },
        };
        // What a sync did not store, the next one takes for stored: another attempt writes it again.
        if bytes != std::mem::take(&mut self.bytes) {
            // In place, where there is room.
            storage.write(&file, &[IoSlice::new(&bytes)], 0)?;
            storage.truncate(&file, bytes.len() as u64)?;
        }
        storage.sync(&file)?;
        storage.close(&file)?;
        storage.rename(job, draft, job, name, RenameMode::Replace)?;
        sync_dir(storage, job)
    }

    /// Gives it the name by which a kept job goes on, if one has it not already. From then on no recovery rolls the job back.
    pub(crate) fn keep(&mut self, storage: &dyn Storage, job: &Handle, record: &Record) -> Result<(), Errno> {
        if none_if_missing(storage.stat(job, OsStr::new(RESUME)))?.is_some() {
            return Ok(());
        }
        self.give_name(storage, job, RESUME, record)
    }

    /// The same of a job that is about to commit: what fills the disk must keep it from neither. Where there is no room for both, it is as it was before.
    pub(crate) fn keep_beside(&mut self, storage: &dyn Storage, job: &Handle, record: &Record) -> Result<(), Errno> {
        self.keep(storage, job, record)?;
        let reserved = Self::write(storage, job, record);
        *self = match reserved {
            Ok(another) => another,
            Err(errno) => {
                let (draft, resume) = (OsStr::new(RECORD_DRAFT), OsStr::new(RESUME));
                none_if_missing(storage.unlink(job, draft))?;
                storage.rename(job, resume, job, draft, RenameMode::Replace)?;
                sync_dir(storage, job)?;
                return Err(errno);
            }
        };
        Ok(())
    }
}

/// What is left to be done of a job that has staged all that it made.
pub(super) struct RemainingWork {
    pub(super) record: Record,
    pub(super) drafted: RecordDraft,
}

/// Moves a directory that its owner may not write: its entry `..` changes.
fn move_locked(storage: &dyn Storage, (dir, staging): (&Handle, &Handle), name: &OsStr) -> Result<(), Errno> {
    let mode = storage.stat(dir, name)?.mode;
    storage.chmod(dir, name, mode | STAGING_MODE)?;
    lost_answers::rename(storage, (dir, name), (staging, name), RenameMode::Replace)?;
    storage.chmod(staging, name, mode)
}

impl Shared {
    /// Makes a job that has stopped a kept one; with the record of the rest, if all that it made is there.
    ///
    /// # Errors
    /// Then it is an ordinary job still. `true`: it may have lost what could not be made durable.
    pub(super) fn mark_kept(&self, cause: &Cause, rest: Option<&mut RemainingWork>) -> Result<(), (Errno, bool)> {
        let job = self.gather_kept(cause).map_err(|errno| (errno, false))?;
        let synced = self.storage.sync_all(&job);
        // Of one that cannot go on, what is not stored by now is not there to be inspected.
        if rest.is_some() {
            synced.map_err(|errno| (errno, true))?;
        }
        self.name_kept(&job, rest).map_err(|errno| (errno, false))
    }

    /// The same of a job of which a part was saved elsewhere.
    pub(super) fn mark_kept_in_part(&self, cause: &Cause) -> Result<(), Errno> {
        let job = self.gather_kept(cause)?;
        self.storage.sync_all(&job)?;
        self.name_kept(&job, None)
    }

    /// Brings all of the job into staging directories, and gives its own directory.
    fn gather_kept(&self, cause: &Cause) -> Result<Handle, Errno> {
        let left = self.leftovers();
        let job = self.state.lock().model.inodes.job_dir().ok_or(Errno::NOENT)?;
        let (storage, tree) = (&*self.storage, self.tree());
        for path in &left.visible {
            self.hide(&tree, &job, path, &left)?;
        }
        self.close_journal();
        // The record of a commit that failed at the last moment: a recovery would carry it out.
        none_if_missing(storage.unlink(&job, OsStr::new(RECORD)))?;
        for holder in &left.staging {
            let put_back = |dir: Handle| {
                holder.close(storage, &dir)?;
                put_times_back(storage, &dir, holder.times)
            };
            match tree.dir(&holder.path).and_then(put_back) {
                // Somebody has removed it, taken our right to it, or given it away: it stays as they have left it.
                Err(Errno::NOENT | Errno::ACCESS | Errno::PERM) => {}
                other => other?,
            }
        }
        put_times_back(storage, &tree.root, self.root_times)?;
        write_why(storage, &job, cause);
        Ok(job)
    }

    fn name_kept(&self, job: &Handle, rest: Option<&mut RemainingWork>) -> Result<(), Errno> {
        let storage = &*self.storage;
        if let Some(rest) = rest {
            if self.options.publish == Publish::Eager {
                // What it had made visible is not so any more.
                rest.record = draft::draft(&self.state.lock().model, true);
            }
            rest.drafted.keep(storage, job, &rest.record)?;
        }
        let (from, to) = (OsStr::new(MANIFEST), OsStr::new(KEPT));
        lost_answers::rename(storage, (job, from), (job, to), RenameMode::Replace)?;
        sync_dir(storage, job)
    }

    /// Moves a visible new object to where it would be if it had been staged.
    fn hide(&self, tree: &Tree<'_>, job: &Handle, path: &Path, left: &Leftovers) -> Result<(), Errno> {
        let Some((dir, name)) = none_if_missing(tree.parent_of(path))? else {
            return Ok(());
        };
        let staging = match path.parent().filter(|above| !above.as_os_str().is_empty()) {
            Some(above) => self.part(&dir, above, left)?,
            None => tree.storage.open_dir(job, OsStr::new(NEW))?,
        };
        let moved = lost_answers::rename(tree.storage, (&dir, &name), (&staging, &name), RenameMode::Replace);
        match moved {
            Err(Errno::ACCESS) => move_locked(tree.storage, (&dir, &staging), &name),
            moved => none_if_missing(moved).map(|_| ()),
        }
    }

    /// The staging directory of an old directory, made if it has none.
    fn part(&self, dir: &Handle, path: &Path, left: &Leftovers) -> Result<Handle, Errno> {
        let storage = &*self.storage;
        if let Some(part) = none_if_missing(storage.open_dir(dir, &self.part_name))? {
            return Ok(part);
        }
        let holder = left.staging.iter().find(|holder| holder.path == path);
        let entry = |closed| JournalEntry::Staging {
            dir: path.to_owned(),
            times: holder.map(|holder| holder.times).unwrap_or_default(),
            closed,
        };
        let note = |closed| {
            let mut journal = self.journal.lock();
            journal.as_mut().ok_or(Errno::BADF)?.append(storage, &entry(closed))
        };
        note(None)?;
        let make = || storage.mkdir(dir, &self.part_name, STAGING_MODE);
        closed::change_names(storage, dir, |mode| note(Some(mode)), make)?;
        storage.open_dir(dir, &self.part_name)
    }
}
