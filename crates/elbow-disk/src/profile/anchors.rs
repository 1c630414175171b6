//! What writes cost at least, by skip distance: found at some distances, taken in proportion between them.

use super::rotation::{around, middle};
use super::survey::{Doing, Survey};
use super::{Probe, ProfileError};

/// Places where each distance is tried.
const STARTS: usize = 3;
/// It is found to such a part of a turn.
const PRECISION_TURNS: f64 = 1.0 / 300.0;
/// Writes that tell where in a turn a place lies, an odd number.
const LOOKS: usize = 3;

/// Two turns are near: another track, and not much of a seek.
const NEAR_TURNS: f64 = 2.0;
/// Distances in turns: near ones are what a log needs.
const DISTANCES: [f64; 12] = [0.0, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// What writes of one distance cost at least, between different places.
struct Anchor {
    skip: i64,
    least_ms: f64,
    most_ms: f64,
}

/// By rising skip distance.
pub(super) struct Anchors {
    anchors: Vec<Anchor>,
    /// What is no farther than this has at most the most of all of them: whether a track ends between two places is chance.
    near: u64,
}

impl Anchors {
    pub(super) fn measure<P: Probe>(
        survey: &mut Survey<'_, P>,
        period_ms: f64,
        turn_sectors: f64,
    ) -> Result<Self, ProfileError> {
        let farthest = (survey.area.end - survey.area.start) / 2;
        let near = DISTANCES.map(|turns| (turns * turn_sectors) as i64);
        let near = || near.into_iter().filter(|&skip| skip as u64 <= farthest);
        let own = survey.write_sectors.cast_signed();
        let mut skips: Vec<i64> = near().map(|skip| -skip - own).chain(near()).collect();
        skips.sort_unstable();
        skips.dedup();
        let mut anchors = Vec::new();
        for (index, &skip) in skips.iter().enumerate() {
            let mut costs = Vec::new();
            for _ in 0..STARTS {
                let start = survey.start_of(skip);
                costs.push(quickest(survey, period_ms, start, skip)?);
            }
            anchors.push(Anchor {
                skip,
                least_ms: costs.iter().copied().fold(f64::MAX, f64::min),
                most_ms: costs.iter().copied().fold(0.0, f64::max),
            });
            survey.tell(Doing::Reaching, index as u64 + 1, skips.len() as u64)?;
        }
        let near = (NEAR_TURNS * turn_sectors) as u64;
        Ok(Self { anchors, near })
    }

    /// The least that a write of that distance costs between some places.
    pub(super) fn least_ms(&self, skip: i64) -> f64 {
        let after = self.anchors.partition_point(|anchor| anchor.skip < skip);
        let nearest = |index: usize| &self.anchors[index.min(self.anchors.len() - 1)];
        let (left, right) = (nearest(after.saturating_sub(1)), nearest(after));
        if right.skip <= left.skip {
            return left.least_ms;
        }
        let part = (skip - left.skip) as f64 / (right.skip - left.skip) as f64;
        left.least_ms + (right.least_ms - left.least_ms) * part.clamp(0.0, 1.0)
    }

    /// What it costs at least between all places, as far as was seen: no less than that of any shorter distance.
    pub(super) fn most_ms(&self, skip: i64) -> f64 {
        let farthest = self.near.max(skip.unsigned_abs() * 2);
        let shorter = self
            .anchors
            .iter()
            .filter(|anchor| anchor.skip.unsigned_abs() <= farthest);
        shorter.map(|anchor| anchor.most_ms).fold(0.0, f64::max)
    }
}

/// The least cost from one place to another, by ever later submissions until the place is missed.
pub(super) fn quickest<P: Probe>(
    survey: &mut Survey<'_, P>,
    period_ms: f64,
    start: u64,
    skip: i64,
) -> Result<f64, ProfileError> {
    let mut ends = Vec::new();
    let mut reached = f64::MAX;
    for _ in 0..LOOKS {
        let sample = go(survey, start, skip, 0.0)?
            .unwrap_or_else(|| unreachable!("a start from which the skip leads into the area"));
        ends.push(sample.since_ms.rem_euclid(period_ms));
        reached = reached.min(sample.cost_ms);
    }
    let end = middle(&ends, period_ms);
    let mut missed = 0.0;
    while reached - missed > period_ms * PRECISION_TURNS {
        let lead = f64::midpoint(reached, missed);
        match is_reached(survey, period_ms, (start, skip), end, lead)? {
            true => reached = lead,
            false => missed = lead,
        }
    }
    Ok(reached)
}

/// Whether a write that is submitted so long before the moment at which it should end does so: twice of two or three times.
fn is_reached<P: Probe>(
    survey: &mut Survey<'_, P>,
    period_ms: f64,
    (start, skip): (u64, i64),
    end_ms: f64,
    lead_ms: f64,
) -> Result<bool, ProfileError> {
    let (mut yes, mut no) = (0, 0);
    while yes < 2 && no < 2 {
        let think = (end_ms - lead_ms).rem_euclid(period_ms);
        let sample = go(survey, start, skip, think)?;
        let late = sample.map_or(period_ms, |sample| sample.cost_ms - lead_ms);
        match late < period_ms / 2.0 {
            true => yes += 1,
            false => no += 1,
        }
    }
    Ok(yes > no)
}

fn go<P: Probe>(
    survey: &mut Survey<'_, P>,
    start: u64,
    skip: i64,
    think_ms: f64,
) -> Result<Option<super::survey::Sample>, ProfileError> {
    survey.write(start)?;
    let Some(at) = survey.at_skip(survey.last.sector, skip) else {
        return Ok(None);
    };
    survey.think(think_ms);
    survey.write(at).map(Some)
}

/// Sectors that pass the head in a turn: where in a turn writes end 1, 2, 4 ... sectors on, until it is an eighth of a turn later.
pub(super) fn turn_sectors<P: Probe>(survey: &mut Survey<'_, P>, period_ms: f64) -> Result<f64, ProfileError> {
    let length = survey.area.end - survey.area.start;
    let origin = end_of(survey, period_ms, 0)?;
    let (mut skip, mut later) = (1_i64, 0.0);
    while skip.cast_unsigned() < length / 4 {
        let found = end_of(survey, period_ms, skip)? - origin;
        // Twice as far is twice as late, about: so it is known which turn it is in.
        later = 2.0 * later + around(found - 2.0 * later, period_ms);
        if later >= period_ms / 8.0 {
            return Ok(period_ms / later * skip as f64);
        }
        skip *= 2;
    }
    Ok(length as f64)
}

/// Writes for the middle, an odd number: on some, a track ends between the two places.
const ENDS: usize = 9;

fn end_of<P: Probe>(survey: &mut Survey<'_, P>, period_ms: f64, skip: i64) -> Result<f64, ProfileError> {
    let mut ends = Vec::new();
    for _ in 0..ENDS {
        let start = survey.start_of(skip);
        if let Some(sample) = go(survey, start, skip, 0.0)? {
            ends.push(sample.since_ms.rem_euclid(period_ms));
        }
    }
    Ok(middle(&ends, period_ms))
}
