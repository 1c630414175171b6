//! `elbow bark status` and `detach`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use elbow_drive::Spread;
use serde::Serialize;

use super::known::{Ask, AttachedRegion, REGIONS, Status};
use crate::attached::cleanup::clean_up;
use crate::attached::registry::{Listed, Place, Request, alive, all, find};
use crate::output::answer;
use crate::size;

pub(crate) const STATUS_EXAMPLES: &str = "\
Examples:
  What a region has done, and how long its flushes took:
      elbow bark status /dev/loop0

  All that are attached:
      elbow bark status

  For programs:
      elbow bark status /dev/loop0 --json | jq .free_sectors

Moved are records that were written anew because no place was free, so that there is one. Where there are many, the region is too small.";

pub(crate) const DETACH_EXAMPLES: &str = "\
Examples:
  Take a region away when its file system is unmounted:
      umount /mnt
      elbow bark detach /dev/loop0

Refused while the device is in use or the file is open; clients of NBD are disconnected. All that was written is then on the device below.

Exit code:
  0; 125 where that was not possible.

Of a region whose process has died, what it has left is taken away.";

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// The device, as attach printed it; without it, all are listed.
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DetachArgs {
    /// The device, as attach printed it.
    #[arg(value_name = "DEVICE")]
    device: String,
    /// Print one JSON object: its last status, or what was attached.
    #[arg(long)]
    json: bool,
}

const STATUS: Request<Ask> = Request::Status;
const DETACH: Request<Ask> = Request::Detach;

/// Says what a region has done.
pub(super) fn status(args: &StatusArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, args.device.as_deref().map(Path::new), tell_status(args))
}

fn tell_status(args: &StatusArgs) -> Result<ExitCode> {
    let Some(device) = &args.device else {
        return list(all(REGIONS), args.json);
    };
    let (place, attached) = alive::<AttachedRegion>(REGIONS, device)?;
    show(&place.ask(&attached.device, STATUS)?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes a region away.
pub(super) fn detach(args: &DetachArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, Path::new(&args.device), take_away(args))
}

fn take_away(args: &DetachArgs) -> Result<ExitCode> {
    let (place, attached) = find::<AttachedRegion>(REGIONS, &args.device)?;
    if place.is_dead() {
        return clean_up(&place, &attached, args.json, "attach the region again to recover it");
    }
    show(&place.ask(&attached.device, DETACH)?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// All regions, for programs.
#[derive(Serialize)]
struct Regions {
    regions: Vec<Listed<AttachedRegion>>,
}

fn list(all: Vec<(Place, AttachedRegion)>, as_json: bool) -> Result<ExitCode> {
    if as_json {
        let regions = all.into_iter().map(Listed::of).collect();
        answer(crate::json::line(&Regions { regions })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        answer("no regions are attached")?;
    }
    for (place, attached) in all {
        let state = if place.is_dead() {
            "its process has died"
        } else {
            "attached"
        };
        let (device, on) = (&attached.device, attached.on.join(", "));
        answer(format_args!(
            "{device}  {} on {on}: {state}",
            size::show(attached.bytes)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(status: &Status, json: bool) -> Result<()> {
    match json {
        true => answer(crate::json::line(status)?)?,
        false => lines(status).iter().try_for_each(answer)?,
    }
    Ok(())
}

fn lines(status: &Status) -> Vec<String> {
    let Status { attached, done } = status;
    let free = done.free_sectors * elbow_disk::SECTOR_BYTES;
    let mut lines = vec![
        format!(
            "{}: {} in {} of {}",
            attached.device,
            size::show(attached.bytes),
            size::show(attached.region_bytes),
            attached.on.join(", ")
        ),
        format!(
            "  {} reads, {} writes, {} trims, {} flushes",
            done.reads, done.writes, done.trims, done.flushes
        ),
        format!(
            "  {} range writes, {} records moved, {} flushes for room, {} refused for want of it",
            done.range_writes, done.moved, done.forced_flushes, done.refused_full
        ),
        format!("  {} records, {} free", done.live_records, size::show(free)),
        format!("  writes: {}", times(&done.write_us)),
        format!("  flushes: {}", times(&done.flush_us)),
        format!(
            "  found when it was attached: {} records, {} torn",
            done.found_records, done.torn_records
        ),
    ];
    if !attached.profiles.is_empty() {
        lines.push(format!("  places by {}", attached.profiles.join(", ")));
    }
    if attached.copies > 1 {
        lines.push(format!("  {} of {} copies", done.whole_copies, attached.copies));
    }
    lines.extend(
        done.failure
            .as_ref()
            .map(|why| format!("  it takes nothing more: {why}")),
    );
    lines
}

fn times(of: &Spread) -> String {
    let [p50, p99, max] = [of.p50, of.p99, of.max].map(|us| us / 1e3);
    format!("p50 {p50:.3}, p99 {p99:.3}, max {max:.3} ms")
}
