//! `elbow disk figure`: the study of range writes, drawn and judged.

pub(crate) mod axis;
mod claims;
mod layout;
mod plot;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use elbow_disk::trace;
use elbow_study::range_writes::{
    Author, Column, FIGURES, Figure, Journals, MEASURED, Panel, Plan, RESULTS_FILE, Size, WRITES_FILE,
};
use serde_json::{Value, json};

use super::picture;
use crate::output::{answer, print_message};

pub(crate) const EXAMPLES: &str = "\
Examples:
  What the paper says of its Figure 5, and what comes out here:
      elbow disk figure 5

  The same of Figure 11, with here/figure-11.csv, .svg and .png:
      elbow disk figure 11 --out here

  All of them, and here/claims.md:
      elbow disk figure all --out here

  Table 2 with a tree of your own (`tar tvf` as size TAB path):
      elbow disk figure table2 --listing tree.tsv

  What TPC-B gains from a journal that waits for no rotation, as `make bench-bark` measured it:
      elbow disk figure table3 --journals bench/out/bark

Figures 4 to 13 and Tables 2 and 3 (table2, table3) of Anand et al., Avoiding File System Micromanagement with Range Writes (OSDI \
2008), on the HP C2247A that it used; targets, work and first-choice have no number there, and plane is Table 2 with other \
caches; 13 and table3 are measured, not simulated.

A claim is reproduced, in part, or refuted, and the reason is given; what we add to the paper's claims is not counted.";

#[derive(Args, Debug)]
pub(crate) struct FigureArgs {
    /// 4 to 13, table2, table3, plane, targets, work, first-choice, or all.
    #[arg(value_name = "NAME")]
    name: String,
    /// Write CSV, SVG and PNG of each there, of tables one in Markdown too; with all, claims.md.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// Another seed gives other requests.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Few requests and short traces: seconds instead of minutes, and rough numbers.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Unpack the whole tree also where it is unpacked a hundred times (plane): minutes.
    #[arg(long)]
    full: bool,
    /// The tree that Table 2 unpacks: lines of size TAB path, perhaps packed by gzip; one drawn at random without it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    listing: Option<PathBuf>,
    /// PostMark's real calls for Table 2, as strace prints them, perhaps packed; those of our generator without it.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "postmark_directory")]
    postmark: Option<PathBuf>,
    /// The directory in which PostMark worked there.
    #[arg(long, value_name = "DIR", requires = "postmark")]
    postmark_directory: Option<String>,
    /// The results of `make bench-bark`, for 13 and table3; all is without these two otherwise.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    journals: Option<PathBuf>,
    /// Print one JSON object, with all numbers.
    #[arg(long)]
    json: bool,
}

/// Makes the figures, shows and writes them.
pub(super) fn run(args: &FigureArgs) -> Result<ExitCode> {
    crate::json::answered(args.json, None::<&Path>, make(args))
}

fn make(args: &FigureArgs) -> Result<ExitCode> {
    let plan = plan(args)?;
    let names = match args.name.as_str() {
        "all" if plan.journals.is_some() => [&FIGURES[..], &MEASURED[..]].concat(),
        "all" => FIGURES.to_vec(),
        name => vec![name],
    };
    let began = Instant::now();
    if let Some(out) = &args.out {
        make_directory(out)?;
    }
    let mut figures = Vec::new();
    for name in names {
        let figure = plan.figure(name)?;
        if let Some(out) = &args.out {
            write(out, &figure)?;
        }
        if !args.json {
            claims::print(&figure)?;
        }
        figures.push(figure);
    }
    if let (Some(out), "all") = (&args.out, args.name.as_str()) {
        put(&out.join("claims.md"), claims::markdown(&figures).as_bytes())?;
    }
    if args.json {
        answer(crate::json::line(&object(&figures, began.elapsed().as_secs_f64()))?)?;
    } else {
        answer(claims::summary(&figures))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &FigureArgs) -> Result<Plan> {
    let size = match (args.quick, args.full) {
        (true, _) => Size::Quick,
        (_, true) => Size::Full,
        _ => Size::Normal,
    };
    let mut plan = Plan::new(args.seed, size)?;
    if let Some(path) = &args.listing {
        plan.listing = Some((path.display().to_string(), read(path)?));
    }
    if let (Some(path), Some(directory)) = (&args.postmark, &args.postmark_directory) {
        plan.postmark = Some((path.display().to_string(), read(path)?, directory.clone()));
    }
    if let Some(directory) = &args.journals {
        plan.journals = Some(Journals {
            directory: directory.display().to_string(),
            results: read_if_there(&directory.join(RESULTS_FILE))?,
            writes: read_if_there(&directory.join(WRITES_FILE))?,
        });
    }
    Ok(plan)
}

/// Not every run has all files.
fn read_if_there(path: &Path) -> Result<Option<String>> {
    match read(path) {
        Err(error) if is_not_there(&error) => Ok(None),
        other => other.map(Some),
    }
}

fn is_not_there(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<io::Error>();
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound)
}

#[allow(
    clippy::disallowed_methods,
    reason = "an input of the simulation, read once from front to back"
)]
fn read(path: &Path) -> Result<String> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    trace::text(file).with_context(|| format!("cannot read {}", path.display()))
}

#[allow(clippy::disallowed_methods, reason = "a report beside the simulation")]
fn make_directory(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot make the directory {}", path.display()))
}

#[allow(clippy::disallowed_methods, reason = "a report beside the simulation")]
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Its numbers and its picture.
fn write(out: &Path, figure: &Figure) -> Result<()> {
    let name = file_name(figure.name);
    let svg = plot::svg(figure)?;
    put(&out.join(format!("{name}.csv")), figure.csv().as_bytes())?;
    put(&out.join(format!("{name}.svg")), svg.as_bytes())?;
    match picture::png(&svg)? {
        Some(png) => put(&out.join(format!("{name}.png")), &png)?,
        None => print_message(format_args!(
            "{name}.png is not made: this machine has no font to write with"
        )),
    }
    if ["table2", "table3"].contains(&figure.name) {
        put(&out.join(format!("{name}.md")), claims::tables(figure).as_bytes())?;
    }
    Ok(())
}

/// Without an extension.
fn file_name(figure: &str) -> String {
    match figure.parse::<u32>() {
        Ok(number) => format!("figure-{number}"),
        Err(_) => figure.to_owned(),
    }
}

fn object(figures: &[Figure], seconds: f64) -> Value {
    json!({ "figures": figures.iter().map(figure_object).collect::<Vec<_>>(), "seconds": seconds })
}

fn figure_object(figure: &Figure) -> Value {
    let claims = figure.claims.iter().map(|claim| {
        json!({
            "by": match claim.by { Author::Paper => "paper", Author::Ours => "ours" },
            "says": claim.says,
            "paper": claim.paper,
            "ours": claim.ours,
            "verdict": claim.verdict.to_string(),
            "reason": claim.reason,
        })
    });
    json!({
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "panels": figure.panels.iter().map(panel_object).collect::<Vec<_>>(),
        "claims": claims.collect::<Vec<_>>(),
    })
}

fn panel_object(panel: &Panel) -> Value {
    let of = |part: fn(&Column) -> &Vec<f64>| -> serde_json::Map<String, Value> {
        let columns = panel.columns.iter().filter(|&column| !part(column).is_empty());
        columns
            .map(|column| (column.name.clone(), json!(part(column))))
            .collect()
    };
    json!({
        "title": panel.title,
        "axis": panel.axis,
        "places": panel.places,
        "unit": panel.unit,
        "columns": of(|column| &column.values),
        "intervals": of(|column| &column.intervals),
    })
}
