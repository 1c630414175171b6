//! What was written and not flushed: in memory, so that a power cut loses it.
//!
//! ```text
//!   writes   1: 10..14   2: 12..13   3: 40..44 (durable)      in the order in which they were completed
//!   newest   10..12 -> 1, 12..13 -> 2, 13..14 -> 1, 40..44 -> 3
//! ```
//!
//! A write that is durable (forced unit access) is in the backing file already. It is kept here too while older ones are, for what is stored
//! of those later, by a flush or a power cut, must not come back over it: [`Unflushed::not_forced`].

use std::collections::BTreeMap;
use std::ops::Range;

use elbow_disk::SECTOR_BYTES;
use elbow_ranges::{Piece, RangeMap};

/// What a write leaves on its sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Whole sectors.
    Bytes(Vec<u8>),
    /// So many sectors of zeros.
    Zeros(u64),
}

impl Content {
    pub(crate) fn sectors(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64 / SECTOR_BYTES,
            Content::Zeros(sectors) => *sectors,
        }
    }

    /// Some of its sectors, counted from its first.
    pub(crate) fn part(&self, of: Range<u64>) -> Content {
        match self {
            Content::Bytes(bytes) => Content::Bytes(bytes[byte(of.start)..byte(of.end)].to_vec()),
            Content::Zeros(_) => Content::Zeros(of.end - of.start),
        }
    }

    /// What it takes in memory.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u64,
            Content::Zeros(_) => 0,
        }
    }
}

fn byte(sectors: u64) -> usize {
    (sectors * SECTOR_BYTES) as usize
}

/// A write as it was completed.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) at: u64,
    pub(crate) content: Content,
    /// It is in the backing file already.
    pub(crate) durable: bool,
}

impl Write {
    pub(crate) fn range(&self) -> Range<u64> {
        self.at..self.at + self.content.sectors()
    }
}

/// Which write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Number(u64);

impl Piece for Number {
    fn slice(&self, _: u64, _: u64) -> Self {
        *self
    }
}

/// All writes since the last flush.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    writes: BTreeMap<u64, Write>,
    newest: RangeMap<Number>,
    /// As `newest`, of durable writes alone.
    forced: RangeMap<Number>,
    next: u64,
    bytes: u64,
}

impl Unflushed {
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Writes that a power cut may lose.
    pub(crate) fn at_risk(&self) -> usize {
        self.writes.values().filter(|write| !write.durable).count()
    }

    /// How many writes are kept.
    pub(crate) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of them with their numbers, the oldest first.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (u64, &Write)> {
        self.writes.iter().map(|(&number, write)| (number, write))
    }

    /// What no later durable write has taken of some sectors of the write with that number.
    pub(crate) fn not_forced(&self, number: u64, place: Range<u64>) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        let mut at = place.start;
        for (taken, Number(by)) in self.forced.overlapping(place.start, place.end) {
            if by < number {
                continue;
            }
            parts.push(at..taken.start);
            at = taken.end;
        }
        parts.push(at..place.end);
        parts.retain(|part| !part.is_empty());
        parts
    }

    pub(crate) fn add(&mut self, write: Write) {
        let place = write.range();
        self.newest.insert(place.start, place.end, Number(self.next));
        if write.durable {
            self.forced.insert(place.start, place.end, Number(self.next));
        }
        self.bytes += write.content.bytes();
        self.writes.insert(self.next, write);
        self.next += 1;
    }

    /// What was written last on some sectors, piece by piece; nothing where the backing file has the newest.
    pub(crate) fn within(&self, place: Range<u64>) -> impl Iterator<Item = (Range<u64>, Content)> {
        let pieces = self.newest.overlapping(place.start, place.end);
        pieces.map(|(piece, Number(number))| {
            let write = &self.writes[&number];
            let content = write.content.part(piece.start - write.at..piece.end - write.at);
            (piece, content)
        })
    }

    /// Forgets the oldest.
    pub(crate) fn forget_oldest(&mut self) {
        let Some((number, write)) = self.writes.pop_first() else {
            return;
        };
        for map in [&mut self.newest, &mut self.forced] {
            remove_own(map, Number(number), write.range());
        }
        self.bytes -= write.content.bytes();
    }
}

/// Removes the pieces of one write, where no newer one has taken them.
fn remove_own(map: &mut RangeMap<Number>, number: Number, place: Range<u64>) {
    let pieces = map.overlapping(place.start, place.end);
    let own: Vec<_> = pieces.filter(|&(_, of)| of == number).map(|(piece, _)| piece).collect();
    own.iter().for_each(|piece| map.remove(piece.start, piece.end));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, sectors: u64, byte: u8) -> Write {
        Write {
            at,
            content: Content::Bytes(vec![byte; (sectors * SECTOR_BYTES) as usize]),
            durable: false,
        }
    }

    fn first_bytes(unflushed: &Unflushed, place: Range<u64>) -> Vec<(Range<u64>, u8)> {
        let first = |content: Content| match content {
            Content::Bytes(bytes) => bytes[0],
            Content::Zeros(_) => 0,
        };
        unflushed
            .within(place)
            .map(|(piece, content)| (piece, first(content)))
            .collect()
    }

    #[test]
    fn the_newest_is_read_and_the_oldest_goes_first() {
        let mut unflushed = Unflushed::default();
        unflushed.add(write(10, 4, 1));
        unflushed.add(write(12, 1, 2));
        assert_eq!(first_bytes(&unflushed, 11..20), [(11..12, 1), (12..13, 2), (13..14, 1)]);
        assert_eq!(unflushed.bytes(), 5 * SECTOR_BYTES);
        assert_eq!(unflushed.writes().next().expect("one").1.range(), 10..14);
        unflushed.forget_oldest();
        assert_eq!(first_bytes(&unflushed, 0..20), [(12..13, 2)]);
        unflushed.forget_oldest();
        assert!(unflushed.is_empty() && unflushed.bytes() == 0 && unflushed.within(0..100).next().is_none());
    }
}
