//! `elbow bark format`: an empty region.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueHint, value_parser};

use super::site::{FACTOR_MAX, FACTOR_MIN, Site, Wanted};
use crate::size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A region for 128 MiB, in the first 512 MiB of a partition:
      elbow bark format /dev/sdb2 --size 128M --factor 4

  Make one anew, and forget what the old one has:
      elbow bark format region.img --size 64M --force

`elbow bark attach` with --size does the same where the device or file is empty.";

/// A new region.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct FactorArgs {
    /// A new region takes K times its size [default: all of the device or file; of a new file 4 times].
    #[arg(long, value_name = "K", value_parser = value_parser!(u64).range(FACTOR_MIN..=FACTOR_MAX))]
    pub(super) factor: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct FormatArgs {
    /// The block device or file that it lies on; a file is made where there is none.
    #[arg(value_name = "DEV", value_hint = ValueHint::FilePath)]
    on: PathBuf,
    /// Bytes of its content.
    #[arg(long, value_name = "S", value_parser = size::parse)]
    size: u64,
    #[command(flatten)]
    factor: FactorArgs,
    /// Also where something lies there, a region too: that is lost.
    #[arg(long)]
    force: bool,
}

/// Makes an empty region.
pub(super) fn run(args: &FormatArgs) -> Result<ExitCode> {
    let mut site = Site::open(&args.on, true)?;
    if !args.force {
        let name = args.on.display();
        if site.identity()?.is_some() {
            bail!("{name}: a region lies there; --force makes it anew, and what it has is lost");
        }
        site.check_blank()?;
    }
    let bytes = args.size;
    let factor = args.factor.factor;
    drop(site.format(Wanted { bytes, factor })?);
    Ok(ExitCode::SUCCESS)
}
