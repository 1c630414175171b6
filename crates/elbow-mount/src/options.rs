//! How a front end is to serve its job.

use std::ffi::OsString;

/// What a front end has to know besides its job.
#[derive(Clone, Debug, Default)]
pub struct FrontOptions {
    /// Value of [`CONTROL_XATTR`](crate::CONTROL_XATTR) on the root; `None`: there is no such attribute.
    pub control: Option<OsString>,
    /// fsync(2) may block until data is on the storage, so it must not keep the reader thread.
    pub durable: bool,
}
