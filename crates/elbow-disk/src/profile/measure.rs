//! A profile from nothing: the turn, the least costs, the rows, and a trial.

use std::ops::Range;

use elbow_ranges::RangeSet;
use rand::seq::SliceRandom;

use super::anchors::{Anchors, turn_sectors};
use super::file::{FORMAT, Rotation, Row, RowWrite, Spread, Track, Trial};
use super::layout;
use super::predict::Predictor;
use super::rotation::{self, COHERENCE_MIN, Turn};
use super::survey::{Doing, Survey};
use super::{Identity, Probe, Profile, ProfileError, Step};

/// A smaller area may be less than a turn, and then its places are not on all sides of it.
pub const AREA_BYTES_MIN: u64 = 4 << 20;
/// Bytes of a write that fills the area.
const FILL_BYTES: u64 = 1 << 20;
/// Pauses are of up to so many ms: some turns, of any drive.
const PAUSE_MS: f64 = 60.0;
/// Writes of one place, for the period.
const TURN_WRITES: u64 = 192;
/// And so many more after each of some pauses that grow: the longer the time, the better the period is known.
const LONGER_WRITES: u64 = 12;
const LONGER_MS: [f64; 4] = [400.0, 800.0, 1600.0, 3200.0];
/// Writes at random places.
const ANYWHERE_WRITES: u64 = 192;
/// Rows of a turn forwards and backwards: a log goes forwards.
const ROWS_FORWARD: f64 = 96.0;
const ROWS_BACK: f64 = 48.0;
/// Rows go on a little behind a turn.
const TURNS_FORWARD: f64 = 1.25;
/// A write that takes so many turns longer than it must has met something else, and is done again.
const OUTLIER_TURNS: f64 = 1.25;
/// A place is visited so much before it would be missed.
const LEAD_TURNS: f64 = 1.0 / 100.0;
/// Writes of the trial, each way.
const TRIAL_WRITES: u64 = 128;

/// What is written where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The sectors of the area; what they hold is lost, and they are zeros afterwards.
    pub area: Range<u64>,
    /// Sectors of each write.
    pub write_sectors: u64,
    /// Writes for each skip distance, from different places; at least 1.
    pub samples: u64,
}

impl Plan {
    /// Writes of one sector in an area.
    ///
    /// ```
    /// assert_eq!(elbow_disk::profile::Plan::new(0..8192).write_sectors, 1);
    /// ```
    #[must_use]
    pub fn new(area: Range<u64>) -> Self {
        Self {
            area,
            write_sectors: 1,
            samples: 6,
        }
    }

    fn check<P: Probe>(&self, probe: &P) -> Result<(), ProfileError> {
        let (shape, Range { start, end }) = (probe.shape(), self.area.clone());
        if start > end || end > shape.sectors {
            let sectors = shape.sectors;
            return Err(ProfileError::Outside { start, end, sectors });
        }
        let bytes = (end - start).saturating_mul(shape.sector_bytes.into());
        let needed = AREA_BYTES_MIN.max(
            self.write_sectors
                .saturating_mul(shape.sector_bytes.into())
                .saturating_mul(256),
        );
        match bytes < needed {
            true => Err(ProfileError::TooSmall { bytes, needed }),
            false => Ok(()),
        }
    }
}

/// Measures a device, and says how far it is to `watch`, which may stop it by `false`. On a disk it takes about a minute; where nothing turns, some seconds.
///
/// # Errors
/// [`ProfileError::TooSmall`] and [`ProfileError::Outside`] for the area; [`ProfileError::Stopped`]; those of the device.
pub fn measure<P: Probe>(
    probe: &mut P,
    plan: &Plan,
    device: Identity,
    watch: &mut dyn FnMut(Step) -> bool,
) -> Result<Profile, ProfileError> {
    plan.check(probe)?;
    let sector_bytes = probe.shape().sector_bytes;
    let mut survey = Survey::new(probe, plan.area.clone(), plan.write_sectors, watch);
    survey.fill((FILL_BYTES / u64::from(sector_bytes)).max(1))?;
    let turn = turn(&mut survey)?;
    let (anywhere, ends) = anywhere(&mut survey)?;
    // Ends that keep to a beat wherever the place is are those of a timer.
    let turn = turn.filter(|turn| rotation::coherence(&ends, turn.period_ms).0 < COHERENCE_MIN);
    let found = turn.map(|turn| turning(&mut survey, plan, turn)).transpose()?;
    let (rotation, tracks, rows) = found.map_or((None, Vec::new(), Vec::new()), |(rotation, tracks, rows)| {
        (Some(rotation), tracks, rows)
    });
    Ok(Profile {
        format: FORMAT,
        sector_bytes,
        area_sectors: [plan.area.start, plan.area.end],
        write_sectors: plan.write_sectors,
        row_count: rows.len(),
        ends_with: survey.ends_with(),
        device,
        anywhere,
        rotation,
        tracks,
        rows,
    })
}

/// The period, by writing one place again and again.
fn turn<P: Probe>(survey: &mut Survey<'_, P>) -> Result<Option<Turn>, ProfileError> {
    let total = TURN_WRITES + LONGER_WRITES * LONGER_MS.len() as u64;
    let mut ends = Vec::new();
    again(survey, &mut ends, TURN_WRITES, total)?;
    let mut turn = rotation::find(&ends);
    for pause in LONGER_MS {
        let Some(known) = turn else {
            break;
        };
        survey.think(pause);
        again(survey, &mut ends, LONGER_WRITES, total)?;
        turn = rotation::refine(&ends, known.period_ms);
    }
    Ok(turn)
}

fn again<P: Probe>(
    survey: &mut Survey<'_, P>,
    ends: &mut Vec<f64>,
    writes: u64,
    total: u64,
) -> Result<(), ProfileError> {
    for _ in 0..writes {
        let pause = survey.below(PAUSE_MS);
        survey.think(survey.thought_ms() + pause);
        survey.write(survey.area.start)?;
        ends.push(survey.last.at_ms);
        survey.tell(Doing::Turning, ends.len() as u64, total)?;
    }
    Ok(())
}

/// Costs of writes anywhere, and when they ended.
fn anywhere<P: Probe>(survey: &mut Survey<'_, P>) -> Result<(Spread, Vec<f64>), ProfileError> {
    let (mut costs, mut ends) = (Vec::new(), Vec::new());
    for done in 1..=ANYWHERE_WRITES {
        let (at, pause) = (survey.anywhere(), survey.below(PAUSE_MS));
        survey.think(pause);
        costs.push(survey.write(at)?.cost_ms);
        ends.push(survey.last.at_ms);
        survey.tell(Doing::Anywhere, done, ANYWHERE_WRITES)?;
    }
    costs.sort_unstable_by(f64::total_cmp);
    let part = |part: f64| rounded(costs[(costs.len() as f64 * part) as usize]);
    let spread = Spread {
        p10_ms: part(0.1),
        p50_ms: part(0.5),
        p90_ms: part(0.9),
    };
    Ok((spread, ends))
}

type Turning = (Rotation, Vec<Track>, Vec<Row>);

fn turning<P: Probe>(survey: &mut Survey<'_, P>, plan: &Plan, turn: Turn) -> Result<Turning, ProfileError> {
    let Turn { period_ms, jitter_ms } = turn;
    let turn_sectors = turn_sectors(survey, period_ms)?;
    let anchors = Anchors::measure(survey, period_ms, turn_sectors)?;
    let skips = skips(survey, turn_sectors).into_iter();
    let mut rows: Vec<Row> = skips
        .map(|skip| Row {
            skip,
            writes: Vec::new(),
        })
        .collect();
    fill_rows(survey, &mut rows, plan.samples.max(1), &anchors, period_ms)?;
    let tracks = layout::tracks(survey, turn, turn_sectors)?;
    let predictor = Predictor::of(&rows, &tracks, plan.area.end, turn, turn_sectors);
    let trial = trial(survey, &predictor, period_ms)?;
    let rotation = Rotation {
        period_ms,
        jitter_ms: rounded(jitter_ms),
        turn_sectors: rounded(turn_sectors),
        trial,
    };
    Ok((rotation, tracks, rows))
}

/// The distances: all of a turn forwards, fewer back, and some that are far.
fn skips<P: Probe>(survey: &Survey<'_, P>, turn_sectors: f64) -> Vec<i64> {
    let farthest = ((survey.area.end - survey.area.start) / 2).cast_signed();
    let step = |rows: f64| ((turn_sectors / rows) as usize).max(1);
    let (turn, own) = (turn_sectors.ceil() as i64, survey.write_sectors.cast_signed());
    let forward = (0..=(turn_sectors * TURNS_FORWARD) as i64).step_by(step(ROWS_FORWARD));
    let back = (0..=turn).step_by(step(ROWS_BACK)).map(|skip| -own - skip);
    let far = (1..i64::BITS - 2)
        .map_while(|doubling| turn.checked_shl(doubling))
        .take_while(|&skip| 0 < skip && skip <= farthest);
    let mut skips: Vec<i64> = far.flat_map(|skip| [skip, -skip]).chain(forward).chain(back).collect();
    skips.retain(|skip| skip.abs() <= farthest);
    skips.sort_unstable();
    skips.dedup();
    skips
}

/// A walk through the area, each distance once a round, in an order by chance.
fn fill_rows<P: Probe>(
    survey: &mut Survey<'_, P>,
    rows: &mut [Row],
    rounds: u64,
    anchors: &Anchors,
    period_ms: f64,
) -> Result<(), ProfileError> {
    let total = rounds * rows.len() as u64;
    let mut order: Vec<usize> = (0..rows.len()).collect();
    for round in 0..rounds {
        order.shuffle(&mut survey.random);
        for (done, &index) in order.iter().enumerate() {
            let row = &mut rows[index];
            row.writes.push(row_write(survey, row.skip, anchors, period_ms)?);
            survey.tell(Doing::Skipping, round * order.len() as u64 + done as u64 + 1, total)?;
        }
    }
    Ok(())
}

/// A write of that distance, from where the last one was if that can be: where in a turn it ends, and, by a second visit, whether it can be as quick as the quickest.
fn row_write<P: Probe>(
    survey: &mut Survey<'_, P>,
    skip: i64,
    anchors: &Anchors,
    period_ms: f64,
) -> Result<RowWrite, ProfileError> {
    let (least, most) = (
        anchors.least_ms(skip),
        anchors.most_ms(skip).max(anchors.least_ms(skip)),
    );
    let (start, at, end) = end_after(survey, skip, most + OUTLIER_TURNS * period_ms, period_ms)?;
    let write = |quickest_ms: f64| RowWrite {
        // Rounded it may lie behind the end of a turn, which no file may have.
        end_ms: rounded(end).min(period_ms),
        quickest_ms: rounded(quickest_ms),
    };
    let lead = least + LEAD_TURNS * period_ms;
    if most <= lead {
        return Ok(write(most));
    }
    survey.write(start)?;
    survey.think((end - lead).rem_euclid(period_ms));
    let is_reached = survey.write(at)?.cost_ms < lead + period_ms / 2.0;
    Ok(write(if is_reached { lead } else { most }))
}

/// The two places, and where in a turn the second write ended.
fn end_after<P: Probe>(
    survey: &mut Survey<'_, P>,
    skip: i64,
    outlier_ms: f64,
    period_ms: f64,
) -> Result<(u64, u64, f64), ProfileError> {
    if survey.at_skip(survey.last.sector, skip).is_none() {
        let start = survey.start_of(skip);
        survey.write(start)?;
    }
    let start = survey.last.sector - survey.write_sectors;
    let at = survey.last.sector.saturating_add_signed(skip);
    let mut sample = survey.write(at)?;
    if sample.cost_ms > outlier_ms {
        survey.write(start)?;
        sample = survey.write(at)?;
    }
    Ok((start, at, sample.since_ms.rem_euclid(period_ms)))
}

/// Writes where the predictor says, and in order.
fn trial<P: Probe>(survey: &mut Survey<'_, P>, predictor: &Predictor, period_ms: f64) -> Result<Trial, ProfileError> {
    let free: RangeSet = std::iter::once(survey.area.clone()).collect();
    let (mut predicted, mut taken, mut in_order, mut missed) = (0.0, 0.0, 0.0, 0);
    for done in 0..TRIAL_WRITES {
        let think = survey.below(2.0 * period_ms);
        survey.think(think);
        let choice = predictor.choose(&free, survey.write_sectors, 1, survey.last.sector, survey.thought_ms());
        let choice = choice.unwrap_or_else(|| unreachable!("a write fits into the area"));
        let cost = survey.write(choice.at)?.cost_ms;
        let expected = choice.cost_ms.unwrap_or(cost);
        missed += u64::from(cost > expected + period_ms / 2.0);
        (predicted, taken) = (predicted + expected, taken + cost);
        survey.tell(Doing::Trying, done, 2 * TRIAL_WRITES)?;
    }
    for done in 0..TRIAL_WRITES {
        let think = survey.below(2.0 * period_ms);
        survey.think(think);
        let at = survey.at_skip(survey.last.sector, 0).unwrap_or(survey.area.start);
        in_order += survey.write(at)?.cost_ms;
        survey.tell(Doing::Trying, TRIAL_WRITES + done + 1, 2 * TRIAL_WRITES)?;
    }
    let mean = |sum: f64| rounded(sum / TRIAL_WRITES as f64);
    Ok(Trial {
        writes: TRIAL_WRITES,
        predicted_ms: mean(predicted),
        mean_ms: mean(taken),
        missed,
        in_order_ms: mean(in_order),
    })
}

/// To a tenth of a microsecond, so that files are short.
fn rounded(ms: f64) -> f64 {
    (ms * 1e4).round() / 1e4
}
