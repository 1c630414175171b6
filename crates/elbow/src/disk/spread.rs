//! How times are spread, on a line.

use elbow_disk::Percentiles;

/// As `response p50 7.123, p90 ... ms`.
pub(super) fn line(name: &str, percentiles: &Percentiles) -> String {
    let all = percentiles.named().map(|(at, ms)| format!("{at} {ms:.3}"));
    format!("{name} {} ms", all.join(", "))
}
