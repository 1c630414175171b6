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

use super::track_formula::TrackFormulas;
use super::track_list::TrackList;
use super::zone::{Entry, Zone, ZoneExtent};
use super::{Arm, Lbn, Ps, SectorAddress, Track};

/// Drives with more tracks than this have no list of them, which takes 36 bytes for each, if their tracks can be worked out.
const LISTED_MAX: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct Geometry {
    heads: u32,
    cylinders: u32,
    /// Those of the host.
    sectors: u64,
    /// Empty where tracks are worked out.
    list: TrackList,
    formulas: Option<TrackFormulas>,
    /// A sector is not found by the list's look-up alone.
    is_unusual: bool,
    /// By zone: the angle of each sector boundary, and of the turn's end.
    angles: Vec<Vec<Ps>>,
    rotation: Ps,
}

impl Geometry {
    pub(super) fn new(zones: &[Zone], heads: u32, rotation: Ps) -> Geometry {
        let all: u64 = zones.iter().map(|zone| zone.tracks(heads)).sum();
        let is_computed = all > LISTED_MAX && zones.iter().all(TrackFormulas::suit);
        let listed = if is_computed { &[] } else { zones };
        let list = TrackList::new(listed, heads);
        let mut geometry = Geometry {
            heads,
            cylinders: zones.last().map_or(0, |zone| zone.last_cylinder + 1),
            sectors: 0,
            is_unusual: is_computed || list.has_short(),
            list,
            formulas: is_computed.then(|| TrackFormulas::new(zones, heads)),
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

    /// What follows from the track of a sector. It is written out for both ways to find that, so that an entry of the list is read where it
    /// lies, and not copied to where one that was worked out would be.
    #[inline(always)]
    fn with_entry<T>(&self, lbn: Lbn, then: impl Fn(usize, &Entry) -> T) -> T {
        if self.is_unusual {
            let (number, track) = self.unusual_entry(lbn);
            return then(number, &track);
        }
        let (number, track) = self.list.entry(lbn.0);
        then(number, track)
    }

    /// Apart, so that drives with a list of whole tracks pay a branch for it and no more.
    #[cold]
    #[inline(never)]
    fn unusual_entry(&self, lbn: Lbn) -> (usize, Entry) {
        match &self.formulas {
            Some(formulas) => formulas.entry(lbn.0),
            None => self.list.entry_among_parts(lbn.0),
        }
    }

    /// The first sector of a track; of the one past the last, where that ends.
    #[inline]
    fn first(&self, number: usize) -> u64 {
        match self.list.first(number) {
            Some(first) => first,
            None => self.numbered_entry(number).first,
        }
    }

    /// The track of a number; the one past the last begins where that ends.
    #[inline]
    fn numbered_entry(&self, number: usize) -> Entry {
        match (self.list.numbered(number), &self.formulas) {
            (Some(entry), _) => entry,
            (None, Some(formulas)) => formulas.numbered(number),
            (None, None) => panic!("track {number} of {}", self.count()),
        }
    }

    /// The number of a stretch's first sector on its track; 0 where tracks are worked out.
    #[inline(always)]
    fn start(&self, number: usize) -> u32 {
        self.list.start(number)
    }

    fn count(&self) -> usize {
        match &self.formulas {
            Some(formulas) => formulas.count(),
            None => self.list.count(),
        }
    }

    fn number_at(&self, arm: Arm) -> Option<usize> {
        match &self.formulas {
            Some(formulas) => formulas.number_at(arm),
            None => self.list.number_at(arm),
        }
    }

    /// Where a sector is, and its angle.
    #[inline(always)]
    pub(super) fn find(&self, lbn: Lbn) -> (SectorAddress, Ps) {
        self.with_entry(lbn, |number, track| {
            let index = (lbn.0 - track.first) as u32;
            let place = SectorAddress {
                arm: track.arm,
                sector: self.start(number) + index,
            };
            (place, self.angle_on(track, index))
        })
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
        Some(Lbn(self.first(number) + u64::from(index)))
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
        self.first(number + 1) - self.first(number)
    }

    fn per_track(&self, track: &Entry) -> u32 {
        self.angles[track.zone as usize].len() as u32 - 1
    }

    fn with_length(&self, number: usize, track: &Entry) -> Track {
        Track {
            first: Lbn(track.first),
            sectors: (self.first(number + 1) - track.first) as u32,
            arm: track.arm,
            sectors_per_track: self.per_track(track),
        }
    }

    /// Zones from the outermost; those without data are left out.
    pub(super) fn data_zones(&self) -> impl Iterator<Item = ZoneExtent> {
        let mut extents = match &self.formulas {
            Some(formulas) => formulas.zones(),
            None => self.list.zones(),
        };
        extents.sort_by_key(|extent| extent.zone);
        extents.into_iter()
    }

    /// Sectors on a track of a zone.
    pub(super) fn sectors_per_track(&self, zone: u32) -> u32 {
        self.angles[zone as usize].len() as u32 - 1
    }

    pub(super) fn track(&self, lbn: Lbn) -> Track {
        self.with_entry(lbn, |number, track| self.with_length(number, track))
    }

    /// The sectors around one whose places are together with its own.
    pub(super) fn range_of(&self, lbn: Lbn, is_with: impl Fn(Arm, Arm) -> bool) -> std::ops::Range<u64> {
        let (here, own) = self.with_entry(lbn, |number, track| (number, *track));
        let with = |&number: &usize| is_with(self.numbered_entry(number).arm, own.arm);
        let first = (0..here).rev().take_while(with).last().unwrap_or(here);
        let last = (here + 1..self.count()).take_while(with).last().unwrap_or(here);
        self.first(first)..self.first(last + 1)
    }

    pub(super) fn track_at(&self, arm: Arm) -> Option<Track> {
        let number = self.number_at(arm)?;
        Some(self.with_length(number, &self.numbered_entry(number)))
    }

    /// How long `sectors` sectors from `first` of their track take to pass the head.
    pub(super) fn passing(&self, first: Lbn, sectors: u32) -> Ps {
        self.with_entry(first, |_, track| {
            self.passing_on(track, (first.0 - track.first) as u32, sectors)
        })
    }

    #[inline(always)]
    fn passing_on(&self, track: &Entry, first: u32, sectors: u32) -> Ps {
        debug_assert!(sectors <= self.per_track(track));
        if sectors == self.per_track(track) {
            return self.rotation;
        }
        let start = self.angle_on(track, first);
        let end = self.angle_on(track, (first + sectors) % self.per_track(track));
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
