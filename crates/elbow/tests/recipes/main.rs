//! What the README, the recipes of the guides and `action.yml` tell people to run, run as it stands there, with the programs that they
//! are about: GNU parallel, a Slurm of one node, Snakemake, Nextflow, and the steps of the action as GitHub's runner starts them.
//!
//! Each page is played from its first command to its last in one directory; between them a test does what a user or a
//! batch system would: it takes away the cause of a failure, sends a signal, takes the node for another job. So what
//! a page claims to happen then is what is asserted.
//!
//! The programs are those that `scripts/setup.sh test` brings. Without Nextflow, which is in no package of Debian, its page is not played.

#![allow(clippy::disallowed_methods)] // tests look at the storage themselves

mod action;
mod ground;
mod nextflow;
mod page;
mod parallel;
mod readme;
mod slurm;
mod slurm_cluster;
mod snakemake;
