//! Standard error as a terminal: whose it is now, how large, and two ways to show a line there.
//!
//! ```text
//!   CursorLine   the line that the cursor is in: for commands that have the terminal for themselves
//!   Row          the last row, below what others write: it is kept out of the region that scrolls (DECSTBM), as apt does
//! ```
//!
//! A row is shown only while its terminal belongs to our process group and reads lines with echo. What reads single
//! keys (an editor, a pager, a shell's prompt) gets the whole screen back and is asked to draw it anew. Everything is
//! written at once, with the cursor and its colours saved and put back, so that what others write stays whole.
//!
//! Source: xterm, *Control Sequences* (DECSC, DECRC, DECSTBM, ED, EL, IND); termios(3).

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Signal, kill_process_group};
use rustix::stdio::stderr;
use rustix::termios::{LocalModes, isatty, tcgetattr, tcgetpgrp, tcgetwinsize};

/// Nobody wants to lose a row of a terminal with fewer, or could read a line of fewer columns.
const ROWS_MIN: u16 = 5;
const COLUMNS_MIN: u16 = 20;

/// The last row while there is one, for whoever ends the process in a hurry; 0: there is none.
static ROW: AtomicU16 = AtomicU16::new(0);

/// All rows scroll, and those below the cursor are empty: a terminal that was resized, or that somebody had drawn on, may
/// show an old row of ours anywhere there, and nothing else.
const CLEAN: &str = "\x1b7\x1b[r\x1b8\x1b[J";

/// Rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    rows: u16,
    columns: u16,
}

impl Size {
    /// A line in the last column would wrap on some terminals.
    pub(super) fn line_columns(self) -> usize {
        usize::from(self.columns.saturating_sub(1))
    }
}

/// Is there a terminal that understands more than letters?
pub(super) fn is_there() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    !is_dumb && isatty(stderr())
}

/// What a terminal is taken for that does not know its size.
const UNKNOWN: Size = Size { rows: 24, columns: 80 };

/// Its size, if it has one that is worth drawing on.
pub(super) fn size() -> Option<Size> {
    let found = tcgetwinsize(stderr()).ok()?;
    let (rows, columns) = (found.ws_row, found.ws_col);
    (rows >= ROWS_MIN && columns >= COLUMNS_MIN).then_some(Size { rows, columns })
}

/// We are not in the background.
#[allow(unsafe_code)]
pub(super) fn is_ours() -> bool {
    // SAFETY: it has no arguments and no effect. The one of rustix knows no group 0, which is one of another namespace.
    let ours = unsafe { libc::getpgrp() };
    tcgetpgrp(stderr()).is_ok_and(|group| group.as_raw_nonzero().get() == ours)
}

/// It reads lines and shows what is typed: nobody draws on it.
fn is_plain() -> bool {
    let plain = LocalModes::ICANON | LocalModes::ECHO;
    tcgetattr(stderr()).is_ok_and(|modes| modes.local_modes.contains(plain))
}

/// Past the buffers and locks of the standard library: others must not wait for a terminal that is stopped (Ctrl-S).
fn write(text: &str) {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        match rustix::io::write(stderr(), left) {
            Ok(written) => left = &left[written..],
            Err(errno) if io::Error::from(errno).kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return, // there is nowhere to say it
        }
    }
}

/// The line of the cursor.
#[derive(Debug, Default)]
pub(super) struct CursorLine {
    /// Columns of what is shown.
    shown: usize,
}

impl CursorLine {
    pub(super) fn draw(&mut self, line: impl FnOnce(usize) -> String) {
        let size = size().unwrap_or(UNKNOWN);
        let (clear, line) = (self.clear(size), line(size.line_columns()));
        write(&format!("{clear}{line}"));
        self.shown = line.len();
    }

    pub(super) fn hide(&mut self) {
        if self.shown > 0 {
            write(&self.clear(size().unwrap_or(UNKNOWN)));
            self.shown = 0;
        }
    }

    /// In a terminal that has become narrower the line has wrapped: back to its first row.
    fn clear(&self, size: Size) -> String {
        match self.shown.saturating_sub(1) / usize::from(size.columns) {
            0 => "\r\x1b[K".to_owned(),
            above => format!("\r\x1b[{above}A\x1b[J"),
        }
    }
}

/// The last row; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct Row {
    shown: Option<Size>,
    /// Somebody had the screen, and may have brought an old row of ours back with it.
    was_lent: bool,
}

impl Row {
    /// Shows a line, unless somebody else has the screen.
    pub(super) fn draw(&mut self, line: impl FnOnce(usize) -> String) {
        let Some(size) = size().filter(|_| is_ours()) else {
            return self.hide();
        };
        if !is_plain() {
            return self.lend();
        }
        let install = if self.shown == Some(size) {
            String::new()
        } else {
            self.install()
        };
        let (last, line) = (size.rows, line(size.line_columns()));
        let region = format!("\x1b[1;{}r", last - 1);
        write(&format!(
            "{install}\x1b7{region}\x1b[{last};1H\x1b[0m\x1b[2K{line}\x1b8"
        ));
        self.shown = Some(size);
        ROW.store(last, Ordering::Relaxed);
    }

    /// Gives the row back.
    pub(super) fn hide(&mut self) {
        match self.shown.take() {
            Some(shown) if size() == Some(shown) => give_back(),
            Some(_) => {
                ROW.store(0, Ordering::Relaxed);
                write(CLEAN);
            }
            None if self.was_lent && is_ours() && is_plain() => {
                self.was_lent = false;
                write(CLEAN);
            }
            None => {}
        }
    }

    /// Somebody else draws: the screen is theirs.
    fn lend(&mut self) {
        if self.shown.is_some() {
            self.hide();
            self.was_lent = true;
            if let Ok(group) = tcgetpgrp(stderr()) {
                // Who began to draw with a row less draws again.
                let _ = kill_process_group(group, Signal::WINCH);
            }
        }
    }

    /// Frees the last row.
    fn install(&mut self) -> String {
        let is_old = self.shown.is_some() || std::mem::take(&mut self.was_lent);
        let clean = if is_old { CLEAN } else { "" };
        // A line down and up again, in the same column: at the end of the screen that scrolls it by one.
        format!("{clean}\x1bD\x1b[A")
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        self.hide();
    }
}

/// Lets all rows scroll again, with the last one empty. Does nothing where there is no row of ours.
pub(super) fn give_back() {
    let last = ROW.swap(0, Ordering::Relaxed);
    if last > 0 {
        write(&format!("\x1b7\x1b[{last};1H\x1b[0m\x1b[2K\x1b[r\x1b8"));
    }
}
