//! Bytes of a table, looked at once as they come: where rows end, and whether it is a table.

use super::error::CsvError;
use super::fields::{QUOTE, ROW_END};
use super::header::BYTE_ORDER_MARK;

/// Where the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    FieldStart,
    Plain,
    Quoted,
    /// Behind a quote within quotes: it ends the field, or is the first of two.
    AfterQuote,
    /// Behind the CR behind a quoted field.
    AfterCr,
}

/// How far a table has been looked at.
pub(super) struct Scan {
    separator: u8,
    place: Place,
    /// Separators of this row so far.
    separators: u64,
    /// Of the header, when it has been passed.
    expected: Option<u64>,
    line: u64,
    row_line: u64,
    quote_line: u64,
    /// The last byte was a CR.
    after_cr: bool,
    row_is_empty: bool,
    /// Bytes of a byte order mark so far; all of them when there can be no more.
    marked: usize,
}

impl Scan {
    pub(super) fn new(separator: u8) -> Self {
        Self {
            separator,
            place: Place::FieldStart,
            separators: 0,
            expected: None,
            line: 1,
            row_line: 1,
            quote_line: 1,
            after_cr: false,
            row_is_empty: true,
            marked: 0,
        }
    }

    /// Looks for the end of the header, behind its newline.
    pub(super) fn first_row(&mut self, text: &[u8]) -> Result<Option<usize>, CsvError> {
        for (at, byte) in text.iter().enumerate() {
            if self.step(*byte)? {
                return Ok(Some(at + 1));
            }
        }
        Ok(None)
    }

    /// Turns the ends of rows into what ends a row within a sort.
    pub(super) fn rows(&mut self, text: &mut [u8]) -> Result<(), CsvError> {
        let mut at = 0;
        while at < text.len() {
            at += self.passed(&text[at..])?;
            if at < text.len() {
                if self.step(text[at])? {
                    text[at] = ROW_END;
                }
                at += 1;
            }
        }
        Ok(())
    }

    /// How many bytes stand before the next that means something.
    fn passed(&mut self, text: &[u8]) -> Result<usize, CsvError> {
        let found = match self.place {
            Place::Plain => memchr::memchr3(self.separator, b'\n', QUOTE, text),
            Place::Quoted => memchr::memchr2(b'\n', QUOTE, text),
            _ => return Ok(0),
        };
        let length = found.unwrap_or(text.len());
        if memchr::memchr(ROW_END, &text[..length]).is_some() {
            return Err(CsvError::Nul { line: self.line });
        }
        if length > 0 {
            self.after_cr = text[length - 1] == b'\r';
        }
        Ok(length)
    }

    /// The next byte; whether it ends a row.
    fn step(&mut self, byte: u8) -> Result<bool, CsvError> {
        if byte == ROW_END {
            return Err(CsvError::Nul { line: self.line });
        }
        let is_end = byte == b'\n' && self.place != Place::Quoted;
        if byte == b'\n' {
            self.line += 1;
        }
        if is_end {
            self.end_row()?;
            return Ok(true);
        }
        self.row_is_empty = false;
        if self.is_mark(byte) {
            return Ok(false);
        }
        self.after_cr = byte == b'\r';
        self.place = self.next(byte)?;
        Ok(false)
    }

    /// Whether this is a byte of a byte order mark, which stands before the first field.
    fn is_mark(&mut self, byte: u8) -> bool {
        let is_mark = BYTE_ORDER_MARK.get(self.marked) == Some(&byte);
        self.marked = if is_mark {
            self.marked + 1
        } else {
            BYTE_ORDER_MARK.len()
        };
        is_mark
    }

    fn next(&mut self, byte: u8) -> Result<Place, CsvError> {
        let is_separator = byte == self.separator;
        match (self.place, byte) {
            (Place::FieldStart | Place::Plain | Place::AfterQuote, _) if is_separator => {
                self.separators += 1;
                Ok(Place::FieldStart)
            }
            (Place::FieldStart, QUOTE) => {
                self.quote_line = self.line;
                Ok(Place::Quoted)
            }
            (Place::Plain, QUOTE) => Err(CsvError::QuoteInside {
                line: self.line,
                field: self.separators + 1,
            }),
            (Place::FieldStart | Place::Plain, _) => Ok(Place::Plain),
            (Place::Quoted, QUOTE) => Ok(Place::AfterQuote),
            (Place::Quoted, _) | (Place::AfterQuote, QUOTE) => Ok(Place::Quoted),
            (Place::AfterQuote, b'\r') => Ok(Place::AfterCr),
            (Place::AfterQuote | Place::AfterCr, _) => Err(CsvError::BehindQuote {
                line: self.line,
                field: self.separators + 1,
                found: char::from(byte),
            }),
        }
    }

    fn end_row(&mut self) -> Result<(), CsvError> {
        let found = self.separators + 1;
        let expected = *self.expected.get_or_insert(found);
        if found != expected {
            return Err(CsvError::Fields {
                line: self.row_line,
                found,
                expected,
            });
        }
        self.place = Place::FieldStart;
        self.separators = 0;
        self.row_line = self.line;
        (self.after_cr, self.row_is_empty) = (false, true);
        Ok(())
    }

    /// At the end of the text; whether its last row lacks an end.
    pub(super) fn finish(&mut self) -> Result<bool, CsvError> {
        if self.place == Place::Quoted {
            return Err(CsvError::Unclosed { line: self.quote_line });
        }
        let lacks_end = !self.row_is_empty;
        let after_cr = self.after_cr;
        if lacks_end {
            self.end_row()?;
        }
        self.after_cr = after_cr;
        Ok(lacks_end)
    }

    /// Whether the last byte was a CR.
    pub(super) fn is_after_cr(&self) -> bool {
        self.after_cr
    }
}
