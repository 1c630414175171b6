//! The profile, and its file.
//!
//! The format is described key by key in `docs/src/reference/profile-file.md`.

use std::ops::RangeInclusive;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::rotation::PERIOD_MS;
use super::{Identity, ProfileError};

/// The version of the file that is written, and the only one that is read.
pub const FORMAT: u32 = 1;
/// Rows that a file has at most, and writes of a row; [`measure`](super::measure()) makes fewer. They bound the memory that a file takes.
const ROWS_MAX: usize = 1000;
const ROW_WRITES_MAX: usize = 64;
/// Bytes of a sector.
const SECTOR_BYTES: RangeInclusive<u32> = 512..=65_536;
/// Writes of a trial.
const TRIAL_WRITES_MAX: u64 = 1 << 32;
/// No device has more sectors.
const SECTORS_MAX: u64 = 1 << 52;
/// Less than a tenth is not worth a profile.
const WORTH: f64 = 0.9;
/// No write takes an hour.
const COST_MS_MAX: f64 = 3.6e6;

/// What a write costs on one drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT`].
    pub format: u32,
    /// Bytes of a sector, in which skips are counted.
    pub sector_bytes: u32,
    /// The sectors that were written for it, first and behind the last.
    pub area_sectors: [u64; 2],
    /// Sectors of each of those writes.
    pub write_sectors: u64,
    /// As many as [`rows`](Self::rows): a file that was cut short is found out.
    pub row_count: usize,
    /// What ends with the write on the medium.
    pub ends_with: EndsWith,
    /// The drive.
    pub device: Identity,
    /// The cost of writes at random places, with random think times.
    pub anywhere: Spread,
    /// What turns; nothing where no period was found, and then there are no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotation: Option<Rotation>,
    /// Where the places of the area lie in a turn, by rising place; nothing where they have no order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tracks: Vec<Track>,
    /// By rising skip distance.
    #[serde(default, rename = "row", skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<Row>,
}

/// Which request is done when the medium has what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndsWith {
    /// The write itself; a flush after it takes no time.
    Write,
    /// The flush: what is written waits in a memory until then.
    Flush,
}

/// Percentiles of costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// A tenth took no longer.
    pub p10_ms: f64,
    /// Half took no longer.
    pub p50_ms: f64,
    /// Nine tenths took no longer.
    pub p90_ms: f64,
}

/// A medium that turns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// One turn.
    pub period_ms: f64,
    /// Most writes ended no farther than this from where the turn has it.
    pub jitter_ms: f64,
    /// Sectors that pass the head in a turn, as far as places in a row tell.
    pub turn_sectors: f64,
    /// How the profile did when it was tried.
    pub trial: Trial,
}

/// Writes at the places that the profile chose, with random think times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// How many.
    pub writes: u64,
    /// What the profile had said, on average.
    pub predicted_ms: f64,
    /// What they took, on average.
    pub mean_ms: f64,
    /// Those that came too late for their place, and took about a turn longer than predicted.
    pub missed: u64,
    /// The same number of writes, one behind the other, on average.
    pub in_order_ms: f64,
}

/// Places in a row that pass the head one after the other: a track, or a part of one. Four numbers in the file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(u64, f64, f64, f64)", into = "(u64, f64, f64, f64)")]
pub struct Track {
    /// Its first sector; it goes to that of the next.
    pub start: u64,
    /// When in a turn a write would end that ends just before it.
    pub moment_ms: f64,
    /// So much later for each sector.
    pub sector_ms: f64,
    /// What a write costs at least that comes from the track before.
    pub reach_ms: f64,
}

impl Track {
    /// When in a turn a write ends that ends just before a sector, in turns from the start of the track on.
    pub(super) fn moment(&self, end: u64) -> f64 {
        self.moment_ms + (end as f64 - self.start as f64) * self.sector_ms
    }

    fn check(&self, period_ms: f64) -> Result<(), String> {
        let Self {
            start,
            moment_ms,
            sector_ms,
            reach_ms,
        } = *self;
        let is_right =
            (0.0..=period_ms).contains(&moment_ms) && is_cost(reach_ms) && sector_ms > 0.0 && sector_ms <= period_ms;
        match is_right {
            true => Ok(()),
            false => Err(format!(
                "track at {start}: {moment_ms}, {sector_ms} and {reach_ms} ms cannot be in a turn of {period_ms} ms"
            )),
        }
    }
}

impl From<(u64, f64, f64, f64)> for Track {
    fn from((start, moment_ms, sector_ms, reach_ms): (u64, f64, f64, f64)) -> Self {
        Self {
            start,
            moment_ms,
            sector_ms,
            reach_ms,
        }
    }
}

impl From<Track> for (u64, f64, f64, f64) {
    fn from(track: Track) -> Self {
        (track.start, track.moment_ms, track.sector_ms, track.reach_ms)
    }
}

/// Writes of one skip distance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// From the end of the write before to the first sector of this one; below 0 it lies before it.
    pub skip: i64,
    /// One for each pair of places at which it was tried.
    pub writes: Vec<RowWrite>,
}

/// A write from one place to another, as a pair of numbers in the file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct RowWrite {
    /// Where in a turn it ends, counted from the end of the write before.
    pub end_ms: f64,
    /// What it costs at least: with this cost its place was reached just in time, or later.
    pub quickest_ms: f64,
}

impl From<[f64; 2]> for RowWrite {
    fn from([end_ms, quickest_ms]: [f64; 2]) -> Self {
        Self { end_ms, quickest_ms }
    }
}

impl From<RowWrite> for [f64; 2] {
    fn from(write: RowWrite) -> Self {
        [write.end_ms, write.quickest_ms]
    }
}

impl Profile {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ProfileError::Read`], and those of [`parse`](Self::parse).
    #[allow(
        clippy::disallowed_methods,
        reason = "a profile is configuration, not storage of the user's"
    )]
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let text = std::fs::read_to_string(path).map_err(|reason| ProfileError::Read {
            path: path.to_owned(),
            reason,
        })?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// The profile that a text describes; `file` is what errors call it.
    ///
    /// # Errors
    /// [`ProfileError::Invalid`] with what is wrong, and where.
    ///
    /// ```
    /// use elbow_disk::profile::Profile;
    ///
    /// let error = Profile::parse("sda.profile.toml", "format = 2").unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "sda.profile.toml: the format is of version 2, and this program reads 1; measure anew"
    /// );
    /// ```
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        let invalid = |reason: String| ProfileError::Invalid {
            file: file.to_owned(),
            reason,
        };
        // Another version may have other keys, so it is looked at alone.
        let Version { format } = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        if format != FORMAT {
            let reason = format!("the format is of version {format}, and this program reads {FORMAT}; measure anew");
            return Err(invalid(reason));
        }
        let profile: Self = toml::from_str(text).map_err(|error| invalid(error.to_string()))?;
        profile.check().map_err(invalid)?;
        Ok(profile)
    }

    /// The text of its file.
    ///
    /// # Panics
    /// Never: all of it can be written.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let body = toml::to_string(self).expect("numbers and names can be written");
        format!(
            "# What a write costs here, by skip distance. Measured by `elbow bark profile`; skips are in sectors.\n{body}"
        )
    }

    /// Whether it is good for choosing places: it was right when it was tried, and better than writes in order.
    #[must_use]
    pub fn is_recommended(&self) -> bool {
        let is_good = |trial: &Trial| trial.mean_ms < trial.in_order_ms * WORTH && trial.missed * 4 < trial.writes;
        self.rotation.as_ref().is_some_and(|rotation| is_good(&rotation.trial))
    }

    fn check(&self) -> Result<(), String> {
        let [start, end] = self.area_sectors;
        if !SECTOR_BYTES.contains(&self.sector_bytes) || self.write_sectors == 0 || start >= end {
            return Err(
                "sector_bytes has to be 512 to 65536, write_sectors and the sectors of the area 1 or more".to_owned(),
            );
        }
        if self.row_count != self.rows.len() {
            return Err(format!(
                "{} rows of {}: the file was cut short",
                self.rows.len(),
                self.row_count
            ));
        }
        let Spread { p10_ms, p50_ms, p90_ms } = self.anywhere;
        for (what, ms) in [("p10_ms", p10_ms), ("p50_ms", p50_ms), ("p90_ms", p90_ms)] {
            is_cost(ms)
                .then_some(())
                .ok_or_else(|| format!("anywhere: {what} of {ms} is no cost"))?;
        }
        match &self.rotation {
            Some(rotation) => self.check_rows(rotation),
            None if self.rows.is_empty() && self.tracks.is_empty() => Ok(()),
            None => Err("there are rows or tracks, and no rotation that they could be of".to_owned()),
        }
    }

    fn check_rows(&self, rotation: &Rotation) -> Result<(), String> {
        let Rotation {
            period_ms,
            jitter_ms,
            turn_sectors,
            ..
        } = *rotation;
        if !PERIOD_MS.contains(&period_ms) {
            return Err(format!(
                "rotation: a turn of {period_ms} ms; expected {} to {}",
                PERIOD_MS.start, PERIOD_MS.end
            ));
        }
        if !((0.0..period_ms).contains(&jitter_ms) && (1.0..SECTORS_MAX as f64).contains(&turn_sectors)) {
            return Err(format!(
                "rotation: a jitter of {jitter_ms} ms and a turn of {turn_sectors} sectors cannot be"
            ));
        }
        if self.rows.is_empty() || self.rows.len() > ROWS_MAX {
            return Err(format!("{} rows; expected 1 to {ROWS_MAX}", self.rows.len()));
        }
        if let Some(pair) = self.rows.windows(2).find(|pair| pair[0].skip >= pair[1].skip) {
            return Err(format!(
                "row of skip {} after that of {}: skips have to rise",
                pair[1].skip, pair[0].skip
            ));
        }
        let farthest = self.rows.iter().map(|row| row.skip.unsigned_abs());
        let farthest = farthest
            .chain([self.area_sectors[1]])
            .chain(self.tracks.iter().map(|track| track.start))
            .max();
        if let Some(far) = farthest.filter(|&far| far >= SECTORS_MAX) {
            return Err(format!("{far} sectors are more than any device has"));
        }
        if let Some(pair) = self.tracks.windows(2).find(|pair| pair[0].start >= pair[1].start) {
            return Err(format!(
                "track at {} after that at {}: they have to rise",
                pair[1].start, pair[0].start
            ));
        }
        rotation.trial.check()?;
        self.tracks.iter().try_for_each(|track| track.check(period_ms))?;
        self.rows.iter().try_for_each(|row| row.check(period_ms))
    }
}

impl Trial {
    fn check(&self) -> Result<(), String> {
        let is_counted = self.missed <= self.writes && self.writes <= TRIAL_WRITES_MAX;
        let are_costs = [self.predicted_ms, self.mean_ms, self.in_order_ms]
            .into_iter()
            .all(is_cost);
        match is_counted && are_costs {
            true => Ok(()),
            false => Err(format!(
                "trial: {} of {} writes, or their costs, cannot be",
                self.missed, self.writes
            )),
        }
    }
}

impl Row {
    fn check(&self, period_ms: f64) -> Result<(), String> {
        let skip = self.skip;
        if self.writes.is_empty() || self.writes.len() > ROW_WRITES_MAX {
            let writes = self.writes.len();
            return Err(format!(
                "row of skip {skip}: {writes} writes; expected 1 to {ROW_WRITES_MAX}"
            ));
        }
        for &RowWrite { end_ms, quickest_ms } in &self.writes {
            if !is_cost(quickest_ms) {
                return Err(format!("row of skip {skip}: {quickest_ms} ms is no cost"));
            }
            if !(0.0..=period_ms).contains(&end_ms) {
                return Err(format!(
                    "row of skip {skip}: an end at {end_ms} ms does not lie in a turn of {period_ms} ms"
                ));
            }
        }
        Ok(())
    }
}

fn is_cost(ms: f64) -> bool {
    (0.0..COST_MS_MAX).contains(&ms)
}

#[derive(Deserialize)]
struct Version {
    format: u32,
}
