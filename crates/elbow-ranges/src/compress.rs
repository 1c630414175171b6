//! Finding regular patterns in a list of ranges.
//!
//! ```text
//!   ranges              #.#.#.....#.#.#.....#.#.#.....#...#
//!   first pass          [3 x 2  ] [3 x 2  ] [3 x 2  ] #   #       equal lengths at equal distances
//!   second pass         [3 x 10 of 3 x 2            ] #   #       equal patterns at equal distances
//! ```
//!
//! A pattern in the list counts as found already. Each pass goes once over what the pass before has left, by start, with
//! one open group per shape (so two combs between each other's teeth are two groups); the passes end when nothing could be
//! grouped. A pass costs `O(n)`, and `O(n log n)` for the order of its result; there are at most as many as a pattern can
//! have vectors, and each is shorter than the one before.
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
    let runs = list
        .into_iter()
        .map(|Range { start, end }| Run { start, end })
        .collect();
    let List { runs, mut patterns } = find(List {
        runs,
        patterns: Vec::new(),
    });
    patterns.extend(runs.iter().filter_map(|run| Strided::range(run.start..run.end).ok()));
    patterns.sort_unstable();
    patterns
}

/// The patterns in a list, and what is in none. The list may be in any order and may overlap; what comes out is in order.
pub(crate) fn find(list: List) -> List {
    let plain = list.in_order();
    let mut shapes = Shapes::default();
    let runs = plain.runs.iter().map(|run| Item {
        start: run.start,
        shape: shapes.piece(run.end - run.start),
    });
    let mut items: Vec<Item> = runs.collect();
    items.extend(plain.patterns.iter().map(|pattern| shapes.pattern(pattern)));
    items.sort_unstable_by_key(|item| item.start);
    for _ in 0..Strided::DEPTH_MAX {
        let before = items.len();
        items = group(&items, &mut shapes);
        if items.len() == before {
            break;
        }
    }
    let mut found = List::default();
    items.iter().for_each(|item| {
        let Shape { dims, len } = &shapes.all[item.shape];
        build(item.start, dims, *len, &mut found);
    });
    let found = found.in_order();
    if encoded_bytes(&found) > encoded_bytes(&plain) {
        plain
    } else {
        found
    }
}

impl List {
    /// In its one order: single ranges are runs, runs that touch or overlap are one, nothing is empty or there twice.
    fn in_order(self) -> Self {
        let Self { mut runs, mut patterns } = self;
        let single = patterns.extract_if(.., |pattern| pattern.dims().len() == 0);
        runs.extend(
            single
                .map(|pattern| pattern.bounds())
                .map(|Range { start, end }| Run { start, end }),
        );
        patterns.sort_unstable();
        patterns.dedup();
        Self {
            runs: coalesce(runs),
            patterns,
        }
    }
}

/// Sorts runs, joins those that touch or overlap and leaves out empty ones.
fn coalesce(mut runs: Vec<Run>) -> Vec<Run> {
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

    fn pattern(&mut self, pattern: &Strided) -> Item {
        let mut dims: Vec<Dim> = pattern.dims().collect();
        dims.reverse();
        let shape = Shape {
            dims,
            len: pattern.piece_bytes(),
        };
        Item {
            start: pattern.bounds().start,
            shape: self.number(shape),
        }
    }
}

/// Adds a pattern to a list: as its pieces if they are few, by its outermost steps if it is none (too tangled), which are
/// patterns that went into the list.
fn build(start: u64, dims: &[Dim], len: u64, list: &mut List) {
    let pieces = dims.iter().map(|dim| dim.count).fold(1, u64::saturating_mul);
    match (Strided::new(start, dims, len), dims.split_last()) {
        (Ok(pattern), _) if pieces >= PIECES_MIN => list.patterns.push(pattern),
        (_, None) => list.runs.push(Run {
            start,
            end: start + len,
        }),
        (_, Some((outer, inner))) => {
            (0..outer.count).for_each(|step| build(start + step * outer.stride, inner, len, list));
        }
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
