//! Lines out of blocks.
//!
//! ```text
//!   block  [ passed | line | terminator |  not looked at ]    a line that goes on in the next block is put together
//!                    ^start     ^end     ^next                in a buffer of its own
//! ```
//!
//! A last line without a terminator is a line too.

use std::io;
use std::ops::Range;

use super::blocks::{Block, Blocks};

/// The current line, and the way to the next.
pub(super) struct Lines {
    blocks: Box<dyn Blocks>,
    block: Block,
    terminator: u8,
    line: Range<usize>,
    next: usize,
    /// The current line, if it is not in one block.
    joined: Vec<u8>,
    is_joined: bool,
}

impl Lines {
    /// Before the first line.
    pub(super) fn new(blocks: Box<dyn Blocks>, block: Block, terminator: u8) -> Self {
        Self {
            blocks,
            block,
            terminator,
            line: 0..0,
            next: 0,
            joined: Vec::new(),
            is_joined: false,
        }
    }

    /// Goes to the next line; `false` when there is none.
    #[inline]
    pub(super) fn advance(&mut self) -> io::Result<bool> {
        match memchr::memchr(self.terminator, &self.block.bytes()[self.next..]) {
            Some(length) => {
                self.line = self.next..self.next + length;
                self.next += length + 1;
                self.is_joined = false;
                Ok(true)
            }
            None => self.advance_over_blocks(),
        }
    }

    /// The line, without its terminator.
    #[inline]
    pub(super) fn line(&self) -> &[u8] {
        if self.is_joined {
            &self.joined
        } else {
            &self.block.bytes()[self.line.clone()]
        }
    }

    #[cold]
    fn advance_over_blocks(&mut self) -> io::Result<bool> {
        self.joined.clear();
        self.is_joined = true;
        let mut rest = self.next;
        loop {
            // A block is given back when the next is asked for, so what it had of the line is copied.
            self.joined.extend_from_slice(&self.block.bytes()[rest..]);
            self.blocks.next(&mut self.block)?;
            rest = 0;
            self.next = 0;
            if self.block.bytes().is_empty() {
                return Ok(!self.joined.is_empty()); // the end
            }
            if let Some(length) = memchr::memchr(self.terminator, self.block.bytes()) {
                self.joined.extend_from_slice(&self.block.bytes()[..length]);
                self.next = length + 1;
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::StreamBlocks;
    use super::*;

    fn lines(text: &[u8], terminator: u8, buffer_bytes: usize) -> Vec<Vec<u8>> {
        let text = StreamBlocks(std::io::Cursor::new(text.to_vec()));
        let block = Block::new(buffer_bytes).expect("memory");
        let mut lines = Lines::new(Box::new(text), block, terminator);
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
