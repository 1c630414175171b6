//! How long a member takes for what it is asked, as measured, and so when it would be done with one write more.
//!
//! ```text
//!   submitted      A B
//!   complete             A        B             service: of A from its submission on, of B from the end of A on
//!   expected now   of each that is outstanding, and of one more write, and of the flush that follows it: the lower median of the last ones
//! ```
//!
//! It is a median, so that one stall of seconds among milliseconds is none; a member that has become slow is so after three, and one that has become quick
//! at once. What was never measured is expected at once, so that each member is tried; one that was asked for no write and no flush for long is tried
//! again, as it may have become quick.

use std::time::Duration;

/// So many of the last times count: it takes three to make a member slow.
const SAMPLES: usize = 5;
/// A time of less than this part of what was expected is believed alone: nothing is quick by accident.
const QUICK: u32 = 4;
/// A member is tried again after so many times what it is expected to take: looking costs a fiftieth.
const TRIED_AFTER: u32 = 50;
/// But after this at the latest, where that is ten times what it takes: a stall is over by then, and looking costs a tenth at most.
const TRIED_AFTER_MAX: Duration = Duration::from_secs(30);
const TRIED_AFTER_MIN: u32 = 10;

/// What is measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Read,
    Write,
    Flush,
    /// A barrier, which is not measured.
    Other,
}

impl Work {
    fn is_of_writing(self) -> bool {
        matches!(self, Self::Write | Self::Flush)
    }
}

/// The last times of one kind of work.
#[derive(Debug, Default)]
struct Samples {
    /// In a circle; the first `count` are times.
    times: [Duration; SAMPLES],
    count: usize,
    next: usize,
}

impl Samples {
    fn take(&mut self, took: Duration) {
        if took < self.estimate() / QUICK {
            *self = Self::default();
        }
        self.times[self.next] = took;
        self.next = (self.next + 1) % SAMPLES;
        self.count = (self.count + 1).min(SAMPLES);
    }

    /// The lower median: of two the shorter one. 0 of none.
    fn estimate(&self) -> Duration {
        let mut sorted = self.times;
        let sorted = &mut sorted[..self.count];
        sorted.sort_unstable();
        sorted
            .get(self.count.saturating_sub(1) / 2)
            .copied()
            .unwrap_or_default()
    }
}

/// Times of one member, by its own clock.
#[derive(Debug, Default)]
pub(super) struct Service {
    read: Samples,
    write: Samples,
    flush: Samples,
    /// Of anything.
    last_end: Duration,
    /// Of a write or flush: reads and barriers come to members, too, that nothing is written to.
    last_write_end: Duration,
}

impl Service {
    /// Takes a measurement.
    pub(super) fn completed(&mut self, work: Work, submitted: Duration, end: Duration) {
        let took = end.saturating_sub(submitted.max(self.last_end));
        self.last_end = self.last_end.max(end);
        if work.is_of_writing() {
            self.last_write_end = self.last_write_end.max(end);
        }
        match work {
            Work::Read => self.read.take(took),
            Work::Write => self.write.take(took),
            Work::Flush => self.flush.take(took),
            Work::Other => {}
        }
    }

    /// How long from now on one more write would take until it is durable, behind all that is outstanding: what that is, and when it was submitted.
    pub(super) fn expected(&self, outstanding: impl Iterator<Item = (Work, Duration)>, now: Duration) -> Duration {
        let own = self.estimate(Work::Write) + self.estimate(Work::Flush);
        let (mut queue, mut first, mut is_written_to) = (Duration::ZERO, None, false);
        for (work, submitted) in outstanding {
            queue += self.estimate(work);
            first = Some(first.map_or(submitted, |first| submitted.min(first)));
            is_written_to |= work.is_of_writing();
        }
        let idle = now.saturating_sub(self.last_write_end);
        let is_tried = !is_written_to && idle > tried_after(own);
        let own = if is_tried { Duration::ZERO } else { own };
        let Some(since) = first else {
            return own;
        };
        // What takes longer than ever before is expected to take as long again.
        let taken = now.saturating_sub(since.max(self.last_end));
        queue.max(taken) + own
    }

    fn estimate(&self, work: Work) -> Duration {
        match work {
            Work::Read => self.read.estimate(),
            Work::Write => self.write.estimate(),
            Work::Flush => self.flush.estimate(),
            Work::Other => Duration::ZERO,
        }
    }
}

/// How long nothing is written to a member that takes so long for a write and its flush.
fn tried_after(own: Duration) -> Duration {
    (own * TRIED_AFTER).min(TRIED_AFTER_MAX.max(own * TRIED_AFTER_MIN))
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

    /// So many writes or flushes, each of which takes so long, from a moment on; when they have ended.
    fn after(service: &mut Service, work: Work, count: u64, took: u64, mut now: u64) -> u64 {
        for _ in 0..count {
            service.completed(work, ms(now), ms(now + took));
            now += took;
        }
        now
    }

    #[test]
    fn what_is_expected_follows_what_is_measured() {
        let mut service = Service::default();
        assert_eq!(idle(&service, 0), ms(0), "never measured");
        service.completed(Work::Write, ms(0), ms(8));
        service.completed(Work::Flush, ms(8), ms(18));
        assert_eq!(idle(&service, 18), ms(18));
        service.completed(Work::Write, ms(10), ms(34));
        assert_eq!(service.estimate(Work::Write), ms(8), "the shorter one of two");
        service.completed(Work::Write, ms(34), ms(46));
        assert_eq!(
            service.estimate(Work::Write),
            ms(12),
            "of 8, 16, since it was busy until 18, and 12"
        );
        let queue = [(Work::Write, ms(46))];
        let busy = |now| service.expected(queue.into_iter(), ms(now));
        assert_eq!(busy(46), ms(34), "behind another");
        assert_eq!(busy(146), ms(122), "it has taken 100 ms already");
        assert_eq!(idle(&service, 5000), ms(0), "it is tried again");
    }

    #[test]
    fn one_stall_makes_no_member_slow() {
        let mut service = Service::default();
        let mut now = after(&mut service, Work::Write, 20, 5, 0);
        now = after(&mut service, Work::Flush, 20, 5, now);
        for _ in 0..2 {
            now = after(&mut service, Work::Flush, 1, 30_000, now);
            assert_eq!(idle(&service, now), ms(10));
        }
        now = after(&mut service, Work::Flush, 1, 30_000, now);
        assert_eq!(idle(&service, now), ms(30_005), "three are no accident");
    }

    #[test]
    fn a_member_that_only_hears_of_barriers_and_is_read_is_tried_again() {
        let mut service = Service::default();
        let mut now = after(&mut service, Work::Write, 5, 100, 0);
        let until = now + 50 * 100;
        while now < until {
            service.completed(Work::Other, ms(now), ms(now));
            now = after(&mut service, Work::Read, 1, 1, now);
            let is_read = [(Work::Read, ms(now))];
            let expected = service.expected(is_read.into_iter(), ms(now));
            assert_eq!(expected, ms(101), "at {now}");
        }
        assert_eq!(idle(&service, until + 1), ms(0));
        let is_read = [(Work::Read, ms(until + 1))];
        assert_eq!(service.expected(is_read.into_iter(), ms(until + 1)), ms(1));
        let is_tried = [(Work::Write, ms(until + 1))];
        let busy = service.expected(is_tried.into_iter(), ms(until + 1));
        assert_eq!(busy, ms(200), "by one write at a time");
    }

    #[test]
    fn who_has_become_quick_is_used_again_after_one_try() {
        let mut service = Service::default();
        let mut now = 0;
        for _ in 0..10 {
            now = after(&mut service, Work::Write, 1, 2_000, now);
            now = after(&mut service, Work::Flush, 1, 1_000, now);
        }
        assert_eq!(idle(&service, now + 30_000), ms(3_000));
        now += 30_001;
        assert_eq!(idle(&service, now), ms(0), "after half a minute, not after 150 s");
        now = after(&mut service, Work::Write, 1, 5, now);
        now = after(&mut service, Work::Flush, 1, 5, now);
        assert_eq!(idle(&service, now), ms(10));
    }

    #[test]
    fn looking_at_a_slow_member_costs_a_tenth_at_most() {
        assert_eq!(tried_after(ms(10)), ms(500));
        assert_eq!(tried_after(ms(1_000)), ms(30_000));
        assert_eq!(tried_after(ms(30_000)), ms(300_000));
    }
}
