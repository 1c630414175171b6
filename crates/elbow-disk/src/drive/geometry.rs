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
//! with cylinders counted from the zone's first. Everything is looked up in tables: one entry per data track, one per
//! physical track, one per few dozen sectors. A track with slipped sectors has an entry for each part between them, and is as many
//! tracks to everything else: from one part to the next the arm need not move, and the head waits until the gap has passed.

use super::sparing::{Run, Sparing};
use super::{Arm, Lbn, Ps, SectorAddress, Track};

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
    fn turns_back(self, zone: &Zone, cylinder: u32) -> bool {
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
}

/// A stretch of a track without a gap.
#[derive(Clone, Copy, Debug)]
struct Entry {
    first: u64,
    arm: Arm,
    /// Angle of the first sector, in sectors.
    skew: u32,
    zone: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Geometry {
    heads: u32,
    cylinders: u32,
    sectors: u64,
    /// Data tracks in the order of LBNs, and one past the last.
    tracks: Vec<Entry>,
    /// By data track: the number of its first sector on the track. Apart, for schedulers do not ask for it.
    starts: Vec<u32>,
    /// By `cylinder * heads + head`: which data track it is, or the first of its parts.
    at: Vec<Option<u32>>,
    /// By `lbn >> shift`: the data track of the first of these sectors. No track is shorter than they, so that any of them is
    /// on that track or on the next; except where `has_short`, for parts of tracks are.
    by_lbn: Vec<u32>,
    shift: u32,
    has_short: bool,
    /// By zone: the angle of each sector boundary, and of the turn's end.
    angles: Vec<Vec<Ps>>,
    rotation: Ps,
}

impl Geometry {
    pub(super) fn new(zones: &[Zone], heads: u32, rotation: Ps) -> Geometry {
        let cylinders = zones.last().map_or(0, |zone| zone.last_cylinder + 1);
        let mut geometry = Geometry {
            heads,
            cylinders,
            sectors: 0,
            tracks: Vec::new(),
            starts: Vec::new(),
            at: vec![None; (cylinders * heads) as usize],
            by_lbn: Vec::new(),
            shift: zones
                .iter()
                .map(|zone| zone.sectors_per_track.ilog2())
                .min()
                .unwrap_or(0),
            angles: zones
                .iter()
                .map(|zone| boundaries(zone.sectors_per_track, rotation))
                .collect(),
            has_short: false,
            rotation,
        };
        for (number, zone) in (0..).zip(zones) {
            geometry.lay_out(number, zone);
        }
        geometry.finish();
        geometry
    }

    /// Gives a zone's sectors their places.
    fn lay_out(&mut self, number: u32, zone: &Zone) {
        if let Some(sparing) = &zone.sparing {
            for run in sparing.runs(zone.tracks(self.heads), zone.sectors_per_track) {
                self.push(number, zone, run);
            }
            return;
        }
        let total = zone.tracks(self.heads) as u32;
        let data = total - zone.front_tracks - zone.spare_tracks;
        let good = (zone.front_tracks..total).filter(|track| zone.slipped.binary_search(track).is_err());
        for track in good.take(data as usize) {
            let whole = Run {
                track,
                sector: 0,
                sectors: zone.sectors_per_track,
            };
            self.push(number, zone, whole);
        }
    }

    /// Adds the next stretch of sectors.
    fn push(&mut self, number: u32, zone: &Zone, run: Run) {
        let (cylinder, order) = (run.track / self.heads, run.track % self.heads);
        let per_cylinder = zone.cylinder_skew + (self.heads - 1) * zone.track_skew;
        let skew = u64::from(zone.offset)
            + u64::from(cylinder) * u64::from(per_cylinder)
            + u64::from(order) * u64::from(zone.track_skew)
            + u64::from(run.sector);
        let head = if zone.serpentine.turns_back(zone, cylinder) {
            self.heads - 1 - order
        } else {
            order
        };
        let arm = Arm {
            cylinder: zone.first_cylinder + cylinder,
            head,
        };
        let at = &mut self.at[(arm.cylinder * self.heads + head) as usize];
        at.get_or_insert(self.tracks.len() as u32);
        self.tracks.push(Entry {
            first: self.sectors,
            arm,
            skew: (skew % u64::from(zone.sectors_per_track)) as u32,
            zone: number,
        });
        self.starts.push(run.sector);
        self.has_short |= run.sectors < 1 << self.shift;
        self.sectors += u64::from(run.sectors);
    }

    /// Ends the table of tracks, and makes that of sectors.
    fn finish(&mut self) {
        let mut track = 0;
        for first in (0..self.sectors).step_by(1 << self.shift) {
            while self.tracks.get(track + 1).is_some_and(|next| next.first <= first) {
                track += 1;
            }
            self.by_lbn.push(track as u32);
        }
        self.tracks.push(Entry {
            first: self.sectors,
            arm: Arm::default(),
            skew: 0,
            zone: 0,
        });
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
    fn entry(&self, lbn: Lbn) -> (usize, &Entry) {
        let guess = self.by_lbn[(lbn.0 >> self.shift) as usize] as usize;
        let mut track = guess + usize::from(self.tracks[guess + 1].first <= lbn.0);
        if self.has_short {
            track = self.go_on(track, lbn);
        }
        (track, &self.tracks[track])
    }

    /// The track or part of one that a sector lies on, from an earlier one on.
    #[cold]
    fn go_on(&self, mut track: usize, lbn: Lbn) -> usize {
        while self.tracks[track + 1].first <= lbn.0 {
            track += 1;
        }
        track
    }

    /// Where a sector is, and its angle.
    #[inline(always)]
    pub(super) fn find(&self, lbn: Lbn) -> (SectorAddress, Ps) {
        let (number, track) = self.entry(lbn);
        let index = (lbn.0 - track.first) as u32;
        let place = SectorAddress {
            arm: track.arm,
            // Not indexed: what could fail would have to be done for callers that want nothing but the arm.
            sector: self.starts.get(number).map_or(index, |start| start + index),
        };
        (place, self.angle_on(track, index))
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
        Some(self.angle_on(&self.tracks[number], index))
    }

    /// The sector at a place; `None` where no data lies.
    pub(super) fn lbn_at(&self, place: SectorAddress) -> Option<Lbn> {
        let (number, index) = self.part_at(place)?;
        Some(Lbn(self.tracks[number].first + u64::from(index)))
    }

    /// The stretch that a place lies on, and how far from its start.
    fn part_at(&self, place: SectorAddress) -> Option<(usize, u32)> {
        let first = self.number_at(place.arm)?;
        let parts = (first..self.tracks.len() - 1).take_while(|&number| self.tracks[number].arm == place.arm);
        parts
            .filter_map(|number| Some((number, place.sector.checked_sub(self.starts[number])?)))
            .find(|&(number, index)| u64::from(index) < self.tracks[number + 1].first - self.tracks[number].first)
    }

    fn per_track(&self, track: &Entry) -> u32 {
        self.angles[track.zone as usize].len() as u32 - 1
    }

    fn number_at(&self, arm: Arm) -> Option<usize> {
        let physical =
            (arm.head < self.heads).then_some(arm.cylinder as usize * self.heads as usize + arm.head as usize)?;
        self.at.get(physical).copied().flatten().map(|number| number as usize)
    }

    fn numbered(&self, number: usize) -> Track {
        let track = &self.tracks[number];
        let sectors = (self.tracks[number + 1].first - track.first) as u32;
        Track {
            first: Lbn(track.first),
            sectors,
            arm: track.arm,
            sectors_per_track: self.per_track(track),
        }
    }

    /// All data tracks in the order of LBNs, each with the number of its zone.
    pub(super) fn data_tracks(&self) -> impl Iterator<Item = (u32, Track)> {
        (0..self.tracks.len() - 1).map(|number| (self.tracks[number].zone, self.numbered(number)))
    }

    pub(super) fn track(&self, lbn: Lbn) -> Track {
        self.numbered(self.entry(lbn).0)
    }

    /// The sectors around one whose places are together with its own.
    pub(super) fn range_of(&self, lbn: Lbn, is_with: impl Fn(Arm, Arm) -> bool) -> std::ops::Range<u64> {
        let (here, own) = self.entry(lbn);
        let all = self.tracks.len() - 1;
        let with = |&number: &usize| is_with(self.tracks[number].arm, own.arm);
        let first = (0..here).rev().take_while(with).last().unwrap_or(here);
        let last = (here + 1..all).take_while(with).last().unwrap_or(here);
        self.tracks[first].first..self.tracks[last + 1].first
    }

    pub(super) fn track_at(&self, arm: Arm) -> Option<Track> {
        self.number_at(arm).map(|number| self.numbered(number))
    }

    /// How long `sectors` sectors from `first` of their track take to pass the head.
    pub(super) fn passing(&self, first: Lbn, sectors: u32) -> Ps {
        let (_, track) = self.entry(first);
        let start = self.angle_on(track, (first.0 - track.first) as u32);
        let count = u64::from(sectors);
        debug_assert!(count <= u64::from(self.per_track(track)));
        if sectors == self.per_track(track) {
            return self.rotation;
        }
        let end = self.angle_on(
            track,
            ((first.0 - track.first) as u32 + sectors) % self.per_track(track),
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
