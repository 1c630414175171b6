//! The end of a job, timed.

use std::time::{Duration, Instant};

use elbow_job::{Cause, Counts, DeferredError, Job, JobError, Keep, Outcome, Phase, Progress};

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

fn timed(job: &Job, end: impl FnOnce(&mut Stopwatch) -> Result<Outcome, JobError>) -> JobEnd {
    let mut watch = Stopwatch {
        began: Instant::now(),
        drained: None,
    };
    let outcome = end(&mut watch);
    let all = watch.began.elapsed();
    let drain = watch.drained.map_or(all, |at| at - watch.began);
    JobEnd {
        // Those of the commit are among them.
        errors: errors_in(&outcome).unwrap_or_else(|| job.deferred_errors()),
        outcome,
        drain,
        commit: all - drain,
        counts: job.counts(),
        overcome: job.overcome_errors(),
    }
}

/// When draining was over.
struct Stopwatch {
    began: Instant,
    drained: Option<Instant>,
}

impl Stopwatch {
    fn see(&mut self, progress: &Progress, show: &mut dyn FnMut(&Progress)) {
        if self.drained.is_none() && progress.phase != Phase::Draining {
            self.drained = Some(Instant::now());
        }
        show(progress);
    }
}
