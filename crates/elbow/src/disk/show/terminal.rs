//! The platter in a terminal: it turns, the arm moves, and below it stands what is done.

use std::io::{self, IsTerminal, Write};
use std::thread::sleep;
use std::time::{Duration, Instant};

use elbow_disk::Ps;
use elbow_disk::timeline::Step;
use rustix::termios::tcgetwinsize;

use super::canvas::Canvas;
use super::scene::{Piece, Scene, name};
use super::words;

/// Pictures in a second.
const RATE: u32 = 25;
/// Nothing can be told apart in a smaller picture, and a larger one takes longer to draw than to look at.
const ROWS: (usize, usize) = (12, 30);
/// Lines below the picture, and one for the cursor.
const WORDS: usize = 4;
/// Dots of a circle.
const DOTS: u32 = 400;

/// Plays it, where there is a terminal that is large enough.
pub(super) fn play(scene: &Scene<'_>, slower: u32) -> io::Result<()> {
    let Some(rows) = rows() else { return Ok(()) };
    let began = Instant::now();
    let mut up = String::new();
    loop {
        let time = Ps::from_ms(began.elapsed().as_secs_f64() * 1000.0 / f64::from(slower)).min(scene.end());
        let lines = frame(scene, time, rows);
        // At once, so that no half picture is seen.
        let text: String = lines.iter().map(|line| format!("\x1b[2K{line}\n")).collect();
        io::stdout().lock().write_all(format!("{up}{text}").as_bytes())?;
        if time == scene.end() {
            return writeln!(io::stdout());
        }
        up = format!("\x1b[{}A", lines.len());
        sleep(Duration::from_secs(1) / RATE);
    }
}

/// How high the picture can be.
fn rows() -> Option<usize> {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if is_dumb || !io::stdout().is_terminal() {
        return None;
    }
    let size = tcgetwinsize(io::stdout()).ok()?;
    let rows = usize::from(size.ws_row).saturating_sub(WORDS);
    let rows = rows.min(usize::from(size.ws_col) / 2).min(ROWS.1);
    (rows >= ROWS.0).then_some(rows)
}

/// What is to be seen at a moment.
fn frame(scene: &Scene<'_>, time: Ps, rows: usize) -> Vec<String> {
    let mut lines = picture(scene, time, rows).lines();
    lines.extend(said(scene, time));
    lines
}

fn picture(scene: &Scene<'_>, time: Ps, rows: usize) -> Canvas {
    let mut canvas = Canvas::new(rows);
    let below = scene.below(time);
    for cylinder in [0, scene.drive.cylinders() - 1] {
        circle(&mut canvas, scene.radius(f64::from(cylinder)), [0.0, 360.0], 1);
    }
    // The turn's start, so that it is seen to turn.
    canvas.dot(polar(scene.radius(f64::from(scene.drive.cylinders())) * 0.8, -below));
    for number in 0..scene.list.len() {
        let pieces = scene.pieces(number);
        for Piece { radius, degrees } in &pieces {
            circle(&mut canvas, *radius, degrees.map(|degrees| degrees - below), 0);
        }
        if let Some(first) = pieces.first() {
            canvas.letter(polar(first.radius, first.degrees[0] - below), digit(number));
        }
    }
    let head = scene.radius(scene.cylinder(time));
    for part in 0..DOTS {
        let along = head + (1.0 - head) * f64::from(part) / f64::from(DOTS);
        canvas.dot(polar(along, 0.0));
    }
    canvas.letter(polar(head, 0.0), '<');
    canvas
}

/// A circle or a part of it; a thin one leaves dots out.
fn circle(canvas: &mut Canvas, radius: f64, [from, to]: [f64; 2], thin: u32) {
    let dots = (f64::from(DOTS) * (to - from) / 360.0).ceil() as u32;
    for dot in (0..=dots).step_by(1 + 2 * thin as usize) {
        canvas.dot(polar(
            radius,
            from + (to - from) * f64::from(dot) / f64::from(dots.max(1)),
        ));
    }
}

/// The heads are on the right; angles that are still to come, below.
fn polar(radius: f64, degrees: f64) -> (f64, f64) {
    let (sine, cosine) = degrees.to_radians().sin_cos();
    (radius * cosine, radius * sine)
}

/// Requests from 1 to 9, then a to z; what is behind them has no name.
fn digit(number: usize) -> char {
    u32::try_from(number + 1)
        .ok()
        .and_then(|number| char::from_digit(number, 36))
        .unwrap_or('*')
}

/// The time, what is done, and for whom.
fn said(scene: &Scene<'_>, time: Ps) -> [String; 3] {
    let step = scene.steps().filter(|(_, step)| step.from <= time).last();
    let now = format!(
        "{:.3} ms, {:.0} degrees, cylinder {:.0}",
        time.ms(),
        scene.below(time),
        scene.cylinder(time)
    );
    match step {
        Some((number, step)) if time < scene.end() => [now, doing(step, time), words::request(scene, number)],
        _ => [now, "all are served".to_owned(), String::new()],
    }
}

fn doing(step: &Step, time: Ps) -> String {
    format!(
        "{}: {:.3} of {:.3} ms",
        name(step.doing),
        (time - step.from).ms(),
        step.takes().ms()
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elbow_disk::timeline::{Listed, Plan};
    use elbow_disk::{Arm, Drive, Lbn, Request};

    use super::*;

    fn column_of_head(lines: &[String]) -> usize {
        let line = lines
            .iter()
            .find(|line| line.contains('<'))
            .expect("the head is in the picture");
        line.chars()
            .position(|letter| letter == '<')
            .expect("it is in this line")
    }

    #[test]
    fn the_head_moves_inwards_and_what_it_does_is_told() {
        let drive = Arc::new(Drive::named("hp-c2247a").expect("built in"));
        let request = Request {
            lbn: Lbn(2_000_000),
            sectors: 8,
            write: false,
        };
        let plan = Plan {
            scheduler: "sptf".parse().expect("a scheduler"),
            depth: 1,
            overhead: Ps::ZERO,
            arm: Arm::default(),
            angle: Ps::ZERO,
        };
        let arrival = Ps::ZERO;
        let scene = Scene::new(&drive, plan, vec![Listed { arrival, request }]);
        let steps: Vec<Step> = scene.steps().map(|(_, step)| *step).collect();
        let [start, waits, end] = [Ps::ZERO, steps[0].to, scene.end()].map(|time| frame(&scene, time, 20));
        assert!(column_of_head(&start) > column_of_head(&waits), "{start:#?}{waits:#?}");
        assert_eq!(column_of_head(&waits), column_of_head(&end));
        assert_eq!(start[21], format!("seek: 0.000 of {:.3} ms", steps[0].takes().ms()));
        assert_eq!(waits[21], format!("rotation: 0.000 of {:.3} ms", steps[1].takes().ms()));
        assert_eq!(waits[22], "request 1: read sectors 2000000 to 2000007");
        assert_eq!(end[21], "all are served");
        assert!(start.iter().all(|line| line.chars().count() <= 60), "{start:#?}");
    }
}
