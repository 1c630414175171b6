//! The ext2 model against a naive one, against e2fsck and debugfs, and under disks that do their worst.
//!
//! A failing case prints its seed, and `SEED=n` runs that case alone; `ROUNDS=n` runs so many, `SOAK=1` a hundred times as many.
#![allow(clippy::unwrap_used)]

mod consistency;
mod judges;
mod observed;
mod on_the_drive;
mod workloads;
