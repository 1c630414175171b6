//! List locks (floor 2): who may touch which bytes of a file.
//!
//! ```text
//!   clients --------- wire ---------- server ------- shard ------- table
//!   blocking, tokio   frames of       sockets,       many files,   one file: holds and queue
//!   (or through a     messages        sessions,      sessions'
//!   node's proxy)                     leases         ends
//! ```
//!
//! A noncontiguous access locks exactly the ranges that it touches, in one request that is granted whole or queued
//! whole: two accesses that touch different bytes never wait for each other, and those that do are atomic. The table,
//! the shard and the leases are pure: no clock, thread or socket, so that the whole service runs in a simulation.
//!
//! Source: Aarestad, Ching, Thiruvathukal, Choudhary, *Scalable Approaches for Supporting MPI-IO Atomicity*.

mod address;
mod client;
mod credentials;
mod deadlock;
mod error;
mod hello;
mod lease;
mod memory;
mod message;
#[cfg(feature = "server")]
pub mod proxy;
#[cfg(feature = "server")]
pub mod server;
mod shard;
mod table;
pub mod wire;

pub use address::{ADDRESS_VARIABLE, Address, BadAddress, KEY_VARIABLE};
pub use client::{
    Call, Canceller, Client, ClientCore, Disconnected, Hold, Identity, Link, LinkNumber, Opened, Options, PendingLock,
    Posix, RECONNECT_MS, Receive, Received, ReplyEffects, Standing, TTL_MS_TCP, Taken, UnknownIdentity, file_name,
    now_ms, unstable_inodes_at,
};
pub use credentials::{BadCredentials, Credentials, KEY_BYTES_MIN};
pub use deadlock::{Deadlock, find_deadlock, resolve, resolve_after};
pub use error::LockError;
pub use hello::{MAGIC, PROTOCOL_NEWEST, PROTOCOL_VERSION, UpstreamSilent};
pub use lease::{ClientLease, LEASE_MS_MIN, Leases, margin_ms};
pub use memory::Memory;
pub use message::{
    Blocker, FILE_NAME_BYTES_MAX, FileLocks, FileName, LockId, LockInfo, LockMode, LockRequest, Owner, PosixRequest,
    QueryRequest, ReassertRequest, Refusal, Reply, Request, SessionId, Token, Wait,
};
pub use shard::{Action, FileStatus, Limits, LockStatus, Shard, Totals, WaitFor};
pub use table::{Comparison, KnownOverlaps, Party};
