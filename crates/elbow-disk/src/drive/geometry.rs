//! Where sectors lie: zones of cylinders with as many sectors per track, skewed tracks, slipped and spare tracks.
//!
//! ```text
//!   a zone's tracks, in the order of heads, then cylinders
//!   | front, unused | data data SLIPPED data ... data | spare, unused |
//!                     ^ the zone's first LBN
//! ```
//!
//! Always: data tracks are numbered in the order of their LBNs, and LBNs have no gaps; a track's angle is that of its first
//! sector, `(offset + cylinder * (skew of a cylinder + (heads - 1) * skew of a track) + head * skew of a track) mod sectors`,
//! with cylinders counted from the zone's first. The host's LBNs come first, then those of a media cache, wherever that lies.
//!
//! A track is looked up in tables (`track_list`), or worked out where these would be large and no zone has slips (`track_formula`).

use super::sparing::Sparing;
use super::track_formula::TrackFormulas;
use super::track_list::TrackList;
use super::{Arm, Lbn, Ps, SectorAddress, Track};

/// Drives with more tracks than this have no list of them, which takes 36 bytes for each, if their tracks can be worked out.
const LISTED_MAX: u64 = 1 << 20;

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

#[derive(Clone, Debug)]
enum Tracks {
    Listed(TrackList),
    Computed(TrackFormulas),
}

#[derive(Clone, Debug)]
pub(super) struct Geometry {
    heads: u32,
    cylinders: u32,
    /// Those of the host.
    sectors: u64,
    tracks: Tracks,
    /// By zone: the angle of each sector boundary, and of the turn's end.
    angles: Vec<Vec<Ps>>,
    rotation: Ps,
}

impl Geometry {
    pub(super) fn new(zones: &[Zone], heads: u32, rotation: Ps) -> Geometry {
        let all: u64 = zones.iter().map(|zone| zone.tracks(heads)).sum();
        let tracks = if all > LISTED_MAX && zones.iter().all(TrackFormulas::suit) {
            Tracks::Computed(TrackFormulas::new(zones, heads))
        } else {
            Tracks::Listed(TrackList::new(zones, heads))
        };
        let mut geometry = Geometry {
            heads,
            cylinders: zones.last().map_or(0, |zone| zone.last_cylinder + 1),
            sectors: 0,
            tracks,
            angles: zones
                .iter()
                .map(|zone| boundaries(zone.sectors_per_track, rotation))
                .collect(),
            rotation,
        };
        geometry.sectors = geometry
            .data_zones()
            .map(|extent| extent.first + extent.sectors)
            .max()
            .unwrap_or(0);
        if let Some(cache) = geometry.media_cache(zones) {
            geometry.sectors = cache.start;
        }
        geometry
    }

    /// The sectors of the zones that are a media cache, behind those of the host; none where there is none.
    pub(super) fn media_cache(&self, zones: &[Zone]) -> Option<std::ops::Range<u64>> {
        let of_cache = |extent: &ZoneExtent| zones[extent.zone as usize].media_cache;
        let first = self.data_zones().filter(of_cache).map(|extent| extent.first).min()?;
        let end = self.data_zones().map(|extent| extent.first + extent.sectors).max()?;
        Some(first..end)
    }

    pub(super) fn heads(&self) -> u32 {
        self.heads
    }

    pub(super) fn cylinders(&self) -> u32 {
        self.cylinders
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(super) fn rotation(&self) -> Ps {
        self.rotation
    }

    #[inline(always)]
    fn entry(&self, lbn: Lbn) -> (usize, Entry) {
        match &self.tracks {
            Tracks::Listed(list) => list.entry(lbn.0),
            Tracks::Computed(formulas) => formulas.entry(lbn.0),
        }
    }

    /// The track of a number; the one past the last begins where that ends.
    fn numbered_entry(&self, number: usize) -> Entry {
        match &self.tracks {
            Tracks::Listed(list) => list.numbered(number),
            Tracks::Computed(formulas) => formulas.numbered(number),
        }
    }

    /// The number of a stretch's first sector on its track.
    #[inline(always)]
    fn start(&self, number: usize) -> u32 {
        match &self.tracks {
            Tracks::Listed(list) => list.start(number),
            Tracks::Computed(_) => 0,
        }
    }

    fn count(&self) -> usize {
        match &self.tracks {
            Tracks::Listed(list) => list.count(),
            Tracks::Computed(formulas) => formulas.count(),
        }
    }

    fn number_at(&self, arm: Arm) -> Option<usize> {
        match &self.tracks {
            Tracks::Listed(list) => list.number_at(arm),
            Tracks::Computed(formulas) => formulas.number_at(arm),
        }
    }

    /// Where a sector is, and its angle.
    #[inline(always)]
    pub(super) fn find(&self, lbn: Lbn) -> (SectorAddress, Ps) {
        let (number, track) = self.entry(lbn);
        let index = (lbn.0 - track.first) as u32;
        let place = SectorAddress {
            arm: track.arm,
            sector: self.start(number) + index,
        };
        (place, self.angle_on(&track, index))
    }

    /// The angle of the sector `sector` of a stretch.
    #[inline]
    fn angle_on(&self, track: &Entry, sector: u32) -> Ps {
        let angles = &self.angles[track.zone as usize];
        let sectors = angles.len() - 1;
        let at = (track.skew + sector) as usize;
        angles[if at < sectors { at } else { at - sectors }]
    }

    /// The angle of a sector by its place; `None` where no data lies.
    pub(super) fn angle(&self, place: SectorAddress) -> Option<Ps> {
        let (number, index) = self.part_at(place)?;
        Some(self.angle_on(&self.numbered_entry(number), index))
    }

    /// The sector at a place; `None` where no data lies.
    pub(super) fn lbn_at(&self, place: SectorAddress) -> Option<Lbn> {
        let (number, index) = self.part_at(place)?;
        Some(Lbn(self.numbered_entry(number).first + u64::from(index)))
    }

    /// The stretch that a place lies on, and how far from its start.
    fn part_at(&self, place: SectorAddress) -> Option<(usize, u32)> {
        let first = self.number_at(place.arm)?;
        let parts = (first..self.count()).take_while(|&number| self.numbered_entry(number).arm == place.arm);
        parts
            .filter_map(|number| Some((number, place.sector.checked_sub(self.start(number))?)))
            .find(|&(number, index)| u64::from(index) < self.length(number))
    }

    /// Sectors of a stretch.
    fn length(&self, number: usize) -> u64 {
        self.numbered_entry(number + 1).first - self.numbered_entry(number).first
    }

    fn per_track(&self, track: &Entry) -> u32 {
        self.angles[track.zone as usize].len() as u32 - 1
    }

    fn with_length(&self, number: usize, track: &Entry) -> Track {
        Track {
            first: Lbn(track.first),
            sectors: (self.numbered_entry(number + 1).first - track.first) as u32,
            arm: track.arm,
            sectors_per_track: self.per_track(track),
        }
    }

    /// Zones from the outermost; those without data are left out.
    pub(super) fn data_zones(&self) -> impl Iterator<Item = ZoneExtent> {
        let mut extents = match &self.tracks {
            Tracks::Listed(list) => list.zones(),
            Tracks::Computed(formulas) => formulas.zones(),
        };
        extents.sort_by_key(|extent| extent.zone);
        extents.into_iter()
    }

    /// Sectors on a track of a zone.
    pub(super) fn sectors_per_track(&self, zone: u32) -> u32 {
        self.angles[zone as usize].len() as u32 - 1
    }

    pub(super) fn track(&self, lbn: Lbn) -> Track {
        let (number, track) = self.entry(lbn);
        self.with_length(number, &track)
    }

    /// The sectors around one whose places are together with its own.
    pub(super) fn range_of(&self, lbn: Lbn, is_with: impl Fn(Arm, Arm) -> bool) -> std::ops::Range<u64> {
        let (here, own) = self.entry(lbn);
        let with = |&number: &usize| is_with(self.numbered_entry(number).arm, own.arm);
        let first = (0..here).rev().take_while(with).last().unwrap_or(here);
        let last = (here + 1..self.count()).take_while(with).last().unwrap_or(here);
        self.numbered_entry(first).first..self.numbered_entry(last + 1).first
    }

    pub(super) fn track_at(&self, arm: Arm) -> Option<Track> {
        let number = self.number_at(arm)?;
        Some(self.with_length(number, &self.numbered_entry(number)))
    }

    /// How long `sectors` sectors from `first` of their track take to pass the head.
    pub(super) fn passing(&self, first: Lbn, sectors: u32) -> Ps {
        let (_, track) = self.entry(first);
        let start = self.angle_on(&track, (first.0 - track.first) as u32);
        let count = u64::from(sectors);
        debug_assert!(count <= u64::from(self.per_track(&track)));
        if sectors == self.per_track(&track) {
            return self.rotation;
        }
        let end = self.angle_on(
            &track,
            ((first.0 - track.first) as u32 + sectors) % self.per_track(&track),
        );
        if end >= start {
            end - start
        } else {
            end + self.rotation - start
        }
    }
}

/// The angle at which each sector starts, rounded down to whole picoseconds, and the end of the turn.
fn boundaries(sectors: u32, rotation: Ps) -> Vec<Ps> {
    (0..=u64::from(sectors))
        .map(|sector| Ps(rotation.0 * sector / u64::from(sectors)))
        .collect()
}
