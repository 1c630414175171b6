//! A zone of cylinders with as many sectors per track, and what a track of it is.
//!
//! Source of the order of tracks and of their skew: the layout G1 of *The DiskSim Simulation Environment Version 4.0 Reference Manual* (CMU-PDL-08-101).

use super::Arm;
use super::sparing::Sparing;

/// One zone as described, checked.
#[derive(Clone, Debug)]
pub(super) struct Zone {
    pub(super) first_cylinder: u32,
    pub(super) last_cylinder: u32,
    pub(super) sectors_per_track: u32,
    /// Angle of the first track, in sectors.
    pub(super) offset: u32,
    /// Sectors that a track begins later than the one before it on the same cylinder.
    pub(super) track_skew: u32,
    /// The same for the first track of a cylinder and the last of the one before.
    pub(super) cylinder_skew: u32,
    /// Unused tracks before the first data track.
    pub(super) front_tracks: u32,
    /// Tracks that hold no data: the slipped ones, and what is left behind the last data track.
    pub(super) spare_tracks: u32,
    /// Tracks that were found bad: track number within the zone, sorted.
    pub(super) slipped: Vec<u32>,
    /// Instead of the three before it: which single sectors hold no data.
    pub(super) sparing: Option<Sparing>,
    /// Every other cylinder is numbered from the last head to the first.
    pub(super) serpentine: Serpentine,
    /// Its sectors are no host's, but the media cache's.
    pub(super) media_cache: bool,
}

/// In which order the heads of a cylinder are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Serpentine {
    /// From the first to the last.
    #[default]
    None,
    /// The other way round on every second cylinder of a zone.
    Zone,
    /// The other way round on every second cylinder of the drive.
    Drive,
}

impl Serpentine {
    pub(super) fn turns_back(self, zone: &Zone, cylinder: u32) -> bool {
        match self {
            Serpentine::None => false,
            Serpentine::Zone => cylinder % 2 == 1,
            Serpentine::Drive => (zone.first_cylinder + cylinder) % 2 == 1,
        }
    }
}

impl Zone {
    pub(super) fn tracks(&self, heads: u32) -> u64 {
        u64::from(self.last_cylinder - self.first_cylinder + 1) * u64::from(heads)
    }

    /// Where a track of the zone lies, and its skew from the turn's start in sectors, which may be of several turns.
    #[inline]
    pub(super) fn place(&self, heads: u32, track: u32) -> (Arm, u64) {
        let (cylinder, order) = (track / heads, track % heads);
        let per_cylinder = self.cylinder_skew + (heads - 1) * self.track_skew;
        let skew = u64::from(self.offset)
            + u64::from(cylinder) * u64::from(per_cylinder)
            + u64::from(order) * u64::from(self.track_skew);
        let arm = Arm {
            cylinder: self.first_cylinder + cylinder,
            head: self.order(heads, cylinder, order),
        };
        (arm, skew)
    }

    /// The head of a number on its cylinder of the zone; and the number of a head.
    #[inline]
    pub(super) fn order(&self, heads: u32, cylinder: u32, head: u32) -> u32 {
        if self.serpentine.turns_back(self, cylinder) {
            heads - 1 - head
        } else {
            head
        }
    }
}

/// A stretch of a track without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) first: u64,
    pub(super) arm: Arm,
    /// Angle of the first sector, in sectors.
    pub(super) skew: u32,
    pub(super) zone: u32,
}

/// What of a zone holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ZoneExtent {
    pub(super) zone: u32,
    /// The first cylinder and the last.
    pub(super) cylinders: [u32; 2],
    pub(super) tracks: u64,
    pub(super) first: u64,
    pub(super) sectors: u64,
}
