//! `elbow lock top`: the status, again and again, until nobody reads it any more.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::args::TopArgs;
use super::service;
use super::status::{Status, ask};
use crate::output::{answer_more, is_unread};

/// Clears a terminal and goes to its first line (ECMA-48, ED and CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Shows the status until interrupted; on a terminal in place, else one after the other.
pub(super) fn run(args: &TopArgs) -> Result<ExitCode> {
    let client = service::connect(&args.service, format!("elbow lock top, process {}", std::process::id()))?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut before: Option<(Instant, u64)> = None;
    for look in 0..args.looks.unwrap_or(u64::MAX) {
        if look > 0 {
            std::thread::sleep(Duration::from_millis(u64::from(args.interval)));
        }
        let status = ask(&client)?;
        let (at, grants) = (Instant::now(), status.totals.grants);
        let rate = before.map(|(then, had)| grants.saturating_sub(had) as f64 / at.duration_since(then).as_secs_f64());
        before = Some((at, grants));
        let shown = show(&status, rate, is_terminal);
        if is_unread(&shown) {
            break;
        }
        shown?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(status: &Status, rate: Option<f64>, is_terminal: bool) -> io::Result<()> {
    let rows = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(24, |size| usize::from(size.ws_row));
    let most = if is_terminal {
        rows.saturating_sub(2).max(3)
    } else {
        usize::MAX
    };
    let mut lines = status.lines(most);
    lines.insert(
        1,
        rate.map_or_else(|| "grants/s: looking".to_owned(), |rate| format!("grants/s: {rate:.0}")),
    );
    let clear = if is_terminal { CLEAR } else { "" };
    answer_more(format_args!("{clear}{}", lines.join("\n")))
}
