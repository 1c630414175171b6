//! Finding regular patterns in a list of ranges.
//!
//! ```text
//!   ranges              #.#.#.....#.#.#.....#.#.#.....#...#
//!   first pass          [3 x 2  ] [3 x 2  ] [3 x 2  ] #   #       equal lengths at equal distances
//!   second pass         [3 x 10 of 3 x 2            ] #   #       equal patterns at equal distances
//! ```
//!
//! A pattern in the list counts as found already. Each pass goes once over the groups that the pass before has made, by
//! start, with one open group per shape (so two combs between each other's teeth are two groups). What a pass leaves alone stays
//! alone: each pass has at most half as much to do as the one before, and all of them together cost `O(n)`, and `O(n log n)` for
//! the order of what they find.
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

/// Among many, a pattern of fewer pieces than this stays a list of pieces: it would take more memory than they do, and
/// what irregular lists have by chance costs more to compare than it saves.
const PIECES_MIN: u64 = 8;
/// Among so few members, a pattern of 3 pieces is one.
const FEW: usize = 8;

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
    let mut items: Vec<Item> = plain.runs.iter().map(|run| shapes.run(run)).collect();
    items.extend(plain.patterns.iter().map(|pattern| shapes.pattern(pattern)));
    items.sort_unstable_by_key(|item| item.start);
    let mut done = Vec::new();
    while !items.is_empty() {
        items = group(&items, &mut shapes, &mut done);
    }
    let pieces_min = if done.len() <= FEW { 3 } else { PIECES_MIN };
    let mut found = List::default();
    for item in &done {
        let (dims, len) = shapes.dims(item.shape);
        build(item.start, &dims, len, pieces_min, &mut found);
    }
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

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Shape {
    /// So many bytes.
    Piece(u64),
    /// A vector of a shape.
    Vector { of: usize, dim: Dim },
}

/// All shapes seen, by number.
#[derive(Default)]
struct Shapes {
    all: Vec<Shape>,
    numbers: HashMap<Shape, usize>,
    /// The shape asked for last: lists tend to have few.
    latest: Option<(Shape, usize)>,
}

impl Shapes {
    fn number(&mut self, shape: Shape) -> usize {
        if let Some((_, number)) = self.latest.filter(|(latest, _)| *latest == shape) {
            return number;
        }
        let Self { all, numbers, .. } = self;
        let number = *numbers.entry(shape).or_insert_with(|| {
            all.push(shape);
            all.len() - 1
        });
        self.latest = Some((shape, number));
        number
    }

    fn run(&mut self, run: &Run) -> Item {
        let shape = self.number(Shape::Piece(run.end - run.start));
        Item {
            start: run.start,
            shape,
        }
    }

    fn pattern(&mut self, pattern: &Strided) -> Item {
        let dims: Vec<Dim> = pattern.dims().collect();
        let piece = self.number(Shape::Piece(pattern.piece_bytes()));
        let shape = dims
            .iter()
            .rev()
            .fold(piece, |of, &dim| self.number(Shape::Vector { of, dim }));
        Item {
            start: pattern.bounds().start,
            shape,
        }
    }

    /// A group of a shape is an item of another shape.
    fn vector(&mut self, of: usize, group: Group) -> Item {
        let Group {
            first: start,
            stride,
            count,
            ..
        } = group;
        let shape = self.number(Shape::Vector {
            of,
            dim: Dim { count, stride },
        });
        Item { start, shape }
    }

    /// The vectors of a shape, outermost first, and the bytes of its pieces.
    fn dims(&self, mut shape: usize) -> (Vec<Dim>, u64) {
        let mut dims = Vec::new();
        loop {
            match self.all[shape] {
                Shape::Piece(len) => return (dims, len),
                Shape::Vector { of, dim } => {
                    dims.push(dim);
                    shape = of;
                }
            }
        }
    }
}

/// Adds a pattern to a list: as its pieces if they are few, by its outermost steps if it is none (too tangled), which are
/// patterns that went into the list.
fn build(start: u64, dims: &[Dim], len: u64, pieces_min: u64, list: &mut List) {
    let pieces = dims.iter().map(|dim| dim.count).fold(1, u64::saturating_mul);
    let pattern = (pieces >= pieces_min).then(|| Strided::new(start, dims, len).ok());
    match (pattern.flatten(), dims.split_first()) {
        (Some(pattern), _) => list.patterns.push(pattern),
        (_, None) => list.runs.push(Run {
            start,
            end: start + len,
        }),
        (_, Some((outer, inner))) => {
            (0..outer.count).for_each(|step| build(start + step * outer.stride, inner, len, pieces_min, list));
        }
    }
}

/// One pass: the groups of two or more, by start; the others are done. `items`: by start.
fn group(items: &[Item], shapes: &mut Shapes, done: &mut Vec<Item>) -> Vec<Item> {
    let mut open: Vec<Option<Group>> = vec![None; shapes.all.len()];
    let mut groups = Vec::new();
    let mut close = |shape: usize, group: Group| match group.count {
        1 => done.push(Item {
            start: group.first,
            shape,
        }),
        _ => groups.push(shapes.vector(shape, group)),
    };
    for &Item { start, shape } in items {
        let (closed, next) = open[shape].map_or((None, Group::of(start)), |group| group.then(start));
        if let Some(closed) = closed {
            close(shape, closed);
        }
        open[shape] = Some(next);
    }
    for (shape, group) in open.into_iter().enumerate() {
        if let Some(group) = group {
            close(shape, group);
        }
    }
    groups.sort_unstable_by_key(|item| item.start);
    groups
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
