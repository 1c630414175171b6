//! The newest logical image: which record has each logical sector, and which places are free.
//!
//! ```text
//!   logical   |--- A ---|-- C --|--- B ---|        pieces of the map, each of a record
//!   places    A A A . C C . . B B B d d . h h      . free   d superseded since the last flush   h held: free for moving alone
//! ```
//!
//! Each sector behind the headers belongs to a record that a piece names, or is superseded, or free, or held, and never two of these. A superseded place
//! becomes free when what superseded it is durable ([`Image::durable`]).

use std::collections::BTreeMap;
use std::ops::Range;

use elbow_ranges::{Piece, RangeMap, RangeSet};

use super::planted::{Bug, has};

/// A piece of the image: the first sector of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPlace(pub(super) u64);

impl Piece for RecordPlace {
    fn slice(&self, _start: u64, _end: u64) -> Self {
        *self
    }
}

/// A record of which some piece is the newest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) logical: Range<u64>,
    /// Sectors of its place.
    pub(super) sectors: u64,
    pub(super) payload_bytes: u32,
    /// Logical sectors of which it is the newest.
    pub(super) live: u64,
}

impl Record {
    pub(super) fn new(logical: Range<u64>, sectors: u64, payload_bytes: u32) -> Record {
        let live = 0;
        Record {
            logical,
            sectors,
            payload_bytes,
            live,
        }
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Image {
    pieces: RangeMap<RecordPlace>,
    /// By the first sector of the place.
    records: BTreeMap<u64, Record>,
    superseded: RangeSet,
    free: RangeSet,
    /// Free, and kept for moving records: given to no write.
    held: RangeSet,
    /// Sectors that are of no place.
    unused: RangeSet,
}

impl Image {
    /// Nothing is written; these places are free, but for the first sector behind each border: what is free on both sides then is two ranges, and no
    /// record crosses.
    pub(super) fn new(places: Range<u64>, borders: &[u64]) -> Image {
        let unused: RangeSet = borders.iter().map(|&border| border..border + 1).collect();
        let places: RangeSet = std::iter::once(places).collect();
        Image {
            pieces: RangeMap::new(),
            records: BTreeMap::new(),
            superseded: RangeSet::new(),
            free: places.difference(&unused),
            held: RangeSet::new(),
            unused,
        }
    }

    /// A record that is newer than all others lies at a place.
    pub(super) fn add(&mut self, at: u64, record: Record) {
        let Range { start, end } = record.logical;
        self.free.remove(at, at + record.sectors);
        let older: Vec<_> = self.pieces.overlapping(start, end).collect();
        for (range, RecordPlace(older)) in older {
            self.supersede(older, range.end - range.start);
        }
        self.pieces.insert(start, end, RecordPlace(at));
        let live = end - start;
        self.records.insert(at, Record { live, ..record });
    }

    fn supersede(&mut self, at: u64, sectors: u64) {
        let record = self.records.get_mut(&at).expect("a piece's record");
        record.live -= sectors;
        if record.live == 0 {
            let end = at + record.sectors;
            self.records.remove(&at);
            let dead = if has(Bug::EarlyReuse) {
                &mut self.free
            } else {
                &mut self.superseded
            };
            dead.insert(at, end);
        }
    }

    /// A record, or one that says the same of a part of it, lies at another place now; it is as old as before.
    pub(super) fn relocate(&mut self, from: u64, to: u64, record: Record) {
        let pieces: Vec<_> = self.live_pieces(from).collect();
        self.free.remove(to, to + record.sectors);
        let mut live = 0;
        for piece in pieces {
            let (start, end) = (piece.start.max(record.logical.start), piece.end.min(record.logical.end));
            if start < end {
                self.pieces.insert(start, end, RecordPlace(to));
                live += end - start;
            }
        }
        self.records.insert(to, Record { live, ..record });
        self.supersede(from, live);
    }

    /// Where a record is the newest.
    pub(super) fn live_pieces(&self, at: u64) -> impl DoubleEndedIterator<Item = Range<u64>> {
        let pieces = self.pieces(&self.records[&at].logical);
        pieces.filter(move |&(_, record)| record == at).map(|(range, _)| range)
    }

    /// Keeps free places for moving alone.
    pub(super) fn hold(&mut self, places: &Range<u64>) {
        self.free.remove(places.start, places.end);
        self.held.insert(places.start, places.end);
    }

    /// Gives them back.
    pub(super) fn release(&mut self, places: &Range<u64>) {
        self.held.remove(places.start, places.end);
        self.free.insert(places.start, places.end);
    }

    /// The places that are next to each other: those of each device.
    pub(super) fn segments(&self, places: &Range<u64>) -> Vec<Range<u64>> {
        let places: RangeSet = std::iter::once(places.clone()).collect();
        places.difference(&self.unused).iter().collect()
    }

    /// The first record in places, or the last.
    pub(super) fn next_record(&self, places: Range<u64>, is_last: bool) -> Option<u64> {
        let mut records = self.records.range(places);
        let next = if is_last { records.next_back() } else { records.next() };
        next.map(|(&at, _)| at)
    }

    /// All that was added is durable.
    pub(super) fn durable(&mut self) {
        let superseded = std::mem::take(&mut self.superseded);
        self.free.extend(superseded.difference(&self.unused).iter());
    }

    pub(super) fn free(&self) -> &RangeSet {
        &self.free
    }

    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    pub(super) fn record(&self, at: u64) -> &Record {
        &self.records[&at]
    }

    /// The pieces of a part of the image, with the first sectors of their records.
    pub(super) fn pieces(&self, logical: &Range<u64>) -> impl DoubleEndedIterator<Item = (Range<u64>, u64)> {
        let pieces = self.pieces.overlapping(logical.start, logical.end);
        pieces.map(|(range, RecordPlace(at))| (range, at))
    }

    /// The whole piece that holds a logical sector.
    pub(super) fn piece_at(&self, logical: u64) -> Option<(Range<u64>, u64)> {
        self.pieces.get(logical).map(|(range, &RecordPlace(at))| (range, at))
    }

    /// The end of the last piece.
    pub(super) fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |(range, _)| range.end)
    }

    /// Whether any of these sectors may be other than zeros.
    pub(super) fn has_data(&self, logical: &Range<u64>) -> bool {
        self.pieces(logical).any(|(_, at)| !self.is_zeros(at))
    }

    /// A range, and what lies next to it and is zeros by a record.
    pub(super) fn with_zeros_around(&self, logical: &Range<u64>) -> Range<u64> {
        let zeros = |sector: Option<u64>| {
            let piece = sector.and_then(|sector| self.piece_at(sector));
            piece.filter(|&(_, at)| self.is_zeros(at)).map(|(range, _)| range)
        };
        let before = zeros(logical.start.checked_sub(1)).map_or(logical.start, |range| range.start);
        let after = zeros(Some(logical.end)).map_or(logical.end, |range| range.end);
        before..after
    }

    /// Whether all of these sectors are zeros by a record.
    pub(super) fn is_zeros_in(&self, logical: &Range<u64>) -> bool {
        let zeros = self.pieces(logical).filter(|&(_, at)| self.is_zeros(at));
        let sectors: u64 = zeros.map(|(range, _)| range.end - range.start).sum();
        sectors == logical.end - logical.start
    }

    fn is_zeros(&self, at: u64) -> bool {
        self.records[&at].payload_bytes == 0
    }

    /// The place of so many sectors in which the fewest are of records; it lies within `places`. Superseded sectors
    /// are no way out.
    pub(super) fn least_taken(&self, sectors: u64, places: &Range<u64>) -> Option<Range<u64>> {
        let ends = self.records.iter().map(|(&at, record)| at + record.sectors);
        let starts = ends.chain(self.free.iter().map(|range| range.start));
        let windows = starts
            .map(|start| start..start + sectors)
            .filter(|window| window.end <= places.end && !self.superseded.overlaps(window.start, window.end))
            .filter(|window| !self.unused.overlaps(window.start, window.end))
            .filter(|window| !self.held.overlaps(window.start, window.end));
        windows.min_by_key(|window| self.records_in(window).map(|at| self.records[&at].sectors).sum::<u64>())
    }

    /// The first sectors of the records that have a sector in a place.
    pub(super) fn records_in(&self, place: &Range<u64>) -> impl Iterator<Item = u64> {
        let before = self.records.range(..place.start).next_back();
        let before = before.filter(|(at, record)| *at + record.sectors > place.start);
        before
            .into_iter()
            .chain(self.records.range(place.clone()))
            .map(|(&at, _)| at)
    }
}
