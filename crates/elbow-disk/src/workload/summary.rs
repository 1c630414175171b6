//! Means and how far they can be trusted, in memory that does not grow with the number of requests.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Served;
use crate::percentiles::{Percentiles, Times};

/// Batches for a confidence interval: neighbours depend on each other, means of long batches hardly do.
const BATCHES: usize = 30;
/// 97.5 % of Student's t with 29 degrees of freedom.
const STUDENT_T: f64 = 2.045_229_642;

/// A mean in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Over all requests that were measured.
    pub mean: f64,
    /// Half of the 95 % confidence interval, by batch means; `None` for fewer requests than batches.
    pub ci95: Option<f64>,
}

/// What came of a simulation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Measured requests.
    pub requests: u64,
    /// Of those, reads.
    pub reads: u64,
    /// From pick to completion: the sum of the next four.
    pub service_ms: Estimate,
    /// To move the arm.
    pub seek_ms: Estimate,
    /// To wait for the first sector.
    pub rotation_ms: Estimate,
    /// From the first sector to the end of the last.
    pub transfer_ms: Estimate,
    /// Commands, bus and completion, as far as they were not hidden behind the mechanics.
    pub overhead_ms: Estimate,
    /// From arrival to completion.
    pub response_ms: Estimate,
    /// How response times are spread, in milliseconds.
    pub response_percentiles_ms: Percentiles,
    /// Service times that the scheduler estimated, per decision.
    pub estimations_per_request: f64,
    /// How long the drive took for the measured requests, in its own time.
    pub simulated_seconds: f64,
}

impl Summary {
    /// The means by name, without `_ms`, as reports have them.
    #[must_use]
    pub fn means(&self) -> [(&'static str, Estimate); 6] {
        [
            ("mean", self.service_ms),
            ("seek", self.seek_ms),
            ("rotation", self.rotation_ms),
            ("transfer", self.transfer_ms),
            ("overhead", self.overhead_ms),
            ("response", self.response_ms),
        ]
    }
}

/// One object: each mean as `..._ms` and `..._ci95_ms`.
impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_map(None)?;
        object.serialize_entry("requests", &self.requests)?;
        object.serialize_entry("reads", &self.reads)?;
        object.serialize_entry("estimations_per_request", &self.estimations_per_request)?;
        object.serialize_entry("simulated_seconds", &self.simulated_seconds)?;
        let per_second = self.requests as f64 / self.simulated_seconds;
        object.serialize_entry("simulated_requests_per_second", &per_second)?;
        object.serialize_entry("response_percentiles_ms", &self.response_percentiles_ms)?;
        for (name, Estimate { mean, ci95 }) in self.means() {
            object.serialize_entry(&format!("{name}_ms"), &mean)?;
            object.serialize_entry(&format!("{name}_ci95_ms"), &ci95)?;
        }
        object.end()
    }
}

const METRICS: usize = 6;

/// Sums in picoseconds, by batch.
pub(super) struct BatchSums {
    per_batch: u64,
    requests: u64,
    reads: u64,
    sums: [[u128; METRICS]; BATCHES],
    responses: Times,
}

impl BatchSums {
    pub(super) fn new(requests: u64) -> BatchSums {
        BatchSums {
            per_batch: requests.div_ceil(BATCHES as u64),
            requests: 0,
            reads: 0,
            sums: [[0; METRICS]; BATCHES],
            responses: Times::default(),
        }
    }

    #[inline]
    pub(super) fn add(&mut self, served: &Served) {
        let batch = &mut self.sums[(self.requests / self.per_batch) as usize];
        for (sum, value) in batch.iter_mut().zip(metrics(served)) {
            *sum += u128::from(value);
        }
        self.responses.add(served.ended - served.arrived);
        self.requests += 1;
        self.reads += u64::from(!served.write);
    }

    pub(super) fn summary(&self, estimations_per_request: f64, simulated_seconds: f64) -> Summary {
        let [service_ms, seek_ms, rotation_ms, transfer_ms, overhead_ms, response_ms] =
            std::array::from_fn(|metric| self.estimate(metric));
        Summary {
            requests: self.requests,
            reads: self.reads,
            service_ms,
            seek_ms,
            rotation_ms,
            transfer_ms,
            overhead_ms,
            response_ms,
            response_percentiles_ms: self.responses.percentiles(),
            estimations_per_request,
            simulated_seconds,
        }
    }

    fn estimate(&self, metric: usize) -> Estimate {
        let total: u128 = self.sums.iter().map(|batch| batch[metric]).sum();
        let ms = |sum: u128, requests: u64| sum as f64 / 1e9 / requests.max(1) as f64;
        let means: Vec<f64> = (0..BATCHES)
            .map_while(|batch| Some((batch, self.in_batch(batch as u64)?)))
            .map(|(batch, requests)| ms(self.sums[batch][metric], requests))
            .collect();
        Estimate {
            mean: ms(total, self.requests),
            ci95: (means.len() == BATCHES).then(|| half_width(&means)),
        }
    }

    /// Requests in a batch; `None` behind the last one that has any.
    fn in_batch(&self, batch: u64) -> Option<u64> {
        let before = self.per_batch * batch;
        (before < self.requests).then(|| self.per_batch.min(self.requests - before))
    }
}

fn metrics(served: &Served) -> [u64; METRICS] {
    let &Served {
        seek,
        rotation,
        transfer,
        overhead,
        arrived,
        ended,
        ..
    } = served;
    [
        served.service().0,
        seek.0,
        rotation.0,
        transfer.0,
        overhead.0,
        (ended - arrived).0,
    ]
}

fn half_width(means: &[f64]) -> f64 {
    let count = means.len() as f64;
    let mean = means.iter().sum::<f64>() / count;
    let variance = means.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    STUDENT_T * (variance / count).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Lbn, Ps};

    fn served(ms: u64) -> Served {
        let took = Ps(ms * 1_000_000_000);
        let zero = Ps::ZERO;
        Served {
            number: 0,
            write: true,
            lbn: Lbn(0),
            sectors: 8,
            arrived: zero,
            started: zero,
            ended: took,
            seek: took,
            rotation: zero,
            transfer: zero,
            overhead: zero,
            waiting: 0,
        }
    }

    #[test]
    fn a_mean_is_over_all_and_its_interval_over_batches() {
        let mut batch_sums = BatchSums::new(60);
        // Two in a batch: batch means are 1, 3, 1, 3 ...
        for request in 0..60 {
            batch_sums.add(&served([0, 2, 2, 4][request % 4]));
        }
        let seek = batch_sums.summary(0.0, 0.0).seek_ms;
        assert!((seek.mean - 2.0).abs() < 1e-12);
        let spread = (30.0 / 29.0_f64).sqrt(); // of thirty values one away from their mean
        assert!((seek.ci95.unwrap() - STUDENT_T * spread / 30.0_f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn few_requests_have_a_mean_and_no_interval() {
        let mut batch_sums = BatchSums::new(2);
        batch_sums.add(&served(1));
        batch_sums.add(&served(2));
        assert_eq!(batch_sums.summary(0.0, 0.0).seek_ms, Estimate { mean: 1.5, ci95: None });
    }
}
