//! A bound on work, and the merge that needs one.

use std::ops::Range;

/// A budget of steps.
#[derive(Debug)]
pub(crate) struct Work(pub(crate) u64);

impl Work {
    /// One step; `None` when there are none left.
    pub(crate) fn step(&mut self) -> Option<()> {
        self.steps(1)
    }

    /// Several steps at once.
    pub(crate) fn steps(&mut self, steps: u64) -> Option<()> {
        self.0 = self.0.checked_sub(steps)?;
        Some(())
    }
}

/// Whether two sequences of ranges share a point: each in turn skips to where the other is. A sequence is a function that
/// gives the first range which ends after a point; asking both once costs so many steps. Asks about as often as the shorter
/// sequence is long; `None` at the end of the budget.
pub(crate) fn leapfrog(
    here: impl Fn(u64) -> Option<Range<u64>>,
    there: impl Fn(u64) -> Option<Range<u64>>,
    cost: u64,
    work: &mut Work,
) -> Option<bool> {
    let mut point = 0;
    loop {
        work.steps(cost)?;
        let Some(ours) = here(point) else {
            return Some(false);
        };
        let Some(theirs) = there(ours.start) else {
            return Some(false);
        };
        if theirs.start < ours.end {
            return Some(true);
        }
        point = theirs.start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(ranges: &[Range<u64>]) -> impl Fn(u64) -> Option<Range<u64>> {
        move |point| ranges.iter().find(|range| range.end > point).cloned()
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let (a, b) = ([0..4, 8..12], [4..8, 12..16]);
        assert_eq!(leapfrog(sequence(&a), sequence(&b), 1, &mut Work(9)), Some(false));
        assert_eq!(
            leapfrog(sequence(&a), sequence(&[4..8, 11..16]), 1, &mut Work(9)),
            Some(true)
        );
    }

    #[test]
    fn the_budget_ends_it() {
        let (a, b) = ([0..4, 8..12], [4..8, 12..16]);
        assert_eq!(leapfrog(sequence(&a), sequence(&b), 1, &mut Work(1)), None);
    }
}
