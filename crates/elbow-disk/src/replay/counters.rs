//! What is counted while a trace is replayed.

use std::collections::BTreeMap;

use super::report::{Figures, Report};
use crate::controller::Served;
use crate::drive::Ps;
use crate::percentiles::Times;
use crate::trace::{Omissions, Record, RecordKind};

/// Reads by what the trace calls them, and whether they were in the simulated cache.
const MARKS: usize = 3;

#[derive(Default)]
pub(super) struct ReplayCounters {
    /// By mark (none, read of the medium, hit) and simulated hit: what counts as a hit is known at the end.
    reads: [[Sample; 2]; MARKS],
    writes: Sample,
    hits_simulated: u64,
    parts: [Ps; 4],
}

impl ReplayCounters {
    pub(super) fn add(&mut self, record: &Record, response: Ps, served: &Served) {
        let sample = match (record.request.write, record.kind) {
            (true, _) => &mut self.writes,
            (false, Some(RecordKind::Hit)) => &mut self.reads[2][usize::from(served.hit)],
            (false, Some(_)) => &mut self.reads[1][usize::from(served.hit)],
            (false, None) => &mut self.reads[0][usize::from(served.hit)],
        };
        sample.add(record.measured, response);
        self.hits_simulated += u64::from(served.hit);
        let parts = [served.seek, served.rotation, served.transfer, served.overhead];
        for (sum, part) in self.parts.iter_mut().zip(parts) {
            *sum = sum.saturating_add(part);
        }
    }

    pub(super) fn report(self, end: Ps, lost: Omissions) -> Report {
        let tells_hits = self.tells_hits();
        let is_marked = self.reads[1..]
            .iter()
            .flatten()
            .any(|sample| sample.simulated.count > 0);
        let (mut reads, mut hits, mut all) = (Sample::default(), Sample::default(), Sample::default());
        for (mark, samples) in self.reads.iter().enumerate() {
            for (is_simulated, sample) in [false, true].into_iter().zip(samples) {
                let is_hit = if tells_hits && mark > 0 {
                    mark == 2
                } else {
                    is_simulated
                };
                if is_hit { &mut hits } else { &mut reads }.merge(sample);
            }
        }
        for sample in [&reads, &hits, &self.writes] {
            all.merge(sample);
        }
        let requests = all.simulated.count.max(1) as f64;
        let [seek_ms, rotation_ms, transfer_ms, overhead_ms] = self.parts.map(|sum| sum.ms() / requests);
        let mut report = Report {
            all: all.figures(),
            reads: reads.figures(),
            hits: hits.figures(),
            writes: self.writes.figures(),
            hits_simulated: self.hits_simulated,
            seek_ms,
            rotation_ms,
            transfer_ms,
            overhead_ms,
            simulated_s: end.ms() / 1e3,
            lost,
            notes: Vec::new(),
        };
        report.notes = report.told(is_marked && !tells_hits);
        report
    }

    /// Whether the trace calls some reads hits and others not: one that calls all the same says nothing.
    fn tells_hits(&self) -> bool {
        let some = |mark: usize| self.reads[mark].iter().any(|sample| sample.simulated.count > 0);
        some(1) && some(2)
    }
}

/// The response times of one kind of request.
#[derive(Default)]
struct Sample {
    measured: Distribution,
    simulated: Distribution,
}

impl Sample {
    fn add(&mut self, measured: Option<Ps>, simulated: Ps) {
        self.simulated.add(simulated);
        if let Some(measured) = measured {
            self.measured.add(measured);
        }
    }

    fn merge(&mut self, other: &Sample) {
        self.measured.merge(&other.measured);
        self.simulated.merge(&other.simulated);
    }

    fn figures(&self) -> Figures {
        let both = self.measured.count == self.simulated.count && self.measured.count > 0;
        Figures {
            requests: self.simulated.count,
            mean_measured_ms: both.then(|| self.measured.mean_ms()),
            mean_simulated_ms: self.simulated.mean_ms(),
            rms_demerit_ms: both.then(|| self.measured.distance_ms(&self.simulated)),
            percentiles_measured_ms: both.then(|| self.measured.spread.percentiles()),
            percentiles_simulated_ms: self.simulated.spread.percentiles(),
        }
    }
}

/// How often each time occurred, to the microsecond up to a second and to a thousandth beyond.
#[derive(Default)]
struct Distribution {
    times: BTreeMap<u64, u64>,
    spread: Times,
    count: u64,
    /// Wide enough for any number of any times.
    sum_ps: u128,
}

impl Distribution {
    fn add(&mut self, time: Ps) {
        const EXACT_BITS: u32 = 20;
        const KEPT_BITS: u32 = 10;
        let us = (time.0 + 500_000) / 1_000_000;
        let bits = u64::BITS - us.leading_zeros();
        let drop = if bits > EXACT_BITS { bits - KEPT_BITS } else { 0 };
        *self.times.entry(us >> drop << drop).or_default() += 1;
        self.spread.add(time);
        self.count += 1;
        self.sum_ps += u128::from(time.0);
    }

    fn merge(&mut self, other: &Distribution) {
        for (&us, &times) in &other.times {
            *self.times.entry(us).or_default() += times;
        }
        self.spread.merge(&other.spread);
        self.count += other.count;
        self.sum_ps += other.sum_ps;
    }

    fn mean_ms(&self) -> f64 {
        self.sum_ps as f64 / 1e9 / self.count.max(1) as f64
    }

    /// Root mean square of the differences between equal ranks; both have as many times.
    fn distance_ms(&self, other: &Distribution) -> f64 {
        let (mut ours, mut theirs) = (self.times.iter(), other.times.iter());
        let (mut our, mut their) = (ours.next(), theirs.next());
        let (mut our_used, mut their_used, mut squares) = (0, 0, 0.0);
        while let (Some((&a, &a_times)), Some((&b, &b_times))) = (our, their) {
            let ranks = (a_times - our_used).min(b_times - their_used);
            squares += (a.abs_diff(b) as f64).powi(2) * ranks as f64;
            our_used += ranks;
            their_used += ranks;
            if our_used == a_times {
                (our, our_used) = (ours.next(), 0);
            }
            if their_used == b_times {
                (their, their_used) = (theirs.next(), 0);
            }
        }
        (squares / self.count.max(1) as f64).sqrt() / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_is_between_ranks_not_requests() {
        let mut sample = Sample::default();
        for (measured, simulated) in [(1.0, 7.0), (4.0, 1.0), (7.0, 5.0)] {
            sample.add(Some(Ps::from_ms(measured)), Ps::from_ms(simulated));
        }
        let figures = sample.figures();
        assert_eq!(figures.rms_demerit_ms, Some((1.0_f64 / 3.0).sqrt()));
        assert_eq!(figures.mean_measured_ms, Some(4.0));
    }

    #[test]
    fn long_times_take_no_more_room() {
        let mut distribution = Distribution::default();
        for second in 0..100_000_u64 {
            distribution.add(Ps(second * 1_000_000_000_000 + 1));
        }
        assert!(distribution.times.len() < 12_000, "{}", distribution.times.len());
    }
}
