//! What the log tells of an action of the background: what it did to which object, for how long, and what came of it.
//!
//! Nobody listens, most of the time: then this is one load, and no path is looked for.

use std::path::PathBuf;
use std::time::Duration;

use elbow_file::Errno;
use tracing::span::EnteredSpan;
use tracing::{Span, debug, debug_span};

/// An action that is about to be executed.
pub(crate) struct ActionSpan(Span);

impl ActionSpan {
    /// `path` is only asked for if somebody listens.
    pub(crate) fn of(operation: &'static str, path: impl FnOnce() -> PathBuf) -> Self {
        Self(debug_span!("action", operation, path = ?path()))
    }

    /// All that is logged until it is dropped is of this action.
    pub(crate) fn begin(self) -> EnteredSpan {
        self.0.entered()
    }
}

impl ActionSpan {
    /// What came of an action that was carried out elsewhere.
    pub(crate) fn ended(self, result: Result<u64, Errno>, took: Duration) {
        let _telling = self.begin();
        ended(result, took);
    }
}

/// What came of the action that was begun: the number of storage calls, or why it was refused.
pub(crate) fn ended(result: Result<u64, Errno>, took: Duration) {
    match result {
        Ok(calls) => debug!(calls, ?took, "done"),
        Err(errno) => debug!(%errno, ?took, "refused"),
    }
}
