//! Sectors that hold no data, one by one: what drives keep in reserve, and what they found bad when they were formatted.
//!
//! ```text
//!   a zone's sectors in the order of its tracks, in units of so many tracks
//!   | data data SLIPPED data ... data | spare |  data ... data | spare |  data ... (a last unit that is not whole has no spares)
//!     ^ the first LBN, where `front` are 0
//! ```
//!
//! Always: the runs come in order, hold no slipped sector, and none is empty.
//!
//! Source: the sparing schemes 2 to 10 of DiskSim's layout G1, in *The DiskSim Simulation Environment Version 4.0 Reference Manual*
//! (CMU-PDL-08-101). Not modelled: sectors remapped to another track, and that slips turn the tracks behind them in schemes 2 to 6.

use std::ops::Range;

/// Which sectors of a zone hold no data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sparing {
    /// Sectors that would hold data, at the zone's start, and do not.
    pub(super) front: u64,
    /// Spares of each unit.
    pub(super) spares: u64,
    /// Tracks of a unit; none: the zone is one.
    pub(super) unit_tracks: Option<u32>,
    /// The spares lie before the unit's data, not behind it.
    pub(super) spares_first: bool,
    /// A slipped sector takes the room of a spare; else everything behind moves on.
    pub(super) slips_take_spares: bool,
    /// Sectors that were found bad, numbered within the zone, rising.
    pub(super) slipped: Vec<u64>,
}

/// Sectors of one track that hold data, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Within the zone.
    pub(super) track: u32,
    /// The first.
    pub(super) sector: u32,
    pub(super) sectors: u32,
}

impl Sparing {
    /// The runs of a zone.
    pub(super) fn runs(&self, tracks: u64, sectors_per_track: u32) -> Vec<Run> {
        let (per_track, total) = (u64::from(sectors_per_track), tracks * u64::from(sectors_per_track));
        let unit = self.unit_sectors(per_track).unwrap_or(total).min(total).max(1);
        let mut runs = Vec::new();
        let mut front = self.front;
        for start in (0..total).step_by(unit as usize) {
            let end = (start + unit).min(total);
            for range in self.data_of_unit(start..end, end - start == unit) {
                let skipped = front.min(range.end - range.start);
                front -= skipped;
                cut_by_tracks(range.start + skipped..range.end, per_track, &mut runs);
            }
        }
        runs
    }

    fn unit_sectors(&self, per_track: u64) -> Option<u64> {
        self.unit_tracks.map(|tracks| u64::from(tracks) * per_track)
    }

    /// What holds data in a unit, between slipped sectors.
    fn data_of_unit(&self, unit: Range<u64>, is_whole: bool) -> Vec<Range<u64>> {
        let spares = if is_whole { self.spares } else { 0 };
        let slips = self.slips_in(&unit);
        let good = unit.end - unit.start - slips.len() as u64;
        let lost = if self.slips_take_spares { slips.len() as u64 } else { 0 };
        let data = good.saturating_sub(spares.saturating_sub(lost));
        // Of the good ones the first hold data, or the last.
        let skipped = if self.spares_first { good - data } else { 0 };
        let mut ranges = Vec::new();
        let (mut at, mut seen) = (unit.start, 0);
        for &stop in slips.iter().chain([&unit.end]) {
            let range = at..stop;
            let length = range.end - range.start;
            let from = skipped.saturating_sub(seen).min(length);
            let to = (skipped + data).saturating_sub(seen).min(length);
            if from < to {
                ranges.push(at + from..at + to);
            }
            seen += length;
            at = stop + 1;
        }
        ranges
    }

    fn slips_in(&self, unit: &Range<u64>) -> &[u64] {
        let from = self.slipped.partition_point(|&slip| slip < unit.start);
        let to = self.slipped.partition_point(|&slip| slip < unit.end);
        &self.slipped[from..to]
    }
}

fn cut_by_tracks(range: Range<u64>, per_track: u64, runs: &mut Vec<Run>) {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min((at / per_track + 1) * per_track);
        runs.push(Run {
            track: (at / per_track) as u32,
            sector: (at % per_track) as u32,
            sectors: (end - at) as u32,
        });
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sectors of 4 tracks of 10 that hold data.
    fn data(sparing: &Sparing) -> Vec<u32> {
        let runs = sparing.runs(4, 10);
        assert!(runs.iter().all(|run| run.sectors > 0 && run.sector + run.sectors <= 10));
        let all = |run: &Run| (run.track * 10 + run.sector)..(run.track * 10 + run.sector + run.sectors);
        runs.iter().flat_map(all).collect()
    }

    fn without(holes: &[u32]) -> Vec<u32> {
        (0..40).filter(|sector| !holes.contains(sector)).collect()
    }

    #[test]
    fn a_slipped_sector_takes_the_room_of_a_spare() {
        let spared = Sparing {
            spares: 3,
            slips_take_spares: true,
            slipped: vec![7, 20],
            ..Sparing::default()
        };
        assert_eq!(data(&spared), without(&[7, 20, 39]));
    }

    #[test]
    fn or_moves_everything_behind_it() {
        let spared = Sparing {
            spares: 3,
            slipped: vec![7, 20],
            ..Sparing::default()
        };
        assert_eq!(data(&spared), without(&[7, 20, 37, 38, 39]));
    }

    #[test]
    fn each_whole_unit_has_spares_of_its_own() {
        let mut spared = Sparing {
            spares: 2,
            unit_tracks: Some(3),
            slips_take_spares: true,
            slipped: vec![4, 33],
            ..Sparing::default()
        };
        assert_eq!(data(&spared), without(&[4, 29, 33]), "the last unit is not whole");
        spared.unit_tracks = Some(1);
        assert_eq!(data(&spared), without(&[4, 9, 18, 19, 28, 29, 33, 39]));
        spared.spares_first = true;
        assert_eq!(data(&spared), without(&[0, 4, 10, 11, 20, 21, 30, 33]));
    }

    #[test]
    fn the_front_counts_sectors_that_would_hold_data() {
        let spared = Sparing {
            front: 12,
            spares: 1,
            unit_tracks: Some(1),
            slips_take_spares: true,
            slipped: vec![2],
            ..Sparing::default()
        };
        let holes: Vec<u32> = (0..13).chain([19, 29, 39]).collect();
        assert_eq!(data(&spared), without(&holes));
    }
}
