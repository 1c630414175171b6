//! `elbow status --watch`: the same once a second, until the job ends.
//!
//! On a terminal the lines are drawn over those before; elsewhere each look is a line, or an object with `--json`. That nobody reads any more is
//! the end, too.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::stdio::stdout;
use rustix::termios::{isatty, tcgetwinsize};

use super::words::{count, lines};
use crate::control::{Found, Look, Status};
use crate::output::{answer_more, is_unread};
use crate::{json, size};

/// How often the job is looked at.
const REFRESH: Duration = Duration::from_secs(1);
/// Of a terminal that does not know it.
const COLUMNS: usize = 80;

/// Looks at a job until it has ended.
pub(super) fn watch(job: &Found, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new();
    let mut before = None;
    let mut look = Look::Status(Box::new(job.status()?));
    loop {
        let shown = match &look {
            Look::Status(status) if as_json => screen.line(json::line(status)?),
            Look::Status(status) => {
                let now = Moment::of(status);
                let speed = before.replace(now).map(|before| now.speed_since(before));
                screen.status(status, speed)
            }
            Look::Silent if as_json => Ok(()),
            Look::Silent => screen.line("the job does not answer: its process is stopped, or very busy"),
            Look::Gone if as_json => return Ok(ExitCode::SUCCESS),
            Look::Gone => return ended(screen.line("the job has ended")),
        };
        if is_unread(&shown) {
            return Ok(ExitCode::SUCCESS);
        }
        shown?;
        sleep(REFRESH);
        look = job.look();
    }
}

fn ended(told: io::Result<()>) -> anyhow::Result<ExitCode> {
    if !is_unread(&told) {
        told?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What speeds are reckoned from.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    operations: u64,
    written_bytes: u64,
}

/// What happens in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    operations: f64,
    written_bytes: f64,
}

impl Moment {
    fn of(status: &Status) -> Self {
        Self {
            at: Instant::now(),
            operations: count(status, "operations"),
            written_bytes: count(status, "bytes_written"),
        }
    }

    fn speed_since(self, before: Self) -> Speed {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-9);
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Speed {
            operations: per_second(self.operations, before.operations),
            written_bytes: per_second(self.written_bytes, before.written_bytes),
        }
    }
}

impl Speed {
    fn told(self) -> String {
        format!(
            "{:.0} operations/s, {}/s to the storage",
            self.operations,
            size::show(self.written_bytes as u64)
        )
    }
}

/// Where it is shown.
struct Screen {
    is_terminal: bool,
    /// Lines that are drawn over next.
    drawn: usize,
}

impl Screen {
    fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        Self {
            is_terminal: !is_dumb && isatty(stdout()),
            drawn: 0,
        }
    }

    /// A line that stays.
    fn line(&mut self, line: impl Display) -> io::Result<()> {
        self.drawn = 0;
        answer_more(line)
    }

    fn status(&mut self, status: &Status, speed: Option<Speed>) -> io::Result<()> {
        let speed = speed.map(Speed::told);
        if !self.is_terminal {
            return self.line(brief(status, speed.as_deref()));
        }
        let mut text = lines(status);
        text.extend(speed.map(|speed| format!("  speed       {speed}")));
        self.draw(&text)
    }

    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let found = tcgetwinsize(stdout()).map_or(0, |found| usize::from(found.ws_col));
        let columns = if found == 0 { COLUMNS } else { found };
        // With all of it written at once nothing flickers.
        let text = redrawn(lines, self.drawn, columns);
        self.drawn = lines.len();
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// Lines that take the place of so many before; each is cut where a narrow terminal would break it.
fn redrawn(lines: &[String], drawn: usize, columns: usize) -> String {
    let up = match drawn {
        0 => String::new(),
        rows => format!("\x1b[{rows}A\r\x1b[J"),
    };
    let cut = |line: &String| line.chars().take(columns).chain(['\n']).collect::<String>();
    lines.iter().map(cut).fold(up, |text, line| text + &line)
}

/// All of it on one line.
fn brief(status: &Status, speed: Option<&str>) -> String {
    let (queued, in_flight) = (count(status, "queued"), count(status, "in_flight"));
    let [written, stored] = ["bytes_acknowledged", "bytes_written"].map(|name| size::show(count(status, name)));
    let errors = match status.errors.len() {
        0 => String::new(),
        errors => format!("; {errors} errors"),
    };
    let speed = speed.map(|speed| format!("; {speed}")).unwrap_or_default();
    format!(
        "{}: {} operations; {} objects left, {in_flight} in flight; {written} written, {stored} on the storage{speed}{errors}",
        status.phase,
        count(status, "operations"),
        queued + in_flight,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_drawn_over_those_before() {
        let lines = ["one".to_owned(), "a longer line".to_owned()];
        assert_eq!(redrawn(&lines, 0, 80), "one\na longer line\n");
        assert_eq!(redrawn(&lines, 3, 8), "\x1b[3A\r\x1b[Jone\na longer\n");
    }

    #[test]
    fn a_speed_is_of_the_time_between_two_looks() {
        let at = Instant::now();
        let moment = |seconds, operations, written_bytes| Moment {
            at: at + Duration::from_secs(seconds),
            operations,
            written_bytes,
        };
        let speed = moment(3, 400, 4_000_000).speed_since(moment(1, 100, 0));
        assert_eq!(speed.told(), "150 operations/s, 2.0 MB/s to the storage");
    }
}
