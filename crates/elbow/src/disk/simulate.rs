//! `elbow disk simulate`: a random load on a simulated drive.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, ValueEnum, ValueHint};
use elbow_disk::sched::Scheduler;
use elbow_disk::workload::{
    Arrivals, Estimate, Moment, Overheads, RangeSize, Served, Span, Summary, Workload, simulate,
};
use elbow_disk::{Drive, Ps};
use serde_json::{Value, json};

use super::show::{ShowArgs, ShowContext};
use super::spread;
use super::table::{Cell, ColumnType, Table};
use crate::output::answer;

pub(crate) const EXAMPLES: &str = "\
Schedulers:
      fcfs  first come, first served
      sstf  shortest seek first
      sptf  shortest positioning (seek and rotation) first
      asptf the same with ageing: a second of waiting makes up for 6 ms of
            positioning; asptf:W, for W ms
      scan  the elevator, by LBN: up as far as anybody waits, then down
      c-look  up as far as anybody waits, then from the lowest on
      ecs   expand and cancel: every place of every range is estimated;
            ecs:K, K places spaced around the nearest track
      hrs   hierarchical range: the same choice as ecs, found by cylinder,
            track and bitmap; hrs:whole without pruning

  The first six ignore ranges: a write goes to one random place of its first target.

A write has K targets, each a range of R sectors from a random place of the span, and may land on any aligned \
place in any of them. With R as large as the span all writes share one region. Reads always want one place.

Examples:
  What does a freedom of 64 targets buy a write of 4 KiB within 16 MB?
      elbow disk simulate --span group:0 --scheduler sptf
      elbow disk simulate --span group:0 --scheduler hrs --targets 64 \\
          --range-sectors 104

  A queue of 16 over the whole disk, mechanics only (11.65 ms in DiskSim 4.0):
      elbow disk simulate --mechanical --depth 16 --scheduler sptf

  A depth of 2 gains nothing while the scheduler picks before the host sends the next one:
      elbow disk simulate --mechanical --depth 2 --pick before
      elbow disk simulate --mechanical --depth 2 --pick after

  Around one track, 6 places are worse than 4: the next one of 6 has just passed when the next request comes:
      elbow disk simulate --overhead-ms 1.07 --span sectors:96-192 \\
          --range-sectors track --scheduler ecs:4
      elbow disk simulate --overhead-ms 1.07 --span sectors:96-192 \\
          --range-sectors track --scheduler ecs:6

  What does the arm do for three requests, if the nearest is served first?
      elbow disk simulate --show --lbns 90,2000000,30000 --scheduler sstf

  The same for a browser, the platter half a turn on at first:
      elbow disk simulate --show three.svg --lbns 90,2000000,30000 \\
          --start-angle 180

Numbers are means over the measured requests; +- is half of a 95 % confidence interval, by batch means. mean is \
the time from the pick of a request to its completion, response that from its arrival. With --json, \
requests_per_second is how fast the simulation ran; simulated_requests_per_second what the drive did.

--show is of the mechanics (and --overhead-ms), without commands, bus and cache: so many moments in which the arm moves, the head waits and \
sectors pass, each with its time. All requests of --lbns are there at once; they are writes, or with --reads 1 reads.";

#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    /// The drive: a name (`elbow disk describe` lists them), or a description file.
    #[arg(long, value_name = "DISK", default_value = "hp-c2247a")]
    disk: String,
    /// Who chooses: fcfs, sstf, sptf, asptf, asptf:W, scan, c-look, ecs, ecs:K, hrs or hrs:whole.
    #[arg(long, value_name = "NAME", default_value = "sptf")]
    scheduler: Scheduler,
    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    show: ShowArgs,
    /// Nothing but mechanics: no command, bus or completion. A replacement arrives after the completion.
    #[arg(long)]
    mechanical: bool,
    /// So much before each request instead of the drive's own commands, bus and completion.
    #[arg(long, value_name = "MS", value_parser = overhead)]
    overhead_ms: Option<Ps>,
    /// Write a row for each measured request there, comma-separated; as Parquet if FILE ends in .parquet (where built in).
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    per_request: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The load.
#[derive(Args, Debug)]
struct LoadArgs {
    /// Requests in the system: when one is done, another comes [default: 1]. With --show how many the scheduler knows [default: all].
    #[arg(long, value_name = "Q")]
    depth: Option<u32>,
    /// Whether the scheduler picks before or after the next request has come.
    #[arg(long, value_enum, value_name = "MOMENT", default_value_t = PickMoment::Before)]
    pick: PickMoment,
    /// Requests come at random moments, on average so many per second, whatever the drive does (an open loop).
    #[arg(long, value_name = "N", conflicts_with_all = ["depth", "pick"])]
    arrivals_per_second: Option<f64>,
    /// Where requests go: disk, group:N (the N-th 16 MB, from 0) or sectors:FIRST-END.
    #[arg(long, value_name = "SPAN", default_value = "disk")]
    span: Span,
    /// Sectors of a request.
    #[arg(long, value_name = "N", default_value_t = 8)]
    sectors: u32,
    /// Requests begin at multiples of so many sectors.
    #[arg(long, value_name = "N", default_value_t = 8)]
    align_sectors: u32,
    /// Sectors of a target, or `track` for whole tracks [default: those of one request].
    #[arg(long, value_name = "R")]
    range_sectors: Option<RangeSize>,
    /// Targets of a write.
    #[arg(long, value_name = "K", default_value_t = 1)]
    targets: u32,
    /// Share of reads, from 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    reads: f64,
    /// Requests to measure [default: 30000], or to show [default: 5].
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Requests to serve before those.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    warm_up: u64,
    /// Another seed gives other requests.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PickMoment {
    /// As a host does that hears of a completion, picks, and then goes on.
    Before,
    /// As a drive does whose queue is full again by then.
    After,
}

/// Simulates and reports.
pub(super) fn run(args: &SimulateArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, None::<&Path>, serve_random(args))
}

fn serve_random(args: &SimulateArgs) -> Result<ExitCode> {
    let drive = Arc::new(Drive::named(&args.disk)?);
    let load = load(args);
    if args.show.is_asked_for() {
        return args.show.run(&ShowContext {
            drive: &drive,
            scheduler: args.scheduler,
            depth: args.load.depth,
            load,
            json: args.json,
        });
    }
    let mut rows = args.per_request.as_deref().map(table).transpose()?;
    let began = Instant::now();
    let summary = simulate(&drive, args.scheduler, &load, |served| {
        if let Some(rows) = &mut rows {
            rows.add(row(served));
        }
    })?;
    let wall_seconds = began.elapsed().as_secs_f64();
    if let Some(rows) = rows {
        rows.finish()?;
    }
    let per_second = (load.requests + load.warm_up) as f64 / wall_seconds;
    if args.json {
        answer(crate::json::line(&object(&summary, per_second)?)?)?;
    } else {
        print(&summary, per_second)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn load(args: &SimulateArgs) -> Workload {
    let of = &args.load;
    let pick = match of.pick {
        PickMoment::Before => Moment::Before,
        PickMoment::After => Moment::After,
    };
    Workload {
        span: of.span,
        request_sectors: of.sectors,
        align_sectors: of.align_sectors,
        range: of.range_sectors.unwrap_or(RangeSize::Sectors(of.sectors.into())),
        targets: of.targets,
        reads: of.reads,
        arrivals: match of.arrivals_per_second {
            Some(per_second) => Arrivals::Open { per_second },
            None => Arrivals::Closed {
                depth: of.depth.unwrap_or(1),
                pick,
            },
        },
        overheads: match args.overhead_ms {
            Some(overhead) => Overheads::Fixed(overhead),
            None if args.mechanical => Overheads::None,
            None => Overheads::Controller,
        },
        requests: of.requests.unwrap_or(match args.show.is_asked_for() {
            true => SHOWN,
            false => MEASURED,
        }),
        warm_up: of.warm_up,
        seed: of.seed,
    }
}

/// Requests, unless the command says how many.
const MEASURED: u64 = 30_000;
const SHOWN: u64 = 5;

/// More than this before a request is no overhead.
const OVERHEAD_MS_MAX: f64 = 10_000.0;

pub(super) fn overhead(text: &str) -> Result<Ps, String> {
    let ms: Option<f64> = text.parse().ok();
    let ms = ms.filter(|ms| (0.0..=OVERHEAD_MS_MAX).contains(ms));
    ms.map(Ps::from_ms)
        .ok_or_else(|| format!("write milliseconds, from 0 to {OVERHEAD_MS_MAX}"))
}

/// The file with a row for each request.
fn table(path: &Path) -> Result<Table> {
    use ColumnType::{Letter, Milliseconds, Whole};
    Table::create(
        path,
        &[
            ("number", Whole),
            ("op", Letter),
            ("lbn", Whole),
            ("sectors", Whole),
            ("arrival_ms", Milliseconds),
            ("start_ms", Milliseconds),
            ("end_ms", Milliseconds),
            ("waiting", Whole),
            ("seek_ms", Milliseconds),
            ("rotation_ms", Milliseconds),
            ("transfer_ms", Milliseconds),
            ("overhead_ms", Milliseconds),
        ],
    )
}

fn row(served: &Served) -> [Cell; 12] {
    [
        Cell::Whole(served.number),
        Cell::Letter(if served.write { 'W' } else { 'R' }),
        Cell::Whole(served.lbn.0),
        Cell::Whole(served.sectors.into()),
        Cell::Time(served.arrived),
        Cell::Time(served.started),
        Cell::Time(served.ended),
        Cell::Whole(served.waiting.into()),
        Cell::Time(served.seek),
        Cell::Time(served.rotation),
        Cell::Time(served.transfer),
        Cell::Time(served.overhead),
    ]
}

fn object(summary: &Summary, per_second: f64) -> serde_json::Result<Value> {
    let mut object = serde_json::to_value(summary)?;
    object["requests_per_second"] = json!(per_second);
    Ok(object)
}

fn print(summary: &Summary, per_second: f64) -> io::Result<()> {
    for (name, Estimate { mean, ci95 }) in summary.means() {
        let ci95 = ci95.map_or(String::new(), |ci95| format!(" +- {ci95:.3}"));
        answer(format_args!("{name:<10}{mean:>10.3} ms{ci95}"))?;
    }
    answer(spread::line("response", &summary.response_percentiles_ms))?;
    answer(format_args!(
        "estimates {:>10.1} per request",
        summary.estimations_per_request
    ))?;
    let Summary {
        requests,
        reads,
        simulated_seconds,
        ..
    } = summary;
    answer(format_args!(
        "{requests} requests, {reads} of them reads, in {simulated_seconds:.1} simulated seconds; \
         {:.0} thousand simulated per second",
        per_second / 1000.0
    ))
}
