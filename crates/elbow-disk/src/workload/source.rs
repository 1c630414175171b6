//! Where the requests come from: drawn at random, the same for the same seed.

use std::ops::Range;
use std::sync::Arc;

use elbow_ranges::RangeSet;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{RangeSize, Workload, WorkloadError};
use crate::drive::{Drive, Lbn};
use crate::sched::{Ask, NoPlace, Pick, Queue, RegionId, Scheduler, Targets};

pub(super) struct Source<'a> {
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

impl<'a> Source<'a> {
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
        // A target of the whole span may begin beside the alignment; any other begins at a multiple of it.
        let ranges = Places::new(&span, range_sectors, align).unwrap_or(Places {
            first: span.start,
            count: 1,
            align: 1,
        });
        let is_track = load.range == RangeSize::Track;
        let per_target = (range_sectors - u64::from(sectors)) / u64::from(align) + 1;
        let mut source = Source {
            drive: Arc::clone(drive),
            load,
            uses_ranges: scheduler.uses_ranges(),
            is_single: load.targets == 1 && per_target == 1 && !is_track,
            random: Xoshiro256PlusPlus::seed_from_u64(load.seed),
            places,
            ranges,
            range_sectors,
            shared: None,
            span,
        };
        if source.uses_ranges && !is_track && range_sectors == length && places.count > 1 {
            let whole = RangeSet::from_unsorted([(source.span.start, length)]).expect("sectors of a drive are few");
            source.shared = Some(queue.add_region(source.targets(whole)?));
        }
        Ok(source)
    }

    /// Adds the next request to the queue.
    pub(super) fn push(&mut self, id: u64, queue: &mut Queue) -> Result<(), WorkloadError> {
        let ask = self.ask(queue)?;
        queue.push(id, ask);
        Ok(())
    }

    /// Forgets the targets of a request that was picked.
    pub(super) fn picked(&self, pick: &Pick, queue: &mut Queue) {
        if let Some(region) = pick.region.filter(|&region| Some(region) != self.shared) {
            queue.remove_region(region);
        }
    }

    fn ask(&mut self, queue: &mut Queue) -> Result<Ask, WorkloadError> {
        let load = self.load;
        let at = |lbn, write| Ask::At {
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
            return Ok(at(self.place_of_its_own(), true));
        }
        if let Some(region) = self.shared {
            return Ok(Ask::Anywhere(region));
        }
        let drawn: Vec<_> = (0..load.targets).map(|_| self.target()).collect();
        let ranges = RangeSet::from_unsorted(drawn).expect("sectors of a drive are few");
        Ok(Ask::Anywhere(queue.add_region(self.targets(ranges)?)))
    }

    fn targets(&self, ranges: RangeSet) -> Result<Targets, NoPlace> {
        Targets::new(&self.drive, ranges, self.load.request_sectors, self.load.align_sectors)
    }

    /// First sector and length of a random target.
    fn target(&mut self) -> (u64, u64) {
        if let RangeSize::Sectors(_) = self.load.range {
            return (self.ranges.draw(&mut self.random), self.range_sectors);
        }
        let track = self.drive.track(Lbn(self.places.draw(&mut self.random)));
        let start = track.first.0.max(self.span.start);
        let end = (track.first.0 + u64::from(track.sectors)).min(self.span.end);
        (start, end - start)
    }

    /// A random place of a random target: what a host chooses that names one place.
    fn place_of_its_own(&mut self) -> u64 {
        let (start, length) = self.target();
        let places = Places::new(
            &(start..start + length),
            u64::from(self.load.request_sectors),
            self.load.align_sectors,
        );
        places.unwrap_or(self.places).draw(&mut self.random)
    }
}
