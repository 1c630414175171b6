//! A list of all tracks: whatever the zones spare, a sector's track is one look-up and one comparison away.
//!
//! Always: one entry per data track in the order of LBNs, one per physical track, one per few dozen sectors. A track with slipped sectors
//! has an entry for each part between them, and is as many tracks to everything else: from one part to the next the arm need not move, and
//! the head waits until the gap has passed.

use super::Arm;
use super::sparing::Run;
use super::zone::{Entry, Zone, ZoneExtent};

#[derive(Clone, Debug)]
pub(super) struct TrackList {
    heads: u32,
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
}

impl TrackList {
    pub(super) fn new(zones: &[Zone], heads: u32) -> TrackList {
        let cylinders = zones.last().map_or(0, |zone| zone.last_cylinder + 1);
        let shortest = zones.iter().map(|zone| zone.sectors_per_track.ilog2()).min();
        let mut list = TrackList {
            heads,
            sectors: 0,
            tracks: Vec::new(),
            starts: Vec::new(),
            at: vec![None; (cylinders * heads) as usize],
            by_lbn: Vec::new(),
            shift: shortest.unwrap_or(0),
            has_short: false,
        };
        for of_cache in [false, true] {
            for (number, zone) in (0..).zip(zones).filter(|(_, zone)| zone.media_cache == of_cache) {
                list.lay_out(number, zone);
            }
        }
        if !zones.is_empty() {
            list.finish();
        }
        list
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
        let (arm, skew) = zone.place(self.heads, run.track);
        let at = &mut self.at[(arm.cylinder * self.heads + arm.head) as usize];
        at.get_or_insert(self.tracks.len() as u32);
        self.tracks.push(Entry {
            first: self.sectors,
            arm,
            skew: ((skew + u64::from(run.sector)) % u64::from(zone.sectors_per_track)) as u32,
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

    /// Whether some sectors need [`entry_among_parts`](Self::entry_among_parts).
    pub(super) fn has_short(&self) -> bool {
        self.has_short
    }

    /// The track of a sector, where none is short.
    #[inline(always)]
    pub(super) fn entry(&self, lbn: u64) -> (usize, &Entry) {
        let guess = self.by_lbn[(lbn >> self.shift) as usize] as usize;
        let track = guess + usize::from(self.tracks[guess + 1].first <= lbn);
        (track, &self.tracks[track])
    }

    /// The track or part of one that a sector lies on.
    pub(super) fn entry_among_parts(&self, lbn: u64) -> (usize, Entry) {
        let (mut track, _) = self.entry(lbn);
        while self.tracks[track + 1].first <= lbn {
            track += 1;
        }
        (track, self.tracks[track])
    }

    #[inline]
    pub(super) fn first(&self, number: usize) -> Option<u64> {
        self.tracks.get(number).map(|track| track.first)
    }

    #[inline]
    pub(super) fn numbered(&self, number: usize) -> Option<Entry> {
        self.tracks.get(number).copied()
    }

    /// Not indexed: what could fail would have to be done for callers that want nothing but the arm.
    #[inline(always)]
    pub(super) fn start(&self, number: usize) -> u32 {
        self.starts.get(number).copied().unwrap_or(0)
    }

    pub(super) fn count(&self) -> usize {
        self.starts.len()
    }

    pub(super) fn number_at(&self, arm: Arm) -> Option<usize> {
        let physical =
            (arm.head < self.heads).then_some(arm.cylinder as usize * self.heads as usize + arm.head as usize)?;
        self.at.get(physical).copied().flatten().map(|number| number as usize)
    }

    /// What of each zone holds data, in the order of LBNs.
    pub(super) fn zones(&self) -> Vec<ZoneExtent> {
        let mut extents: Vec<ZoneExtent> = Vec::new();
        let mut last = None;
        for tracks in self.tracks.windows(2) {
            let (track, sectors) = (&tracks[0], tracks[1].first - tracks[0].first);
            if extents.last().is_none_or(|extent| extent.zone != track.zone) {
                extents.push(ZoneExtent {
                    zone: track.zone,
                    cylinders: [track.arm.cylinder; 2],
                    tracks: 0,
                    first: track.first,
                    sectors: 0,
                });
            }
            if let Some(extent) = extents.last_mut() {
                extent.cylinders[1] = track.arm.cylinder;
                // The parts of a track with slipped sectors follow one another.
                extent.tracks += u64::from(last != Some(track.arm));
                last = Some(track.arm);
                extent.sectors += sectors;
            }
        }
        extents
    }
}
