//! `elbow disk`: a simulated rotating disk, and an emulated one.
//!
//! ```text
//!   describe    what a drive is             replay    a trace against it, with what was measured beside
//!   import      a drive from a parameter file of DiskSim
//!   simulate    a random load on it, by one of several schedulers
//!   files       a trace of file operations on the model of ext2 above it
//!   figure      the study of range writes again, with a verdict on each claim
//!   attach      the model in real time, as a device; status, powercut, detach
//! ```

mod colours;
mod describe;
mod drive;
pub(crate) mod figure;
mod files;
mod import;
mod input;
pub(crate) mod picture;
mod replay;
mod show;
mod simulate;
mod spread;
mod table;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use drive::{attach, clients, options};

pub(crate) const EXAMPLES: &str = "\
Examples:
  The zones, seek times and cache of a drive:
      elbow disk describe hp-c2247a

  A beginning for the description of another drive:
      elbow disk describe hp-c2247a --toml > mine.toml

  A drive of DiskSim, from its own files:
      elbow disk import valid/cheetah9LP.parv > cheetah9LP.toml

  Platter and head while three requests are served:
      elbow disk simulate --show --lbns 90,2000000,30000

  What the requests of a trace would take there:
      elbow disk replay --disk mine.toml --format blktrace sda.txt

  Random writes, and where their time goes:
      elbow disk simulate --depth 16 --scheduler sptf

  A slow disk to try programs on, as a block device:
      elbow disk attach --model hp-c2247a --backing disk.img

  What a program's calls would take on ext2 there, with and without ranges:
      elbow disk files --format strace --below /t --compare calls

  What range writes buy, in eleven figures:
      elbow disk figure all --out study

Drives that need no file: hp-c2247a (1 GB, 5400 rpm, checked against a real one), generic-7200, nine of DiskSim's that were \
validated there, and, of published figures, ultrastar-he12 (12 TB, SATA) and archive-8tb (shingled); `elbow disk describe` lists them.";

#[derive(Debug, Subcommand)]
pub(crate) enum DiskArgs {
    /// Show what a drive is: geometry, zones, seek times, cache.
    #[command(after_help = describe::EXAMPLES)]
    Describe(describe::DescribeArgs),
    /// Take over a drive from a parameter file of DiskSim.
    #[command(after_help = import::EXAMPLES)]
    Import(import::ImportArgs),
    /// Serve the requests of a trace on a simulated drive, and compare with what was measured.
    #[command(after_help = replay::EXAMPLES)]
    Replay(replay::ReplayArgs),
    /// Serve random requests on a simulated drive, and say where the time goes.
    #[command(after_help = simulate::EXAMPLES)]
    Simulate(Box<simulate::SimulateArgs>),
    /// Replay a trace of file operations on ext2 above a simulated drive, with classic allocation or range writes.
    #[command(after_help = files::EXAMPLES)]
    Files(Box<files::FilesArgs>),
    /// Make the figures of the study of range writes again, and judge its claims.
    #[command(after_help = figure::EXAMPLES)]
    Figure(Box<figure::FigureArgs>),
    /// Attach an emulated drive: a modelled disk in real time, as a block device, a file or NBD.
    #[command(after_help = attach::EXAMPLES)]
    Attach(Box<options::AttachArgs>),
    /// Say what an emulated drive has done, and how late its answers were.
    #[command(after_help = clients::STATUS_EXAMPLES)]
    Status(clients::StatusArgs),
    /// Cut the power of an emulated drive: what was not flushed is lost, in any part.
    #[command(after_help = clients::POWERCUT_EXAMPLES)]
    Powercut(clients::PowercutArgs),
    /// Take an emulated drive away.
    #[command(after_help = clients::DETACH_EXAMPLES)]
    Detach(clients::DetachArgs),
}

/// Does what was asked.
pub(crate) fn run(args: &DiskArgs) -> Result<ExitCode> {
    match args {
        DiskArgs::Describe(args) => describe::run(args),
        DiskArgs::Import(args) => import::run(args),
        DiskArgs::Replay(args) => replay::run(args),
        DiskArgs::Simulate(args) => simulate::run(args),
        DiskArgs::Files(args) => files::run(args),
        DiskArgs::Figure(args) => figure::run(args),
        DiskArgs::Attach(args) => attach::run(args),
        DiskArgs::Status(args) => clients::status(args),
        DiskArgs::Powercut(args) => clients::powercut(args),
        DiskArgs::Detach(args) => clients::detach(args),
    }
}
