//! Block devices that a process of ours serves in the background: emulated drives and regions.
//!
//! ```text
//!   attach ──starts──> server ──> a file, a block device or NBD
//!   status, detach and others ──registry──> its control socket
//! ```

pub(crate) mod cleanup;
pub(crate) mod registry;
mod remains;
pub(crate) mod server;
