//! A set of points, kept as ranges.
//!
//! ```text
//!   insert(2, 5), insert(9, 12):   ..###....###...
//!   insert(5, 9) joins them:       ..##########...
//! ```
//!
//! Invariants: ranges are not empty, do not overlap and do not touch (touching ranges are one range), so that
//! equal sets are equal values. Kept in a B-tree by start: changing one range costs `O(log n)` plus the ranges it
//! swallows, the algebra of two sets costs `O(n + m)`.
//!
//! Not here: values per range ([`RangeMap`](crate::RangeMap)).

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::{Bound, Range};

/// A set of `u64` points as sorted, disjoint, coalesced half-open ranges.
///
/// ```
/// use elbow_ranges::RangeSet;
///
/// let mut dirty = RangeSet::new();
/// dirty.insert(0, 10);
/// dirty.insert(20, 30);
/// dirty.insert(10, 12); // touches the first range and becomes part of it
/// dirty.remove(4, 6);
/// assert_eq!(dirty.iter().collect::<Vec<_>>(), [0..4, 6..12, 20..30]);
/// assert_eq!(dirty.total_bytes(), 20);
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct RangeSet {
    /// start -> end
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ranges: BTreeMap::new(),
        }
    }

    /// The set that a list of `(offset, length)` covers, in any order, overlapping or not; `None` when an end lies
    /// beyond `u64::MAX`.
    ///
    /// ```
    /// use elbow_ranges::RangeSet;
    ///
    /// let set = RangeSet::from_unsorted([(8, 4), (0, 4), (4, 2), (5, 1)]).unwrap();
    /// assert_eq!(set.iter().collect::<Vec<_>>(), [0..6, 8..12]);
    /// assert_eq!(RangeSet::from_unsorted([(u64::MAX, 1)]), None);
    /// ```
    #[must_use]
    pub fn from_unsorted(list: impl IntoIterator<Item = (u64, u64)>) -> Option<Self> {
        list.into_iter()
            .map(|(offset, length)| Some(offset..offset.checked_add(length)?))
            .collect()
    }

    /// Whether the set holds no point.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges (not of points).
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Number of points in the set.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// The smallest range that holds the whole set.
    #[must_use]
    pub fn span(&self) -> Option<Range<u64>> {
        let (&start, _) = self.ranges.first_key_value()?;
        let (_, &end) = self.ranges.last_key_value()?;
        Some(start..end)
    }

    /// All ranges in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.ranges.iter())
    }

    /// Adds all points of `[start, end)`; nothing when it is empty.
    pub fn insert(&mut self, mut start: u64, mut end: u64) {
        if start >= end {
            return;
        }
        if let Some((&left, &left_end)) = self.ranges.range(..start).next_back()
            && left_end >= start
        {
            start = left;
            end = end.max(left_end);
        }
        if let Some((_, &right_end)) = self.ranges.range(start..=end).next_back() {
            end = end.max(right_end);
        }
        while let Some((&inner, _)) = self.ranges.range(start..=end).next() {
            self.ranges.remove(&inner);
        }
        self.ranges.insert(start, end);
    }

    /// Takes all points of `[start, end)` out; nothing when it is empty.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let last_end = self
            .ranges
            .range(..end)
            .next_back()
            .map_or(end, |(_, &last_end)| last_end);
        if let Some((_, left_end)) = self.ranges.range_mut(..start).next_back() {
            *left_end = (*left_end).min(start);
        }
        while let Some((&inner, _)) = self.ranges.range(start..end).next() {
            self.ranges.remove(&inner);
        }
        if last_end > end {
            self.ranges.insert(end, last_end);
        }
    }

    /// Whether a point is in the set.
    #[must_use]
    pub fn contains(&self, point: u64) -> bool {
        self.range_at(point).is_some()
    }

    /// The range of the set that holds a point.
    #[must_use]
    pub fn range_at(&self, point: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ranges.range(..=point).next_back()?;
        (point < end).then_some(start..end)
    }

    /// Where the next range begins after a point.
    ///
    /// ```
    /// # use elbow_ranges::RangeSet;
    /// let set = RangeSet::from_iter([0..4, 8..12]);
    /// assert_eq!((set.next_start(0), set.next_start(7), set.next_start(8)), (Some(8), Some(8), None));
    /// ```
    #[must_use]
    pub fn next_start(&self, point: u64) -> Option<u64> {
        let after = (Bound::Excluded(point), Bound::Unbounded);
        self.ranges.range(after).next().map(|(&start, _)| start)
    }

    /// Whether every point of `[start, end)` is in the set.
    #[must_use]
    pub fn covers(&self, start: u64, end: u64) -> bool {
        start >= end || self.range_at(start).is_some_and(|range| range.end >= end)
    }

    /// Whether any point of `[start, end)` is in the set.
    ///
    /// ```
    /// # use elbow_ranges::RangeSet;
    /// let set = RangeSet::from_iter([0..4, 8..12]);
    /// assert!(set.overlaps(3, 8) && !set.overlaps(4, 8));
    /// assert!(set.covers(8, 12) && !set.covers(3, 8));
    /// ```
    #[must_use]
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end
            && self
                .ranges
                .range(..end)
                .next_back()
                .is_some_and(|(_, &last_end)| last_end > start)
    }

    /// Whether both sets hold some point. `O(k log n)` for the `k` ranges of the smaller set.
    ///
    /// ```
    /// # use elbow_ranges::RangeSet;
    /// let set = RangeSet::from_iter([0..4, 8..12]);
    /// assert!(set.intersects(&RangeSet::from_iter([6..9])));
    /// assert!(!set.intersects(&RangeSet::from_iter([4..8])));
    /// ```
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        let (few, many) = if self.len() <= other.len() {
            (self, other)
        } else {
            (other, self)
        };
        few.iter().any(|range| many.overlaps(range.start, range.end))
    }

    /// All points of either set.
    ///
    /// ```
    /// use elbow_ranges::RangeSet;
    ///
    /// let (a, b) = (RangeSet::from_iter([0..4, 8..12]), RangeSet::from_iter([2..9]));
    /// assert_eq!(a.union(&b), RangeSet::from_iter([0..12]));
    /// assert_eq!(a.intersection(&b), RangeSet::from_iter([2..4, 8..9]));
    /// assert_eq!(a.difference(&b), RangeSet::from_iter([0..2, 9..12]));
    /// assert_eq!(a.complement(0..20), RangeSet::from_iter([4..8, 12..20]));
    /// ```
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (mut union, smaller) = if self.len() >= other.len() {
            (self.clone(), other)
        } else {
            (other.clone(), self)
        };
        smaller.iter().for_each(|range| union.insert(range.start, range.end));
        union
    }

    /// All points of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut ranges = BTreeMap::new();
        let (mut ours, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            let (start, end) = (a.start.max(b.start), a.end.min(b.end));
            if start < end {
                ranges.insert(start, end);
            }
            if a.end < b.end {
                ours.next()
            } else {
                theirs.next()
            };
        }
        Self { ranges }
    }

    /// The points of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        match self.span() {
            Some(span) => self.intersection(&other.complement(span)),
            None => Self::new(),
        }
    }

    /// The points of a range that are not in the set.
    #[must_use]
    pub fn complement(&self, within: Range<u64>) -> Self {
        let mut ranges = BTreeMap::new();
        let mut free = within.start;
        for range in self
            .iter_from(within.start)
            .take_while(|range| range.start < within.end)
        {
            if free < range.start {
                ranges.insert(free, range.start);
            }
            free = range.end;
        }
        if free < within.end {
            ranges.insert(free, within.end);
        }
        Self { ranges }
    }

    /// Start of the first range that has room for `length` points. `O(n)`.
    ///
    /// ```
    /// use elbow_ranges::RangeSet;
    ///
    /// let free = RangeSet::from_iter([0..4, 10..20]);
    /// assert_eq!(free.first_fit(5), Some(10));
    /// assert_eq!(free.first_fit(11), None);
    /// ```
    #[must_use]
    pub fn first_fit(&self, length: u64) -> Option<u64> {
        self.iter()
            .find(|range| range.end - range.start >= length)
            .map(|range| range.start)
    }

    /// The ranges that hold or follow a point, whole.
    fn iter_from(&self, point: u64) -> impl Iterator<Item = Range<u64>> {
        let first = self.range_at(point).map_or(point, |range| range.start);
        self.ranges.range(first..).map(|(&start, &end)| start..end)
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(list: I) -> Self {
        let mut set = Self::new();
        set.extend(list);
        set
    }
}

impl Extend<Range<u64>> for RangeSet {
    fn extend<I: IntoIterator<Item = Range<u64>>>(&mut self, list: I) {
        list.into_iter().for_each(|range| self.insert(range.start, range.end));
    }
}

impl<'a> IntoIterator for &'a RangeSet {
    type Item = Range<u64>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

impl fmt::Debug for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self).finish()
    }
}

/// The ranges of a [`RangeSet`] in order.
#[derive(Clone, Debug)]
pub struct Iter<'a>(btree_map::Iter<'a, u64, u64>);

impl Iterator for Iter<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        self.0.next().map(|(&start, &end)| start..end)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Range<u64>> {
        self.0.next_back().map(|(&start, &end)| start..end)
    }
}

impl ExactSizeIterator for Iter<'_> {}
