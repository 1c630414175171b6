//! The cache's segments: each holds one stretch of what was read.

use std::ops::Range;

use crate::drive::CacheShape;

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

    /// The segment that holds a sector.
    pub(super) fn find(&mut self, lbn: u64) -> Option<usize> {
        let found = self.held.iter().position(|segment| segment.range.contains(&lbn))?;
        self.touch(found);
        Some(found)
    }

    /// A segment for what begins at `lbn`, emptied; none where there is no cache.
    pub(super) fn take(&mut self, lbn: u64) -> Option<usize> {
        let order = |segment: &Segment| (!segment.range.is_empty(), segment.used);
        let taken = (0..self.held.len()).min_by_key(|&index| order(&self.held[index]))?;
        self.held[taken].range = lbn..lbn;
        self.touch(taken);
        Some(taken)
    }

    fn touch(&mut self, index: usize) {
        self.clock += 1;
        self.held[index].used = self.clock;
    }

    pub(super) fn end(&self, index: usize) -> u64 {
        self.held[index].range.end
    }

    /// The segment has been filled up to `end`; what does not fit any more is lost at its start.
    pub(super) fn fill(&mut self, index: usize, end: u64) {
        let range = &mut self.held[index].range;
        *range = range.start.max(end.saturating_sub(self.size))..end;
    }

    /// Forgets what a write makes untrue.
    pub(super) fn overwrite(&mut self, written: &Range<u64>) {
        for segment in &mut self.held {
            if segment.range.start < written.end && written.start < segment.range.end {
                segment.range = 0..0;
            }
        }
    }
}
