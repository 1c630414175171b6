//! Traces of requests: read line by line, checked against the drive, never held whole.
//!
//! | format | a line | times |
//! |---|---|---|
//! | DiskSim ASCII | `arrival_ms device lbn sectors flags` (hexadecimal; 1 is a read) | arrival |
//! | DiskSim validate | `R\|W kind lbn sectors response_us think_us` | measured response; the next request comes `think_us` after this one's end |
//! | blktrace | the text of `blkparse`; its queued (`Q`) reads and writes | arrival |
//! | fio | `write_iolog` (version 2 or 3), or `write_lat_log` with `log_offset=1` | waits, arrival, or measured latency |
//! | MSR | `timestamp,host,disk,Read\|Write,offset,bytes,response`, in ticks of 100 ns | arrival since the first, measured response |
//! | SPC | `unit,block,bytes,R\|W,seconds[,...]` | arrival |
//! | CSV | columns by name: `lbn,sectors,op` and `arrival_ms` or `think_ms`, `response_ms` if wanted | as named |
//!
//! A file that begins as gzip is unpacked on the way. Whatever the bytes, there is a record or an error that names file, line and
//! reason, and no more than [`LINE_BYTES_MAX`] bytes of the trace are in memory.
//!
//! HP Labs' traces (*cello*, SRT) are not read: they are binary, and no description of them is public but a reader in DiskSim.
//!
//! Sources: DiskSim 4.0 reference manual, appendix on trace formats; blkparse(1), default output format; fio(1), *Trace file
//! format* and *Log file formats*; of MSR and SPC those in their modules.

mod blktrace;
mod csv;
mod detect;
mod disksim;
mod error;
mod fio;
mod format;
mod line;
mod msr;
mod record;
mod spc;

use std::io::{self, BufRead, BufReader, Read};

use crate::controller::Request;
use crate::drive::Lbn;

pub use error::{LineError, TraceError};
pub use format::Format;
use line::Line;
pub use record::{Arrival, Omissions, Record, RecordKind};
use record::{Parsed, Reader, Row};

/// No line is longer: what is longer is no trace.
pub const LINE_BYTES_MAX: usize = 4096;

/// No request is larger: 512 MiB, more than any drive takes at once. So no time can overflow.
const REQUEST_SECTORS_MAX: u64 = 1 << 20;

/// After so many bytes of empty lines and comments the next line has to say what a trace is.
const COMMENT_BYTES_MAX: usize = 1 << 16;

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
    lost: Omissions,
    ended: bool,
}

impl<'r> Trace<'r> {
    /// Reads `input`, which errors call `file`, for a drive of `sectors` sectors.
    pub fn new(file: &str, format: Format, input: impl Read + 'r, sectors: u64) -> Trace<'r> {
        Trace::of_text(file, format, unpacked(BufReader::new(input)), sectors)
    }

    /// The same where the first line says which format it is.
    ///
    /// ```
    /// use elbow_disk::trace::Trace;
    /// let mut trace = Trace::detect("t", "0,96,8192,W,0.5\n".as_bytes(), 2_054_864)?;
    /// assert!(trace.next().unwrap()?.request.write);
    /// # Ok::<(), elbow_disk::trace::TraceError>(())
    /// ```
    ///
    /// # Errors
    /// [`TraceError::UnknownFormat`] where it does not say so, and others where it cannot be read.
    pub fn detect(file: &str, input: impl Read + 'r, sectors: u64) -> Result<Trace<'r>, TraceError> {
        let mut begun = Trace::of_text(file, Format::Csv, unpacked(BufReader::new(input)), sectors);
        let (mut lines, mut format) = (Vec::new(), None);
        while format.is_none() && begun.read_line()?.is_some() {
            let text = std::str::from_utf8(&begun.buffer).map_err(|_| begun.wrong(LineError::NotText))?;
            if Format::is_told_by(text) || lines.len() > COMMENT_BYTES_MAX {
                format = Some(Format::of(text).ok_or_else(|| begun.unknown(text))?);
            }
            lines.extend_from_slice(text.as_bytes());
            lines.push(b'\n');
        }
        let input = Box::new(io::Cursor::new(lines).chain(begun.input));
        Ok(Trace::of_text(file, format.unwrap_or(Format::Csv), input, sectors))
    }

    fn of_text(file: &str, format: Format, input: Box<dyn BufRead + 'r>, sectors: u64) -> Trace<'r> {
        let reader: Box<dyn Reader> = match format {
            Format::DiskSim => Box::new(disksim::Ascii::default()),
            Format::Validate => Box::new(disksim::Validate::default()),
            Format::Blktrace => Box::new(blktrace::Blktrace::default()),
            Format::Fio => Box::new(fio::Fio::default()),
            Format::Msr => Box::new(msr::Msr::default()),
            Format::Spc => Box::new(spc::Spc::default()),
            Format::Csv => Box::new(csv::Csv::default()),
        };
        Trace {
            file: file.to_owned(),
            input,
            reader,
            sectors,
            line: 0,
            buffer: Vec::new(),
            lost: Omissions::default(),
            ended: false,
        }
    }

    /// What was left out or changed so far.
    #[must_use]
    pub fn lost(&self) -> Omissions {
        self.lost
    }

    fn unknown(&self, text: &str) -> TraceError {
        const SHOWN: usize = 60;
        TraceError::UnknownFormat {
            file: self.file.clone(),
            line: self.line,
            start: text.chars().take(SHOWN).collect(),
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
        self.wrong_at(self.line, reason)
    }

    /// What is wrong with a line that was read before.
    pub(crate) fn wrong_at(&self, line: u64, reason: LineError) -> TraceError {
        TraceError::Line {
            file: self.file.clone(),
            line,
            reason,
        }
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        while self.read_line()?.is_some() {
            let text = std::str::from_utf8(&self.buffer).map_err(|_| self.wrong(LineError::NotText))?;
            let row = self.reader.row(&Line::new(text));
            match row.map_err(|reason| self.wrong(reason))? {
                Row::Request(parsed) => {
                    self.lost.late += u64::from(parsed.is_late);
                    self.lost.unknown_kinds += u64::from(parsed.is_of_unknown_kind);
                    return self.checked(&parsed).map(Some).map_err(|reason| self.wrong(reason));
                }
                Row::Discard => self.lost.discards += 1,
                Row::Other => self.lost.others += 1,
                Row::Nothing => {}
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
            ..
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
