//! Progress in words: one line that fits, whatever the width.
//!
//! ```text
//!   elbow: storing [#######-------] 45% 33.1 of 73.2 MB, 812 of 2,335 objects, 5.1 MB/s, 8 s left
//!   [#######------] 45% 33.1/73.2 MB, 812/2,335 objects, 5.1 MB/s, 8 s left          80 columns
//!   45% 33.1/73.2 MB, 812/2,335, 8 s left                                            40 columns
//! ```
//!
//! Only ASCII, so that a column is a byte.

use std::borrow::Cow;
use std::time::Duration;

use super::estimate::{Estimate, Part};
use crate::size;

/// The widest that fits is taken.
const BAR_WIDTHS: [usize; 5] = [30, 20, 10, 5, 1];
const PROGRAM: &str = "elbow: ";

/// What there is to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// What is being done.
    pub(crate) doing: Cow<'static, str>,
    /// `None`: nobody knows how much there is of it.
    pub(crate) percent: Option<u64>,
    pub(crate) bytes: Part,
    pub(crate) items: Part,
    /// What the items are.
    pub(crate) noun: &'static str,
    pub(crate) rate: Option<String>,
    pub(crate) time: Option<String>,
}

/// How one line is made.
struct Layout {
    /// Says who it is and what is being done.
    heading: bool,
    /// Narrowest bar; `None`: no bar.
    bar: Option<usize>,
    words: Words,
    items: bool,
    noun: bool,
    rate: bool,
    time: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    /// `33.1 of 73.2 MB`
    Long,
    /// `33.1/73.2 MB`
    Short,
}

/// The richest first; the first that fits is taken.
const LAYOUTS: [Layout; 8] = [
    layout(true, Some(10), Words::Long, [true, true, true, true]),
    layout(false, Some(8), Words::Long, [true, true, true, true]),
    layout(false, Some(1), Words::Short, [true, true, true, true]),
    layout(false, None, Words::Short, [true, true, true, true]),
    layout(false, None, Words::Short, [true, true, false, true]),
    layout(false, None, Words::Short, [true, false, false, true]),
    layout(false, None, Words::Short, [false, false, false, true]),
    layout(false, None, Words::Short, [false, false, false, false]),
];

const fn layout(heading: bool, bar: Option<usize>, words: Words, [items, noun, rate, time]: [bool; 4]) -> Layout {
    Layout {
        heading,
        bar,
        words,
        items,
        noun,
        rate,
        time,
    }
}

impl Facts {
    /// What an estimate says; `behind` is what the time is called.
    pub(crate) fn of(estimate: &Estimate, bytes: Part, items: Part, behind: &str) -> Self {
        let bytes_rate = estimate.bytes_per_second().filter(|_| bytes.total > 0);
        let rate = match (bytes_rate, estimate.items_per_second()) {
            (Some(rate), _) => Some(format!("{}/s", size::show(rate as u64))),
            (None, Some(rate)) if bytes.total == 0 => Some(format!("{}/s", number(rate as u64))),
            _ => None,
        };
        let is_known = bytes.total > 0 || items.total > 0;
        Self {
            percent: is_known.then(|| estimate.percent()),
            bytes,
            items,
            rate,
            time: estimate.left().map(|left| format!("{} {behind}", duration(left))),
            ..Self::default()
        }
    }

    /// A line of at most so many columns.
    pub(crate) fn line(&self, columns: usize) -> String {
        let mut line = match self.percent {
            Some(percent) => self.counted(percent, columns),
            None => format!("{PROGRAM}{}", self.doing),
        };
        line.truncate(columns);
        line
    }

    /// A line of any length, for people who read it later.
    pub(crate) fn sentence(&self) -> String {
        let Some(percent) = self.percent else {
            return self.doing.clone().into_owned();
        };
        let amounts = self.amounts(&LAYOUTS[0]);
        format!("{}: {percent}%, {amounts}", self.doing)
    }

    fn counted(&self, percent: u64, columns: usize) -> String {
        let fitting = LAYOUTS
            .iter()
            .find_map(|layout| self.laid_out(layout, percent, columns));
        fitting.unwrap_or_else(|| format!("{percent}%"))
    }

    fn laid_out(&self, layout: &Layout, percent: u64, columns: usize) -> Option<String> {
        let heading = match layout.heading {
            true => format!("{PROGRAM}{} ", self.doing),
            false => String::new(),
        };
        let rest = format!("{percent}% {}", self.amounts(layout));
        let free = columns.checked_sub(heading.len() + rest.len())?;
        let Some(narrowest) = layout.bar else {
            return Some(rest);
        };
        let inside = free.checked_sub("[] ".len()).filter(|inside| *inside >= narrowest)?;
        // One that changes with every digit beside it would dance.
        let width = BAR_WIDTHS.into_iter().find(|width| *width <= inside)?;
        Some(format!("{heading}[{}] {rest}", bar(percent, width)))
    }

    fn amounts(&self, layout: &Layout) -> String {
        let mut parts = Vec::new();
        if self.bytes.total > 0 {
            parts.push(bytes(self.bytes, layout.words));
        }
        // Without bytes the items are all there is to say.
        if self.items.total > 0 && (layout.items || self.bytes.total == 0) {
            let noun = if layout.noun { self.noun } else { "" };
            parts.push(
                format!("{} {noun}", items(self.items, layout.words))
                    .trim_end()
                    .to_owned(),
            );
        }
        parts.extend(self.rate.clone().filter(|_| layout.rate));
        parts.extend(self.time.clone().filter(|_| layout.time));
        parts.join(", ")
    }
}

fn bar(percent: u64, width: usize) -> String {
    let full = width * percent.min(100) as usize / 100;
    format!("{}{}", "#".repeat(full), "-".repeat(width - full))
}

fn of(words: Words) -> &'static str {
    match words {
        Words::Long => " of ",
        Words::Short => "/",
    }
}

/// The unit is said once where it is the same.
fn bytes(part: Part, words: Words) -> String {
    let (done, total) = (size::show(part.done), size::show(part.total));
    let unit = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
    let done = match done.rsplit_once(' ') {
        Some((number, of)) if Some(of) == unit(&total).as_deref() => number,
        _ => &done,
    };
    format!("{done}{}{total}", of(words))
}

fn items(part: Part, words: Words) -> String {
    format!("{}{}{}", number(part.done), of(words), number(part.total))
}

/// A number for people: 2,335, and from 100,000 on in thousands.
fn number(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        1000..100_000 => format!("{},{:03}", n / 1000, n % 1000),
        100_000..1_000_000 => format!("{}k", n / 1000),
        1_000_000..1_000_000_000 => format!("{:.1}M", n as f64 / 1e6),
        _ => format!("{:.1}G", n as f64 / 1e9),
    }
}

/// A time for people, in one unit.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..99.5 => format!("{} s", seconds.ceil()),
        ..5970.0 => format!("{:.0} min", seconds / 60.0),
        ..356_400.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86400.0),
    }
}

#[cfg(test)]
mod tests {
    use elbow_testkit::cases;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn facts() -> Facts {
        Facts {
            doing: Cow::Borrowed("storing"),
            percent: Some(45),
            bytes: Part {
                done: 33_100_000,
                total: 73_200_000,
            },
            items: Part { done: 812, total: 2335 },
            noun: "objects",
            rate: Some("5.1 MB/s".into()),
            time: Some("8 s left".into()),
        }
    }

    #[test]
    fn the_line_says_more_where_there_is_more_room() {
        for (columns, line) in [
            (6, "45%"),
            (39, "45% 33.1/73.2 MB, 812/2,335, 8 s left"),
            (
                79,
                "[####------] 45% 33.1 of 73.2 MB, 812 of 2,335 objects, 5.1 MB/s, 8 s left",
            ),
            (
                120,
                "elbow: storing [#############-----------------] 45% 33.1 of 73.2 MB, 812 of 2,335 objects, 5.1 MB/s, 8 s left",
            ),
        ] {
            let shown = facts().line(columns);
            assert!(shown.len() <= columns, "{shown}");
            assert_eq!(shown, line);
        }
    }

    #[test]
    fn every_line_fits_and_says_what_matters() {
        for seed in cases::seeds(200) {
            let mut rng = StdRng::seed_from_u64(seed);
            let facts = any_facts(&mut rng);
            for columns in 19..200 {
                let line = facts.line(columns);
                let note = format!("SEED={seed} {columns}: {line}");
                assert!(line.len() <= columns && line.is_ascii(), "{note}");
                let percent = format!("{}%", facts.percent.expect("one"));
                assert!(line.contains(&percent), "{note}");
                let amounts = [Words::Long, Words::Short].map(|words| bytes(facts.bytes, words));
                assert!(
                    columns < 39 || amounts.iter().any(|amount| line.contains(amount)),
                    "{note}"
                );
                if columns >= 79 {
                    assert!(line.contains('[') && line.contains(" objects, "), "{note}");
                    assert!(
                        [&facts.rate, &facts.time]
                            .into_iter()
                            .flatten()
                            .all(|part| line.contains(part)),
                        "{note}"
                    );
                }
            }
        }
    }

    fn any_facts(rng: &mut StdRng) -> Facts {
        let mut part = |digits: u32| {
            let total = rng.random_range(1..10_u64.pow(digits));
            let done = rng.random_range(0..=total);
            Part { done, total }
        };
        let (bytes, items) = (part(15), part(9));
        let digits = rng.random_range(1..8);
        let left = Duration::from_secs(rng.random_range(0..10_u64.pow(digits)));
        Facts {
            percent: Some(rng.random_range(0..=100)),
            bytes,
            items,
            rate: Some(format!("{}/s", size::show(rng.random_range(0..10_u64.pow(13))))),
            time: Some(format!("{} behind", duration(left))),
            ..facts()
        }
    }

    #[test]
    fn numbers_and_times_are_short() {
        let numbers = [
            (812, "812"),
            (2335, "2,335"),
            (99_999, "99,999"),
            (123_456, "123k"),
            (9_876_543, "9.9M"),
        ];
        for (n, text) in numbers {
            assert_eq!(number(n), text);
        }
        for (seconds, text) in [
            (0, "0 s"),
            (8, "8 s"),
            (99, "99 s"),
            (100, "2 min"),
            (7200, "2.0 h"),
            (999_999, "12 days"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_sentence_has_the_same_facts() {
        let sentence = "storing: 45%, 33.1 of 73.2 MB, 812 of 2,335 objects, 5.1 MB/s, 8 s left";
        assert_eq!(facts().sentence(), sentence);
    }
}
