//! Figures 4 to 11 and Table 2 of *Avoiding File System Micromanagement with Range Writes* (below: *Range Writes*),
//! computed again, each with its claims and what becomes of them here.
//!
//! ```text
//!   Plan { drive, seed, size } ──study──> Figure { panels, claims }
//!                                          │         └ what *Range Writes* says, what comes out here, a verdict and its reason
//!                                          └ columns over one axis: what is drawn, and written as CSV
//! ```
//!
//! `disk` and `choices` have Figures 4 to 8 (random requests), `small_files` Figures 9 to 11 and `traces` Table 2 (the ext2 model on the drive). The
//! figure `targets` and `work` have no number in *Range Writes*: the first belongs to a claim that it makes, the second
//! to its equations. Nothing is drawn or written here. Points are simulated side by side; the same plan gives the same
//! figures.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), sections 3.4 and 4.3. What was found, and why:
//! docs/design/range-writes-study.md.

mod choices;
mod claim;
mod disk;
mod small_files;
mod traces;

use std::sync::Arc;

pub use claim::{Claim, Verdict};

use elbow_disk::Drive;
use elbow_disk::workload::WorkloadError;
use elbow_ext2::{Ext2Error, TraceError};

/// What can be made, in the order in which *Range Writes* has it.
pub const FIGURES: [&str; 11] = ["targets", "4", "5", "6", "7", "8", "work", "9", "10", "11", "table2"];

/// What a study is made with.
///
/// ```
/// use elbow_study::range_writes::Plan;
/// let plan = Plan::new(1, true)?;
/// let figure = plan.figure("8")?;
/// assert!(figure.claims[0].verdict.is_reproduced(), "eight choices do most of what all do");
/// # Ok::<(), elbow_study::range_writes::StudyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    drive: Arc<Drive>,
    seed: u64,
    quick: bool,
    /// Listing of the tree that is unpacked, `size TAB path` in each line, and its name; without one, a synthetic tree.
    pub listing: Option<(String, String)>,
    /// Real calls of PostMark as strace prints them, their name, and the directory that they worked in; without them, the generator's.
    pub postmark: Option<(String, String, String)>,
}

/// One figure, or the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// One of [`FIGURES`].
    pub name: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// How it was made, and what is not known of how *Range Writes* made it.
    pub caption: String,
    /// The graphs.
    pub panels: Vec<Panel>,
    /// What *Range Writes* says of it.
    pub claims: Vec<Claim>,
}

/// One graph: columns of numbers over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// How the columns are shown.
    pub kind: PanelKind,
    /// What the axis is, and its places.
    pub x: (&'static str, Vec<String>),
    /// What the numbers are.
    pub y: &'static str,
    /// Name and numbers, one for each place.
    pub columns: Vec<(String, Vec<f64>)>,
}

/// How columns are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelKind {
    /// A line each.
    Lines,
    /// One on top of the other: parts of a whole.
    Stacked,
    /// Side by side.
    Bars,
}

/// Why a study cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// A name that no figure has.
    #[error("there is no figure {0:?}: take {figures}, or all", figures = FIGURES.join(", "))]
    NoSuchFigure(String),
    /// A load that cannot be.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// A file system that cannot do what a trace asks.
    #[error(transparent)]
    Ext2(#[from] Ext2Error),
    /// A listing or a trace of calls that is none.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The drive of *Range Writes* is not there.
    #[error(transparent)]
    Drive(#[from] elbow_disk::DriveError),
}

impl Plan {
    /// On the drive of *Range Writes*, the HP C2247A; a quick one takes seconds and its numbers are rough.
    ///
    /// # Errors
    /// Where the built-in description is broken.
    pub fn new(seed: u64, quick: bool) -> Result<Plan, StudyError> {
        Ok(Plan {
            drive: Arc::new(Drive::named("hp-c2247a")?),
            seed,
            quick,
            listing: None,
            postmark: None,
        })
    }

    /// Makes a figure.
    ///
    /// # Errors
    /// For an unknown name, and for traces that are none or do not fit the drive.
    pub fn figure(&self, name: &str) -> Result<Figure, StudyError> {
        match name {
            "targets" => disk::targets(self),
            "4" => disk::classic(self),
            "5" => disk::track_ranges(self),
            "6" => disk::group_ranges(self),
            "7" => disk::reads(self),
            "8" => choices::spaced(self),
            "work" => choices::work(self),
            "9" => small_files::creation(self),
            "10" => small_files::placement(self),
            "11" => small_files::fullness(self),
            "table2" => traces::table(self),
            _ => Err(StudyError::NoSuchFigure(name.into())),
        }
    }

    /// As many requests as a mean of one point needs.
    fn requests(&self) -> u64 {
        if self.quick { 1_000 } else { 20_000 }
    }
}

impl Figure {
    /// Its numbers: a line of names, and a line for each place of the axis, panel after panel. A column that a panel does not have is empty
    /// there.
    ///
    /// ```
    /// # use elbow_study::range_writes::Plan;
    /// let csv = Plan::new(1, true)?.figure("8")?.csv();
    /// assert!(csv.starts_with("panel,choices,simulated,closed form\none track,1,11.1"));
    /// # Ok::<(), elbow_study::range_writes::StudyError>(())
    /// ```
    #[must_use]
    pub fn csv(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in self.panels.iter().flat_map(|panel| &panel.columns) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let axis = self.panels.first().map_or("", |panel| panel.x.0);
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        let mut lines = line(["panel", axis].iter().chain(&names).map(|name| cell(name)).collect());
        for Panel { title, x, columns, .. } in &self.panels {
            for (place, label) in x.1.iter().enumerate() {
                let value = |name: &&str| {
                    let column = columns.iter().find(|(column, _)| column == name);
                    column.map_or(String::new(), |(_, values)| format!("{:.6}", values[place]))
                };
                lines.push_str(&line(
                    [cell(title), cell(label)]
                        .into_iter()
                        .chain(names.iter().map(value))
                        .collect(),
                ));
            }
        }
        lines
    }
}

/// Text as one cell (RFC 4180).
fn cell(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

/// Does the same for all, on all processors, in order.
fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, StudyError> + Sync + Send,
) -> Result<Vec<R>, StudyError> {
    use rayon::prelude::*;
    items.par_iter().map(work).collect()
}

/// The column of one number of each.
fn column<T>(name: &str, of: &[T], value: impl Fn(&T) -> f64) -> (String, Vec<f64>) {
    (name.to_owned(), of.iter().map(value).collect())
}

fn labels<T: ToString>(of: &[T]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}
