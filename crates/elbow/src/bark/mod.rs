//! `elbow bark`: a write-ahead region on a device, whose writes go where the device is quickest.
//!
//! ```text
//!   format      make a region      attach      offer its content as a device; status, detach
//!   devices      the devices that it lies on: one, several that share it, several with a copy each (`locked_device` is one of them,
//!               `placement` the profile by which its places are chosen)
//!   log         a log on a zoned device
//!   profile     measure which place of a device is quickest next
//! ```

mod attach;
mod clients;
mod devices;
mod format;
mod known;
mod locked_device;
mod log;
mod picture;
mod placement;
mod profile;
mod target;
mod watched;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A journal for ext4 that never waits for a rotation (as root):
      JOURNAL=$(elbow bark attach region.img --size 64M)
      mke2fs -q -O journal_dev $JOURNAL
      mkfs.ext4 -J device=$JOURNAL /dev/sdb1

  What it has done, and taking it away:
      elbow bark status $JOURNAL
      elbow bark detach $JOURNAL

  What a write costs on a disk, and which place is the quickest next:
      elbow bark profile /dev/sdb";

#[derive(Debug, Subcommand)]
pub(crate) enum BarkArgs {
    /// Attach a region: its content as a block device, a file or NBD; where there is none yet it is made.
    #[command(after_help = attach::EXAMPLES)]
    Attach(attach::AttachArgs),
    /// Make an empty region on a device or file.
    #[command(after_help = format::EXAMPLES)]
    Format(format::FormatArgs),
    /// A log of lines on a zoned device: make one, append, read, truncate.
    #[command(after_help = log::EXAMPLES)]
    Log(log::LogArgs),
    /// Say what an attached region has done.
    #[command(after_help = clients::STATUS_EXAMPLES)]
    Status(clients::StatusArgs),
    /// Take an attached region away.
    #[command(after_help = clients::DETACH_EXAMPLES)]
    Detach(clients::DetachArgs),
    /// Measure what a write costs on a device or in a file, by skip distance and think time.
    #[command(after_help = profile::EXAMPLES)]
    Profile(profile::ProfileArgs),
}

/// Does what was asked.
pub(crate) fn run(args: &BarkArgs) -> Result<ExitCode> {
    match args {
        BarkArgs::Attach(args) => attach::run(args),
        BarkArgs::Format(args) => format::run(args),
        BarkArgs::Log(args) => log::run(args),
        BarkArgs::Status(args) => clients::status(args),
        BarkArgs::Detach(args) => clients::detach(args),
        BarkArgs::Profile(args) => profile::run(args),
    }
}
