//! Percentiles of times, in memory that does not grow with their number.

use std::ops::RangeInclusive;

use serde::Serialize;

use crate::drive::Ps;

/// How the times of requests are spread, in milliseconds. But for `max` they are right to a thousandth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Half of them are no longer.
    pub p50: f64,
    /// Nine of ten are no longer.
    pub p90: f64,
    /// All but one in a hundred are no longer.
    pub p99: f64,
    /// All but one in a thousand are no longer.
    pub p99_9: f64,
    /// None is longer.
    pub max: f64,
}

impl Percentiles {
    /// All by name, as reports have them.
    ///
    /// ```
    /// let names = elbow_disk::Percentiles::default().named().map(|(name, _)| name);
    /// assert_eq!(names, ["p50", "p90", "p99", "p99.9", "max"]);
    /// ```
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("p50", self.p50),
            ("p90", self.p90),
            ("p99", self.p99),
            ("p99.9", self.p99_9),
            ("max", self.max),
        ]
    }
}

/// Times that are counted, in 0.2 MB: exactly below a nanosecond, and longer ones by their first ten binary digits.
///
/// Made here because it is part of each simulated request: of one at a time the crate `hdrhistogram` took 5 %.
///
/// ```
/// use elbow_disk::{Ps, Times};
/// let mut times = Times::default();
/// times.add(Ps::from_ms(2.0));
/// assert_eq!((times.count(), times.percentiles().max), (1, 2.0));
/// ```
#[derive(Clone, Debug)]
pub struct Times {
    /// Empty until the first one comes.
    counts: Vec<u64>,
    count: u64,
    min: Ps,
    max: Ps,
}

/// Digits that are kept.
const KEPT_BITS: u32 = 10;
/// Numbers with so many digits of which the first is 1.
const HALF: usize = 1 << (KEPT_BITS - 1);
const BUCKETS: usize = (u64::BITS - KEPT_BITS + 2) as usize * HALF;

impl Default for Times {
    fn default() -> Times {
        Times {
            counts: Vec::new(),
            count: 0,
            min: Ps(u64::MAX),
            max: Ps::ZERO,
        }
    }
}

impl Times {
    /// How many were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Counts one.
    #[inline]
    pub fn add(&mut self, time: Ps) {
        let bucket = bucket(time.0);
        match self.counts.get_mut(bucket) {
            Some(count) => *count += 1,
            None => self.begin(bucket),
        }
        self.count += 1;
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }

    #[cold]
    fn begin(&mut self, bucket: usize) {
        self.counts.resize(BUCKETS, 0);
        self.counts[bucket] += 1;
    }

    /// Adds all of another.
    pub(crate) fn merge(&mut self, other: &Times) {
        // Most kinds of request are not in a trace.
        if other.count == 0 {
            return;
        }
        self.counts.resize(BUCKETS, 0);
        for bucket in other.used() {
            self.counts[bucket] += other.counts[bucket];
        }
        self.count += other.count;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// All 0 where there is none.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let at = |share| self.at(share).ms();
        Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            max: self.max.ms(),
        }
    }

    /// Where anything is counted.
    fn used(&self) -> RangeInclusive<usize> {
        bucket(self.min.0)..=bucket(self.max.0)
    }

    /// The middle of the bucket in which the time lies that so large a share of them does not exceed.
    fn at(&self, share: f64) -> Ps {
        if self.count == 0 {
            return Ps::ZERO;
        }
        let rank = (share * self.count as f64).ceil() as u64;
        let mut before = 0;
        let found = self.used().find(|&bucket| {
            before += self.counts[bucket];
            before >= rank.max(1)
        });
        found.map_or(Ps::ZERO, |bucket| middle(bucket).min(self.max))
    }
}

/// Where a time is counted: buckets ascend with times.
#[inline]
fn bucket(time: u64) -> usize {
    let dropped = (u64::BITS - KEPT_BITS).saturating_sub(time.leading_zeros());
    dropped as usize * HALF + (time >> dropped) as usize
}

/// The time in the middle of those of a bucket.
fn middle(bucket: usize) -> Ps {
    let dropped = (bucket / HALF).saturating_sub(1);
    let kept = (bucket - dropped * HALF) as u64;
    Ps((kept << dropped) + ((1 << dropped) >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_right_to_a_thousandth() {
        let mut times = Times::default();
        for us in 1..=100_000_u64 {
            times.add(Ps(us * 1_000_000));
        }
        let is = times.percentiles().named().map(|(_, ms)| ms);
        for (is, exact) in is.into_iter().zip([50.0, 90.0, 99.0, 99.9, 100.0]) {
            assert!((is / exact - 1.0_f64).abs() <= 1e-3, "{is} {exact}");
        }
        assert_eq!(is[4], 100.0);
    }

    #[test]
    fn no_times_have_no_percentiles_and_the_longest_one_fits() {
        assert_eq!(Times::default().percentiles(), Percentiles::default());
        let mut times = Times::default();
        times.add(Ps(u64::MAX));
        assert_eq!(times.percentiles().max, Ps(u64::MAX).ms());
    }

    #[test]
    fn buckets_ascend_and_their_middles_lie_in_them() {
        let mut last = None;
        for bits in 0..u64::BITS {
            for time in [1 << bits, (1 << bits) | (1 << bits >> 3), u64::MAX >> (63 - bits)] {
                let at = bucket(time);
                assert!(last.is_none_or(|last| at >= last) && at < BUCKETS, "{time} {at}");
                assert_eq!(bucket(middle(at).0), at, "{time}");
                assert!((middle(at).0 as f64 / time as f64 - 1.0).abs() <= 1e-3, "{time}");
                last = Some(at);
            }
        }
    }

    #[test]
    fn merged_ones_are_those_of_all() {
        let (mut all, mut some, mut others) = (Times::default(), Times::default(), Times::default());
        for us in 0..5000_u64 {
            let time = Ps(us * us * 1_000_000);
            all.add(time);
            if us % 3 == 0 { some.add(time) } else { others.add(time) }
        }
        some.merge(&others);
        assert_eq!(some.percentiles(), all.percentiles());
    }
}
