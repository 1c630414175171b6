//! What a shard may grow to, and the words in which it says so.

use crate::message::Refusal;

/// The bounds of a shard: beyond them requests are refused with [`Refusal::Full`], which names the bound and the option of `elbow lockd serve`
/// that raises it.
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
    /// Memory for everything that clients make a service keep, in bytes: locks and requests with their lists, names of files, and what is
    /// under way in either direction. Of all shards together, where they share one [`Memory`](crate::Memory).
    pub memory_bytes: usize,
    /// Longest request, in bytes: a list without any pattern takes about four for each range.
    pub request_bytes: usize,
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
            memory_bytes: 1 << 30,
            request_bytes: REQUEST_BYTES,
            recall_ms: 50,
        }
    }
}

/// Longest request that a service takes unless it is told otherwise: a list of 250,000 ranges without any pattern in it.
const REQUEST_BYTES: usize = 1 << 20;

impl Limits {
    pub(super) fn full_session(&self) -> Refusal {
        full(
            &format!("{} locks of one session", self.locks_per_session),
            "--client-locks",
        )
    }

    pub(super) fn full_lists(&self) -> Refusal {
        let what = format!("{} bytes of lists of one session", self.list_bytes_per_session);
        full(&what, "--client-memory")
    }

    pub(super) fn full_queue(&self) -> Refusal {
        full(
            &format!("{} requests in the queue of one file", self.queue_per_file),
            "--queue",
        )
    }

    pub(super) fn full_files(&self) -> Refusal {
        full(&format!("{} files", self.files), "--files")
    }

    /// The memory of the service is used up.
    pub(crate) fn full_memory(&self) -> Refusal {
        let what = format!("{} bytes of memory for all locks and requests", self.memory_bytes);
        full(&what, "--memory")
    }

    /// A request of so many bytes is longer than it may be.
    #[cfg(feature = "server")]
    pub(crate) fn full_request(&self, bytes: usize) -> Refusal {
        let what = format!("{} bytes of one request (this one has {bytes})", self.request_bytes);
        full(&what, "--request")
    }
}

/// A limit, and the option that raises it.
fn full(limit: &str, option: &str) -> Refusal {
    let limit = format!("{limit}; {option} of elbow lockd serve raises it");
    Refusal::Full { limit }
}

/// A limit that no option raises.
pub(super) fn exhausted(limit: &str) -> Refusal {
    let limit = limit.to_owned();
    Refusal::Full { limit }
}
