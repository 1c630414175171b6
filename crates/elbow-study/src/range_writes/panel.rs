//! What is drawn, and written as CSV: columns of numbers over one axis, with their intervals.

/// One graph: columns of numbers over one axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Its heading.
    pub title: String,
    /// How the columns are shown.
    pub kind: PanelKind,
    /// What the axis is, with its unit.
    pub axis: &'static str,
    /// The places on it; numbers, unless the scale is [`Scale::Places`].
    pub places: Vec<String>,
    /// How they are spaced.
    pub scale: Scale,
    /// What the numbers are, with their unit.
    pub unit: &'static str,
    /// How those are spaced.
    pub unit_scale: Scale,
    /// Columns of as many numbers as there are places.
    pub columns: Vec<Column>,
    /// The number of *Range Writes*, beside which those within its tolerance are marked.
    pub paper: Option<f64>,
}

/// Numbers, one for each place.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// What they are of.
    pub name: String,
    /// The numbers: means, where there are intervals. Not a number where there is none.
    pub values: Vec<f64>,
    /// Half of the 95 % interval of each over seeds; empty where a number does not depend on chance, or was made once.
    pub intervals: Vec<f64>,
}

/// How columns are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanelKind {
    /// A line each.
    Lines,
    /// One on top of the other: parts of a whole. The interval of the last is that of the whole.
    Stacked,
    /// Side by side.
    Bars,
    /// A row of coloured cells each.
    Cells,
    /// Points, of which each has its own place.
    Points,
}

/// How places on an axis are spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, whatever they are called.
    Places,
    /// As numbers.
    Linear,
    /// As logarithms of numbers.
    Log,
}

impl Panel {
    /// Over evenly spaced places, and without columns.
    pub(super) fn new<T: ToString>(
        title: impl Into<String>,
        kind: PanelKind,
        (axis, places): (&'static str, &[T]),
        unit: &'static str,
    ) -> Panel {
        Panel {
            title: title.into(),
            kind,
            axis,
            places: places.iter().map(ToString::to_string).collect(),
            scale: Scale::Places,
            unit,
            unit_scale: Scale::Linear,
            columns: Vec::new(),
            paper: None,
        }
    }

    /// The same with columns.
    pub(super) fn with(self, columns: Vec<Column>) -> Panel {
        Panel { columns, ..self }
    }
}

impl Column {
    /// Numbers that chance has no part in.
    pub(super) fn exact(name: impl Into<String>, values: Vec<f64>) -> Column {
        Column {
            name: name.into(),
            values,
            intervals: Vec::new(),
        }
    }

    /// Means over seeds, and their intervals.
    pub(super) fn of(name: impl Into<String>, means: impl IntoIterator<Item = Mean>) -> Column {
        let (values, intervals) = means.into_iter().map(|mean| (mean.mean, mean.half_width)).unzip();
        Column {
            name: name.into(),
            values,
            intervals,
        }
    }
}

/// A mean over seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) mean: f64,
    /// Of the 95 % interval.
    pub(super) half_width: f64,
}

/// Quantiles of Student's t for two-sided 95 %, by degrees of freedom from 1 on.
const STUDENT: [f64; 9] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

impl Mean {
    /// Of 2 to 10 samples; of one, without an interval.
    pub(super) fn of(samples: &[f64]) -> Mean {
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let half_width = match samples.len() {
            1 => 0.0,
            some => STUDENT[some - 2] * (squares / (count - 1.0) / count).sqrt(),
        };
        Mean { mean, half_width }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_students() {
        let Mean { mean, half_width } = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(mean, 3.0);
        assert!(
            (half_width - 2.776 * (2.5_f64 / 5.0).sqrt()).abs() < 1e-9,
            "{half_width}"
        );
        assert_eq!(Mean::of(&[7.0]).half_width, 0.0);
    }
}
