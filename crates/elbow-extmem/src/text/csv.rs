//! Tables: rows of fields that may be quoted, and then hold separators, quotes and newlines.
//!
//! ```text
//!   name,note CR LF            the header, which stays first
//!   Ann,"says ""hi"",          a row is a line of text to the sort: its end is turned into a NUL, which no table holds,
//!   twice" CR LF               so that a newline within quotes is a byte as any other; and back again when it is written
//! ```
//!
//! Rows are kept byte for byte. Each is checked when it is read: quotes are closed, nothing stands beside a quoted field, and all
//! rows have as many fields as the header. So the place of a field in a row is found without looking at that again, and a
//! quoted content is ordered as what it means is: each quote in it is two, in all of them.
//!
//! Source: RFC 4180, and a newline alone as the end of a row.

mod error;
mod fields;
mod header;
mod scan;

use std::io::{self, Read};

pub use error::CsvError;
use error::HEADER_BYTES_MAX;
pub use fields::ROW_END;
pub(super) use fields::field;
pub use header::Header;
use scan::Scan;

/// What is read at once to find the end of the header.
const HEADER_STEP: usize = 4096;

/// The rows of a table behind its header, each with a [`ROW_END`] behind it: the lines of a sort.
///
/// ```
/// use std::io::Read;
///
/// use elbow_extmem::text::CsvRows;
///
/// let (header, mut rows) = CsvRows::open(&b"name,note\nAnn,\"a\nb\"\n"[..], b',')?;
/// assert_eq!(header.column("note"), Some(1));
/// let mut text = Vec::new();
/// rows.read_to_end(&mut text)?;
/// assert_eq!(text, b"Ann,\"a\nb\"\0");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct CsvRows<R> {
    stream: R,
    scan: Scan,
    /// Read with the header, and looked at; after the last row, what its end lacks.
    ready: Vec<u8>,
    taken: usize,
    /// Rows end in CR LF, as the header does.
    has_cr: bool,
    is_over: bool,
}

impl<R: Read> CsvRows<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`CsvError`] as an error of the stream, or one that the stream has.
    pub fn open(mut stream: R, separator: u8) -> io::Result<(Header, Self)> {
        let mut text = Vec::new();
        let mut scan = Scan::new(separator);
        let end = loop {
            let looked_at = text.len();
            text.resize(looked_at + HEADER_STEP, 0);
            let read = read_some(&mut stream, &mut text[looked_at..])?;
            text.truncate(looked_at + read);
            if read == 0 {
                if looked_at == 0 {
                    return Err(CsvError::NoHeader.into());
                }
                scan.finish()?;
                break looked_at;
            }
            if let Some(end) = scan.first_row(&text[looked_at..])? {
                break looked_at + end;
            }
            if text.len() > HEADER_BYTES_MAX {
                return Err(CsvError::LongHeader.into());
            }
        };
        let mut ready = text.split_off(end);
        scan.rows(&mut ready)?;
        let header = Header::new(&text, separator);
        let has_cr = header.has_cr();
        Ok((
            header,
            Self {
                stream,
                scan,
                ready,
                taken: 0,
                has_cr,
                is_over: false,
            },
        ))
    }
}

impl<R: Read> Read for CsvRows<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let ready = &self.ready[self.taken..];
            if !ready.is_empty() {
                let length = ready.len().min(buffer.len());
                buffer[..length].copy_from_slice(&ready[..length]);
                self.taken += length;
                return Ok(length);
            }
            if self.is_over || buffer.is_empty() {
                return Ok(0);
            }
            let read = self.stream.read(buffer)?;
            if read > 0 {
                self.scan.rows(&mut buffer[..read])?;
                return Ok(read);
            }
            self.is_over = true;
            self.ready = self.rest()?;
            self.taken = 0;
        }
    }
}

impl<R> CsvRows<R> {
    /// The end of a last row that has none.
    fn rest(&mut self) -> Result<Vec<u8>, CsvError> {
        let lacks_end = self.scan.finish()?;
        Ok(match (lacks_end, self.has_cr && !self.scan.is_after_cr()) {
            (false, _) => Vec::new(),
            (true, false) => vec![ROW_END],
            (true, true) => vec![b'\r', ROW_END],
        })
    }
}

fn read_some(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests;
