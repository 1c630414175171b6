//! The storage behind an SFTP server, where no `elbow` is at the far end.
//!
//! ```text
//!   storage ── files       what is read and written, in pieces
//!    │  │  └── listed      attributes that came with a listing
//!    │ nodes               handles to paths
//!   by_path ── attributes  what is asked by path
//!     why                  "Failure" to an errno
//!   session ── server      requests and their answers; what the server can
//!     wire                 messages
//! ```

mod attributes;
mod by_path;
mod files;
mod listed;
mod nodes;
mod server;
mod session;
mod storage;
mod why;
mod wire;

pub(crate) use session::Session;
pub use storage::SftpStorage;
