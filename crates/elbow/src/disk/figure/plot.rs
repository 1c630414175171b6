//! A figure as SVG: its panels side by side.

use std::ops::Range;

use anyhow::{Result, anyhow};
use elbow_study::range_writes::{Column, Figure, Panel, PanelKind, Scale, TOLERANCE};
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::super::colours::COLOURS;
use super::axis::{Axis, extent, numbers};
use super::layout::{LINE, PANEL, SIGN, TITLE_HEIGHT, columns, legend, legend_lines};

/// A gain and a loss, of this many percent and more.
const GAIN: (RGBColor, f64) = (RGBColor(0, 114, 178), 40.0);
const LOSS: (RGBColor, f64) = (RGBColor(213, 94, 0), 80.0);

/// Of what stands at axes and in legends, and of a panel's heading.
const SMALL: (&str, u32) = ("sans-serif", 13);
const HEADING: (&str, u32) = ("sans-serif", 15);
const HEADING_HEIGHT: u32 = 24;
const MARGIN: u32 = 10;

/// The points that are not ours.
const PAPER: &str = "paper";

/// Part of the way from place to place that bars take.
const BAR_WIDTH: f64 = 0.8;
/// Half of the stroke at the end of an interval, in pixels.
const WHISKER: i32 = 3;
/// So many points of a line are marked; more would be a band.
const MARKED_MAX: usize = 30;
/// No line is broader than two others.
const BROADER_MAX: usize = 2;
/// A bar of a smaller part of the axis cannot be seen, so its number is written.
const INVISIBLE: f64 = 2e-3;
/// An interval of so small a part of its number is not drawn: nobody could see it.
const HIDDEN: f64 = 1e-3;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// The picture.
pub(super) fn svg(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    let across = columns(figure.panels.len()) as u32;
    let down = (figure.panels.len() as u32).div_ceil(across);
    let legends = figure
        .panels
        .iter()
        .map(|panel| legend_lines(&names(panel), room()))
        .max();
    let height = PANEL.1 + legends.unwrap_or(0) * LINE;
    let size = (PANEL.0 * across, height * down + TITLE_HEIGHT);
    draw(
        &SVGBackend::with_string(&mut text, size).into_drawing_area(),
        figure,
        (down as usize, across as usize),
    )
    .map_err(|error| anyhow!("cannot draw figure {}: {error}", figure.name))?;
    Ok(text)
}

fn draw(root: &Area<'_>, figure: &Figure, shape: (usize, usize)) -> Drawn {
    root.fill(&WHITE)?;
    let body = root.titled(figure.title, ("sans-serif", 20))?;
    for (area, panel) in body.split_evenly(shape).iter().zip(&figure.panels) {
        draw_panel(area, panel, &common_axis(figure, panel))?;
    }
    root.present()?;
    Ok(())
}

/// Pixels of a line of a legend.
fn room() -> u32 {
    PANEL.0 - 2 * MARGIN
}

/// What the legend names; cells are named at their axis, and it says what they are and which are framed.
fn names(panel: &Panel) -> Vec<String> {
    match (panel.kind, panel.paper) {
        (PanelKind::Cells, Some(paper)) => {
            let part = TOLERANCE * 100.0;
            vec![format!(
                "change in %; framed: the paper's {paper:+.0}, within {part:.0} % of it"
            )]
        }
        (PanelKind::Cells, None) => vec!["change in %".to_owned()],
        _ => panel.columns.iter().map(|column| column.name.clone()).collect(),
    }
}

fn draw_panel(area: &Area<'_>, panel: &Panel, upright: &Axis) -> Drawn {
    let area = area.margin(MARGIN, MARGIN / 2, MARGIN, MARGIN);
    let (heading, rest) = area.split_vertically(HEADING_HEIGHT);
    let middle = Pos::new(HPos::Center, VPos::Center);
    let at = (heading.dim_in_pixel().0 as i32 / 2, HEADING_HEIGHT as i32 / 2);
    heading.draw_text(&panel.title, &HEADING.into_text_style(&heading).pos(middle), at)?;
    let (above, graph) = rest.split_vertically(legend_lines(&names(panel), room()) * LINE);
    draw_legend(&above, panel)?;
    let label_width = 34 + upright.letters() as u32 * 8;
    let across = Axis::of_places(panel, f64::from(room() - label_width));
    let mut chart = ChartBuilder::on(&graph)
        .margin_top(8)
        .margin_right(8)
        .x_label_area_size(42)
        .y_label_area_size(label_width)
        .build_cartesian_2d(across, upright.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_desc(panel.axis)
        .y_desc(panel.unit)
        .label_style(SMALL)
        .axis_desc_style(SMALL)
        .draw()?;
    match panel.kind {
        PanelKind::Lines => lines(&mut chart, panel),
        PanelKind::Stacked => stacks(&mut chart, panel),
        PanelKind::Bars => bars(&mut chart, panel),
        PanelKind::Cells => cells(&mut chart, panel),
        PanelKind::Points => points(&mut chart, panel),
    }
}

fn draw_legend(area: &Area<'_>, panel: &Panel) -> Drawn {
    let names = names(panel);
    for (column, (name, (x, line))) in names.iter().zip(legend(&names, room())).enumerate() {
        let (x, y) = (x as i32, (line * LINE + LINE / 2) as i32);
        let fill = colour(column).filled();
        match panel.kind {
            PanelKind::Lines => area.draw(&PathElement::new([(x, y), (x + 16, y)], colour(column).stroke_width(3)))?,
            PanelKind::Cells => area.draw(&Rectangle::new([(x, y - 6), (x + 14, y + 6)], BLACK.stroke_width(2)))?,
            PanelKind::Points if *name == PAPER => area.draw(&Cross::new((x + 8, y), 6, BLACK.stroke_width(3)))?,
            PanelKind::Points => area.draw(&Circle::new((x + 8, y), 5, fill))?,
            _ => area.draw(&Rectangle::new([(x, y - 6), (x + 14, y + 6)], fill))?,
        }
        let left = Pos::new(HPos::Left, VPos::Center);
        let style = SMALL.into_text_style(area).pos(left);
        area.draw_text(name, &style, (x + SIGN as i32, y))?;
    }
    Ok(())
}

/// The upright axis: the same for all panels of a figure that show the same.
fn common_axis(figure: &Figure, panel: &Panel) -> Axis {
    let alike = figure
        .panels
        .iter()
        .filter(|other| (other.kind, other.unit) == (panel.kind, panel.unit));
    let values: Vec<f64> = alike.flat_map(shown).collect();
    let Range { end, .. } = extent(&values);
    match (panel.kind, panel.unit_scale) {
        (PanelKind::Cells, _) => {
            let names: Vec<String> = panel.columns.iter().map(|column| column.name.clone()).collect();
            Axis::even(&names, f64::INFINITY)
        }
        (PanelKind::Points, _) => Axis::linear(extent(&values)),
        (_, Scale::Log) => Axis::log(&values),
        _ => Axis::from_zero(end),
    }
}

/// The numbers that have to have room, with their intervals.
fn shown(panel: &Panel) -> Vec<f64> {
    let interval = |column: &Column, place: usize| column.intervals.get(place).copied().unwrap_or(0.0);
    let top = |column: &Column, place: usize| column.values[place] + interval(column, place);
    let of = |place: usize| panel.columns.iter().map(move |column| top(column, place));
    match panel.kind {
        PanelKind::Stacked => (0..panel.places.len()).map(|place| of(place).sum()).collect(),
        _ => (0..panel.places.len()).flat_map(of).collect(),
    }
}

fn colour(column: usize) -> RGBColor {
    let (red, green, blue) = COLOURS[column % COLOURS.len()];
    RGBColor(red, green, blue)
}

/// Half a 95 % interval to both sides of a number.
fn whisker(chart: &mut Chart<'_, '_>, (x, y): (f64, f64), half: f64, colour: RGBColor) -> Drawn {
    if half < HIDDEN * y {
        return Ok(());
    }
    let style = colour.stroke_width(1);
    let ends = [y - half, y + half];
    let upright = PathElement::new([(x, ends[0]), (x, ends[1])], style);
    chart.draw_series([upright])?;
    let stroke = |y: f64| EmptyElement::at((x, y)) + PathElement::new([(-WHISKER, 0), (WHISKER, 0)], style);
    chart.draw_series(ends.map(stroke))?;
    Ok(())
}

/// A line is broader than those drawn after it: where they are the same, its edges are seen.
fn lines(chart: &mut Chart<'_, '_>, panel: &Panel) -> Drawn {
    let at = numbers(panel);
    for (index, column) in panel.columns.iter().enumerate() {
        let broader = (panel.columns.len() - 1 - index).min(BROADER_MAX);
        let style = colour(index).stroke_width(2 + 2 * broader as u32);
        let points = || at.iter().copied().zip(column.values.iter().copied());
        chart.draw_series(LineSeries::new(points(), style))?;
        if at.len() <= MARKED_MAX {
            chart.draw_series(points().map(|point| Circle::new(point, 3 + broader as i32, colour(index).filled())))?;
        }
        for (point, &half) in points().zip(&column.intervals) {
            whisker(chart, point, half, colour(index))?;
        }
    }
    Ok(())
}

fn stacks(chart: &mut Chart<'_, '_>, panel: &Panel) -> Drawn {
    let mut below = vec![0.0; panel.places.len()];
    for (index, column) in panel.columns.iter().enumerate() {
        let style = colour(index).filled();
        let values = column.values.iter().zip(&below).enumerate();
        let bar = |(place, (&value, &base)): (usize, (&f64, &f64))| {
            let left = place as f64 - BAR_WIDTH / 2.0;
            Rectangle::new([(left, base), (left + BAR_WIDTH, base + value)], style)
        };
        chart.draw_series(values.map(bar).collect::<Vec<_>>())?;
        below
            .iter_mut()
            .zip(&column.values)
            .for_each(|(below, value)| *below += value);
    }
    let halves = panel.columns.last().map_or(&[][..], |column| &column.intervals);
    for (place, (&top, &half)) in below.iter().zip(halves).enumerate() {
        whisker(chart, (place as f64, top), half, BLACK)?;
    }
    Ok(())
}

fn bars(chart: &mut Chart<'_, '_>, panel: &Panel) -> Drawn {
    let width = BAR_WIDTH / panel.columns.len() as f64;
    for (index, column) in panel.columns.iter().enumerate() {
        let left = |place: usize| place as f64 - BAR_WIDTH / 2.0 + index as f64 * width;
        let bar = |(place, &value): (usize, &f64)| {
            Rectangle::new(
                [(left(place), 0.0), (left(place) + width, value)],
                colour(index).filled(),
            )
        };
        chart.draw_series(column.values.iter().enumerate().map(bar))?;
        invisible(chart, column, |place| left(place) + width / 2.0)?;
        for (place, (&value, &half)) in column.values.iter().zip(&column.intervals).enumerate() {
            whisker(chart, (left(place) + width / 2.0, value), half, BLACK)?;
        }
    }
    Ok(())
}

/// The numbers of bars that are too small to be seen.
fn invisible(chart: &mut Chart<'_, '_>, column: &Column, middle: impl Fn(usize) -> f64) -> Drawn {
    let most = chart.as_coord_spec().get_y_range().end * INVISIBLE;
    let above = Pos::new(HPos::Center, VPos::Bottom);
    let style = SMALL.into_text_style(chart.plotting_area()).pos(above);
    let small = column
        .values
        .iter()
        .enumerate()
        .filter(|&(_, &value)| value > 0.0 && value < most);
    let text = |(place, value): (usize, &f64)| Text::new(format!("{value:.2}"), (middle(place), *value), style.clone());
    chart.draw_series(small.map(text).collect::<Vec<_>>())?;
    Ok(())
}

/// White for no change, coloured for a gain or a loss; framed where it is as *Range Writes* has it.
fn cells(chart: &mut Chart<'_, '_>, panel: &Panel) -> Drawn {
    let middle = Pos::new(HPos::Center, VPos::Center);
    for (row, column) in panel.columns.iter().enumerate() {
        for (place, &value) in column.values.iter().enumerate() {
            let (x, y) = (place as f64, row as f64);
            let corners = |part: f64| [(x - part, y - part), (x + part, y + part)];
            let (shade, strength) = shade(value);
            chart.draw_series([Rectangle::new(corners(0.5), shade.filled())])?;
            let is_papers = panel
                .paper
                .is_some_and(|paper| (value / paper - 1.0).abs() <= TOLERANCE);
            if is_papers {
                chart.draw_series([Rectangle::new(corners(0.45), BLACK.stroke_width(2))])?;
            }
            let ink = if strength > 0.55 { WHITE } else { BLACK };
            let style = SMALL.into_text_style(chart.plotting_area()).color(&ink).pos(middle);
            chart.draw_series([Text::new(format!("{value:+.0}"), (x, y), style)])?;
        }
    }
    Ok(())
}

/// The colour of a change in percent, and how far from white it is.
fn shade(percent: f64) -> (RGBColor, f64) {
    let (full, most) = if percent < 0.0 { GAIN } else { LOSS };
    let strength = (percent.abs() / most).min(1.0);
    let mixed = |part: u8| (255.0 - (255.0 - f64::from(part)) * strength).round() as u8;
    (RGBColor(mixed(full.0), mixed(full.1), mixed(full.2)), strength)
}

fn points(chart: &mut Chart<'_, '_>, panel: &Panel) -> Drawn {
    let at = numbers(panel);
    for (index, column) in panel.columns.iter().enumerate() {
        let of = at.iter().copied().zip(column.values.iter().copied());
        let of = of.filter(|(_, value)| value.is_finite());
        match column.name.as_str() {
            PAPER => chart.draw_series(of.map(|point| Cross::new(point, 9, BLACK.stroke_width(3))))?,
            _ => chart.draw_series(of.map(|point| Circle::new(point, 4, colour(index).mix(0.7).filled())))?,
        };
    }
    Ok(())
}
