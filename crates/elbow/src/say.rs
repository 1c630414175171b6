//! The two ways out: messages for people on standard error, answers on standard output.
//!
//! The macros of the standard library panic when nobody reads any more (`elbow diff MNT | head`, a closed terminal);
//! here that ends neither a commit nor an exit code.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// A message for people, with our name before it.
pub(crate) fn say(message: impl Display) {
    raw(format_args!("elbow: {message}"));
}

/// A line of standard error as it is.
pub(crate) fn raw(line: impl Display) {
    // There is nowhere else to say it.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// A line of the answer. That nobody reads it any more is no error.
pub(crate) fn answer(line: impl Display) -> io::Result<()> {
    match writeln!(io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
