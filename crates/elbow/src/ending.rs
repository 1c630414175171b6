//! The end of a job, timed.

use std::time::{Duration, Instant};

use elbow_job::{Counts, DeferredError, Job, JobError, Outcome, Phase, Progress};

/// How a job ended, and how long that took.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) outcome: Result<Outcome, JobError>,
    pub(crate) drain: Duration,
    pub(crate) commit: Duration,
    pub(crate) counts: Counts,
    pub(crate) errors: Vec<DeferredError>,
}

/// Stores all of a job, or rolls it back; `keep` then keeps its staging area.
pub(crate) fn commit(job: &Job, keep: bool, show: &mut dyn FnMut(&Progress)) -> Ending {
    timed(job, |watch| {
        let see = &mut |progress: &Progress| watch.see(progress, show);
        if keep { job.commit_or_keep(see) } else { job.commit(see) }
    })
}

/// Forgets a job.
pub(crate) fn roll_back(job: &Job, keep: bool, show: &mut dyn FnMut(&Progress)) -> Ending {
    timed(job, |watch| {
        job.roll_back(keep, &mut |progress| watch.see(progress, show))
    })
}

impl Ending {
    /// Everything is on the storage.
    pub(crate) fn is_committed(&self) -> bool {
        matches!(self.outcome, Ok(Outcome::Committed))
    }
}

fn timed(job: &Job, end: impl FnOnce(&mut Stopwatch) -> Result<Outcome, JobError>) -> Ending {
    let mut watch = Stopwatch {
        began: Instant::now(),
        drained: None,
    };
    let outcome = end(&mut watch);
    let all = watch.began.elapsed();
    let drain = watch.drained.map_or(all, |at| at - watch.began);
    Ending {
        outcome,
        drain,
        commit: all - drain,
        counts: job.counts(),
        errors: job.deferred_errors(),
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
