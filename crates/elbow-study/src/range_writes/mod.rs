//! Figures 4 to 13 and Tables 2 and 3 of *Avoiding File System Micromanagement with Range Writes* (below: *Range Writes*),
//! computed again, each with its claims and what becomes of them here.
//!
//! ```text
//!   Plan { drive, seed, size } ──study──> Figure { panels, claims }
//!                                          │         └ what *Range Writes* says, what comes out here, a verdict and its reason
//!                                          └ columns over one axis: what is drawn, and written as CSV
//! ```
//!
//! `disk` and `choices` have Figures 4 to 8 (random requests), `small_files` Figures 9 to 11 and `traces` Table 2 (the ext2 model on the drive). The
//! figures `targets`, `work` and `first-choice` have no number in *Range Writes*: they belong to claims and equations in its text. `plane` is what becomes of
//! Table 2's gains with other caches. `skips` and `journals` have Figures 12 and 13 and Table 3, of a log on a disk that turns: the first from the model, the others
//! from what was measured on a real ext4. Nothing is drawn or written here. Points are simulated side by side; the same plan gives the same
//! figures.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), sections 3.4, 4.3 and 6. What was found, and why:
//! docs/design/range-writes-study.md.

mod choices;
mod claim;
mod disk;
mod first_choice;
mod journals;
mod linux;
mod panel;
mod plan;
mod plane;
mod skips;
mod small_files;
mod traces;
mod trees;

pub use claim::{Author, Claim, TOLERANCE, Verdict};
pub use panel::{Column, Panel, PanelKind, Scale};
pub use plan::{FIGURES, Figure, Journals, MEASURED, Plan, RESULTS_FILE, Size, StudyError, WRITES_FILE};

impl Plan {
    /// Makes a figure.
    ///
    /// # Errors
    /// For an unknown name, and for traces that are none or do not fit the drive.
    pub fn figure(&self, name: &str) -> Result<Figure, StudyError> {
        let mut figure = self.make(name)?;
        let columns = || figure.panels.iter().flat_map(|panel| &panel.columns);
        if columns().any(|column| !column.intervals.is_empty()) {
            let seeds = self.seeds().count();
            figure.caption += &format!(" Means of {seeds} seeds, with 95 % intervals.");
        }
        Ok(figure)
    }

    fn make(&self, name: &str) -> Result<Figure, StudyError> {
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
            "12" => skips::skips(self),
            "13" => journals::writes(self),
            "table2" => traces::table(self),
            "table3" => journals::table(self),
            "plane" => plane::plane(self),
            "first-choice" => first_choice::first_choice(self),
            _ => Err(StudyError::NoSuchFigure(name.into())),
        }
    }
}
