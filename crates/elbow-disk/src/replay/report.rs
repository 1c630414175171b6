//! What came out of a replay.

use serde::Serialize;

use crate::percentiles::Percentiles;
use crate::trace::Omissions;

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
    /// How the measured ones are spread; none where the trace has none.
    pub percentiles_measured_ms: Option<Percentiles>,
    /// How the simulated ones are spread.
    pub percentiles_simulated_ms: Percentiles,
}

/// What came out of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// All requests.
    #[serde(flatten)]
    pub all: Figures,
    /// Reads of the medium.
    pub reads: Figures,
    /// Reads from the cache: by the trace's word where it tells them from others, else by the simulation's.
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
    /// What the trace has and the replay has not.
    #[serde(flatten)]
    pub lost: Omissions,
    /// What one has to know of these figures, in sentences.
    pub notes: Vec<String>,
}

impl Report {
    /// What does not go without saying.
    pub(super) fn told(&self, marks_are_alike: bool) -> Vec<String> {
        let Omissions {
            discards,
            others,
            late,
            unknown_kinds,
        } = self.lost;
        let all = [
            (self.all.requests == 0, "the trace has no requests".to_owned()),
            (
                discards > 0,
                format!("{discards} discards are left out: a disk has none"),
            ),
            (
                others > 0,
                format!("{others} flushes, or others without sectors, are left out"),
            ),
            (
                late > 0,
                format!("{late} requests are before the one on the line above; they arrive with it"),
            ),
            (
                unknown_kinds > 0,
                format!(
                    "{unknown_kinds} reads are of a kind that is not known; whether they are hits is the simulation's word"
                ),
            ),
            (
                marks_are_alike,
                "the trace calls all reads the same; which are hits is the simulation's word".to_owned(),
            ),
        ];
        all.into_iter()
            .filter_map(|(is_so, note)| is_so.then_some(note))
            .collect()
    }
}
