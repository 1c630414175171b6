//! Carrying out a commit record, step by step, any number of times.
//!
//! ```text
//!   cuts, removals, collections   old names; repeated until `collected` is written
//!   placements, links, patches,   new names; every source is a name that is never used again, so a step
//!   attributes of files           whose source is gone is done
//!   `done`                        from here on only the cleaning is repeated
//!   staging directories, limbo, attributes of directories, the job's own directory
//! ```

use std::ffi::OsStr;
use std::io::IoSlice;
use std::ops::Range;
use std::path::{Path, PathBuf};

use elbow_file::{Errno, Handle, RenameMode, Time};

use super::record::{Attributes, Patch, Placement, Record, Source};
use super::tree::Tree;
use super::watch::Tally;
use super::{COLLECTED, DONE, RECORD, remove_job_dir, remove_part};
use crate::execute::{open_writable, set_attributes};
use crate::removal::parallel;
use crate::staging::{NEW, part_name};

/// Patches are copied, synced and punched in windows of this size, so that a commit needs no second copy.
const PATCH_WINDOW_BYTES: u64 = 64 << 20;
const COPY_BYTES: usize = 1 << 20;
/// Holes are punched in whole blocks of this size.
const BLOCK_BYTES: u64 = 4096;

/// A step that could not be done.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) step: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) errno: Errno,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.step, self.path.display(), self.errno)
    }
}

/// A committed job whose steps are carried out.
pub(crate) struct Apply<'a> {
    pub(crate) tree: Tree<'a>,
    /// The job's own directory and its name.
    pub(crate) job: Handle,
    pub(crate) staging_name: &'a OsStr,
    pub(crate) record: &'a Record,
    /// What is done of the steps.
    pub(crate) tally: &'a Tally,
}

impl Apply<'_> {
    /// Everything up to the point where only cleaning is left.
    pub(crate) fn publish(&self, collected: bool) -> Result<(), Vec<Failure>> {
        if self.record.collects() && !collected {
            self.collect()?;
            self.mark_collected()
                .map_err(|errno| vec![failure("marking the progress of", Path::new(""), errno)])?;
        }
        self.place()?;
        self.each(
            "linking",
            &self.record.links,
            |(_, to)| to,
            |(from, to)| self.link(from, to),
        )?;
        self.each(
            "writing",
            &self.record.patches,
            |patch| &patch.path,
            |patch| self.patch(patch),
        )?;
        let files: Vec<&Attributes> = self.record.attributes.iter().filter(|a| !a.is_dir).collect();
        self.each("setting attributes of", &files, |a| &a.path, |a| self.attributes(a))
    }

    /// The record has been carried out.
    pub(crate) fn mark_done(&self) -> Result<(), Errno> {
        self.tree.storage.sync_all(&self.job)?;
        let renamed = self.tree.storage.rename(
            &self.job,
            OsStr::new(RECORD),
            &self.job,
            OsStr::new(DONE),
            RenameMode::Replace,
        );
        gone_is_fine(renamed)
    }

    /// Removes what is no longer needed, then sets the attributes of directories.
    pub(crate) fn clean(&self, root_times: Option<(Time, Time)>) -> Result<(), Vec<Failure>> {
        let part = part_name(self.staging_name);
        self.each(
            "removing the staging directory of",
            &self.record.staged,
            |p| p,
            |path| remove_part(&self.tree, path, &part, &Tally::default()),
        )?;
        let dirs = self.record.attributes.iter().filter(|a| a.is_dir);
        let (root, dirs): (Vec<_>, Vec<_>) = dirs.partition(|a| a.path.as_os_str().is_empty());
        self.each("setting attributes of", &dirs, |a| &a.path, |a| self.attributes(a))?;
        remove_job_dir(&self.tree, self.staging_name, &Tally::default())
            .map_err(|errno| vec![failure("removing", Path::new(self.staging_name), errno)])?;
        self.each("setting attributes of", &root, |a| &a.path, |a| self.attributes(a))?;
        if root.is_empty()
            && let Some((atime, mtime)) = root_times
        {
            // The owner may be somebody else; the time of the directory is then that of the commit.
            let _ = self
                .tree
                .storage
                .set_times(&self.tree.root, OsStr::new("."), Some(atime), Some(mtime));
        }
        Ok(())
    }

    fn each<T: Sync>(
        &self,
        step: &'static str,
        items: &[T],
        path: impl Fn(&T) -> &PathBuf + Sync,
        apply: impl Fn(&T) -> Result<(), Errno> + Sync,
    ) -> Result<(), Vec<Failure>> {
        let failures: Vec<Failure> = parallel(items, self.tree.threads, |item| {
            let failed = apply(item).err().map(|errno| failure(step, path(item), errno));
            self.tally.step();
            failed
        })
        .into_iter()
        .flatten()
        .collect();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    fn collect(&self) -> Result<(), Vec<Failure>> {
        let record = self.record;
        self.each(
            "shortening",
            &record.cuts,
            |(path, _)| path,
            |(path, size)| gone_is_fine(self.cut(path, *size)),
        )?;
        self.each(
            "removing",
            &record.removals,
            |path| path,
            |path| gone_is_fine(self.remove(path)),
        )?;
        for level in levels(&record.collections, |(path, _)| path) {
            self.each(
                "moving",
                level,
                |(path, _)| path,
                |(path, slot)| {
                    let Some((dir, name)) = gone_is_none(self.tree.spot(path))? else {
                        return Ok(());
                    };
                    gone_is_fine(
                        self.tree
                            .storage
                            .rename(&dir, &name, &self.job, slot, RenameMode::Replace),
                    )
                },
            )?;
            self.tree.forget();
        }
        Ok(())
    }

    fn cut(&self, path: &Path, size: u64) -> Result<(), Errno> {
        let (dir, name) = self.tree.spot(path)?;
        let file = open_writable(self.tree.storage, &dir, &name)?;
        self.tree.storage.truncate(&file, size)
    }

    fn remove(&self, path: &Path) -> Result<(), Errno> {
        let (dir, name) = self.tree.spot(path)?;
        self.tree.storage.unlink(&dir, &name)
    }

    /// Names may be taken again from here on, so the steps before must never be repeated.
    fn mark_collected(&self) -> Result<(), Errno> {
        let storage = self.tree.storage;
        storage.sync_all(&self.job)?;
        match storage.create(&self.job, OsStr::new(COLLECTED), 0o600) {
            Err(Errno::EXIST) => {}
            other => storage.sync(&other?)?,
        }
        sync_dir(storage, &self.job)
    }

    fn place(&self) -> Result<(), Vec<Failure>> {
        for level in levels(&self.record.placements, |placement| &placement.to) {
            self.each(
                "publishing",
                level,
                |placement| &placement.to,
                |placement| self.place_one(placement),
            )?;
        }
        Ok(())
    }

    fn place_one(&self, placement: &Placement) -> Result<(), Errno> {
        let storage = self.tree.storage;
        let (dir, name) = self.tree.spot(&placement.to)?;
        let moved = match &placement.from {
            Source::Limbo(slot) => storage.rename(&self.job, slot, &dir, &name, RenameMode::Replace),
            Source::Staged => match gone_is_none(self.staging_of(&placement.to))? {
                Some(staging) => storage.rename(&staging, &name, &dir, &name, RenameMode::Replace),
                None => Ok(()),
            },
        };
        gone_is_fine(moved)
    }

    /// The staging directory of the directory that a path is in.
    fn staging_of(&self, path: &Path) -> Result<Handle, Errno> {
        match path.parent().filter(|above| !above.as_os_str().is_empty()) {
            Some(above) => self.tree.part(above, &part_name(self.staging_name)),
            None => self.tree.storage.open_dir(&self.job, OsStr::new(NEW)),
        }
    }

    fn link(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        let ((from, name), (to, new_name)) = (self.tree.spot(from)?, self.tree.spot(to)?);
        match self.tree.storage.link(&from, &name, &to, &new_name) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        }
    }

    /// Copies a patch into its file; what is copied and durable is punched out of the patch.
    fn patch(&self, patch: &Patch) -> Result<(), Errno> {
        let storage = self.tree.storage;
        let (dir, name) = self.tree.spot(&patch.path)?;
        let file = open_writable(storage, &dir, &name)?;
        for range in &patch.zeroed {
            self.zero(&file, &range)?;
        }
        if !patch.written.is_empty() {
            let opened = storage.open(&self.job, &patch.slot, elbow_file::Access::ReadWrite);
            let Some(source) = gone_is_none(opened)? else {
                return Ok(());
            };
            self.copy(&source, &file, patch)?;
        }
        if storage.stat_handle(&file)?.size != patch.size {
            storage.truncate(&file, patch.size)?;
        }
        storage.sync(&file)
    }

    fn zero(&self, file: &Handle, range: &Range<u64>) -> Result<(), Errno> {
        match self.tree.storage.punch(file, range.start, range.end - range.start) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            other => return other,
        }
        let zeros = vec![0; COPY_BYTES];
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(COPY_BYTES as u64);
            self.tree
                .storage
                .write(file, &[IoSlice::new(&zeros[..length as usize])], at)?;
            at += length;
        }
        Ok(())
    }

    fn copy(&self, source: &Handle, file: &Handle, patch: &Patch) -> Result<(), Errno> {
        let mut window: Option<Range<u64>> = None;
        for range in &patch.written {
            let mut at = range.start;
            while at < range.end {
                let end = range.end.min(at + PATCH_WINDOW_BYTES);
                self.copy_range(source, file, at..end)?;
                let open = window.get_or_insert(at..end);
                open.end = end;
                if end - open.start >= PATCH_WINDOW_BYTES {
                    self.consume(source, file, open.clone())?;
                    window = None;
                }
                at = end;
            }
        }
        Ok(())
    }

    /// What an earlier attempt has consumed is a hole by now and must not be copied again.
    fn copy_range(&self, source: &Handle, file: &Handle, range: Range<u64>) -> Result<(), Errno> {
        let mut buffer = vec![0; COPY_BYTES];
        let mut at = range.start;
        while at < range.end {
            let Some((start, end)) = self.next_data(source, at)? else {
                return Ok(());
            };
            at = at.max(start);
            let end = end.min(range.end);
            while at < end {
                let part = &mut buffer[..(end - at).min(COPY_BYTES as u64) as usize];
                let length = self.tree.storage.read(source, part, at)?;
                if length == 0 {
                    return Err(Errno::IO);
                }
                self.tree.storage.write(file, &[IoSlice::new(&part[..length])], at)?;
                at += length as u64;
                self.tally.copied(length as u64);
            }
        }
        Ok(())
    }

    fn next_data(&self, source: &Handle, at: u64) -> Result<Option<(u64, u64)>, Errno> {
        match self.tree.storage.next_data(source, at) {
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Some((at, u64::MAX))),
            other => other,
        }
    }

    fn consume(&self, source: &Handle, file: &Handle, window: Range<u64>) -> Result<(), Errno> {
        self.tree.storage.sync(file)?;
        let (start, end) = (
            window.start.next_multiple_of(BLOCK_BYTES),
            window.end / BLOCK_BYTES * BLOCK_BYTES,
        );
        if start >= end {
            return Ok(());
        }
        match self.tree.storage.punch(source, start, end - start) {
            // The space then comes free with the whole patch file.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOSPC) => Ok(()),
            other => other,
        }
    }

    fn attributes(&self, attributes: &Attributes) -> Result<(), Errno> {
        let (dir, name) = self.tree.spot(&attributes.path)?;
        let attrs = &attributes.attrs;
        match set_attributes(self.tree.storage, &dir, &name, attrs) {
            // Who may write to somebody else's file may not set its times: they are those of the commit.
            Err(Errno::PERM) if attrs.owner.is_none() && attrs.mode.is_none() && attrs.xattrs.is_empty() => Ok(()),
            Err(errno) => Err(errno),
            Ok(_) => Ok(()),
        }
    }
}

/// Some file systems cannot sync a directory; they have nothing to lose then.
pub(super) fn sync_dir(storage: &dyn elbow_file::Storage, dir: &Handle) -> Result<(), Errno> {
    match storage.sync(dir) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

fn failure(step: &'static str, path: &Path, errno: Errno) -> Failure {
    Failure {
        step,
        path: path.to_owned(),
        errno,
    }
}

fn gone_is_fine(result: Result<(), Errno>) -> Result<(), Errno> {
    gone_is_none(result).map(|_| ())
}

pub(crate) fn gone_is_none<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Runs of items whose paths are equally deep.
fn levels<T>(items: &[T], path: impl Fn(&T) -> &PathBuf) -> impl Iterator<Item = &[T]> {
    items.chunk_by(move |a, b| path(a).components().count() == path(b).components().count())
}
