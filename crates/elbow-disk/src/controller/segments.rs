//! The cache's segments: each holds one stretch of what was read, or of what was written where the drive keeps that.

use std::ops::Range;

use crate::drive::{CacheShape, Ps};

/// Until a time that is not known yet.
const NOT_YET: Ps = Ps(u64::MAX);

/// Stretches of sectors, the one used longest ago first to be given up.
#[derive(Clone, Debug)]
pub(super) struct Segments {
    held: Vec<Segment>,
    size: u64,
    clock: u64,
}

#[derive(Clone, Debug, Default)]
struct Segment {
    /// Empty: nothing.
    range: Range<u64>,
    used: u64,
    /// Up to then the medium does not have all of it, and nothing else can be put there.
    dirty_until: Ps,
}

impl Segments {
    pub(super) fn new(shape: Option<&CacheShape>) -> Segments {
        let count = shape.map_or(0, |shape| shape.segments - shape.write_segments);
        let size = shape.map_or(0, |shape| u64::from(shape.segment_sectors));
        Segments {
            held: vec![Segment::default(); count as usize],
            size,
            clock: 0,
        }
    }

    /// The segment that holds the first of some sectors, best one that holds all of them.
    pub(super) fn find(&mut self, wanted: &Range<u64>) -> Option<usize> {
        let holds = |sector: u64| move |segment: &Segment| segment.range.contains(&sector);
        let first = self.held.iter().position(holds(wanted.start))?;
        let all = |segment: &Segment| segment.range.start <= wanted.start && wanted.end <= segment.range.end;
        let found = self.held[first..]
            .iter()
            .position(all)
            .map_or(first, |further| first + further);
        self.touch(found);
        Some(found)
    }

    /// A segment for what begins at `lbn`, emptied; none where there is no cache, or all of it is dirty at `now`.
    pub(super) fn take(&mut self, lbn: u64, now: Ps) -> Option<usize> {
        let order = |segment: &Segment| (!segment.range.is_empty(), segment.used);
        let taken = (0..self.held.len())
            .filter(|&index| self.held[index].dirty_until <= now)
            .min_by_key(|&index| order(&self.held[index]))?;
        self.held[taken].range = lbn..lbn;
        self.touch(taken);
        Some(taken)
    }

    fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.held[index].used = self.clock;
    }

    pub(super) fn range(&self, index: usize) -> &Range<u64> {
        &self.held[index].range
    }

    /// The segment has been filled up to `end`; what does not fit any more is lost at its start.
    pub(super) fn fill(&mut self, index: usize, end: u64) {
        let range = &mut self.held[index].range;
        *range = range.start.max(end.saturating_sub(self.size))..end;
    }

    /// The segment begins at `start`, before what it was taken for.
    pub(super) fn begin(&mut self, index: usize, start: u64) {
        self.held[index].range.start = start;
    }

    /// What is in the segment is not on the medium, until further notice.
    pub(super) fn soil(&mut self, index: usize) {
        self.held[index].dirty_until = NOT_YET;
    }

    /// From `end` on it is.
    pub(super) fn clean(&mut self, index: usize, end: Ps) {
        self.held[index].dirty_until = end;
    }

    /// Forgets what a write makes untrue, but for what is in the segment `kept`.
    pub(super) fn overwrite(&mut self, written: &Range<u64>, kept: Option<usize>) {
        for (index, segment) in self.held.iter_mut().enumerate() {
            if Some(index) != kept && segment.range.start < written.end && written.start < segment.range.end {
                segment.range = 0..0;
            }
        }
    }
}
