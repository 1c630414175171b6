//! The removal of a kept job, which is one that somebody names.
//!
//! Its manifest is renamed to `dropped` first: from then on a recovery finishes what a death interrupts. Directories keep the
//! times that they have, because others may have worked in them since the job ended; a death between the removal of a
//! staging directory and the call that sets the time of the directory above loses that time.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use elbow_file::{Errno, Handle, RenameMode, Storage};

use crate::commit::{Leftovers, StagingHolder, Tree, remove_leftovers};
use crate::found::{Found, THREADS, error, error_in, find_record, lock_manifest, look_at, read_journal, report_of};
use crate::job_files::{BIRTH_LOOKS, BIRTH_PAUSE};
use crate::liveness::{self, Attempt, Liveness, Lock};
use crate::lost_answers;
use crate::missing::none_if_missing;
use crate::ownership::{self, OwnDirectory, OwnershipCheck};
use crate::report::{JobError, ROLLING_BACK, RecoverAction, Recovered};
use crate::staging::{DROPPED, JournalEntry, KEPT, MANIFEST, Manifest, is_job_name, is_staging_name};
use crate::step_counter::StepCounter;

/// Removes kept jobs of a directory with everything of them. Each is named as its own staging directory is; if one of the
/// names is not that of a kept job, nothing is done.
///
/// # Errors
/// [`JobError::NotKept`] for a name that is not there, or a job that runs, died or committed; others when a step
/// fails, after which it can be called again.
pub fn drop_kept(storage: &Arc<dyn Storage>, root: &Handle, names: &[OsString]) -> Result<Vec<Recovered>, JobError> {
    let storage = &**storage;
    // One that is named twice would not be found the second time.
    let names: BTreeSet<&OsString> = names.iter().collect();
    let jobs = names
        .into_iter()
        .map(|name| find(storage, root, name).map(|kept| (name, kept)))
        .collect::<Result<Vec<_>, JobError>>()?;
    jobs.into_iter()
        .map(|(name, kept)| {
            let job = &kept.own.handle;
            let (before, after) = (OsStr::new(KEPT), OsStr::new(DROPPED));
            // Marked first: if we die over the removal, the next recovery goes on with it.
            let marked = lost_answers::rename(storage, (job, before), (job, after), RenameMode::Replace);
            none_if_missing(marked).map_err(error("marking the kept job in"))?;
            let tree = Tree::new(storage, root.clone(), THREADS).of_job(Some(job.clone()), &kept.lock);
            remove(&tree, name, &kept.own)?;
            Ok(dropped(name, kept.manifest.as_ref()))
        })
        .collect()
}

/// A kept job that is about to go, or to go on.
pub(crate) struct Kept {
    pub(crate) own: OwnDirectory,
    pub(crate) manifest: Option<Manifest>,
    /// Of its manifest: held for as long as this is worked on.
    pub(crate) lock: Lock,
    /// Its removal has begun.
    pub(crate) is_dropped: bool,
}

/// A kept job, or why it is none.
pub(crate) fn find(storage: &dyn Storage, root: &Handle, name: &OsStr) -> Result<Kept, JobError> {
    let not_kept = |found: String| JobError::NotKept {
        job: name.to_string_lossy().into_owned(),
        found,
    };
    if !is_job_name(name) {
        let found = if is_staging_name(name) {
            "this is a part of a job, in a directory below that of the job; name the job's own staging directory"
        } else {
            "no job has such a name"
        };
        return Err(not_kept(found.into()));
    }
    let ownership = OwnershipCheck::new(storage, root).map_err(error("reading the attributes of"))?;
    let opened = none_if_missing(ownership.open(name)).map_err(error("opening the staging directory in"))?;
    let own = match opened.ok_or_else(|| not_kept("there is no such job here".into()))? {
        ownership::Ownership::Ours(own) => own,
        ownership::Ownership::NotOurs(why) => return Err(not_kept(format!("it is left alone: {why}"))),
    };
    let lock = Lock::default();
    let (found, attempt) = hold(storage, &own, &lock)?;
    match found {
        Found::Kept(_) | Found::Dropped(_) if matches!(attempt, Attempt::Taken) => {
            Err(not_kept("another process is at work on it".into()))
        }
        // It may have gone on, or gone, before it was locked.
        _ if look_at(storage, &own).map_err(error("reading the manifest in"))? != found => {
            Err(not_kept("another process was at work on it just now".into()))
        }
        Found::Kept(manifest) => Ok(Kept {
            own,
            manifest,
            lock,
            is_dropped: false,
        }),
        Found::Dropped(manifest) => Ok(Kept {
            own,
            manifest,
            lock,
            is_dropped: true,
        }),
        Found::Ordinary(manifest) => {
            let shares_locks = storage
                .file_system_traits(root)
                .is_ok_and(|file_system_traits| file_system_traits.shares_locks);
            let liveness = manifest.map(|manifest| liveness::of(&manifest, &attempt, ownership.dev(), shares_locks));
            Err(not_kept(state_of(storage, &own, liveness)))
        }
    }
}

/// A job, and its lock, if that can be had within two seconds: who was killed, or has just ended, may have it for a moment still, and so may what a
/// process is starting.
pub(crate) fn hold(storage: &dyn Storage, own: &OwnDirectory, lock: &Lock) -> Result<(Found, Attempt), JobError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let found = look_at(storage, own).map_err(error("reading the manifest in"))?;
        let attempt = lock_manifest(storage, own, &found, lock).map_err(error("locking the manifest in"))?;
        if !matches!(attempt, Attempt::Taken) || looks == BIRTH_LOOKS {
            return Ok((found, attempt));
        }
        std::thread::sleep(BIRTH_PAUSE);
    }
}

/// What a job is that is not kept, in words.
fn state_of(storage: &dyn Storage, own: &OwnDirectory, liveness: Option<Liveness>) -> String {
    match liveness {
        Some(Liveness::Running(message)) => format!("it was not kept: {message}"),
        _ if matches!(find_record(storage, own), Ok(Some(_))) => {
            "it was not kept: it has committed, and `elbow recover` finishes it".into()
        }
        _ => "it was not kept: it died, and `elbow recover` ends it".into(),
    }
}

/// Marks a job as kept that a recovery could not finish.
pub(crate) fn keep(storage: &dyn Storage, job: &Handle) -> Result<(), Errno> {
    let (manifest, kept) = (OsStr::new(MANIFEST), OsStr::new(KEPT));
    let marked = lost_answers::rename(storage, (job, manifest), (job, kept), RenameMode::Replace);
    none_if_missing(marked)?;
    storage.sync_all(job)
}

/// Removes a job whose removal has begun.
pub(crate) fn remove(tree: &Tree<'_>, name: &OsStr, own: &OwnDirectory) -> Result<(), JobError> {
    let left = leftovers(tree, own).map_err(error_in("looking for what was staged in"))?;
    let root = tree.storage.stat_handle(&tree.root);
    let root = root.map_err(error("reading the attributes of the directory in"))?;
    remove_leftovers(tree, name, &left, (root.atime, root.mtime), &StepCounter::default())
        .map_err(error_in(ROLLING_BACK))
}

/// Directories with a staging directory and their times now. One that is gone, or something else by now, has none.
fn leftovers(tree: &Tree<'_>, own: &OwnDirectory) -> Result<Leftovers, (PathBuf, Errno)> {
    let mut left = Leftovers::default();
    for entry in read_journal(tree.storage, own).map_err(|errno| (PathBuf::new(), errno))? {
        let JournalEntry::Staging { dir, .. } = entry else {
            continue;
        };
        match tree.dir(&dir).and_then(|handle| tree.storage.stat_handle(&handle)) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => return Err((dir, errno)),
            Ok(now) => {
                left.staging.push(StagingHolder {
                    path: dir,
                    times: (now.atime, now.mtime),
                    // It was closed when the job was kept; what has become of it since is its owner's.
                    closed: None,
                    open: None,
                });
            }
        }
    }
    Ok(left)
}

/// What is said of a job that is gone now.
pub(crate) fn dropped(name: &OsStr, manifest: Option<&Manifest>) -> Recovered {
    let message = "it had been kept, and was dropped: nothing of it is left";
    report_of(name, RecoverAction::Dropped, manifest, message)
}
