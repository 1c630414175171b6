//! Traces of requests: read line by line, checked against the drive, never held whole.
//!
//! | format | a line | times |
//! |---|---|---|
//! | DiskSim ASCII | `arrival_ms device lbn sectors flags` (hexadecimal; 1 is a read) | arrival |
//! | DiskSim validate | `R\|W kind lbn sectors response_us think_us` | measured response; the next request comes `think_us` after this one's end |
//! | blktrace | the text of `blkparse`; its queued (`Q`) reads and writes | arrival |
//! | fio | `write_iolog` (version 2 or 3), or `write_lat_log` with `log_offset=1` | waits, arrival, or measured latency |
//! | CSV | columns by name: `lbn,sectors,op` and `arrival_ms` or `think_ms`, `response_ms` if wanted | as named |
//!
//! A file that begins as gzip is unpacked on the way. Whatever the bytes, there is a record or an error that names file, line and
//! reason, and no more than [`LINE_BYTES_MAX`] bytes of the trace are in memory.
//!
//! Sources: DiskSim 4.0 reference manual, appendix on trace formats; blkparse(1), default output format; fio(1), *Trace file
//! format* and *Log file formats*.

mod blktrace;
mod csv;
mod disksim;
mod error;
mod fio;
mod line;
mod record;

use std::io::{self, BufRead, BufReader, Read};

use crate::controller::Request;
use crate::drive::Lbn;

pub use error::{LineError, TraceError};
use line::Line;
pub use record::{Arrival, Record, RecordKind};
use record::{Parsed, Reader};

/// No line is longer: what is longer is no trace.
pub const LINE_BYTES_MAX: usize = 4096;

/// No request is larger: 512 MiB, more than any drive takes at once. So no time can overflow.
const REQUEST_SECTORS_MAX: u64 = 1 << 20;

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// DiskSim's default.
    DiskSim,
    /// DiskSim's format of measured requests.
    Validate,
    /// The text that `blkparse` prints.
    Blktrace,
    /// An I/O log or a latency log of fio.
    Fio,
    /// Comma-separated, with a line of names.
    Csv,
}

/// The records of a trace, in order.
///
/// ```
/// use elbow_disk::trace::{Format, Trace};
/// let text = "0.5 0 1000 8 0\n7.25 0 2000 8 1\n9.0 0 99999999 8 1\n";
/// let mut trace = Trace::new("t", Format::DiskSim, text.as_bytes(), 2_054_864);
/// assert!(trace.next().unwrap()?.request.write);
/// assert!(!trace.next().unwrap()?.request.write);
/// let error = trace.next().unwrap().unwrap_err().to_string();
/// assert_eq!(error, "t:3: sectors 99999999 to 100000006 are not on the drive, which has 2054864");
/// # Ok::<(), elbow_disk::trace::TraceError>(())
/// ```
pub struct Trace<'r> {
    file: String,
    input: Box<dyn BufRead + 'r>,
    reader: Box<dyn Reader>,
    sectors: u64,
    line: u64,
    buffer: Vec<u8>,
    ended: bool,
}

impl<'r> Trace<'r> {
    /// Reads `input`, which errors call `file`, for a drive of `sectors` sectors.
    pub fn new(file: &str, format: Format, input: impl Read + 'r, sectors: u64) -> Trace<'r> {
        let reader: Box<dyn Reader> = match format {
            Format::DiskSim => Box::new(disksim::Ascii::default()),
            Format::Validate => Box::new(disksim::Validate::default()),
            Format::Blktrace => Box::new(blktrace::Blktrace::default()),
            Format::Fio => Box::new(fio::Fio::default()),
            Format::Csv => Box::new(csv::Csv::default()),
        };
        let input = unpacked(BufReader::new(input));
        Trace {
            file: file.to_owned(),
            input,
            reader,
            sectors,
            line: 0,
            buffer: Vec::new(),
            ended: false,
        }
    }

    /// What errors call it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The next line without its end; `None` at the end.
    fn read_line(&mut self) -> Result<Option<()>, TraceError> {
        self.buffer.clear();
        self.line += 1;
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut self.input).take(limit).read_until(b'\n', &mut self.buffer);
        read.map_err(|reason| TraceError::Read {
            file: self.file.clone(),
            line: self.line,
            reason,
        })?;
        if self.buffer.len() > LINE_BYTES_MAX {
            return Err(self.wrong(LineError::TooLong(LINE_BYTES_MAX)));
        }
        while matches!(self.buffer.last(), Some(b'\n' | b'\r')) {
            let ended = self.buffer.pop() == Some(b'\n');
            if ended && self.buffer.is_empty() {
                return Ok(Some(()));
            }
        }
        Ok((!self.buffer.is_empty() || !self.at_end()?).then_some(()))
    }

    fn at_end(&mut self) -> Result<bool, TraceError> {
        let (file, line) = (self.file.clone(), self.line);
        self.input
            .fill_buf()
            .map(<[u8]>::is_empty)
            .map_err(|reason| TraceError::Read { file, line, reason })
    }

    fn wrong(&self, reason: LineError) -> TraceError {
        TraceError::Line {
            file: self.file.clone(),
            line: self.line,
            reason,
        }
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        while self.read_line()?.is_some() {
            let text = std::str::from_utf8(&self.buffer).map_err(|_| self.wrong(LineError::NotText))?;
            let parsed = self.reader.record(&Line::new(text));
            if let Some(parsed) = parsed.map_err(|reason| self.wrong(reason))? {
                return self.checked(&parsed).map(Some).map_err(|reason| self.wrong(reason));
            }
        }
        Ok(None)
    }

    fn checked(&self, parsed: &Parsed) -> Result<Record, LineError> {
        let &Parsed {
            arrival,
            lbn,
            sectors,
            write,
            kind,
            measured,
        } = parsed;
        if sectors == 0 {
            return Err(LineError::Empty);
        }
        let last = lbn.saturating_add(sectors - 1);
        let count = u32::try_from(sectors).ok().filter(|_| last < self.sectors);
        if last < self.sectors && sectors > REQUEST_SECTORS_MAX {
            let most = REQUEST_SECTORS_MAX;
            return Err(LineError::TooManySectors { sectors, most });
        }
        let sectors = count.ok_or(LineError::NotOnTheDrive {
            first: lbn,
            last,
            sectors: self.sectors,
        })?;
        let request = Request {
            lbn: Lbn(lbn),
            sectors,
            write,
        };
        Ok(Record {
            line: self.line,
            arrival,
            request,
            kind,
            measured,
        })
    }
}

impl Iterator for Trace<'_> {
    type Item = Result<Record, TraceError>;

    /// After an error there is nothing more.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_record().transpose();
        self.ended = !matches!(next, Some(Ok(_)));
        next
    }
}

/// All of a text, unpacked if it begins as gzip.
///
/// ```
/// assert_eq!(elbow_disk::trace::text(&b"12\tCOPYING\n"[..])?, "12\tCOPYING\n");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Where it cannot be read or unpacked, or is no text.
pub fn text(input: impl Read) -> io::Result<String> {
    let mut text = String::new();
    unpacked(BufReader::new(input)).read_to_string(&mut text)?;
    Ok(text)
}

/// The input, or what it unpacks to.
fn unpacked<'r>(mut input: BufReader<impl Read + 'r>) -> Box<dyn BufRead + 'r> {
    const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
    match input.fill_buf() {
        Ok(start) if start.starts_with(&GZIP_MAGIC) => {
            Box::new(BufReader::new(flate2::bufread::MultiGzDecoder::new(input)))
        }
        // An error comes again with the first line.
        _ => Box::new(input),
    }
}
