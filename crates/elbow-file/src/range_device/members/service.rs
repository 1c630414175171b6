//! How long a member takes for what it is asked, as measured, and so when it would be done with one write more.
//!
//! ```text
//!   submitted      A B
//!   complete             A        B             service: of A from its submission on, of B from the end of A on
//!   expected now   of each that is outstanding, and of one more write, and of the flush that follows it: the mean of the last ones
//! ```
//!
//! The mean is exponentially weighted. What was never measured is expected at once, so that each member is tried; a member that had nothing to do for
//! long is tried again, as it may have become quick.

use std::time::Duration;

/// A new time counts as one of so many; as for TCP's round-trip times (RFC 6298).
const WEIGHT: u32 = 8;
/// A member is tried again after so many times what it is expected to take: looking costs a fiftieth at most.
const TRIED_AFTER: u32 = 50;

/// What is measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
    Flush,
    /// A barrier, which is not measured.
    Other,
}

/// Times of one member, by its own clock.
#[derive(Debug, Default)]
pub(super) struct Service {
    read: Option<Duration>,
    write: Option<Duration>,
    flush: Option<Duration>,
    last_end: Duration,
}

impl Service {
    /// Takes a measurement.
    pub(super) fn completed(&mut self, work: Work, submitted: Duration, end: Duration) {
        let took = end.saturating_sub(submitted.max(self.last_end));
        self.last_end = self.last_end.max(end);
        let mean = match work {
            Work::Read => &mut self.read,
            Work::Write => &mut self.write,
            Work::Flush => &mut self.flush,
            Work::Other => return,
        };
        *mean = Some(mean.map_or(took, |mean| (mean * (WEIGHT - 1) + took) / WEIGHT));
    }

    /// How long from now on one more write would take until it is durable, behind all that is outstanding: what that is, and when it was submitted.
    pub(super) fn expected(&self, outstanding: impl Iterator<Item = (Work, Duration)>, now: Duration) -> Duration {
        let own = self.mean(Work::Write) + self.mean(Work::Flush);
        let (mut queue, mut first) = (Duration::ZERO, None);
        for (work, submitted) in outstanding {
            queue += self.mean(work);
            first = Some(first.map_or(submitted, |first| submitted.min(first)));
        }
        let Some(since) = first else {
            let idle = now.saturating_sub(self.last_end);
            return if idle > own * TRIED_AFTER { Duration::ZERO } else { own };
        };
        // What takes longer than ever before is expected to take as long again.
        let taken = now.saturating_sub(since.max(self.last_end));
        queue.max(taken) + own
    }

    fn mean(&self, work: Work) -> Duration {
        let mean = match work {
            Work::Read => self.read,
            Work::Write => self.write,
            Work::Flush => self.flush,
            Work::Other => None,
        };
        mean.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn idle(service: &Service, now: u64) -> Duration {
        service.expected(std::iter::empty(), ms(now))
    }

    #[test]
    fn the_mean_follows_what_is_measured() {
        let mut service = Service::default();
        assert_eq!(idle(&service, 0), ms(0), "never measured");
        service.completed(Work::Write, ms(0), ms(8));
        service.completed(Work::Flush, ms(8), ms(18));
        assert_eq!(idle(&service, 18), ms(18));
        service.completed(Work::Write, ms(10), ms(34));
        assert_eq!(service.write, Some(ms(9)), "16 ms, since it was busy until 18");
        let queue = [(Work::Write, ms(34))];
        let busy = |now| service.expected(queue.into_iter(), ms(now));
        assert_eq!(busy(34), ms(28), "behind another");
        assert_eq!(busy(134), ms(119), "it has taken 100 ms already");
        assert_eq!(idle(&service, 5000), ms(0), "it is tried again");
    }
}
