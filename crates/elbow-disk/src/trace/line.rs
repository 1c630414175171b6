//! Words of a line, with errors that say which word of what is missing or wrong.

use super::LineError;
use crate::drive::Ps;

/// The latest time of a trace, in milliseconds: 40 days. Picoseconds of it are far from overflowing.
pub(super) const TIME_MS_MAX: f64 = 40.0 * 24.0 * 3600.0 * 1000.0;

/// A line of a trace.
pub(super) struct Line<'t> {
    pub(super) text: &'t str,
}

/// Its words from left to right.
pub(super) enum Words<'t> {
    Spaced(std::str::SplitWhitespace<'t>),
    Separated(std::str::Split<'t, char>),
}

impl<'t> Line<'t> {
    pub(super) fn new(text: &'t str) -> Line<'t> {
        Line { text }
    }

    /// Nothing, or a comment.
    pub(super) fn is_blank(&self) -> bool {
        let text = self.text.trim_start();
        text.is_empty() || text.starts_with('#')
    }

    pub(super) fn words(&self) -> Words<'t> {
        Words::Spaced(self.text.split_whitespace())
    }

    /// The same where commas are between them.
    pub(super) fn fields(&self) -> Words<'t> {
        Words::Separated(self.text.split(','))
    }
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Option<&'t str> {
        match self {
            Words::Spaced(words) => words.next(),
            Words::Separated(fields) => fields.next().map(str::trim),
        }
    }

    pub(super) fn word(&mut self, what: &'static str) -> Result<&'t str, LineError> {
        self.next().ok_or(LineError::EndsBefore(what))
    }

    pub(super) fn whole(&mut self, what: &'static str) -> Result<u64, LineError> {
        whole(self.word(what)?, what)
    }

    pub(super) fn time(&mut self, what: &'static str, unit_ms: f64) -> Result<Ps, LineError> {
        time(self.word(what)?, what, unit_ms)
    }

    /// That there is nothing more.
    pub(super) fn end(mut self) -> Result<(), LineError> {
        match self.next() {
            None => Ok(()),
            Some(word) => Err(LineError::TooMuch(word.to_owned())),
        }
    }
}

/// A whole number.
pub(super) fn whole(word: &str, what: &'static str) -> Result<u64, LineError> {
    word.parse().map_err(|_| LineError::NotWhole {
        word: word.to_owned(),
        what,
    })
}

/// A time, in a unit of so many milliseconds.
pub(super) fn time(word: &str, what: &'static str, unit_ms: f64) -> Result<Ps, LineError> {
    let ms = word.parse::<f64>().ok().map(|value| value * unit_ms);
    match ms.filter(|ms| (0.0..=TIME_MS_MAX).contains(ms)) {
        Some(ms) => Ok(Ps::from_ms(ms)),
        None => Err(LineError::NotATime {
            word: word.to_owned(),
            what,
            most: TIME_MS_MAX / unit_ms,
        }),
    }
}
