//! Ending jobs whose process died: committed ones are finished, all others rolled back. Those that were kept are left alone.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use elbow_file::{Access, Errno, Handle, Storage, Time};

use crate::commit::{Apply, DEPARTED, DONE, Leftovers, RECORD, Record, Tally, Tree, UNDO, UndoPhase, remove_leftovers};
use crate::job::clock;
use crate::kept;
use crate::report::{JobError, RecoverAction, Recovered};
use crate::staging::{DROPPED, JOURNAL, JournalEntry, KEPT, MANIFEST, Manifest, is_job_name, mtime_in};

/// A recovery works with this many storage calls at once.
pub(crate) const THREADS: usize = 32;
/// A manifest, record or journal larger than this is not one of ours.
const FILE_MAX_BYTES: u64 = 1 << 30;
/// A job's own directory without a manifest may be a moment old: it is looked at again for two seconds. A job that
/// has none by then is dead; if it is only very slow, it finds its directory gone and fails.
const BIRTH_SECONDS: i64 = 10;
const BIRTH_LOOKS: usize = 40;
const BIRTH_PAUSE: Duration = Duration::from_millis(50);

/// Looks for dead jobs in a directory and ends each: a committed one forward, any other back. Jobs of other
/// hosts are left alone unless `force` says that they are dead, kept ones in any case ([`drop_kept`](crate::drop_kept)).
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
    let jobs = listed.into_iter().filter(|entry| is_job_name(&entry.name));
    jobs.map(|entry| recover_job(&**storage, root, &entry.name, force, is_alive))
        .collect()
}

pub(crate) fn error(tried: &'static str) -> impl Fn(Errno) -> JobError {
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
    let found = await_manifest(storage, root, name, &job).map_err(error("reading the manifest in"))?;
    let tree = Tree::new(storage, root.clone(), THREADS);
    let manifest = match found {
        Found::Ordinary(manifest) => manifest,
        Found::Kept(manifest) => return Ok(is_kept(name, manifest.as_ref())),
        Found::Dropped(manifest) => {
            kept::remove(&tree, name, &job)?;
            return Ok(kept::dropped(name, manifest.as_ref()));
        }
    };
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
    match find_record(storage, &job) {
        Ok(Some((record, stage))) => {
            return finish(storage, root, job, name, &record, stage).map(|(action, message)| say(action, message));
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

fn is_kept(name: &OsStr, manifest: Option<&Manifest>) -> Recovered {
    Recovered {
        job: name.to_string_lossy().into_owned(),
        message: "it failed and was kept; `elbow recover --drop` with this name removes it".into(),
        action: RecoverAction::Kept,
        command: manifest.map(command_of).unwrap_or_default(),
    }
}

pub(crate) fn command_of(manifest: &Manifest) -> Vec<OsString> {
    manifest.command.iter().cloned().map(OsString::from_vec).collect()
}

/// What the name of its manifest says of a job. The manifest is `None` if it is missing or torn, as after a crash in the
/// first moments of a job.
pub(crate) enum Found {
    /// It runs, died or committed.
    Ordinary(Option<Manifest>),
    Kept(Option<Manifest>),
    /// It was kept, and its removal has begun.
    Dropped(Option<Manifest>),
}

/// The manifest of a job that may have begun just now: its directory is made a moment before the manifest is
/// in it.
fn await_manifest(storage: &dyn Storage, root: &Handle, name: &OsStr, job: &Handle) -> Result<Found, Errno> {
    for _ in 0..BIRTH_LOOKS {
        let found = look_at(storage, job)?;
        if !matches!(found, Found::Ordinary(None)) || !is_young(storage, root, name) {
            return Ok(found);
        }
        std::thread::sleep(BIRTH_PAUSE);
    }
    look_at(storage, job)
}

/// Looks for the names in the order that a manifest takes them, so that it is found while it is renamed.
pub(crate) fn look_at(storage: &dyn Storage, job: &Handle) -> Result<Found, Errno> {
    type Make = fn(Option<Manifest>) -> Found;
    let names: [(&str, Make); 3] = [
        (MANIFEST, Found::Ordinary),
        (KEPT, Found::Kept),
        (DROPPED, Found::Dropped),
    ];
    for (name, found) in names {
        if let Some(bytes) = read_file(storage, job, name)? {
            return Ok(found(Manifest::decode(&bytes).ok()));
        }
    }
    Ok(Found::Ordinary(None))
}

fn is_young(storage: &dyn Storage, root: &Handle, name: &OsStr) -> bool {
    storage
        .stat(root, name)
        .is_ok_and(|stat| (clock().seconds - stat.mtime.seconds).abs() < BIRTH_SECONDS)
}

/// How far a commit record has been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Committed,
    /// All but the cleaning is done.
    Done,
    /// It was refused, and is being taken back.
    TakenBack(UndoPhase),
}

/// The commit record and how far it has been carried out; an error in words if it cannot be read.
pub(crate) fn find_record(storage: &dyn Storage, job: &Handle) -> Result<Option<(Record, Stage)>, String> {
    let undo = UNDO.into_iter().enumerate();
    let undo = undo.map(|(phase, name)| (name, Stage::TakenBack(UndoPhase(phase))));
    // In the order that a record takes its names, so that it is found while it is renamed.
    for (file, stage) in [(RECORD, Stage::Committed), (DONE, Stage::Done)]
        .into_iter()
        .chain(undo)
    {
        if let Some(bytes) = read_file(storage, job, file).map_err(|errno| errno.to_string())? {
            return Record::decode(&bytes)
                .map(|record| Some((record, stage)))
                .map_err(|e| e.to_string());
        }
    }
    Ok(None)
}

/// Carries a record out, or takes it back if that cannot be; gives what became of the job.
fn finish(
    storage: &dyn Storage,
    root: &Handle,
    job: Handle,
    name: &OsStr,
    record: &Record,
    stage: Stage,
) -> Result<(RecoverAction, String), JobError> {
    let departed = storage.stat(&job, OsStr::new(DEPARTED)).is_ok();
    let tree = Tree::new(storage, root.clone(), THREADS);
    let tally = Tally::default();
    let apply = Apply::new(tree, job.clone(), name, record, &tally, false);
    if let Stage::TakenBack(phase) = stage {
        apply
            .go_on_taking_back(phase)
            .map_err(|failures| unfinished(&failures))?;
        roll_back(storage, root, name, &job)?;
        let message = "its commit had been refused: nothing of it is left";
        return Ok((RecoverAction::RolledBack, message.into()));
    }
    if stage == Stage::Committed {
        if let Err(failures) = apply.publish(departed) {
            // Nothing of it is removed: among what it had published there may be what somebody has changed since.
            apply.take_back().map_err(|_| unfinished(&failures))?;
            kept::keep(storage, &job).map_err(error("keeping the job in"))?;
            let first = failures.first().map(ToString::to_string).unwrap_or_default();
            let message = format!(
                "it had committed, but that could not be finished ({first}): the tree is as it was before the job, and what \
                 the job made is kept; `elbow recover --drop` with this name removes it"
            );
            return Ok((RecoverAction::Kept, message));
        }
        apply.mark_done().map_err(error("finishing the commit in"))?;
    }
    apply.clean(None).map_err(|failures| unfinished(&failures))?;
    let message = "it had committed: everything is in its place";
    Ok((RecoverAction::Finished, message.into()))
}

fn unfinished(failures: &[crate::commit::Failure]) -> JobError {
    JobError::Unfinished {
        failed: failures.len(),
        first: failures.first().map(ToString::to_string).unwrap_or_default(),
        directory: PathBuf::from("."),
    }
}

/// Removes what is left of a job whose commit was taken back.
fn roll_back(storage: &dyn Storage, root: &Handle, name: &OsStr, job: &Handle) -> Result<(), JobError> {
    let manifest = match look_at(storage, job).map_err(error("reading the manifest in"))? {
        Found::Ordinary(manifest) | Found::Kept(manifest) | Found::Dropped(manifest) => manifest,
    };
    let tree = Tree::new(storage, root.clone(), THREADS);
    let left = leftovers(storage, root, name, job, manifest.as_ref());
    let (left, times) = left.map_err(error("reading the journal in"))?;
    remove_leftovers(&tree, name, &left, times, &Tally::default()).map_err(error("rolling back in"))
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
    for entry in read_journal(storage, job)? {
        match entry {
            JournalEntry::Staging { dir, times } => left.staging.push((dir, times)),
            JournalEntry::Visible { path } => left.visible.push(path),
        }
    }
    Ok((left, times))
}

pub(crate) fn read_journal(storage: &dyn Storage, job: &Handle) -> Result<Vec<JournalEntry>, Errno> {
    let bytes = read_file(storage, job, JOURNAL)?.unwrap_or_default();
    Ok(JournalEntry::decode_all(&bytes))
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
