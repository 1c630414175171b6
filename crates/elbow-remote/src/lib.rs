//! The storage at the other end of a connection (floor 2).
//!
//! ```text
//!   near                                                   far
//!   RemoteStorage (a Storage) -- Link ==== ssh(1) ==== Greeted::serve -- any Storage, of a directory there
//!   FarEnd::send (whole work)                               FarWorker::work
//! ```
//!
//! Each call of [`Storage`](elbow_file::Storage) is one request, and any number of them are under way at once; whole pieces of work go
//! there as one ([`FarEnd`](elbow_file::FarEnd)). What the work is, is not known here: who uses this crate carries it out at both ends.
//!
//! Invariants: nothing outside the directory that is served can be reached, whatever the near end asks for (a name is one component, and
//! no link is followed); what either end holds for the other is bounded; when the connection ends, every call that waits fails, and none is
//! sent again.
//!
//! Not here: what becomes of a job whose connection has ended (`elbow serve` sees to that).

mod call;
mod frame;
mod greet;
mod ids;
mod link;
mod message;
mod objects;
mod packing;
mod read_ahead;
mod serve;
mod sftp;
mod ssh;
mod storage;

pub use greet::ConnectError;
pub use ids::SwappedIds;
pub use serve::{Greeted, NearUser, ServeError, greeted};
pub use sftp::SftpStorage;
pub use ssh::{BadTarget, Login, Ssh, SshTarget};
pub use storage::RemoteStorage;
