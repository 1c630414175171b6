//! `elbow disk describe`: what a drive is.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use elbow_disk::{Drive, SECTOR_BYTES, ShingledSummary, Summary};
use serde::Serialize;

use crate::json;
use crate::output::answer;

pub(crate) const EXAMPLES: &str = "\
Examples:
  The drives that need no file:
      elbow disk describe

  For people:
      elbow disk describe hp-c2247a

  For programs:
      elbow disk describe mine.toml --json | jq '.zones[0]'

  A beginning for the description of another drive:
      elbow disk describe hp-c2247a --toml > mine.toml";

#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    /// The drive: a name, or a description file; without it, the names are listed.
    #[arg(value_name = "DISK", required_if_eq("toml", "true"))]
    disk: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Print the description file of a built-in drive.
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

/// Prints it.
pub(super) fn run(args: &DescribeArgs) -> Result<ExitCode> {
    let disk = args.disk.as_deref();
    json::answered(args.json, disk.map(Path::new), describe(args, disk))
}

fn describe(args: &DescribeArgs, disk: Option<&str>) -> Result<ExitCode> {
    let Some(disk) = disk else {
        return list(args.json);
    };
    if args.toml {
        let text = Drive::description(disk).ok_or_else(|| anyhow!("{disk} is not built in"))?;
        answer(text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let summary = Drive::named(disk)?.summary();
    if args.json {
        answer(json::line(&summary)?)?;
    } else {
        for line in lines(&summary) {
            answer(line)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Of the drives that need no file, all.
#[derive(Serialize)]
struct BuiltIn {
    drives: Vec<NamedDrive>,
}

#[derive(Serialize)]
struct NamedDrive {
    /// What options call it.
    disk: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

/// The drives that need no file.
fn list(as_json: bool) -> Result<ExitCode> {
    if as_json {
        let named = |disk| {
            Ok(NamedDrive {
                disk,
                summary: Drive::named(disk)?.summary(),
            })
        };
        let drives = Drive::built_in().map(named).collect::<Result<_>>()?;
        answer(json::line(&BuiltIn { drives })?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for name in Drive::built_in() {
        let of = Drive::named(name)?.summary();
        let rpm = 60_000.0 / of.rotation_ms;
        answer(format_args!(
            "{name:<14} {:>8.2} GB {rpm:>6.0} rpm  {}",
            of.bytes as f64 / 1e9,
            of.name
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lines(of: &Summary) -> Vec<String> {
    let mut lines = vec![
        of.name.clone(),
        format!("  {} sectors of 512 bytes, {:.2} GB", of.sectors, of.bytes as f64 / 1e9),
        format!(
            "  {} cylinders, {} heads, a turn of {:.6} ms",
            of.cylinders, of.heads, of.rotation_ms
        ),
        format!(
            "  seek {:.2} ms to the next cylinder, {:.2} ms on average, {:.2} ms over all",
            of.seek_next_ms, of.seek_mean_ms, of.seek_full_ms
        ),
        format!(
            "  {:.2} ms for another head, {:.2} ms more before a write",
            of.head_switch_ms, of.write_settle_ms
        ),
        match of.read_segments {
            0 => "  no cache for reads".to_owned(),
            segments => format!(
                "  {segments} cache segment(s) of {} sectors for reads, {} sectors read ahead",
                of.segment_sectors, of.read_ahead_sectors
            ),
        },
    ];
    lines.extend(of.shingled.as_ref().map(shingles));
    lines.push("  zone      cylinders  sectors/track    tracks    first LBN      sectors     MB/s".to_owned());
    lines.extend(of.zones.iter().enumerate().map(|(number, zone)| {
        let [first, last] = zone.cylinders;
        format!(
            "  {number:>4}  {:>13}  {:>13}  {:>8}  {:>11}  {:>11}  {:>7.2}",
            format!("{first}-{last}"),
            zone.sectors_per_track,
            zone.tracks,
            zone.first_lbn,
            zone.sectors,
            zone.megabytes_per_second
        )
    }));
    lines
}

/// What a shingled drive has beside.
fn shingles(of: &ShingledSummary) -> String {
    let when = match of.cleans_after_idle_ms {
        Some(ms) => format!("after {ms} ms of idleness, and when it is full"),
        None => "only when it is full".to_owned(),
    };
    format!(
        "  shingled in bands of {} sectors; {:.2} GB of media cache for {} writes, cleaned {when}",
        of.band_sectors,
        (of.media_cache_sectors * SECTOR_BYTES) as f64 / 1e9,
        of.map_entries
    )
}
