//! The FUSE front end of a job and the private mount namespace that it is seen in (floor 3).
//!
//! ```text
//!   command ── system call ──> kernel ── /dev/fuse ──> Front ── operation ──> elbow_job::Job
//!      │                                                  (fuser's one reader thread, or a pool when it has to wait)
//!      └─ lives in a mount namespace of its own, where DIR is the FUSE mount; everybody else sees DIR as it is
//! ```
//!
//! - [`Front`] turns kernel requests into operations of the job and answers back. It has no policy.
//! - [`Connection`] is a FUSE mount: attached nowhere yet, or at a path; [`Session`] serves it.
//! - [`Entrance`] puts a child process into a namespace in which connections lie over their directories.
//! - [`Place`] checks a directory before anything is started and says what is wrong with it.
//!
//! This crate decides nothing about commits, exit codes or output.

mod ahead;
mod asking;
mod connection;
mod convert;
mod front;
mod namespace;
mod nodes;
mod open_dirs;
mod place;
mod pool;
mod prefetch;
mod reply;
mod runtime;
mod session;
mod siblings;

pub use connection::{Connection, unmount};
pub use front::{CONTROL_XATTR, Front, FrontOptions};
pub use namespace::{ChildState, Entrance, Report, Step};
pub use place::{MountError, Place, nested_mounts};
pub use runtime::runtime_parents;
pub use session::Session;
