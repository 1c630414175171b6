//! The two ways out: messages for people on standard error, answers on standard output.
//!
//! The macros of the standard library panic when nobody reads any more (`elbow diff MNT | head`, a closed terminal);
//! here that ends neither a commit nor an exit code.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use elbow_file::ShowName;

/// A message for people, with our name before it. A terminal obeys nothing in it.
pub(crate) fn print_message(message: impl Display) {
    let message = without_numbers(&message.to_string());
    let lines: Vec<String> = message.split('\n').map(on_one_line).collect();
    raw(format_args!("elbow: {}", lines.join("\n")));
}

/// A sentence in which names may be that were not written for people: what a terminal would obey, and what would begin another line, stands as
/// [`ShowName`] has it.
pub(crate) fn on_one_line(sentence: &str) -> String {
    let mut told = String::with_capacity(sentence.len());
    for sign in sentence.chars() {
        match sign {
            _ if sign.is_control() => told.push_str(&sign.encode_utf8(&mut [0; 4]).shown().to_string()),
            _ => told.push(sign),
        }
    }
    told
}

/// An error and its causes in one sentence: each is said once, although most errors tell their cause themselves.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    let causes = error.chain().map(|cause| without_numbers(&cause.to_string()));
    causes.fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        _ if said.contains(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

/// The first few of a list, and how many more there are.
pub(crate) fn few(all: impl ExactSizeIterator<Item = String>, shown: usize) -> String {
    let rest = all.len().checked_sub(shown).filter(|rest| *rest > 0);
    let rest = rest.map(|rest| format!("and {rest} more"));
    all.take(shown).chain(rest).collect::<Vec<_>>().join(", ")
}

/// The system's words for an errno.
pub(crate) fn strerror(errno: i32) -> String {
    without_numbers(&io::Error::from_raw_os_error(errno).to_string())
}

/// Without what Rust puts behind the system's words for an errno, ` (os error 2)`: it says nothing to people.
pub(crate) fn without_numbers(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut pieces = text.split(BEGIN);
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |said, piece| match piece.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => said + rest,
        _ => said + BEGIN + piece,
    })
}

/// A line of standard error as it is.
pub(crate) fn raw(line: impl Display) {
    // There is nowhere else to say it.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// An answer could not be given.
#[derive(Debug, thiserror::Error)]
#[error("standard output: {0}")]
struct AnswerError(#[source] io::Error);

/// A line of the answer. That nobody reads it any more is no error.
pub(crate) fn answer(line: impl Display) -> io::Result<()> {
    read_or_not(writeln!(io::stdout().lock(), "{line}"))
}

/// All of an answer that brings its own lines. That nobody reads it any more is no error.
pub(crate) fn answer_text(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    read_or_not(out.write_all(text).and_then(|()| out.flush()))
}

/// A line of an answer that has no end of its own: it ends when [nobody reads it](is_unread).
pub(crate) fn answer_more(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// Whether nobody reads what is said any more.
pub(crate) fn is_unread(told: &io::Result<()>) -> bool {
    told.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// What became of an answer: that nobody reads it any more is no error.
pub(crate) fn read_or_not(told: io::Result<()>) -> io::Result<()> {
    match told {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        told => told.map_err(|error| io::Error::new(error.kind(), AnswerError(error))),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn only_numbers_of_the_system_go() {
        for (text, left) in [
            ("a: No such file (os error 2)", "a: No such file"),
            ("a (os error 2): b (os error 13), c", "a: b, c"),
            ("a (os error x) b", "a (os error x) b"),
            ("a (os error ", "a (os error "),
        ] {
            assert_eq!(without_numbers(text), left);
        }
        assert_eq!(strerror(libc::EIO), "Input/output error");
    }

    /// An error that told its cause had it said again: "No such file (os error 2): No such file (os error 2)".
    #[test]
    fn a_cause_is_said_once() {
        let cause = || anyhow!("No such file (os error 2)");
        let telling = cause().context("opening x: No such file (os error 2) (really)");
        assert_eq!(sentence(&telling), "opening x: No such file (really)");
        let silent = Err::<(), _>(cause())
            .context("opening x")
            .context("beginning")
            .expect_err("an error");
        assert_eq!(sentence(&silent), "beginning: opening x: No such file");
    }
}
