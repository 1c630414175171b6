//! Lines out of a stream of bytes, through one buffer that grows only for a line that is longer than it.
//!
//! ```text
//!   buffer  [ passed | line | terminator |  not looked at  | room ]
//!                     ^start     ^end     ^next             ^filled
//! ```
//!
//! A last line without a terminator is a line too.

use std::io::{self, Read};
use std::ops::Range;

/// The current line of a stream, and the way to the next.
pub(super) struct Lines<R> {
    input: R,
    terminator: u8,
    buffer: Vec<u8>,
    line: Range<usize>,
    next: usize,
    filled: usize,
}

impl<R: Read> Lines<R> {
    /// Before the first line.
    pub(super) fn new(input: R, terminator: u8, buffer_bytes: usize) -> Self {
        let buffer = vec![0; buffer_bytes.max(1)];
        Self {
            input,
            terminator,
            buffer,
            line: 0..0,
            next: 0,
            filled: 0,
        }
    }

    /// Goes to the next line; `false` when there is none.
    #[inline]
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        match memchr::memchr(self.terminator, &self.buffer[self.next..self.filled]) {
            Some(length) => {
                self.line = self.next..self.next + length;
                self.next += length + 1;
                Ok(true)
            }
            None => self.advance_by_reading(),
        }
    }

    /// The line, without its terminator.
    #[inline]
    pub(super) fn line(&self) -> &[u8] {
        &self.buffer[self.line.clone()]
    }

    #[cold]
    fn advance_by_reading(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.next..self.filled, 0);
        self.filled -= self.next;
        self.next = 0;
        loop {
            if self.filled == self.buffer.len() {
                self.buffer.resize(2 * self.filled, 0);
            }
            let looked_at = self.filled;
            let read = read_some(&mut self.input, &mut self.buffer[self.filled..])?;
            self.filled += read;
            let found = memchr::memchr(self.terminator, &self.buffer[looked_at..self.filled]);
            let end = match found {
                Some(length) => looked_at + length,
                None if read > 0 => continue,
                None => self.filled, // the end of the stream
            };
            self.line = 0..end;
            self.next = (end + 1).min(self.filled);
            return Ok(found.is_some() || end > 0);
        }
    }
}

/// Reads what there is; 0 at the end.
pub(super) fn read_some(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], terminator: u8, buffer_bytes: usize) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(text, terminator, buffer_bytes);
        let mut all = Vec::new();
        while lines.advance().expect("memory can be read") {
            all.push(lines.line().to_vec());
        }
        all
    }

    #[test]
    fn lines_are_the_same_through_a_buffer_of_any_size() {
        for text in [
            &b""[..],
            b"\n",
            b"\n\n",
            b"a",
            b"a\n",
            b"a\n\nbcdefghijklmnop\nq",
            b"a\0b\n\0",
            b"longer than all\n",
        ] {
            let mut expected: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
            if expected.last().is_some_and(Vec::is_empty) {
                expected.pop();
            }
            for buffer_bytes in 0..20 {
                assert_eq!(lines(text, b'\n', buffer_bytes), expected, "{text:?} {buffer_bytes}");
            }
        }
        assert_eq!(lines(b"a\nb\0c", 0, 2), [b"a\nb".to_vec(), b"c".to_vec()]);
    }
}
