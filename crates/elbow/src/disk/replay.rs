//! `elbow disk replay`: a trace on a simulated drive.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint, value_parser};
use elbow_disk::sched::Scheduler;
use elbow_disk::trace::{Format, Record, Trace};
use elbow_disk::workload::Overheads;
use elbow_disk::{Controller, Drive, Figures, Ps, QueuedReplay, Report, Served, replay};

use super::input;
use super::spread;
use super::table::{Cell, ColumnType, Table};
use crate::output::{answer, print_message};

pub(crate) const EXAMPLES: &str = "\
Examples:
  How far is the model from what was measured?
      elbow disk replay --disk hp-c2247a --format validate \\
          measured.trace.gz --json

  The requests of a disk of this machine:
      blktrace -d /dev/sda -o - | blkparse -i - |
          elbow disk replay --format blktrace -

  The same, if the drive knew 32 of them and took the one that it reaches first:
      elbow disk replay --scheduler sptf --depth 32 sda.txt

  A row for each request:
      elbow disk replay --format csv requests.csv --per-request times.csv

Formats:
  One request a line; gzip is unpacked. Without --format the first line says which it is.
      disksim   arrival_ms device lbn sectors flags
      validate  R|W kind lbn sectors response_us think_us
      blktrace  the text of blkparse: its queued reads and writes
      fio       write_iolog version 2 or 3, or write_lat_log with log_offset=1
      msr       timestamp,host,disk,Read|Write,offset,bytes,response
                of MSR Cambridge, in ticks of 100 ns
      spc       SPC and UMass: unit,block,bytes,R|W,seconds; blocks of 512 bytes
      csv       a line of names, then values

  Flags of disksim are hexadecimal, 1 is a read. Kind Hit of validate is one from the drive's cache; the next \
  request comes think_us later. Names of csv are lbn, sectors, op (R or W), and arrival_ms or think_ms, response_ms.

Requests are served first come first served, one at a time, or by --scheduler among the --depth that the drive knows. \
Schedulers are those of `elbow disk simulate`; here a write has one place.

What comes at a time of its own waits until the drive has a place for it. In a trace whose requests come so long after \
the end of another (validate, fio version 2, csv with think_ms) that is the one whose place it takes: as if --depth hosts shared \
the trace.

Percentiles are of simulated response times, right to a thousandth. What a replay leaves out (discards, flushes) or has to change is told on \
standard error, and in `notes` with --json. The rms demerit is the distance of the distributions \
of measured and simulated response times, as in Ruemmler and Wilkes, An Introduction to Disk Drive Modeling (1994).";

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// The drive: a name (`elbow disk describe` lists them), or a description file.
    #[arg(long, value_name = "DISK", default_value = "hp-c2247a")]
    disk: String,
    /// What the trace is [default: what its first line looks like].
    #[arg(long, value_parser = PossibleValuesParser::new(Format::ALL.map(Format::name)).map(|name| named(&name)))]
    format: Option<Format>,
    /// The trace; - is standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Who picks among the requests that the drive knows: fcfs, sstf, sptf, asptf, asptf:W, scan, c-look, ecs, ecs:K, hrs or hrs:whole.
    #[arg(long, value_name = "NAME", default_value = "fcfs")]
    scheduler: Scheduler,
    /// How many requests the drive knows, with the one that it serves.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..=QueuedReplay::DEPTH_MAX.into()))]
    depth: u32,
    /// Nothing but mechanics: no commands, bus or cache.
    #[arg(long)]
    mechanical: bool,
    /// Write a row for each request there, comma-separated; as Parquet if FILE ends in .parquet (where built in).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    per_request: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// One of those that the parser lets through.
fn named(name: &str) -> Format {
    let found = Format::ALL.into_iter().find(|format| format.name() == name);
    found.expect("the parser knows the names of all formats")
}

/// Replays and reports.
pub(super) fn run(args: &ReplayArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, &*args.file, replay_trace(args))
}

fn replay_trace(args: &ReplayArgs) -> Result<ExitCode> {
    let drive = Arc::new(Drive::named(&args.disk)?);
    let mut rows = args.per_request.as_deref().map(table).transpose()?;
    let report = serve(args, &drive, |record, arrival, served| {
        if let Some(rows) = &mut rows {
            rows.add(as_row(record, arrival, served));
        }
    })?;
    for note in &report.notes {
        print_message(note);
    }
    if let Some(rows) = rows {
        rows.finish()?;
    }
    if args.json {
        answer(crate::json::line(&report)?)?;
    } else {
        print(&report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(args: &ReplayArgs, drive: &Arc<Drive>, each: impl FnMut(&Record, Ps, &Served)) -> Result<Report> {
    let (name, input) = (args.file.display().to_string(), input::open(&args.file)?);
    let trace = match args.format {
        Some(format) => Trace::new(&name, format, input, drive.sectors()),
        None => Trace::detect(&name, input, drive.sectors())?,
    };
    if args.depth > 1 {
        let overheads = match args.mechanical {
            true => Overheads::None,
            false => Overheads::Controller,
        };
        let queued = QueuedReplay {
            scheduler: args.scheduler,
            depth: args.depth,
            overheads,
        };
        return Ok(queued.run(drive, trace, each)?);
    }
    // A drive that knows one request has nothing to choose.
    let controller = match args.mechanical {
        true => Controller::mechanical(drive),
        false => Controller::new(drive),
    };
    Ok(replay(trace, controller, each)?)
}

/// The file with a row for each request.
fn table(path: &Path) -> Result<Table> {
    use ColumnType::{Letter, MaybeMilliseconds, Milliseconds, Whole};
    Table::create(
        path,
        &[
            ("line", Whole),
            ("arrival_ms", Milliseconds),
            ("lbn", Whole),
            ("sectors", Whole),
            ("op", Letter),
            ("hit", Whole),
            ("measured_ms", MaybeMilliseconds),
            ("response_ms", Milliseconds),
            ("seek_ms", Milliseconds),
            ("rotation_ms", Milliseconds),
            ("transfer_ms", Milliseconds),
            ("overhead_ms", Milliseconds),
        ],
    )
}

fn as_row(record: &Record, arrival: Ps, served: &Served) -> [Cell; 12] {
    [
        Cell::Whole(record.line),
        Cell::Time(arrival),
        Cell::Whole(record.request.lbn.0),
        Cell::Whole(record.request.sectors.into()),
        Cell::Letter(if record.request.write { 'W' } else { 'R' }),
        Cell::Whole(served.hit.into()),
        Cell::MaybeTime(record.measured),
        Cell::Time(served.end - arrival),
        Cell::Time(served.seek),
        Cell::Time(served.rotation),
        Cell::Time(served.transfer),
        Cell::Time(served.overhead),
    ]
}

fn print(report: &Report) -> io::Result<()> {
    answer("            requests  measured ms  simulated ms  rms demerit ms")?;
    let kinds = [
        ("all", &report.all),
        ("reads", &report.reads),
        ("hits", &report.hits),
        ("writes", &report.writes),
    ];
    for (name, figures) in kinds {
        answer(row(name, figures))?;
    }
    if report.all.requests == 0 {
        return answer("response: -");
    }
    answer(spread::line("response:", &report.all.percentiles_simulated_ms))?;
    let Report {
        seek_ms,
        rotation_ms,
        transfer_ms,
        overhead_ms,
        ..
    } = report;
    answer(format_args!(
        "mean: seek {seek_ms:.3}, rotation {rotation_ms:.3}, transfer {transfer_ms:.3}, overhead {overhead_ms:.3} ms; \
         {} reads from the simulated cache; {:.1} simulated seconds",
        report.hits_simulated, report.simulated_s
    ))
}

fn row(name: &str, figures: &Figures) -> String {
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.3}"));
    let (measured, demerit) = (shown(figures.mean_measured_ms), shown(figures.rms_demerit_ms));
    let simulated = shown((figures.requests > 0).then_some(figures.mean_simulated_ms));
    format!(
        "  {name:<8}  {:>8}  {measured:>11}  {simulated:>12}  {demerit:>14}",
        figures.requests
    )
}
