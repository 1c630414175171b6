//! A piece of the input that is sorted in memory.
//!
//! ```text
//!   words   [ text of the lines ->          room          <- an entry for each line ]
//!                                                            (prefix, place in the text)
//! ```
//!
//! Text and entries grow towards each other in one allocation, so that no mixture of long and short lines takes more than
//! it has. Memory that was never needed is never touched. The allocation grows only for a line that is longer than it.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;

use rayon::prelude::{ParallelIterator, ParallelSliceMut};

use super::TextOrder;
use super::buffer::{Buffer, buffer};
use super::error::Result;
use super::input::Inputs;
use super::prefix::common_length;

/// Bits of a place that hold the length of the line; what is longer is searched for its end.
const LENGTH_BITS: u32 = 24;
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
/// The most that is read at once: what has been read and not yet taken in is moved to the next chunk.
pub(super) const READ_BYTES_MAX: usize = 256 << 10;
/// Below this number of lines, one thread is as quick as several.
const PARALLEL_LINES_MIN: usize = 16 << 10;
/// Fewer lines are as quickly compared.
const REFINED_LINES_MIN: usize = 64;
const WORD_BYTES: usize = size_of::<Entry>();

/// The prefix of a line, and its place in the text: start and length.
type Entry = [u64; 2];

pub(super) struct Chunk {
    memory: Buffer,
    /// Where the entries are; before it, text.
    entries: Range<usize>,
    terminator: u8,
}

/// How far the text has become lines.
struct LineScan {
    /// After the last line.
    end: usize,
    /// There are more lines, and no room for their entries.
    is_full: bool,
}

/// Read, and not taken in by the chunk before.
#[derive(Default)]
pub(super) struct Carry(Vec<u8>);

impl Chunk {
    pub(super) fn new(bytes: usize, terminator: u8) -> Result<Self> {
        let words = (bytes / WORD_BYTES).max(8);
        Ok(Self {
            memory: buffer(words * WORD_BYTES)?,
            entries: words..words,
            terminator,
        })
    }

    fn words(&self) -> &[Entry] {
        bytemuck::cast_slice(&self.memory)
    }

    fn words_mut(&mut self) -> &mut [Entry] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }

    /// Takes in lines until it is full or there are no more (`false`).
    pub(super) fn fill(&mut self, carry: &mut Carry, inputs: &mut Inputs, order: &TextOrder) -> Result<bool> {
        self.entries = self.words().len()..self.words().len();
        // The rest of the last chunk may be one line that is longer than a chunk.
        while self.text_room() < carry.0.len() {
            self.grow()?;
        }
        let mut filled = carry.0.len();
        self.text_mut()[..filled].copy_from_slice(&carry.0);
        let mut taken = self.take_in(0, 0, filled, order);
        loop {
            let step = if taken.is_full { 0 } else { self.step(taken.end, filled) };
            if step == 0 && !self.entries.is_empty() {
                carry.0.clear();
                carry.0.extend_from_slice(&self.text()[taken.end..filled]);
                return Ok(true);
            }
            if step == 0 {
                self.grow()?; // for one long line
                taken = self.take_in(0, 0, filled, order);
                continue;
            }
            let read = inputs.read_some(&mut self.text_mut()[filled..filled + step])?;
            if read == 0 {
                assert!(taken.end == filled, "each line of the inputs has an end");
                carry.0.clear();
                return Ok(false);
            }
            taken = self.take_in(taken.end, filled, filled + read, order);
            filled += read;
        }
    }

    fn text(&self) -> &[u8] {
        &self.memory[..self.text_room()]
    }

    fn text_mut(&mut self) -> &mut [u8] {
        let room = self.text_room();
        &mut self.memory[..room]
    }

    fn text_room(&self) -> usize {
        self.entries.start * WORD_BYTES
    }

    /// Only without entries.
    fn grow(&mut self) -> Result<()> {
        let larger = buffer(2 * self.memory.len())?;
        let smaller = std::mem::replace(&mut self.memory, larger);
        self.memory[..smaller.len()].copy_from_slice(&smaller);
        self.entries = self.words().len()..self.words().len();
        Ok(())
    }

    /// How much to read now, so that the lines in it find room for their entries; 0 when the chunk is full.
    fn step(&self, taken: usize, filled: usize) -> usize {
        const LINE_BYTES_GUESSED: usize = 32;
        let lines = self.entries.len();
        let line_bytes = taken.checked_div(lines).unwrap_or(LINE_BYTES_GUESSED).max(1);
        let room = self.text_room() - filled;
        let step = room / (line_bytes + WORD_BYTES) * line_bytes;
        // The last lines of a chunk are not worth a read each.
        let worth_it = (self.memory.len() / 64).min(READ_BYTES_MAX / 8);
        if step < worth_it.max(1) {
            0
        } else {
            step.min(READ_BYTES_MAX)
        }
    }

    /// Makes entries for the lines from `start` on that end in `looked_at..end`, while there is room.
    fn take_in(&mut self, start: usize, looked_at: usize, end: usize, order: &TextOrder) -> LineScan {
        let lowest = end.div_ceil(WORD_BYTES);
        let mut next = self.entries.start - lowest;
        let terminator = self.terminator;
        let (text, entries) = self.words_mut().split_at_mut(lowest);
        let text: &[u8] = bytemuck::cast_slice(text);
        let mut taken = LineScan {
            end: start,
            is_full: false,
        };
        for found in memchr::memchr_iter(terminator, &text[looked_at..end]) {
            if next == 0 {
                taken.is_full = true;
                break;
            }
            let line = taken.end..looked_at + found;
            taken.end = line.end + 1;
            next -= 1;
            entries[next] = [order.prefix(&text[line.clone()]), place(&line)];
        }
        self.entries.start = lowest + next;
        taken
    }

    /// Sorts its lines, on the threads of a pool if there is one; of equal lines only the first stays, if asked for.
    pub(super) fn sort(&mut self, order: &TextOrder, pool: Option<&rayon::ThreadPool>) {
        let (start, terminator) = (self.entries.start, self.terminator);
        let (text, entries) = self.words_mut().split_at_mut(start);
        let lines = Text {
            bytes: bytemuck::cast_slice(text),
            terminator,
        };
        match pool.filter(|_| entries.len() >= PARALLEL_LINES_MIN) {
            // Below that, handing out the work costs more than it saves.
            Some(pool) => pool.install(|| sort(entries, &lines, order, true)),
            None => sort(entries, &lines, order, false),
        }
        if order.is_unique() {
            let left = unique(entries, &lines, order);
            self.entries.end = self.entries.start + left;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads its lines in order.
    pub(super) fn into_cursor(self) -> Cursor {
        Cursor {
            next: self.entries.start,
            chunk: self,
            fetched: Vec::new(),
            lines: Vec::new(),
            current: 0,
            start: 0,
        }
    }

    /// Its lines in order, without their terminators.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let lines = Text {
            bytes: self.text(),
            terminator: self.terminator,
        };
        self.words()[self.entries.clone()]
            .iter()
            .map(move |entry| lines.line(entry))
    }
}

fn place(line: &Range<usize>) -> u64 {
    (line.start as u64) << LENGTH_BITS | (line.len() as u64).min(LENGTH_MAX)
}

/// The text that entries speak of.
struct Text<'a> {
    bytes: &'a [u8],
    terminator: u8,
}

impl<'a> Text<'a> {
    #[inline]
    fn range(&self, entry: &Entry) -> Range<usize> {
        let (start, length) = ((entry[1] >> LENGTH_BITS) as usize, entry[1] & LENGTH_MAX);
        if length < LENGTH_MAX {
            return start..start + length as usize;
        }
        // Its length did not fit the entry; such lines are few.
        let found = memchr::memchr(self.terminator, &self.bytes[start..]);
        start..start + found.expect("a line that was taken in has an end")
    }

    #[inline]
    fn line(&self, entry: &Entry) -> &'a [u8] {
        &self.bytes[self.range(entry)]
    }

    /// Of entries with equal prefixes. Equal lines keep their order.
    fn compare(&self, a: &Entry, b: &Entry, order: &TextOrder) -> Ordering {
        // By place among equals: sorting is unstable, and the result must not be.
        order.compare(self.line(a), self.line(b)).then(a[1].cmp(&b[1]))
    }
}

/// First by prefixes alone, which is quick; then within equal ones.
fn sort(entries: &mut [Entry], text: &Text<'_>, order: &TextOrder, is_parallel: bool) {
    if is_parallel && entries.len() >= PARALLEL_LINES_MIN {
        entries.par_sort_unstable_by_key(|entry| entry[0]);
        let groups = entries.par_chunk_by_mut(|a, b| a[0] == b[0]);
        groups.for_each(|equal| sort_equal(equal, text, order, true));
    } else {
        entries.sort_unstable_by_key(|entry| entry[0]);
        let groups = entries.chunk_by_mut(|a, b| a[0] == b[0]);
        groups.for_each(|equal| sort_equal(equal, text, order, is_parallel));
    }
}

/// Sorts entries with equal prefixes. Where they are many, by the bytes that follow what all have in common (paths in one
/// directory, times of one day), so that each line is looked at twice and not once for each comparison.
fn sort_equal(equal: &mut [Entry], text: &Text<'_>, order: &TextOrder, is_parallel: bool) {
    let prefix = equal[0][0];
    if equal.len() >= REFINED_LINES_MIN && refine(equal, text, order) {
        sort(equal, text, order, is_parallel);
        // Chunks are merged by the first prefix.
        equal.iter_mut().for_each(|entry| entry[0] = prefix);
    } else if is_parallel && equal.len() >= PARALLEL_LINES_MIN {
        equal.par_sort_unstable_by(|a, b| text.compare(a, b, order));
    } else if equal.len() > 1 {
        equal.sort_unstable_by(|a, b| text.compare(a, b, order));
    }
}

/// Replaces prefixes by what comes after the bytes that all have in common; `false`: nothing there tells them apart.
fn refine(equal: &mut [Entry], text: &Text<'_>, order: &TextOrder) -> bool {
    let key = |entry: &Entry| order.first_key_bytes(text.line(entry));
    let Some(first) = key(&equal[0]) else { return false };
    let others = equal[1..].iter().filter_map(key);
    // Where all begin alike, what tells them apart lies behind it.
    let shared = others.fold(first.len(), |shared, other| common_length(&first[..shared], other));
    let after = |entry: &Entry| order.prefix_after(text.line(entry), shared);
    let first = after(&equal[0]);
    // Their prefixes are needed as they are when chunks are merged, so nothing is replaced before it is of use.
    if equal.iter().all(|entry| after(entry) == first) {
        return false;
    }
    equal.iter_mut().for_each(|entry| entry[0] = after(entry));
    true
}

/// Moves the first of equal lines to the front; gives their number.
fn unique(entries: &mut [Entry], text: &Text<'_>, order: &TextOrder) -> usize {
    let mut kept = 0;
    for next in 0..entries.len() {
        let is_new = kept == 0 || {
            let (last, entry) = (&entries[kept - 1], &entries[next]);
            last[0] != entry[0] || order.compare(text.line(last), text.line(entry)).is_ne()
        };
        if is_new {
            entries[kept] = entries[next];
            kept += 1;
        }
    }
    kept
}

/// Goes over the lines of a sorted chunk.
///
/// Neighbours in order lie anywhere in the text. Several lines are fetched at once, so that the processor waits for memory
/// once and not for each.
pub(super) struct Cursor {
    chunk: Chunk,
    /// The next entry to fetch.
    next: usize,
    fetched: Vec<u8>,
    /// Of the fetched lines: prefix, end.
    lines: Vec<(u64, usize)>,
    /// The current line among these.
    current: usize,
    start: usize,
}

/// Lines that are fetched at once.
const FETCHED_LINES: usize = 32;
/// Fetching ends with a line that is longer; it is alone.
const FETCHED_BYTES: usize = 16 << 10;

impl Cursor {
    #[inline]
    pub(super) fn advance(&mut self) -> bool {
        self.start = self.lines.get(self.current).map_or(0, |(_, end)| *end);
        self.current += 1;
        if self.current >= self.lines.len() {
            self.fetch();
        }
        !self.lines.is_empty()
    }

    #[inline]
    pub(super) fn line(&self) -> &[u8] {
        &self.fetched[self.start..self.lines[self.current].1]
    }

    #[inline]
    pub(super) fn prefix(&self) -> u64 {
        self.lines[self.current].0
    }

    fn fetch(&mut self) {
        self.fetched.clear();
        self.lines.clear();
        (self.current, self.start) = (0, 0);
        let text = Text {
            bytes: self.chunk.text(),
            terminator: self.chunk.terminator,
        };
        let left = &self.chunk.words()[self.next..self.chunk.entries.end];
        for entry in left.iter().take(FETCHED_LINES) {
            self.fetched.extend_from_slice(text.line(entry));
            self.lines.push((entry[0], self.fetched.len()));
            if self.fetched.len() > FETCHED_BYTES {
                break;
            }
        }
        self.next += self.lines.len();
    }
}
