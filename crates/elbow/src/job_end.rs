//! The end of a job, timed.

use std::time::{Duration, Instant};

use elbow_job::{Cause, Counts, DeferredError, Ended, Job, JobError, Keep, Outcome, Phase, Progress, StagedWork};

/// What a conflict is, in words.
pub(crate) const BY_SOMEBODY_ELSE: &str = "changed by somebody else";

/// How a job ended, and how long that took.
#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(crate) outcome: Result<Outcome, JobError>,
    pub(crate) drain: Duration,
    pub(crate) commit: Duration,
    pub(crate) counts: Counts,
    pub(crate) errors: Vec<DeferredError>,
    /// What had failed, and was done at the end.
    pub(crate) overcome: Vec<DeferredError>,
}

/// Stores all of a job, or rolls it back; what is kept then is to be chosen.
pub(crate) fn commit(job: &Job, keep: Keep, show: &mut dyn FnMut(&Progress)) -> JobEnd {
    timed(job, |watch| {
        job.commit_or_keep(keep, &mut |progress| watch.see(progress, show))
    })
}

/// Keeps all of a job for later, because another one that belongs to it could not be stored; or rolls it back.
pub(crate) fn postpone(job: &Job, why: &str, show: &mut dyn FnMut(&Progress)) -> JobEnd {
    timed(job, |watch| {
        job.postpone(why, &mut |progress| watch.see(progress, show))
    })
}

/// The same of a job that is no success either when there is nothing to be kept.
pub(crate) fn postpone_or_roll_back(job: &Job, why: &str, show: &mut dyn FnMut(&Progress)) -> JobEnd {
    let mut ended = postpone(job, why, show);
    if ended.is_committed() {
        ended.outcome = Ok(Outcome::RolledBack(Cause::Storage(why.to_owned())));
    }
    ended
}

/// Forgets a job.
pub(crate) fn roll_back(job: &Job, keep: bool, show: &mut dyn FnMut(&Progress)) -> JobEnd {
    timed(job, |watch| {
        job.roll_back(keep, &mut |progress| watch.see(progress, show))
    })
}

impl JobEnd {
    /// Everything is on the storage.
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self.outcome, Ok(Outcome::Committed))
    }

    /// All that it made is kept, and can be stored later.
    pub(crate) fn is_kept_whole(&self) -> bool {
        matches!(&self.outcome, Ok(Outcome::Kept(_, kept)) if kept.is_whole)
    }

    /// Others have changed what it changes, too, or have something in what it removes.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(
            self.outcome,
            Ok(Outcome::RolledBack(Cause::Conflict(_) | Cause::OtherJobs(_))
                | Outcome::Kept(Cause::Conflict(_) | Cause::OtherJobs(_), _))
        )
    }

    fn of(job: &Job, outcome: Ended, drain: Duration, commit: Duration) -> Self {
        Self {
            // Those of the commit are among them.
            errors: errors_in(&outcome).unwrap_or_else(|| job.deferred_errors()),
            outcome,
            drain,
            commit,
            counts: job.counts(),
            overcome: job.overcome_errors(),
        }
    }

    /// The end of a job that was left as it is, for its storage does not answer.
    pub(crate) fn of_stalled(job: &Job, silent: Duration) -> Self {
        let seconds = silent.as_secs();
        Self {
            outcome: Err(JobError::Silent { seconds }),
            drain: Duration::ZERO,
            commit: Duration::ZERO,
            counts: job.counts(),
            errors: job.deferred_errors(),
            overcome: Vec::new(),
        }
    }

    /// The end of a kept job that went on.
    pub(crate) fn of_kept(outcome: Result<Outcome, JobError>, commit: Duration) -> Self {
        Self {
            errors: errors_in(&outcome).unwrap_or_default(),
            outcome,
            overcome: Vec::new(),
            drain: Duration::ZERO,
            commit,
            counts: Counts::default(),
        }
    }
}

/// What the storage refused, if that is why a job was not stored.
fn errors_in(outcome: &Result<Outcome, JobError>) -> Option<Vec<DeferredError>> {
    match outcome {
        Ok(Outcome::RolledBack(Cause::Deferred(errors)) | Outcome::Kept(Cause::Deferred(errors), _))
        | Err(JobError::NotRolledBack {
            cause: Cause::Deferred(errors),
            ..
        }) => Some(errors.clone()),
        _ => None,
    }
}

fn timed(job: &Job, end: impl FnOnce(&mut Stopwatch) -> Ended) -> JobEnd {
    let mut watch = Stopwatch::start();
    let outcome = end(&mut watch);
    let (drain, commit) = watch.stop();
    JobEnd::of(job, outcome, drain, commit)
}

/// How far a job is that is committed with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JointStep {
    /// All that it made is on the storage.
    Stage,
    /// It could be committed now.
    Look,
    /// It is, or not.
    Commit,
}

/// A job that is committed with others, step by step.
pub(crate) struct Joint<'j> {
    job: &'j Job,
    staged: Option<StagedWork>,
    outcome: Option<Ended>,
    drain: Duration,
    commit: Duration,
}

impl<'j> Joint<'j> {
    pub(crate) fn of(job: &'j Job) -> Self {
        Self {
            job,
            staged: None,
            outcome: None,
            drain: Duration::ZERO,
            commit: Duration::ZERO,
        }
    }

    /// Takes the next step. With `is_bound`, because others have committed by now, a job that cannot is not rolled back, unless nothing is to be kept.
    pub(crate) fn take(&mut self, step: JointStep, keep: Keep, is_bound: bool, show: &mut dyn FnMut(&Progress)) {
        let job = self.job;
        self.timed(show, |staged, progress| match (step, staged) {
            (JointStep::Commit, Some(staged)) => {
                let keep = if is_bound { keep.more() } else { keep };
                Err(job.commit_staged(staged, keep, is_bound, progress))
            }
            (JointStep::Look, Some(staged)) => job.look(staged, keep, progress),
            (_, _) => job.stage(keep, progress),
        });
    }

    /// Ends it otherwise, if it has not ended: it is stored later, or not at all.
    pub(crate) fn give_up(&mut self, is_later: bool, keep: Keep, why: &str, show: &mut dyn FnMut(&Progress)) {
        if self.outcome.is_some() {
            return;
        }
        let (job, keeps) = (self.job, keep == Keep::Everything);
        self.timed(show, |staged, progress| {
            Err(match (staged, is_later) {
                (Some(staged), true) => job.postpone_staged(staged, why, progress),
                (Some(staged), false) => job.roll_back_staged(staged, keeps, progress),
                (None, true) => job.postpone(why, progress),
                (None, false) => job.roll_back(keeps, progress),
            })
        });
    }

    fn timed(
        &mut self,
        show: &mut dyn FnMut(&Progress),
        step: impl FnOnce(Option<StagedWork>, &mut dyn FnMut(&Progress)) -> Result<StagedWork, Ended>,
    ) {
        let mut watch = Stopwatch::start();
        match step(self.staged.take(), &mut |progress| watch.see(progress, show)) {
            Ok(staged) => self.staged = Some(staged),
            Err(outcome) => self.outcome = Some(outcome),
        }
        let (drain, commit) = watch.stop();
        self.drain += drain;
        self.commit += commit;
    }

    /// It has not ended, or is committed.
    pub(crate) fn is_good(&self) -> bool {
        matches!(self.outcome, None | Some(Ok(Outcome::Committed)))
    }

    /// Nobody knows how it has ended, or it cannot be ended now.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.outcome, Some(Err(_)))
    }

    /// It is committed, and something was to be stored.
    pub(crate) fn has_stored(&self) -> bool {
        matches!(self.outcome, Some(Ok(Outcome::Committed))) && self.job.counts().operations > 0
    }

    /// All that it made is kept, and can be stored later.
    pub(crate) fn is_kept_whole(&self) -> bool {
        matches!(&self.outcome, Some(Ok(Outcome::Kept(_, kept))) if kept.is_whole)
    }

    /// How it has ended.
    pub(crate) fn end(self) -> JobEnd {
        let outcome = self.outcome.unwrap_or(Ok(Outcome::RolledBack(Cause::Asked)));
        JobEnd::of(self.job, outcome, self.drain, self.commit)
    }
}

/// When draining was over.
struct Stopwatch {
    began: Instant,
    drained: Option<Instant>,
}

impl Stopwatch {
    fn start() -> Self {
        Self {
            began: Instant::now(),
            drained: None,
        }
    }

    /// How long draining took, and all that followed.
    fn stop(self) -> (Duration, Duration) {
        let all = self.began.elapsed();
        let drain = self.drained.map_or(all, |at| at - self.began);
        (drain, all - drain)
    }

    fn see(&mut self, progress: &Progress, show: &mut dyn FnMut(&Progress)) {
        if self.drained.is_none() && progress.phase != Phase::Draining {
            self.drained = Some(Instant::now());
        }
        show(progress);
    }
}
