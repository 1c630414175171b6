//! Ranges with a value each.
//!
//! ```text
//!   insert(0, 8, A)      AAAAAAAA
//!   insert(3, 5, B)      AAABBAAA     the two ends of A are A.slice(0, 3) and A.slice(5, 8)
//!   remove(1, 4)         A...BAAA
//! ```
//!
//! Invariants: pieces are not empty and do not overlap. Pieces that touch stay two pieces, since their values need
//! not be mergeable; whoever owns the map can grow a piece in place ([`RangeMap::extend_piece`]). One change costs
//! `O(log n)` plus the pieces it removes.
//!
//! Not here: the set of covered points without values ([`RangeSet`]).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use crate::RangeSet;

/// A value that covers a range and can be cut like it.
pub trait Piece: Clone {
    /// The part for the points `[start, end)` counted from the start of the piece: `0 <= start < end <= length`.
    #[must_use]
    fn slice(&self, start: u64, end: u64) -> Self;
}

/// A value that is the same for every point.
impl Piece for () {
    fn slice(&self, _start: u64, _end: u64) -> Self {}
}

/// A map from disjoint half-open ranges of `u64` to values; what is inserted later overwrites.
///
/// ```
/// use elbow_ranges::{Piece, RangeMap};
///
/// #[derive(Clone, Debug, PartialEq)]
/// struct Text(&'static str);
///
/// impl Piece for Text {
///     fn slice(&self, start: u64, end: u64) -> Self {
///         Text(&self.0[start as usize..end as usize])
///     }
/// }
///
/// let mut file = RangeMap::new();
/// file.insert(10, 18, Text("ABCDEFGH"));
/// file.insert(13, 15, Text("xy"));
/// let pieces: Vec<_> = file.overlapping(12, 17).collect();
/// assert_eq!(pieces, [(12..13, Text("C")), (13..15, Text("xy")), (15..17, Text("FG"))]);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RangeMap<V> {
    /// By start.
    pieces: BTreeMap<u64, Held<V>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held<V> {
    end: u64,
    value: V,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self {
            pieces: BTreeMap::new(),
        }
    }
}

impl<V> RangeMap<V> {
    /// The empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is no piece.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Number of pieces.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Number of points that have a value. `O(n)`.
    #[must_use]
    pub fn covered_bytes(&self) -> u64 {
        self.iter().map(|(range, _)| range.end - range.start).sum()
    }

    /// Removes all pieces.
    pub fn clear(&mut self) {
        self.pieces.clear();
    }

    /// All pieces in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Range<u64>, &V)> {
        self.pieces.iter().map(|(&start, held)| (start..held.end, &held.value))
    }

    /// The piece that holds a point, whole.
    #[must_use]
    pub fn get(&self, point: u64) -> Option<(Range<u64>, &V)> {
        let (&start, held) = self.pieces.range(..=point).next_back()?;
        (point < held.end).then_some((start..held.end, &held.value))
    }

    /// The last piece.
    #[must_use]
    pub fn last(&self) -> Option<(Range<u64>, &V)> {
        self.iter().next_back()
    }

    /// The value of the piece that begins exactly at `start`, to be changed in place. Its length is not for the
    /// caller to change, except together with [`extend_piece`](Self::extend_piece).
    pub fn get_mut_at(&mut self, start: u64) -> Option<&mut V> {
        self.pieces.get_mut(&start).map(|held| &mut held.value)
    }

    /// The points that have a value.
    #[must_use]
    pub fn ranges(&self) -> RangeSet {
        self.iter().map(|(range, _)| range).collect()
    }

    /// The points of `[start, end)` that have no value.
    ///
    /// ```
    /// # use elbow_ranges::{RangeMap, RangeSet};
    /// let map = RangeMap::from_iter([(2..4, ()), (6..8, ())]);
    /// assert_eq!(map.gaps(0, 7), RangeSet::from_iter([0..2, 4..6]));
    /// ```
    #[must_use]
    pub fn gaps(&self, start: u64, end: u64) -> RangeSet {
        let mut gaps = RangeSet::new();
        let mut free = start;
        for (range, _) in self.whole_overlapping(start, end) {
            gaps.insert(free, range.start);
            free = range.end;
        }
        gaps.insert(free, end);
        gaps
    }

    /// The pieces that have a point in `[start, end)`, whole.
    pub fn whole_overlapping(&self, start: u64, end: u64) -> impl DoubleEndedIterator<Item = (Range<u64>, &V)> {
        let first = self
            .get(start)
            .filter(|_| start < end)
            .map_or(start, |(range, _)| range.start);
        self.pieces
            .range(first..end.max(first))
            .map(|(&start, held)| (start..held.end, &held.value))
    }
}

impl<V: Piece> RangeMap<V> {
    /// Gives all points of `[start, end)` a value, in place of what they had; nothing when the range is empty.
    pub fn insert(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        self.remove(start, end);
        self.pieces.insert(start, Held { end, value });
    }

    /// Takes the values of all points of `[start, end)` away; nothing when the range is empty.
    ///
    /// ```
    /// # use elbow_ranges::RangeMap;
    /// let mut map = RangeMap::from_iter([(0..10, ())]);
    /// map.remove(3, 5);
    /// assert_eq!(map.get(2), Some((0..3, &())));
    /// assert_eq!(map.get(3), None);
    /// assert_eq!(map.covered_bytes(), 8);
    /// ```
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let tail = self.part_after(end);
        self.cut_piece_before(start);
        while let Some((&inner, _)) = self.pieces.range(start..end).next() {
            self.pieces.remove(&inner);
        }
        if let Some(tail) = tail {
            self.pieces.insert(end, tail);
        }
    }

    /// Takes the values of all points from `end` on away.
    pub fn truncate(&mut self, end: u64) {
        self.cut_piece_before(end);
        self.pieces.split_off(&end);
    }

    /// The pieces that have a point in `[start, end)`, cut to it, in order.
    pub fn overlapping(&self, start: u64, end: u64) -> impl DoubleEndedIterator<Item = (Range<u64>, V)> {
        self.whole_overlapping(start, end).map(move |(range, value)| {
            let clipped = range.start.max(start)..range.end.min(end);
            if clipped == range {
                return (range, value.clone());
            }
            let part = value.slice(clipped.start - range.start, clipped.end - range.start);
            (clipped, part)
        })
    }

    /// Makes the piece that begins at `start` end at `new_end`, over whatever was there; its value is for the caller
    /// to grow ([`get_mut_at`](Self::get_mut_at)).
    ///
    /// ```
    /// # use elbow_ranges::RangeMap;
    /// let mut map = RangeMap::new();
    /// map.insert(0, 4, ());
    /// map.extend_piece(0, 9); // an append of 5 bytes
    /// assert_eq!(map.last(), Some((0..9, &())));
    /// ```
    ///
    /// # Panics
    /// When no piece begins at `start`, or it would become shorter: a mistake of the caller.
    pub fn extend_piece(&mut self, start: u64, new_end: u64) {
        let old_end = self
            .pieces
            .get(&start)
            .expect("a piece begins where the caller extends one")
            .end;
        assert!(
            old_end <= new_end,
            "piece {start}..{old_end} extended to the shorter end {new_end}"
        );
        self.remove(old_end, new_end);
        if let Some(held) = self.pieces.get_mut(&start) {
            held.end = new_end;
        }
    }

    /// What the piece around `point` has from `point` on, if it begins before.
    fn part_after(&self, point: u64) -> Option<Held<V>> {
        let (&start, held) = self.pieces.range(..point).next_back()?;
        (held.end > point).then(|| Held {
            end: held.end,
            value: held.value.slice(point - start, held.end - start),
        })
    }

    /// Ends the piece around `point` there, if it begins before.
    fn cut_piece_before(&mut self, point: u64) {
        if let Some((&start, held)) = self.pieces.range_mut(..point).next_back()
            && held.end > point
        {
            held.value = held.value.slice(0, point - start);
            held.end = point;
        }
    }
}

impl<V: Piece> FromIterator<(Range<u64>, V)> for RangeMap<V> {
    fn from_iter<I: IntoIterator<Item = (Range<u64>, V)>>(list: I) -> Self {
        let mut map = Self::new();
        list.into_iter()
            .for_each(|(range, value)| map.insert(range.start, range.end, value));
        map
    }
}

/// The pieces in order, each with its value.
impl<V> IntoIterator for RangeMap<V> {
    type Item = (Range<u64>, V);
    type IntoIter = IntoIter<V>;

    fn into_iter(self) -> IntoIter<V> {
        IntoIter(self.pieces.into_iter())
    }
}

/// The pieces of a [`RangeMap`], taken out of it.
pub struct IntoIter<V>(std::collections::btree_map::IntoIter<u64, Held<V>>);

impl<V> Iterator for IntoIter<V> {
    type Item = (Range<u64>, V);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(start, held)| (start..held.end, held.value))
    }
}

impl<V: fmt::Debug> fmt::Debug for RangeMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
