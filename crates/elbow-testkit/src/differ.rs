//! A differential fuzzer of `elbow run` against the native file system.
//!
//! ```text
//!   seed ──draw──> case ──┬── native run on one copy of the old tree ──┐
//!                         └── elbow run  on another                  ──┴──compare──> findings ──shrink──> a small script
//! ```
//!
//! A case is an old tree and some hundred system calls of several processes and users, in one order ([`case`]). What each call answers, what is seen
//! at the end from inside, and what is stored afterwards has to be the same; a job whose command fails has to leave the old tree.
//! Everything that two runs cannot have in common is made equal in one place ([`answer`]). Differences that SEMANTICS.md lists as limits are
//! listed in one table ([`known`]) and counted.
//!
//! What it does not do: crashes, storage that fails, other writers beside a job. There are other tests for those.

#![allow(clippy::disallowed_methods)] // It calls the file system itself: that is what it is for.

mod acl;
mod act;
pub mod actor;
pub mod answer;
pub mod call;
pub mod campaign;
pub mod case;
pub mod compare;
pub mod draw;
pub mod ground;
pub mod known;
pub mod look;
pub mod old;
pub mod plant;
pub mod shrink;
pub mod trial;
pub mod word;
