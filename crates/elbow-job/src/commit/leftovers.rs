//! What a job that has not ended has left in directories, and its removal.

use std::ffi::OsStr;
use std::path::PathBuf;

use elbow_file::{Errno, Handle, Storage, Time};

use super::record::Record;
use super::sealed::write_sealed;
use super::tree::{Part, Tree};
use crate::closed;
use crate::job_files::DONE;
use crate::missing::none_if_missing;
use crate::parallel::parallel;
use crate::removal::{remove_opened_tree, remove_trees, retried};
use crate::staging::{DROPPED, JOURNAL, MANIFEST, part_name};
use crate::step_counter::StepCounter;

/// What goes last of a job's own directory: who the job was, and that it committed.
const LAST: [&str; 3] = [MANIFEST, DROPPED, DONE];

/// What a roll back has to remove.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Old directories with a staging directory or a visible new object.
    pub(crate) staging: Vec<StagingHolder>,
    /// New objects under their own names.
    pub(crate) visible: Vec<PathBuf>,
    /// Names that are to be removed, as far as they are known.
    pub(crate) names: usize,
}

/// An old directory that a job has put something into.
#[derive(Debug)]
pub(crate) struct StagingHolder {
    pub(crate) path: PathBuf,
    /// Its times before.
    pub(crate) times: (Time, Time),
    /// Its mode, if it had to be opened.
    pub(crate) closed: Option<u32>,
    /// The directory, where the job still has it open: wherever somebody else has moved it, it is there.
    pub(crate) open: Option<Handle>,
}

impl StagingHolder {
    pub(super) fn close(&self, storage: &dyn Storage, dir: &Handle) -> Result<(), Errno> {
        self.closed.map_or(Ok(()), |mode| closed::close(storage, dir, mode))
    }
}

/// Rolls back: removes everything that an uncommitted job left, its own directory last.
///
/// # Errors
/// The first directory in which something stays, and why.
pub(crate) fn remove_leftovers(
    tree: &Tree<'_>,
    staging_name: &OsStr,
    left: &Leftovers,
    root_times: (Time, Time),
    counter: &StepCounter,
) -> Result<(), (PathBuf, Errno)> {
    let (storage, part) = (tree.storage, part_name(staging_name));
    let visible = remove_visible(tree, &left.visible, counter);
    let staging = parallel(&left.staging, tree.threads, |holder| {
        let removed = remove_staging_in(tree, holder, &part, counter);
        removed.map_err(|errno| (holder.path.clone(), errno))
    });
    // What can be removed is, whatever else stays.
    staging.into_iter().fold(visible, Result::and)?;
    let removed = remove_job_dir(tree, staging_name, counter);
    removed
        .and_then(|()| put_times_back(storage, &tree.root, root_times))
        .map_err(|errno| (PathBuf::new(), errno))
}

/// Removes what has its own name already.
fn remove_visible(tree: &Tree<'_>, paths: &[PathBuf], counter: &StepCounter) -> Result<(), (PathBuf, Errno)> {
    let places = parallel(paths, tree.threads, |path| match tree.parent_of(path) {
        // Somebody has put something else there.
        Err(Errno::NOTDIR | Errno::LOOP) => Ok(None),
        place => none_if_missing(place),
    });
    let mut tops = Vec::new();
    let mut found = Ok(());
    for (path, place) in paths.iter().zip(places) {
        match place {
            Ok(place) => tops.extend(place.map(|place| (path, place))),
            Err(errno) => found = found.and(Err((path.clone(), errno))),
        }
    }
    let (paths, tops): (Vec<_>, Vec<_>) = tops.into_iter().unzip();
    let removed = remove_trees(tree.storage, &tops, tree.threads, counter);
    let removed = paths.into_iter().zip(removed);
    removed
        .map(|(path, removed)| removed.map_err(|errno| (path.clone(), errno)))
        .fold(found, Result::and)
}

/// Removes the staging directory in an old directory, and puts the times of that back.
fn remove_staging_in(
    tree: &Tree<'_>,
    holder: &StagingHolder,
    part: &OsStr,
    counter: &StepCounter,
) -> Result<(), Errno> {
    let dir = match &holder.open {
        Some(dir) => dir.clone(),
        None => match tree.dir(&holder.path) {
            // Somebody has put something else there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            other => other?,
        },
    };
    let remove = || {
        remove_part(tree, &dir, part, counter)?;
        holder.close(tree.storage, &dir)?;
        put_times_back(tree.storage, &dir, holder.times)
    };
    match remove() {
        // Somebody has removed it, and all that was in it.
        Err(Errno::NOENT) => Ok(()),
        // Of what is in a directory that is still there it says nothing.
        Err(Errno::STALE) if tree.storage.stat_handle(&dir).is_err() => Ok(()),
        other => other,
    }
}

/// Removes a staging directory with all that is in it. One that somebody else has put there is left alone.
pub(crate) fn remove_part(tree: &Tree<'_>, dir: &Handle, part: &OsStr, counter: &StepCounter) -> Result<(), Errno> {
    match tree.find_part(dir, part)? {
        Part::Ours(handle) => {
            let remove = || remove_opened_tree(tree.storage, dir, part, &handle, counter);
            closed::change_names(tree.storage, dir, |_| Ok(()), remove)
        }
        Part::OfOthers | Part::None => Ok(()),
    }
}

/// Removes the job's own directory: the journal first, so that nothing is undone once more; last who the job was,
/// and that it committed, so that nothing is undone at all.
pub(crate) fn remove_job_dir(tree: &Tree<'_>, staging_name: &OsStr, counter: &StepCounter) -> Result<(), Errno> {
    let storage = tree.storage;
    let Some(job) = none_if_missing(tree.job_dir(staging_name))? else {
        return Ok(());
    };
    none_if_missing(storage.unlink(&job, OsStr::new(JOURNAL)))?;
    let Some(entries) = none_if_missing(storage.list(&job))? else {
        return Ok(()); // it is open here, and somebody has removed it
    };
    let was_kept = entries.iter().any(|entry| entry.name == DROPPED);
    let others: Vec<_> = entries
        .into_iter()
        .filter(|entry| !LAST.iter().any(|last| entry.name == *last))
        .collect();
    let others: Vec<_> = others.into_iter().map(|entry| (job.clone(), entry.name)).collect();
    let removed = remove_trees(storage, &others, tree.threads, counter);
    removed.into_iter().collect::<Result<(), Errno>>()?;
    tree.give_up_lock();
    let mut was_done = false;
    for name in LAST.into_iter().filter(|name| was_kept || *name != DROPPED) {
        let was_there = none_if_missing(storage.unlink(&job, OsStr::new(name)))?.is_some();
        was_done |= was_there && name == DONE;
    }
    // Who looks at the manifest at this moment has it open.
    let removed = retried(|| none_if_missing(storage.rmdir(&tree.root, staging_name)).map(|_| ()));
    if removed.is_err() && was_done {
        // What stays must not be taken for a job that has not committed. All steps are done, so a record of none will do; and without room for
        // that the directory says nothing.
        let _ = write_sealed(storage, &job, OsStr::new(DONE), &Record::default().encode());
    }
    removed
}

/// A directory of somebody else keeps the time of the roll back.
pub(crate) fn put_times_back(storage: &dyn Storage, dir: &Handle, (atime, mtime): (Time, Time)) -> Result<(), Errno> {
    match storage.set_times(dir, OsStr::new("."), Some(atime), Some(mtime)) {
        Err(Errno::PERM | Errno::ACCESS) => Ok(()),
        other => other,
    }
}
