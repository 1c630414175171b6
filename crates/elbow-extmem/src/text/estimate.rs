//! What a sort of text will need, reckoned without sorting.

use super::budget::{CHUNKS, Memory};
use super::options::SortOptions;
use super::plan::planned;

/// Bytes of a line, its terminator included, while nobody has looked.
pub(super) const LINE_BYTES_GUESSED: u64 = 64;
/// Memory for a line beside its text.
const ENTRY_BYTES: u64 = 16;

/// What a sort will need. Where lines are of different lengths, runs may be a few more or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortEstimate {
    /// Runs that it will form; 0: all is done in memory.
    pub runs: u64,
    /// Merges before the last.
    pub merges: u64,
    /// Disk space for temporary files, in bytes. While they are merged into the result they shrink as it grows.
    pub temporary_bytes: u64,
    /// Bytes that it reads.
    pub read_bytes: u64,
    /// Bytes that it writes, the result included.
    pub written_bytes: u64,
}

impl SortOptions {
    /// What a sort of so many bytes in lines of about so many (the terminator included) will need. Packed temporary files
    /// take less.
    ///
    /// ```
    /// use elbow_extmem::text::SortOptions;
    ///
    /// let options = SortOptions { memory_bytes: 256 << 20, ..SortOptions::default() };
    /// let need = options.need(2 << 30, 99);
    /// assert_eq!((need.merges, need.temporary_bytes, need.read_bytes), (0, 2 << 30, 4 << 30));
    /// assert_eq!(options.need(1 << 20, 99).temporary_bytes, 0); // it fits into memory
    /// ```
    #[must_use]
    pub fn need(&self, bytes: u64, line_bytes: u64) -> SortEstimate {
        let memory = Memory::divide(self);
        let line_bytes = line_bytes.max(1);
        let chunk = (memory.chunk_bytes as u64 / (line_bytes + ENTRY_BYTES) * line_bytes).max(1);
        let runs = bytes.div_ceil(chunk);
        if runs <= CHUNKS as u64 {
            return SortEstimate {
                runs: 0,
                merges: 0,
                temporary_bytes: 0,
                read_bytes: bytes,
                written_bytes: bytes,
            };
        }
        let sizes = (0..runs).map(|run| chunk.min(bytes - run * chunk)).collect();
        let (merged, merges) = planned(sizes, memory.fan_in);
        SortEstimate {
            runs,
            merges,
            temporary_bytes: bytes,
            read_bytes: bytes + merged,
            written_bytes: bytes + merged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{Input, OrderOptions, Output, TextOrder, TextSort};

    /// What is reckoned is what happens.
    #[test]
    fn a_sort_needs_what_was_reckoned() {
        for (memory_bytes, fan_in, lines) in [
            (1 << 20, None, 1000),
            (256 << 10, None, 40_000),
            (256 << 10, Some(3), 40_000),
        ] {
            let options = SortOptions {
                memory_bytes,
                fan_in,
                ..SortOptions::default()
            };
            let text: String = (0..lines).map(|n| format!("{:049}\n", n * 7919 % lines)).collect();
            let need = options.need(text.len() as u64, 50);
            let sort = TextSort::new(TextOrder::new(&OrderOptions::default()).expect("an order"), options);
            let inputs = vec![Input::new("text", move || Ok(std::io::Cursor::new(text)))];
            let (_, summary) = sort
                .sort(inputs, Output::new("nowhere", || Ok(std::io::sink())))
                .expect("a sort");
            assert_eq!(
                (summary.runs, summary.merges),
                (need.runs + need.merges, need.merges),
                "{need:?}"
            );
            let (read, written) = (sort.meter().read_bytes(), sort.meter().written_bytes());
            assert_eq!((read, written), (need.read_bytes, need.written_bytes), "{need:?}");
            // Runs are so small here that they are freed as a whole.
            assert!(summary.peak_disk_bytes <= 2 * need.temporary_bytes, "{summary:?}");
            assert_eq!(sort.meter().total_bytes(), need.written_bytes);
        }
    }
}
