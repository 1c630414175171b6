//! How much is under way at a time: what `in flight` means in the summary of a job.

use std::time::Instant;

use crate::report::Counts;

/// Sums of what is under way over the time in which anything is left to do.
#[derive(Debug)]
pub(crate) struct Meter {
    read_at: Instant,
    acting: usize,
    in_flight_seconds: f64,
    busy_seconds: f64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self {
            read_at: Instant::now(),
            acting: 0,
            in_flight_seconds: 0.0,
            busy_seconds: 0.0,
        }
    }

    /// One more action is under way from now on, and so many objects are left.
    pub(crate) fn begin(&mut self, left: usize) {
        self.integrate(left);
        self.acting += 1;
    }

    /// One action less is under way from now on.
    pub(crate) fn end(&mut self, left: usize) {
        self.integrate(left);
        self.acting -= 1;
    }

    /// The sums up to now.
    pub(crate) fn report(&mut self, left: usize, counts: &mut Counts) {
        self.integrate(left);
        counts.in_flight_seconds = self.in_flight_seconds;
        counts.busy_seconds = self.busy_seconds;
    }

    fn integrate(&mut self, left: usize) {
        let now = Instant::now();
        let elapsed = now.duration_since(self.read_at).as_secs_f64();
        self.read_at = now;
        if self.acting + left > 0 {
            self.busy_seconds += elapsed;
            self.in_flight_seconds += elapsed * self.acting as f64;
        }
    }
}
