//! A request of the kernel as the log tells of it: what is asked for, of which path, by whom, and what it is answered.
//!
//! A request that waits for the storage says so before it waits: in a mount that hangs, it is the one without an answer.
//!
//! Nobody listens, most of the time: then a request costs one load more, and no path is looked for.

use std::time::Instant;

use elbow_file::Errno;
use elbow_job::Fetch;
use tracing::{Span, debug};

/// A request that has no answer yet.
pub(crate) struct PendingReply {
    span: Span,
    /// When it came, where somebody listens.
    arrived: Option<Instant>,
}

impl PendingReply {
    pub(crate) fn new(span: Span) -> Self {
        let arrived = (!span.is_disabled()).then(Instant::now);
        Self { span, arrived }
    }

    /// What is logged while this is done is about the request.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        self.span.in_scope(work)
    }

    /// It cannot be answered from memory.
    pub(crate) fn waits_for(&self, fetch: &Fetch) {
        if self.arrived.is_some() {
            self.within(|| debug!(storage = ?fetch, "waits"));
        }
    }

    /// The answer, on its way to the kernel.
    pub(crate) fn told<T>(&self, answer: Result<T, Errno>) -> Result<T, Errno> {
        if let Some(arrived) = self.arrived {
            let took = arrived.elapsed();
            self.within(|| match &answer {
                Ok(_) => debug!(?took, "answered"),
                Err(errno) => debug!(%errno, ?took, "refused"),
            });
        }
        answer
    }
}

/// A request: what is asked for, by whom, of which path, and further fields.
macro_rules! asked {
    ($what:literal, $request:expr, $path:expr $(, $($fields:tt)*)?) => {
        $crate::pending_reply::PendingReply::new(tracing::debug_span!(
            "request",
            what = $what,
            pid = $request.pid(),
            path = ?$path,
            $($($fields)*)?
        ))
    };
}

pub(crate) use asked;
