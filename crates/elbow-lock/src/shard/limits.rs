//! What a shard may grow to.

use crate::message::Refusal;

/// The bounds of a shard: beyond them requests are refused with [`Refusal::Full`], which names the bound.
///
/// ```
/// let limits = elbow_lock::Limits { queue_per_file: 64, ..Default::default() };
/// assert_eq!(limits.locks_per_session, 65_536);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Locks of a session, held and waiting; each piece of a POSIX lock counts. A proxy's session carries a whole node.
    pub locks_per_session: usize,
    /// Memory for the lists and bitmaps of a session's locks, in bytes. Single patterns and extents are free.
    pub list_bytes_per_session: usize,
    /// Requests that wait for one file: what one event may have to look through.
    pub queue_per_file: usize,
    /// Files with locks.
    pub files: usize,
    /// How long a [`Wait::Try`](crate::Wait::Try) waits when nothing but locks with `recall` are in its way, in ms. A
    /// holder who does not need its lock gives it back in this time, and the try succeeds, as it would have if the lock
    /// had not been kept. With 0 it is refused at once.
    pub recall_ms: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            locks_per_session: 1 << 16,
            list_bytes_per_session: 64 << 20,
            queue_per_file: 4096,
            files: 1 << 20,
            recall_ms: 50,
        }
    }
}

pub(super) fn full(limit: &str) -> Refusal {
    Refusal::Full {
        limit: limit.to_owned(),
    }
}
