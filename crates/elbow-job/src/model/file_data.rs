//! The content of a file: dirty pieces over what the storage holds.
//!
//! ```text
//!   new file:   dirty  >  target file on storage, right up to `valid`  >  zeros
//!   old file:   dirty  >  patch file where `written`  >  original up to `kept`  >  zeros
//! ```
//!
//! The *target* is the file that dirty pieces are drained to: the new file itself, or the patch file of an
//! old one, at the same offsets. Between two drains the target may have been cut by the job: `valid` says
//! how much of it still counts, and the next drain cuts it there before it writes.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use elbow_file::Handle;
use elbow_ranges::{RangeMap, RangeSet};

use super::boxed_unless_empty::BoxedUnlessEmpty;
use super::fill::{Chunk, Fill, Piece};
use super::reserve::Reserve;

/// A file that is still open for writing is drained from this much dirty data on.
pub(crate) const EAGER_DRAIN_BYTES: u64 = 4 << 20;
/// At most this much is written in one action, so that memory comes free steadily.
const FILL_BYTES: u64 = 2 << 20;
/// The same of bytes that are copied where the storage is: they take no memory here, but one action should not take a minute.
pub(super) const COPY_BYTES: u64 = 64 << 20;
/// The same of pieces that are copied: each names its directory.
const COPIES_MAX: u32 = 256;

/// Where a part of a read comes from.
#[derive(Clone, Debug)]
pub(crate) enum SegmentSource {
    Piece(Piece),
    Target(u64),
    Original(u64),
}

/// A part of a read.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) length: usize,
    pub(crate) source: SegmentSource,
}

/// The content of one file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) dirty: RangeMap<Piece>,
    /// Size of the target on storage.
    pub(crate) stored: u64,
    /// New files: this much of the target counts.
    valid: u64,
    /// New files: bytes of the target that are no holes, at most; what was written twice counts twice.
    data_stored: u64,
    /// Smallest size since the fill under way began.
    cut: Option<u64>,
    /// Old files: this much of the original counts.
    kept: u64,
    /// Old files: the job cut the original below its size.
    pub(crate) shortened: bool,
    /// Old files: what is in the patch file.
    pub(crate) written: BoxedUnlessEmpty<RangeSet>,
    /// Old files: what is zero without being in the patch file.
    pub(crate) zeroed: BoxedUnlessEmpty<RangeSet>,
    /// What is to be reserved on the storage, if anything ever was.
    reserve: Option<Box<Reserve>>,
    /// The patch file exists.
    pub(crate) patch_made: bool,
    old: bool,
    pub(crate) target: Option<Handle>,
    pub(crate) original: Option<Handle>,
}

impl Content {
    pub(crate) fn of_old(size: u64) -> Self {
        Self {
            kept: size,
            old: true,
            ..Self::default()
        }
    }

    /// Bytes of the original that still count.
    pub(crate) fn kept(&self) -> u64 {
        self.kept
    }

    /// An old file's content differs from what the storage has.
    pub(crate) fn changed(&self) -> bool {
        let has_content = !self.dirty.is_empty() || !self.written.is_empty() || !self.zeroed.is_empty();
        self.shortened || has_content || self.reserve.as_ref().is_some_and(|reserve| !reserve.wanted.is_empty())
    }

    /// What the file is to have reserved in the end.
    pub(crate) fn reserved(&self) -> RangeSet {
        self.reserve
            .as_ref()
            .map(|reserve| reserve.wanted.clone())
            .unwrap_or_default()
    }

    /// Space is to be reserved for a range, whatever is written there.
    pub(super) fn want_reserved(&mut self, start: u64, end: u64) {
        self.reserve.get_or_insert_default().wanted.insert(start, end);
    }

    /// Nothing is to be reserved for a range any more but what is written there.
    pub(super) fn want_none(&mut self, start: u64, end: u64) {
        if let Some(reserve) = &mut self.reserve {
            reserve.wanted.remove(start, end);
        }
    }

    /// The blocks of 512 bytes that the file takes, about. Programs look for holes where a file takes less than its size, and read it all where it does not,
    /// so holes do not count.
    pub(crate) fn blocks(&self, size: u64, seen: Option<u64>) -> u64 {
        let (data, reserved) = match seen {
            Some(blocks) if !self.changed() => return blocks,
            seen if self.old => {
                let kept = self.kept.saturating_sub(self.zeroed.total_bytes());
                let kept = kept.min(seen.map_or(u64::MAX, |blocks| blocks.saturating_mul(512)));
                (
                    kept.saturating_add(self.written.total_bytes()),
                    self.reserved().total_bytes(),
                )
            }
            _ => (self.data_stored.min(self.valid), self.only_reserved()),
        };
        let within = data.saturating_add(self.dirty_data()).min(size);
        let all = match self.old {
            // What is reserved may be among the rest.
            true => within.saturating_add(reserved).min(size.max(reserved)),
            false => within.saturating_add(reserved),
        };
        all.div_ceil(4096) * 8
    }

    /// Dirty bytes that are no holes.
    fn dirty_data(&self) -> u64 {
        let data = self.dirty.iter().filter(|(_, piece)| !matches!(piece, Piece::Zero));
        data.map(|(range, _)| range.end - range.start).sum()
    }

    /// Bytes that a new file has reserved and nothing written to.
    fn only_reserved(&self) -> u64 {
        let Some(reserve) = &self.reserve else { return 0 };
        let stored = std::iter::once(0..self.valid);
        let written: RangeSet = stored.chain(self.dirty.iter().map(|(range, _)| range)).collect();
        reserve.wanted.difference(&written).total_bytes()
    }

    /// Dirty bytes that are data.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty.covered_bytes()
    }

    /// Dirty bytes of a range, holes among them.
    pub(super) fn dirty_within(&self, start: u64, end: u64) -> u64 {
        let parts = self.dirty.overlapping(start, end);
        parts.map(|(part, _)| part.end - part.start).sum()
    }

    pub(super) fn set_size(&mut self, from: u64, to: u64) {
        if to <= from {
            // Also where the size stays as it is: that frees what is reserved behind it.
            self.want_none(to, u64::MAX);
        }
        if to >= from {
            return;
        }
        self.dirty.truncate(to);
        self.valid = self.valid.min(to);
        self.cut = Some(self.cut.map_or(to, |cut| cut.min(to)));
        if self.old {
            self.shortened |= to < self.kept;
            self.kept = self.kept.min(to);
            self.written.remove(to, u64::MAX);
            self.zeroed.remove(to, u64::MAX);
        }
    }

    pub(super) fn put(&mut self, offset: u64, data: &[u8], gauge: &Arc<AtomicU64>) {
        let end = offset + data.len() as u64;
        if self.append_to_neighbour(offset, data) {
            return;
        }
        self.dirty.insert(offset, end, Piece::Memory(Chunk::new(data, gauge)));
    }

    fn append_to_neighbour(&mut self, offset: u64, data: &[u8]) -> bool {
        let end = offset + data.len() as u64;
        if offset == 0 || self.dirty.last().is_none_or(|(range, _)| range.end != offset) {
            return false;
        }
        let start = self.dirty.last().map_or(0, |(range, _)| range.start);
        let Some(Piece::Memory(chunk)) = self.dirty.get_mut_at(start) else {
            return false;
        };
        let appended = chunk.append(data);
        if appended {
            self.dirty.extend_piece(start, end);
        }
        appended
    }

    /// What a drain has to do now for a file of this size.
    pub(crate) fn fill(&mut self, size: u64, last: bool) -> Fill {
        self.cut = None;
        let mut fill = Fill {
            cut: self.cut_when_stored(),
            ..Fill::default()
        };
        let (mut written, mut copied, mut copies) = (0, 0, 0);
        for (range, piece) in self.dirty.iter() {
            let bytes = range.end - range.start;
            match piece {
                Piece::Copy(_) => (copied, copies) = (copied + bytes, copies + 1),
                _ => written += bytes,
            }
            fill.pieces.push((range, piece.clone()));
            if written >= FILL_BYTES || copied >= COPY_BYTES || copies >= COPIES_MAX {
                break;
            }
        }
        let reached = fill.data_end().max(fill.cut.unwrap_or(self.stored));
        let all = fill.pieces.len() == self.dirty.len();
        if !self.old && last && all && reached != size {
            fill.size = Some(size);
        }
        fill.reached = fill.size.unwrap_or(reached);
        if let Some(reserve) = self.reserve.as_ref().filter(|_| !self.old) {
            fill.reserve = reserve.missing_after(&fill);
        }
        fill
    }

    /// To what size the target is to be cut before anything else is written.
    pub(crate) fn cut_when_stored(&self) -> Option<u64> {
        if self.old {
            return None;
        }
        // What is reserved behind the end goes by setting the size that the file has, too.
        let counted = self.counted();
        let has_too_much = self
            .reserve
            .as_ref()
            .is_some_and(|reserve| reserve.is_too_much_from(counted));
        (self.stored > self.valid || has_too_much).then_some(counted)
    }

    /// New files: the size that the target has at least.
    pub(crate) fn counted(&self) -> u64 {
        self.valid.min(self.stored)
    }

    /// What [`written`](Self::written) and [`zeroed`](Self::zeroed) are once all is stored.
    pub(crate) fn patched_when_stored(&self) -> (RangeSet, RangeSet) {
        let (mut written, mut zeroed) = (self.written.clone(), self.zeroed.clone());
        for (range, piece) in self.dirty.iter() {
            let (to, from) = match piece {
                Piece::Zero => (&mut zeroed, &mut written),
                _ => (&mut written, &mut zeroed),
            };
            to.insert(range.start, range.end);
            from.remove(range.start, range.end);
        }
        (written, zeroed)
    }

    /// A fill is needed (or, with `last`, a final size).
    pub(crate) fn needs_fill(&self, size: u64, last: bool) -> bool {
        let lacks_room = || self.reserve.as_ref().is_some_and(|reserve| reserve.is_missing());
        let has_other = || self.cut_when_stored().is_some() || last && self.stored != size || lacks_room();
        !self.dirty.is_empty() || !self.old && has_other()
    }

    /// A fill failed half-way: as much as it was to write may be there, and has to be cut if the job has cut it meanwhile.
    pub(crate) fn not_filled(&mut self, fill: &Fill) {
        let reached = fill.data_end().max(fill.size.unwrap_or(0));
        self.stored = self.stored.max(reached);
        if let Some(reserve) = &mut self.reserve {
            reserve.may_have_lost(fill);
        }
    }

    /// A fill is on the storage: what it wrote and nobody wrote again is clean. Returns the bytes that are clean now.
    pub(crate) fn filled(&mut self, fill: &Fill) -> u64 {
        let cut = self.cut.take();
        let mut clean_bytes = 0;
        let stored = fill.cut.unwrap_or(self.stored).max(fill.data_end());
        for (range, piece) in &fill.pieces {
            let clean: Vec<Range<u64>> = self
                .dirty
                .overlapping(range.start, range.end)
                .filter(|(_, now)| now.same_origin(piece))
                .map(|(range, _)| range)
                .collect();
            for range in &clean {
                self.dirty.remove(range.start, range.end);
                clean_bytes += range.end - range.start;
            }
            if self.old {
                self.note_patched(range, piece, cut);
            } else if !matches!(piece, Piece::Zero) {
                self.data_stored = self.data_stored.saturating_add(range.end - range.start);
            }
        }
        if let Some(reserve) = &mut self.reserve {
            reserve.took(fill);
        }
        self.stored = fill.size.unwrap_or(stored);
        self.valid = cut.map_or(self.stored, |cut| cut.min(self.stored));
        self.data_stored = self.data_stored.min(self.valid);
        clean_bytes
    }

    fn note_patched(&mut self, range: &Range<u64>, piece: &Piece, cut: Option<u64>) {
        let end = range.end.min(cut.unwrap_or(u64::MAX));
        if range.start >= end {
            return;
        }
        let (to, from) = match piece {
            Piece::Zero => (&mut self.zeroed, &mut self.written),
            _ => (&mut self.written, &mut self.zeroed),
        };
        to.insert(range.start, end);
        from.remove(range.start, end);
    }

    /// The parts of a read of `[start, end)`, which lies within the file.
    pub(crate) fn segments(&self, start: u64, end: u64) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut at = start;
        for (range, piece) in self.dirty.overlapping(start, end) {
            self.clean_segments(at, range.start, &mut segments);
            segments.push(segment(range.end - range.start, SegmentSource::Piece(piece)));
            at = range.end;
        }
        self.clean_segments(at, end, &mut segments);
        segments
    }

    fn clean_segments(&self, start: u64, end: u64, out: &mut Vec<Segment>) {
        let mut at = start;
        while at < end {
            let (source, until) = if self.old {
                self.clean_old(at, end)
            } else {
                self.clean_new(at, end)
            };
            out.push(segment(until - at, source));
            at = until;
        }
    }

    fn clean_new(&self, at: u64, end: u64) -> (SegmentSource, u64) {
        let valid = self.counted();
        if at < valid {
            (SegmentSource::Target(at), end.min(valid))
        } else {
            (SegmentSource::Piece(Piece::Zero), end)
        }
    }

    /// How many pieces are parts of the buffer of one that begins here: what overwrites it in the middle leaves two.
    pub(super) fn parts_of(&self, at: u64, chunk: &Chunk) -> usize {
        let whole = chunk.whole(at);
        let around = self.dirty.whole_overlapping(whole.start, whole.end);
        around
            .filter(|(_, piece)| matches!(piece, Piece::Memory(other) if other.same_buffer(chunk)))
            .count()
    }

    fn clean_old(&self, at: u64, end: u64) -> (SegmentSource, u64) {
        if let Some(range) = self.written.range_at(at) {
            return (SegmentSource::Target(at), range.end.min(end));
        }
        if let Some(range) = self.zeroed.range_at(at) {
            return (SegmentSource::Piece(Piece::Zero), range.end.min(end));
        }
        let patched = [&self.written, &self.zeroed];
        let next = patched.iter().filter_map(|set| set.next_start(at)).min();
        let end = end.min(next.unwrap_or(end));
        if at < self.kept {
            (SegmentSource::Original(at), end.min(self.kept))
        } else {
            (SegmentSource::Piece(Piece::Zero), end)
        }
    }
}

fn segment(length: u64, source: SegmentSource) -> Segment {
    Segment {
        length: length as usize,
        source,
    }
}

/// Copies the parts of a read that are at hand; `None` if one is on the storage.
pub(super) fn assemble(segments: &[Segment], length: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(length);
    for segment in segments {
        match &segment.source {
            SegmentSource::Piece(Piece::Memory(chunk)) => out.extend_from_slice(chunk.bytes()),
            SegmentSource::Piece(Piece::Zero) => out.resize(out.len() + segment.length, 0),
            _ => return None,
        }
    }
    Some(out)
}
