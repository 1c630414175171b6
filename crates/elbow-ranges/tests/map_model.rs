//! `RangeMap` against the naive model: per point, which insertion gave it its value and where in that it lies.
#![allow(clippy::unwrap_used)]

mod support;

use std::ops::Range;

use elbow_ranges::{Piece, RangeMap};
use rand::Rng;
use rand::rngs::StdRng;
use support::{base, for_each_seed, range};

const POINTS: u64 = 48;

/// A part of what was inserted as number `id`: the points `[from, to)` of it.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    id: u32,
    from: u64,
    to: u64,
}

impl Piece for Part {
    fn slice(&self, start: u64, end: u64) -> Self {
        assert!(
            start < end && self.from + end <= self.to,
            "slice {start}..{end} of {self:?}"
        );
        Self {
            id: self.id,
            from: self.from + start,
            to: self.from + end,
        }
    }
}

struct Pair {
    base: u64,
    map: RangeMap<Part>,
    /// Per point: insertion and place in it.
    model: Vec<Option<(u32, u64)>>,
    inserted: u32,
}

impl Pair {
    fn new(base: u64) -> Self {
        Self {
            base,
            map: RangeMap::new(),
            model: vec![None; POINTS as usize],
            inserted: 0,
        }
    }

    fn change(&mut self, rng: &mut StdRng) {
        match rng.random_range(0..10) {
            0..5 => self.insert(range(rng, POINTS)),
            5..8 => self.remove(range(rng, POINTS)),
            8 => self.truncate(rng.random_range(0..=POINTS)),
            _ => self.extend(rng),
        }
    }

    fn insert(&mut self, (start, end): (u64, u64)) {
        self.inserted += 1;
        for point in start..end {
            self.model[point as usize] = Some((self.inserted, point - start));
        }
        let part = Part {
            id: self.inserted,
            from: 0,
            to: end - start,
        };
        self.map.insert(self.base + start, self.base + end, part);
    }

    fn remove(&mut self, (start, end): (u64, u64)) {
        self.model[start as usize..end as usize].fill(None);
        self.map.remove(self.base + start, self.base + end);
    }

    fn truncate(&mut self, end: u64) {
        self.model[end as usize..].fill(None);
        self.map.truncate(self.base + end);
    }

    /// Grows a random piece in place, as an owner does that appends to it.
    fn extend(&mut self, rng: &mut StdRng) {
        if self.map.is_empty() {
            return;
        }
        let (old, part) = self.map.iter().nth(rng.random_range(0..self.map.len())).unwrap();
        let (id, to) = (part.id, part.to);
        let new_end = rng.random_range(old.end..=self.base + POINTS);
        for point in old.end..new_end {
            self.model[(point - self.base) as usize] = Some((id, to + (point - old.end)));
        }
        self.map.extend_piece(old.start, new_end);
        self.map.get_mut_at(old.start).unwrap().to += new_end - old.end;
    }

    fn check(&self) {
        let pieces: Vec<(Range<u64>, Part)> = self.map.iter().map(|(range, part)| (range, part.clone())).collect();
        self.check_pieces(&pieces, 0, POINTS);
        assert_eq!(self.map.len(), pieces.len());
        assert_eq!(self.map.is_empty(), pieces.is_empty());
        assert_eq!(self.map.covered_bytes(), self.model.iter().flatten().count() as u64);
        assert_eq!(
            self.map.last().map(|(range, _)| range),
            pieces.last().map(|(range, _)| range.clone())
        );
        assert_eq!(self.map.clone().into_iter().collect::<Vec<_>>(), pieces);
    }

    /// Checks that pieces are ordered, disjoint and whole, and say of `[start, end)` what the model says.
    fn check_pieces(&self, pieces: &[(Range<u64>, Part)], start: u64, end: u64) {
        let mut found = vec![None; (end - start) as usize];
        let mut before = self.base + start;
        for (range, part) in pieces {
            assert!(before <= range.start && range.start < range.end, "{pieces:?}");
            assert_eq!(part.to - part.from, range.end - range.start, "{pieces:?}");
            before = range.end;
            for point in range.clone() {
                found[(point - self.base - start) as usize] = Some((part.id, part.from + (point - range.start)));
            }
        }
        assert_eq!(found, self.model[start as usize..end as usize]);
    }
}

#[test]
fn changes_equal_the_model() {
    for_each_seed(|rng| {
        let mut pair = Pair::new(base(rng, POINTS));
        for _ in 0..60 {
            pair.change(rng);
            pair.check();
        }
    });
}

#[test]
fn questions_equal_the_model() {
    for_each_seed(|rng| {
        let base = base(rng, POINTS);
        let mut pair = Pair::new(base);
        for _ in 0..rng.random_range(0..12) {
            pair.change(rng);
        }
        for _ in 0..40 {
            let (start, end) = range(rng, POINTS);
            let pieces: Vec<_> = pair.map.overlapping(base + start, base + end).collect();
            pair.check_pieces(&pieces, start, end);
            let whole = pair.map.whole_overlapping(base + start, base + end).count();
            assert_eq!(whole, pieces.len());
            let gaps = pair.map.gaps(base + start, base + end);
            for point in start..end {
                assert_eq!(gaps.contains(base + point), pair.model[point as usize].is_none());
            }
            assert_eq!(
                gaps.difference(&std::iter::once(base + start..base + end).collect())
                    .len(),
                0
            );
        }
        for point in 0..POINTS {
            let found = pair.map.get(base + point).map(|(range, part)| {
                assert!(range.contains(&(base + point)));
                (part.id, part.from + (base + point - range.start))
            });
            assert_eq!(found, pair.model[point as usize]);
            assert_eq!(pair.map.ranges().contains(base + point), found.is_some());
        }
    });
}

#[test]
fn pieces_that_touch_stay_apart() {
    let mut map = RangeMap::new();
    map.insert(0, 4, ());
    map.insert(4, 8, ());
    assert_eq!(map.len(), 2);
    assert_eq!(map.ranges().len(), 1);
}

#[test]
#[should_panic(expected = "extended to the shorter end")]
fn a_piece_cannot_be_extended_backwards() {
    let mut map = RangeMap::new();
    map.insert(0, 4, ());
    map.extend_piece(0, 3);
}
