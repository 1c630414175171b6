//! Slow storage, fault injection and tree comparison for the tests and benches of Elbowroom.
//!
//! ```text
//!   test or bench ──> slowfs        a FUSE passthrough: a delay, a bandwidth, a limit and faults per operation
//!                 ──> delayproxy    a TCP proxy that delays each direction (under a real sshfs, for example)
//!                 ──> sshbed        a private sshd, the proxy and an sshfs mount in one piece
//!                 ──> pcopy         a tree copied with many threads, the rival to beat
//!                 ──> sortable      inputs for sorts, and whether the output is sorted and a permutation
//!                 ──> thin_disk     a disk that has less room than it says
//!                 ──> cases         random cases that can be replayed
//!                 ──> program       a program that a test writes and runs at once
//!                 ──> reachable     a program where every user can start it
//!                 ──> differ        random system calls, natively and in a job: what differs, made small
//!                 ──> oracle        what clients of a lock service believed to hold, and whether that can be
//!                 ──> tree          what is below a directory, comparable, with a readable difference
//! ```
//!
//! A dev-dependency only: nothing that ships depends on this crate, and it depends on none of the others, so that what
//! it says about them is independent evidence.

// The rule that storage is reached only through one trait is for the engine; here is the storage itself.
#![allow(clippy::disallowed_methods)]

pub mod cases;
pub mod delayproxy;
pub mod differ;
pub mod duration;
pub mod oracle;
pub mod pcopy;
pub mod program;
pub mod reachable;
pub mod signals;
pub mod slowfs;
pub mod sortable;
pub mod sshbed;
pub mod thin_disk;
pub mod tree;
