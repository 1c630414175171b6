//! What is seen while a job ends: a bar on a terminal, a line now and then in a pipe, or nothing.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use elbow_job::{Phase, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::say::say;
use crate::size;

/// An end that is quicker than this is not worth a bar.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows the progress of one ending job.
pub(crate) struct Display {
    directory: String,
    began: Instant,
    how: How,
}

enum How {
    Silent,
    Lines(Instant),
    Bar(Bar),
}

struct Bar {
    bar: Option<ProgressBar>,
    /// Most work that was left at once: the length of the bar.
    most: u64,
}

impl Display {
    /// For a job over a directory; `silent` shows nothing.
    pub(crate) fn new(directory: &Path, silent: bool) -> Self {
        let began = Instant::now();
        let how = match (silent, std::io::stderr().is_terminal()) {
            (true, _) => How::Silent,
            (false, true) => How::Bar(Bar { bar: None, most: 0 }),
            (false, false) => How::Lines(began),
        };
        Self {
            directory: directory.display().to_string(),
            began,
            how,
        }
    }

    /// Shows where the job is now.
    pub(crate) fn show(&mut self, progress: &Progress) {
        match &mut self.how {
            How::Silent => {}
            How::Lines(last) if last.elapsed() < BETWEEN_LINES => {}
            How::Lines(last) => {
                *last = Instant::now();
                say(format_args!("{}: {}", self.directory, sentence(progress)));
            }
            How::Bar(bar) if self.began.elapsed() >= PATIENCE => bar.show(progress),
            How::Bar(_) => {}
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let How::Bar(Bar { bar: Some(bar), .. }) = &self.how {
            bar.finish_and_clear();
        }
    }
}

impl Bar {
    fn show(&mut self, progress: &Progress) {
        let bar = self.bar.get_or_insert_with(new_bar);
        let left = left(progress);
        self.most = self.most.max(left);
        bar.set_length(self.most);
        bar.set_position(self.most - left);
        bar.set_message(sentence(progress));
    }
}

fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("elbow: {bar:30} {percent:>3}% {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Objects that wait or are under way.
fn left(progress: &Progress) -> u64 {
    progress.counts.queued + progress.counts.in_flight
}

/// Where a job is, in words.
pub(crate) fn sentence(progress: &Progress) -> String {
    let counts = &progress.counts;
    match progress.phase {
        Phase::Draining => format!(
            "draining: {} left, {} in flight, {} written",
            left(progress),
            counts.in_flight,
            size::show(counts.bytes_written)
        ),
        Phase::Checking => "checking for conflicts".to_owned(),
        Phase::Syncing => "making it durable".to_owned(),
        Phase::Publishing => "publishing".to_owned(),
        Phase::RollingBack => "rolling back".to_owned(),
        Phase::CleaningUp => "cleaning up".to_owned(),
    }
}
