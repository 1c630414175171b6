//! `Strided` against a naive expansion: a set of points.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::ops::Range;

use elbow_ranges::{Dim, PatternError, RangeSet, Strided};
use rand::Rng;
use rand::rngs::StdRng;
use support::for_each_seed;

/// The points of a pattern as its definition says.
fn points(start: u64, dims: &[Dim], len: u64) -> BTreeSet<u64> {
    match dims.split_first() {
        None => (start..start + len).collect(),
        Some((dim, rest)) => (0..dim.count)
            .flat_map(|step| points(start + step * dim.stride, rest, len))
            .collect(),
    }
}

/// Ranges of points.
fn runs(points: &BTreeSet<u64>) -> Vec<Range<u64>> {
    points
        .iter()
        .map(|&point| point..point + 1)
        .collect::<RangeSet>()
        .iter()
        .collect()
}

fn check_one(start: u64, dims: &[Dim], len: u64) -> (Strided, BTreeSet<u64>) {
    let pattern = Strided::new(start, dims, len).unwrap();
    let points = points(start, dims, len);
    let ranges = runs(&points);
    let told = || format!("{pattern} of {start} + {dims:?} + {len}");
    assert_eq!(pattern.iter().collect::<Vec<_>>(), ranges, "{}", told());
    assert_eq!(
        pattern.bounds(),
        *points.first().unwrap()..points.last().unwrap() + 1,
        "{}",
        told()
    );
    let again: Vec<Dim> = pattern.dims().collect();
    assert_eq!(
        Strided::new(start, &again, pattern.piece_bytes()).unwrap(),
        pattern,
        "canonical: {}",
        told()
    );
    assert!(again.is_sorted_by(|outer, inner| outer.stride > inner.stride && inner.stride > pattern.piece_bytes()));
    let interleaves = {
        let mut inner = pattern.piece_bytes();
        again.iter().rev().any(|dim| {
            let across = inner > dim.stride;
            inner += (dim.count - 1) * dim.stride;
            across
        })
    };
    let (bytes, segments) = (points.len() as u64, ranges.len() as u64);
    if interleaves {
        assert!(
            pattern.total_bytes() >= bytes && pattern.segments() >= segments,
            "{}",
            told()
        );
    } else {
        assert_eq!(
            (pattern.total_bytes(), pattern.segments()),
            (bytes, segments),
            "{}",
            told()
        );
    }
    (pattern, points)
}

/// All patterns of up to two vectors in a universe of so many bytes.
fn small_patterns(universe: u64) -> Vec<(u64, Vec<Dim>, u64)> {
    let mut all = Vec::new();
    for start in 0..universe {
        for len in 1..=universe - start {
            let room = universe - start - len;
            all.push((start, vec![], len));
            for outer in vectors(room) {
                all.push((start, vec![outer], len));
                let left = room - (outer.count - 1) * outer.stride;
                all.extend(vectors(left).map(|inner| (start, vec![outer, inner], len)));
            }
        }
    }
    all
}

/// Vectors that reach no further.
fn vectors(room: u64) -> impl Iterator<Item = Dim> {
    (1..=room).flat_map(move |stride| (2..=room / stride + 1).map(move |count| Dim { count, stride }))
}

#[test]
fn all_small_patterns_equal_their_points() {
    for (start, dims, len) in small_patterns(18) {
        check_one(start, &dims, len);
    }
}

/// Canonical patterns of up to two vectors in 40 bytes, against each other at all distances. Each case takes one of them against an
/// eighth of all.
#[test]
fn all_pairs_of_small_patterns_overlap_as_their_points_do() {
    const UNIVERSE: u64 = 40;
    const STEP: usize = 8;
    let mut by_points = std::collections::HashMap::new();
    for (start, dims, len) in small_patterns(UNIVERSE) {
        if start == 0 && len <= 4 {
            let pattern = Strided::new(start, &dims, len).unwrap();
            let mask = pattern.iter().flatten().fold(0_u64, |mask, point| mask | 1 << point);
            by_points.insert(pattern, mask);
        }
    }
    let all: Vec<(Strided, u64)> = by_points.into_iter().collect();
    for_each_seed(|rng| {
        let (a, a_mask) = &all[rng.random_range(0..all.len())];
        // Other cases take the others.
        for (b, b_mask) in all.iter().skip(rng.random_range(0..STEP)).step_by(STEP) {
            for shift in 0..=UNIVERSE - b.bounds().end {
                let dims: Vec<Dim> = b.dims().collect();
                let b = Strided::new(shift, &dims, b.piece_bytes()).unwrap();
                let expected = a_mask & (b_mask << shift) != 0;
                assert_eq!(a.try_overlaps(&b), Some(expected), "{a} and {b}");
                assert_eq!(b.try_overlaps(a), Some(expected), "{b} and {a}");
            }
        }
    });
}

fn random_dims(rng: &mut StdRng, depth: usize, strides: &[u64]) -> Vec<Dim> {
    let mut dims = Vec::new();
    for _ in 0..depth {
        let stride = match rng.random_range(0..3) {
            0 => rng.random_range(0..200),
            _ => strides[rng.random_range(0..strides.len())],
        };
        dims.push(Dim {
            count: rng.random_range(1..8),
            stride,
        });
    }
    dims
}

#[test]
fn random_patterns_equal_their_points() {
    for_each_seed(|rng| {
        let strides: Vec<u64> = (0..3).map(|_| rng.random_range(1..1000)).collect();
        let mut random = || {
            let depth = rng.random_range(0..5);
            let dims = random_dims(rng, depth, &strides);
            check_one(rng.random_range(0..2000), &dims, rng.random_range(1..20))
        };
        let ((a, a_points), (b, b_points)) = (random(), random());
        let expected = !a_points.is_disjoint(&b_points);
        assert_eq!(a.try_overlaps(&b), Some(expected), "{a} and {b}");
        assert_eq!(b.try_overlaps(&a), Some(expected), "{b} and {a}");
        let (from, to) = (rng.random_range(0..4000), rng.random_range(0..4000));
        assert_eq!(
            a.overlaps_range(from..to),
            a_points.iter().any(|point| (from..to).contains(point)),
            "{a}"
        );
        let after = a_points.iter().find(|&&point| point >= from);
        assert_eq!(
            a.piece_after(from).map(|piece| piece.start.max(from)),
            after.copied(),
            "{a} after {from}"
        );
    });
}

#[test]
fn forms_of_one_pattern_are_one_value() {
    let of = |dims: &[(u64, u64)], len| {
        let dims: Vec<Dim> = dims.iter().map(|&(count, stride)| Dim { count, stride }).collect();
        Strided::new(7, &dims, len).unwrap()
    };
    let comb = of(&[(6, 10)], 4);
    assert_eq!(
        of(&[(3, 20), (2, 10)], 4),
        comb,
        "the outer vector goes on where the inner one ends"
    );
    assert_eq!(of(&[(2, 20), (4, 10)], 4), comb, "... and where it has not ended yet");
    assert_eq!(of(&[(2, 10), (3, 20)], 4), comb, "in any order");
    assert_eq!(of(&[(6, 10), (2, 2)], 2), comb, "pieces that touch");
    assert_eq!(of(&[(6, 10), (1, 99), (3, 0)], 4), comb, "vectors that repeat nothing");
    assert_eq!(of(&[(3, 10), (4, 10)], 4), comb, "the same stride twice");
    assert_ne!(of(&[(2, 30), (2, 10)], 4), comb, "a gap");
    assert_eq!(of(&[(6, 3)], 4), Strided::range(7..26).unwrap());
}

/// Arrays of records of 88 bytes, walked over in unrelated ways: their fields never meet, and all strides together say so.
#[test]
fn fields_of_records_never_meet() {
    let field = |start: u64, rows: u64, columns: u64| {
        let dims = [(900, rows), (800, columns), (7, 1)].map(|(count, records)| Dim {
            count,
            stride: records * 88,
        });
        Strided::new(start, &dims, 8).unwrap()
    };
    for (rows, columns) in [(100_003, 101), (99_991, 89), (1_000_003, 1_009)] {
        let (a, b) = (field(16, 100_019, 97), field(24, rows, columns));
        assert_eq!(
            (a.try_overlaps(&b), b.try_overlaps(&a)),
            (Some(false), Some(false)),
            "{a} and {b}"
        );
        let within = field(23, rows, columns);
        assert_eq!(within.try_overlaps(&a), a.try_overlaps(&within));
        assert_ne!(within.try_overlaps(&a), Some(false), "{a} and {within}");
    }
}

#[test]
fn what_cannot_be_held_is_refused() {
    let dim = |count, stride| Dim { count, stride };
    assert_eq!(Strided::new(0, &[], 0), Err(PatternError::Empty));
    assert_eq!(Strided::new(0, &[dim(0, 8)], 1), Err(PatternError::Empty));
    assert_eq!(Strided::new(u64::MAX, &[], 1), Err(PatternError::Overflow));
    assert_eq!(Strided::new(0, &[dim(2, u64::MAX)], 1), Err(PatternError::Overflow));
    assert_eq!(
        Strided::new(0, &[dim(u64::MAX, u64::MAX)], 1),
        Err(PatternError::Overflow)
    );
    assert_eq!(
        Strided::new(0, &[dim(u64::MAX, 3), dim(u64::MAX, 3)], 1),
        Err(PatternError::Overflow)
    );
    let deep: Vec<Dim> = (1..=17).map(|level| dim(2, 3 << (2 * level))).collect();
    assert_eq!(Strided::new(0, &deep, 1), Err(PatternError::TooDeep { depth: 17 }));
    assert!(Strided::new(0, &deep[..16], 1).is_ok());
    let tangled = Strided::new(0, &[dim(1 << 20, 1001), dim(1 << 20, 1000)], 1);
    assert!(matches!(tangled, Err(PatternError::Tangled { .. })), "{tangled:?}");
    let last = Strided::new(u64::MAX - 21, &[dim(3, 10)], 1).unwrap();
    assert_eq!(last.iter().last(), Some(u64::MAX - 1..u64::MAX));
}
