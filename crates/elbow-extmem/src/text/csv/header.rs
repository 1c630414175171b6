//! The first row of a table: what its columns are called.

use super::fields::{QUOTE, field};

/// What some programs write in front of UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A header.
///
/// ```
/// use elbow_extmem::text::CsvRows;
///
/// let (header, _) = CsvRows::open(&b"\"first, second\";third\r\n"[..], b';')?;
/// assert_eq!(header.names(), ["first, second", "third"]);
/// assert_eq!(header.column("third"), Some(1));
/// assert_eq!(header.line(), b"\"first, second\";third\r\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Without its newline.
    row: Vec<u8>,
    separator: u8,
    names: Vec<String>,
}

impl Header {
    /// From its row, whose newline may be missing.
    pub(super) fn new(row: &[u8], separator: u8) -> Self {
        let row = row.strip_suffix(b"\n").unwrap_or(row).to_vec();
        let marked = row.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&row);
        let names = names(marked, separator);
        Self { row, separator, names }
    }

    /// What the columns are called, in their order; U+FFFD stands for what is not UTF-8.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The column of this name, from 0: the first, where several have it.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|other| other == name)
    }

    /// The row as it is read and written, with its newline.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        [&self.row[..], b"\n"].concat()
    }

    /// The same with a column `count` in front.
    #[must_use]
    pub fn counted_line(&self) -> Vec<u8> {
        let unmarked = self.row.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.row);
        let mark = &self.row[..self.row.len() - unmarked.len()];
        [mark, b"count", &[self.separator], unmarked, b"\n"].concat()
    }

    /// What separates its fields, and those of all rows.
    #[must_use]
    pub fn separator(&self) -> u8 {
        self.separator
    }

    /// Whether rows end in CR LF.
    pub(super) fn has_cr(&self) -> bool {
        self.row.ends_with(b"\r")
    }
}

fn names(row: &[u8], separator: u8) -> Vec<String> {
    let text = row.strip_suffix(b"\r").unwrap_or(row);
    let mut names = Vec::new();
    // Each field ends before the last byte, but for the last one.
    loop {
        let found = field(text, separator, names.len());
        let closing = usize::from(text.get(found.start.wrapping_sub(1)) == Some(&QUOTE));
        let is_last = found.end + closing >= text.len();
        names.push(unquoted(&text[found]));
        if is_last {
            return names;
        }
    }
}

fn unquoted(content: &[u8]) -> String {
    String::from_utf8_lossy(content).replace("\"\"", "\"")
}
