//! `elbow disk attach`, `status`, `powercut`, `detach`: an emulated drive and the process that serves it.
//!
//! ```text
//!   attach ──starts──> server ──> a file, a block device or NBD
//!   status, powercut, detach ──registry──> its control socket
//! ```

pub(super) mod attach;
pub(super) mod clients;
pub(super) mod options;
mod registry;
mod remains;
mod server;
