//! Why a text is no table.

use std::io;

/// A longer header is none.
pub(super) const HEADER_BYTES_MAX: usize = 1 << 20;

/// Why a text is no table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// There is not even a header.
    #[error("it is empty; the first row of a table is its header")]
    NoHeader,
    /// No end of the header is in sight.
    #[error("the header is longer than {HEADER_BYTES_MAX} bytes")]
    LongHeader,
    /// A quote that nothing closes.
    #[error("line {line}: a quote is opened here and never closed")]
    Unclosed {
        /// Where the field begins.
        line: u64,
    },
    /// Something else than a separator behind a quoted field.
    #[error(
        "line {line}: after the closing quote of field {field} comes {found:?}; a quote within quotes is written twice"
    )]
    BehindQuote {
        /// Where it stands.
        line: u64,
        /// The field, from 1.
        field: u64,
        /// What stands there.
        found: char,
    },
    /// A quote in a field that does not begin with one.
    #[error("line {line}: a quote within field {field}, which does not begin with one")]
    QuoteInside {
        /// Where it stands.
        line: u64,
        /// The field, from 1.
        field: u64,
    },
    /// A row with more or fewer fields than the header.
    #[error("line {line}: {found} fields, and the header has {expected}")]
    Fields {
        /// Where the row begins.
        line: u64,
        /// How many it has.
        found: u64,
        /// How many the header has.
        expected: u64,
    },
    /// A NUL, which ends rows on the way.
    #[error("line {line}: a NUL, which no table holds")]
    Nul {
        /// Where it stands.
        line: u64,
    },
    /// Another header than that of the first file.
    #[error("its header is another than that of the first file")]
    OtherHeader,
}

impl From<CsvError> for io::Error {
    fn from(error: CsvError) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}
