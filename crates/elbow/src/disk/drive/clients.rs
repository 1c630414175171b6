//! `elbow disk status`, `powercut` and `detach`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use elbow_drive::CutReport;
use serde::Serialize;

use super::known::{Answer, Ask, AttachedDrive, DRIVES, Status};
use super::server;
use crate::attached::cleanup::clean_up;
use crate::attached::registry::{Listed, Place, Request, alive, all, find};
use crate::output::answer;
use crate::size;

pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  What a drive has done, and how late its answers were:
      elbow disk status /dev/loop0

  All that are attached:
      elbow disk status

  For programs:
      elbow disk status /dev/loop0 --json | jq .lateness_us.p99

Lateness is how long after the model's moment an answer was given, response what a request took in the model. Both are of all requests \
since the drive was attached.";

pub(crate) const POWERCUT_EXAMPLES: &str = "\
Examples:
  Is what my program says is stored there afterwards?
      ./my-program /mnt/data
      elbow disk powercut /dev/loop0
      mount /dev/loop0 /mnt && ./check /mnt/data

  Writes under way are found in part; the same again, by its seed:
      elbow disk powercut /dev/loop0 --torn --seed 7

Each write that was not flushed is found, or lost, by itself, whatever came after it; with --torn, of some only some sectors are found. What was flushed stays. \
File systems that are mounted from a block device are not mounted any more, who has the file open gets EIO, clients of NBD are disconnected; then the drive is as after \
power on.";

pub(crate) const DETACH_EXAMPLES: &str = "\
Examples:
  Take a drive away, and see how late it was:
      umount /mnt
      elbow disk detach /dev/loop0

Refused while the device is in use or the file is open, or the backing file cannot take what was written; clients of NBD are disconnected. All that was written is then in the backing file, and synced.

Exit code:
  0; 125 where that was not possible, or an answer was later than --max-lateness of `elbow disk attach` allows.

Of a drive whose process has died, what it has left is taken away.";

const STATUS: Request<Ask> = Request::Status;
const DETACH: Request<Ask> = Request::Detach;

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// The drive, as attach printed it; without it, all are listed.
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PowercutArgs {
    /// The drive, as attach printed it.
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Of some writes only some sectors are found.
    #[arg(long)]
    torn: bool,
    /// Decides what is lost [default: another each time, and printed].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DetachArgs {
    /// The drive, as attach printed it.
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Print one JSON object: its last status, or what was attached.
    #[arg(long)]
    json: bool,
}

/// Says what a drive has done.
pub(in crate::disk) fn status(args: &StatusArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, args.device.as_deref().map(Path::new), tell_status(args))
}

fn tell_status(args: &StatusArgs) -> Result<ExitCode> {
    let Some(device) = &args.device else {
        return list(all(DRIVES), args.json);
    };
    let (place, attached) = alive::<AttachedDrive>(DRIVES, device)?;
    show(&place.ask(&attached.device, STATUS)?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Cuts the power of a drive.
pub(in crate::disk) fn powercut(args: &PowercutArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, Path::new(&args.device), cut(args))
}

fn cut(args: &PowercutArgs) -> Result<ExitCode> {
    let (place, attached) = alive::<AttachedDrive>(DRIVES, &args.device)?;
    let torn = args.torn;
    let seed = args.seed.map_or_else(any_seed, Ok)?;
    let ask = Ask::PowerCut { torn, seed };
    let Answer::PowerCut(report) = place.ask(&attached.device, Request::Own { ask })? else {
        bail!("{}: another answer", attached.device);
    };
    match args.json {
        true => answer(crate::json::line(&Cut {
            device: &attached.device,
            report,
        })?)?,
        false => answer(format_args!(
            "{}: {} write(s) not flushed: {} kept, {} lost, {} torn (--seed {})",
            attached.device, report.unflushed, report.kept, report.lost, report.torn, report.seed
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Cut<'a> {
    device: &'a str,
    #[serde(flatten)]
    report: CutReport,
}

/// Short enough to be typed.
fn any_seed() -> Result<u64> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u32::from_le_bytes(bytes).into())
}

/// Takes a drive away.
pub(in crate::disk) fn detach(args: &DetachArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, Path::new(&args.device), take_away(args))
}

fn take_away(args: &DetachArgs) -> Result<ExitCode> {
    let (place, attached) = find::<AttachedDrive>(DRIVES, &args.device)?;
    if place.is_dead() {
        return clean_up(&place, &attached, args.json, "what was not flushed is lost");
    }
    let last = place.ask(&attached.device, DETACH)?;
    show(&last, args.json)?;
    Ok(ExitCode::from(server::code(&last)))
}

/// All drives, for programs.
#[derive(Serialize)]
struct Drives {
    drives: Vec<Listed<AttachedDrive>>,
}

fn list(all: Vec<(Place, AttachedDrive)>, as_json: bool) -> Result<ExitCode> {
    if as_json {
        let drives = all.into_iter().map(Listed::of).collect();
        answer(crate::json::line(&Drives { drives })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        answer("no drives are attached")?;
    }
    for (place, attached) in all {
        let state = if place.is_dead() {
            "its process has died"
        } else {
            "attached"
        };
        answer(format_args!(
            "{}  {}, {}, {}: {state}",
            attached.device,
            attached.model,
            size::show(attached.bytes),
            attached.backing
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(reply: &Answer, json: bool) -> Result<()> {
    let Answer::Status(status) = reply else {
        bail!("another answer than a status");
    };
    match json {
        true => answer(crate::json::line(status)?)?,
        false => lines(status).iter().try_for_each(answer)?,
    }
    Ok(())
}

fn lines(status: &Status) -> Vec<String> {
    let Status { attached, done } = status;
    let (late, took) = (&done.lateness_us, &done.response_ms);
    let mut lines = vec![
        format!(
            "{}: {}, {} in {}",
            attached.device,
            attached.model,
            size::show(attached.bytes),
            attached.backing
        ),
        format!(
            "  {}, {}, a depth of {}",
            attached.cache, attached.scheduler, attached.depth
        ),
        format!(
            "  {} answers: {} reads, {} writes, {} flushes",
            done.served, done.reads, done.writes, done.flushes
        ),
        format!(
            "  response: mean {:.3}, p50 {:.3}, p99 {:.3}, max {:.3} ms",
            took.mean, took.p50, took.p99, took.max
        ),
        format!(
            "  lateness: p50 {:.0}, p99 {:.0}, max {:.0} us{}",
            late.p50,
            late.p99,
            late.max,
            real_time(done.realtime)
        ),
        format!(
            "  {} write(s) not flushed; power was cut {} time(s)",
            done.unflushed_writes, done.power_cuts
        ),
    ];
    let lost = done.log_rows_lost;
    lines.extend((lost > 0).then(|| format!("  {lost} row(s) of the log are lost: its file took no more")));
    lines
}

fn real_time(is_allowed: bool) -> &'static str {
    match is_allowed {
        true => "",
        false => " (real-time priority is not allowed)",
    }
}
