//! `elbow holes FILE`: where a file has data and where it has holes; `--dig` makes holes of zeros.

mod strip;

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use elbow_file::dig::{Dug, Means, Writers, dig};
use elbow_file::{Access, Errno, Extent, ExtentKind, Extents, RealStorage, ShowName, Storage};
use serde::Serialize;

use crate::exit;
use crate::holes_args::HolesArgs;
use crate::json::{self, WordedError};
use crate::names::PathName;
use crate::output::{answer, print_message};
use crate::progress::Meter;
use crate::size;
use crate::zero::open;

/// Shows the map, or digs.
pub(crate) fn run(args: &HolesArgs) -> anyhow::Result<ExitCode> {
    let ended = if args.dig { run_dig(args) } else { run_map(args) };
    json::answered(args.json, &*args.file, ended)
}

fn run_map(args: &HolesArgs) -> anyhow::Result<ExitCode> {
    let map = Map::read(&args.file)?;
    if args.json {
        answer(json::line(&map)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    answer(map.headline())?;
    if std::io::stdout().is_terminal() && map.size_bytes > 0 {
        answer(strip::for_terminal(&map.extents, map.size_bytes))?;
    }
    answer(map.table())?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Map {
    #[serde(flatten)]
    path: PathName,
    size_bytes: u64,
    /// What the file takes on the disk.
    allocated_bytes: u64,
    data_bytes: u64,
    hole_bytes: u64,
    #[serde(serialize_with = "as_spans")]
    extents: Vec<Extent>,
}

fn as_spans<S: serde::Serializer>(extents: &[Extent], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Span {
        offset: u64,
        length: u64,
        kind: &'static str,
    }
    serializer.collect_seq(extents.iter().map(|extent| Span {
        offset: extent.range.start,
        length: length(extent),
        kind: name(extent.kind),
    }))
}

impl Map {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let file = open(path, Access::Read)?;
        let found = Extents::of(&file)?;
        let (size_bytes, allocated_bytes) = (found.size_bytes(), found.allocated_bytes());
        let extents = found.collect::<Result<Vec<_>, _>>()?;
        let bytes_of = |kind| extents.iter().filter(|extent| extent.kind == kind).map(length).sum();
        Ok(Self {
            path: PathName::of(path),
            size_bytes,
            allocated_bytes,
            data_bytes: bytes_of(ExtentKind::Data),
            hole_bytes: bytes_of(ExtentKind::Hole),
            extents,
        })
    }

    fn headline(&self) -> String {
        let [size, allocated, data, holes] =
            [self.size_bytes, self.allocated_bytes, self.data_bytes, self.hole_bytes].map(size::show);
        format!(
            "{}: {size}, of which {data} data and {holes} holes; takes {allocated} on the disk",
            shown(&self.path)
        )
    }

    fn table(&self) -> String {
        let mut lines = vec![format!("{:>20} {:>20}  {}", "OFFSET", "LENGTH", "KIND")];
        lines.extend(self.extents.iter().map(|extent| {
            let (start, length, kind) = (extent.range.start, length(extent), name(extent.kind));
            format!("{start:>20} {length:>20}  {kind}")
        }));
        lines.join("\n")
    }
}

fn shown(path: &PathName) -> String {
    path.path().unwrap_or_default().shown().to_string()
}

fn length(extent: &Extent) -> u64 {
    extent.range.end - extent.range.start
}

fn name(kind: ExtentKind) -> &'static str {
    match kind {
        ExtentKind::Data => "data",
        ExtentKind::Hole => "hole",
    }
}

fn run_dig(args: &HolesArgs) -> anyhow::Result<ExitCode> {
    let file = open(&args.file, Access::ReadWrite)?;
    let writers = match args.assume_no_writers {
        true => Writers::None,
        false => Writers::Unknown,
    };
    let before = RealStorage.stat_handle(&file)?;
    let mut meter = Meter::new(&args.file.shown().to_string(), args.quiet || args.json);
    let dug = dig(&file, writers, |dug| meter.show(dug.examined_bytes, dug.size_bytes));
    drop(meter);
    let dug = dug.map_err(|error| refusal(args, error))?;
    let after = RealStorage.stat_handle(&file)?;
    let report = DigReport::of(args, &dug, before.blocks, after.blocks);
    if args.json {
        answer(json::line(&report)?)?;
    } else if !args.quiet {
        print_message(report.sentence());
    }
    if dug.finished {
        return Ok(ExitCode::SUCCESS);
    }
    print_message(format_args!(
        "{}: somebody else has opened it, so the rest was left alone; start again when it is closed (fuser(1) says who has it)",
        args.file.shown()
    ));
    Ok(ExitCode::from(exit::ELBOW_FAILED))
}

/// Why nothing can be dug, and the way out.
fn refusal(args: &HolesArgs, error: std::io::Error) -> anyhow::Error {
    let path = args.file.shown();
    let errno = Errno::from_io_error(&error);
    let message = match errno {
        Some(Errno::BUSY) => format!(
            "{path}: somebody else has it open, and this file system cannot keep their writes safe; start again when it is \
             closed (fuser(1) says who has it), or use --assume-no-writers if they only read"
        ),
        Some(Errno::ACCESS) => format!(
            "{path}: only its owner may keep others out while it is dug; use --assume-no-writers if nobody writes"
        ),
        Some(Errno::OPNOTSUPP) if args.assume_no_writers => format!("{path}: this file system cannot punch holes"),
        Some(Errno::OPNOTSUPP) => format!(
            "{path}: this file system cannot punch holes, or it cannot keep others out meanwhile; use --assume-no-writers \
             if nobody writes"
        ),
        _ => return anyhow::Error::from(error).context(format!("{path}: cannot be dug")),
    };
    let errno = errno.unwrap_or(Errno::IO);
    WordedError { message, errno }.into()
}

#[derive(Serialize)]
struct DigReport {
    #[serde(flatten)]
    path: PathName,
    size_bytes: u64,
    examined_bytes: u64,
    dug_bytes: u64,
    allocated_bytes_before: u64,
    allocated_bytes: u64,
    /// How writes of others were kept safe.
    means: &'static str,
    finished: bool,
}

impl DigReport {
    fn of(args: &HolesArgs, dug: &Dug, blocks_before: u64, blocks: u64) -> Self {
        Self {
            path: PathName::of(&args.file),
            size_bytes: dug.size_bytes,
            examined_bytes: dug.examined_bytes,
            dug_bytes: dug.dug_bytes,
            allocated_bytes_before: blocks_before.saturating_mul(512),
            allocated_bytes: blocks.saturating_mul(512),
            means: match dug.means {
                Means::Compare => "compare",
                Means::Lease => "lease",
                Means::Promise => "promise",
            },
            finished: dug.finished,
        }
    }

    fn sentence(&self) -> String {
        let [dug, before, now] = [self.dug_bytes, self.allocated_bytes_before, self.allocated_bytes].map(size::show);
        format!(
            "{}: {dug} of zeros are holes now; takes {now} on the disk, took {before}",
            shown(&self.path)
        )
    }
}
