//! A trace against a drive: what was measured beside what is simulated.
//!
//! The *demerit* of a simulation is the root mean square horizontal distance between two distributions of response times: the
//! distance between the i-th shortest measured and the i-th shortest simulated, not between the two times of one request.
//!
//! Source: Ruemmler and Wilkes, *An Introduction to Disk Drive Modeling* (IEEE Computer 27:3, 1994).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::controller::{Controller, Served};
use crate::drive::{CLOCK_MAX, Ps};
use crate::trace::{Arrival, Record, RecordKind};
use crate::trace::{LineError, Trace, TraceError};

/// Response times of some requests.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// Requests that these figures are of.
    pub requests: u64,
    /// Measured, in milliseconds; none where the trace has no measured times.
    pub mean_measured_ms: Option<f64>,
    /// Simulated, in milliseconds.
    pub mean_simulated_ms: f64,
    /// The distance of the two distributions, in milliseconds.
    pub rms_demerit_ms: Option<f64>,
}

/// What came out of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// All requests.
    #[serde(flatten)]
    pub all: Figures,
    /// Reads of the medium.
    pub reads: Figures,
    /// Reads from the cache: by the trace's word where it has one, else the simulation's.
    pub hits: Figures,
    /// Writes.
    pub writes: Figures,
    /// Reads whose first sector was in the simulated cache.
    pub hits_simulated: u64,
    /// Means of the parts of a simulated request, in milliseconds; waiting for requests before it is not in them.
    pub seek_ms: f64,
    /// Until the first sector passed; a mean, as `seek_ms`.
    pub rotation_ms: f64,
    /// Until the last sector had passed; a mean, as `seek_ms`.
    pub transfer_ms: f64,
    /// Commands and the bus; a mean, as `seek_ms`.
    pub overhead_ms: f64,
    /// From time 0 to the last end, in simulated seconds.
    pub simulated_s: f64,
}

/// Serves a whole trace, first come first served, one request in the drive at a time.
///
/// Memory is bounded by the number of different response times, a million or so, whatever the number of requests.
///
/// # Errors
/// [`TraceError`] where the trace has one, or its clock runs over.
///
/// ```
/// use elbow_disk::trace::{Format, Trace};
/// use elbow_disk::{Controller, Drive, replay};
/// let drive = Drive::named("hp-c2247a")?;
/// let trace = Trace::new("t", Format::Validate, "R Miss 564347 2 14095.37 13876.27\n".as_bytes(), drive.sectors());
/// let report = replay(trace, Controller::new(&drive), |_, _, _| ())?;
/// assert_eq!(report.all.requests, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replay(
    trace: Trace<'_>,
    mut controller: Controller<'_>,
    mut each: impl FnMut(&Record, Ps, &Served),
) -> Result<Report, TraceError> {
    let mut tally = Tally::default();
    let mut now = Ps::ZERO;
    let file = trace.file().to_owned();
    for record in trace {
        let record = record?;
        let arrival = match record.arrival {
            Arrival::At(at) => at,
            Arrival::After(think) => now + think,
        };
        if arrival > CLOCK_MAX || now > CLOCK_MAX {
            return Err(TraceError::Line {
                file,
                line: record.line,
                reason: LineError::ClockRunsOver,
            });
        }
        let served = controller.serve(now.max(arrival), record.request);
        each(&record, arrival, &served);
        tally.add(&record, served.end - arrival, &served);
        now = served.end;
    }
    Ok(tally.report(now))
}

#[derive(Default)]
struct Tally {
    kinds: [Sample; 3],
    hits_simulated: u64,
    parts: [Ps; 4],
}

impl Tally {
    fn add(&mut self, record: &Record, response: Ps, served: &Served) {
        let kind = record.kind.unwrap_or(match (record.request.write, served.hit) {
            (true, _) => RecordKind::Write,
            (false, true) => RecordKind::Hit,
            (false, false) => RecordKind::Read,
        });
        self.kinds[kind as usize].add(record.measured, response);
        self.hits_simulated += u64::from(served.hit);
        let parts = [served.seek, served.rotation, served.transfer, served.overhead];
        for (sum, part) in self.parts.iter_mut().zip(parts) {
            *sum += part;
        }
    }

    fn report(self, end: Ps) -> Report {
        let mut all = Sample::default();
        for kind in &self.kinds {
            all.merge(kind);
        }
        let requests = all.simulated.count.max(1) as f64;
        let [seek_ms, rotation_ms, transfer_ms, overhead_ms] = self.parts.map(|sum| sum.ms() / requests);
        let [reads, hits, writes] = self.kinds.map(|kind| kind.figures());
        let (all, hits_simulated) = (all.figures(), self.hits_simulated);
        let simulated_s = end.ms() / 1e3;
        Report {
            all,
            reads,
            hits,
            writes,
            hits_simulated,
            seek_ms,
            rotation_ms,
            transfer_ms,
            overhead_ms,
            simulated_s,
        }
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
        self.simulated.add(simulated, 1);
        if let Some(measured) = measured {
            self.measured.add(measured, 1);
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
        }
    }
}

/// How often each time occurred, to the microsecond up to a second and to a thousandth beyond.
#[derive(Default)]
struct Distribution {
    times: BTreeMap<u64, u64>,
    count: u64,
    /// Wide enough for any number of any times.
    sum_ps: u128,
}

impl Distribution {
    fn add(&mut self, time: Ps, times: u64) {
        const EXACT_BITS: u32 = 20;
        const KEPT_BITS: u32 = 10;
        let us = (time.0 + 500_000) / 1_000_000;
        let bits = u64::BITS - us.leading_zeros();
        let drop = if bits > EXACT_BITS { bits - KEPT_BITS } else { 0 };
        *self.times.entry(us >> drop << drop).or_default() += times;
        self.count += times;
        self.sum_ps += u128::from(time.0) * u128::from(times);
    }

    fn merge(&mut self, other: &Distribution) {
        for (&us, &times) in &other.times {
            *self.times.entry(us).or_default() += times;
        }
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
            distribution.add(Ps(second * 1_000_000_000_000 + 1), 1);
        }
        assert!(distribution.times.len() < 12_000, "{}", distribution.times.len());
    }
}
