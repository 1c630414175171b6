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
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_file::{Errno, Handle, Protection};
use elbow_ranges::{RangeMap, RangeSet};

use super::rare::Rare;
use super::reserve::Reserve;
use super::{Body, Inode, Inodes, Model};
use crate::api::{Answer, Fetch, Ino, OpError, SetIds};
use crate::spill::Spilled;

/// Appending writes are joined up to this size, so that one storage call takes many of them.
const CHUNK_BYTES: usize = 256 << 10;
/// What a piece costs beside its bytes.
const PIECE_OVERHEAD_BYTES: u64 = 160;
/// A file that is still open for writing is drained from this much dirty data on.
pub(crate) const EAGER_DRAIN_BYTES: u64 = 4 << 20;
/// At most this much is written in one action, so that memory comes free steadily.
const FILL_BYTES: u64 = 2 << 20;

/// Written bytes in memory; `gauge` counts them as long as anybody holds them.
#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    charged: u64,
    gauge: Arc<AtomicU64>,
}

impl Buffer {
    fn recharge(&mut self) {
        let cost = self.bytes.capacity() as u64 + PIECE_OVERHEAD_BYTES;
        self.gauge.fetch_add(cost.wrapping_sub(self.charged), Ordering::Relaxed);
        self.charged = cost;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.gauge.fetch_sub(self.charged, Ordering::Relaxed);
    }
}

/// A part of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    buffer: Arc<Buffer>,
    start: usize,
    end: usize,
}

impl Chunk {
    pub(crate) fn new(data: &[u8], gauge: &Arc<AtomicU64>) -> Self {
        let mut buffer = Buffer {
            bytes: data.to_vec(),
            charged: 0,
            gauge: gauge.clone(),
        };
        buffer.recharge();
        Self {
            end: data.len(),
            buffer: Arc::new(buffer),
            start: 0,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes[self.start..self.end]
    }

    /// Nobody writes or reads it at the moment, so letting go of it frees its memory.
    fn is_idle(&self) -> bool {
        Arc::strong_count(&self.buffer) == 1
    }

    fn same_buffer(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
    }

    /// Appends in place if nobody else holds the buffer and it ends where this part ends.
    fn append(&mut self, data: &[u8]) -> bool {
        let end = self.end;
        let Some(buffer) = Arc::get_mut(&mut self.buffer) else {
            return false;
        };
        if end != buffer.bytes.len() || end + data.len() > CHUNK_BYTES {
            return false;
        }
        buffer.bytes.extend_from_slice(data);
        buffer.recharge();
        self.end += data.len();
        true
    }
}

/// A range of a file whose bytes are in memory.
pub(crate) type MemoryPiece = (Range<u64>, Chunk);

/// Bytes that the storage does not have yet.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Memory(Chunk),
    Spill(Spilled),
    Zero,
}

impl Piece {
    /// Both come from the same write: the bytes of one are the bytes of the other.
    fn same_origin(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(a), Self::Memory(b)) => a.same_buffer(b),
            (Self::Spill(a), Self::Spill(b)) => a.same_extent(b),
            (Self::Zero, Self::Zero) => true,
            _ => false,
        }
    }
}

impl elbow_ranges::Piece for Piece {
    fn slice(&self, start: u64, end: u64) -> Self {
        match self {
            Self::Memory(chunk) => Self::Memory(Chunk {
                buffer: chunk.buffer.clone(),
                start: chunk.start + start as usize,
                end: chunk.start + end as usize,
            }),
            Self::Spill(spilled) => Self::Spill(spilled.slice(start, end)),
            Self::Zero => Self::Zero,
        }
    }
}

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

/// What one action writes to a target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fill {
    /// Cut the target to this size first.
    pub(crate) cut: Option<u64>,
    pub(crate) pieces: Vec<(Range<u64>, Piece)>,
    /// Set this size after that.
    pub(crate) size: Option<u64>,
    /// Reserve these ranges last.
    pub(crate) reserve: RangeSet,
    /// The size that the target has then, at least.
    reached: u64,
}

impl Fill {
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(range, _)| range.end - range.start).sum()
    }

    /// It writes to the file, or changes its size.
    pub(crate) fn changes_file(&self) -> bool {
        self.cut.is_some() || self.size.is_some() || !self.pieces.is_empty() || !self.reserve.is_empty()
    }

    /// What to reserve within the size that the target has, which nothing makes longer, and behind it: some storages know only the first.
    pub(crate) fn reserved_within(&self) -> RangeSet {
        let within: RangeSet = std::iter::once(0..self.reached).collect();
        self.reserve.intersection(&within)
    }

    /// Where the data written ends; zeros do not make a file longer.
    fn data_end(&self) -> u64 {
        let data = self
            .pieces
            .iter()
            .rev()
            .find(|(_, piece)| !matches!(piece, Piece::Zero));
        data.map_or(0, |(range, _)| range.end)
    }
}

/// The content of one file.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) dirty: RangeMap<Piece>,
    /// Size of the target on storage.
    pub(crate) stored: u64,
    /// New files: this much of the target counts.
    valid: u64,
    /// Smallest size since the fill under way began.
    cut: Option<u64>,
    /// Old files: this much of the original counts.
    kept: u64,
    /// Old files: the job cut the original below its size.
    pub(crate) shortened: bool,
    /// Old files: what is in the patch file.
    pub(crate) written: Rare<RangeSet>,
    /// Old files: what is zero without being in the patch file.
    pub(crate) zeroed: Rare<RangeSet>,
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
    fn want_reserved(&mut self, start: u64, end: u64) {
        self.reserve.get_or_insert_default().wanted.insert(start, end);
    }

    /// Nothing is to be reserved for a range any more but what is written there.
    fn want_none(&mut self, start: u64, end: u64) {
        if let Some(reserve) = &mut self.reserve {
            reserve.wanted.remove(start, end);
        }
    }

    pub(crate) fn blocks(&self, size: u64, seen: Option<u64>) -> u64 {
        match seen {
            Some(blocks) if !self.changed() => blocks,
            _ if self.old => size.div_ceil(4096) * 8,
            _ => ((self.dirty_bytes() + self.valid.min(size)).min(size) + self.only_reserved()).div_ceil(4096) * 8,
        }
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

    fn set_size(&mut self, from: u64, to: u64) {
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

    fn put(&mut self, offset: u64, data: &[u8], gauge: &Arc<AtomicU64>) {
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
        let mut bytes = 0;
        for (range, piece) in self.dirty.iter() {
            bytes += range.end - range.start;
            fill.pieces.push((range, piece.clone()));
            if bytes >= FILL_BYTES {
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
            }
        }
        if let Some(reserve) = &mut self.reserve {
            reserve.took(fill);
        }
        self.stored = fill.size.unwrap_or(stored);
        self.valid = cut.map_or(self.stored, |cut| cut.min(self.stored));
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

    fn clean_old(&self, at: u64, end: u64) -> (SegmentSource, u64) {
        if let Some(range) = self.written.range_at(at) {
            return (SegmentSource::Target(at), range.end.min(end));
        }
        if let Some(range) = self.zeroed.range_at(at) {
            return (SegmentSource::Piece(Piece::Zero), range.end.min(end));
        }
        let patched = [&self.written, &self.zeroed];
        let next = patched
            .iter()
            .filter_map(|set| set.iter().find(|r| r.start > at))
            .map(|r| r.start)
            .min();
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
fn assemble(segments: &[Segment], length: usize) -> Option<Vec<u8>> {
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

impl Inodes {
    /// Memory pieces of a file that nobody uses now, for spilling: up to `most` bytes.
    pub(crate) fn memory_pieces(&self, ino: Ino, most: u64) -> Vec<MemoryPiece> {
        let Some(content) = self.get(ino).ok().and_then(Inode::content) else {
            return Vec::new();
        };
        let mut bytes = 0;
        let memory = content.dirty.iter().filter_map(|(range, piece)| match piece {
            Piece::Memory(chunk) if chunk.is_idle() => Some((range, chunk.clone())),
            _ => None,
        });
        memory
            .take_while(|(range, _)| {
                let before = bytes;
                bytes += range.end - range.start;
                before < most
            })
            .collect()
    }

    /// Memory pieces are in the spill file now: those that are still there refer to it.
    pub(crate) fn spilled(&mut self, ino: Ino, pieces: &[MemoryPiece], spilled: &[Spilled]) {
        let Some(content) = self.get_mut(ino).ok().and_then(Inode::content_mut) else {
            return;
        };
        for ((range, chunk), place) in pieces.iter().zip(spilled) {
            let origin = Piece::Memory(chunk.clone());
            let same: Vec<Range<u64>> = content
                .dirty
                .overlapping(range.start, range.end)
                .filter(|(_, now)| now.same_origin(&origin))
                .map(|(part, _)| part)
                .collect();
            for part in same {
                let slice = place.slice(part.start - range.start, part.end - range.start);
                content.dirty.insert(part.start, part.end, Piece::Spill(slice));
            }
        }
    }

    pub(crate) fn known_file(&self, ino: Ino) -> Answer<()> {
        match self.known(ino)?.body {
            Body::File(_) => Ok(()),
            Body::Dir(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    /// Reads from a file; [`Fetch::Open`] when a part of it is on the storage or spilled.
    pub(crate) fn read(&self, ino: Ino, offset: u64, length: usize) -> Answer<Vec<u8>> {
        let segments = self.segments(ino, offset, length)?;
        assemble(&segments, length).ok_or(OpError::NeedsStorage(Fetch::Open(ino)))
    }

    pub(crate) fn segments(&self, ino: Ino, offset: u64, length: usize) -> Answer<Vec<Segment>> {
        self.known_file(ino)?;
        let inode = self.at(ino);
        let end = inode.size.min(offset.saturating_add(length as u64));
        let content = inode.content().expect("a file");
        Ok(if offset < end {
            content.segments(offset, end)
        } else {
            Vec::new()
        })
    }
}

impl Model {
    /// Writes into a file.
    pub(crate) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        set_ids: SetIds,
        gauge: &Arc<AtomicU64>,
    ) -> Answer<usize> {
        self.may_modify()?;
        self.checks().mutable(ino)?;
        if self.inodes.protection(ino) == Protection::AppendOnly && offset != self.inodes.get(ino)?.size {
            return Err(Errno::PERM.into());
        }
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or(Errno::FBIG)?;
        self.inodes.known_file(ino)?;
        if data.is_empty() {
            return Ok(0);
        }
        if gauge.load(Ordering::Relaxed) + data.len() as u64 > self.config.memory_limit {
            return Err(OpError::NeedsStorage(Fetch::Room(data.len() as u64)));
        }
        self.traits.able_size(end)?;
        let taken = self.taken(ino, set_ids)?;
        self.reserve_gaps(ino, offset, end)?;
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        inode.size = inode.size.max(end);
        inode.content_mut().expect("a file").put(offset, data, gauge);
        super::attributes::take(inode, taken);
        self.note_nameless(ino);
        self.content_touched(ino, now);
        self.counts.bytes_acknowledged += data.len() as u64;
        Ok(data.len())
    }

    fn reserve_gaps(&mut self, ino: Ino, start: u64, end: u64) -> Answer<()> {
        let content = self.inodes.at(ino).content().expect("a file");
        let covered: u64 = content
            .dirty
            .overlapping(start, end)
            .map(|(r, _)| r.end - r.start)
            .sum();
        self.space.reserve(end - start - covered, 0)
    }

    pub(crate) fn content_touched(&mut self, ino: Ino, now: elbow_file::Time) {
        let inode = self.inodes.at_mut(ino);
        super::attributes::drop_capability(inode);
        inode.mtime = now;
        inode.ctime = now;
        inode.dirty.times = true;
        self.scheduler().touched(ino);
    }

    /// Sets the size of a file.
    pub(crate) fn set_size(&mut self, ino: Ino, size: u64) -> Answer<()> {
        self.inodes.known_file(ino)?;
        if size > i64::MAX as u64 {
            return Err(Errno::FBIG.into());
        }
        self.traits.able_size(size)?;
        let inode = self.inodes.at_mut(ino);
        let from = inode.size;
        inode.size = size;
        let content = inode.content_mut().expect("a file");
        let before = content.dirty_bytes();
        content.set_size(from, size);
        let freed = before - content.dirty_bytes();
        self.space.unreserve(freed, 0);
        Ok(())
    }

    /// fallocate(2): sizes, holes, and what is to be reserved on the storage.
    pub(crate) fn fallocate(&mut self, ino: Ino, mode: i32, offset: u64, length: u64) -> Answer<()> {
        use rustix::fs::FallocateFlags as F;
        self.may_modify()?;
        self.checks().unprotected(ino)?;
        self.inodes.known_file(ino)?;
        let end = offset
            .checked_add(length)
            .filter(|end| *end <= i64::MAX as u64)
            .ok_or(Errno::FBIG)?;
        if length == 0 {
            return Err(Errno::INVAL.into());
        }
        let flags = F::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
        let keep = flags.contains(F::KEEP_SIZE);
        self.traits.able_size(if keep { 0 } else { end })?;
        match flags - F::KEEP_SIZE {
            F::PUNCH_HOLE if keep => {
                self.zero(ino, offset, end);
                let inode = self.inodes.at_mut(ino);
                let end = end.min(inode.size);
                inode.content_mut().expect("a file").want_none(offset.min(end), end);
            }
            F::ZERO_RANGE => {
                self.zero(ino, offset, end);
                self.inodes
                    .at_mut(ino)
                    .content_mut()
                    .expect("a file")
                    .want_reserved(offset, end);
            }
            rest if rest.is_empty() => {
                if !self.space.could_hold(end.saturating_sub(self.inodes.at(ino).size)) {
                    return Err(Errno::NOSPC.into());
                }
                self.inodes
                    .at_mut(ino)
                    .content_mut()
                    .expect("a file")
                    .want_reserved(offset, end);
            }
            _ => return Err(Errno::OPNOTSUPP.into()),
        }
        let now = self.now;
        let inode = self.inodes.at_mut(ino);
        if !keep && end > inode.size {
            inode.size = end;
        }
        self.content_touched(ino, now);
        Ok(())
    }

    fn zero(&mut self, ino: Ino, start: u64, end: u64) {
        let inode = self.inodes.at_mut(ino);
        let end = end.min(inode.size);
        if start >= end {
            return;
        }
        let content = inode.content_mut().expect("a file");
        let covered: u64 = content
            .dirty
            .overlapping(start, end)
            .map(|(r, _)| r.end - r.start)
            .sum();
        content.dirty.insert(start, end, Piece::Zero);
        self.space.reserve_unchecked(end - start - covered);
    }

    /// Has the descriptors of a file closed by a worker, because close(2) may block and may fail.
    pub(crate) fn close_content(&mut self, ino: Ino) {
        let Some(content) = self.inodes.get_mut(ino).ok().and_then(Inode::content_mut) else {
            return;
        };
        let handles = [content.target.take(), content.original.take()];
        self.closing
            .extend(handles.into_iter().flatten().map(|handle| (ino, handle)));
    }

    /// Closes all files that are still open, of which nobody may have a name any more: some storages tell only then what they could not store.
    pub(crate) fn close_files(&mut self) {
        let is_open = |content: &Content| content.target.is_some() || content.original.is_some();
        let open = self
            .inodes
            .all()
            .filter(|(_, inode)| inode.content().is_some_and(is_open));
        let open: Vec<Ino> = open.map(|(ino, _)| ino).collect();
        open.into_iter().for_each(|ino| self.close_content(ino));
    }

    /// Lets go of the written data of an object that nobody can reach any more.
    pub(crate) fn release_memory(&mut self, ino: Ino) {
        let Ok(inode) = self.inodes.get_mut(ino) else { return };
        let Some(content) = inode.content_mut() else { return };
        let bytes = content.dirty_bytes();
        content.dirty.clear();
        self.close_content(ino);
        self.space.unreserve(bytes, 0);
    }
}
