//! The end of a job: drain, check, record, apply; or roll back.

mod aliases;
mod apply;
mod check;
mod content;
mod draft;
mod failure;
mod keep;
mod late;
mod leftovers;
mod links;
mod parked;
mod prepare;
mod record;
mod save;
mod saved;
mod sealed;
mod server;
mod staged;
mod together;
mod tree;
mod turn;
mod undo;
mod undo_log;
mod waiting;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use elbow_file::{Errno, FarEnd, Handle, Time, errno_from_elsewhere};
use tracing::{error, info, info_span};

use crate::api::Ino;
use crate::behaviours::{self, Behaviour};
use crate::clock::clock;
use crate::execute::probe_links;
use crate::far_orders::{CommitEnd, CommitMessage};
use crate::far_send;
use crate::fetch::Fetcher;
use crate::job::Job;
use crate::job_files::{RECORD, RESUME};
use crate::missing::{none_if_missing, sync_dir};
use crate::model::{Model, Staging};
use crate::options::{OnConflict, Publish};
use crate::recorder::EndStep;
use crate::report::{Cause, JobError, Keep, Kept, Outcome, Phase, Progress, ROLLING_BACK, is_no_room};
use crate::shared::Shared;
use crate::step_counter::StepCounter;
pub(crate) use apply::Apply;
pub(crate) use check::{CommitStage, Expectations, conflicts_since};
pub(crate) use failure::{Failure, Refusal};
use keep::RemainingWork;
pub(crate) use keep::{RecordDraft, lost_content, write_why};
pub(crate) use leftovers::{Leftovers, StagingHolder, put_times_back, remove_job_dir, remove_leftovers, remove_part};
pub(crate) use prepare::last_look;
#[cfg(test)]
pub(crate) use record::Attributes as RecordAttributes;
pub(crate) use record::{Departure, MAGIC as RECORD_MAGIC, Record, Slot};
pub(crate) use saved::{
    Content as SavedContent, Object as SavedObject, PatchFile, Position, Saved, SavedDir, SavedError, candidates,
    find_left, find_saved,
};
pub(crate) use sealed::write_sealed;
pub(crate) use staged::StagedJob;
pub use together::{Ended, StagedWork};
pub(crate) use tree::{Part, Tree};
pub(crate) use turn::{Turn, no_turn, remove_old_turn};
pub(crate) use undo::Undo;
use watch::Watched;
pub(crate) use watch::{Hook, Unwatched};

impl Job {
    /// Ends the job: all of it reaches the storage under its own names, or nothing of it stays.
    ///
    /// Blocks until that is so; `progress` is called about ten times a second. A background error, a
    /// conflict or a failure before the commit point rolls the job back.
    ///
    /// # Errors
    /// [`JobError::Unfinished`] when a step after the commit point failed, other variants when not even the
    /// roll back could be done.
    pub fn commit(&self, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, JobError> {
        self.commit_or_keep(Keep::Nothing, progress)
    }

    /// As [`Job::commit`], but of a job that cannot be committed more than nothing may be kept.
    ///
    /// # Errors
    /// As [`Job::commit`].
    pub fn commit_or_keep(&self, keep: Keep, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, JobError> {
        self.end(keep, progress, |job, progress| job.shared.try_commit(keep, progress))
    }

    /// Keeps the job with all that it made, to be gone on with later, and commits nothing: for one of several whose results belong together.
    /// What cannot be stored is rolled back.
    ///
    /// # Errors
    /// As [`Job::commit`].
    pub fn postpone(&self, why: &str, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, JobError> {
        self.end(Keep::Complete, progress, |job, progress| {
            job.shared.postpone(Cause::Storage(why.to_owned()), progress)
        })
    }

    /// Ends the job with nothing of it left; with `keep`, its staging area stays for inspection.
    ///
    /// # Errors
    /// When the staging area cannot be removed.
    pub fn roll_back(&self, keep: bool, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, JobError> {
        let keep = if keep { Keep::Everything } else { Keep::Nothing };
        self.end(keep, progress, |_, _| Ok(Err(Refused::torn(Cause::Asked))))
    }

    /// Makes a [`Job::commit`] that is still draining, or saves what could not be drained (in another thread), roll back instead. One
    /// that has come further is not disturbed.
    pub fn interrupt(&self) {
        let mut state = self.shared.state.lock();
        state.is_interrupted = true;
        state.model.graph.stopped = true;
        self.shared.progress.notify_all();
    }

    fn end(
        &self,
        keep: Keep,
        progress: &mut dyn FnMut(&Progress),
        attempt: impl FnOnce(&Self, &mut dyn FnMut(&Progress)) -> Result<Attempt, JobError>,
    ) -> Result<Outcome, JobError> {
        let _telling = info_span!("end", job = ?self.shared.staging_name).entered();
        self.freeze();
        let attempt = attempt(self, progress);
        self.ended(attempt, keep, progress)
    }

    /// Makes of an attempt what becomes of the job.
    fn ended(
        &self,
        attempt: Result<Attempt, JobError>,
        keep: Keep,
        progress: &mut Hook<'_>,
    ) -> Result<Outcome, JobError> {
        let ended = match attempt {
            Err(error) => Err(error),
            Ok(Ok(())) => Ok(Outcome::Committed),
            Ok(Err(refused)) => self.refuse(refused, keep, progress),
        };
        // Whatever is left now is a recovery's.
        self.shared.lock.give_up(&*self.shared.storage);
        told(ended)
    }

    /// Keeps what shall be kept of a job that is not committed, and forgets the rest.
    fn refuse(&self, refused: Refused, keep: Keep, progress: &mut Hook<'_>) -> Result<Outcome, JobError> {
        let Refused {
            mut cause,
            mut rest,
            mut is_in_hand,
        } = refused;
        let keeps_whole = match keep {
            Keep::Nothing => false,
            Keep::Complete => cause.is_of_the_storage(),
            Keep::Everything => true,
        };
        if let Some(rest) = rest.as_deref_mut().filter(|_| keeps_whole) {
            match self.shared.keep_whole(&cause, rest, progress) {
                Ok(()) => return Ok(self.kept(cause, true)),
                Err(NotKept { failures, is_lost }) => {
                    is_in_hand = cause.is_of_the_storage() && !is_lost;
                    cause = cause.and(&failures);
                }
            }
        }
        // close(2) may tell only now of what was lost, so it comes last, and what was lost is not worth saving the
        // rest.
        let may_save = is_in_hand && keep != Keep::Nothing && !self.shared.options.save.is_empty();
        if may_save && !self.shared.close_rest() {
            match self.shared.save(&cause, rest.is_some(), progress) {
                Ok(kept) => return Ok(Outcome::Kept(cause, kept)),
                Err(refused) => cause = cause.beside(refused),
            }
        }
        // With it, what is open of it.
        if rest.take().is_some() && keep != Keep::Nothing {
            self.shared
                .forget_rest()
                .map_err(self.shared.storage_error(ROLLING_BACK))
                .map_err(not_rolled_back(&cause))?;
        }
        match keep {
            Keep::Everything => self.keep(cause, progress),
            _ => self.roll_back_for(cause, progress),
        }
    }

    fn roll_back_for(&self, cause: Cause, progress: &mut Hook<'_>) -> Result<Outcome, JobError> {
        self.shared.undo(progress).map_err(not_rolled_back(&cause))?;
        Ok(Outcome::RolledBack(cause))
    }

    fn kept(&self, cause: Cause, is_whole: bool) -> Outcome {
        let kept = Kept {
            path: self.shared.path.join(&*self.shared.staging_name),
            is_whole,
            missing: self.shared.state.lock().model.inodes.missing(),
            saved: None,
            is_all_saved: false,
        };
        Outcome::Kept(cause, kept)
    }

    /// Leaves everything that the job wrote in its staging area; a job that wrote nothing new has none.
    fn keep(&self, cause: Cause, progress: &mut dyn FnMut(&Progress)) -> Result<Outcome, JobError> {
        // What cannot be stored any more is not there to be inspected; why, the caller is told by the cause.
        let _ = self.shared.drain(progress);
        match self.staging_path() {
            Some(_) => {
                self.shared.stop(progress);
                let failed = self.shared.storage_error("marking as kept what the job wrote in");
                self.shared
                    .mark_kept(&cause, None)
                    .map_err(|(errno, _)| failed(errno))?;
                Ok(self.kept(cause, false))
            }
            None => self.roll_back_for(cause, progress),
        }
    }
}

/// Logs how a job has ended.
fn told(ended: Result<Outcome, JobError>) -> Result<Outcome, JobError> {
    match &ended {
        Ok(Outcome::Committed) => info!("committed"),
        Ok(Outcome::RolledBack(cause)) => info!(%cause, "rolled back"),
        Ok(Outcome::Kept(cause, _)) => info!(%cause, "kept"),
        Err(error) => error!(%error, "neither committed nor rolled back"),
    }
    ended
}

/// What became of an attempt to commit.
type Attempt = Result<(), Refused>;

/// A job that cannot be committed.
struct Refused {
    cause: Cause,
    /// What is left to be done, if all that the job made is staged and durable.
    rest: Option<Box<RemainingWork>>,
    /// All that the storage has not taken is in hand still.
    is_in_hand: bool,
}

/// Why a job that is staged could not be kept.
struct NotKept {
    failures: Vec<Failure>,
    /// A part of what it made is not there any more.
    is_lost: bool,
}

impl Refused {
    /// Not all of it is there.
    fn torn(cause: Cause) -> Self {
        Self {
            cause,
            rest: None,
            is_in_hand: false,
        }
    }

    /// The storage has not taken all of it.
    fn by_the_storage(cause: Cause) -> Self {
        Self {
            is_in_hand: cause.is_of_the_storage(),
            ..Self::torn(cause)
        }
    }

    /// All of it is there.
    fn whole(cause: Cause, rest: RemainingWork) -> Self {
        Self {
            rest: Some(Box::new(rest)),
            ..Self::torn(cause)
        }
    }
}

/// What is told of a job that is not committed, and of which something stays.
fn not_rolled_back(cause: &Cause) -> impl Fn(JobError) -> JobError {
    move |failed| match (cause, failed) {
        // The far end rolls it back.
        (_, JobError::Parted) => JobError::Parted,
        (Cause::Asked, failed) => failed,
        (cause, failed) => JobError::NotRolledBack {
            cause: cause.clone(),
            failed: failed.into(),
        },
    }
}

/// The storage has refused what was tried.
fn refused(tried: &'static str) -> impl Fn(Errno) -> Refused {
    move |errno| Refused::by_the_storage(Cause::Storage(tried.into()).with(errno))
}

impl Shared {
    fn storage_error(&self, tried: &'static str) -> impl Fn(Errno) -> JobError {
        JobError::storage(tried, &self.path)
    }

    fn threads(&self) -> usize {
        self.state.lock().pool.limit()
    }

    /// The command did not get the answers that it would have got without a job: it may have left undone what it would have done.
    fn was_misled(&self) -> bool {
        self.state.lock().model.was_misled.get()
    }

    fn tree(&self) -> Tree<'_> {
        let job = self.state.lock().model.inodes.job_dir();
        Tree::new(&*self.storage, self.root.clone(), self.threads()).of_job(job, &self.lock)
    }

    /// Brings all of the job into its staging area: gives what is left to be done and the job's own directory, or nothing if there is nothing to
    /// be done. With `keeps`, what is taken back again is kept.
    fn gather(self: &Arc<Self>, keeps: bool, progress: &mut Hook<'_>) -> Result<Option<(Record, Handle)>, Refused> {
        let drained = match self.drain(progress) {
            // A disk that was full may have room by now. Where the storage has lost something, more would be stored for
            // nothing.
            Err(cause) if keeps && cause.may_pass() && !self.was_misled() && !self.close_rest() => {
                self.drain_again(cause, progress)
            }
            drained => drained,
        };
        drained.map_err(Refused::by_the_storage)?;
        let (mut record, job) = {
            let state = self.state.lock();
            (draft::draft(&state.model, false), state.model.inodes.job_dir())
        };
        if record.is_empty() && job.is_none() {
            return Ok(None);
        }
        let job = match job {
            Some(job) => job,
            None => self
                .make_job_dir(progress)
                .map_err(refused("making the staging directory"))?,
        };
        if self.state.lock().model.asks_for_link_attributes() {
            let can = probe_links(&*self.storage, &job).map_err(refused("trying whether links have attributes"))?;
            let mut state = self.state.lock();
            state.model.traits.learn_link_attributes(can);
            record = draft::draft(&state.model, false);
        }
        // What was published eagerly has to be hidden before the job is kept.
        record.keeps = keeps && self.options.publish == Publish::Staged;
        Ok(Some((record, job)))
    }

    /// The same, and makes it durable.
    fn stage(
        self: &Arc<Self>,
        keeps: bool,
        progress: &mut Hook<'_>,
    ) -> Result<Option<(RemainingWork, Handle)>, Refused> {
        let Some((record, job)) = self.gather(keeps, progress)? else {
            return Ok(None);
        };
        let drafted = self
            .recording
            .step(EndStep::Record, &StepCounter::default(), || {
                RecordDraft::write(&*self.storage, &job, &record)
            })
            .map_err(refused("writing the commit record"))?;
        // Durable before anything is looked at, because that is what takes long, and others change things meanwhile.
        let sync = || self.storage.sync_all(&job);
        self.watched(progress, EndStep::Sync, &StepCounter::default(), sync)
            // What it has not made durable may be lost, and is not in hand any more.
            .map_err(|errno| Refused::torn(Cause::Storage("syncing what was written".into()).with(errno)))?;
        Ok(Some((RemainingWork { record, drafted }, job)))
    }

    fn postpone(self: &Arc<Self>, cause: Cause, progress: &mut Hook<'_>) -> Result<Attempt, JobError> {
        Ok(match self.stage(true, progress) {
            Ok(None) => Ok(()),
            Ok(Some((rest, _))) => Err(Refused::whole(cause, rest)),
            Err(refused) => Err(refused),
        })
    }

    /// Commits, or says why not.
    fn try_commit(self: &Arc<Self>, keep: Keep, progress: &mut Hook<'_>) -> Result<Attempt, JobError> {
        if let Some(far) = self.storage.far_end() {
            return self.commit_there(far, keep, progress);
        }
        let (mut rest, job) = match self.stage(keep != Keep::Nothing, progress) {
            Ok(Some(staged)) => staged,
            Ok(None) => return Ok(Ok(())),
            Err(refused) => return Ok(Err(refused)),
        };
        let committed = self.commit_staged(&mut rest, job, CommitStage::Alone, &|| self.is_stopped(), progress)?;
        Ok(committed.map_err(|cause| Refused::whole(cause, rest)))
    }

    /// The same, where the storage is.
    fn commit_there(
        self: &Arc<Self>,
        far: &dyn FarEnd,
        keep: Keep,
        progress: &mut Hook<'_>,
    ) -> Result<Attempt, JobError> {
        match self.gather(keep != Keep::Nothing, progress) {
            Ok(Some((record, job))) => self.order_commit(far, record, &job, CommitStage::Alone, progress),
            Ok(None) => Ok(Ok(())),
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Orders it there, or only to look whether it could be done.
    fn order_commit(
        self: &Arc<Self>,
        far: &dyn FarEnd,
        mut record: Record,
        job: &Handle,
        stage: CommitStage,
        progress: &mut Hook<'_>,
    ) -> Result<Attempt, JobError> {
        record.wins = self.options.on_conflict == OnConflict::Overwrite;
        let looks_only = stage == CommitStage::Look;
        let expectations = stage.expectations(&self.state.lock().model);
        let message = CommitMessage {
            name: self.staging_name.to_os_string(),
            record: record.encode(),
            expectations,
            root_times: self.final_root_times(),
            looks_only,
            is_bound: stage == CommitStage::Bound,
        };
        let has_to = record.has_to_commit(message.is_bound);
        let order = far_send::commit_order(message);
        let is_ended = || !has_to && self.is_stopped();
        let commit = || far_send::commit(far, job, &order, &self.pulse_counts(), &is_ended);
        let failed = self.storage_error("committing the job in");
        let step = if looks_only { EndStep::Check } else { EndStep::Publish };
        let ended = self.watched(progress, step, &StepCounter::default(), commit);
        let ended = ended.map_err(|errno| match errno {
            Errno::NOTCONN => JobError::Disconnected {
                directory: self.path.clone(),
            },
            errno => failed(errno),
        });
        let ended = match ended {
            // It has never left: the record is too long for one message.
            Err(JobError::Storage {
                errno: Errno::MSGSIZE, ..
            }) => {
                let cause = Cause::Storage("the commit record is too long to be sent (64 MiB)".into());
                let drafted = RecordDraft::unknown();
                return Ok(Err(Refused::whole(cause, RemainingWork { record, drafted })));
            }
            ended => ended?,
        };
        Ok(match ended {
            CommitEnd::Ready | CommitEnd::Committed => Ok(()),
            CommitEnd::NoRecord(cause) => Err(Refused::by_the_storage(cause)),
            CommitEnd::NotDurable(cause) => Err(Refused::torn(cause)),
            CommitEnd::Refused(cause) => {
                // What it wrote is under one name or another, and found by that.
                let drafted = RecordDraft::unknown();
                Err(Refused::whole(cause, RemainingWork { record, drafted }))
            }
            CommitEnd::Unfinished { failed, first } => {
                return Err(JobError::Unfinished {
                    failed,
                    first,
                    directory: self.path.clone(),
                });
            }
            CommitEnd::Failed(errno) => return Err(failed(errno_from_elsewhere(errno))),
        })
    }

    /// Commits what is staged, or says why not.
    fn commit_staged(
        self: &Arc<Self>,
        RemainingWork { record, drafted }: &mut RemainingWork,
        job: Handle,
        stage: CommitStage,
        is_ended: &(dyn Fn() -> bool + Sync),
        progress: &mut Hook<'_>,
    ) -> Result<Result<(), Cause>, JobError> {
        let expectations = stage.expectations(&self.state.lock().model);
        record.wins = self.options.on_conflict == OnConflict::Overwrite;
        let staged = self.staged_job(job, is_ended);
        if stage == CommitStage::Bound {
            staged.bind(record, drafted);
        }
        let mut watch = Watched { shared: self, progress };
        staged.commit(record, drafted, &expectations, &mut watch)
    }

    fn staged_job<'s>(&'s self, job: Handle, is_ended: &'s (dyn Fn() -> bool + Sync)) -> StagedJob<'s> {
        StagedJob {
            storage: &*self.storage,
            root: &self.root,
            path: &self.path,
            job,
            staging_name: &self.staging_name,
            lock: &self.lock,
            journal: &self.journal,
            threads: self.threads(),
            is_ended,
            root_times: self.final_root_times(),
        }
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().model.graph.stopped
    }

    /// Makes a job a kept one that can go on, or says what is missing.
    fn keep_whole(&self, cause: &Cause, rest: &mut RemainingWork, progress: &mut Hook<'_>) -> Result<(), NotKept> {
        self.stop(progress);
        let failed = |errno| NotKept {
            failures: vec![failure::failure("keep", Path::new(""), errno)],
            is_lost: false,
        };
        let job = self
            .state
            .lock()
            .model
            .inodes
            .job_dir()
            .ok_or(Errno::NOENT)
            .map_err(failed)?;
        let lost = keep::lost_content(&*self.storage, &job, &rest.record).map_err(failed)?;
        if !lost.is_empty() {
            let failure =
                |patch: &&record::Patch| failure::failure("keep the new content of", &patch.path, Errno::NOSPC);
            return Err(NotKept {
                failures: lost.iter().map(failure).collect(),
                is_lost: true,
            });
        }
        self.mark_kept(cause, Some(rest)).map_err(|(errno, is_lost)| NotKept {
            is_lost,
            ..failed(errno)
        })
    }

    /// A job that might have gone on is rolled back: nobody is to take it for one that goes on.
    fn forget_rest(&self) -> Result<(), Errno> {
        // A storage that does not answer must not hold up who asks whether the job goes on: not while the state is locked.
        let job = self.state.lock().model.inodes.job_dir();
        match job {
            Some(job) => none_if_missing(self.storage.unlink(&job, OsStr::new(RESUME))).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The root's times as the job saw them, if nothing in the record sets them.
    fn final_root_times(&self) -> Option<(Time, Time)> {
        let state = self.state.lock();
        let root = state.model.inodes.at(Ino::ROOT);
        Some((root.atime, root.mtime))
    }

    /// A job that only changes old objects has no directory of its own before its record is written.
    fn make_job_dir(self: &Arc<Self>, progress: &mut Hook<'_>) -> Result<Handle, Errno> {
        Fetcher::of(self).look_into_root();
        let mut state = self.state.lock();
        state.model.inodes.dir_at_mut(Ino::ROOT).staging = Staging::Wanted;
        state.model.scheduler().queue(Ino::ROOT);
        self.call_worker(&mut state);
        self.recording.step(EndStep::Stage, &StepCounter::default(), || {
            self.wait_idle(&mut state, progress, Phase::Syncing);
        });
        let refused = state.errors.last().map(|error| Errno::from_raw_os_error(error.errno));
        state.model.inodes.job_dir().ok_or(refused.unwrap_or(Errno::IO))
    }

    /// Brings everything queued to the storage and gives directories their final attributes, or says why not.
    pub(crate) fn drain(self: &Arc<Self>, progress: &mut dyn FnMut(&Progress)) -> Result<(), Cause> {
        self.recording.step(EndStep::Drain, &StepCounter::default(), || {
            self.tell_versions_apart(progress);
            self.drain_content(progress)?;
            self.close_files();
            let mut state = self.state.lock();
            state.model.finish_directories();
            self.drained(&mut state, progress)
        })
    }

    /// Where times are whole seconds, new content gets one that shows that it is new. Where that cannot be tried nothing can be committed either,
    /// and that is told then.
    fn tell_versions_apart(self: &Arc<Self>, progress: &mut Hook<'_>) {
        let (later, job) = {
            let model = &self.state.lock().model;
            (model.later_times(), model.inodes.job_dir())
        };
        if later.is_empty() {
            return;
        }
        let Ok(job) = job.map_or_else(|| self.make_job_dir(progress), Ok) else {
            return;
        };
        if behaviours::probe(&*self.storage, &job, Behaviour::WholeSeconds) {
            self.state.lock().model.set_later_times(later);
        }
    }

    /// The same once more, after what was refused for a cause that may be gone: a disk that was full while the command ran. What was refused is
    /// still in memory.
    fn drain_again(self: &Arc<Self>, cause: Cause, progress: &mut Hook<'_>) -> Result<(), Cause> {
        let refused = {
            let mut state = self.state.lock();
            if state.is_interrupted {
                return Err(Cause::Asked);
            }
            state.model.graph.stopped = false;
            state.model.refuse = Some(Errno::ROFS);
            std::mem::take(&mut state.errors)
        };
        let drained = self.drain(progress);
        let mut state = self.state.lock();
        let Err(again) = drained else {
            state.overcome.extend(refused);
            return Ok(());
        };
        // What is refused for the same reason is told once. The cause is what the command may have been told of.
        let mut others = std::mem::replace(&mut state.errors, refused);
        others.retain(|error| !is_no_room(error.errno));
        state.errors.append(&mut others);
        Err(if matches!(again, Cause::Asked) { again } else { cause })
    }

    /// Brings everything queued to the storage, or says why that cannot be. It goes on being brought there at
    /// once until [`Graph::flush`](crate::graph::Graph::flush) is taken back.
    pub(crate) fn drain_content(self: &Arc<Self>, progress: &mut dyn FnMut(&Progress)) -> Result<(), Cause> {
        let mut state = self.state.lock();
        state.model.now = clock();
        state.model.scheduler().flush();
        self.drained(&mut state, progress)
    }

    fn drained(
        self: &Arc<Self>,
        state: &mut parking_lot::MutexGuard<'_, crate::shared::SharedState>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(), Cause> {
        self.call_worker(state);
        self.wait_idle(state, progress, Phase::Draining);
        match (state.errors.is_empty(), state.model.graph.stopped) {
            (true, false) => Ok(()),
            (true, true) => Err(Cause::Asked), // interrupted
            (false, _) => Err(Cause::Deferred(state.errors.clone())),
        }
    }

    /// Waits until nothing is queued or under way (or, after a failure, until nothing is under way).
    fn wait_idle(
        self: &Arc<Self>,
        state: &mut parking_lot::MutexGuard<'_, crate::shared::SharedState>,
        progress: &mut Hook<'_>,
        phase: Phase,
    ) {
        self.wait_watched(state, progress, phase, |state| {
            let graph = &state.model.graph;
            let closing = !state.model.closing.is_empty();
            let has_nothing_left = graph.queued() == 0 && !closing;
            let is_idle = graph.running == 0 && (graph.stopped || has_nothing_left);
            if !is_idle {
                self.call_worker(state);
            }
            is_idle
        });
        let stuck = !state.model.graph.stopped && state.model.graph.left() > 0;
        if stuck {
            // A cycle of waits would be our mistake: it fails the job loudly rather than silently.
            self.fail(state, Ino::ROOT, "order", Errno::DEADLK);
        }
    }

    /// Gives objects that the storage has their names, as far as it lets them be moved: what is in its place need not be saved.
    pub(crate) fn settle_names(self: &Arc<Self>, progress: &mut Hook<'_>) {
        let mut state = self.state.lock();
        let errors = std::mem::take(&mut state.errors);
        state.model.graph.stopped = false;
        state.model.now = clock();
        state.model.scheduler().finish_names();
        self.wait_watched(&mut state, progress, Phase::Saving, |state| {
            let graph = &state.model.graph;
            let is_idle = graph.running == 0 && (graph.stopped || graph.queued() == 0);
            if !is_idle {
                self.call_worker(state);
            }
            is_idle
        });
        state.model.graph.stopped = true;
        state.model.graph.only_names = false;
        // What was refused now is saved like all else that is not in its place.
        state.errors = errors;
    }

    /// Lets what is under way end and nothing begin.
    pub(crate) fn stop(&self, progress: &mut Hook<'_>) {
        let mut state = self.state.lock();
        state.model.graph.stopped = true;
        self.wait_watched(&mut state, progress, Phase::RollingBack, |state| {
            state.model.graph.running == 0
        });
    }

    /// The journal is about to be removed; an open file would leave a hidden one behind on some storages.
    fn close_journal(&self) {
        drop(self.journal.lock().take());
        if let Some(far) = self.storage.far_end() {
            far_send::close_journal(far);
        }
    }

    /// What the job has put outside its own directory.
    fn leftovers(&self) -> Leftovers {
        let touched = self.journal.lock().as_ref().map(|journal| journal.touched().to_vec());
        let mut left = leftovers(&self.state.lock().model);
        let all = left.staging.iter().enumerate();
        let places: HashMap<_, _> = all.map(|(place, holder)| (holder.path.clone(), place)).collect();
        // They are closed by now, and what was tried is gone, unless that was refused; what was to be staged in them may not have come.
        for dir in touched.into_iter().flatten() {
            match places.get(&dir.path) {
                Some(place) => left.staging[*place].closed = dir.mode.or(left.staging[*place].closed),
                None => left.staging.push(StagingHolder {
                    path: dir.path,
                    times: dir.times,
                    closed: dir.mode,
                    open: None,
                }),
            }
        }
        left
    }

    fn undo(self: &Arc<Self>, progress: &mut Hook<'_>) -> Result<(), JobError> {
        self.recording.step(EndStep::RollBack, &StepCounter::default(), || {
            self.stop(progress);
            self.close_files();
        });
        let leftovers = self.leftovers();
        let began = {
            let state = self.state.lock();
            state.model.inodes.job_dir().is_some() || !state.errors.is_empty()
        };
        if !began {
            return Ok(());
        }
        if let Some(far) = self.storage.far_end() {
            drop(self.journal.lock().take());
            let roll_back = || far_send::roll_back(far, &self.staging_name, &self.pulse_counts());
            let counter = StepCounter::of(leftovers.names, 0);
            let failed = self.storage_error(ROLLING_BACK);
            return match self.watched(progress, EndStep::RollBack, &counter, roll_back) {
                // The far end does so by itself, if it can.
                Err(Errno::NOTCONN) => Err(JobError::Parted),
                ended => ended.map_err(failed),
            };
        }
        self.close_journal();
        self.forget_record().map_err(self.storage_error(ROLLING_BACK))?;
        let counter = StepCounter::of(leftovers.names, 0);
        let remove = || remove_leftovers(&self.tree(), &self.staging_name, &leftovers, self.root_times, &counter);
        self.watched(progress, EndStep::RollBack, &counter, remove)
            .map_err(|(path, errno)| JobError::storage(ROLLING_BACK, self.path.join(path))(errno))
    }

    /// A record whose writing failed may be there all the same: nobody is to carry it out when the roll back has begun.
    fn forget_record(&self) -> Result<(), Errno> {
        let Some(job) = self.state.lock().model.inodes.job_dir() else {
            return Ok(());
        };
        match none_if_missing(self.storage.unlink(&job, OsStr::new(RECORD)))? {
            Some(()) => sync_dir(&*self.storage, &job),
            None => Ok(()),
        }
    }
}

/// The same as the model knows it.
fn leftovers(model: &Model) -> Leftovers {
    let mut left = Leftovers::default();
    let mut touched = BTreeSet::new();
    for (ino, inode) in model.inodes.all() {
        if inode.is_old() && inode.dir().is_ok_and(|dir| dir.staging != Staging::None) {
            touched.insert(ino);
        }
        for key in inode.placed().iter().filter(|key| model.routes().is_visible(key)) {
            touched.insert(key.dir);
            left.visible.push(model.inodes.old_path(key.dir).join(&*key.name));
        }
        left.names += inode.placed().len();
    }
    touched.remove(&Ino::ROOT);
    let staging = touched.into_iter();
    left.staging = staging
        .map(|ino| StagingHolder {
            path: model.inodes.old_path(ino),
            times: model.inodes.at(ino).times_before(),
            closed: None,
            open: model.inodes.dir_at(ino).handle.clone(),
        })
        .collect();
    left
}
