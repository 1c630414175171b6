//! The best candidate of a decision, and the order among equals.

use crate::drive::Lbn;

/// A candidate: what it costs, and for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Best {
    /// Picoseconds from the pick until the first sector passes; for schedulers that ask for less, that.
    pub(super) cost: u64,
    /// When it came, compared with others.
    pub(super) order: u64,
    pub(super) lbn: Lbn,
    pub(super) whose: Candidate,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Candidate {
    /// The request in this slot.
    Fixed(usize),
    /// The oldest of those who wait for this region.
    Region(usize),
}

impl Best {
    /// Takes the place of a best one that costs more; among equals that came later, or lies higher.
    #[inline]
    pub(super) fn improve(self, best: &mut Option<Best>) {
        let key = |best: &Best| (best.cost, best.order, best.lbn);
        if best.as_ref().is_none_or(|best| key(&self) < key(best)) {
            *best = Some(self);
        }
    }
}
