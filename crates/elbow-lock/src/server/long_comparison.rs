//! Requests that take long to compare with others' locks: compared by a thread of their own, before the shard is locked for them.
//!
//! ```text
//!   apply ---> shard: what takes long? ---> none: granted, queued or refused in this step
//!     ^                                '--> some: compared here, outside of it, and applied again with what is known now
//!     '---------------------------------------'
//! ```
//!
//! While a request is compared, its connection's other requests wait for it, and nobody else does. Few are compared at a time, so that
//! the others have processors left.
//!
//! Not here: what is compared (`Shard::long_comparisons`).

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::message::Request;
use crate::table::{Comparison, KnownOverlaps};

/// Steps of one comparison that the shard may be locked for; some nanoseconds each.
pub(crate) const STEPS_LOCKED_MAX: u64 = 256;
/// Steps of all comparisons of a request that are not worth another thread.
const STEPS_AT_ONCE_MAX: u64 = 1 << 14;

/// A request, and what it has to be compared with first.
#[derive(Debug)]
pub(crate) struct LongComparison {
    pub(crate) request: Request,
    pub(crate) known: KnownOverlaps,
    pub(crate) comparisons: Vec<Comparison>,
    /// How many may be compared at one time.
    pub(crate) turns: Arc<Semaphore>,
}

impl LongComparison {
    /// The request again, and what is known now. None when the service ends meanwhile.
    pub(crate) async fn compare(self) -> Option<(Request, KnownOverlaps)> {
        if self.steps() <= STEPS_AT_ONCE_MAX {
            return Some(self.compare_here());
        }
        let _turn = Arc::clone(&self.turns).acquire_owned().await.ok()?;
        tokio::task::spawn_blocking(|| self.compare_here()).await.ok()
    }

    fn steps(&self) -> u64 {
        let Some((_, _, footprint)) = self.request.list() else {
            return 0;
        };
        self.comparisons.iter().map(|other| other.cost(footprint)).sum()
    }

    pub(crate) fn compare_here(self) -> (Request, KnownOverlaps) {
        let Self {
            request,
            mut known,
            comparisons,
            ..
        } = self;
        if let Some((_, _, footprint)) = request.list() {
            known.learn(footprint, &comparisons);
        }
        (request, known)
    }
}
