//! Jobs that belong together: each comes to the point just before its commit record before any of them has one.
//!
//! ```text
//!   stage    all that it made is on the storage, and durable
//!   look     in its turn: is everything as the job saw it, and is every step granted that can be tried?
//!   commit   the same once more, then the record, and its steps
//! ```
//!
//! The turn is given up between the look and the commit: jobs that kept several would wait for each other for ever. So a commit can still be refused
//! that comes after another one: what others change, or the storage begins to refuse, within the time that those before it take.

use std::sync::Arc;

use elbow_file::Handle;
use tracing::info_span;

use super::keep::{RecordDraft, RemainingWork};
use super::watch::{Hook, Watched};
use super::{Attempt, CommitStage, Refused};
use crate::job::Job;
use crate::options::OnConflict;
use crate::report::{Cause, JobError, Keep, Outcome, Progress};
use crate::shared::Shared;

/// How a job has ended that goes no further.
pub type Ended = Result<Outcome, JobError>;

/// What is left to be done of a job, and its own directory.
type Work = (RemainingWork, Handle);

/// What a job has staged, to be committed with that of others. Dropped, it is still there: the job has to be ended.
pub struct StagedWork {
    /// Nothing, if there is nothing to be done.
    work: Option<Work>,
}

impl StagedWork {
    /// Why it is not committed, with all of it.
    fn refused(self, cause: Cause) -> Attempt {
        match self.work {
            Some((rest, _)) => Err(Refused::whole(cause, rest)),
            None => Err(Refused::torn(cause)),
        }
    }
}

impl Job {
    /// Brings all that the job made to its staging area. What cannot be brought there ends it, as a [`Job::commit_or_keep`] would.
    ///
    /// # Errors
    /// How it has ended, and with what error that failed.
    pub fn stage(&self, keep: Keep, progress: &mut dyn FnMut(&Progress)) -> Result<StagedWork, Ended> {
        let _telling = info_span!("stage", job = ?self.shared.staging_name).entered();
        self.freeze();
        match self.shared.stage_together(keep, progress) {
            Ok(work) => Ok(StagedWork { work }),
            Err(refused) => Err(self.ended(Ok(Err(refused)), keep, progress)),
        }
    }

    /// Looks whether a staged job could be committed now, and whether its end was asked for. If not, it ends as by [`Job::commit_or_keep`].
    ///
    /// # Errors
    /// How it has ended, and with what error that failed.
    pub fn look(
        &self,
        staged: StagedWork,
        keep: Keep,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<StagedWork, Ended> {
        let looked = match staged.work {
            Some((rest, job)) => self.shared.look_at(rest, job, progress),
            None if self.shared.is_stopped() => Ok(Err(Refused::torn(Cause::Asked))),
            None => return Ok(staged),
        };
        match looked {
            Ok(Ok(work)) => Ok(StagedWork { work: Some(work) }),
            Ok(Err(refused)) => Err(self.ended(Ok(Err(refused)), keep, progress)),
            Err(failed) => Err(self.ended(Err(failed), keep, progress)),
        }
    }

    /// Commits what is staged. With `is_bound`, because others have committed that belong to it, it is kept where anything may be, should it not come
    /// to that: also when this process ends meanwhile. Where nothing may be kept, [`Job::interrupt`] does not end the wait for its turn.
    ///
    /// # Errors
    /// As [`Job::commit`].
    pub fn commit_staged(
        &self,
        staged: StagedWork,
        keep: Keep,
        is_bound: bool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Ended {
        let attempt = match staged.work {
            Some(work) => self.shared.commit_together(work, is_bound, progress),
            None => Ok(Ok(())),
        };
        self.ended(attempt, keep, progress)
    }

    /// As [`Job::postpone`].
    ///
    /// # Errors
    /// As [`Job::commit`].
    pub fn postpone_staged(&self, staged: StagedWork, why: &str, progress: &mut dyn FnMut(&Progress)) -> Ended {
        let attempt = match staged.work {
            Some((rest, _)) => Err(Refused::whole(Cause::Storage(why.to_owned()), rest)),
            None => Ok(()),
        };
        self.ended(Ok(attempt), Keep::Complete, progress)
    }

    /// As [`Job::roll_back`]; what is kept then is whole.
    ///
    /// # Errors
    /// As [`Job::roll_back`].
    pub fn roll_back_staged(&self, staged: StagedWork, keep: bool, progress: &mut dyn FnMut(&Progress)) -> Ended {
        let keep = if keep { Keep::Everything } else { Keep::Nothing };
        self.ended(Ok(staged.refused(Cause::Asked)), keep, progress)
    }
}

impl Shared {
    /// Where the storage is elsewhere, what is left to be done is done there, by one order.
    fn stage_together(self: &Arc<Self>, keep: Keep, progress: &mut Hook<'_>) -> Result<Option<Work>, Refused> {
        let keeps = keep != Keep::Nothing;
        if self.storage.far_end().is_none() {
            return self.stage(keeps, progress);
        }
        let gathered = self.gather(keeps, progress)?;
        Ok(gathered.map(|(record, job)| {
            let drafted = RecordDraft::unknown();
            (RemainingWork { record, drafted }, job)
        }))
    }

    /// The record stays as it is: what it is completed with, the commit finds anew.
    fn look_at(
        self: &Arc<Self>,
        rest: RemainingWork,
        job: Handle,
        progress: &mut Hook<'_>,
    ) -> Result<Result<Work, Refused>, JobError> {
        let mut record = rest.record.clone();
        let looked = match self.storage.far_end() {
            Some(far) => self.order_commit(far, record, &job, CommitStage::Look, progress)?,
            None => {
                record.wins = self.options.on_conflict == OnConflict::Overwrite;
                let expectations = CommitStage::Look.expectations(&self.state.lock().model);
                let is_ended = || self.is_stopped();
                let staged = self.staged_job(job.clone(), &is_ended);
                let mut watch = Watched { shared: self, progress };
                let looked = staged.look(&mut record, &expectations, &mut watch).map(drop);
                match looked {
                    Ok(()) => Ok(()),
                    Err(cause) => return Ok(Err(Refused::whole(cause, rest))),
                }
            }
        };
        Ok(match looked {
            Ok(()) if self.is_stopped() => Err(Refused::whole(Cause::Asked, rest)),
            looked => looked.map(|()| (rest, job)),
        })
    }

    fn commit_together(
        self: &Arc<Self>,
        (mut rest, job): Work,
        is_bound: bool,
        progress: &mut Hook<'_>,
    ) -> Result<Attempt, JobError> {
        let stage = if is_bound {
            CommitStage::Bound
        } else {
            CommitStage::Again
        };
        if let Some(far) = self.storage.far_end() {
            return self.order_commit(far, rest.record, &job, stage, progress);
        }
        let has_to = rest.record.has_to_commit(is_bound);
        let is_ended = || !has_to && self.is_stopped();
        let committed = self.commit_staged(&mut rest, job, stage, &is_ended, progress)?;
        Ok(committed.map_err(|cause| Refused::whole(cause, rest)))
    }
}
