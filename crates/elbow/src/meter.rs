//! How far something is that goes through bytes: a bar on a terminal, a line now and then in a pipe, or nothing.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::print_message;
use crate::size;

/// What is quicker than this is not worth a bar.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time between lines where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

/// Shows how far it is.
pub(crate) struct Meter {
    what: String,
    began: Instant,
    how: How,
}

enum How {
    Silent,
    Lines(Instant),
    Bar(Option<ProgressBar>),
}

impl Meter {
    /// For something that is called so; `silent` shows nothing.
    pub(crate) fn new(what: String, silent: bool) -> Self {
        let began = Instant::now();
        let how = match (silent, std::io::stderr().is_terminal()) {
            (true, _) => How::Silent,
            (false, true) => How::Bar(None),
            (false, false) => How::Lines(began),
        };
        Self { what, began, how }
    }

    /// Shows that so many of so many bytes are done.
    pub(crate) fn show(&mut self, done_bytes: u64, all_bytes: u64) {
        match &mut self.how {
            How::Lines(last) if last.elapsed() >= BETWEEN_LINES => {
                *last = Instant::now();
                let (done, all) = (size::show(done_bytes), size::show(all_bytes));
                print_message(format_args!("{}: {done} of {all}", self.what));
            }
            How::Bar(bar) if self.began.elapsed() >= PATIENCE => {
                let bar = bar.get_or_insert_with(|| new_bar(&self.what));
                bar.set_length(all_bytes);
                bar.set_position(done_bytes);
            }
            How::Silent | How::Lines(_) | How::Bar(_) => {}
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let How::Bar(Some(bar)) = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(what: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = "elbow: {bar:30} {percent:>3}% of {total_bytes}, {bytes_per_sec}, {eta} left: {msg}";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.with_message(what.to_owned())
}
