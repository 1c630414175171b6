//! `elbow disk replay`: a trace on a simulated drive.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum, ValueHint};
use elbow_disk::trace::{Format, Record, Trace};
use elbow_disk::{Controller, Drive, Figures, Ps, Report, Served, replay};

use super::table::{Cell, ColumnType, Table};
use crate::say::answer;

pub(crate) const EXAMPLES: &str = "\
Examples:
  How far is the model from what was measured?
      elbow disk replay --disk hp-c2247a --format validate \\
          measured.trace.gz --json

  The requests of a disk of this machine:
      blktrace -d /dev/sda -o - | blkparse -i - |
          elbow disk replay --format blktrace -

  A row for each request:
      elbow disk replay --format csv requests.csv --per-request times.csv

Formats:
  One request a line; gzip is unpacked.
      disksim   arrival_ms device lbn sectors flags
      validate  R|W kind lbn sectors response_us think_us
      blktrace  the text of blkparse: its queued reads and writes
      fio       write_iolog version 2 or 3, or write_lat_log with log_offset=1
      csv       a line of names, then values

  Flags of disksim are hexadecimal, 1 is a read. Kind Hit of validate is one from the drive's cache; the next \
  request comes think_us later. Names of csv are lbn, sectors, op (R or W), and arrival_ms or think_ms, response_ms.

Requests are served first come first served, one at a time. The rms demerit is the distance of the distributions \
of measured and simulated response times, as in Ruemmler and Wilkes, An Introduction to Disk Drive Modeling (1994).";

#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    /// The drive: hp-c2247a, generic-7200, or a description file.
    #[arg(long, value_name = "DISK", default_value = "hp-c2247a")]
    disk: String,
    /// What the trace is.
    #[arg(long, value_enum)]
    format: TraceFormat,
    /// The trace; - is standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TraceFormat {
    Disksim,
    Validate,
    Blktrace,
    Fio,
    Csv,
}

impl From<TraceFormat> for Format {
    fn from(format: TraceFormat) -> Format {
        match format {
            TraceFormat::Disksim => Format::DiskSim,
            TraceFormat::Validate => Format::Validate,
            TraceFormat::Blktrace => Format::Blktrace,
            TraceFormat::Fio => Format::Fio,
            TraceFormat::Csv => Format::Csv,
        }
    }
}

/// Replays and reports.
pub(super) fn run(args: &ReplayArgs) -> Result<ExitCode> {
    let drive = Drive::named(&args.disk)?;
    let name = args.file.display().to_string();
    let trace = Trace::new(&name, args.format.into(), open(&args.file)?, drive.sectors());
    let controller = if args.mechanical {
        Controller::mechanical(&drive)
    } else {
        Controller::new(&drive)
    };
    let mut rows = args.per_request.as_deref().map(table).transpose()?;
    let report = replay(trace, controller, |record, arrival, served| {
        if let Some(rows) = &mut rows {
            rows.add(as_row(record, arrival, served));
        }
    })?;
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
    format!(
        "  {name:<8}  {:>8}  {measured:>11}  {:>12.3}  {demerit:>14}",
        figures.requests, figures.mean_simulated_ms
    )
}
