//! `elbow disk simulate --show`: platter and head, moment by moment, for a short list of requests.
//!
//! ```text
//!   list ──> Plan::serve ──> Scene ──> words      what is done when, as text
//!                                  ├─> terminal   the platter drawn in letters, moving
//!                                  ├─> svg        the same for a browser, or a still of it
//!                                  └─> object     JSON
//! ```
//!
//! Every number is of the model; what is drawn between two of its moments is on the straight line between them.

mod canvas;
mod list;
mod scene;
mod svg;
mod terminal;
mod words;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueHint, value_parser};
use elbow_disk::sched::Scheduler;
use elbow_disk::timeline::Plan;
use elbow_disk::workload::{Overheads, Workload};
use elbow_disk::{Arm, Drive, Ps};

use super::picture;
use crate::output::answer;
use scene::Scene;

#[derive(Args, Debug)]
pub(super) struct ShowArgs {
    /// Show platter and head moment by moment for a short list of requests: moving in a terminal, as lines elsewhere,
    /// in FILE.svg for a browser, or as a still in FILE.png.
    #[arg(long, value_name = "FILE", num_args = 0..=1, value_hint = ValueHint::FilePath, conflicts_with_all = [
        "arrivals_per_second", "pick", "range_sectors", "targets", "warm_up", "per_request"
    ])]
    show: Option<Option<PathBuf>>,
    /// What to show: requests for the sectors from each of these on, all there at once.
    #[arg(long, value_name = "LBN", value_delimiter = ',', requires = "show")]
    #[arg(conflicts_with_all = ["trace", "span", "align_sectors", "requests", "seed"])]
    lbns: Vec<u64>,
    /// What to show: a trace as of `elbow disk replay`; - is standard input.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "show")]
    #[arg(conflicts_with_all = ["span", "sectors", "align_sectors", "reads", "requests", "seed"])]
    trace: Option<PathBuf>,
    /// Where the arm stands at first.
    #[arg(long, value_name = "C", default_value_t = 0, requires = "show")]
    start_cylinder: u32,
    /// Which head is connected at first.
    #[arg(long, value_name = "H", default_value_t = 0, requires = "show")]
    start_head: u32,
    /// How far the platter has turned at first, in degrees from 0 to 360.
    #[arg(long, value_name = "DEGREES", default_value_t = 0.0, requires = "show")]
    start_angle: f64,
    /// How many times slower than the drive the picture moves.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = value_parser!(u32).range(1..=100_000), requires = "show")]
    slower: u32,
}

/// What else the command was told.
pub(super) struct ShowContext<'a> {
    pub(super) drive: &'a Arc<Drive>,
    pub(super) scheduler: Scheduler,
    /// Without it, all that have arrived.
    pub(super) depth: Option<u32>,
    /// Where requests come from that are not listed.
    pub(super) load: Workload,
    pub(super) json: bool,
}

impl ShowArgs {
    pub(super) fn is_asked_for(&self) -> bool {
        self.show.is_some()
    }

    /// Serves the list and shows it.
    pub(super) fn run(&self, given: &ShowContext<'_>) -> Result<ExitCode> {
        let target = Target::of(self.show.iter().flatten().next().map(PathBuf::as_path))?;
        let list = match (&self.trace, &self.lbns[..]) {
            (Some(trace), _) => list::of_trace(given.drive, trace)?,
            (None, []) => list::random(given.drive, &given.load)?,
            (None, lbns) => list::of_lbns(given.drive, lbns, &given.load)?,
        };
        let scene = Scene::new(given.drive, self.plan(given, list.len())?, list);
        match target {
            Target::Svg(file) => put(file, svg::animation(&scene, self.slower).as_bytes())?,
            Target::Png(file) => put(file, &still(&scene, self.slower)?)?,
            Target::Here if given.json => {}
            Target::Here => terminal::play(&scene, self.slower)?,
        }
        if given.json {
            answer(crate::json::line(&scene.object())?)?;
        } else {
            words::lines(&scene).iter().try_for_each(answer)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self, given: &ShowContext<'_>, requests: usize) -> Result<Plan> {
        let drive = given.drive;
        let arm = Arm {
            cylinder: self.start_cylinder,
            head: self.start_head,
        };
        ensure!(
            drive.has(arm),
            "the arm cannot start at cylinder {}, head {}: {} has cylinders 0 to {} and heads 0 to {}",
            arm.cylinder,
            arm.head,
            drive.name(),
            drive.cylinders() - 1,
            drive.heads() - 1
        );
        ensure!(
            (0.0..360.0).contains(&self.start_angle),
            "--start-angle is {}: write degrees, from 0 to below 360",
            self.start_angle
        );
        let depth = given.depth.map_or(requests, |depth| depth as usize);
        ensure!(depth > 0, "--depth is 0: the scheduler knows at least one request");
        let turned = (self.start_angle / 360.0 * drive.rotation().0 as f64) as u64;
        Ok(Plan {
            scheduler: given.scheduler,
            depth,
            overhead: match given.load.overheads {
                Overheads::Fixed(overhead) => overhead,
                Overheads::None | Overheads::Controller => Ps::ZERO,
            },
            arm,
            angle: Ps(turned.min(drive.rotation().0 - 1)),
        })
    }
}

/// Where it is shown.
enum Target<'a> {
    Here,
    Svg(&'a Path),
    Png(&'a Path),
}

impl Target<'_> {
    fn of(file: Option<&Path>) -> Result<Target<'_>> {
        let Some(file) = file else {
            return Ok(Target::Here);
        };
        match file.extension().and_then(OsStr::to_str) {
            Some("svg") => Ok(Target::Svg(file)),
            Some("png") => Ok(Target::Png(file)),
            _ => bail!(
                "cannot draw into {}: name a file that ends in .svg or .png, or none to see it here",
                file.display()
            ),
        }
    }
}

/// The start, with all requests and times.
fn still(scene: &Scene<'_>, slower: u32) -> Result<Vec<u8>> {
    let png = picture::png(&svg::animation(scene, slower))?;
    png.context("this machine has no font to write with: draw an SVG")
}

#[allow(clippy::disallowed_methods, reason = "a report beside the simulation")]
fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
