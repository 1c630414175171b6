//! The animation as SVG: CSS turns the platter and moves the arm, so that a browser plays it without a program.
//!
//! ```text
//!   heading
//!   platter, head from the right   | a line for each request, with its parts in ms
//!   what is done now               |
//!   a bar of all steps in their colours, and where in it the picture is
//! ```
//!
//! A reader that asks for no motion, and a viewer without CSS animation, see the start, with all requests and times.

use std::fmt::Write as _;

use elbow_disk::Ps;
use elbow_disk::timeline::{DriveActivity, Visit};

use super::super::colours::COLOURS;
use super::scene::{Piece, Scene, name, of, op};
use super::words;

/// Seconds for which the end is shown.
const HOLD_S: f64 = 3.0;
const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 20.0;
/// The middle of the platter, and its outermost cylinder.
const MIDDLE: (f64, f64) = (250.0, 305.0);
const RADIUS: f64 = 210.0;
/// The table: its left side, its first line, and the height of one.
const TABLE: (f64, f64, f64) = (505.0, 95.0, 22.0);
/// The least height of what is above the bar.
const BODY: f64 = 580.0;
/// The bar of all steps, and what is below it.
const BAR: f64 = 26.0;
const FOOT: f64 = 62.0;
/// Times at the bar, about.
const TICKS: f64 = 8.0;

const STYLE: &str = "\
text { font: 14px system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #222 }
.number { text-anchor: end; font-variant-numeric: tabular-nums }
.label { text-anchor: middle; font-weight: 600 }
.ring { fill: none; stroke: #bbb }
.now { opacity: 0 }
";

/// The picture, moving so many times slower than the drive.
pub(super) fn animation(scene: &Scene<'_>, slower: u32) -> String {
    let clock = Clock {
        slower: f64::from(slower),
        end: scene.end(),
    };
    let table = TABLE.1 + TABLE.2 * (scene.list.len() + 3) as f64;
    let bar = BODY.max(table);
    let height = bar + BAR + FOOT;
    let mut moving = Moving::default();
    let mut body = String::new();
    heading(scene, slower, &mut body);
    platter(scene, &clock, &mut moving, &mut body);
    arm(scene, &clock, &mut moving, &mut body);
    requests(scene, &clock, &mut moving, &mut body);
    steps(scene, &clock, &mut moving, &mut body, bar);
    let (rules, title) = (moving.rules(), escaped(scene.drive.name()));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{rules}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

/// When in the picture a moment is shown.
struct Clock {
    slower: f64,
    end: Ps,
}

impl Clock {
    fn seconds(&self) -> f64 {
        self.end.ms() * self.slower / 1000.0 + HOLD_S
    }

    fn percent(&self, time: Ps) -> f64 {
        time.ms() * self.slower / 10.0 / self.seconds()
    }
}

/// What moves, as rules of CSS.
#[derive(Default)]
struct Moving(Vec<String>);

impl Moving {
    /// The class of something that goes evenly from each place to the next.
    fn through(&mut self, class: &str, clock: &Clock, places: &[(Ps, String)]) {
        let mut frames = String::new();
        for (time, place) in places {
            add(
                &mut frames,
                format_args!("{:.5}%{{transform:{place}}}", clock.percent(*time)),
            );
        }
        if let Some((_, last)) = places.last() {
            add(&mut frames, format_args!("100%{{transform:{last}}}"));
        }
        self.0.push(format!(
            "@keyframes {class}{{{frames}}}.{class}{{animation:{class} {:.3}s linear infinite}}",
            clock.seconds()
        ));
    }

    /// The class of what is seen from one moment to another.
    fn seen(&mut self, clock: &Clock, from: Ps, to: Ps) -> String {
        let class = format!("s{}", self.0.len());
        let (from, to) = (clock.percent(from), clock.percent(to));
        self.0.push(format!(
            "@keyframes {class}{{0%{{opacity:0}}{from:.5}%{{opacity:1}}{to:.5}%{{opacity:0}}}}\
             .{class}{{animation:{class} {:.3}s step-end infinite}}",
            clock.seconds()
        ));
        class
    }

    fn rules(&self) -> String {
        format!(
            "@media (prefers-reduced-motion: no-preference) {{\n{}\n}}\n",
            self.0.join("\n")
        )
    }
}

fn heading(scene: &Scene<'_>, slower: u32, to: &mut String) {
    let [drive, start] = words::heading(scene);
    text(to, (MARGIN, 30.0), "", &drive);
    text(to, (MARGIN, 50.0), "", &format!("{start}; shown {slower} times slower"));
}

fn platter(scene: &Scene<'_>, clock: &Clock, moving: &mut Moving, to: &mut String) {
    let turned = |time: Ps| format!("rotate({:.4}deg)", -scene.turned(time));
    moving.through(
        "platter",
        clock,
        &[(Ps::ZERO, turned(Ps::ZERO)), (scene.end(), turned(scene.end()))],
    );
    let start = -scene.turned(Ps::ZERO);
    add(
        to,
        format_args!("<g transform=\"translate({} {})\">\n", MIDDLE.0, MIDDLE.1),
    );
    add(to, format_args!("<circle r=\"{:.1}\" fill=\"#eee\"/>\n", RADIUS + 6.0));
    let last = scene.drive.cylinders() - 1;
    for cylinder in scene.zone_cylinders().into_iter().chain([last]) {
        let radius = RADIUS * scene.radius(f64::from(cylinder));
        add(to, format_args!("<circle class=\"ring\" r=\"{radius:.1}\"/>\n"));
    }
    add(
        to,
        format_args!("<g class=\"platter\" transform=\"rotate({start:.4})\">\n"),
    );
    let inner = RADIUS * scene.radius(f64::from(last));
    // The turn's start, so that it is seen to turn.
    add(
        to,
        format_args!("<line x1=\"20\" x2=\"{inner:.1}\" stroke=\"#999\" stroke-width=\"3\"/>\n"),
    );
    for number in 0..scene.list.len() {
        for (at, piece) in scene.pieces(number).iter().enumerate() {
            sectors(number, piece, at == 0, to);
        }
    }
    to.push_str("</g>\n</g>\n");
}

/// Sectors of a request on one track, and its number.
fn sectors(number: usize, piece: &Piece, is_labelled: bool, to: &mut String) {
    let radius = RADIUS * piece.radius;
    let [from, until] = piece.degrees;
    let (x1, y1) = polar(radius, from);
    let (x2, y2) = polar(radius, until);
    let large = u8::from(until - from > 180.0);
    let path = match until - from < 359.9 {
        true => format!("M{x1:.2} {y1:.2}A{radius:.2} {radius:.2} 0 {large} 1 {x2:.2} {y2:.2}"),
        false => {
            let (x, y) = polar(radius, from + 180.0);
            format!(
                "M{x1:.2} {y1:.2}A{radius:.2} {radius:.2} 0 0 1 {x:.2} {y:.2}A{radius:.2} {radius:.2} 0 0 1 {x1:.2} {y1:.2}"
            )
        }
    };
    let colour = colour(number);
    add(
        to,
        format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"8\"/>\n"),
    );
    if is_labelled {
        let (x, y) = polar(radius + 14.0, from.midpoint(until));
        text(to, (x, y + 5.0), "label", &(number + 1).to_string());
    }
}

/// The head at its cylinder, and the arm that holds it, from the right.
fn arm(scene: &Scene<'_>, clock: &Clock, moving: &mut Moving, to: &mut String) {
    let place = |cylinder: u32| RADIUS * scene.radius(f64::from(cylinder));
    let start = place(scene.plan.arm.cylinder);
    let at = |time: Ps, cylinder: u32| (time, format!("translate({:.3}px)", place(cylinder) - start));
    let mut places = vec![at(Ps::ZERO, scene.plan.arm.cylinder)];
    for (_, step) in scene.steps().filter(|(_, step)| is_move(step.doing)) {
        places.push(at(step.from, step.arm[0].cylinder));
        places.push(at(step.to, step.arm[1].cylinder));
    }
    moving.through("arm", clock, &places);
    let (x, y) = (MIDDLE.0 + start, MIDDLE.1);
    add(
        to,
        format_args!(
            "<clipPath id=\"left\"><rect width=\"{:.0}\" height=\"{BODY}\"/></clipPath>\n\
             <g clip-path=\"url(#left)\"><g class=\"arm\"><path d=\"M{x:.2} {y}l14 -7h400v14h-400z\" fill=\"#444\"/></g></g>\n",
            TABLE.0 - 20.0
        ),
    );
}

fn is_move(doing: DriveActivity) -> bool {
    matches!(doing, DriveActivity::Seek | DriveActivity::NextTrack)
}

/// Columns of the table, from its left side: their right ends.
const COLUMNS: [(&str, f64); 8] = [
    ("", 22.0),
    ("", 44.0),
    ("LBN", 118.0),
    ("overhead", 190.0),
    ("seek", 262.0),
    ("rotation", 332.0),
    ("transfer", 403.0),
    ("end ms", 475.0),
];

/// A line for each request in the order of service; that of the one that is served is marked.
fn requests(scene: &Scene<'_>, clock: &Clock, moving: &mut Moving, to: &mut String) {
    let (left, top, height) = TABLE;
    row(to, top, &COLUMNS.map(|(name, _)| name.to_owned()));
    for (line, visit) in (1..).zip(&scene.visits) {
        let y = top + height * f64::from(line);
        let class = moving.seen(clock, visit.began, visit.parts.end);
        add(
            to,
            format_args!(
                "<rect class=\"now {class}\" x=\"{left}\" y=\"{:.0}\" width=\"480\" height=\"{height}\" fill=\"#ffe9a8\"/>\n",
                y - 16.0
            ),
        );
        let fill = colour(visit.number);
        add(
            to,
            format_args!(
                "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"8\" height=\"12\" fill=\"{fill}\"/>\n",
                left - 12.0,
                y - 11.0
            ),
        );
        row(to, y, &cells(visit));
    }
    let y = top + height * (scene.visits.len() + 1) as f64;
    let [overhead, seek, rotation, transfer] = scene.totals().map(milliseconds);
    row(
        to,
        y,
        &[
            "all".to_owned(),
            String::new(),
            String::new(),
            overhead,
            seek,
            rotation,
            transfer,
            milliseconds(scene.end()),
        ],
    );
}

fn cells(visit: &Visit) -> [String; 8] {
    let request = visit.listed.request;
    let [overhead, seek, rotation, transfer] = of(&visit.parts).map(milliseconds);
    let (number, op) = ((visit.number + 1).to_string(), op(request.write).to_string());
    [
        number,
        op,
        request.lbn.to_string(),
        overhead,
        seek,
        rotation,
        transfer,
        milliseconds(visit.parts.end),
    ]
}

fn row(to: &mut String, y: f64, cells: &[String; 8]) {
    for (cell, (_, right)) in cells.iter().zip(COLUMNS) {
        text(to, (TABLE.0 + right, y), "number", cell);
    }
}

/// The bar of all steps, where in it the picture is, and what is done then.
fn steps(scene: &Scene<'_>, clock: &Clock, moving: &mut Moving, to: &mut String, top: f64) {
    let width = WIDTH - 2.0 * MARGIN;
    let at = |time: Ps| width * time.ms() / scene.end().ms();
    for (number, step) in scene.steps() {
        let class = moving.seen(clock, step.from, step.to);
        let said = format!(
            "{}: {}, {} ms",
            words::request(scene, number),
            name(step.doing),
            milliseconds(step.takes())
        );
        text(to, (MARGIN, top - 34.0), &format!("now {class}"), &said);
        add(
            to,
            format_args!(
                "<rect class=\"{}\" x=\"{:.3}\" y=\"{top}\" width=\"{:.3}\" height=\"{BAR}\" fill=\"{}\"/>\n",
                name(step.doing).replace(' ', "-"),
                MARGIN + at(step.from),
                at(step.takes()),
                shade(step.doing)
            ),
        );
    }
    for visit in &scene.visits {
        let middle = MARGIN + at(visit.began).midpoint(at(visit.parts.end));
        text(to, (middle, top - 6.0), "label", &(visit.number + 1).to_string());
    }
    ticks(scene.end(), top + BAR, to);
    legend(top + BAR + 50.0, to);
    moving.through(
        "playhead",
        clock,
        &[
            (Ps::ZERO, "translate(0px)".to_owned()),
            (scene.end(), format!("translate({width}px)")),
        ],
    );
    add(
        to,
        format_args!(
            "<path class=\"playhead\" d=\"M{MARGIN} {}v{}\" stroke=\"#000\" stroke-width=\"2\"/>\n",
            top - 4.0,
            BAR + 8.0
        ),
    );
}

/// Times below the bar.
fn ticks(end: Ps, y: f64, to: &mut String) {
    let width = WIDTH - 2.0 * MARGIN;
    let step = step_of(end.ms() / TICKS);
    let times = (0..)
        .map(|number| f64::from(number) * step)
        .take_while(|&ms| ms <= end.ms());
    for ms in times {
        let x = MARGIN + width * ms / end.ms();
        add(to, format_args!("<path d=\"M{x:.1} {y}v5\" stroke=\"#222\"/>\n"));
        let anchor = if ms == 0.0 { "" } else { "label" };
        text(
            to,
            (if ms == 0.0 { x } else { x.min(WIDTH - 40.0) }, y + 20.0),
            anchor,
            &format!("{ms}{}", if ms == 0.0 { " ms" } else { "" }),
        );
    }
}

/// A step of 1, 2 or 5 times a power of ten, no less than this.
fn step_of(least: f64) -> f64 {
    let power = 10.0_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|times| times * power);
    steps
        .into_iter()
        .find(|&step| step >= least * 0.999)
        .unwrap_or(power * 10.0)
}

fn legend(y: f64, to: &mut String) {
    let kinds = [
        DriveActivity::Overhead,
        DriveActivity::Seek,
        DriveActivity::Rotation,
        DriveActivity::Transfer,
        DriveActivity::NextTrack,
        DriveActivity::NextSector,
        DriveActivity::Idle,
    ];
    for (place, doing) in (0..).zip(kinds) {
        let x = MARGIN + 120.0 * f64::from(place);
        add(
            to,
            format_args!(
                "<rect x=\"{x}\" y=\"{:.0}\" width=\"14\" height=\"12\" fill=\"{}\"/>\n",
                y - 11.0,
                shade(doing)
            ),
        );
        text(to, (x + 20.0, y), "", name(doing));
    }
}

/// The colour of a request.
fn colour(number: usize) -> String {
    hexadecimal(COLOURS[number % COLOURS.len()])
}

/// The colour of what is done.
fn shade(doing: DriveActivity) -> String {
    match doing {
        DriveActivity::Idle => "#ddd".to_owned(),
        DriveActivity::Overhead => "#888".to_owned(),
        DriveActivity::Seek => hexadecimal(COLOURS[0]),
        DriveActivity::Rotation => hexadecimal(COLOURS[1]),
        DriveActivity::Transfer => hexadecimal(COLOURS[2]),
        DriveActivity::NextTrack => hexadecimal(COLOURS[5]),
        DriveActivity::NextSector => hexadecimal(COLOURS[4]),
    }
}

fn hexadecimal((red, green, blue): (u8, u8, u8)) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn milliseconds(time: Ps) -> String {
    format!("{:.3}", time.ms())
}

fn polar(radius: f64, degrees: f64) -> (f64, f64) {
    let (sine, cosine) = degrees.to_radians().sin_cos();
    (radius * cosine, radius * sine)
}

fn text(to: &mut String, (x, y): (f64, f64), class: &str, words: &str) {
    add(
        to,
        format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n",
            escaped(words)
        ),
    );
}

fn add(to: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = to.write_fmt(what); // a string takes all
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_names_are_no_elements() {
        assert_eq!(
            [0.7, 1.0, 1.3, 3.0, 6.0, 40.0].map(step_of),
            [1.0, 1.0, 2.0, 5.0, 10.0, 50.0]
        );
        assert_eq!(escaped("<a & b>"), "&lt;a &amp; b>");
    }
}
