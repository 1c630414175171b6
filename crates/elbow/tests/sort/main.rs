//! `elbow sort` for text: the same as `LC_ALL=C sort`, byte for byte, and as a command.
//!
//! The reference is the sort(1) of coreutils 9.1. `ROUNDS=n` runs n random cases, `SEED=n` repeats those of a run.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

mod command;
mod csv;
mod differential;
mod generate;
mod lost_writes;
mod report;
mod stage;
