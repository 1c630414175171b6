//! Tracks that are worked out from their zone instead of being listed: for drives of millions of tracks without slipped ones, whose list
//! would take hundreds of megabytes and miss the processor's caches at each look-up.
//!
//! Always: every track has the number, place and skew that [`TrackList`](super::track_list::TrackList) gives it.

use super::Arm;
use super::zone::{Entry, Zone, ZoneExtent};

/// A zone, the first of its data tracks and of its sectors.
#[derive(Clone, Debug)]
struct ZoneTracks {
    zone: Zone,
    number: u32,
    first_track: usize,
    first: u64,
    tracks: u64,
}

#[derive(Clone, Debug)]
pub(super) struct TrackFormulas {
    heads: u32,
    sectors: u64,
    /// In the order of LBNs.
    zones: Vec<ZoneTracks>,
}

impl TrackFormulas {
    /// Whether the tracks of a zone can be worked out.
    pub(super) fn suit(zone: &Zone) -> bool {
        zone.sparing.is_none() && zone.slipped.is_empty()
    }

    pub(super) fn new(zones: &[Zone], heads: u32) -> TrackFormulas {
        let mut formulas = TrackFormulas {
            heads,
            sectors: 0,
            zones: Vec::new(),
        };
        let mut first_track = 0;
        for of_cache in [false, true] {
            for (number, zone) in (0..).zip(zones).filter(|(_, zone)| zone.media_cache == of_cache) {
                let tracks = zone.tracks(heads) - u64::from(zone.front_tracks) - u64::from(zone.spare_tracks);
                formulas.zones.push(ZoneTracks {
                    zone: zone.clone(),
                    number,
                    first_track,
                    first: formulas.sectors,
                    tracks,
                });
                first_track += tracks as usize;
                formulas.sectors += tracks * u64::from(zone.sectors_per_track);
            }
        }
        formulas
    }

    pub(super) fn entry(&self, lbn: u64) -> (usize, Entry) {
        assert!(lbn < self.sectors, "sector {lbn} of {}", self.sectors);
        let of = &self.zones[self.zones.partition_point(|of| of.first <= lbn) - 1];
        let index = (lbn - of.first) / u64::from(of.zone.sectors_per_track);
        (of.first_track + index as usize, self.of_zone(of, index))
    }

    #[inline(never)]
    pub(super) fn numbered(&self, number: usize) -> Entry {
        let of = &self.zones[self.zones.partition_point(|of| of.first_track <= number) - 1];
        let index = (number - of.first_track) as u64;
        if index == of.tracks {
            return Entry {
                first: self.sectors,
                arm: Arm::default(),
                skew: 0,
                zone: 0,
            };
        }
        self.of_zone(of, index)
    }

    /// The zone's data track of an index.
    fn of_zone(&self, of: &ZoneTracks, index: u64) -> Entry {
        let per_track = of.zone.sectors_per_track;
        let (arm, skew) = of.zone.place(self.heads, of.zone.front_tracks + index as u32);
        Entry {
            first: of.first + index * u64::from(per_track),
            arm,
            skew: (skew % u64::from(per_track)) as u32,
            zone: of.number,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.zones
            .last()
            .map_or(0, |last| last.first_track + last.tracks as usize)
    }

    pub(super) fn number_at(&self, arm: Arm) -> Option<usize> {
        let holds = |of: &&ZoneTracks| (of.zone.first_cylinder..=of.zone.last_cylinder).contains(&arm.cylinder);
        let of = self.zones.iter().find(holds).filter(|_| arm.head < self.heads)?;
        let cylinder = arm.cylinder - of.zone.first_cylinder;
        let order = of.zone.order(self.heads, cylinder, arm.head);
        let index = (cylinder * self.heads + order).checked_sub(of.zone.front_tracks)?;
        (u64::from(index) < of.tracks).then_some(of.first_track + index as usize)
    }

    /// What of each zone holds data, in the order of LBNs.
    pub(super) fn zones(&self) -> Vec<ZoneExtent> {
        let cylinder = |of: &ZoneTracks, index| self.of_zone(of, index).arm.cylinder;
        let extent = |of: &ZoneTracks| ZoneExtent {
            zone: of.number,
            cylinders: [cylinder(of, 0), cylinder(of, of.tracks - 1)],
            tracks: of.tracks,
            first: of.first,
            sectors: of.tracks * u64::from(of.zone.sectors_per_track),
        };
        self.zones.iter().map(extent).collect()
    }
}

#[cfg(test)]
mod tests {
    use elbow_testkit::cases::for_each_seed;
    use rand::Rng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::drive::track_list::TrackList;
    use crate::drive::zone::Serpentine;

    fn zones(rng: &mut StdRng, heads: u32) -> Vec<Zone> {
        let serpentine = [Serpentine::None, Serpentine::Zone, Serpentine::Drive][rng.random_range(0..3)];
        let mut next = rng.random_range(0..3);
        let zone = |rng: &mut StdRng, next: &mut u32, media_cache| {
            let (first_cylinder, cylinders) = (*next, rng.random_range(2..9));
            *next += cylinders + rng.random_range(0..2);
            Zone {
                first_cylinder,
                last_cylinder: first_cylinder + cylinders - 1,
                sectors_per_track: rng.random_range(1..40),
                offset: rng.random_range(0..9),
                track_skew: rng.random_range(0..9),
                cylinder_skew: rng.random_range(0..9),
                front_tracks: rng.random_range(0..heads),
                spare_tracks: rng.random_range(0..heads),
                slipped: Vec::new(),
                sparing: None,
                serpentine,
                media_cache,
            }
        };
        (0..4).map(|number| zone(rng, &mut next, number < 1)).collect()
    }

    #[test]
    fn every_track_is_where_the_list_has_it() {
        for_each_seed(200, |rng| {
            let heads = rng.random_range(1..5);
            let zones = zones(rng, heads);
            let (list, formulas) = (TrackList::new(&zones, heads), TrackFormulas::new(&zones, heads));
            assert_eq!(formulas.count(), list.count());
            assert_eq!(formulas.zones(), list.zones());
            for number in 0..=list.count() {
                assert_eq!(Some(formulas.numbered(number)), list.numbered(number), "track {number}");
            }
            for lbn in 0..formulas.sectors {
                assert_eq!(formulas.entry(lbn), list.entry_among_parts(lbn), "sector {lbn}");
            }
            for cylinder in 0..60 {
                for head in 0..heads + 1 {
                    let arm = Arm { cylinder, head };
                    assert_eq!(formulas.number_at(arm), list.number_at(arm), "{arm:?}");
                }
            }
        });
    }
}
