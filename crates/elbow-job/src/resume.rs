//! Going on with a kept job: its command had succeeded, all that it made is staged, and only the storage had refused to publish it.
//!
//! ```text
//!   resume, kept               it is left alone until somebody names it
//!   resume, kept, commit       what it expects was looked at once more, and it is about to commit
//!   resume, job, commit        committed: whoever finds it carries it out
//!   resume, job                refused again, and taken back: a recovery marks it as kept
//! ```
//!
//! These are the names of its record and its manifest. A death leaves one of them, and in none of them anything of the job is lost.

use std::ffi::OsStr;
use std::sync::Arc;

use elbow_file::{Errno, Handle, RenameMode, ShowName, Storage};

use crate::clock::clock;
use crate::commit::{
    Apply, Failure, Record, Tree, Turn, Undo, conflicts_since, last_look, lost_content, no_turn, write_sealed,
    write_why,
};
use crate::execute::Journal;
use crate::found::{THREADS, error, read_journal_to, read_rest, unfinished};
use crate::job_files::RECORD;
use crate::kept::{self, Kept};
use crate::missing::{none_if_missing, sync_dir};
use crate::options::OnConflict;
use crate::recover::{FINISHED, Recovery};
use crate::report::{self, Cause, JobError, Outcome, RecoverAction, Recovered, cause_of};
use crate::staging::{JournalEntry, KEPT, MANIFEST, is_job_name};
use crate::step_counter::StepCounter;

/// Commits a kept job of a directory, which is named as its own staging directory is. If that cannot be done, it is kept as before.
///
/// # Errors
/// [`JobError::NotWhole`] for a job that is not kept, or not with all that it made; [`JobError::Unfinished`] as from
/// [`Job::commit`](crate::Job::commit).
pub fn resume(
    storage: &Arc<dyn Storage>,
    root: &Handle,
    name: &OsStr,
    on_conflict: OnConflict,
) -> Result<Outcome, JobError> {
    let storage = &**storage;
    let kept = kept::find(storage, root, name).map_err(|found| match found {
        JobError::NotKept { job, found } => JobError::NotWhole { job, found },
        other => other,
    })?;
    let not_whole = |found: &str| JobError::NotWhole {
        job: name.to_string_lossy().into_owned(),
        found: found.into(),
    };
    if kept.is_dropped {
        return Err(not_whole("its removal has begun"));
    }
    let recovery = Recovery::new(storage, root, false)?;
    let distrust = recovery.distrusts(name, kept.manifest.as_ref(), &kept.own);
    if let Some(why) = distrust.map_err(error("reading the attributes in"))? {
        return Err(not_whole(why));
    }
    let rest =
        read_rest(storage, &kept.own).map_err(|found| not_whole(&format!("its record cannot be read: {found}")))?;
    let rest = rest.ok_or_else(|| not_whole("its command failed, or not all that it made is stored (`elbow resume` brings back what was saved elsewhere)"))?;
    let lost = lost_content(storage, &kept.own.handle, &rest).map_err(error("looking at the patches in"))?;
    if let Some(patch) = lost.first() {
        return Err(not_whole(&format!("the new content of {} is lost", patch.path.shown())));
    }
    let resumption = Resumption {
        storage,
        root,
        name,
        kept: &kept,
        wins: on_conflict == OnConflict::Overwrite,
    };
    match resumption.commit(rest)? {
        Ok(()) => Ok(Outcome::Committed),
        Err(cause) => {
            write_why(storage, &kept.own.handle, &cause);
            let kept = report::Kept {
                path: name.into(),
                is_whole: true,
                missing: Vec::new(),
                saved: None,
                is_all_saved: false,
            };
            Ok(Outcome::Kept(cause, kept))
        }
    }
}

/// Ends one dead job, which is named as its own staging directory is; one that was kept with all that it made goes on, as by
/// [`resume`].
///
/// # Errors
/// [`JobError::NotWhole`] for a name that is not there, or a job that cannot go on; others when a step fails, after which it can be called again.
pub fn retry(storage: &Arc<dyn Storage>, root: &Handle, name: &OsStr, force: bool) -> Result<Recovered, JobError> {
    let not_there = || JobError::NotWhole {
        job: name.to_string_lossy().into_owned(),
        found: "there is no such job here".into(),
    };
    if !is_job_name(name) {
        return Err(not_there());
    }
    let ended = Recovery::new(&**storage, root, force)?.end(name)?;
    let ended = ended.ok_or_else(not_there)?;
    if ended.action != RecoverAction::Kept {
        return Ok(ended);
    }
    Ok(match resume(storage, root, name, OnConflict::RollBack)? {
        Outcome::Kept(cause, _) => Recovered {
            message: format!("it cannot be stored yet ({cause}), and is kept as before"),
            ..ended
        },
        _ => Recovered {
            action: RecoverAction::Finished,
            message: FINISHED.into(),
            ..ended
        },
    })
}

/// A kept job that goes on.
struct Resumption<'a> {
    storage: &'a dyn Storage,
    root: &'a Handle,
    name: &'a OsStr,
    kept: &'a Kept,
    wins: bool,
}

impl Resumption<'_> {
    fn tree(&self) -> Tree<'_> {
        let job = self.kept.own.handle.clone();
        Tree::new(self.storage, self.root.clone(), THREADS).of_job(Some(job), &self.kept.lock)
    }

    /// Commits, or says why not.
    fn commit(&self, mut rest: Record) -> Result<Result<(), Cause>, JobError> {
        let turn = match Turn::wait(self.storage, self.root, &rest, self.name, || false) {
            Ok(turn) => turn,
            Err(errno) => return Ok(Err(Cause::Storage(no_turn(errno)))),
        };
        if let Some(cause) = conflicts_since(&rest, &self.tree(), self.name, self.wins) {
            return Ok(Err(cause));
        }
        (rest.keeps, rest.wins) = (true, self.wins);
        if let Err(cause) = last_look(&mut rest, &self.tree(), self.name, &|trials| self.note(trials)) {
            return Ok(Err(cause));
        }
        if let Err(errno) = self.begin(&rest) {
            self.begin_no_more().map_err(error("keeping the job in"))?;
            return Ok(Err(Cause::Storage(format!("writing the commit record: {errno}"))));
        }
        let counter = StepCounter::default();
        let apply = Apply::new(
            self.tree(),
            self.kept.own.handle.clone(),
            self.name,
            &rest,
            &counter,
            true,
        );
        if let Err(failures) = publish(&apply) {
            Undo::of(&apply).take_back(true).map_err(|_| unfinished(&failures))?;
            kept::keep(self.storage, &self.kept.own.handle).map_err(error("keeping the job in"))?;
            return Ok(Err(cause_of(&failures, clock())));
        }
        drop(turn);
        apply.clean(None).map_err(|failures| unfinished(&failures))?;
        self.storage.sync_all(self.root).map_err(error("syncing"))?;
        Ok(Ok(()))
    }

    /// What is about to be tried, for whoever drops the job if we die over that.
    fn note(&self, trials: &[JournalEntry]) -> Result<(), Errno> {
        let own = &self.kept.own;
        let (_, end) = read_journal_to(self.storage, own)?;
        Journal::reopen(self.storage, &own.handle, end)?.append_trials(self.storage, trials)
    }

    /// Writes the record and makes the job one that has committed.
    fn begin(&self, rest: &Record) -> Result<(), Errno> {
        let bytes = rest.encode_for(self.storage)?;
        write_sealed(self.storage, &self.kept.own.handle, OsStr::new(RECORD), &bytes)?;
        self.rename_manifest(KEPT, MANIFEST)
    }

    /// What could not be written, or may not last, is taken back: the job is kept as it was.
    fn begin_no_more(&self) -> Result<(), Errno> {
        none_if_missing(self.storage.unlink(&self.kept.own.handle, OsStr::new(RECORD)))?;
        none_if_missing(self.rename_manifest(MANIFEST, KEPT)).map(|_| ())
    }

    fn rename_manifest(&self, from: &str, to: &str) -> Result<(), Errno> {
        let (job, from, to) = (&self.kept.own.handle, OsStr::new(from), OsStr::new(to));
        self.storage.rename(job, from, job, to, RenameMode::Replace)?;
        sync_dir(self.storage, job)
    }
}

fn publish(apply: &Apply<'_>) -> Result<(), Vec<Failure>> {
    apply.publish(false)?;
    apply.mark_done().map_err(|errno| vec![Failure::of_record(errno)])
}
