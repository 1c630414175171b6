//! Whether two patterns share a point, by arithmetic.
//!
//! ```text
//!   A   [##  ##  ##]      [##  ##  ##]      [##  ##  ##]        boxes of the outermost steps
//!   B        [# # # #]  [# # # #]  [# # # #]  [# # # #]         only pairs of boxes that meet are looked into
//! ```
//!
//! A descent over the vectors from the outside in. A pair of (sub)patterns whose boxes do not meet, or whose first pieces
//! do, is decided. Otherwise, outermost vectors first:
//! - *equal strides*: a step of A and a step of B lie at one of only two distances at which their boxes can meet;
//! - *unequal strides, short steps*: the pairs whose boxes meet are found one after the other by the Euclidean descent
//!   (`i*s mod t` within a window), and those at a distance that was looked into before are left out: `i` and `i + t/gcd(s, t)`
//!   are at the same distance;
//! - *else* the vector with the larger strides is split into its steps, again without those `t/gcd(s, t)` apart.
//!
//! What has not been decided after a few pairs may be decided by all strides together: fields of records never meet.
//!
//! Cost: two patterns of equal strides `2^depth` at worst and `depth` as a rule; two single vectors `O(log stride)`;
//! otherwise the number of distinct distances at which steps meet, per level. Since that can be large (deciding it in general
//! is as hard as subset sum), work is bounded by [`PAIRS_MAX`]; then by a merge of the two sequences of pieces, which
//! skips from piece to piece (never an expansion), bounded by [`MERGE_MAX`]; then there is no answer.

use super::residue::{first_within, gcd};
use super::{Level, Strided};
use crate::work::{Work, leapfrog};

/// Most pairs of subpatterns that one comparison looks into; at about 20 ns each, well below a millisecond.
const PAIRS_MAX: u64 = 1 << 14;
/// Most steps of the walk over the pieces when arithmetic did not decide it; a piece is one, times the tangle.
const MERGE_MAX: u64 = 1 << 14;
/// Pairs that are looked into before the greatest common divisor of all strides is worth its price.
const PAIRS_BEFORE_MODULUS: u64 = 32;
/// Runs of steps below this are not worth a division to shorten them.
const SHORT_RUN: u64 = 4;

impl Strided {
    /// Whether both cover some point; `None` when that cannot be decided within a bound of some 30,000 steps, which takes
    /// nested vectors of unrelated strides with very many steps.
    ///
    /// ```
    /// use elbow_ranges::{Dim, Strided};
    ///
    /// let even = Strided::new(0, &[Dim { count: 1 << 50, stride: 6 }], 1)?;
    /// let odd = Strided::new(3, &[Dim { count: 1 << 50, stride: 10 }], 1)?;
    /// assert_eq!(even.try_overlaps(&odd), Some(false)); // 6i is even, 3 + 10j is odd
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    #[must_use]
    pub fn try_overlaps(&self, other: &Self) -> Option<bool> {
        if self.end <= other.start || other.end <= self.start {
            return Some(false);
        }
        let decided = self.overlaps_within(other, &mut Work(PAIRS_MAX));
        decided.or_else(|| {
            leapfrog(
                |point| self.piece_after(point),
                |point| other.piece_after(point),
                self.tangle().max(other.tangle()),
                &mut Work(MERGE_MAX),
            )
        })
    }

    /// As [`try_overlaps`](Self::try_overlaps), by arithmetic alone and with the caller's budget.
    pub(crate) fn overlaps_within(&self, other: &Self, work: &mut Work) -> Option<bool> {
        // A fixed order, so that both ways around get the same answer even at the end of the budget.
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        let mut first = Work(work.0.min(PAIRS_BEFORE_MODULUS));
        let had = first.0;
        let decided = meet(a.part(), b.part(), &mut first);
        work.steps(had - first.0)?;
        match decided {
            Some(overlap) => Some(overlap),
            None if a.is_apart_modulo(b) => Some(false),
            None => meet(a.part(), b.part(), work),
        }
    }

    /// Whether all points of the one differ from all points of the other modulo what divides all strides, as those of two
    /// fields of one record do in arrays of records. For a pattern that does not begin after the other.
    fn is_apart_modulo(&self, after: &Self) -> bool {
        let modulus = self
            .dims()
            .chain(after.dims())
            .fold(0, |divisor, dim| gcd(dim.stride, divisor));
        let distance = after.start - self.start;
        modulus > 0 && distance % modulus >= self.len && after.len <= modulus - distance % modulus
    }

    fn part(&self) -> Part<'_> {
        Part {
            at: self.start,
            len: self.len,
            levels: &self.levels,
        }
    }
}

/// A pattern or one step of one, at its place.
#[derive(Clone, Copy)]
struct Part<'a> {
    at: u64,
    len: u64,
    levels: &'a [Level],
}

impl<'a> Part<'a> {
    fn end(&self) -> u64 {
        self.at + self.levels.first().map_or(self.len, Level::extent)
    }

    /// Its step `index`; it has vectors.
    fn step(&self, index: u64) -> Part<'a> {
        let at = self.at + index * self.levels[0].stride;
        Part {
            at,
            levels: &self.levels[1..],
            ..*self
        }
    }

    /// The steps (first, last) whose boxes meet `[start, end)`; the box of the whole does.
    fn steps_at(&self, start: u64, end: u64) -> (u64, u64) {
        let Level { count, stride, inner } = self.levels[0];
        let first = match start.checked_sub(self.at + inner) {
            None => 0,
            Some(past) => past / stride + 1,
        };
        (first, ((end - 1 - self.at) / stride).min(count - 1))
    }
}

/// Whether two parts share a point.
fn meet(a: Part<'_>, b: Part<'_>, work: &mut Work) -> Option<bool> {
    work.step()?;
    let (a, b) = if a.at <= b.at { (a, b) } else { (b, a) };
    if b.at - a.at < a.len {
        return Some(true); // the first piece of each
    }
    if b.at >= a.end() {
        return Some(false);
    }
    match (a.levels, b.levels) {
        ([], _) => Some(false), // excluded above: b begins past the only piece of a
        ([of_a, ..], [of_b, ..]) if of_a.is_nested() && of_b.is_nested() => {
            if of_a.stride == of_b.stride {
                meet_in_step(a, b, work)
            } else if of_a.stride > of_b.stride {
                meet_out_of_step(a, b, work)
            } else {
                meet_out_of_step(b, a, work)
            }
        }
        ([_, ..], []) => meet_steps(a, b, work),
        ([of_a, ..], _) if !of_a.is_nested() => meet_steps(a, b, work),
        _ => meet_steps(b, a, work),
    }
}

/// Both have the same outermost stride, and `a` begins first.
fn meet_in_step(a: Part<'_>, b: Part<'_>, work: &mut Work) -> Option<bool> {
    let (of_a, of_b) = (&a.levels[0], &b.levels[0]);
    let distance = b.at - a.at;
    let steps = if distance < of_a.stride {
        0
    } else {
        distance / of_a.stride
    };
    let past = distance - steps * of_a.stride;
    let first = b.step(0);
    if past < of_a.inner && meet(a.step(steps), first, work)? {
        return Some(true);
    }
    let is_next = steps + 1 < of_a.count && of_a.stride - past < of_b.inner;
    if is_next {
        meet(a.step(steps + 1), first, work)
    } else {
        Some(false)
    }
}

/// The outermost stride of `wide` is the larger one; both are nested.
fn meet_out_of_step(wide: Part<'_>, narrow: Part<'_>, work: &mut Work) -> Option<bool> {
    let (of_wide, of_narrow) = (&wide.levels[0], &narrow.levels[0]);
    let window = (of_wide.inner - 1).saturating_add(of_narrow.inner - 1);
    if window >= of_narrow.stride {
        return meet_steps(wide, narrow, work);
    }
    // Step i of `wide` meets step j of `narrow` if 0 <= lead + i*stride - j*stride' <= window.
    let (first, last) = wide.steps_at(narrow.at, narrow.end());
    if first > last {
        return Some(false);
    }
    let lead = wide.step(first).at + (of_wide.inner - 1) - narrow.at;
    let run = distinct(last - first + 1, of_wide.stride, of_narrow.stride);
    let mut done = 0;
    while done < run {
        let here = (u128::from(lead) + u128::from(done) * u128::from(of_wide.stride)) % u128::from(of_narrow.stride);
        let Some(skip) = first_within(here as u64, of_wide.stride, of_narrow.stride, window) else {
            return Some(false);
        };
        done = done.saturating_add(skip);
        if done >= run {
            return Some(false);
        }
        let step = wide.step(first + done);
        let other = (step.at + (of_wide.inner - 1) - narrow.at) / of_narrow.stride;
        if meet(step, narrow.step(other), work)? {
            return Some(true);
        }
        done += 1;
    }
    Some(false)
}

/// Splits the outermost vector of `a` into its steps.
fn meet_steps(a: Part<'_>, b: Part<'_>, work: &mut Work) -> Option<bool> {
    let (first, last) = a.steps_at(b.at, b.end());
    let mut steps = first..last.saturating_add(1).max(first);
    // All but the first and the last step lie within the box of b, where b repeats itself.
    let repeats = b
        .levels
        .first()
        .filter(|of_b| of_b.is_nested() && a.levels[0].is_nested());
    if let Some(of_b) = repeats
        && last.saturating_sub(first) > 2
    {
        if meet(a.step(last), b, work)? {
            return Some(true);
        }
        steps.end = first + 1 + distinct(last - first - 1, a.levels[0].stride, of_b.stride);
    }
    for index in steps {
        if meet(a.step(index), b, work)? {
            return Some(true);
        }
    }
    Some(false)
}

/// How many of `run` steps of a stride begin at distinct places modulo another stride.
fn distinct(run: u64, stride: u64, modulus: u64) -> u64 {
    if run <= SHORT_RUN {
        run
    } else {
        run.min(modulus / gcd(stride, modulus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dim;

    fn comb(start: u64, stride: u64, len: u64) -> Strided {
        Strided::new(start, &[Dim { count: 60, stride }], len).expect("a pattern")
    }

    /// Combs so long that they reach every distance that they can.
    #[test]
    fn combs_are_apart_modulo_if_they_never_meet() {
        for (stride, other) in (4..14).flat_map(|stride| (4..14).map(move |other| (stride, other))) {
            for (distance, len) in (0..14).flat_map(|distance| (1..4).map(move |len| (distance, len))) {
                let (a, b) = (comb(0, stride, len), comb(distance, other, 4 - len));
                let meet = a
                    .iter()
                    .any(|piece| b.iter().any(|other| piece.start < other.end && other.start < piece.end));
                assert_eq!(a.is_apart_modulo(&b), !meet, "{a} and {b}");
                assert_eq!(a.try_overlaps(&b), Some(meet), "{a} and {b}");
            }
        }
    }
}
