//! What releases and syncs of a store keep from one to the next.

use super::bitmap::Versions;

/// What releases and syncs keep from one to the next.
pub(crate) struct ReleaseState {
    pub(super) versions: Versions,
    /// The file system cannot punch.
    pub(super) cannot_punch: bool,
}

impl ReleaseState {
    pub(crate) fn new(versions: Versions) -> Self {
        Self {
            versions,
            cannot_punch: false,
        }
    }
}
