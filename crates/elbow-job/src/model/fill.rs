//! Written data on its way to the storage: where it is kept until then, and what one visit stores of a file.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elbow_ranges::RangeSet;

use super::copy_source::CopyPiece;
use crate::spill::Spilled;

/// Appending writes are joined up to this size, so that one storage call takes many of them.
const CHUNK_BYTES: usize = 256 << 10;
/// What a piece costs beside its bytes.
const PIECE_OVERHEAD_BYTES: u64 = 160;

/// Written bytes in memory; `gauge` counts them as long as anybody holds them.
#[derive(Debug)]
pub(crate) struct Buffer {
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

    /// Bytes that came from elsewhere, and that no budget counts.
    pub(crate) fn uncounted(bytes: Vec<u8>) -> Self {
        Self {
            start: 0,
            end: bytes.len(),
            buffer: Arc::new(Buffer {
                bytes,
                charged: 0,
                gauge: Arc::default(),
            }),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer.bytes[self.start..self.end]
    }

    /// Nobody but the file that has so many parts of its buffer writes or reads it at the moment, so letting go of them frees its memory.
    pub(super) fn is_idle(&self, parts: usize) -> bool {
        Arc::strong_count(&self.buffer) == parts
    }

    /// Where in the file its buffer would begin and end, if this part begins here.
    pub(super) fn whole(&self, at: u64) -> Range<u64> {
        let begin = at.saturating_sub(self.start as u64);
        begin..begin + self.buffer.bytes.len() as u64
    }

    pub(super) fn same_buffer(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.buffer, &other.buffer)
    }

    /// Appends in place if nobody else holds the buffer and it ends where this part ends.
    pub(super) fn append(&mut self, data: &[u8]) -> bool {
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
    /// They are in an old file, and are copied where that is.
    Copy(CopyPiece),
    Zero,
}

impl Piece {
    /// Both come from the same write: the bytes of one are the bytes of the other.
    pub(super) fn same_origin(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(a), Self::Memory(b)) => a.same_buffer(b),
            (Self::Spill(a), Self::Spill(b)) => a.same_extent(b),
            (Self::Copy(a), Self::Copy(b)) => a.same_call(b),
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
            Self::Copy(copy) => Self::Copy(copy.from(start)),
            Self::Zero => Self::Zero,
        }
    }
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
    pub(crate) reached: u64,
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
    pub(super) fn data_end(&self) -> u64 {
        let data = self
            .pieces
            .iter()
            .rev()
            .find(|(_, piece)| !matches!(piece, Piece::Zero));
        data.map_or(0, |(range, _)| range.end)
    }
}
