//! Ending jobs whose process died: committed ones are finished, all others rolled back.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::{Access, Errno, Handle, Storage, Time};

use crate::commit::{Apply, COLLECTED, DONE, Leftovers, RECORD, Record, Tally, Tree, remove_leftovers};
use crate::job::clock;
use crate::report::{JobError, RecoverAction, Recovered};
use crate::staging::{JOURNAL, JournalEntry, MANIFEST, Manifest, is_staging_name, mtime_in};

/// A recovery works with this many storage calls at once.
const THREADS: usize = 32;
/// A manifest, record or journal larger than this is not one of ours.
const FILE_MAX_BYTES: u64 = 1 << 30;
/// A job's own directory without a manifest may be a moment old: it is looked at again for two seconds. A job that
/// has none by then is dead; if it is only very slow, it finds its directory gone and fails.
const BIRTH_SECONDS: i64 = 10;
const BIRTH_LOOKS: usize = 40;
const BIRTH_PAUSE: Duration = Duration::from_millis(50);

/// Looks for dead jobs in a directory and ends each: a committed one forward, any other back. Jobs of other
/// hosts are left alone unless `force` says that they are dead.
///
/// # Errors
/// When the directory cannot be listed, or a step fails; what was done by then stays done, and it can be
/// called again.
pub fn recover(storage: &Arc<dyn Storage>, root: &Handle, force: bool) -> Result<Vec<Recovered>, JobError> {
    recover_jobs(storage, root, force, &Manifest::is_alive)
}

pub(crate) fn recover_jobs(
    storage: &Arc<dyn Storage>,
    root: &Handle,
    force: bool,
    is_alive: &dyn Fn(&Manifest) -> bool,
) -> Result<Vec<Recovered>, JobError> {
    let listed = storage.list(root).map_err(error("listing"))?;
    let jobs = listed.into_iter().filter(|entry| is_staging_name(&entry.name));
    jobs.map(|entry| recover_job(&**storage, root, &entry.name, force, is_alive))
        .collect()
}

fn error(tried: &'static str) -> impl Fn(Errno) -> JobError {
    move |errno| JobError::Storage {
        tried,
        path: PathBuf::from("."),
        errno,
    }
}

fn recover_job(
    storage: &dyn Storage,
    root: &Handle,
    name: &OsStr,
    force: bool,
    is_alive: &dyn Fn(&Manifest) -> bool,
) -> Result<Recovered, JobError> {
    let job = storage
        .open_dir(root, name)
        .map_err(error("opening the staging directory in"))?;
    let manifest = await_manifest(storage, root, name, &job).map_err(error("reading the manifest in"))?;
    let say = |action, message: String| Recovered {
        job: name.to_string_lossy().into_owned(),
        action,
        command: manifest.as_ref().map(command_of).unwrap_or_default(),
        message,
    };
    match &manifest {
        Some(found) if is_alive(found) => {
            return Ok(say(
                RecoverAction::Running,
                format!("process {} is still running", found.pid),
            ));
        }
        Some(found) if !found.is_local() && !force => {
            return Ok(say(
                RecoverAction::Foreign,
                format!(
                    "it was started on {}; if it is dead, run `elbow recover --force`",
                    found.host
                ),
            ));
        }
        _ => {}
    }
    let tree = Tree::new(storage, root.clone(), THREADS);
    match find_record(storage, &job) {
        Ok(Some((record, done))) => {
            finish(tree, job, name, &record, done)?;
            Ok(say(
                RecoverAction::Finished,
                "it had committed: everything is in its place".into(),
            ))
        }
        // Whose job it is cannot be read, yet it got beyond its first moment: perhaps this machine only sees it late.
        Ok(None)
            if manifest.is_none()
                && !force
                && !is_bare(storage, &job).map_err(error("listing the staging directory in"))? =>
        {
            Ok(say(
                RecoverAction::Damaged,
                "its manifest cannot be read; if it is dead, run `elbow recover --force`; nothing was changed".into(),
            ))
        }
        Ok(None) => {
            let (left, times) =
                leftovers(storage, root, name, &job, manifest.as_ref()).map_err(error("reading the journal in"))?;
            remove_leftovers(&tree, name, &left, times, &Tally::default()).map_err(error("rolling back in"))?;
            Ok(say(
                RecoverAction::RolledBack,
                "it had not committed: nothing of it is left".into(),
            ))
        }
        Err(found) => Ok(say(
            RecoverAction::Damaged,
            format!("its commit record cannot be read: {found}; nothing was changed"),
        )),
    }
}

/// Nothing but a manifest, maybe torn, is in a job's own directory: it died, or is, in its first moment.
fn is_bare(storage: &dyn Storage, job: &Handle) -> Result<bool, Errno> {
    Ok(storage.list(job)?.iter().all(|entry| entry.name == MANIFEST))
}

fn command_of(manifest: &Manifest) -> Vec<OsString> {
    manifest.command.iter().cloned().map(OsString::from_vec).collect()
}

/// The manifest of a job that may have begun just now: its directory is made a moment before the manifest is
/// in it.
fn await_manifest(storage: &dyn Storage, root: &Handle, name: &OsStr, job: &Handle) -> Result<Option<Manifest>, Errno> {
    for _ in 0..BIRTH_LOOKS {
        let manifest = read_manifest(storage, job)?;
        if manifest.is_some() || !is_young(storage, root, name) {
            return Ok(manifest);
        }
        std::thread::sleep(BIRTH_PAUSE);
    }
    read_manifest(storage, job)
}

/// The manifest; `None` if it is missing or torn, as after a crash in the first moments of a job.
fn read_manifest(storage: &dyn Storage, job: &Handle) -> Result<Option<Manifest>, Errno> {
    let bytes = read_file(storage, job, MANIFEST)?;
    Ok(bytes.and_then(|bytes| Manifest::decode(&bytes).ok()))
}

fn is_young(storage: &dyn Storage, root: &Handle, name: &OsStr) -> bool {
    storage
        .stat(root, name)
        .is_ok_and(|stat| (clock().seconds - stat.mtime.seconds).abs() < BIRTH_SECONDS)
}

/// The commit record and whether it has been carried out; an error in words if it cannot be read.
fn find_record(storage: &dyn Storage, job: &Handle) -> Result<Option<(Record, bool)>, String> {
    for (file, done) in [(RECORD, false), (DONE, true)] {
        if let Some(bytes) = read_file(storage, job, file).map_err(|errno| errno.to_string())? {
            return Record::decode(&bytes)
                .map(|record| Some((record, done)))
                .map_err(|e| e.to_string());
        }
    }
    Ok(None)
}

fn finish(tree: Tree<'_>, job: Handle, name: &OsStr, record: &Record, done: bool) -> Result<(), JobError> {
    let storage = tree.storage;
    let collected = storage.stat(&job, OsStr::new(COLLECTED)).is_ok();
    let apply = Apply {
        tree,
        job,
        staging_name: name,
        record,
        tally: &Tally::default(),
    };
    let failed = |failures: Vec<crate::commit::Failure>| JobError::Unfinished {
        failed: failures.len(),
        first: failures.first().map(ToString::to_string).unwrap_or_default(),
        directory: PathBuf::from("."),
    };
    if !done {
        apply.publish(collected).map_err(failed)?;
        apply.mark_done().map_err(error("finishing the commit in"))?;
    }
    apply.clean(None).map_err(failed)
}

/// What a dead job has put outside its own directory, and the times of the root before it.
fn leftovers(
    storage: &dyn Storage,
    root: &Handle,
    name: &OsStr,
    job: &Handle,
    manifest: Option<&Manifest>,
) -> Result<(Leftovers, (Time, Time)), Errno> {
    let times = match manifest {
        Some(manifest) => manifest.times,
        None => {
            let now = storage.stat_handle(root)?;
            (now.atime, mtime_in(name).unwrap_or(now.mtime))
        }
    };
    let mut left = Leftovers::default();
    for entry in JournalEntry::decode_all(&read_file(storage, job, JOURNAL)?.unwrap_or_default()) {
        match entry {
            JournalEntry::Staging { dir, times } => left.staging.push((dir, times)),
            JournalEntry::Visible { path } => left.visible.push(path),
        }
    }
    Ok((left, times))
}

/// A whole small file; `None` if there is none.
fn read_file(storage: &dyn Storage, dir: &Handle, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let file = match storage.open(dir, OsStr::new(name), Access::Read) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let size = storage.stat_handle(&file)?.size;
    if size > FILE_MAX_BYTES {
        return Err(Errno::FBIG);
    }
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match storage.read(&file, &mut bytes[filled..], filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    bytes.truncate(filled);
    Ok(Some(bytes))
}
