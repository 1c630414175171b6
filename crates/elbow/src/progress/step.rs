//! Parts that are gone through one after the other, as of a measurement.

use std::borrow::Cow;
use std::time::Instant;

use super::estimate::{Estimate, Part};
use super::painter::{PaintTarget, Painter, View};
use super::terminal;

/// Shows how far something is that goes through parts, one after the other, each of so many things.
pub(crate) struct StepMeter {
    painter: Option<Painter>,
}

impl StepMeter {
    /// `silent` shows nothing.
    pub(crate) fn new(silent: bool) -> Self {
        let place = match terminal::is_there() {
            true => PaintTarget::Line,
            false => PaintTarget::Lines,
        };
        let start = || Painter::start(String::new(), place, Estimate::begun(Instant::now()), Box::new(|| None));
        let painter = if silent { None } else { start() };
        Self { painter }
    }

    /// Shows that so many of all are done in a part.
    pub(crate) fn show(&self, doing: &'static str, noun: &'static str, done: u64, all: u64) {
        if let Some(painter) = &self.painter {
            painter.show(View {
                doing: Cow::Borrowed(doing),
                noun,
                bytes: Part::default(),
                items: Part::new(done.min(all), all.saturating_sub(done)),
                is_background: false,
            });
        }
    }
}
