//! How long the arm takes: one entry for each distance.

use super::units::{Ps, TIME_MS_MAX};

/// Seek times of reads by distance in cylinders; entry 0 is 0.
#[derive(Clone, Debug)]
pub(super) struct SeekTable {
    by_distance: Vec<Ps>,
}

/// What a write takes more than a read behind a movement, or less; never more less than the movement takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settle(i64);

impl Settle {
    pub(super) fn from_ms(ms: f64) -> Settle {
        Settle((ms * 1e9).round() as i64)
    }

    pub(super) fn ms(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether a movement of that time is long enough.
    pub(super) fn suits(self, shortest: Ps) -> bool {
        shortest.0.checked_add_signed(self.0).is_some()
    }

    #[inline]
    pub(super) fn after(self, moved: Ps, write: bool) -> Ps {
        Ps(moved.0.wrapping_add_signed(if write { self.0 } else { 0 }))
    }
}

/// What a table is made of, in milliseconds.
#[derive(Clone, Debug)]
pub(super) enum Curve {
    /// The form of the *HPL seek equation*: a table of short distances from 1, then `base + factor * sqrt(distance)` below
    /// `sqrt_below`, then `base + factor * distance`.
    Equation {
        short_ms: Vec<f64>,
        sqrt_below: u32,
        sqrt_ms: [f64; 2],
        linear_ms: [f64; 2],
    },
    /// Measured `(distance, time)`, rising in distance; a straight line between two, and on from the last two.
    Points(Vec<(u32, f64)>),
}

impl SeekTable {
    pub(super) fn new(curve: &Curve, cylinders: u32) -> SeekTable {
        let by_distance = (0..cylinders)
            .map(|distance| Ps::from_ms(curve.ms(distance).clamp(0.0, TIME_MS_MAX)))
            .collect();
        SeekTable { by_distance }
    }

    /// The shortest movement to another cylinder, if there is one.
    pub(super) fn shortest(&self) -> Option<Ps> {
        self.by_distance.iter().skip(1).min().copied()
    }

    #[inline]
    pub(super) fn time(&self, from: u32, to: u32) -> Ps {
        self.by_distance[from.abs_diff(to) as usize]
    }
}

impl Curve {
    fn ms(&self, distance: u32) -> f64 {
        match self {
            _ if distance == 0 => 0.0,
            Curve::Equation { short_ms, .. } if (distance as usize) <= short_ms.len() => {
                short_ms[distance as usize - 1]
            }
            Curve::Equation {
                sqrt_below,
                sqrt_ms: [base, factor],
                ..
            } if distance < *sqrt_below => base + factor * f64::from(distance).sqrt(),
            Curve::Equation {
                linear_ms: [base, factor],
                ..
            } => base + factor * f64::from(distance),
            Curve::Points(points) => between(points, distance),
        }
    }
}

/// On the line through the two points around `distance`; through the origin's neighbour where there is only one.
fn between(points: &[(u32, f64)], distance: u32) -> f64 {
    let right = points
        .partition_point(|&(at, _)| at < distance)
        .clamp(1, points.len().max(2) - 1);
    match (points.get(right - 1), points.get(right)) {
        (Some(&(x0, y0)), Some(&(x1, y1))) => {
            y0 + (y1 - y0) * (f64::from(distance) - f64::from(x0)) / f64::from(x1 - x0)
        }
        (Some(&(_, only)), None) => only,
        (None, _) => 0.0,
    }
}
