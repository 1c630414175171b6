//! `elbow bark log`: a log of lines on a zoned device.

use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::{Args, ValueHint};
use elbow_disk::region::{Log, Lsn, RegionError};
use elbow_disk::zoned::{FIXED_SECTORS, ZonedDevice};
use elbow_file::range_device::{Blocking, RangeDevice};
use elbow_file::zoned::{KernelZones, ZoneState, ZonedStorage};

use super::devices::random;
use crate::output::answer;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A log on a zoned device (as root):
      elbow bark log /dev/nvme0n1 --format

  A line is an entry; its number is printed when it is durable:
      printf 'debit 5\\ncredit 5\\n' | elbow bark log /dev/nvme0n1 --append

  What is there, each entry behind its number and a tab; also after a crash:
      elbow bark log /dev/nvme0n1

  Give up what is before an entry, so that zones become free:
      elbow bark log /dev/nvme0n1 --truncate 2

A zoned device (NVMe ZNS, host-managed SMR) is written in order, zone by zone, and freed by whole zones; /sys/block/NAME/queue/zoned says what a device is. \
Two zones are for the headers where none is conventional, and one is kept so that a full log can be truncated.";

#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    /// The zoned block device.
    #[arg(value_name = "DEV", value_hint = ValueHint::FilePath)]
    device: PathBuf,
    /// Make an empty log of the whole device.
    #[arg(long, group = "action")]
    format: bool,
    /// Append each line of the standard input, durably.
    #[arg(long, group = "action")]
    append: bool,
    /// Give up all entries before this one.
    #[arg(long, group = "action", value_name = "LSN")]
    truncate: Option<u64>,
    /// With --format, also where something lies there: that is lost.
    #[arg(long, requires = "format")]
    force: bool,
}

type Device = ZonedDevice<KernelZones>;

/// Does what was asked; without an action, prints what is there.
pub(super) fn run(args: &LogArgs) -> Result<ExitCode> {
    let name = args.device.display();
    let device = open(&args.device)?;
    if args.format {
        format(device, args.force).with_context(|| format!("cannot make a log on {name}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut log = Log::open(device).with_context(|| format!("cannot open the log on {name}"))?;
    let done = match args.truncate {
        Some(lsn) => truncate(&mut log, Lsn(lsn)),
        None if args.append => append(&mut log),
        None => print(&mut log),
    };
    done.with_context(|| name.to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn open(path: &Path) -> Result<Device> {
    let name = path.display();
    let zones = KernelZones::open(path).with_context(|| format!("cannot take {name} for a log"))?;
    ZonedDevice::open(zones).with_context(|| format!("cannot take {name} for a log"))
}

fn format(mut device: Device, force: bool) -> Result<()> {
    if !force {
        check_blank(&mut device)?;
    }
    Ok(Log::format(device, random()?).map(drop)?)
}

/// Refuses where something lies: in a zone that is written in order, or where the headers go.
fn check_blank(device: &mut Device) -> Result<()> {
    let zones = device.storage().report().map_err(io::Error::from)?;
    let is_written = |state| !matches!(state, ZoneState::Conventional | ZoneState::Empty);
    let written = zones.iter().filter(|zone| is_written(zone.state)).count();
    let first = Blocking::new(device as &mut dyn RangeDevice).read(0, FIXED_SECTORS)?;
    ensure!(
        written == 0 && first.iter().all(|&byte| byte == 0),
        "something lies there, in {written} of its {} zones; --force makes a log of it, and what is there is lost",
        zones.len()
    );
    Ok(())
}

fn append(log: &mut Log<Device>) -> Result<()> {
    let most = log.entry_bytes_max();
    let mut lines = io::stdin().lock();
    loop {
        let mut line = Vec::new();
        // One byte more than an entry has, and the end of the line.
        let read = lines.by_ref().take(most + 2).read_until(b'\n', &mut line);
        if read.context("the standard input")? == 0 {
            return Ok(());
        }
        let entry = line.strip_suffix(b"\n").unwrap_or(&line);
        let lsn = match log.append(entry) {
            Err(RegionError::Full { .. }) => {
                bail!("the log is full, and this line was not appended: give up old entries by --truncate LSN")
            }
            appended => appended?,
        };
        log.sync()?;
        answer(lsn)?;
    }
}

fn truncate(log: &mut Log<Device>, lsn: Lsn) -> Result<()> {
    let (start, end) = (log.start(), log.end());
    ensure!(
        (start..=end).contains(&lsn),
        "the log has entries from {start} to {end}, and {lsn} is none of them"
    );
    log.truncate_before(lsn)?;
    Ok(log.sync()?)
}

fn print(log: &mut Log<Device>) -> Result<()> {
    let mut out = io::stdout().lock();
    for entry in log.iter_from(Lsn(0)) {
        let (lsn, bytes) = entry?;
        let written = write!(out, "{lsn}\t").and_then(|()| out.write_all(&bytes));
        match written.and_then(|()| out.write_all(b"\n")) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            written => written.map_err(|error| anyhow!(error).context("the standard output"))?,
        }
    }
    Ok(())
}
