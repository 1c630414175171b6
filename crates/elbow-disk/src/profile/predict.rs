//! What a write will cost, and the cheapest of all free places.

use std::ops::Range;

use elbow_file::range_device::first_aligned_fit;
use elbow_ranges::RangeSet;

use super::rotation::Turn;
use super::{Profile, ProfileError, Row, RowWrite, Track};

/// A place is given up if it has to be reached more exactly than so many times the jitter of the drive allows.
const MARGIN_JITTERS: f64 = 3.0;
/// And this part of a turn: the clock of a drive is not quite that of the machine.
const MARGIN_TURNS: f64 = 1.0 / 500.0;

/// Rows that are nearer than this are much alike.
const NEAR_TURNS: f64 = 1.0 / 24.0;

/// From track to track over more than so many, all kinds of jumps lie between.
const CROSSED_MAX: usize = 64;

/// A place for a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Its first sector.
    pub at: u64,
    /// What the write will cost there, on average; `None` where it is not known.
    pub cost_ms: Option<f64>,
}

/// Costs by a profile.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::Drive;
/// use elbow_disk::device::{ModelledDevice, Setup};
/// use elbow_disk::profile::{DeviceProbe, Identity, Kind, Plan, Predictor, measure};
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let mut probe = DeviceProbe::new(ModelledDevice::new(&drive, Setup::default()))?;
/// let identity = Identity { kind: Kind::Model, model: None, serial: None, partition_start_bytes: None, bytes: drive.sectors() * 512 };
/// let profile = measure(&mut probe, &Plan { samples: 2, ..Plan::new(0..16_384) }, identity, &mut |_| true)?;
///
/// let predictor = Predictor::new(&profile)?;
/// let free = [10_000..10_200].into_iter().collect();
/// let choice = predictor.choose(&free, 1, 1, 10_000, 0.0).expect("there is room");
/// assert!(choice.at > 10_008 && choice.cost_ms < Some(3.0), "not the next sector, which has just gone by: {choice:?}");
/// assert!(predictor.cost_ms(0, 0.0) > 11.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Predictor {
    period_ms: f64,
    margin_ms: f64,
    sector_ms: f64,
    /// By rising skip; at least one.
    rows: Vec<Row>,
    /// By rising place; perhaps none.
    tracks: Vec<Track>,
    /// What was measured: behind it nobody knows the tracks.
    area_end: u64,
}

impl Predictor {
    /// By the rows of a profile.
    ///
    /// # Errors
    /// [`ProfileError::NoRotation`] for one that has none.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        let rotation = profile.rotation.as_ref().filter(|_| !profile.rows.is_empty());
        let rotation = rotation.ok_or(ProfileError::NoRotation)?;
        let turn = Turn {
            period_ms: rotation.period_ms,
            jitter_ms: rotation.jitter_ms,
        };
        let area_end = profile.area_sectors[1];
        Ok(Self::of(
            &profile.rows,
            &profile.tracks,
            area_end,
            turn,
            rotation.turn_sectors,
        ))
    }

    pub(super) fn of(rows: &[Row], tracks: &[Track], area_end: u64, turn: Turn, turn_sectors: f64) -> Self {
        let Turn { period_ms, jitter_ms } = turn;
        Self {
            period_ms,
            margin_ms: MARGIN_JITTERS * jitter_ms + MARGIN_TURNS * period_ms,
            sector_ms: period_ms / turn_sectors,
            rows: pooled(rows, period_ms, turn_sectors),
            tracks: tracks.to_vec(),
            area_end,
        }
    }

    /// The same for a device whose sectors are so many times as small: the system writes those of the profile, whole, for one of them. `None` where they are no part of one.
    pub(super) fn with_sectors_of(mut self, profile_bytes: u32, bytes: u32) -> Option<Self> {
        let times = profile_bytes
            .checked_div(bytes)
            .filter(|times| times * bytes == profile_bytes)?;
        let parts = f64::from(times);
        self.sector_ms /= parts;
        // Where in a large sector the small ones lie makes that much of a difference.
        self.margin_ms += self.sector_ms * (parts - 1.0);
        self.area_end *= u64::from(times);
        for row in &mut self.rows {
            row.skip *= i64::from(times);
        }
        for track in &mut self.tracks {
            track.start *= u64::from(times);
            track.sector_ms /= parts;
        }
        Some(self)
    }

    /// The mean cost of a write so many sectors behind the end of the one before, that long after it. Skips that were not measured are like the nearest before them.
    #[must_use]
    pub fn cost_ms(&self, skip: i64, think_ms: f64) -> f64 {
        let after = self.rows.partition_point(|row| row.skip <= skip);
        let row = &self.rows[after.saturating_sub(1)];
        self.row_cost(row, skip - row.skip, think_ms)
    }

    /// The cheapest place among free ones for so many sectors, when the last write has ended before sector `after` and that long ago; `None` where none fits. It takes time by the number of
    /// tracks, or of rows, and of free ranges.
    #[must_use]
    pub fn choose(&self, free: &RangeSet, sectors: u64, alignment: u64, after: u64, think_ms: f64) -> Option<Choice> {
        let need = Need {
            ranges: free.iter().collect(),
            sectors,
            alignment,
        };
        let cheapest = match self.track_of(after) {
            Some(from) => self.on_tracks(&need, from, after, think_ms),
            None => None,
        };
        let cheapest = cheapest.or_else(|| self.by_rows(&need, after, think_ms));
        let anywhere = || first_aligned_fit(free, sectors, alignment).map(|at| Choice { at, cost_ms: None });
        cheapest.or_else(anywhere)
    }

    /// The track of the sector before that one, in which a write ends there.
    fn track_of(&self, end: u64) -> Option<usize> {
        let tracks = self.tracks.partition_point(|track| track.start < end);
        tracks.checked_sub(1).filter(|_| end <= self.area_end)
    }

    /// By where in a turn each place lies. On each track the first place that can be reached, and the first of all.
    fn on_tracks(&self, need: &Need, from: usize, after: u64, think_ms: f64) -> Option<Choice> {
        let now = self.tracks[from].moment(after) + think_ms;
        let ends = self
            .tracks
            .iter()
            .skip(1)
            .map(|track| track.start)
            .chain([self.area_end]);
        let choices = self
            .tracks
            .iter()
            .zip(ends)
            .enumerate()
            .flat_map(|(index, (track, end))| {
                let least = self.reach(from, index, after, track.start) + self.margin_ms;
                let length = need.sectors as f64 * track.sector_ms;
                let cost = move |at: u64| {
                    let ends = track.moment(at) + length - now - least;
                    least + ends.rem_euclid(self.period_ms)
                };
                // Later by so much than the first sector of the track is the first that can be reached.
                let passed = (now + least - track.moment_ms - length).rem_euclid(self.period_ms) / track.sector_ms;
                let reached = track.start.saturating_add(passed.ceil() as u64);
                let places = [reached.min(end)..end, track.start..end];
                let fits = places.into_iter().filter_map(|starts| need.first_fit_in(&starts));
                fits.map(move |at| Choice {
                    at,
                    cost_ms: Some(cost(at)),
                })
            });
        cheapest(choices)
    }

    /// What a write on a track costs at least, from another.
    fn reach(&self, from: usize, to: usize, after: u64, start: u64) -> f64 {
        let near = |skip: i64| {
            let row = &self.rows[self.rows.partition_point(|row| row.skip <= skip).saturating_sub(1)];
            row.writes
                .iter()
                .map(|write| write.quickest_ms)
                .fold(f64::MAX, f64::min)
        };
        if from == to {
            return near(0);
        }
        let between = from.min(to) + 1..=from.max(to);
        let crossed = self.tracks[between].iter().take(CROSSED_MAX);
        let jumps = crossed.map(|track| track.reach_ms).fold(0.0, f64::max);
        jumps.max(near(start.cast_signed() - after.cast_signed()))
    }

    fn by_rows(&self, need: &Need, after: u64, think_ms: f64) -> Option<Choice> {
        let ends = self.rows.iter().skip(1).map(|row| Some(row.skip)).chain([None]);
        let choices = self.rows.iter().zip(ends).filter_map(|(row, end)| {
            let starts = place(after, row.skip)..end.map_or(u64::MAX, |end| place(after, end));
            let at = need.first_fit_in(&starts)?;
            let beside = at - place(after, row.skip);
            let cost_ms = Some(self.row_cost(row, beside as i64, think_ms));
            Some(Choice { at, cost_ms })
        });
        cheapest(choices)
    }

    /// The cost so many sectors beside a row's skip: the place comes under the head later by what lies between.
    fn row_cost(&self, row: &Row, beside: i64, think_ms: f64) -> f64 {
        let later = beside as f64 * self.sector_ms - think_ms;
        let costs = row.writes.iter().map(|write| {
            let least = write.quickest_ms + self.margin_ms;
            least + (write.end_ms + later - least).rem_euclid(self.period_ms)
        });
        costs.sum::<f64>() / row.writes.len() as f64
    }
}

/// Each row with the writes of its neighbours, put where they would be at its own skip. Whether a track ends between two places is chance: of a few writes, some rows have by luck only
/// good ones, and just those would be chosen.
fn pooled(rows: &[Row], period_ms: f64, turn_sectors: f64) -> Vec<Row> {
    let near = (turn_sectors * NEAR_TURNS) as u64;
    let writes_at = |skip: i64| {
        let neighbours = rows.iter().filter(move |other| other.skip.abs_diff(skip) <= near);
        let moved = neighbours.flat_map(move |other| {
            let later = (skip - other.skip) as f64 / turn_sectors * period_ms;
            other.writes.iter().map(move |write| RowWrite {
                end_ms: (write.end_ms + later).rem_euclid(period_ms),
                ..*write
            })
        });
        moved.collect()
    };
    let pooled = |row: &Row| Row {
        skip: row.skip,
        writes: writes_at(row.skip),
    };
    rows.iter().map(pooled).collect()
}

/// The sector at a skip, or 0 where that lies before the device.
fn place(after: u64, skip: i64) -> u64 {
    after.saturating_add_signed(skip)
}

fn cheapest(choices: impl Iterator<Item = Choice>) -> Option<Choice> {
    let cost = |choice: &Choice| choice.cost_ms.unwrap_or(f64::MAX);
    choices.min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

/// What a write needs.
struct Need {
    /// Free ones, rising.
    ranges: Vec<Range<u64>>,
    sectors: u64,
    alignment: u64,
}

impl Need {
    /// The first aligned place whose start lies there.
    fn first_fit_in(&self, starts: &Range<u64>) -> Option<u64> {
        let first = self.ranges.partition_point(|range| range.end <= starts.start);
        let near = self.ranges[first..].iter().take_while(|range| range.start < starts.end);
        let mut places = near.filter_map(|range| {
            let at = range.start.max(starts.start).checked_next_multiple_of(self.alignment)?;
            (at.checked_add(self.sectors)? <= range.end).then_some(at)
        });
        places.next().filter(|&at| at < starts.end)
    }
}
