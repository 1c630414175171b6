//! `elbow bark profile`: what a write costs on a device, measured.

#![allow(
    clippy::disallowed_methods,
    reason = "the profile and its picture, which are no storage of the user's"
)]

use std::ffi::OsString;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use elbow_disk::profile::{
    AREA_BYTES_MIN, DeviceProbe, Doing, Identity, Plan, Profile, ProfileError, Rotation, measure,
};
use elbow_file::range_device::FileDevice;
use elbow_file::{RealStorage, Storage};
use serde_json::json;

use super::picture;
use super::target::Target;
use crate::disk::picture::png;
use crate::output::{answer, print_message};
use crate::partial_output::{PartialOutput, place};
use crate::progress::step::StepMeter;
use crate::size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A disk that holds nothing:
      elbow bark profile /dev/sdb

  A file that was made for it, on the disk that it is about:
      fallocate -l 64M /mnt/data/region
      elbow bark profile /mnt/data/region

  A device whose content may be lost, and numbers for programs:
      elbow bark profile --overwrite --json /dev/sdb | jq .rotation

Each write is made durable by fsync(2). On a disk it takes one to three minutes: the period of a turn is found first, and then a few writes tell what all \
think times cost. The profile is NAME.profile.toml in the working directory, beside it its picture, NAME.profile.svg and .png: cost by skip distance (from the end of \
the last write) and think time (since then).

The first SIZE bytes are zeros afterwards. What is not zero is refused without --overwrite, what is mounted in any case. Interrupted, it \
leaves no profile.

On a device that does not turn (SSD, RAM, loop device on such) it says so, and recommends nothing. A profile is of one drive, by model, serial number and size; for another \
it is refused.";

/// As much as a region has, and not more than is read in a moment.
const AREA_BYTES: u64 = 64 << 20;

#[derive(Args, Debug)]
pub(crate) struct ProfileArgs {
    /// The block device or file.
    #[arg(value_name = "DEV|FILE", value_hint = ValueHint::FilePath)]
    path: PathBuf,
    /// Write the profile there, and its picture beside it [default: NAME.profile.toml].
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Write there although it has content, which is lost.
    #[arg(long)]
    overwrite: bool,
    /// So much of it, from the beginning, at least 4M [default: all, at most 64M].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    size: Option<u64>,
    /// Bytes of a sector, in which skips are counted and the region is made; less than a page of memory makes the system write whole pages.
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = sector_bytes)]
    sector_bytes: u32,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Measures, writes and tells.
pub(super) fn run(args: &ProfileArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, &*args.path, profile(args))
}

fn profile(args: &ProfileArgs) -> Result<ExitCode> {
    let began = Instant::now();
    let target = Target::claim(&args.path)?;
    let identity = Identity::of(&target.opened())?;
    let area = area_bytes(args, identity.bytes)?;
    if !args.overwrite {
        target.check_empty(&(0..area), identity.bytes)?;
    }
    let output = args.output.clone().unwrap_or_else(|| default_output(&args.path));
    for path in [&output, &beside(&output, "svg"), &beside(&output, "png")] {
        check_output(path, &target)?;
    }
    // A machine that is busy with something else would be measured too. Where it is not allowed, the jitter tells.
    let _is_first = elbow_drive::wake_first();
    let profile = measured(args, &target, area, identity)?;
    store(&output, profile.to_toml().as_bytes())?;
    let pictures = draw(&profile, &output)?;
    match args.json {
        true => answer(crate::json::line(&object(
            &profile,
            &output,
            &pictures,
            began.elapsed(),
        ))?)?,
        false => tell(&profile, &output, &pictures)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn area_bytes(args: &ProfileArgs, bytes: u64) -> Result<u64> {
    let area = args.size.unwrap_or(AREA_BYTES.min(bytes));
    let shown = args.path.display();
    if area > bytes {
        bail!("{shown} has {bytes} bytes, fewer than the {area} of --size");
    }
    let area = area - area % u64::from(args.sector_bytes);
    if area < AREA_BYTES_MIN {
        let error = ProfileError::TooSmall {
            bytes: area,
            needed: AREA_BYTES_MIN,
        };
        return Err(error).with_context(|| format!("cannot measure {shown}"));
    }
    Ok(area)
}

fn sector_bytes(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().filter(|bytes: &u32| bytes.is_power_of_two());
    bytes
        .filter(|bytes| (512..=65_536).contains(bytes))
        .ok_or_else(|| "expected a power of two from 512 to 65536".to_owned())
}

fn default_output(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".profile.toml");
    PathBuf::from(name)
}

fn measured(args: &ProfileArgs, target: &Target, area: u64, identity: Identity) -> Result<Profile> {
    let tried = || format!("cannot measure {}", args.path.display());
    let device = FileDevice::open(&target.opened(), args.sector_bytes).with_context(tried)?;
    let mut probe = DeviceProbe::new(device)?;
    let plan = Plan::new(0..area / u64::from(args.sector_bytes));
    let (mut meter, mut doing) = (StepMeter::new(args.json), None);
    measure(&mut probe, &plan, identity, &mut |step| {
        if doing.replace(step.doing) != Some(step.doing) {
            meter = StepMeter::new(args.json); // its rate is another
        }
        let (words, noun) = words(step.doing);
        meter.show(words, noun, step.done, step.total);
        true
    })
    .with_context(tried)
}

/// Where a picture of a profile goes.
fn beside(output: &Path, kind: &str) -> PathBuf {
    output.with_extension(kind)
}

/// That the profile and its pictures can be written, and destroy neither each other nor what is measured, is found out before minutes are spent.
fn check_output(path: &Path, target: &Target) -> Result<()> {
    let tried = || format!("cannot write {}", path.display());
    let (directory, name) = place(path).with_context(tried)?;
    let mut other = OsString::from(".elbow-profile-");
    other.push(name);
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        bail!("cannot write {}: it is there, and no regular file", path.display());
    }
    if target.is(path)? {
        bail!(
            "cannot write {}: that is what is measured; --output names another",
            path.display()
        );
    }
    RealStorage
        .create_unnamed(&directory, &other, 0o600)
        .with_context(tried)?;
    Ok(())
}

/// Whole, or not at all.
fn store(path: &Path, bytes: &[u8]) -> Result<()> {
    let tried = || format!("cannot write {}", path.display());
    let partial = PartialOutput::new(path, path.metadata().ok().as_ref()).with_context(tried)?;
    RealStorage
        .write(&partial.file, &[IoSlice::new(bytes)], 0)
        .with_context(tried)?;
    partial.publish().with_context(tried)
}

/// The pictures that were made.
fn draw(profile: &Profile, output: &Path) -> Result<Vec<PathBuf>> {
    let Some(svg) = picture::svg(profile)? else {
        return Ok(Vec::new());
    };
    let (vector, pixels) = (beside(output, "svg"), beside(output, "png"));
    store(&vector, svg.as_bytes())?;
    let Some(png) = png(&svg)? else {
        print_message(format_args!(
            "{} is not made: this machine has no font to write with",
            pixels.display()
        ));
        return Ok(vec![vector]);
    };
    store(&pixels, &png)?;
    Ok(vec![vector, pixels])
}

fn object(profile: &Profile, output: &Path, pictures: &[PathBuf], took: Duration) -> serde_json::Value {
    json!({
        "device": profile.device,
        "sector_bytes": profile.sector_bytes,
        "area_sectors": profile.area_sectors,
        "anywhere": profile.anywhere,
        "rotation": profile.rotation,
        "tracks": profile.tracks.len(),
        "skips": profile.rows.len(),
        "recommended": profile.is_recommended(),
        "profile": output,
        "pictures": pictures,
        "seconds": took.as_secs_f64(),
    })
}

fn tell(profile: &Profile, output: &Path, pictures: &[PathBuf]) -> Result<()> {
    let any = &profile.anywhere;
    answer(format_args!(
        "a write anywhere takes {:.3} ms (p10 {:.3}, p90 {:.3})",
        any.p50_ms, any.p10_ms, any.p90_ms
    ))?;
    match &profile.rotation {
        Some(rotation) => tell_rotation(profile, rotation)?,
        None => answer(
            "no rotation was found: nothing turns, or something else kept the device or this machine busy; nothing is recommended",
        )?,
    }
    let pictures = pictures.iter().map(|path| format!(", {}", path.display()));
    answer(format_args!(
        "written: {}{}",
        output.display(),
        pictures.collect::<String>()
    ))?;
    Ok(())
}

fn tell_rotation(profile: &Profile, rotation: &Rotation) -> Result<()> {
    let trial = &rotation.trial;
    answer(format_args!(
        "a turn takes {:.4} ms ({:.0} a minute); writes end within {:.3} ms of where it has them",
        rotation.period_ms,
        60_000.0 / rotation.period_ms,
        rotation.jitter_ms
    ))?;
    answer(match profile.tracks.len() {
        0 => "places have no order that was found: the profile goes by skip distance alone".to_owned(),
        tracks => format!("{tracks} tracks, with {:.0} sectors in a turn", rotation.turn_sectors),
    })?;
    answer(format_args!(
        "where the profile says, a write takes {:.3} ms (said were {:.3}; {} of {} came too late); in order {:.3} ms",
        trial.mean_ms, trial.predicted_ms, trial.missed, trial.writes, trial.in_order_ms
    ))?;
    if !profile.is_recommended() {
        answer("that is not better than in order: the profile is not recommended")?;
    }
    Ok(())
}

/// A part of the measurement, and what it goes through.
fn words(doing: Doing) -> (&'static str, &'static str) {
    match doing {
        Doing::Filling => ("1 of 7: writing all of it once", "sectors"),
        Doing::Turning => ("2 of 7: looking for a period", "writes"),
        Doing::Anywhere => ("3 of 7: writing anywhere", "writes"),
        Doing::Reaching => ("4 of 7: what a write costs at least", "distances"),
        Doing::Skipping => ("5 of 7: distance by distance", "writes"),
        Doing::Placing => ("6 of 7: where tracks begin", "sectors"),
        Doing::Trying => ("7 of 7: trying the profile", "writes"),
    }
}
