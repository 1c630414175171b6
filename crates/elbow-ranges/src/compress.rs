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
//! the order of a list that has none. A group has the place of its first item, so groups need no sorting; and a list in which no pattern is
//! found comes back as it came. A long list that shows no regularity at a first look is not searched.
//!
//! Invariants: nothing is lost or added; what comes out takes at most as many bytes to encode as the plain list.
//!
//! Not here: the best description of all. Greedy groups find what loops over arrays make; a pattern with a hole in it
//! becomes two or more, and of more different shapes than [`SLOTS_MAX`] some are taken for new ones.

use std::ops::Range;

use crate::list::{List, encoded_bytes};
use crate::ranges::Run;
use crate::{Dim, Strided};

/// Among many, a pattern of fewer pieces than this stays a list of pieces: it would take more memory than they do, and
/// what irregular lists have by chance costs more to compare than it saves.
const PIECES_MIN: u64 = 8;
/// Among so few members, a pattern of 3 pieces is one.
const FEW: usize = 8;

/// Of fewer ranges than this all are searched.
const LONG: usize = 1 << 10;
/// How many pieces of a longer list are searched first, and their ranges.
const SAMPLES: usize = 4;
const SAMPLE: usize = 64;
/// Neighbours that are remembered to see whether others are like them.
const FEATURES: usize = 1 << 12;
/// The golden ratio's bits: a product with it differs where its factors do, mostly in the higher bits.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

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
    let count = plain.runs.len() + plain.patterns.len();
    // More than what numbers of items have room for, or not worth the search.
    if u32::try_from(count).is_err() || (plain.patterns.is_empty() && looks_irregular(&plain.runs)) {
        return plain;
    }
    search(plain)
}

/// Whether a list is long and there is little hope: hardly two neighbours are like any before them, and nothing is found in samples. It goes as
/// it is then, for a fifth of the time of a search.
fn looks_irregular(runs: &[Run]) -> bool {
    let sample = |number: usize| {
        let begin = number * (runs.len() - SAMPLE) / (SAMPLES - 1);
        let runs = runs[begin..begin + SAMPLE].to_vec();
        search(List {
            runs,
            patterns: Vec::new(),
        })
    };
    runs.len() >= LONG && has_few_repeats(runs) && (0..SAMPLES).map(sample).all(|found| found.patterns.is_empty())
}

/// Whether fewer than one of eight pairs of neighbours have the lengths and the gap of another one before them.
fn has_few_repeats(runs: &[Run]) -> bool {
    let mut seen = vec![0_u32; FEATURES];
    let repeats = runs.windows(2).filter(|pair| {
        let [here, next] = [pair[0], pair[1]];
        let lengths = (here.end - here.start) ^ (next.end - next.start).rotate_left(32);
        let feature = (lengths.wrapping_mul(ODD).rotate_left(29) ^ (next.start - here.end)).wrapping_mul(ODD);
        let tag = feature as u32 | 1;
        std::mem::replace(&mut seen[(feature >> 32) as usize % FEATURES], tag) == tag
    });
    8 * repeats.count() < runs.len()
}

fn search(plain: List) -> List {
    let count = plain.runs.len() + plain.patterns.len();
    let mut shapes = Shapes::of_so_many(count);
    let mut passes = vec![Pass::first(&plain, &mut shapes)];
    while let Some(last) = passes.last_mut()
        && !last.items.is_empty()
    {
        let next = last.group(&mut shapes);
        passes.push(next);
    }
    let alone: usize = passes.iter().map(Pass::alone).sum();
    let pieces_min = if alone <= FEW { 3 } else { PIECES_MIN };
    let found = collect(&passes, &shapes, pieces_min);
    match found.filter(|found| is_shorter(found, &plain)) {
        Some(found) => found,
        None => plain,
    }
}

/// Whether it takes at most as many bytes as the plain list.
fn is_shorter(found: &List, plain: &List) -> bool {
    encoded_bytes(found) <= encoded_bytes(plain)
}

/// The groups that are patterns, and what is in none of them. None when nothing of the list changes.
fn collect(passes: &[Pass], shapes: &Shapes, pieces_min: u64) -> Option<List> {
    let mut found = List::default();
    // Of the pass after: what is part of a pattern.
    let mut kept: Vec<bool> = Vec::new();
    for (number, Pass { items, owners }) in passes.iter().enumerate().rev() {
        let of_item = |(item, &owner): (&Item, &u32)| match owner {
            ALONE if shapes.pieces(item.shape) < pieces_min => false,
            ALONE => {
                let (dims, len) = shapes.dims(item.shape);
                build(item.start, &dims, len, pieces_min, &mut found);
                true
            }
            owner => kept[owner as usize],
        };
        let of_this: Vec<bool> = items.iter().zip(owners).map(of_item).collect();
        if number == 0 {
            let has_patterns = || items.iter().any(|item| shapes.pieces(item.shape) > 1);
            if !of_this.contains(&true) && !has_patterns() {
                return None;
            }
            for (item, _) in items.iter().zip(&of_this).filter(|(_, kept)| !**kept) {
                let (dims, len) = shapes.dims(item.shape);
                build(item.start, &dims, len, pieces_min, &mut found);
            }
        }
        kept = of_this;
    }
    Some(found.in_order())
}

impl List {
    /// In its one order: single ranges are runs, runs that touch or overlap are one, nothing is empty or there twice.
    fn in_order(self) -> Self {
        let Self { mut runs, mut patterns } = self;
        if patterns.is_empty() && is_coalesced(&runs) {
            return Self { runs, patterns };
        }
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

/// Whether runs are sorted, disjoint, apart and not empty.
fn is_coalesced(runs: &[Run]) -> bool {
    runs.iter().all(|run| run.start < run.end) && runs.windows(2).all(|pair| pair[0].end < pair[1].start)
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
    shape: u32,
}

/// Belongs to no group.
const ALONE: u32 = u32::MAX;

/// What one pass has to do, by start.
struct Pass {
    items: Vec<Item>,
    /// Of each item the number of its group among the items of the next pass.
    owners: Vec<u32>,
}

/// Items of one shape at equal distances so far, at the place of the first of them.
#[derive(Clone, Copy, Default)]
struct Group {
    stride: u64,
    count: u32,
}

/// The group of a shape that may go on.
#[derive(Clone, Copy)]
struct Open {
    first: u32,
    last: u32,
}

impl Pass {
    fn first(plain: &List, shapes: &mut Shapes) -> Self {
        let mut items: Vec<Item> = plain.runs.iter().map(|run| shapes.run(run)).collect();
        if !plain.patterns.is_empty() {
            items.extend(plain.patterns.iter().map(|pattern| shapes.pattern(pattern)));
            items.sort_unstable_by_key(|item| item.start);
        }
        let owners = Vec::new();
        Self { items, owners }
    }

    /// Items that are in no group.
    fn alone(&self) -> usize {
        self.owners.iter().filter(|&&owner| owner == ALONE).count()
    }

    /// Puts items of one shape at equal distances together: the groups of two or more are the next pass.
    fn group(&mut self, shapes: &mut Shapes) -> Self {
        let groups = self.join(shapes.all.len());
        let mut items = Vec::new();
        for (place, (&item, &group)) in self.items.iter().zip(&groups).enumerate() {
            let first = self.owners[place] as usize;
            self.owners[place] = match group.count {
                _ if first < place => self.owners[first],
                ..2 => ALONE,
                _ => {
                    items.push(shapes.vector(item, group));
                    (items.len() - 1) as u32
                }
            };
        }
        let owners = Vec::new();
        Self { items, owners }
    }

    /// The groups, each at the place of its first item; notes for each item the place of its group.
    fn join(&mut self, shapes: usize) -> Vec<Group> {
        const NONE: Open = Open {
            first: ALONE,
            last: ALONE,
        };
        let mut open = vec![NONE; shapes];
        let mut groups = vec![Group::default(); self.items.len()];
        self.owners.reserve_exact(self.items.len());
        for (place, &Item { start, shape }) in self.items.iter().enumerate() {
            let place = place as u32;
            let open = &mut open[shape as usize];
            let (first, last) = (open.first as usize, open.last as usize);
            *open = if first == ALONE as usize {
                Open {
                    first: place,
                    last: place,
                }
            } else {
                let distance = start - self.items[last].start;
                let group = groups[first];
                if group.count == 1 || distance == group.stride {
                    groups[first] = Group {
                        stride: distance,
                        count: group.count + 1,
                    };
                    Open { last: place, ..*open }
                } else if group.count == 2 && distance < group.stride {
                    // The nearer one belongs to the inner loop: the first stays alone.
                    groups[first].count = 1;
                    groups[last] = Group {
                        stride: distance,
                        count: 2,
                    };
                    self.owners[last] = open.last;
                    Open {
                        first: open.last,
                        last: place,
                    }
                } else {
                    Open {
                        first: place,
                        last: place,
                    }
                }
            };
            if open.first == place {
                groups[place as usize].count = 1;
            }
            self.owners.push(open.first);
        }
        groups
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// So many bytes.
    Piece(u64),
    /// A vector of a shape.
    Vector { of: u32, dim: Dim },
}

/// Most slots of the index of shapes.
const SLOTS_MAX: usize = 1 << 16;
/// Slots that are looked at for a shape.
const PROBES: usize = 4;

/// All shapes seen, by number.
struct Shapes {
    /// With their pieces.
    all: Vec<(Shape, u64)>,
    /// Where the number of a shape is, by what it hashes to; a crowded shape gives way. No hash map: that would cost more than all the
    /// rest, and what is forgotten here only gets another number.
    slots: Vec<u32>,
}

impl Shapes {
    /// For a list of so many members.
    fn of_so_many(members: usize) -> Self {
        let slots = (2 * members).next_power_of_two().clamp(64, SLOTS_MAX);
        Self {
            all: Vec::new(),
            slots: vec![ALONE; slots],
        }
    }

    fn number(&mut self, shape: Shape) -> u32 {
        let mask = self.slots.len() - 1;
        let home = shape.hash() as usize;
        for probe in 0..PROBES {
            match self.slots[(home + probe) & mask] {
                ALONE => return self.add(shape, (home + probe) & mask),
                number if self.all[number as usize].0 == shape => return number,
                _ => {}
            }
        }
        self.add(shape, home & mask)
    }

    fn add(&mut self, shape: Shape, slot: usize) -> u32 {
        let pieces = match shape {
            Shape::Piece(_) => 1,
            Shape::Vector { of, dim } => self.pieces(of).saturating_mul(dim.count),
        };
        let number = self.all.len() as u32;
        self.all.push((shape, pieces));
        self.slots[slot] = number;
        number
    }

    fn pieces(&self, shape: u32) -> u64 {
        self.all[shape as usize].1
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

    /// A group that begins with an item is an item of another shape.
    fn vector(&mut self, first: Item, group: Group) -> Item {
        let dim = Dim {
            count: u64::from(group.count),
            stride: group.stride,
        };
        let shape = self.number(Shape::Vector { of: first.shape, dim });
        Item { shape, ..first }
    }

    /// The vectors of a shape, outermost first, and the bytes of its pieces.
    fn dims(&self, mut shape: u32) -> (Vec<Dim>, u64) {
        let mut dims = Vec::new();
        loop {
            match self.all[shape as usize].0 {
                Shape::Piece(len) => return (dims, len),
                Shape::Vector { of, dim } => {
                    dims.push(dim);
                    shape = of;
                }
            }
        }
    }
}

impl Shape {
    /// Bits that differ where shapes differ, mostly.
    fn hash(self) -> u64 {
        let mixed = match self {
            Self::Piece(len) => len,
            Self::Vector { of, dim } => {
                let counted = u64::from(of) ^ dim.count.rotate_left(32);
                counted.wrapping_mul(ODD).rotate_left(29) ^ dim.stride
            }
        };
        mixed.wrapping_mul(ODD) >> 40
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
