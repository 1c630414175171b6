//! The lines of a trace, one by one, however long it is.

use std::io::{self, BufRead, Read};

use super::event::{Category, Event, VERSION};

/// No line of ours is longer: a path has 4,096 bytes at most, and a byte of it six in JSON.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Why a file is no trace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    #[error("line {line}: {source}")]
    Read {
        line: u64,
        #[source]
        source: io::Error,
    },
    #[error("line {line}: no event of a trace ({found}); `elbow run --trace FILE` writes such a file")]
    NoEvent { line: u64, found: String },
    #[error("line {line}: longer than any event of a trace; `elbow run --trace FILE` writes such a file")]
    TooLong { line: u64 },
    #[error("line {line}: the trace of another program; only those of `elbow run --trace` can be explained")]
    Foreign { line: u64 },
    #[error("line {line}: a trace of version {version}, and this elbow knows version {VERSION}")]
    Version { line: u64, version: u32 },
    #[error("line 1: the file is empty; the job was killed before it began, or it is no trace")]
    Empty,
}

/// How a trace ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was closed.
    Whole,
    /// Its process was killed, or runs still.
    Open,
    /// The same, in the middle of a line.
    Torn,
}

/// Reads all events, gives each to `take`, and says how it ends.
pub(super) fn read(from: &mut impl BufRead, take: &mut dyn FnMut(Event)) -> Result<End, TraceError> {
    let mut lines = Lines {
        from,
        line: 0,
        has_begun: false,
    };
    loop {
        match lines.next()? {
            Found::Event(event) => take(*event),
            Found::Nothing => {}
            Found::End(_) if !lines.has_begun => return Err(TraceError::Empty),
            Found::End(end) => return Ok(end),
        }
    }
}

struct Lines<'a, R> {
    from: &'a mut R,
    line: u64,
    has_begun: bool,
}

enum Found {
    Event(Box<Event>),
    Nothing,
    End(End),
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> Result<Found, TraceError> {
        let mut bytes = Vec::new();
        self.line += 1;
        let line = self.line;
        let mut limited = self.from.by_ref().take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut bytes);
        let length = read.map_err(|source| TraceError::Read { line, source })?;
        if length == 0 {
            return Ok(Found::End(End::Open));
        }
        let is_ended = bytes.ends_with(b"\n");
        if !is_ended && length as u64 == LINE_BYTES_MAX {
            return Err(TraceError::TooLong { line });
        }
        match bytes.trim_ascii() {
            b"" | b"[" => Ok(Found::Nothing),
            b"]" if self.has_begun => Ok(Found::End(End::Whole)),
            text => self.event(text.strip_suffix(b",").unwrap_or(text), is_ended),
        }
    }

    fn event(&mut self, text: &[u8], is_ended: bool) -> Result<Found, TraceError> {
        let line = self.line;
        match serde_json::from_slice::<Event>(text) {
            Ok(event) => {
                if !self.has_begun {
                    check_begin(&event, line)?;
                    self.has_begun = true;
                }
                Ok(Found::Event(Box::new(event)))
            }
            Err(_) if !is_ended && self.has_begun => Ok(Found::End(End::Torn)),
            // Perhaps another trace, of which events have other fields.
            Err(error) => Err(match serde_json::from_slice::<serde_json::Value>(text) {
                Ok(value) if value.get("ph").is_some() => TraceError::Foreign { line },
                _ => TraceError::NoEvent {
                    line,
                    found: error.to_string(),
                },
            }),
        }
    }
}

fn check_begin(event: &Event, line: u64) -> Result<(), TraceError> {
    match &event.args.begin {
        Some(begin) if event.cat == Category::Trace && begin.version == VERSION => Ok(()),
        Some(begin) if event.cat == Category::Trace => Err(TraceError::Version {
            line,
            version: begin.version,
        }),
        _ => Err(TraceError::Foreign { line }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = r#"{"name":"elbow run","cat":"trace","ph":"i","ts":0.0,"pid":1,"tid":1,"s":"g","args":{"begin":{"version":1,"elbow":"0.1.0","command":["true"],"started_unix_seconds":1.5}}}"#;
    const SYNC: &str = r#"{"name":"sync","cat":"step","ph":"B","ts":5.25,"pid":2,"tid":1,"args":{}}"#;

    fn names(text: &str) -> Result<(Vec<String>, End), TraceError> {
        let mut names = Vec::new();
        let end = read(&mut text.as_bytes(), &mut |event| names.push(event.name))?;
        Ok((names, end))
    }

    #[test]
    fn a_trace_is_read_whole_open_or_torn() {
        for (text, end, count) in [
            (format!("[\n{BEGIN},\n{SYNC}\n]\n"), End::Whole, 2),
            (format!("[\n{BEGIN},\n{SYNC},\n"), End::Open, 2),
            (format!("[\n{BEGIN},\n{SYNC}"), End::Open, 2),
            (format!("[\n{BEGIN},\n{}", &SYNC[..20]), End::Torn, 1),
            (format!("[\n{BEGIN}"), End::Open, 1),
        ] {
            let (names, found) = names(&text).expect("a trace");
            assert_eq!((names.len(), found), (count, end), "{text}");
        }
    }

    #[test]
    fn what_is_no_trace_is_refused_with_its_line() {
        let later = BEGIN.replace("\"version\":1", "\"version\":9");
        for (text, line, why) in [
            (String::new(), 1, "empty"),
            ("[\n]\n".to_owned(), 2, "no event"),
            ("hello\nworld\n".to_owned(), 1, "no event"),
            (format!("[\n{BEGIN},\n{},\n{SYNC}\n]\n", &SYNC[..20]), 3, "no event"),
            (format!("[\n{SYNC}\n]\n"), 2, "another program"),
            (
                "[\n{\"ph\":\"X\",\"name\":\"a\",\"ts\":1}\n]\n".to_owned(),
                2,
                "another program",
            ),
            (format!("[\n{later}\n]\n"), 2, "version 9"),
            (format!("[\n{BEGIN},\n{}\n", "x".repeat(1 << 20)), 3, "longer"),
        ] {
            let error = names(&text).expect_err(why).to_string();
            assert!(
                error.starts_with(&format!("line {line}: ")) && error.contains(why),
                "{error}"
            );
        }
    }
}
