//! What a shingled drive has beside a conventional one: a part of a description file.

use std::ops::Range;

use serde::Deserialize;

use super::units::Ms;

/// Bands, the media cache and its map.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shingled {
    /// Sectors that are written together or not at all.
    pub(crate) band_sectors: u32,
    /// Writes that the cache's map can hold.
    pub(crate) map_entries: u32,
    /// What the log has of each write beside its data.
    #[serde(default = "one_page")]
    pub(crate) entry_sectors: u32,
    /// After so many writes the map is written.
    #[serde(default = "never")]
    pub(crate) map_every_writes: u32,
    #[serde(default = "one_page")]
    pub(crate) map_sectors: u32,
    #[serde(default)]
    pub(crate) cleaning: Cleaning,
    /// Idle for so long, the drive begins to clean.
    #[serde(default)]
    pub(crate) idle_ms: Ms,
    /// Behind the host's sectors; not in the table, but which zones it is.
    #[serde(skip)]
    pub(crate) media_cache: Range<u64>,
}

/// When bands are cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cleaning {
    /// While the drive is idle, and when the media cache is full.
    #[default]
    Aggressive,
    /// Only when it is full.
    Lazy,
}

fn one_page() -> u32 {
    8
}

fn never() -> u32 {
    u32::MAX
}

impl Shingled {
    /// Where the map lies.
    pub(crate) fn map(&self) -> Range<u64> {
        self.media_cache.start..self.media_cache.start + u64::from(self.map_sectors)
    }

    /// Where a band lies while it is written in place.
    pub(crate) fn scratch(&self) -> Range<u64> {
        let start = self.map().end;
        start..start + u64::from(self.band_sectors)
    }

    /// Where what is written waits for its band to be cleaned.
    pub(crate) fn log(&self) -> Range<u64> {
        self.scratch().end..self.media_cache.end
    }

    /// Whether the numbers make sense together, or what does not.
    pub(super) fn checked(self, band_sectors_max: u32) -> Result<Shingled, ShingledError> {
        let page = u64::from(self.entry_sectors) + 1;
        let overhead = u64::from(self.map_sectors) + u64::from(self.band_sectors);
        let cache = self.media_cache.end - self.media_cache.start;
        if self.band_sectors == 0 || self.band_sectors > band_sectors_max {
            return Err(ShingledError::Band {
                sectors: self.band_sectors,
                most: band_sectors_max,
            });
        }
        if self.map_entries == 0 || self.map_every_writes == 0 || self.map_sectors == 0 {
            return Err(ShingledError::Zero);
        }
        if cache < overhead + 8 * page {
            return Err(ShingledError::TooSmall {
                cache,
                least: overhead + 8 * page,
            });
        }
        Ok(self)
    }
}

/// What is wrong with a description of shingles.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShingledError {
    #[error("bands of {sectors} sectors; expected 1 to {most}")]
    Band { sectors: u32, most: u32 },
    #[error("expected `map_entries`, `map_every_writes` and `map_sectors` of 1 or more")]
    Zero,
    #[error(
        "the media cache has {cache} sectors, but the map, a band and eight writes need {least}: say `media_cache = true` of more zones"
    )]
    TooSmall { cache: u64, least: u64 },
}
