//! What a study is made with, and what comes of it.

use std::sync::Arc;

use super::claim::Claim;
use super::panel::Panel;
use elbow_disk::Drive;
use elbow_disk::workload::WorkloadError;
use elbow_ext2::{Ext2Error, TraceError};

/// What can be made, in the order in which *Range Writes* has it.
pub const FIGURES: [&str; 14] = [
    "first-choice",
    "targets",
    "4",
    "5",
    "6",
    "7",
    "8",
    "work",
    "9",
    "10",
    "11",
    "table2",
    "plane",
    "12",
];

/// What is measured and not simulated: it can be made with [`Plan::journals`] alone.
pub const MEASURED: [&str; 2] = ["table3", "13"];

/// What a study is made with.
///
/// ```
/// use elbow_study::range_writes::{Plan, Size};
/// let plan = Plan::new(1, Size::Quick)?;
/// let figure = plan.figure("8")?;
/// assert!(figure.claims[0].verdict.is_reproduced(), "eight choices do most of what all do");
/// # Ok::<(), elbow_study::range_writes::StudyError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) drive: Arc<Drive>,
    pub(super) seed: u64,
    pub(super) size: Size,
    /// Listing of the tree that is unpacked, `size TAB path` in each line, and its name; without one, a tree is drawn at random with the sizes of Linux 2.6.20.
    pub listing: Option<(String, String)>,
    /// Real calls of PostMark as strace prints them, their name, and the directory that they worked in; without them, our generator makes some with the defaults of version 1.51.
    pub postmark: Option<(String, String, String)>,
    /// What was measured of journals, for [`MEASURED`].
    pub journals: Option<Journals>,
}

/// The files of a run of `make bench-bark`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journals {
    /// What its directory is called.
    pub directory: String,
    /// Its [`RESULTS_FILE`]; `None` where there is none.
    pub results: Option<String>,
    /// Its [`WRITES_FILE`].
    pub writes: Option<String>,
}

/// Each measurement, for Table 3.
pub const RESULTS_FILE: &str = "results.csv";
/// How long writes of the journal took, for Figure 13.
pub const WRITES_FILE: &str = "figure-13.csv";

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Seconds, and rough numbers.
    Quick,
    /// As much as means of one point need; a tree of which a part is unpacked.
    Normal,
    /// The whole tree.
    Full,
}

/// One figure, or the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// One of [`FIGURES`] or [`MEASURED`].
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

/// Why a study cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// A name that no figure has.
    #[error("there is no figure {0:?}: take {figures}, {measured}, or all", figures = FIGURES.join(", "), measured = MEASURED.join(", "))]
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
    /// A profile of it was not made.
    #[error(transparent)]
    Profile(#[from] elbow_disk::profile::ProfileError),
    /// Nobody said where the results are.
    #[error("this is measured and not simulated: name the results of make bench-bark (--journals DIR)")]
    NotMeasured,
    /// A directory without them.
    #[error("{directory} has no {file}: is it the results of make bench-bark?")]
    NoSuchResult {
        /// Where it was looked for.
        directory: String,
        /// What was looked for.
        file: &'static str,
    },
    /// A file of other columns.
    #[error("{file}: {reason}")]
    InvalidResult {
        /// Which.
        file: String,
        /// What is wrong, and where.
        reason: csv::Error,
    },
    /// A run that left out what a figure shows.
    #[error("{file} has nothing to show: no {what}")]
    NothingMeasured {
        /// Which.
        file: String,
        /// What is not there.
        what: &'static str,
    },
}

/// Runs of which a mean with its interval is made, and of a quick plan.
const SEEDS: u64 = 5;
const QUICK_SEEDS: u64 = 2;

impl Plan {
    /// On the drive of *Range Writes*, the HP C2247A.
    ///
    /// # Errors
    /// Where the built-in description is broken.
    pub fn new(seed: u64, size: Size) -> Result<Plan, StudyError> {
        Ok(Plan {
            drive: Arc::new(Drive::named("hp-c2247a")?),
            seed,
            size,
            listing: None,
            postmark: None,
            journals: None,
        })
    }

    pub(super) fn is_quick(&self) -> bool {
        self.size == Size::Quick
    }

    /// As many requests as the mean of a point needs, of each seed.
    pub(super) fn requests(&self) -> u64 {
        if self.is_quick() { 1_000 } else { 6_000 }
    }

    /// Over which means are made, and intervals.
    pub(super) fn seeds(&self) -> impl Iterator<Item = u64> + Clone + use<> {
        let (first, count) = (self.seed, if self.is_quick() { QUICK_SEEDS } else { SEEDS });
        (0..count).map(move |step| first.wrapping_add(step))
    }
}

impl Figure {
    /// Its numbers: a line of names, and a line for each place of the axis, panel after panel. A column that a panel does not have is empty
    /// there. `NAME +-` is half of the 95 % interval over seeds.
    ///
    /// ```
    /// # use elbow_study::range_writes::{Plan, Size};
    /// let csv = Plan::new(1, Size::Quick)?.figure("8")?.csv();
    /// assert!(csv.starts_with("panel,choices,simulated,closed form\none track,1,11.1"));
    /// # Ok::<(), elbow_study::range_writes::StudyError>(())
    /// ```
    #[must_use]
    pub fn csv(&self) -> String {
        let names = self.column_names();
        let axis = self.panels.first().map_or("", |panel| panel.axis);
        let line = |cells: Vec<String>| cells.join(",") + "\n";
        let heads = names.iter().flat_map(|(name, has_interval)| {
            let interval = has_interval.then(|| cell(&format!("{name} +-")));
            [Some(cell(name)), interval].into_iter().flatten()
        });
        let mut lines = line([cell("panel"), cell(axis)].into_iter().chain(heads).collect());
        for panel in &self.panels {
            for (place, label) in panel.places.iter().enumerate() {
                let values = names
                    .iter()
                    .flat_map(|(name, has_interval)| panel.cells(name, place, *has_interval));
                lines.push_str(&line(
                    [cell(&panel.title), cell(label)].into_iter().chain(values).collect(),
                ));
            }
        }
        lines
    }

    /// Names of columns in their order, and whether any of that name has intervals.
    fn column_names(&self) -> Vec<(&str, bool)> {
        let mut names: Vec<(&str, bool)> = Vec::new();
        for column in self.panels.iter().flat_map(|panel| &panel.columns) {
            let has_interval = !column.intervals.is_empty();
            match names.iter_mut().find(|(name, _)| *name == column.name) {
                Some((_, any)) => *any |= has_interval,
                None => names.push((&column.name, has_interval)),
            }
        }
        names
    }
}

impl Panel {
    /// The number of a column at a place, and its interval; empty where there is none.
    fn cells(&self, name: &str, place: usize, has_interval: bool) -> Vec<String> {
        let column = self.columns.iter().find(|column| column.name == name);
        let number = |of: &[f64]| {
            of.get(place)
                .filter(|value| value.is_finite())
                .map(|value| format!("{value:.6}"))
        };
        let mut cells = vec![column.and_then(|column| number(&column.values)).unwrap_or_default()];
        if has_interval {
            cells.push(column.and_then(|column| number(&column.intervals)).unwrap_or_default());
        }
        cells
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
pub(super) fn each<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, StudyError> + Sync + Send,
) -> Result<Vec<R>, StudyError> {
    use rayon::prelude::*;
    items.par_iter().map(work).collect()
}
