//! A profile as a picture: cost by skip distance and think time, in bands whose borders are the contours (Figure 12 of *Range Writes*).

use std::ops::Range;

use anyhow::{Result, anyhow};
use elbow_disk::profile::{Predictor, Profile, Rotation};
use plotters::chart::ChartBuilder;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::disk::figure::axis::Axis;

const SIZE: (u32, u32) = (900, 520);
const HEADING: (&str, u32) = ("sans-serif", 18);
const SMALL: (&str, u32) = ("sans-serif", 13);
/// The scale beside the picture, in pixels.
const SCALE_WIDTH: u32 = 120;
/// Bands of costs, and rows of the picture for each turn of think time.
const BANDS: usize = 8;
const STEPS_A_TURN: usize = 60;
/// Think times of so many turns: the pattern comes again.
const TURNS: usize = 2;
/// The cheapest and the dearest.
const CHEAP: (u8, u8, u8) = (255, 255, 229);
const DEAR: (u8, u8, u8) = (102, 37, 6);

type Drawn = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Costs in bands.
struct Bands {
    least_ms: f64,
    most_ms: f64,
}

impl Bands {
    fn of(&self, cost_ms: f64) -> usize {
        let part = (cost_ms - self.least_ms) / (self.most_ms - self.least_ms);
        ((part * BANDS as f64) as usize).min(BANDS - 1)
    }

    /// Where a band begins.
    fn begin(&self, band: usize) -> f64 {
        self.least_ms + (self.most_ms - self.least_ms) * band as f64 / BANDS as f64
    }
}

/// The picture; `None` where nothing turns.
pub(super) fn svg(profile: &Profile) -> Result<Option<String>> {
    let (Some(rotation), Ok(predictor)) = (&profile.rotation, Predictor::new(profile)) else {
        return Ok(None);
    };
    let mut text = String::new();
    draw(&mut text, profile, rotation, &predictor).map_err(|error| anyhow!("cannot draw the profile: {error}"))?;
    Ok(Some(text))
}

fn draw(text: &mut String, profile: &Profile, rotation: &Rotation, predictor: &Predictor) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("What a write costs, in ms, with a turn of {:.3} ms", rotation.period_ms);
    let body = root.titled(&title, HEADING)?;
    let (graph, scale) = body.split_horizontally(SIZE.0 - SCALE_WIDTH);
    let skips = skips(profile, rotation);
    let step_ms = rotation.period_ms / STEPS_A_TURN as f64;
    let thinks: Vec<f64> = (0..TURNS * STEPS_A_TURN)
        .map(|step| (step as f64 + 0.5) * step_ms)
        .collect();
    let cost = |skip: &Range<i64>, think: f64| predictor.cost_ms(skip.start, think);
    let costs: Vec<Vec<f64>> = thinks
        .iter()
        .map(|&think| skips.iter().map(|skip| cost(skip, think)).collect())
        .collect();
    let all = || costs.iter().flatten().copied();
    let bands = Bands {
        least_ms: all().fold(f64::MAX, f64::min),
        most_ms: all().fold(0.0, f64::max),
    };
    let (left, right) = (skips[0].start as f64, skips[skips.len() - 1].end as f64);
    let mut chart = ChartBuilder::on(&graph)
        .margin(10)
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d(
            Axis::linear(left..right),
            Axis::linear(0.0..rotation.period_ms * TURNS as f64),
        )?;
    for (&think, costs) in thinks.iter().zip(&costs) {
        let of_skips: Vec<(usize, &Range<i64>)> = costs.iter().map(|&cost| bands.of(cost)).zip(&skips).collect();
        let runs = of_skips.chunk_by(|a, b| a.0 == b.0 && a.1.end == b.1.start);
        let run = |run: &[(usize, &Range<i64>)]| {
            let (from, to) = (run[0].1.start as f64, run[run.len() - 1].1.end as f64);
            let corners = [(from, think - step_ms / 2.0), (to, think + step_ms / 2.0)];
            Rectangle::new(corners, colour(run[0].0).filled())
        };
        chart.draw_series(runs.map(run).collect::<Vec<_>>())?;
    }
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(format!("skip distance, in sectors of {} bytes", profile.sector_bytes))
        .y_desc("think time, in ms")
        .label_style(SMALL)
        .axis_desc_style(SMALL)
        .draw()?;
    draw_scale(&scale, &bands)?;
    root.present()?;
    Ok(())
}

/// From one row to the next, about a turn to both sides.
fn skips(profile: &Profile, rotation: &Rotation) -> Vec<Range<i64>> {
    let most = (rotation.turn_sectors * 1.3) as i64;
    let near: Vec<i64> = profile
        .rows
        .iter()
        .map(|row| row.skip)
        .filter(|skip| skip.abs() <= most)
        .collect();
    let mut skips: Vec<Range<i64>> = near.windows(2).map(|pair| pair[0]..pair[1]).collect();
    if skips.is_empty() {
        let only = profile.rows[0].skip;
        skips.push(only..only + 1);
    }
    skips
}

fn draw_scale(area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, bands: &Bands) -> Drawn {
    let left = Pos::new(HPos::Left, VPos::Center);
    for band in 0..BANDS {
        let y = 40 + 24 * (BANDS - band) as i32;
        area.draw(&Rectangle::new([(8, y - 12), (30, y + 12)], colour(band).filled()))?;
        let words = format!("{:.1} to {:.1}", bands.begin(band), bands.begin(band + 1));
        area.draw_text(&words, &SMALL.into_text_style(area).pos(left), (36, y))?;
    }
    Ok(())
}

fn colour(band: usize) -> RGBColor {
    let part = band as f64 / (BANDS - 1) as f64;
    let mixed = |cheap: u8, dear: u8| (f64::from(cheap) + (f64::from(dear) - f64::from(cheap)) * part).round() as u8;
    RGBColor(mixed(CHEAP.0, DEAR.0), mixed(CHEAP.1, DEAR.1), mixed(CHEAP.2, DEAR.2))
}
