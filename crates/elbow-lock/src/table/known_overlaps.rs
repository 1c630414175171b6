//! What is known of a request before it is looked at: with which locks it shares bytes.
//!
//! Two lists of 100,000 ranges take milliseconds to compare, and nobody else should wait for that. Footprints do not change while a lock has its
//! number, so whether two share a byte can be found out by anybody at any time: outside of the table, before the request is handed to it. What is
//! known stays with the lock, so that no later event compares the two again.
//!
//! Invariant: an answer of the table is the same whatever is known. What is not known is compared when it is needed.
//!
//! Not here: who compares, and where (`server::long`).

use std::sync::Arc;

use ahash::AHashMap;
use elbow_ranges::Footprint;

/// Memory of an entry, about.
const ENTRY_BYTES: usize = 24;
/// So often a request is compared beside the table, each time with what has come meanwhile. Then it is its turn.
const ROUNDS_MAX: u32 = 8;

/// With which locks, by their numbers, a request shares bytes. Cloning is cheap.
///
/// ```
/// use elbow_lock::KnownOverlaps;
///
/// assert!(KnownOverlaps::default().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct KnownOverlaps {
    answers: Option<Arc<AHashMap<u64, bool>>>,
    /// How often it was compared.
    rounds: u32,
}

/// A lock that a request has to be compared with.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub(super) number: u64,
    pub(super) footprint: Footprint,
}

impl KnownOverlaps {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_none()
    }

    /// Compares: the long part, which needs no table.
    pub fn learn(&mut self, ours: &Footprint, comparisons: &[Comparison]) {
        self.rounds += 1;
        let known = Arc::make_mut(self.answers.get_or_insert_default());
        let answers = comparisons
            .iter()
            .map(|other| (other.number, ours.overlaps(&other.footprint)));
        known.extend(answers);
    }

    /// Whether what has come since is little enough to be compared in the table: else others that come all the time would keep a request out
    /// for ever.
    pub(crate) fn is_enough(&self) -> bool {
        self.rounds >= ROUNDS_MAX
    }

    pub(super) fn of(&self, number: u64) -> Option<bool> {
        self.answers.as_ref()?.get(&number).copied()
    }

    /// Memory that it takes, about.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.answers.as_ref().map_or(0, |known| known.len() * ENTRY_BYTES)
    }
}

impl Comparison {
    /// About how many steps it takes at most.
    #[must_use]
    pub fn cost(&self, ours: &Footprint) -> u64 {
        ours.overlap_cost(&self.footprint)
    }
}
