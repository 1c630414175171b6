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
//! physical track, one per few dozen sectors.

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
}

impl Zone {
    pub(super) fn tracks(&self, heads: u32) -> u64 {
        u64::from(self.last_cylinder - self.first_cylinder + 1) * u64::from(heads)
    }
}

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
    /// By `cylinder * heads + head`: which data track it is.
    at: Vec<Option<u32>>,
    /// By `lbn >> shift`: the data track of the first of these sectors. No track is shorter than they, so that any of them is
    /// on that track or on the next.
    by_lbn: Vec<u32>,
    shift: u32,
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
        let total = zone.tracks(self.heads) as u32;
        let data = total - zone.front_tracks - zone.spare_tracks;
        let good = (zone.front_tracks..total).filter(|track| zone.slipped.binary_search(track).is_err());
        for track in good.take(data as usize) {
            let (cylinder, head) = (track / self.heads, track % self.heads);
            let per_cylinder = zone.cylinder_skew + (self.heads - 1) * zone.track_skew;
            let skew = u64::from(zone.offset)
                + u64::from(cylinder) * u64::from(per_cylinder)
                + u64::from(head) * u64::from(zone.track_skew);
            let arm = Arm {
                cylinder: zone.first_cylinder + cylinder,
                head,
            };
            self.at[(arm.cylinder * self.heads + head) as usize] = Some(self.tracks.len() as u32);
            self.tracks.push(Entry {
                first: self.sectors,
                arm,
                skew: (skew % u64::from(zone.sectors_per_track)) as u32,
                zone: number,
            });
            self.sectors += u64::from(zone.sectors_per_track);
        }
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

    #[inline]
    fn entry(&self, lbn: Lbn) -> (usize, &Entry) {
        let guess = self.by_lbn[(lbn.0 >> self.shift) as usize] as usize;
        let track = guess + usize::from(self.tracks[guess + 1].first <= lbn.0);
        (track, &self.tracks[track])
    }

    /// Where a sector is, and its angle.
    #[inline]
    pub(super) fn find(&self, lbn: Lbn) -> (SectorAddress, Ps) {
        let (_, track) = self.entry(lbn);
        let sector = (lbn.0 - track.first) as u32;
        (SectorAddress { arm: track.arm, sector }, self.angle_on(track, sector))
    }

    #[inline]
    fn angle_on(&self, track: &Entry, sector: u32) -> Ps {
        let angles = &self.angles[track.zone as usize];
        let sectors = angles.len() - 1;
        let at = (track.skew + sector) as usize;
        angles[if at < sectors { at } else { at - sectors }]
    }

    /// The angle of a sector by its place; `None` where no data lies.
    pub(super) fn angle(&self, place: SectorAddress) -> Option<Ps> {
        let track = &self.tracks[self.number_at(place.arm)?];
        (place.sector < self.per_track(track)).then(|| self.angle_on(track, place.sector))
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
