//! Where the requests come from: drawn at random, the same for the same seed.

use std::ops::Range;
use std::sync::Arc;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{RangeSize, Workload, WorkloadError};
use crate::drive::{Drive, Lbn, Ps};
use crate::sched::{NoPlace, Pick, Queue, QueueRequest, RegionId, Scheduler, Targets};

pub(super) struct RequestSource<'a> {
    drive: Arc<Drive>,
    load: &'a Workload,
    uses_ranges: bool,
    /// Whether a write has one target with one place.
    is_single: bool,
    random: Xoshiro256PlusPlus,
    /// First sectors of single places are `places.start + align * i`.
    places: Places,
    /// The same for targets.
    ranges: Places,
    range_sectors: u64,
    /// The region that all writes share, where a target is the whole span.
    shared: Option<RegionId>,
    span: Range<u64>,
}

/// Tracks in the targets of all who wait: each takes some 50 bytes, so 400 MB are the most.
const TRACKS_MAX: u64 = 1 << 23;

/// Aligned sectors from which a length fits in the span.
#[derive(Clone, Copy, Debug)]
struct Places {
    first: u64,
    count: u64,
    align: u64,
}

impl Places {
    fn new(span: &Range<u64>, sectors: u64, align: u32) -> Option<Places> {
        let align = u64::from(align);
        let first = span.start.next_multiple_of(align);
        let last = span.end.checked_sub(sectors)?;
        Some(Places {
            first,
            count: last.checked_sub(first)? / align + 1,
            align,
        })
    }

    #[inline]
    fn draw(&self, random: &mut impl Rng) -> u64 {
        self.first + self.align * random.random_range(0..self.count)
    }
}

impl<'a> RequestSource<'a> {
    pub(super) fn new(
        drive: &Arc<Drive>,
        load: &'a Workload,
        scheduler: Scheduler,
        queue: &mut Queue,
    ) -> Result<Self, WorkloadError> {
        let span = load.span.sectors(drive)?;
        let (sectors, align) = (load.request_sectors, load.align_sectors);
        let no_place = |largest| NoPlace {
            sectors,
            align,
            largest,
        };
        let length = span.end - span.start;
        let range_sectors = match load.range {
            RangeSize::Sectors(range) => range.min(length),
            RangeSize::Track => u64::from(sectors),
        };
        let places = Places::new(&span, u64::from(sectors), align).ok_or(no_place(length))?;
        if range_sectors < u64::from(sectors) {
            return Err(no_place(range_sectors).into());
        }
        let is_track = load.range == RangeSize::Track;
        let per_target = (range_sectors - u64::from(sectors)) / u64::from(align) + 1;
        let is_single = load.targets == 1 && per_target == 1 && !is_track;
        // Targets begin at multiples of the alignment, but one that fills the span.
        let only = Places {
            first: span.start,
            count: 1,
            align: 1,
        };
        let ranges = Places::new(&span, range_sectors, align).unwrap_or(if is_single { places } else { only });
        let mut source = RequestSource {
            drive: Arc::clone(drive),
            load,
            uses_ranges: scheduler.uses_ranges(),
            is_single,
            random: Xoshiro256PlusPlus::seed_from_u64(load.seed),
            places,
            ranges,
            range_sectors,
            shared: None,
            span,
        };
        if source.uses_ranges && !is_track && range_sectors == length && places.count > 1 {
            let whole = source.span.clone();
            source.shared = Some(queue.add_region(source.targets(vec![whole])?));
        }
        Ok(source)
    }

    /// How many requests with targets of their own may wait at once, so that their places fit into memory.
    pub(super) fn waiting_max(&self) -> u64 {
        let is_own = self.uses_ranges && !self.is_single && self.shared.is_none() && self.load.reads < 1.0;
        if !is_own {
            return u64::MAX;
        }
        let least = self
            .drive
            .summary()
            .zones
            .iter()
            .map(|zone| zone.sectors_per_track)
            .min();
        let per_target = match self.load.range {
            RangeSize::Track => 1,
            RangeSize::Sectors(_) => self.range_sectors / u64::from(least.unwrap_or(1)) + 2,
        };
        let tracks = (u64::from(self.load.targets) * per_target)
            .min(u64::from(self.drive.cylinders()) * u64::from(self.drive.heads()));
        TRACKS_MAX / tracks.max(1)
    }

    /// Adds the next request to the queue.
    pub(super) fn push(&mut self, id: u64, at: Ps, queue: &mut Queue) -> Result<(), WorkloadError> {
        let ask = self.ask(queue)?;
        queue.push_at(id, ask, at);
        Ok(())
    }

    /// Forgets the targets of a request that was picked.
    pub(super) fn picked(&self, pick: &Pick, queue: &mut Queue) {
        if let Some(region) = pick.region.filter(|&region| Some(region) != self.shared) {
            queue.remove_region(region);
        }
    }

    fn ask(&mut self, queue: &mut Queue) -> Result<QueueRequest, WorkloadError> {
        let load = self.load;
        let at = |lbn, write| QueueRequest::At {
            lbn: Lbn(lbn),
            sectors: load.request_sectors,
            write,
        };
        if load.reads > 0.0 && self.random.random_bool(load.reads) {
            return Ok(at(self.places.draw(&mut self.random), false));
        }
        if self.is_single {
            return Ok(at(self.ranges.draw(&mut self.random), true));
        }
        if !self.uses_ranges {
            return Ok(at(self.place_of_its_own()?, true));
        }
        if let Some(region) = self.shared {
            return Ok(QueueRequest::Anywhere(region));
        }
        let mut drawn = (0..load.targets)
            .map(|_| self.target())
            .collect::<Result<Vec<_>, _>>()?;
        merge(&mut drawn);
        Ok(QueueRequest::Anywhere(queue.add_region(self.targets(drawn)?)))
    }

    /// Of ranges that are sorted and do not touch.
    fn targets(&self, ranges: Vec<Range<u64>>) -> Result<Targets, NoPlace> {
        Targets::of_sorted(&self.drive, ranges, self.load.request_sectors, self.load.align_sectors)
    }

    /// A random target.
    fn target(&mut self) -> Result<Range<u64>, NoPlace> {
        if let RangeSize::Sectors(_) = self.load.range {
            let start = self.ranges.draw(&mut self.random);
            return Ok(start..start + self.range_sectors);
        }
        let place = self.places.draw(&mut self.random);
        // Where the span cuts a track short there may be no room on it, but then there is on the next, to which the place reaches.
        let last = place + u64::from(self.load.request_sectors) - 1;
        let tracks = [place, last].map(|lbn| self.track(lbn));
        let largest = tracks.iter().map(|track| track.end - track.start).max().unwrap_or(0);
        let with_room = tracks.into_iter().find(|track| self.places_in(track).is_some());
        with_room.ok_or_else(|| self.no_place(largest))
    }

    /// The part of a sector's track that lies in the span.
    fn track(&self, lbn: u64) -> Range<u64> {
        let track = self.drive.track(Lbn(lbn));
        let end = track.first.0 + u64::from(track.sectors);
        track.first.0.max(self.span.start)..end.min(self.span.end)
    }

    fn places_in(&self, range: &Range<u64>) -> Option<Places> {
        Places::new(range, u64::from(self.load.request_sectors), self.load.align_sectors)
    }

    fn no_place(&self, largest: u64) -> NoPlace {
        NoPlace {
            sectors: self.load.request_sectors,
            align: self.load.align_sectors,
            largest,
        }
    }

    /// A random place of a random target: what a host chooses that names one place.
    fn place_of_its_own(&mut self) -> Result<u64, NoPlace> {
        let target = self.target()?;
        let places = self
            .places_in(&target)
            .ok_or_else(|| self.no_place(target.end - target.start))?;
        Ok(places.draw(&mut self.random))
    }
}

/// Sorts ranges and joins those that touch.
fn merge(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touch = next.start <= last.end;
        if touch {
            last.end = last.end.max(next.end);
        }
        touch
    });
}

#[cfg(test)]
mod tests {
    use super::merge;

    #[test]
    fn ranges_that_touch_become_one() {
        let mut ranges = vec![20..30, 0..5, 5..9, 22..25, 29..31, 40..41];
        merge(&mut ranges);
        assert_eq!(ranges, [0..9, 20..31, 40..41]);
    }
}
