//! What `elbow` itself promises: refusals that name a way out, exit codes, JSON, signals, the life of a mount.
//!
//! What a command may do inside a job is tested in `mounted`. These tests need root, `/dev/fuse`, `unshare` and
//! `setpriv`; each bad situation is made in a mount namespace of its own.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

mod applications;
mod asking;
mod completions;
mod consume;
mod doctor;
mod install;
mod interruption;
mod lifecycle;
mod messages;
mod options;
mod output;
mod programs;
mod reading;
mod refusals;
mod settings;
mod setup;
mod stage;
mod stall;
mod version;
mod watching;
mod zero;
