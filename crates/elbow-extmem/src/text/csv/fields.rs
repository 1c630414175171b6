//! Where fields lie in a row that is known to be one.

use std::ops::Range;

/// What ends a row within a sort.
pub const ROW_END: u8 = 0;
pub(super) const QUOTE: u8 = b'"';

/// Where the content of a field of a row lies, without its quotes; empty behind the last.
pub(in crate::text) fn field(row: &[u8], separator: u8, number: usize) -> Range<usize> {
    let row = row.strip_suffix(b"\r").unwrap_or(row);
    let mut at = 0;
    for _ in 0..number {
        match end_of_field(row, at, separator) {
            end if end < row.len() => at = end + 1,
            end => return end..end,
        }
    }
    let end = end_of_field(row, at, separator);
    if row[at..end].first() == Some(&QUOTE) {
        at + 1..(end - 1).max(at + 1)
    } else {
        at..end
    }
}

/// The separator behind a field, or the end of the row.
fn end_of_field(row: &[u8], begin: usize, separator: u8) -> usize {
    let mut at = begin;
    if row.get(at) == Some(&QUOTE) {
        at += 1;
        while let Some(length) = memchr::memchr(QUOTE, &row[at..]) {
            at += length + 1;
            if row.get(at) != Some(&QUOTE) {
                break;
            }
            at += 1;
        }
    }
    memchr::memchr(separator, &row[at..]).map_or(row.len(), |length| at + length)
}
