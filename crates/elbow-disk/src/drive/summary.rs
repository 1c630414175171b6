//! What a drive is, for people and programs.

use serde::Serialize;

use super::{Arm, Cleaning, Drive};

/// Bytes of a sector; all sectors are so large.
pub const SECTOR_BYTES: u64 = 512;

/// A drive in figures.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What it is called.
    pub name: String,
    /// Sectors of 512 bytes.
    pub sectors: u64,
    /// Bytes.
    pub bytes: u64,
    /// Cylinders.
    pub cylinders: u32,
    /// Surfaces.
    pub heads: u32,
    /// One turn.
    pub rotation_ms: f64,
    /// A seek of a read to the next cylinder.
    pub seek_next_ms: f64,
    /// The mean seek of reads between any two cylinders, both equally likely everywhere.
    pub seek_mean_ms: f64,
    /// From the first cylinder to the last.
    pub seek_full_ms: f64,
    /// Another head on the same cylinder.
    pub head_switch_ms: f64,
    /// More for a write, after any movement; below 0: less.
    pub write_settle_ms: f64,
    /// Segments of the cache that keep what was read.
    pub read_segments: u32,
    /// Sectors of each segment.
    pub segment_sectors: u32,
    /// Sectors read ahead.
    pub read_ahead_sectors: u32,
    /// From the outermost; those of a media cache are left out.
    pub zones: Vec<ZoneSummary>,
    /// Of a shingled drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shingled: Option<ShingledSummary>,
}

/// What a shingled drive has beside.
#[derive(Clone, Debug, Serialize)]
pub struct ShingledSummary {
    /// Sectors that are written together or not at all.
    pub band_sectors: u32,
    /// Sectors of the media cache, with its map and a place for a band.
    pub media_cache_sectors: u64,
    /// Writes that it holds at most.
    pub map_entries: u32,
    /// How long the drive has to be idle before it cleans bands; none where it cleans them only when the media cache is full.
    pub cleans_after_idle_ms: Option<f64>,
}

/// A zone in figures.
#[derive(Clone, Debug, Serialize)]
pub struct ZoneSummary {
    /// The first and the last that hold data.
    pub cylinders: [u32; 2],
    /// Sectors on a track.
    pub sectors_per_track: u32,
    /// Tracks that hold data.
    pub tracks: u64,
    /// The first sector.
    pub first_lbn: u64,
    /// Sectors.
    pub sectors: u64,
    /// What passes a head, in megabytes (10^6 bytes) per second.
    pub megabytes_per_second: f64,
}

impl Drive {
    /// The drive in figures.
    ///
    /// ```
    /// let summary = elbow_disk::Drive::named("hp-c2247a")?.summary();
    /// assert_eq!(summary.zones.len(), 8);
    /// assert_eq!(summary.zones[1].first_lbn, 664_800);
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn summary(&self) -> Summary {
        let seek = |distance| {
            self.arm_time(
                Arm::default(),
                Arm {
                    cylinder: distance,
                    head: 0,
                },
                false,
            )
            .ms()
        };
        let cache = self.electronics.cache.as_ref();
        Summary {
            name: self.name.clone(),
            sectors: self.sectors(),
            bytes: self.sectors() * SECTOR_BYTES,
            cylinders: self.cylinders(),
            heads: self.heads(),
            rotation_ms: self.rotation().ms(),
            seek_next_ms: if self.cylinders() > 1 { seek(1) } else { 0.0 },
            seek_mean_ms: self.mean_over_distances(seek),
            seek_full_ms: seek(self.cylinders() - 1),
            head_switch_ms: self.head_switch.ms(),
            write_settle_ms: self.write_settle.ms(),
            read_segments: cache.map_or(0, |cache| cache.segments - cache.write_segments),
            segment_sectors: cache.map_or(0, |cache| cache.segment_sectors),
            read_ahead_sectors: cache.map_or(0, |cache| cache.read_ahead_sectors),
            zones: self.zone_summaries(),
            shingled: self.shingled.as_ref().map(|shape| ShingledSummary {
                band_sectors: shape.band_sectors,
                media_cache_sectors: shape.media_cache.end - shape.media_cache.start,
                map_entries: shape.map_entries,
                cleans_after_idle_ms: (shape.cleaning == Cleaning::Aggressive).then(|| shape.idle_ms.0.ms()),
            }),
        }
    }

    /// The mean of what depends on the distance between two independent, uniform cylinders.
    fn mean_over_distances(&self, value: impl Fn(u32) -> f64) -> f64 {
        let all = f64::from(self.cylinders());
        let weight = |distance: u32| 2.0 * (all - f64::from(distance)) / (all * all);
        (1..self.cylinders())
            .map(|distance| weight(distance) * value(distance))
            .sum()
    }

    fn zone_summaries(&self) -> Vec<ZoneSummary> {
        let of_host = self
            .geometry
            .data_zones()
            .filter(|extent| extent.first < self.sectors());
        of_host
            .map(|extent| {
                let sectors_per_track = self.geometry.sectors_per_track(extent.zone);
                let bytes = (u64::from(sectors_per_track) * SECTOR_BYTES) as f64;
                ZoneSummary {
                    cylinders: extent.cylinders,
                    sectors_per_track,
                    tracks: extent.tracks,
                    first_lbn: extent.first,
                    sectors: extent.sectors,
                    megabytes_per_second: bytes / self.rotation().ms() / 1e3,
                }
            })
            .collect()
    }
}
