//! The real binary on a real mount: what a command does inside a job is what it does without one.
//!
//! Each test runs a shell script natively and then, on the same tree at the same path, through `elbow run`, and
//! compares the trees; or it lets a job fail and asserts that nothing of it is visible. The scripts run with these
//! variables: `WORK`, the directory of the job and their current directory, and `OUT`, a directory outside of it.
//!
//! The tests need root, `/dev/fuse` and the programs that `scripts/setup.sh test` installs.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

mod archives;
mod attributes;
mod boundary;
mod builds;
mod by_ssh;
mod commands;
mod connection;
mod databases;
mod encrypted;
mod failure;
mod hostile;
mod kept;
mod killed;
mod kills;
mod liveness;
mod log;
mod loop_disk;
mod moments;
mod mounts;
mod nested;
mod ordinary_user;
mod passed;
mod posix;
mod refused;
mod refusing;
mod replace;
mod screen;
mod side_by_side;
mod slow_storage;
mod storage_side;
mod subvolumes;
mod surroundings;
mod test_dir;
mod testbeds;
mod trace;
mod via;
mod via_around;
mod via_owners;
mod via_sftp;
