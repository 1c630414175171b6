//! An axis: even places, numbers or their logarithms, and what stands at it.

use std::ops::Range;

use elbow_study::range_writes::{Panel, Scale};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Pixels of a letter at an axis, and between two labels.
const LETTER: f64 = 7.5;
const GAP: f64 = 12.0;
/// Numbers at an axis, about.
const TICKS: f64 = 8.0;
/// Empty part at both ends of an axis of numbers.
const MARGIN: f64 = 0.04;

/// An axis from one number to another.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    range: Range<f64>,
    is_log: bool,
    ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The axis of a panel that has so many pixels for it.
    pub(super) fn of_places(panel: &Panel, pixels: f64) -> Axis {
        match panel.scale {
            Scale::Places => Self::even(&panel.places, pixels),
            Scale::Linear => Self::linear(extent(&numbers(panel))),
            Scale::Log => Self::log(&numbers(panel)),
        }
    }

    /// Names at the whole numbers from 0 on; where they would touch, only some of them.
    pub(super) fn even(names: &[String], pixels: f64) -> Axis {
        let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0) as f64;
        let room = pixels / names.len() as f64;
        let step = ((longest * LETTER + GAP) / room).ceil().max(1.0) as usize;
        let ticks = names.iter().enumerate().step_by(step);
        Axis {
            range: -0.5..names.len() as f64 - 0.5,
            is_log: false,
            ticks: ticks.map(|(at, name)| (at as f64, name.clone())).collect(),
        }
    }

    /// Round numbers.
    pub(crate) fn linear(of: Range<f64>) -> Axis {
        let margin = (of.end - of.start) * MARGIN;
        let step = round((of.end - of.start) / TICKS);
        let ticks = (0..)
            .map(|number| ((of.start / step).ceil() + f64::from(number)) * step)
            .take_while(|&tick| tick <= of.end + margin);
        Axis {
            ticks: ticks.map(|tick| (tick, label(tick, step))).collect(),
            range: of.start - margin..of.end + margin,
            is_log: false,
        }
    }

    /// From nothing on.
    pub(super) fn from_zero(top: f64) -> Axis {
        let axis = Self::linear(0.0..top);
        Axis {
            range: 0.0..axis.range.end,
            ..axis
        }
    }

    /// Powers of two, or of ten where there are many, and the last of the numbers.
    pub(super) fn log(of: &[f64]) -> Axis {
        let Range { start, end } = extent(of);
        let base: f64 = if end / start > 3000.0 { 10.0 } else { 2.0 };
        let mut ticks: Vec<f64> = (0..64).map(|power| base.powi(power)).collect();
        ticks.retain(|tick| (start..=end).contains(tick));
        ticks.extend(
            ticks
                .last()
                .is_none_or(|&last| base == 2.0 && end / last > 1.3)
                .then_some(end),
        );
        let margin = (end / start).powf(MARGIN);
        Axis {
            range: start / margin..end * margin,
            is_log: true,
            ticks: ticks.into_iter().map(|tick| (tick, label(tick, 1.0))).collect(),
        }
    }

    /// Letters of the longest of its labels.
    pub(super) fn letters(&self) -> usize {
        self.ticks
            .iter()
            .map(|(_, label)| label.chars().count())
            .max()
            .unwrap_or(0)
    }

    fn part(&self, value: f64) -> f64 {
        let Range { start, end } = self.range;
        match self.is_log {
            true => (value / start).ln() / (end / start).ln(),
            false => (value - start) / (end - start),
        }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.part(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|&(tick, _)| tick).collect()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let near = |tick: f64| (tick - value).abs() <= 1e-9 * tick.abs().max(1.0);
        let found = self.ticks.iter().find(|&&(tick, _)| near(tick));
        found.map(|(_, label)| label.clone()).unwrap_or_default()
    }
}

/// Where the places of a panel are.
pub(super) fn numbers(panel: &Panel) -> Vec<f64> {
    let places = panel.places.iter().enumerate();
    places
        .map(|(at, place)| match panel.scale {
            Scale::Places => at as f64,
            Scale::Linear | Scale::Log => place.parse().unwrap_or(f64::NAN),
        })
        .collect()
}

/// From the least to the largest.
pub(super) fn extent(of: &[f64]) -> Range<f64> {
    let finite = || of.iter().copied().filter(|value| value.is_finite());
    let (least, most) = (finite().fold(f64::MAX, f64::min), finite().fold(f64::MIN, f64::max));
    if least < most {
        least..most
    } else {
        least - 0.5..least + 0.5
    }
}

/// A step of 1, 2 or 5 times a power of ten, no less than this.
fn round(step: f64) -> f64 {
    let power = 10.0_f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
    steps
        .into_iter()
        .find(|&round| round >= step * 0.999)
        .unwrap_or(power * 10.0)
}

/// A number with as many digits as its step has, and its thousands apart.
fn label(tick: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let text = format!("{:.digits$}", if tick == 0.0 { 0.0 } else { tick });
    match text.len() {
        5.. if digits == 0 && tick > 0.0 => {
            let (thousands, rest) = text.split_at(text.len() - 3);
            format!("{thousands},{rest}")
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    /// Figure 8 had its choices 1 to 16, 20, 24 ... 96 all equally far from each other.
    #[test]
    fn a_logarithm_is_even_in_factors() {
        let axis = Axis::log(&[1.0, 2.0, 3.0, 48.0, 96.0]);
        assert_eq!(labels(&axis), ["1", "2", "4", "8", "16", "32", "64", "96"]);
        let at = [1.0, 2.0, 48.0, 96.0].map(|value| axis.map(&value, (0, 1000)));
        assert_eq!(at[1] - at[0], at[3] - at[2]);
    }

    #[test]
    fn numbers_are_round_and_names_do_not_touch() {
        assert_eq!(labels(&Axis::from_zero(12.6)), ["0", "2", "4", "6", "8", "10", "12"]);
        assert_eq!(
            labels(&Axis::linear(-0.34..0.11)),
            ["-0.3", "-0.2", "-0.1", "0.0", "0.1"]
        );
        assert_eq!(
            labels(&Axis::log(&[1.0, 65_536.0])),
            ["1", "10", "100", "1000", "10,000"]
        );
        let names: Vec<String> = (0..16).map(|name| format!("number {name}")).collect();
        assert_eq!(
            labels(&Axis::even(&names, 400.0)),
            ["number 0", "number 4", "number 8", "number 12"]
        );
    }
}
