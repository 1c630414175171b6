//! Whether two footprints share a point.
//!
//! By the forms: patterns by arithmetic; runs by a merge that skips; lists of patterns by a sweep over their boxes, so that
//! only pairs whose boxes meet are compared; bitmaps of one block size by 64 blocks at a time, anything else with a bitmap by
//! skipping from block to block. Nothing is expanded.
//!
//! Work is bounded in proportion to the sizes of the two forms. What arithmetic cannot decide within that is merged piece by
//! piece, and what that cannot decide within some 65,000 pieces counts as an overlap: the safe side for a lock.

use std::cell::Cell;
use std::ops::Range;

use super::{Footprint, Form};
use crate::ranges::Run;
use crate::work::{Work, leapfrog};
use crate::{BlockBitmap, Strided};

/// Steps of any comparison by arithmetic.
const WORK_BASE: u64 = 1 << 14;
/// Steps in addition for each member of a list.
const WORK_PER_MEMBER: u64 = 64;
/// Steps for each member that there are in any case.
const WORK_MIN_PER_MEMBER: u64 = 4;
/// Steps in addition for each byte of a bitmap; there can be 4 runs of blocks in one.
const WORK_PER_BYTE: u64 = 8;
/// Pieces walked over when arithmetic did not decide it, less where vectors interleave.
const MERGE_BASE: u64 = 1 << 16;
/// Pieces in addition for each member of a list.
const MERGE_PER_MEMBER: u64 = 16;

/// Bytes of a bitmap that are compared at once.
const WORD: u64 = 8;
/// Steps that a comparison is taken to need for each pattern among many, and for each byte of a bitmap.
const STEPS_PER_PATTERN: u64 = 16;
const STEPS_PER_BYTE: u64 = 4;
/// Of more patterns than this, the rest is taken to need no more each than others.
const PATTERNS_LOOKED_AT: usize = 16;

impl Footprint {
    /// Whether both cover some point. Two patterns of equal strides take some 10 ns; two lists of `n` and `m` runs
    /// `O(min(n, m) log)`; two lists of patterns `O(n + m)` and the pairs whose boxes meet. What cannot be decided within a bound
    /// (see [`Strided::try_overlaps`]) counts as an overlap.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.bounds.end <= other.bounds.start || other.bounds.end <= self.bounds.start {
            return false;
        }
        match (&self.form, &other.form) {
            (Form::Pattern(ours), Form::Pattern(theirs)) => ours.overlaps(theirs),
            (Form::Whole, _) | (_, Form::Whole) => true,
            (Form::Blocks(ours), Form::Blocks(theirs)) => ours.overlaps(theirs),
            (Form::Blocks(blocks), _) => other.meets_blocks(blocks),
            (_, Form::Blocks(blocks)) => self.meets_blocks(blocks),
            _ => self.meets_list(other),
        }
    }

    /// About how many steps [`overlaps`](Self::overlaps) takes at most, some nanoseconds each: for who has little time. `O(1)`.
    ///
    /// ```
    /// # use elbow_ranges::Footprint;
    /// let odd = |n: u64| Footprint::from_list((0..n).map(|i| (i * i * 10, 7))).unwrap();
    /// assert!(odd(5000).overlap_cost(&odd(5000)) >= 5000);
    /// assert!(odd(5000).overlap_cost(&Footprint::extent(5..70).unwrap()) < 10);
    /// ```
    #[must_use]
    pub fn overlap_cost(&self, other: &Self) -> u64 {
        if self.bounds.end <= other.bounds.start || other.bounds.end <= self.bounds.start {
            return 1;
        }
        match (&self.form, &other.form) {
            (Form::Pattern(ours), Form::Pattern(theirs)) => ours.overlap_cost(theirs),
            (Form::Whole, _) | (_, Form::Whole) => 1,
            (Form::Blocks(ours), Form::Blocks(theirs)) => (ours.heap_bytes() + theirs.heap_bytes()) as u64 / WORD,
            (Form::Blocks(blocks), _) => other.blocks_cost(blocks),
            (_, Form::Blocks(blocks)) => self.blocks_cost(blocks),
            _ => self.list_cost(other),
        }
    }

    fn blocks_cost(&self, blocks: &BlockBitmap) -> u64 {
        let (runs, patterns) = self.parts();
        let of_pattern = |pattern: &Strided| pattern.segments().min(STEPS_PER_BYTE * blocks.heap_bytes() as u64);
        runs.len() as u64
            + patterns.iter().take(PATTERNS_LOOKED_AT).map(of_pattern).sum::<u64>()
            + STEPS_PER_PATTERN * patterns.len() as u64
    }

    fn list_cost(&self, other: &Self) -> u64 {
        let ((our_runs, our_patterns), (their_runs, their_patterns)) = (self.parts(), other.parts());
        let crossed = |patterns: &[Strided], runs: &[Run]| match (patterns, runs.len() as u64) {
            ([], _) | (_, 0) => 0,
            ([pattern], runs) => 2 * runs.min(pattern.segments()),
            (many, runs) => STEPS_PER_PATTERN * many.len() as u64 + 2 * runs,
        };
        let of_patterns = match (our_patterns, their_patterns) {
            ([], _) | (_, []) => 0,
            ([ours], [theirs]) => ours.overlap_cost(theirs),
            (ours, theirs) => STEPS_PER_PATTERN * (ours.len() + theirs.len()) as u64,
        };
        let of_runs = 2 * our_runs.len().min(their_runs.len()) as u64;
        of_runs + crossed(our_patterns, their_runs) + crossed(their_patterns, our_runs) + of_patterns
    }

    /// Whether it covers any point of a range.
    ///
    /// ```
    /// # use elbow_ranges::Footprint;
    /// let list = Footprint::from_list([(0, 10), (50, 10)])?;
    /// assert!(list.overlaps_range(9..50) && !list.overlaps_range(10..50));
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    #[must_use]
    pub fn overlaps_range(&self, range: Range<u64>) -> bool {
        match &self.form {
            Form::Blocks(blocks) => blocks.overlaps_range(range),
            _ => {
                let (runs, patterns) = self.parts();
                let next = run_after(runs)(range.start);
                next.is_some_and(|run| range.start < range.end && run.start < range.end)
                    || patterns.iter().any(|pattern| pattern.overlaps_range(range.clone()))
            }
        }
    }

    fn meets_list(&self, other: &Self) -> bool {
        let ((our_runs, our_patterns), (their_runs, their_patterns)) = (self.parts(), other.parts());
        let members = (our_runs.len() + our_patterns.len() + their_runs.len() + their_patterns.len()) as u64;
        // Arithmetic may take as long as walking over all pieces would take, and then that is done instead.
        let pieces = self.segments().saturating_add(other.segments());
        let work_max = pieces.saturating_add(WORK_MIN_PER_MEMBER * members);
        let mut work = Work((WORK_BASE + WORK_PER_MEMBER * members).min(work_max));
        let decided = (|| {
            Some(
                runs_meet(our_runs, their_runs, &mut work)?
                    || patterns_meet_runs(our_patterns, their_runs, &mut work)?
                    || patterns_meet_runs(their_patterns, our_runs, &mut work)?
                    || patterns_meet(our_patterns, their_patterns, &mut work)?,
            )
        })();
        let pieces_max = (MERGE_BASE + MERGE_PER_MEMBER * members) / self.tangle().max(other.tangle());
        decided
            .or_else(|| merge(self.iter().pieces(), other.iter().pieces(), pieces_max))
            .unwrap_or(true)
    }

    /// Steps that finding a piece takes at most.
    fn tangle(&self) -> u64 {
        self.parts().1.iter().map(Strided::tangle).max().unwrap_or(1)
    }

    fn meets_blocks(&self, blocks: &BlockBitmap) -> bool {
        let (runs, patterns) = self.parts();
        if runs.iter().any(|run| blocks.overlaps_range(run.start..run.end)) {
            return true;
        }
        let mut work =
            Work(WORK_BASE + WORK_PER_MEMBER * patterns.len() as u64 + WORK_PER_BYTE * blocks.heap_bytes() as u64);
        let mut meets = |pattern: &Strided| {
            let (cost, after) = (pattern.tangle(), |point| pattern.piece_after(point));
            leapfrog(after, |point| blocks.block_after(point), cost, &mut work)
        };
        patterns.iter().any(|pattern| meets(pattern).unwrap_or(true))
    }
}

/// The first run that ends after a point; for points that only grow.
fn run_after(runs: &[Run]) -> impl Fn(u64) -> Option<Range<u64>> {
    let passed = Cell::new(0);
    move |point| {
        let rest = &runs[passed.get()..];
        // Gallop: near hits are the rule.
        let mut reach = 1;
        while reach < rest.len() && rest[reach].end <= point {
            reach *= 2;
        }
        let near = &rest[..rest.len().min(reach + 1)];
        let ahead = near.partition_point(|run| run.end <= point);
        passed.set(passed.get() + ahead);
        rest.get(ahead).map(|run| run.start..run.end)
    }
}

fn runs_meet(a: &[Run], b: &[Run], work: &mut Work) -> Option<bool> {
    if a.is_empty() || b.is_empty() {
        return Some(false);
    }
    leapfrog(run_after(a), run_after(b), 1, work)
}

fn patterns_meet_runs(patterns: &[Strided], runs: &[Run], work: &mut Work) -> Option<bool> {
    for pattern in patterns {
        let bounds = pattern.bounds();
        let first = runs.partition_point(|run| run.end <= bounds.start);
        let within = &runs[first..];
        let near = &within[..within.partition_point(|run| run.start < bounds.end)];
        work.step()?;
        let after = |point| pattern.piece_after(point);
        if leapfrog(run_after(near), after, pattern.tangle(), work)? {
            return Some(true);
        }
    }
    Some(false)
}

/// A sweep over the boxes of both lists by start.
fn patterns_meet(a: &[Strided], b: &[Strided], work: &mut Work) -> Option<bool> {
    let (mut a_next, mut b_next) = (a.iter().peekable(), b.iter().peekable());
    let (mut a_open, mut b_open) = (Vec::new(), Vec::new());
    loop {
        let from_a = match (a_next.peek(), b_next.peek()) {
            (Some(a), Some(b)) => a.bounds().start <= b.bounds().start,
            (one, _) => one.is_some(),
        };
        let (next, own, others) = if from_a {
            (a_next.next(), &mut a_open, &mut b_open)
        } else {
            (b_next.next(), &mut b_open, &mut a_open)
        };
        let Some(pattern) = next else {
            return Some(false);
        };
        let start = pattern.bounds().start;
        others.retain(|other: &&Strided| other.bounds().end > start);
        for other in others.iter() {
            if pattern.overlaps_within(other, work)? {
                return Some(true);
            }
        }
        own.push(pattern);
    }
}

/// By walking over the pieces of both.
fn merge(
    mut a: impl Iterator<Item = Range<u64>>,
    mut b: impl Iterator<Item = Range<u64>>,
    pieces_max: u64,
) -> Option<bool> {
    let (mut ours, mut theirs) = (a.next(), b.next());
    for _ in 0..pieces_max {
        let (Some(our), Some(their)) = (&ours, &theirs) else {
            return Some(false);
        };
        if our.end <= their.start {
            ours = a.next();
        } else if their.end <= our.start {
            theirs = b.next();
        } else {
            return Some(true);
        }
    }
    None
}
