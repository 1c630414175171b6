//! Operations of processes, and traces of them as text.
//!
//! ```text
//!   # pid  operation  path      offset  bytes
//!   1      mkdir      /d
//!   1      create     /d/a
//!   1      write      /d/a      0       10000
//!   1      append     /d/a      -       512
//!   2      read       /d/a      0       4096
//!   1      truncate   /d/a      -       100
//!   1      rename     /d/a      /d/b
//!   1      close      /d/b
//!   1      fsync      /d/b
//!   1      think      -         -       2500000      (nanoseconds)
//!   1      unlink     /d/b
//!   1      rmdir      /d
//!   1      sync
//! ```
//!
//! Words are separated by white space; white space, control characters, `#` and `%` in a path are written as `%20` and so on, byte
//! by byte. Lines that are empty or begin with `#` say nothing. `-` stands for a number that the operation does not have.

use std::fmt;

use crate::error::{Ext2Error, TraceError, TraceProblem};

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Done,
    /// It has to wait for the disk: give it again after the next completion, or at once if the disk has nothing to do
    /// after [`Ext2::next_request`](crate::Ext2::next_request) had nothing more (what was waited for was struck from
    /// the queue, with its file).
    Wait,
}

/// The longest thought: a day. Simulated time has room for 213 of them.
const THINK_NS_MAX: u64 = 86_400_000_000_000;

/// What a process does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Makes a directory.
    Mkdir(String),
    /// Makes a file, or empties one that is there.
    Create(String),
    /// Writes bytes at an offset.
    Write {
        /// Path of the file, which has to be there.
        path: String,
        /// First byte.
        offset: u64,
        /// Bytes from there on.
        bytes: u64,
    },
    /// Writes bytes at the end.
    Append {
        /// Path of the file, which has to be there.
        path: String,
        /// Bytes behind its end.
        bytes: u64,
    },
    /// Reads bytes at an offset, as far as the file goes.
    Read {
        /// Path of the file, which has to be there.
        path: String,
        /// First byte.
        offset: u64,
        /// Bytes from there on.
        bytes: u64,
    },
    /// Sets the size of a file.
    Truncate {
        /// Path of the file, which has to be there.
        path: String,
        /// Its new size.
        bytes: u64,
    },
    /// Removes a file.
    Unlink(String),
    /// Removes an empty directory.
    Rmdir(String),
    /// Moves a name, over what is there.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
    /// Closes a file: what was taken in advance for it is given back.
    Close(String),
    /// Waits until a file or directory, and what leads to it, is on the disk.
    Fsync(String),
    /// Waits until all is on the disk.
    Sync,
    /// Computes for so many nanoseconds.
    Think(u64),
}

/// What one process does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The process; its number chooses its mini-group.
    pub pid: u32,
    /// What the process asks of the file system.
    pub action: Action,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pid = self.pid;
        match &self.action {
            Action::Mkdir(path) => write!(f, "{pid} mkdir {}", Escaped(path)),
            Action::Create(path) => write!(f, "{pid} create {}", Escaped(path)),
            Action::Write { path, offset, bytes } => write!(f, "{pid} write {} {offset} {bytes}", Escaped(path)),
            Action::Append { path, bytes } => write!(f, "{pid} append {} - {bytes}", Escaped(path)),
            Action::Read { path, offset, bytes } => write!(f, "{pid} read {} {offset} {bytes}", Escaped(path)),
            Action::Truncate { path, bytes } => write!(f, "{pid} truncate {} - {bytes}", Escaped(path)),
            Action::Unlink(path) => write!(f, "{pid} unlink {}", Escaped(path)),
            Action::Rmdir(path) => write!(f, "{pid} rmdir {}", Escaped(path)),
            Action::Rename { from, to } => write!(f, "{pid} rename {} {}", Escaped(from), Escaped(to)),
            Action::Close(path) => write!(f, "{pid} close {}", Escaped(path)),
            Action::Fsync(path) => write!(f, "{pid} fsync {}", Escaped(path)),
            Action::Sync => write!(f, "{pid} sync"),
            Action::Think(nanoseconds) => write!(f, "{pid} think - - {nanoseconds}"),
        }
    }
}

/// A path as one word.
struct Escaped<'p>(&'p str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if matches!(character, '%' | '#') || character.is_whitespace() || character.is_control() {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            } else {
                write!(f, "{character}")?;
            }
        }
        Ok(())
    }
}

fn unescape(word: &str) -> Result<String, TraceProblem> {
    let mut pieces = word.split('%');
    let mut path = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let digits = piece
            .get(..2)
            .filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        path.push(code.ok_or_else(|| TraceProblem::BadEscape(piece.to_owned()))?);
        path.extend(&piece.as_bytes()[2..]);
    }
    String::from_utf8(path).map_err(|_| TraceProblem::NotUtf8(word.to_owned()))
}

/// What processes do, in order.
///
/// ```
/// use elbow_ext2::Trace;
///
/// let trace = Trace::parse("demo", "1 create /a\n1 write /a 0 5000\n")?;
/// assert_eq!(trace.summary().bytes_written, 5000);
/// let error = Trace::parse("demo", "1 create /a\n1 write /a zero 5000\n").unwrap_err();
/// assert_eq!(error.to_string(), "demo:2: offset: \"zero\" is not a number from 0 to 18446744073709551615");
/// # Ok::<(), elbow_ext2::TraceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order in which they begin.
    pub operations: Vec<Operation>,
}

/// A trace that was read from text, and on which line each of its operations began.
///
/// ```
/// use elbow_ext2::TraceFile;
///
/// let file = TraceFile::parse("demo", "# mail\n1 create /a\n\n1 unlink /a\n")?;
/// assert_eq!((file.line_of(1), file.line_of(2)), (Some(2), Some(4)));
/// # Ok::<(), elbow_ext2::TraceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceFile {
    /// What errors call it.
    pub name: String,
    /// What it says.
    pub trace: Trace,
    /// What was left out, in sentences.
    pub notes: Vec<String>,
    pub(crate) lines: Vec<usize>,
}

impl TraceFile {
    /// Reads the text form.
    ///
    /// # Errors
    /// The first line that cannot be read, and why.
    pub fn parse(name: &str, text: &str) -> Result<Self, TraceError> {
        let mut trace = Trace::default();
        let lines = line_numbers(name, text, |line| {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                trace.operations.push(parse_line(line)?);
            }
            Ok(trace.operations.len())
        })?;
        Ok(Self::of(name, trace, lines))
    }

    pub(crate) fn of(name: &str, trace: Trace, lines: Vec<usize>) -> Self {
        Self {
            name: name.to_owned(),
            trace,
            lines,
            notes: Vec::new(),
        }
    }

    /// The line, from 1, of an operation, from 1 too.
    #[must_use]
    pub fn line_of(&self, number: usize) -> Option<usize> {
        self.lines.get(number.checked_sub(1)?).copied()
    }

    /// An error of a run, which knows the number of the operation, with file and line instead.
    #[must_use]
    pub fn located(&self, error: Ext2Error) -> Ext2Error {
        let (number, operation, reason) = match error {
            Ext2Error::Operation {
                number,
                operation,
                error,
            } => (number, operation, error.to_string()),
            Ext2Error::Stuck { number, operation } => {
                (number, operation, "it waits for something that will not come".into())
            }
            other => return other,
        };
        Ext2Error::Line {
            file: self.name.clone(),
            line: self.line_of(number).unwrap_or(0),
            operation,
            reason,
        }
    }
}

/// Reads line by line; `read` says how many operations there are then. The line on which each of them began.
pub(crate) fn line_numbers(
    name: &str,
    text: &str,
    mut read: impl FnMut(&str) -> Result<usize, TraceProblem>,
) -> Result<Vec<usize>, TraceError> {
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let operations = read(line).map_err(|reason| TraceError {
            file: name.to_owned(),
            line: index + 1,
            reason,
        })?;
        lines.resize(operations, index + 1);
    }
    Ok(lines)
}

/// How much of what there is in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceSummary {
    /// Files made.
    pub creates: u64,
    /// Files removed.
    pub deletes: u64,
    /// Reads; neighbouring ones of a file count once.
    pub reads: u64,
    /// Appends; neighbouring ones of a file count once.
    pub appends: u64,
    /// Directories made.
    pub directories: u64,
    /// Bytes written or appended.
    pub bytes_written: u64,
    /// Bytes asked to be read.
    pub bytes_read: u64,
}

impl Trace {
    /// Reads the text form; `name` is for errors.
    ///
    /// # Errors
    /// The first line that cannot be read, and why.
    pub fn parse(name: &str, text: &str) -> Result<Self, TraceError> {
        Ok(TraceFile::parse(name, text)?.trace)
    }

    /// Adds an operation; a read, write or append that goes on where the one before ended becomes part of it.
    pub fn push(&mut self, pid: u32, action: Action) {
        let last = self.operations.last_mut().filter(|last| last.pid == pid);
        if !last.is_some_and(|last| last.action.extend(&action)) {
            self.operations.push(Operation { pid, action });
        }
    }

    /// Counts operations by kind, and the bytes that they move.
    #[must_use]
    pub fn summary(&self) -> TraceSummary {
        let mut summary = TraceSummary::default();
        for Operation { action, .. } in &self.operations {
            match action {
                Action::Create(_) => summary.creates += 1,
                Action::Unlink(_) => summary.deletes += 1,
                Action::Mkdir(_) => summary.directories += 1,
                Action::Write { bytes, .. } => summary.bytes_written = summary.bytes_written.saturating_add(*bytes),
                Action::Append { bytes, .. } => {
                    summary.appends += 1;
                    summary.bytes_written = summary.bytes_written.saturating_add(*bytes);
                }
                Action::Read { bytes, .. } => {
                    summary.reads += 1;
                    summary.bytes_read = summary.bytes_read.saturating_add(*bytes);
                }
                _ => {}
            }
        }
        summary
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations
            .iter()
            .try_for_each(|operation| writeln!(f, "{operation}"))
    }
}

impl Action {
    /// Makes another action part of this, if it goes on where this ends.
    fn extend(&mut self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Read { path, offset, bytes },
                Self::Read {
                    path: next,
                    offset: at,
                    bytes: more,
                },
            )
            | (
                Self::Write { path, offset, bytes },
                Self::Write {
                    path: next,
                    offset: at,
                    bytes: more,
                },
            ) if path == next && offset.checked_add(*bytes) == Some(*at) && at.checked_add(*more).is_some() => {
                *bytes += more;
                true
            }
            (
                Self::Append { path, bytes },
                Self::Append {
                    path: next,
                    bytes: more,
                },
            ) if path == next => bytes.checked_add(*more).map(|sum| *bytes = sum).is_some(),
            _ => false,
        }
    }
}

fn parse_line(line: &str) -> Result<Operation, TraceProblem> {
    let mut words = line.split_whitespace();
    let mut word = |what| words.next().ok_or(TraceProblem::Missing(what));
    let pid = word("pid")?;
    let pid = pid.parse().map_err(|_| TraceProblem::NotANumber {
        what: "pid",
        word: pid.to_owned(),
        most: u32::MAX.into(),
    })?;
    let name = word("operation")?;
    let path = |word: Result<&str, TraceProblem>| word.and_then(unescape);
    let action = match name {
        "mkdir" => Action::Mkdir(path(word("path"))?),
        "create" => Action::Create(path(word("path"))?),
        "unlink" => Action::Unlink(path(word("path"))?),
        "rmdir" => Action::Rmdir(path(word("path"))?),
        "close" => Action::Close(path(word("path"))?),
        "fsync" => Action::Fsync(path(word("path"))?),
        "sync" => Action::Sync,
        "rename" => Action::Rename {
            from: path(word("path"))?,
            to: path(word("new path"))?,
        },
        "write" | "append" | "read" | "truncate" | "think" => {
            let path = path(word("path"))?;
            let offset = word("offset")?;
            let bytes = number("length", word("length")?)?;
            numbered(name, path, offset, bytes)?
        }
        other => {
            return Err(TraceProblem::NoOperation(other.to_owned()));
        }
    };
    match words.next() {
        // A trace of five columns may have them filled up.
        Some(more) if more != "-" && more != "0" => Err(TraceProblem::TooMuch {
            more: more.to_owned(),
            operation: name.to_owned(),
        }),
        _ => Ok(Operation { pid, action }),
    }
}

fn numbered(name: &str, path: String, offset: &str, bytes: u64) -> Result<Action, TraceProblem> {
    Ok(match name {
        "append" => Action::Append { path, bytes },
        "truncate" => Action::Truncate { path, bytes },
        "think" if bytes > THINK_NS_MAX => return Err(TraceProblem::LongThought(bytes)),
        "think" => Action::Think(bytes),
        _ => {
            let offset = number("offset", offset)?;
            let end = offset.checked_add(bytes);
            end.ok_or(TraceProblem::EndsBeyond { bytes, offset })?;
            match name {
                "read" => Action::Read { path, offset, bytes },
                _ => Action::Write { path, offset, bytes },
            }
        }
    })
}

fn number(what: &'static str, word: &str) -> Result<u64, TraceProblem> {
    word.parse().map_err(|_| TraceProblem::NotANumber {
        what,
        word: word.to_owned(),
        most: u64::MAX,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_operations_say_the_same() {
        let text = "1 mkdir /d\n2 create /d/a%20b\n2 write /d/a%20b 0 100\n2 append /d/a%20b - 7\n3 read /d/a%20b 5 10\n\
            2 truncate /d/a%20b - 3\n2 rename /d/a%20b /%25\n2 close /%25\n2 fsync /%25\n2 think - - 99\n2 unlink /%25\n1 rmdir /d\n1 sync\n";
        let trace = Trace::parse("t", text).unwrap();
        assert_eq!(trace.to_string(), text);
        assert_eq!(trace.operations[1].action, Action::Create("/d/a b".into()));
        assert_eq!(trace.summary().bytes_written, 107);
    }

    #[test]
    fn a_path_of_any_characters_is_one_word() {
        let path = "/ \t\n\u{b}\r\u{85}\u{a0}\u{2028}#%20\u{0}\u{1b}é\u{1f600}";
        let action = Action::Rename {
            from: path.into(),
            to: path.into(),
        };
        let trace = Trace {
            operations: vec![Operation { pid: 1, action }],
        };
        assert_eq!(trace.to_string().split_whitespace().count(), 4);
        assert_eq!(Trace::parse("t", &trace.to_string()).unwrap(), trace);
    }

    #[test]
    fn errors_name_file_line_and_reason() {
        for (text, expected) in [
            (
                "# a comment\n\nx mkdir /d",
                "t:3: pid: \"x\" is not a number from 0 to 4294967295",
            ),
            ("1", "t:1: the operation is missing"),
            ("1 mkdir", "t:1: the path is missing"),
            ("1 rename /a", "t:1: the new path is missing"),
            ("1 write /a 0", "t:1: the length is missing"),
            (
                "1 write /a -1 4",
                "t:1: offset: \"-1\" is not a number from 0 to 18446744073709551615",
            ),
            (
                "1 write /a 18446744073709551615 4",
                "t:1: 4 bytes at 18446744073709551615 end beyond 18446744073709551615",
            ),
            (
                "1 think - - 86400000000001",
                "t:1: a thought of 86400000000001 ns is longer than a day",
            ),
            ("1 unlink /a 7", "t:1: \"7\" is more than unlink takes"),
            (
                "1 unlink /a%2",
                "t:1: %2 in a path: two hexadecimal digits must follow a %",
            ),
            (
                "1 unlink /a%é",
                "t:1: %é in a path: two hexadecimal digits must follow a %",
            ),
            (
                "1 unlink /a%+f",
                "t:1: %+f in a path: two hexadecimal digits must follow a %",
            ),
            ("1 unlink /a%ff", "t:1: the path /a%ff is not UTF-8"),
        ] {
            assert_eq!(Trace::parse("t", text).unwrap_err().to_string(), expected);
        }
        let error = Trace::parse("t", "1 chmod /a").unwrap_err().to_string();
        assert!(error.starts_with("t:1: \"chmod\" is no operation"), "{error}");
    }

    #[test]
    fn what_goes_on_is_one_operation() {
        let mut trace = Trace::default();
        let write = |offset, bytes| Action::Write {
            path: "/a".into(),
            offset,
            bytes,
        };
        trace.push(1, write(0, 10));
        trace.push(1, write(10, 5));
        trace.push(1, write(16, 5));
        trace.push(2, write(21, 5));
        assert_eq!(trace.operations.len(), 3);
        assert_eq!(trace.operations[0].action, write(0, 15));
    }
}
