//! What is seen of something that takes long: a bar on a terminal, a line now and then in a pipe, or nothing.
//!
//! ```text
//!   Display, Meter   where it is, from whoever does it; never waits
//!        v
//!   painter          a thread: looks, reckons (estimate), words it (line), draws it (terminal)
//! ```
//!
//! A command that runs and is acknowledged faster than its data is stored has a row of its own at the bottom of the
//! terminal, so that what the command itself writes stays whole.

mod estimate;
mod line;
mod painter;
pub(crate) mod step;
mod terminal;

use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;

use elbow_file::ShowName;
use elbow_job::{Counts, Job, Phase, Progress};
use serde::{Deserialize, Serialize};

use crate::cli::When;
use estimate::{Estimate, Part};
use painter::{PaintTarget, Painter, View};

/// Where a job is, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    /// What its end is doing; `None`: its command runs.
    phase: Option<Phase>,
    bytes: Part,
    items: Part,
}

impl Position {
    /// Where a job is that ends.
    pub(crate) fn of(progress: &Progress) -> Self {
        let steps = progress.steps;
        let stored = Self::stored(std::iter::once(progress.counts));
        let (bytes, items) = match progress.phase {
            Phase::Draining => (stored.bytes, stored.items),
            _ => (
                Part::new(steps.bytes_done, steps.bytes_total.saturating_sub(steps.bytes_done)),
                Part::new(steps.done, steps.total.saturating_sub(steps.done)),
            ),
        };
        let phase = Some(progress.phase);
        Self { phase, bytes, items }
    }

    /// What is stored of what the commands of some jobs have done so far.
    fn stored(all: impl Iterator<Item = Counts>) -> Self {
        let mut sum = Counts::default();
        for counts in all {
            sum.bytes_written += counts.bytes_written;
            sum.bytes_left += counts.bytes_left;
            sum.objects_stored += counts.objects_stored;
            sum.objects_left += counts.objects_left;
        }
        Self {
            phase: None,
            bytes: Part::new(sum.bytes_written, sum.bytes_left),
            items: Part::new(sum.objects_stored, sum.objects_left),
        }
    }

    /// It in words, as far as one look can tell.
    pub(crate) fn sentence(&self) -> String {
        painter::sentence(&self.view())
    }

    fn view(&self) -> View {
        let (doing, noun) = match self.phase {
            None | Some(Phase::Draining) => ("storing", "objects"),
            Some(Phase::Checking) => ("checking", "objects"),
            Some(Phase::Saving) => ("saving what is not stored", "objects"),
            Some(Phase::Syncing) => ("making it durable", ""),
            Some(Phase::Publishing) => ("publishing", "names"),
            Some(Phase::RollingBack) => ("rolling back", "names"),
            Some(Phase::CleaningUp) => ("cleaning up", "names"),
        };
        View {
            doing: Cow::Borrowed(doing),
            noun,
            bytes: self.bytes,
            items: self.items,
            is_background: self.phase.is_none(),
        }
    }
}

/// Shows the progress of jobs.
pub(crate) struct Display {
    jobs: Vec<Job>,
    painter: Option<Painter>,
}

impl Display {
    /// For a command and the jobs that it works in, from its start to their end.
    pub(crate) fn of_run(jobs: Vec<Job>, when: When, silent: bool) -> Self {
        let place = match when {
            _ if silent => None,
            When::Never => None,
            _ if terminal::is_there() => Some(PaintTarget::Row),
            When::Always => Some(PaintTarget::AlwaysLines),
            When::Auto => Some(PaintTarget::Lines),
        };
        let looked_at = jobs.clone();
        let look = move || Some(Position::stored(looked_at.iter().map(Job::counts)).view());
        let painter = place
            .and_then(|place| Painter::start(String::new(), place, Estimate::begun(Instant::now()), Box::new(look)));
        Self { jobs, painter }
    }

    /// For the end of a job over a directory; `silent` shows nothing.
    pub(crate) fn of_end(directory: &Path, silent: bool) -> Self {
        let name = directory.shown().to_string();
        let painter =
            place(silent).and_then(|place| Painter::start(name, place, Estimate::default(), Box::new(|| None)));
        let jobs = Vec::new();
        Self { jobs, painter }
    }

    /// Shows where the job is now that is being ended.
    pub(crate) fn show(&mut self, progress: &Progress) {
        let mut position = Position::of(progress);
        if progress.phase == Phase::Draining && self.jobs.len() > 1 {
            position = Position::stored(self.jobs.iter().map(Job::counts));
            position.phase = Some(Phase::Draining);
        }
        self.show_position(&position);
    }

    /// Shows a place that another process has told.
    pub(crate) fn show_position(&mut self, position: &Position) {
        if let Some(painter) = &self.painter {
            painter.show(position.view());
        }
    }
}

/// Gives the terminal back before this process is stopped, if anything is shown there.
pub(crate) fn pause() {
    painter::pause();
}

/// Shows how far something is that goes through bytes.
pub(crate) struct Meter {
    what: String,
    painter: Option<Painter>,
    done_bytes: u64,
}

impl Meter {
    /// For something that is called so; `silent` shows nothing.
    pub(crate) fn new(what: &str, silent: bool) -> Self {
        let shown = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        let painter = place(silent)
            .and_then(|place| Painter::start(String::new(), place, Estimate::begun(Instant::now()), Box::new(|| None)));
        Self {
            what: what.chars().map(shown).collect(),
            painter,
            done_bytes: 0,
        }
    }

    /// Shows that so many of so many bytes are done. It never goes back.
    pub(crate) fn show(&mut self, done_bytes: u64, all_bytes: u64) {
        self.done_bytes = self.done_bytes.max(done_bytes.min(all_bytes));
        if let Some(painter) = &self.painter {
            painter.show(View {
                doing: Cow::Owned(self.what.clone()),
                noun: "",
                bytes: Part::new(self.done_bytes, all_bytes.saturating_sub(self.done_bytes)),
                items: Part::default(),
                is_background: false,
            });
        }
    }
}

fn place(silent: bool) -> Option<PaintTarget> {
    match (silent, terminal::is_there()) {
        (true, _) => None,
        (false, true) => Some(PaintTarget::Line),
        (false, false) => Some(PaintTarget::Lines),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_the_way_to_another_process() {
        let position = Position {
            phase: Some(Phase::Publishing),
            bytes: Part::default(),
            items: Part::new(300, 700),
        };
        let line = serde_json::to_string(&position).expect("JSON");
        assert_eq!(serde_json::from_str::<Position>(&line).expect("a position"), position);
        assert_eq!(position.sentence(), "publishing: 30%, 300 of 1,000 names");
    }

    #[test]
    fn what_is_stored_and_what_is_left_are_all_there_is() {
        let counts = Counts {
            bytes_written: 30,
            bytes_left: 70,
            objects_stored: 1,
            objects_left: 3,
            ..Counts::default()
        };
        let position = Position::stored([counts, counts].into_iter());
        assert_eq!((position.bytes, position.items), (Part::new(60, 140), Part::new(2, 6)));
    }
}
