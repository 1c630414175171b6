//! `elbow bench`: the two applications of *A Holesome File System*, checked and timed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueHint};
use elbow_extmem::sort::Meter;
use elbow_extmem::stream::{MemoryBudget, Scratch};
use elbow_file::{Handle, RealStorage, Storage};
use elbow_study::{ep, s24};
use serde_json::json;

use crate::json::SCHEMA;
use crate::output::{answer, print_message};
use crate::{allocator, exit, size};

/// How often the free space is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

pub(crate) const EXAMPLES: &str = "\
Examples:
  4 GiB of pairs, freed as they are read:
      elbow bench ep --class A --consume -T /scratch

  2 GiB of records in 256 MB:
      elbow bench s24 --records 89478485 -S 256M --consume

The peak of disk space is what the file system had less than at the beginning, so it counts whatever others write \
there meanwhile; use a file system of its own for measurements.

Exit code:
  0 when the result is right, 125 when it is not, or could not be had.";

const EP_EXAMPLES: &str = "\
Examples:
  4 GiB of pairs, freed as they are read:
      elbow bench ep --class A --consume -T /scratch";

const S24_EXAMPLES: &str = "\
Examples:
  2 GiB of records in 256 MB:
      elbow bench s24 --records 89478485 -S 256M --consume";

/// What is measured.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchArgs {
    /// NAS EP: pairs of Gaussian deviates through streams; checked against the official sums.
    #[command(after_help = EP_EXAMPLES)]
    Ep(EpArgs),
    /// A sort of 24-byte records through streams; checked for order and completeness.
    #[command(after_help = S24_EXAMPLES)]
    S24(S24Args),
}

/// Where and with how much memory.
#[derive(Args, Debug)]
pub(crate) struct PlaceArgs {
    /// Streams go there [default: $TMPDIR or /var/tmp].
    #[arg(short = 'T', long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    temporary_directory: Option<PathBuf>,
    /// Memory for blocks and runs.
    #[arg(short = 'S', long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    buffer_size: u64,
    /// Free what has been read for the last time.
    #[arg(long)]
    consume: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct EpArgs {
    /// Size of the problem: S, W, A, B or C (2^24, 2^25, 2^28, 2^30, 2^32 pairs of 16 bytes).
    #[arg(long, default_value = "S")]
    class: ep::Class,
    #[command(flatten)]
    place: PlaceArgs,
}

#[derive(Args, Debug)]
pub(crate) struct S24Args {
    /// How many records.
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    records: u64,
    /// Another seed gives other records.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    place: PlaceArgs,
}

/// Runs one of them.
pub(crate) fn run(args: &BenchArgs) -> Result<ExitCode> {
    allocator::return_large_pieces();
    match args {
        BenchArgs::Ep(args) => answered(&args.place, run_ep(args)),
        BenchArgs::S24(args) => answered(&args.place, run_s24(args)),
    }
}

fn answered(place: &PlaceArgs, ended: Result<ExitCode>) -> Result<ExitCode> {
    crate::json::answered(place.json, place.temporary_directory.as_deref(), ended)
}

fn run_ep(args: &EpArgs) -> Result<ExitCode> {
    let pairs = args.class.pairs();
    let measured = measure(&args.place, |scratch| Ok(ep::run(scratch, pairs, args.place.consume)?))?;
    let sums = measured.value;
    let is_right = args.class.verifies(&sums);
    let bytes = pairs * size_of::<ep::Pair>() as u64;
    if args.place.json {
        answer(json!({
            "schema": SCHEMA, "bench": "ep", "class": format!("{:?}", args.class), "verified": is_right, "pairs": pairs, "bytes": bytes,
            "sx": sums.x, "sy": sums.y, "accepted": sums.accepted, "consume": args.place.consume,
            "seconds": measured.seconds, "peak_disk_bytes": measured.peak_bytes,
        }))?;
    } else {
        answer(format_args!(
            "sx {:.15e}  sy {:.15e}  accepted {}",
            sums.x, sums.y, sums.accepted
        ))?;
        answer(measured.sentence(bytes))?;
    }
    Ok(verdict(is_right, "these are not the official sums"))
}

fn run_s24(args: &S24Args) -> Result<ExitCode> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let measured = measure(&args.place, |scratch| {
        let meter = Meter::default();
        Ok(s24::run(
            scratch,
            args.records,
            args.seed,
            args.place.consume,
            threads,
            &meter,
        )?)
    })?;
    let checked = measured.value;
    let is_right = checked.in_order && checked.same_records;
    let bytes = args.records * size_of::<s24::Record>() as u64;
    if args.place.json {
        answer(json!({
            "schema": SCHEMA, "bench": "s24", "verified": is_right, "records": checked.records, "bytes": bytes,
            "in_order": checked.in_order, "same_records": checked.same_records, "consume": args.place.consume,
            "seconds": measured.seconds, "peak_disk_bytes": measured.peak_bytes,
        }))?;
    } else {
        answer(format_args!("{} records sorted", checked.records))?;
        answer(measured.sentence(bytes))?;
    }
    Ok(verdict(is_right, "the result is not a sorted permutation of the input"))
}

fn verdict(is_right: bool, wrong: &str) -> ExitCode {
    if is_right {
        return ExitCode::SUCCESS;
    }
    print_message(wrong);
    ExitCode::from(exit::ELBOW_FAILED)
}

struct Measured<T> {
    value: T,
    seconds: f64,
    peak_bytes: u64,
}

impl<T> Measured<T> {
    fn sentence(&self, bytes: u64) -> String {
        format!(
            "verified in {:.1} s; {} of disk at most, {:.2} times the input",
            self.seconds,
            size::show(self.peak_bytes),
            self.peak_bytes as f64 / bytes.max(1) as f64
        )
    }
}

/// Runs something on streams and watches the free space meanwhile.
fn measure<T>(args: &PlaceArgs, run: impl FnOnce(&Scratch) -> Result<T>) -> Result<Measured<T>> {
    let path = args.temporary_directory.clone();
    let path = path
        .or_else(|| std::env::var_os("TMPDIR").map(PathBuf::from))
        .unwrap_or_else(|| "/var/tmp".into());
    let dir = RealStorage::open_root(&path).with_context(|| format!("opening {}", path.display()))?;
    let memory = usize::try_from(args.buffer_size).unwrap_or(usize::MAX);
    let scratch = Scratch::new(
        Arc::new(RealStorage),
        dir.clone(),
        path.clone(),
        MemoryBudget::new(memory),
    );
    let (began, free_before) = (Instant::now(), free_bytes(&dir, &path)?);
    let (least, over) = (AtomicU64::new(free_before), AtomicBool::new(false));
    let value = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Ok(free) = free_bytes(&dir, &path) {
                    least.fetch_min(free, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK_INTERVAL);
            }
        });
        let value = run(&scratch);
        over.store(true, Ordering::Relaxed);
        value
    })?;
    Ok(Measured {
        value,
        seconds: began.elapsed().as_secs_f64(),
        peak_bytes: free_before - least.into_inner(),
    })
}

fn free_bytes(dir: &Handle, path: &Path) -> Result<u64> {
    let space = RealStorage
        .space(dir)
        .with_context(|| format!("asking for the free space of {}", path.display()))?;
    Ok(space.blocks_free * space.fragment_bytes)
}
