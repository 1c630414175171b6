//! The lock service as its users find it: `elbow lockd`, `elbow lock`, and clients of the library, each in processes that
//! are killed at the worst moment.

#![allow(clippy::disallowed_methods, clippy::unwrap_used)] // tests look at files themselves, and fail where they must

mod access;
mod breaking;
mod command;
mod crash;
mod exec;
mod guides;
mod hostile;
mod lockd;
mod log;
mod ltp;
mod mpi;
#[path = "../package/mod.rs"]
mod package;
mod preload;
mod proxy;
mod sealed;
mod stopped;
mod uncovered;
mod wait;
