//! The commit of a job that has staged all that it made, durably: from the last look at what it expects to the last step of its record.
//!
//! ```text
//!   turn      of the jobs that change what was there, one at a time
//!   look      is everything as the job saw it?
//!   rehearse  what can be tried, is tried
//!   record    written, and durable: this is the commit point
//!   publish   its steps; refused: taken back
//!   clean     what is no longer needed goes
//! ```
//!
//! It needs the storage and what the record holds, but nothing of the model: so it is done where the storage is.

use std::ffi::OsStr;
use std::path::Path;

use elbow_file::{Errno, Handle, RenameMode, Storage, Time};
use parking_lot::Mutex;
use tracing::{info, warn};

use super::apply::Apply;
use super::check::Expectations;
use super::failure::Failure;
use super::keep::RecordDraft;
use super::prepare;
use super::record::Record;
use super::tree::Tree;
use super::turn::{Turn, no_turn};
use super::undo::Undo;
use super::watch::Watch;
use crate::clock::clock;
use crate::execute::Journal;
use crate::job_files::{RECORD, RECORD_DRAFT};
use crate::liveness::Lock;
use crate::missing::none_if_missing;
use crate::recorder::EndStep;
use crate::report::{Cause, JobError, cause_of};
use crate::staging::JournalEntry;
use crate::step_counter::StepCounter;

/// See the module's header.
pub(crate) struct StagedJob<'a> {
    pub(crate) storage: &'a dyn Storage,
    pub(crate) root: &'a Handle,
    /// The directory of the job, for messages.
    pub(crate) path: &'a Path,
    /// The job's own directory.
    pub(crate) job: Handle,
    pub(crate) staging_name: &'a OsStr,
    /// Of the manifest.
    pub(crate) lock: &'a Lock,
    pub(crate) journal: &'a Mutex<Option<Journal>>,
    pub(crate) threads: usize,
    /// The end was asked for, before the job has committed.
    pub(crate) is_ended: &'a (dyn Fn() -> bool + Sync),
    /// The times of the directory as the job saw them last, if nothing in the record sets them.
    pub(crate) root_times: Option<(Time, Time)>,
}

impl StagedJob<'_> {
    fn tree(&self) -> Tree<'_> {
        Tree::new(self.storage, self.root.clone(), self.threads).of_job(Some(self.job.clone()), self.lock)
    }

    /// Looks, in the turn of the job, whether it could be committed now, and completes the record; or says why not.
    pub(crate) fn look<W: Watch>(
        &self,
        record: &mut Record,
        expectations: &Expectations,
        watch: &mut W,
    ) -> Result<Turn<'_>, Cause> {
        let wait = || Turn::wait(self.storage, self.root, record, self.staging_name, self.is_ended);
        let turn = match watch.watched(EndStep::Turn, &StepCounter::default(), wait) {
            Ok(Some(turn)) => turn,
            Ok(None) => return Err(Cause::Asked),
            Err(errno) => return Err(Cause::Storage(no_turn(errno))),
        };
        // In the turn: two jobs that looked at the same time would each find the tree as it was before the other.
        let counter = expectations.counter();
        let look = || expectations.differences(&self.tree(), self.staging_name, record.wins, &counter);
        if let Some(cause) = watch.watched(EndStep::Check, &counter, look) {
            return Err(cause);
        }
        info!("rehearses what the record asks for");
        let last_look = || prepare::last_look(record, &self.tree(), self.staging_name, &|trials| self.note(trials));
        watch.recorded(EndStep::Rehearse, last_look)?;
        Ok(turn)
    }

    /// Others have committed that belong to it: where it may be kept, whatever ends this process from now on leaves a kept job. Where
    /// that cannot be written, it goes on all the same.
    pub(crate) fn bind(&self, record: &Record, drafted: &mut RecordDraft) {
        if record.keeps
            && let Err(errno) = drafted.keep_beside(self.storage, &self.job, record)
        {
            warn!(%errno, "a job cannot be marked as one that goes on");
        }
    }

    /// Commits, or says why not.
    pub(crate) fn commit<W: Watch>(
        &self,
        record: &mut Record,
        drafted: &mut RecordDraft,
        expectations: &Expectations,
        watch: &mut W,
    ) -> Result<Result<(), Cause>, JobError> {
        let turn = match self.look(record, expectations, watch) {
            Ok(turn) => turn,
            Err(cause) => return Ok(Err(cause)),
        };
        if let Err(errno) = watch.recorded(EndStep::Record, || self.write_record(record, drafted)) {
            return Ok(Err(Cause::Storage(format!("writing the commit record: {errno}"))));
        }
        // The commit point has passed.
        info!("the commit record is durable");
        let publishing = record.publishing();
        let job = self.job.clone();
        let apply = Apply::new(self.tree(), job, self.staging_name, record, &publishing, true);
        if let Err(failures) = watch.watched(EndStep::Publish, &publishing, || publish(&apply)) {
            return self.take_back(&apply, record.keeps, &failures, watch);
        }
        // Before the times of the directory are set: the end of the turn changes them.
        drop(turn);
        let cleaning = record.cleaning();
        let apply = apply.counted_by(&cleaning);
        watch.watched(EndStep::CleanUp, &cleaning, || self.clean(&apply))?;
        Ok(Ok(()))
    }

    fn note(&self, trials: &[JournalEntry]) -> Result<(), Errno> {
        let mut journal = self.journal.lock();
        journal.as_mut().ok_or(Errno::BADF)?.append_trials(self.storage, trials)
    }

    /// Everything is durable by now; so is the record before it has its name. A record that may not last loses its name again: the
    /// roll back that follows must not be taken for a commit when it dies.
    fn write_record(&self, record: &Record, drafted: &mut RecordDraft) -> Result<(), Errno> {
        let (storage, job) = (self.storage, &self.job);
        let named = self
            .lock
            .check(storage)
            .and_then(|()| drafted.give_name(storage, job, RECORD, record));
        named.or_else(|errno| {
            let (name, draft) = (OsStr::new(RECORD), OsStr::new(RECORD_DRAFT));
            let unnamed = storage.rename(job, name, job, draft, RenameMode::Replace);
            none_if_missing(unnamed.or_else(|_| storage.unlink(job, name)))?;
            Err(errno)
        })
    }

    /// A step was refused: those before it are taken back.
    fn take_back<W: Watch>(
        &self,
        apply: &Apply<'_>,
        keeps: bool,
        failures: &[Failure],
        watch: &mut W,
    ) -> Result<Result<(), Cause>, JobError> {
        for failure in failures {
            warn!(%failure, "a step of the record is refused");
        }
        let take_back = || Undo::of(apply).take_back(keeps);
        let taken_back = watch.watched(EndStep::RollBack, &StepCounter::default(), take_back);
        taken_back.map_err(|stuck| {
            for failure in &stuck {
                warn!(%failure, "a step cannot be taken back");
            }
            self.unfinished(failures)
        })?;
        Ok(Err(cause_of(failures, clock())))
    }

    fn clean(&self, apply: &Apply<'_>) -> Result<(), JobError> {
        // It is about to be removed; an open file would leave a hidden one behind on some storages.
        drop(self.journal.lock().take());
        apply
            .clean(self.root_times)
            .map_err(|failures| self.unfinished(&failures))?;
        match self.storage.sync_all(self.root) {
            // The job has taken its own right to read the directory away.
            Err(Errno::ACCESS) => Ok(()),
            other => other.map_err(JobError::storage("syncing", self.path)),
        }
    }

    fn unfinished(&self, failures: &[Failure]) -> JobError {
        JobError::Unfinished {
            failed: failures.len(),
            first: failures.first().map(Failure::to_string).unwrap_or_default(),
            directory: self.path.to_owned(),
        }
    }
}

fn publish(apply: &Apply<'_>) -> Result<(), Vec<Failure>> {
    apply.publish(false)?;
    apply.mark_done().map_err(|errno| vec![Failure::of_record(errno)])
}
