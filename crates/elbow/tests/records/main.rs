//! `elbow sort` for fixed-size records, as a command: killed, stopped, misused, on full and on small disks.
//!
//! `ROUNDS=n` kills n times (at most 2,100), `SEED=n` repeats the inputs and the moments of a run; `SOAK=1` adds what takes a gigabyte.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

#[allow(dead_code)] // what other tests need of it
#[path = "../../../elbow-file/tests/disk/mod.rs"]
mod disk;
mod elsewhere;
mod full_disk;
mod kills;
mod refusals;
mod small_disk;
mod stops;
mod testbed;
