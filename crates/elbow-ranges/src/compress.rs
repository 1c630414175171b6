//! Finding regular patterns in a list of ranges.
//!
//! ```text
//!   ranges              #.#.#.....#.#.#.....#.#.#.....#...#
//!   first pass          [3 x 2  ] [3 x 2  ] [3 x 2  ] #   #       equal lengths at equal distances
//!   second pass         [3 x 10 of 3 x 2            ] #   #       equal patterns at equal distances
//! ```
//!
//! Each pass goes once over what the pass before has left, by start, with one open group per shape (so two combs between
//! each other's teeth are two groups), and ends when nothing could be grouped. A pass at least keeps the number of items and
//! costs `O(n)` (`O(n log n)` for the order of its result); there are at most as many as a pattern has vectors.
//!
//! Invariants: nothing is lost or added; what comes out takes at most as many bytes to encode as the plain list.
//!
//! Not here: the best description of all. Greedy groups find what loops over arrays make; a pattern with a hole in it
//! becomes two or more.

use std::collections::HashMap;
use std::ops::Range;

use crate::footprint::{List, encoded_bytes};
use crate::ranges::Run;
use crate::{Dim, Strided};

/// A pattern of fewer pieces than this is not shorter than its pieces.
const PIECES_MIN: u64 = 4;

/// The patterns that a list of ranges consists of, by start. Empty ranges are left out; the others may come in any order and
/// overlap.
///
/// ```
/// use elbow_ranges::{Dim, Strided, compress};
///
/// let rows = (0..50).flat_map(|z| (0..50).map(move |y| z * 40_000 + y * 400));
/// let patterns = compress(rows.map(|start| start..start + 200));
/// let block = Strided::new(0, &[Dim { count: 50, stride: 40_000 }, Dim { count: 50, stride: 400 }], 200)?;
/// assert_eq!(patterns, [block]);
/// # Ok::<(), elbow_ranges::PatternError>(())
/// ```
#[must_use]
pub fn compress(list: impl IntoIterator<Item = Range<u64>>) -> Vec<Strided> {
    let List { runs, mut patterns } = find(coalesce(
        list.into_iter()
            .map(|Range { start, end }| Run { start, end })
            .collect(),
    ));
    patterns.extend(runs.iter().filter_map(|run| Strided::range(run.start..run.end).ok()));
    patterns.sort_unstable();
    patterns
}

/// Sorts runs, joins those that touch or overlap and leaves out empty ones.
pub(crate) fn coalesce(mut runs: Vec<Run>) -> Vec<Run> {
    runs.retain(|run| run.start < run.end);
    if !runs.is_sorted() {
        runs.sort_unstable();
    }
    runs.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    runs
}

/// The patterns in coalesced runs, and the runs that are in none.
pub(crate) fn find(runs: Vec<Run>) -> List {
    let mut shapes = Shapes::default();
    let mut items: Vec<Item> = runs
        .iter()
        .map(|run| Item {
            start: run.start,
            shape: shapes.piece(run.end - run.start),
        })
        .collect();
    for _ in 0..Strided::DEPTH_MAX {
        let before = items.len();
        items = group(&items, &mut shapes);
        if items.len() == before {
            break;
        }
    }
    let found = shapes.build(&items);
    let plain = List {
        runs,
        patterns: Vec::new(),
    };
    if found.patterns.is_empty() || encoded_bytes(&found) > encoded_bytes(&plain) {
        plain
    } else {
        found
    }
}

/// Something of a shape, at its place.
#[derive(Clone, Copy, Debug)]
struct Item {
    start: u64,
    shape: usize,
}

/// Items of one shape at equal distances so far.
#[derive(Clone, Copy)]
struct Group {
    first: u64,
    last: u64,
    stride: u64,
    count: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Shape {
    /// Innermost first.
    dims: Vec<Dim>,
    len: u64,
}

/// All shapes seen, by number.
#[derive(Default)]
struct Shapes {
    all: Vec<Shape>,
    numbers: HashMap<Shape, usize>,
    /// Of the piece asked for last; lists tend to have few lengths.
    latest: Option<(u64, usize)>,
}

impl Shapes {
    fn number(&mut self, shape: Shape) -> usize {
        let Self { all, numbers, .. } = self;
        *numbers.entry(shape).or_insert_with_key(|shape| {
            all.push(shape.clone());
            all.len() - 1
        })
    }

    fn piece(&mut self, len: u64) -> usize {
        if let Some((_, number)) = self.latest.filter(|(of, _)| *of == len) {
            return number;
        }
        let number = self.number(Shape { dims: Vec::new(), len });
        self.latest = Some((len, number));
        number
    }

    /// A group of a shape is an item of another shape.
    fn item(&mut self, shape: usize, group: Group) -> Item {
        let Group {
            first: start,
            stride,
            count,
            ..
        } = group;
        if count == 1 {
            return Item { start, shape };
        }
        let mut grouped = self.all[shape].clone();
        grouped.dims.push(Dim { count, stride });
        Item {
            start,
            shape: self.number(grouped),
        }
    }

    fn build(&self, items: &[Item]) -> List {
        let mut list = List::default();
        for item in items {
            let Shape { dims, len } = &self.all[item.shape];
            let pieces: u64 = dims.iter().map(|dim| dim.count).product();
            match Strided::new(item.start, dims, *len) {
                Ok(pattern) if pieces >= PIECES_MIN => list.patterns.push(pattern),
                _ => expand(item.start, dims, *len, &mut list.runs), // as many as there were in the input
            }
        }
        list.patterns.sort_unstable();
        list.runs = coalesce(list.runs);
        list
    }
}

fn expand(start: u64, dims: &[Dim], len: u64, runs: &mut Vec<Run>) {
    match dims.split_last() {
        None => runs.push(Run {
            start,
            end: start + len,
        }),
        Some((outer, inner)) => (0..outer.count).for_each(|step| expand(start + step * outer.stride, inner, len, runs)),
    }
}

/// One pass. `items`: by start.
fn group(items: &[Item], shapes: &mut Shapes) -> Vec<Item> {
    let mut open: Vec<Option<Group>> = vec![None; shapes.all.len()];
    let mut grouped = Vec::new();
    for &Item { start, shape } in items {
        let (done, next) = match open[shape] {
            None => (None, Group::of(start)),
            Some(group) => group.then(start),
        };
        grouped.extend(done.map(|done| shapes.item(shape, done)));
        open[shape] = Some(next);
    }
    let left = open
        .into_iter()
        .enumerate()
        .filter_map(|(shape, group)| Some((shape, group?)));
    grouped.extend(left.map(|(shape, group)| shapes.item(shape, group)));
    grouped.sort_unstable_by_key(|item| item.start);
    grouped
}

impl Group {
    fn of(start: u64) -> Self {
        Self {
            first: start,
            last: start,
            stride: 0,
            count: 1,
        }
    }

    /// What is done when an item follows, if anything, and what is open then.
    fn then(self, start: u64) -> (Option<Self>, Self) {
        let distance = start - self.last;
        if self.count == 1 || distance == self.stride {
            return (
                None,
                Self {
                    last: start,
                    stride: distance,
                    count: self.count + 1,
                    ..self
                },
            );
        }
        if self.count == 2 && distance < self.stride {
            // The nearer one belongs to the inner loop: the first stays alone.
            let nearer = Self {
                first: self.last,
                last: start,
                stride: distance,
                count: 2,
            };
            return (Some(Self::of(self.first)), nearer);
        }
        (Some(self), Self::of(start))
    }
}
