//! Telling how the end of a job gets on: about every [`PROGRESS_INTERVAL`] by the clock, whatever else happens.
//!
//! ```text
//!   the thread that ends the job ── work in threads ──> StepCounter (done, total)
//!        └── looks at it by the clock, and calls the hook
//! ```
//!
//! The hook is called without any lock and only from the caller's thread, so it may take its time: what it is told
//! next is then newer, and nothing waits for it but the end of its own phase.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tracing::{info, info_span};

use crate::recorder::EndStep;
use crate::report::{Phase, Progress, Steps};
use crate::shared::{Shared, SharedState};
use crate::step_counter::StepCounter;

/// A progress hook is called this often.
pub(crate) const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// What is called with the progress.
pub(crate) type Hook<'a> = dyn FnMut(&Progress) + 'a;

/// Who is told how a commit gets on.
pub(crate) trait Watch {
    /// Does the work of a step, and tells meanwhile how far it is.
    fn watched<R: Send>(&mut self, step: EndStep, counter: &StepCounter, work: impl Fn() -> R + Sync) -> R;

    /// Does the work of a step that is too short to be told of.
    fn recorded<R>(&mut self, step: EndStep, work: impl FnOnce() -> R) -> R;
}

/// Nobody is told.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    fn watched<R: Send>(&mut self, _: EndStep, _: &StepCounter, work: impl Fn() -> R + Sync) -> R {
        work()
    }

    fn recorded<R>(&mut self, _: EndStep, work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// The hook of a job is told.
pub(super) struct Watched<'s, 'h, 'p> {
    pub(super) shared: &'s Shared,
    pub(super) progress: &'h mut Hook<'p>,
}

impl Watch for Watched<'_, '_, '_> {
    fn watched<R: Send>(&mut self, step: EndStep, counter: &StepCounter, work: impl Fn() -> R + Sync) -> R {
        self.shared.watched(self.progress, step, counter, work)
    }

    fn recorded<R>(&mut self, step: EndStep, work: impl FnOnce() -> R) -> R {
        self.shared.recording.step(step, &StepCounter::default(), work)
    }
}

/// When to tell next. Being woken often neither hastens nor delays it.
#[derive(Debug)]
pub(crate) struct Pace {
    due: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            due: now + PROGRESS_INTERVAL,
        }
    }

    /// How long to wait at most.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Is it time? Then the next time is one interval from now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now + PROGRESS_INTERVAL;
        }
        is_due
    }
}

impl Shared {
    /// Does the work of a step in a thread of its own and tells meanwhile how far it is.
    pub(super) fn watched<R: Send>(
        &self,
        progress: &mut Hook<'_>,
        step: EndStep,
        counter: &StepCounter,
        work: impl Fn() -> R + Sync,
    ) -> R {
        self.recording.step(step, counter, || {
            self.told_meanwhile(progress, phase_of(step), counter, work)
        })
    }

    fn told_meanwhile<R: Send>(
        &self,
        progress: &mut Hook<'_>,
        phase: Phase,
        counter: &StepCounter,
        work: impl Fn() -> R + Sync,
    ) -> R {
        let mut tell = || {
            let counts = self.counts(&mut self.state.lock());
            let steps = counter.so_far();
            progress(&Progress { phase, counts, steps });
        };
        tell();
        let span = info_span!("phase", ?phase);
        let _telling = span.enter();
        let begun = Instant::now();
        info!("begins");
        let result = std::thread::scope(|scope| {
            let (over, is_over) = channel::<()>();
            let (work, span) = (&work, &span);
            let worker = std::thread::Builder::new()
                .name("elbow-end".into())
                .spawn_scoped(scope, move || {
                    let (_over, _telling) = (over, span.enter());
                    work()
                });
            let Ok(worker) = worker else {
                return work(); // without a thread for it nothing is told meanwhile
            };
            while is_over.recv_timeout(PROGRESS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                tell();
            }
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        info!(took = ?begun.elapsed(), "ends");
        result
    }

    /// Waits for what workers do until it is enough, and tells meanwhile how far they are.
    pub(super) fn wait_watched(
        &self,
        state: &mut parking_lot::MutexGuard<'_, SharedState>,
        progress: &mut Hook<'_>,
        phase: Phase,
        mut is_enough: impl FnMut(&mut SharedState) -> bool,
    ) {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        while !is_enough(state) {
            self.progress.wait_for(state, pace.left(Instant::now()));
            if pace.is_due(Instant::now()) {
                let counts = self.counts(state);
                let steps = Steps::default();
                parking_lot::MutexGuard::unlocked(state, || progress(&Progress { phase, counts, steps }));
            }
        }
        info!(?phase, took = ?begun.elapsed(), "nothing is left under way");
    }
}

/// The phase that a step of the end is told as.
fn phase_of(step: EndStep) -> Phase {
    match step {
        EndStep::Drain => Phase::Draining,
        EndStep::Stage | EndStep::Sync => Phase::Syncing,
        EndStep::Turn | EndStep::Check | EndStep::Rehearse => Phase::Checking,
        EndStep::Record | EndStep::Publish => Phase::Publishing,
        EndStep::CleanUp => Phase::CleaningUp,
        EndStep::Save => Phase::Saving,
        EndStep::RollBack => Phase::RollingBack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The thread that ends a job is woken by each object that is stored. It used to tell only when a wait for the
    /// next one had timed out, which on storage with many calls under way never happened: 14 of 15 seconds in silence.
    #[test]
    fn constant_wakeups_neither_silence_nor_hasten_the_reports() {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        let reports = (0..10_000).filter(|ms| pace.is_due(began + Duration::from_millis(*ms)));
        assert_eq!(reports.count(), 99, "in ten seconds of a completion every millisecond");
    }

    #[test]
    fn a_wait_ends_when_the_next_report_is_due() {
        let began = Instant::now();
        let pace = Pace::new(began);
        assert_eq!(pace.left(began + PROGRESS_INTERVAL / 4), PROGRESS_INTERVAL * 3 / 4);
        assert_eq!(pace.left(began + PROGRESS_INTERVAL * 2), Duration::ZERO);
    }

    #[test]
    fn more_steps_than_were_foreseen_are_never_more_than_all() {
        let counter = StepCounter::of(2, 10);
        (0..3).for_each(|_| counter.step());
        counter.copied(4);
        let so_far = counter.so_far();
        assert_eq!((so_far.done, so_far.total), (3, 3));
        assert_eq!((so_far.bytes_done, so_far.bytes_total), (4, 10));
    }
}
