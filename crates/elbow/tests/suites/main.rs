//! The test suites of others, natively and in a job over the same storage, compared case by case: pjdfstest (Rust and C), fsx, fio with verification,
//! and the file-system class of stress-ng, on ext4 and on slow storage.
//!
//! Every difference stands in `docs/src/reference/outside-suites.md` with its reason, and the tests fail on one that does not stand there, as on
//! one that stands there and is none any more.
//!
//! The gate runs pjdfstest and a little of fsx on ext4; `SOAK=1` runs all. None of their code is here: `scripts/setup.sh test` brings pjdfstest and
//! fsx from crates.io, `scripts/setup.sh soak` fio and stress-ng from Debian; `PJDFSTEST=DIR` names a directory with pjdfstest in C, built.
//!
//! The tests need root, `/dev/fuse` and loop devices.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

#[allow(dead_code)] // what other tests need of it
#[path = "../mounted/commands.rs"]
mod commands;
mod content;
#[allow(dead_code)]
#[path = "../mounted/loop_disk.rs"]
mod loop_disk;
mod posix;
mod stress;
mod table;
mod testbed;
