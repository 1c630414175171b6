//! `elbow bark format`: an empty region.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use super::devices::DeviceArgs;
use crate::size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A region for 128 MiB, in the first 512 MiB of a partition:
      elbow bark format /dev/sdb2 --size 128M --factor 4

  Make one anew, and forget what the old one has:
      elbow bark format region.img --size 64M --force

`elbow bark attach` with --size does the same where the device or file is empty.";

#[derive(Args, Debug)]
pub(crate) struct FormatArgs {
    #[command(flatten)]
    devices: DeviceArgs,
    /// Bytes of its content.
    #[arg(long, value_name = "S", value_parser = size::parse)]
    size: u64,
    /// Also where something lies there, a region too: that is lost.
    #[arg(long)]
    force: bool,
}

/// Makes an empty region.
pub(super) fn run(args: &FormatArgs) -> Result<ExitCode> {
    args.devices.check(args.size)?;
    let mut devices = args.devices.open(true, false)?;
    if !args.force {
        let names = devices.names().join(", ");
        if devices.identity()?.is_some() {
            bail!("{names}: a region lies there; --force makes it anew, and what it has is lost");
        }
        devices.check_blank()?;
    }
    drop(devices.format(args.size)?);
    devices.keep();
    Ok(ExitCode::SUCCESS)
}
