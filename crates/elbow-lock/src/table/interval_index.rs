//! Which locks lie where: an index of intervals (bounding boxes) that finds those that touch a range.
//!
//! ```text
//!   class 12 (4096..8191 bytes)   |==|  |==| |===|      |==|          each class sorted by start
//!   class 16 (64..128 KiB)           |==============|
//!                                          ^^^^^^^ query
//! ```
//!
//! Boxes are kept in classes by the power of two of their length, each sorted by start. A box of class `c` is shorter
//! than `2^(c+1)`, so those that touch `[s, e)` begin in `(s - 2^(c+1), e)`: one walk per class, which passes by at most
//! the boxes that begin within two of their own lengths before the query. Disjoint boxes of like length, the usual case,
//! cost `O(log n)` plus what is found; nothing is ever rebalanced or rebuilt. An interval tree would be `O(log n)` for
//! any mix of lengths too, but has to keep the maximum of each subtree right on every change; here there are at most 64
//! classes, in practice one or two.

use std::collections::BTreeMap;
use std::ops::Range;

/// Boxes with a key each.
#[derive(Debug, Default)]
pub(super) struct IntervalIndex {
    by_start: BTreeMap<Place, IndexedInterval>,
    /// Bit `c` is set when class `c` has a box.
    classes: u64,
}

/// In order of: class, start, and number, which tells boxes of the same place apart.
type Place = (u32, u64, u64);

#[derive(Debug)]
struct IndexedInterval {
    end: u64,
    key: usize,
}

impl IntervalIndex {
    /// Whether there is none.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Adds a box; `number` is unique among boxes.
    pub(super) fn insert(&mut self, bounds: &Range<u64>, number: u64, key: usize) {
        let class = class(bounds);
        self.classes |= 1 << class;
        let boxed = IndexedInterval { end: bounds.end, key };
        let before = self.by_start.insert((class, bounds.start, number), boxed);
        assert!(before.is_none(), "box {number} is there already");
    }

    /// Removes a box that was inserted with the same bounds and number.
    pub(super) fn remove(&mut self, bounds: &Range<u64>, number: u64) {
        let class = class(bounds);
        let found = self.by_start.remove(&(class, bounds.start, number));
        assert!(found.is_some(), "box {number} is not there");
        if self.by_start.range((class, 0, 0)..(class + 1, 0, 0)).next().is_none() {
            self.classes &= !(1 << class);
        }
    }

    /// The numbers and keys of the boxes that overlap `range`, of each class those that begin last first, and of those the
    /// largest numbers first.
    pub(super) fn overlapping(&self, range: Range<u64>) -> impl Iterator<Item = (u64, usize)> {
        let Range { start, end } = range;
        classes(self.classes)
            .flat_map(move |class| {
                let before = longest(class) - 1;
                let first = (class, start.saturating_sub(before), 0);
                self.by_start.range(first..(class, end, 0)).rev()
            })
            .filter_map(move |(&(_, _, number), boxed)| (boxed.end > start).then_some((number, boxed.key)))
    }
}

/// The power of two of a box's length.
fn class(bounds: &Range<u64>) -> u32 {
    assert!(bounds.start < bounds.end, "an empty box");
    (bounds.end - bounds.start).ilog2()
}

/// Length of the longest box of a class.
fn longest(class: u32) -> u64 {
    u64::MAX >> (63 - class)
}

/// The set bits.
fn classes(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let class = bits.trailing_zeros();
        (bits != 0).then(|| {
            bits &= bits - 1;
            class
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(boxes: &IntervalIndex, range: Range<u64>) -> Vec<usize> {
        let mut found: Vec<usize> = boxes.overlapping(range).map(|(_, key)| key).collect();
        found.sort_unstable();
        found
    }

    /// All pairs of boxes around the powers of two, against the definition of overlapping.
    #[test]
    fn finds_what_overlaps_and_nothing_else() {
        let mut points = vec![0, 1, 2, 3, 5, u64::MAX - 1, u64::MAX];
        points.extend(
            [7, 8, 9, 63]
                .iter()
                .flat_map(|&bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]),
        );
        points.sort_unstable();
        points.dedup();
        let ranges: Vec<Range<u64>> = points
            .iter()
            .flat_map(|&start| points.iter().map(move |&end| start..end))
            .filter(|range| range.start < range.end)
            .collect();
        let mut boxes = IntervalIndex::default();
        for (key, range) in ranges.iter().enumerate() {
            boxes.insert(range, key as u64, key);
        }
        for query in &ranges {
            let overlap = |range: &Range<u64>| range.start < query.end && query.start < range.end;
            let expected: Vec<usize> = (0..ranges.len()).filter(|&key| overlap(&ranges[key])).collect();
            assert_eq!(found(&boxes, query.clone()), expected, "{query:?}");
        }
        for (key, range) in ranges.iter().enumerate() {
            boxes.remove(range, key as u64);
            assert!(!found(&boxes, range.clone()).contains(&key));
        }
        assert!(boxes.is_empty());
        assert_eq!(boxes.classes, 0);
    }
}
