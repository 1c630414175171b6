//! How many threads execute actions: as many as the latency of the storage asks for.

use std::collections::VecDeque;
use std::time::Duration;

use crate::far_send::FarAnswered;
use crate::meter::Meter;

/// Fewest and most threads, and the most where the number is left to us.
const THREADS_MIN: usize = 4;
/// More never helped on any storage measured.
pub(crate) const THREADS_MAX: usize = 512;
const THREADS_GROWN_MAX: usize = 128;
/// One thread more per this much mean latency of a call: 80 threads at 2 ms. Microseconds.
const LATENCY_PER_THREAD_US: f64 = 25.0;
/// Actions at the far end at once: each is small, or as large as one fill.
const ORDERED_MAX: usize = 1024;
/// Weight of the newest measurement in the mean latency.
const LATENCY_WEIGHT: f64 = 0.05;

/// Numbers of the threads and of the work under way.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Clones of the job's handle.
    pub(crate) handles: usize,
    pub(crate) shut_down: bool,
    /// Tests take every step themselves.
    #[cfg(test)]
    pub(crate) by_hand: bool,
    fixed: Option<usize>,
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) timekeeper: bool,
    /// Descriptors that are being closed now.
    pub(crate) closing: usize,
    latency_us: f64,
    /// Actions that are on their way to the far end, or carried out there.
    pub(crate) ordered: usize,
    /// What has come of such actions, for a worker to go on with.
    pub(crate) answers: VecDeque<FarAnswered>,
    /// How much is under way, over time.
    pub(crate) meter: Meter,
}

impl Pool {
    pub(crate) fn new(fixed: Option<usize>) -> Self {
        Self {
            handles: 1,
            shut_down: false,
            #[cfg(test)]
            by_hand: false,
            fixed: fixed.map(|n| n.clamp(1, THREADS_MAX)),
            threads: 0,
            idle: 0,
            timekeeper: false,
            closing: 0,
            latency_us: 0.0,
            ordered: 0,
            answers: VecDeque::new(),
            meter: Meter::new(),
        }
    }

    /// How many storage calls may be under way at once.
    pub(crate) fn limit(&self) -> usize {
        let grown = (self.latency_us / LATENCY_PER_THREAD_US) as usize;
        self.fixed.unwrap_or(grown.clamp(THREADS_MIN, THREADS_GROWN_MAX))
    }

    /// No more is to be sent to the far end before some of it is answered.
    pub(crate) fn is_full(&self) -> bool {
        self.ordered >= self.fixed.unwrap_or(ORDERED_MAX)
    }

    /// Takes the latency of one storage call into account.
    pub(crate) fn note_latency(&mut self, took: Duration) {
        let us = took.as_secs_f64() * 1e6;
        let first = self.latency_us == 0.0;
        self.latency_us += (us - self.latency_us) * if first { 1.0 } else { LATENCY_WEIGHT };
    }
}
