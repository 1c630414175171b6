//! A figure as SVG: its panels side by side.

use std::ops::Range;

use anyhow::{Result, anyhow};
use elbow_study::range_writes::{Figure, Panel, PanelKind};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// Of one panel, in pixels.
const PANEL: (u32, u32) = (460, 360);
const TITLE_HEIGHT: u32 = 40;

/// Okabe and Ito's colours, which most people can tell apart.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Of what stands at axes and in legends.
const SMALL: (&str, u32) = ("sans-serif", 14);

/// Labels that fit on an axis side by side.
const LABELS_MAX: usize = 12;
/// Part of the way from place to place that bars take.
const BAR_WIDTH: f64 = 0.8;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Places, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The picture.
pub(super) fn svg(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    let size = (PANEL.0 * figure.panels.len() as u32, PANEL.1 + TITLE_HEIGHT);
    draw(&SVGBackend::with_string(&mut text, size).into_drawing_area(), figure)
        .map_err(|error| anyhow!("cannot draw figure {}: {error}", figure.name))?;
    Ok(text)
}

fn draw(root: &Area<'_>, figure: &Figure) -> Drawn {
    root.fill(&WHITE)?;
    let body = root.titled(figure.title, ("sans-serif", 20))?;
    for (area, panel) in body.split_evenly((1, figure.panels.len())).iter().zip(&figure.panels) {
        draw_panel(area, panel)?;
    }
    root.present()?;
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(&panel.title, ("sans-serif", 15))
        .x_label_area_size(40)
        .y_label_area_size(55)
        .build_cartesian_2d(Places(panel.x.1.clone()), 0.0..top(panel) * 1.25)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_desc(panel.x.0)
        .y_desc(panel.y)
        .label_style(SMALL)
        .axis_desc_style(SMALL)
        .draw()?;
    match panel.kind {
        PanelKind::Lines => lines(&mut chart, panel)?,
        PanelKind::Stacked | PanelKind::Bars => bars(&mut chart, panel)?,
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .label_font(SMALL)
        .draw()?;
    Ok(())
}

/// An axis of names at the whole numbers from 0 on.
struct Places(Vec<String>);

impl Ranged for Places {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let Range { start, end } = self.range();
        limit.0 + ((value - start) / (end - start) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let step = self.0.len().div_ceil(LABELS_MAX);
        (0..self.0.len()).step_by(step).map(|place| place as f64).collect()
    }

    fn range(&self) -> Range<f64> {
        -0.6..self.0.len() as f64 - 0.4
    }
}

impl ValueFormatter<f64> for Places {
    fn format_ext(&self, place: &f64) -> String {
        self.0.get(place.round() as usize).cloned().unwrap_or_default()
    }
}

/// The largest number that is shown.
fn top(panel: &Panel) -> f64 {
    let at = |place: usize| panel.columns.iter().map(move |(_, values)| values[place]);
    let all = (0..panel.x.1.len()).map(|place| match panel.kind {
        PanelKind::Stacked => at(place).sum(),
        PanelKind::Lines | PanelKind::Bars => at(place).fold(0.0, f64::max),
    });
    all.fold(f64::MIN_POSITIVE, f64::max)
}

fn colour(column: usize) -> RGBColor {
    COLOURS[column % COLOURS.len()]
}

fn lines(chart: &mut Chart<'_, '_>, panel: &Panel) -> Drawn {
    for (column, (name, values)) in panel.columns.iter().enumerate() {
        let style = colour(column).stroke_width(2);
        let points = || values.iter().enumerate().map(|(place, &value)| (place as f64, value));
        chart
            .draw_series(LineSeries::new(points(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], style));
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour(column).filled())))?;
    }
    Ok(())
}

fn bars(chart: &mut Chart<'_, '_>, panel: &Panel) -> Drawn {
    let mut below = vec![0.0; panel.x.1.len()];
    let count = panel.columns.len() as f64;
    for (column, (name, values)) in panel.columns.iter().enumerate() {
        let style = colour(column).filled();
        let (left, width) = match panel.kind {
            PanelKind::Stacked => (-BAR_WIDTH / 2.0, BAR_WIDTH),
            _ => (BAR_WIDTH * (column as f64 / count - 0.5), BAR_WIDTH / count),
        };
        let bar = |(place, (&value, &base)): (usize, (&f64, &f64))| {
            let x = place as f64 + left;
            Rectangle::new([(x, base), (x + width, base + value)], style)
        };
        chart
            .draw_series(values.iter().zip(&below).enumerate().map(bar).collect::<Vec<_>>())?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], style));
        if panel.kind == PanelKind::Stacked {
            below.iter_mut().zip(values).for_each(|(below, value)| *below += value);
        }
    }
    Ok(())
}
