//! Finding the next piece of a pattern, from the numbers alone.
//!
//! Invariant: pieces come by start; where vectors interleave, each start comes once.

use std::ops::Range;

use super::{Level, Strided};

impl Strided {
    /// The first piece that ends after a point: the one that holds it, or else the next.
    ///
    /// ```
    /// use elbow_ranges::{Dim, Strided};
    ///
    /// let comb = Strided::new(100, &[Dim { count: 1 << 40, stride: 10 }], 4)?;
    /// assert_eq!(comb.piece_after(123), Some(120..124));
    /// assert_eq!(comb.piece_after(124), Some(130..134));
    /// # Ok::<(), elbow_ranges::PatternError>(())
    /// ```
    #[must_use]
    pub fn piece_after(&self, point: u64) -> Option<Range<u64>> {
        let begins_from = point.saturating_sub(self.start).saturating_sub(self.len - 1);
        let start = self.start + next_step(&self.levels, self.len, begins_from)?;
        Some(start..start + self.len)
    }

    /// Its pieces by start, not coalesced.
    #[must_use]
    pub fn pieces(&self) -> Pieces<'_> {
        Pieces { of: self, next: 0 }
    }
}

/// The pieces of a [`Strided`] by start. Each costs `O(depth)`, times the tangle where vectors interleave.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    of: &'a Strided,
    /// Pieces from here on, counted from the start of the pattern, are still to come.
    next: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let Strided {
            start, len, ref levels, ..
        } = *self.of;
        let step = next_step(levels, len, self.next)?;
        self.next = step + 1;
        Some(start + step..start + step + len)
    }
}

/// The smallest `i1*stride1 + i2*stride2 + ...` that is not below `from`.
fn next_step(levels: &[Level], len: u64, from: u64) -> Option<u64> {
    let Some((level, rest)) = levels.split_first() else {
        return (from == 0).then_some(0);
    };
    let reach = level.inner - len; // the last step of the vectors inside
    let first = from.saturating_sub(reach).div_ceil(level.stride);
    let within =
        |step: u64| Some(step * level.stride + next_step(rest, len, from.saturating_sub(step * level.stride))?);
    if first >= level.count {
        return None;
    }
    if level.is_nested() {
        return within(first);
    }
    let mut best = within(first);
    for step in first + 1..level.count {
        if best.is_some_and(|best| best <= step * level.stride) {
            break;
        }
        best = [best, within(step)].into_iter().flatten().min();
    }
    best
}
