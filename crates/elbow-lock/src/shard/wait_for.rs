//! Who waits in a shard, and for whom: the edges in which a deadlock is looked for.

use std::ops::Range;

use crate::message::{FileName, LockId, LockMode};
use crate::table::Party;

/// A request that waits, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitFor {
    /// Who waits.
    pub waiter: Party,
    /// The request's name in its session.
    pub id: LockId,
    /// Of which file.
    pub file: FileName,
    /// What it asks for.
    pub mode: LockMode,
    /// The bounds of the bytes it asks for.
    pub bounds: Range<u64>,
    /// When it was queued, in the service's milliseconds.
    pub since_ms: u64,
    /// Its place in the order of asking; comparable within a shard.
    pub number: u64,
    /// Who holds what is in its way, sorted.
    pub blockers: Vec<Party>,
    /// Which requests stand before it and in its way. Another request of the same owner may stand behind it.
    pub behind: Vec<(Party, LockId)>,
    /// Whose requests stand before it and would be in its way, if they did not wait for what its owner holds.
    pub overtaken: Vec<Party>,
    /// Nothing that is held is in its way, only who asked before it.
    pub only_queued: bool,
}
