//! `RangeSet` against the naive model: one truth value per point.
#![allow(clippy::unwrap_used)]

mod support;

use std::ops::Range;

use elbow_ranges::RangeSet;
use rand::Rng;
use rand::rngs::StdRng;
use support::{base, for_each_seed, range};

const POINTS: u64 = 48;

/// A set and its model, which holds the points from `base` on.
#[derive(Clone)]
struct Pair {
    base: u64,
    set: RangeSet,
    model: Vec<bool>,
}

impl Pair {
    fn new(base: u64) -> Self {
        Self {
            base,
            set: RangeSet::new(),
            model: vec![false; POINTS as usize],
        }
    }

    fn random(rng: &mut StdRng, base: u64) -> Self {
        let mut pair = Self::new(base);
        for _ in 0..rng.random_range(0..12) {
            pair.change(rng);
        }
        pair
    }

    fn change(&mut self, rng: &mut StdRng) {
        let (start, end) = range(rng, POINTS);
        let insert = rng.random();
        self.model[start as usize..end as usize].fill(insert);
        let (start, end) = (self.base + start, self.base + end);
        if insert {
            self.set.insert(start, end);
        } else {
            self.set.remove(start, end);
        }
    }

    fn check(&self) {
        assert_eq!(self.set.iter().collect::<Vec<_>>(), runs(self.base, &self.model));
    }
}

/// The runs of true points: what a set's ranges have to be, coalesced and in order.
fn runs(base: u64, model: &[bool]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for point in (0..)
        .zip(model)
        .filter(|(_, held)| **held)
        .map(|(index, _)| base + index)
    {
        match runs.last_mut() {
            Some(run) if run.end == point => run.end += 1,
            _ => runs.push(point..point + 1),
        }
    }
    runs
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
        let Pair { set, model, .. } = Pair::random(rng, base);
        let ranges = runs(base, &model);
        assert_eq!(set.len(), ranges.len());
        assert_eq!(set.is_empty(), ranges.is_empty());
        assert_eq!(set.total_bytes(), model.iter().filter(|held| **held).count() as u64);
        assert_eq!(
            set.span(),
            ranges.first().map(|first| first.start..ranges.last().unwrap().end)
        );
        assert_eq!(
            set.iter().rev().collect::<Vec<_>>(),
            ranges.iter().rev().cloned().collect::<Vec<_>>()
        );
        for point in 0..POINTS {
            let expected = ranges.iter().find(|range| range.contains(&(base + point))).cloned();
            assert_eq!(set.range_at(base + point), expected);
            assert_eq!(set.contains(base + point), model[point as usize]);
        }
        for length in 1..=POINTS {
            let fits = ranges.iter().find(|range| range.end - range.start >= length);
            assert_eq!(set.first_fit(length), fits.map(|range| range.start));
        }
        for _ in 0..40 {
            let (start, end) = range(rng, POINTS);
            let part = &model[start as usize..end as usize];
            assert_eq!(
                set.overlaps(base + start, base + end),
                part.contains(&true),
                "overlaps {start}..{end}"
            );
            assert_eq!(
                set.covers(base + start, base + end),
                !part.contains(&false),
                "covers {start}..{end}"
            );
            let free: Vec<bool> = part.iter().map(|held| !held).collect();
            let complement = set.complement(base + start..base + end);
            assert_eq!(complement.iter().collect::<Vec<_>>(), runs(base + start, &free));
        }
    });
}

#[test]
fn algebra_equals_the_model() {
    for_each_seed(|rng| {
        let base = base(rng, POINTS);
        let (a, b) = (Pair::random(rng, base), Pair::random(rng, base));
        let check = |set: RangeSet, of: fn(bool, bool) -> bool| {
            let model: Vec<bool> = a.model.iter().zip(&b.model).map(|(&a, &b)| of(a, b)).collect();
            assert_eq!(
                set.iter().collect::<Vec<_>>(),
                runs(base, &model),
                "of {:?} and {:?}",
                a.set,
                b.set
            );
        };
        check(a.set.union(&b.set), |a, b| a | b);
        check(a.set.intersection(&b.set), |a, b| a & b);
        check(a.set.difference(&b.set), |a, b| a & !b);
        let meet = a.model.iter().zip(&b.model).any(|(&a, &b)| a & b);
        assert_eq!(a.set.intersects(&b.set), meet, "{:?} and {:?}", a.set, b.set);
    });
}

#[test]
fn lists_in_any_order_are_coalesced() {
    for_each_seed(|rng| {
        let base = base(rng, POINTS);
        let mut model = vec![false; POINTS as usize];
        let mut list = Vec::new();
        for _ in 0..rng.random_range(0..10) {
            let (start, end) = range(rng, POINTS);
            model[start as usize..end as usize].fill(true);
            list.push((base + start, end - start));
        }
        let set = RangeSet::from_unsorted(list).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), runs(base, &model));
    });
}

#[test]
fn a_list_that_overflows_is_refused() {
    assert_eq!(RangeSet::from_unsorted([(0, 4), (u64::MAX - 2, 3)]), None);
    let last = RangeSet::from_unsorted([(u64::MAX - 2, 2)]).unwrap();
    assert_eq!(last.span(), Some(u64::MAX - 2..u64::MAX));
    assert_eq!(last.total_bytes(), 2);
}
