//! `elbow disk files`: a trace of what processes do with files, on the model of ext2 above a simulated drive.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum, ValueHint};
use elbow_disk::sched::Scheduler;
use elbow_disk::workload::Overheads;
use elbow_disk::{Drive, Ps, trace};
use elbow_ext2::{FileReplay, FileReport, Policy, Region, TraceFile};
use serde_json::json;

use super::simulate::overhead;
use crate::output::{answer, print_message};
use crate::size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  What a program would have taken on ext2, and why:
      strace -f -y -o calls -e trace=file,desc,process tar xf x.tar -C /t
      elbow disk files --format strace --below /t calls

  Do range writes help it?
      elbow disk files --compare mail.trace

  The same with a small cache that writes at once and merges nothing:
      elbow disk files --compare --dirty 256K --age-s 0 --interval-s 0.1 \\
          --merge none mail.trace

  On a part of another drive that is nearly full:
      elbow disk files --disk mine.toml --partition 512M --full 80 x.trace

  An archive that is unpacked:
      tar tvf x.tar | awk '/^-/ {print $3 \"\\t\" $6}' |
          elbow disk files --format listing -

Formats:
  One operation, call or file a line:
      operations  pid operation path offset bytes, as below
      strace      what strace writes, of what lies --below a directory
      listing     size TAB path: the files of an archive, which is unpacked

  Operations:
      1 mkdir /d              1 create /d/a           1 close /d/a
      1 write /d/a 0 10000    1 append /d/a - 512     1 fsync /d/a
      2 read /d/a 0 4096      1 truncate /d/a - 100   1 sync
      1 rename /d/a /d/b      1 unlink /d/b           1 rmdir /d
      1 think - - 2500000     (nanoseconds of computing)

  gzip is unpacked. Lines that are empty or begin with # say nothing. In a path, what is no part of a word is %20 and so on. The file \
  system is empty at first: what is read has to be made before.

With strace, -y makes it write the directory of paths that do not begin at /, and -ff a file for each process where calls overlap. \
What has no counterpart here (mmap, links, files that were there before) is left out, and told on standard error.

classic finds places when a process writes: near the directory, in the mini-group of the process. ranges has the disk choose when \
the cache is written back, within that mini-group or with --region group its whole group. Without options the cache is that of \
Linux 2.6 with 512 MiB. Reads of metadata take no time: it is in memory.

Times are those of the model: seconds until all was on the disk, and what requests of each kind took. extents are runs of \
neighbouring blocks that the files have in the end. ratio is the time with ranges by that without.";

#[derive(Args, Debug)]
pub(crate) struct FilesArgs {
    /// The trace; - is standard input.
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// What the trace is.
    #[arg(long, value_enum, default_value_t = FilesFormat::Operations)]
    format: FilesFormat,
    /// With strace, the directory that is the file system.
    #[arg(long, value_name = "DIR", default_value = "/")]
    below: String,
    /// The drive: a name (`elbow disk describe` lists them), or a description file.
    #[arg(long, value_name = "DISK", default_value = "hp-c2247a")]
    disk: String,
    #[command(flatten)]
    system: SystemArgs,
    #[command(flatten)]
    cache: CacheArgs,
    #[command(flatten)]
    drive: DriveArgs,
    /// Each process goes on by itself; otherwise all operations begin in the order of the trace, each when the one before has ended.
    #[arg(long)]
    concurrent: bool,
    /// Another seed gives other places.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The file system.
#[derive(Args, Debug)]
struct SystemArgs {
    /// How places for data are found.
    #[arg(long, value_enum, default_value_t = Allocation::Classic, conflicts_with = "compare")]
    allocation: Allocation,
    /// What a range is.
    #[arg(long, value_enum, default_value_t = RangeRegion::MiniGroup)]
    region: RangeRegion,
    /// Both allocations, and the ratio of their times.
    #[arg(long)]
    compare: bool,
    /// Size of the file system [default: the drive's, at most 16G].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    partition: Option<u64>,
    /// Percent of each group that are in use before.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0)]
    full: f64,
    /// In runs of so many blocks of 4 KiB, at random places.
    #[arg(long, value_name = "BLOCKS", default_value_t = 8)]
    full_run_blocks: u32,
}

/// The write-back cache.
#[derive(Args, Debug)]
struct CacheArgs {
    /// File data that is kept in memory.
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = size::parse)]
    memory: u64,
    /// Data not yet written for which processes wait; a quarter of it is written whatever its age [default: 2/5 of the memory].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    dirty: Option<u64>,
    /// Data is written when it is so old; 0: at once.
    #[arg(long, value_name = "S", default_value_t = 30.0)]
    age_s: f64,
    /// So often the cache is looked through for such data, and for metadata.
    #[arg(long, value_name = "S", default_value_t = 5.0)]
    interval_s: f64,
    /// What becomes of requests that wait beside each other.
    #[arg(long, value_enum, default_value_t = Merge::Neighbours)]
    merge: Merge,
}

/// How the drive is used.
#[derive(Args, Debug)]
struct DriveArgs {
    /// Who picks among the requests that the drive knows.
    #[arg(long, value_name = "NAME", default_value = "hrs")]
    scheduler: Scheduler,
    /// How many requests the drive knows.
    #[arg(long, value_name = "N", default_value_t = 16)]
    depth: u32,
    /// So much before each request instead of the drive's own commands, bus and completion.
    #[arg(long, value_name = "MS", value_parser = overhead)]
    overhead_ms: Option<Ps>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FilesFormat {
    Operations,
    Strace,
    Listing,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Allocation {
    Classic,
    Ranges,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RangeRegion {
    MiniGroup,
    Group,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Merge {
    None,
    Neighbours,
}

/// Replays and reports.
pub(super) fn run(args: &FilesArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, &*args.file, replay_files(args))
}

fn replay_files(args: &FilesArgs) -> Result<ExitCode> {
    let drive = Arc::new(Drive::named(&args.disk)?);
    let file = read(args)?;
    for note in &file.notes {
        print_message(note);
    }
    let replayed = |allocation| replay(args, allocation).run(&drive, &file, &mut || true);
    match args.system.compare {
        true => compared(args, &replayed(Allocation::Classic)?, &replayed(Allocation::Ranges)?),
        false => told(args, &replayed(args.system.allocation)?),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn read(args: &FilesArgs) -> Result<TraceFile> {
    let name = args.file.display().to_string();
    let text = trace::text(open(&args.file)?).with_context(|| format!("cannot read the trace {name}"))?;
    Ok(match args.format {
        FilesFormat::Operations => TraceFile::parse(&name, &text)?,
        FilesFormat::Strace => TraceFile::parse_strace(&name, &text, &args.below)?,
        FilesFormat::Listing => TraceFile::untar(&name, &text)?,
    })
}

#[allow(
    clippy::disallowed_methods,
    reason = "a trace is read once from front to back; it may be a pipe"
)]
fn open(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let file = File::open(path).with_context(|| format!("cannot open the trace {}", path.display()))?;
    Ok(Box::new(file))
}

fn replay(args: &FilesArgs, allocation: Allocation) -> FileReplay {
    let (system, cache, drive) = (&args.system, &args.cache, &args.drive);
    FileReplay {
        policy: match (allocation, system.region) {
            (Allocation::Classic, _) => Policy::Classic,
            (Allocation::Ranges, RangeRegion::MiniGroup) => Policy::Range(Region::MiniGroup),
            (Allocation::Ranges, RangeRegion::Group) => Policy::Range(Region::Group),
        },
        partition_bytes: system.partition,
        full_percent: system.full,
        full_run_blocks: system.full_run_blocks,
        memory_bytes: cache.memory,
        dirty_bytes: cache.dirty,
        age_s: cache.age_s,
        interval_s: cache.interval_s,
        merge: cache.merge == Merge::Neighbours,
        scheduler: drive.scheduler,
        depth: drive.depth,
        overheads: drive.overhead_ms.map_or(Overheads::Controller, Overheads::Fixed),
        concurrent: args.concurrent,
        seed: args.seed,
    }
}

fn told(args: &FilesArgs, report: &FileReport) -> Result<()> {
    if args.json {
        return Ok(answer(crate::json::line(report)?)?);
    }
    Ok(print(report)?)
}

fn compared(args: &FilesArgs, classic: &FileReport, ranges: &FileReport) -> Result<()> {
    let ratio = (classic.seconds > 0.0).then(|| ranges.seconds / classic.seconds);
    if args.json {
        let both = json!({ "classic": classic, "ranges": ranges, "ratio": ratio });
        return Ok(answer(crate::json::line(&both)?)?);
    }
    for (name, report) in [("classic", classic), ("ranges", ranges)] {
        answer(format_args!("{name}:"))?;
        print(report)?;
        answer("")?;
    }
    let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
    answer(format_args!(
        "ratio {ratio}: {:.3} s with ranges, {:.3} s classic",
        ranges.seconds, classic.seconds
    ))?;
    Ok(())
}

fn print(report: &FileReport) -> io::Result<()> {
    answer("             requests    blocks     time ms     seek  rotation  transfer  overhead")?;
    let kinds = report.requests.named();
    for (name, of) in kinds.iter().filter(|(name, of)| of.requests > 0 || *name == "all") {
        answer(format_args!(
            "{name:<11}  {:>8}  {:>8}  {:>10.1}  {:>7.1}  {:>8.1}  {:>8.1}  {:>8.1}",
            of.requests, of.blocks, of.time_ms, of.seek_ms, of.rotation_ms, of.transfer_ms, of.overhead_ms
        ))?;
    }
    answer(format_args!(
        "{:.3} s until all was on the disk, {:.3} s until the last of {} operations had ended",
        report.seconds, report.processes_seconds, report.operations
    ))?;
    if report.range_writes > 0 {
        answer(format_args!(
            "{} writes named a range, {} of them waited for one; {} continued a file",
            report.range_writes, report.range_waits, report.continued
        ))?;
    }
    let there = &report.allocated;
    answer(format_args!(
        "{} files in the end, of {} blocks in {} extents",
        there.files, there.blocks, there.extents
    ))?;
    answer(format_args!("written, data+metadata by group: {}", groups(report)))
}

/// Groups that are named; the others are only counted.
const GROUPS_SHOWN: usize = 8;

fn groups(report: &FileReport) -> String {
    let all = &report.allocated.groups;
    let shown = all.iter().take(GROUPS_SHOWN);
    let shown = shown.map(|of| format!("{}: {}+{}", of.group, of.data_blocks, of.metadata_blocks));
    let more = all.len().saturating_sub(GROUPS_SHOWN);
    let more = (more > 0).then(|| format!("and {more} groups more"));
    shown.chain(more).collect::<Vec<_>>().join(", ")
}
