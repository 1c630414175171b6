//! The period of a turn, from the ends of writes.
//!
//! Writes of one place end whole turns apart, whatever pauses lie between them. So the ends, wound around a circle of the right circumference, all fall on one point; around any
//! other they are spread. How near they fall together is their *coherence*: the length of the mean of the points, 1 for one point, about `1/sqrt(n)` for `n` that
//! are spread. It is looked for from the longest period down, since the ends fall together on half a turn and a third of it as well.
//!
//! Source: the mean of points on a circle, Mardia and Jupp, *Directional Statistics* (2000), section 2.3.

use std::f64::consts::TAU;
use std::ops::Range;

/// Periods that are looked for, in ms: 1,200 to 30,000 turns a minute.
pub(super) const PERIOD_MS: Range<f64> = 2.0..50.0;
/// Less is chance: of 192 ends that are spread one period among all that are looked at reaches it once in a million times. More is much to ask of a machine that
/// is busy, and tells of ends late.
pub(super) const COHERENCE_MIN: f64 = 0.35;
/// As coherent as the most coherent, but for what a step beside the peak, and jitter, lose.
const AS_COHERENT: f64 = 0.75;
/// Steps from one period to the next are such a part of the width of a peak.
const STEP: f64 = 1.0 / 12.0;
/// The peak is found to such a part of a step.
const PRECISION: f64 = 1e-4;
/// This part of the ends is within the jitter.
const JITTER_PART: f64 = 0.8;

/// A period, and how well the ends keep it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turn {
    pub(super) period_ms: f64,
    /// Most ends are no farther than this from where they should be.
    pub(super) jitter_ms: f64,
}

/// How near the ends fall together on a circle of that circumference, and where, in radians.
pub(super) fn coherence(ends_ms: &[f64], period_ms: f64) -> (f64, f64) {
    let angles = ends_ms.iter().map(|end| (end / period_ms).fract() * TAU);
    let (sine, cosine) = angles.fold((0.0, 0.0), |(sine, cosine), angle| {
        (sine + angle.sin(), cosine + angle.cos())
    });
    (sine.hypot(cosine) / ends_ms.len().max(1) as f64, sine.atan2(cosine))
}

/// The period of ends that are whole turns apart; `None` where they have none.
pub(super) fn find(ends_ms: &[f64]) -> Option<Turn> {
    let step = step(ends_ms)?;
    let steps = ((1.0 / PERIOD_MS.start - 1.0 / PERIOD_MS.end) / step) as usize;
    let rates = (0..=steps).map(|index| 1.0 / PERIOD_MS.end + index as f64 * step);
    let looked_at: Vec<(f64, f64)> = rates.map(|rate| (rate, coherence(ends_ms, 1.0 / rate).0)).collect();
    let most = looked_at.iter().map(|&(_, found)| found).fold(0.0, f64::max);
    if most < COHERENCE_MIN {
        return None;
    }
    let (rate, _) = looked_at.iter().find(|&&(_, found)| found >= AS_COHERENT * most)?;
    refine(ends_ms, 1.0 / rate)
}

/// The same from a period that is nearly right, after more ends have come.
pub(super) fn refine(ends_ms: &[f64], period_ms: f64) -> Option<Turn> {
    let first = step(ends_ms)?;
    let (mut rate, mut step) = (1.0 / period_ms, first);
    while step > first * PRECISION {
        let at = |rate: f64| coherence(ends_ms, 1.0 / rate).0;
        let (here, left, right) = (at(rate), at(rate - step), at(rate + step));
        match (left > here, right > here) {
            (true, _) if left >= right => rate -= step,
            (_, true) => rate += step,
            _ => step /= 2.0,
        }
    }
    let period_ms = 1.0 / rate;
    let (found, _) = coherence(ends_ms, period_ms);
    (found >= COHERENCE_MIN && PERIOD_MS.contains(&period_ms)).then(|| Turn {
        period_ms,
        jitter_ms: jitter(ends_ms, period_ms),
    })
}

/// The width of a peak is one turn more or less in the time of all ends.
fn step(ends_ms: &[f64]) -> Option<f64> {
    let span = ends_ms.last()? - ends_ms.first()?;
    (span > 0.0).then(|| STEP / span)
}

fn jitter(ends_ms: &[f64], period_ms: f64) -> f64 {
    let middle = middle(ends_ms, period_ms);
    let off = ends_ms.iter().map(|end| around(end - middle, period_ms).abs());
    let mut off: Vec<f64> = off.collect();
    off.sort_unstable_by(f64::total_cmp);
    off[(off.len() as f64 * JITTER_PART) as usize]
}

/// The same moment of a turn, from half a turn before to half a turn after 0.
pub(super) fn around(time_ms: f64, period_ms: f64) -> f64 {
    (time_ms + period_ms / 2.0).rem_euclid(period_ms) - period_ms / 2.0
}

/// The middle of moments of a turn, from 0 on; outliers hardly move it.
pub(super) fn middle(moments_ms: &[f64], period_ms: f64) -> f64 {
    let away = |from: f64| -> f64 {
        let distances = moments_ms.iter().map(|moment| around(moment - from, period_ms).abs());
        distances.sum()
    };
    let best = moments_ms.iter().copied().min_by(|&a, &b| away(a).total_cmp(&away(b)));
    best.unwrap_or(0.0).rem_euclid(period_ms)
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    /// Ends of writes with pauses of 0 to 60 ms, each where the platter lets it, and late by up to `noise_ms`.
    fn ends(period_ms: f64, noise_ms: f64, outliers: f64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut end = 0.0;
        let mut ends = Vec::new();
        for _ in 0..192 {
            let begun: f64 = end + random.random::<f64>() * 60.0 + 1.0;
            end = (begun / period_ms).ceil() * period_ms + random.random::<f64>() * noise_ms;
            if random.random::<f64>() < outliers {
                end += 37.0 * random.random::<f64>();
            }
            ends.push(end);
        }
        ends
    }

    #[test]
    fn a_period_is_found_through_noise_and_outliers() {
        for period_ms in [4.0, 5.985_037, 8.333_333, 11.111_115, 16.667] {
            for (noise_ms, outliers) in [(0.0, 0.0), (0.5, 0.0), (0.3, 0.15)] {
                let found = find(&ends(period_ms, noise_ms, outliers)).expect("it turns");
                let off = (found.period_ms / period_ms - 1.0).abs();
                assert!(off < 1e-3, "{period_ms} +- {noise_ms}, {outliers}: {found:?}");
                assert!(found.jitter_ms <= noise_ms.max(0.01), "{noise_ms}: {found:?}");
            }
        }
    }

    /// A constant cost with noise of any size, however the pauses are drawn.
    #[test]
    fn noise_has_no_period() {
        for seed in 0..20 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut end = 0.0;
            let mut costs = || {
                end += random.random::<f64>() * 60.0 + 2.0 + random.random::<f64>() * 0.1;
                end
            };
            let ends: Vec<f64> = (0..192).map(|_| costs()).collect();
            assert_eq!(find(&ends), None, "seed {seed}");
        }
    }

    #[test]
    fn middles_go_around() {
        assert_eq!(middle(&[9.9, 0.2, 9.8, 5.0], 10.0), 9.9);
        assert!((around(9.9, 10.0) + 0.1).abs() < 1e-9);
    }
}
