//! One run in memory: records by reference, sorted by prefix, gathered in order.
//!
//! ```text
//!   from: R0 R1 R2 ...      entries: (prefix, index) ...      to: records in order
//!              extract ->   radix sort by prefix   -> gather
//! ```
//!
//! Where prefixes are equal, the whole keys decide, and where these are equal too (and order matters) the index.

use rayon::prelude::*;
use rdst::{RadixKey, RadixSort};

use super::RecordFormat;

/// Records that one task extracts or gathers; enough to be worth a task.
const TASK_RECORDS: usize = 1 << 14;

/// A record by its prefix and its place.
trait Entry: RadixKey + Copy + Default + Send + Sync {
    fn new(prefix: u64, index: u32) -> Self;
    fn prefix(&self) -> u64;
    fn index(&self) -> u32;
}

/// For keys of up to four bytes.
#[derive(Clone, Copy, Default)]
struct Short {
    prefix: u32,
    index: u32,
}

#[derive(Clone, Copy, Default)]
struct Long {
    prefix: u64,
    index: u32,
}

impl RadixKey for Short {
    const LEVELS: usize = 4;

    fn get_level(&self, level: usize) -> u8 {
        self.prefix.get_level(level)
    }
}

impl RadixKey for Long {
    const LEVELS: usize = 8;

    fn get_level(&self, level: usize) -> u8 {
        self.prefix.get_level(level)
    }
}

impl Entry for Short {
    fn new(prefix: u64, index: u32) -> Self {
        let prefix = (prefix >> 32) as u32;
        Self { prefix, index }
    }

    fn prefix(&self) -> u64 {
        self.prefix.into()
    }

    fn index(&self) -> u32 {
        self.index
    }
}

impl Entry for Long {
    fn new(prefix: u64, index: u32) -> Self {
        Self { prefix, index }
    }

    fn prefix(&self) -> u64 {
        self.prefix
    }

    fn index(&self) -> u32 {
        self.index
    }
}

/// Sorts runs in memory, and keeps its working space between them.
pub(super) struct RunSorter<'a> {
    format: &'a RecordFormat,
    stable: bool,
    short: Vec<Short>,
    long: Vec<Long>,
}

impl<'a> RunSorter<'a> {
    pub(super) fn new(format: &'a RecordFormat, stable: bool) -> Self {
        let (short, long) = (Vec::new(), Vec::new());
        Self {
            format,
            stable,
            short,
            long,
        }
    }

    /// Bytes of working space per record: the entry, and twice as much again while the radix sort moves entries.
    pub(super) fn bytes_per_record(format: &RecordFormat) -> usize {
        3 * if format.key_bytes() <= 4 {
            size_of::<Short>()
        } else {
            size_of::<Long>()
        }
    }

    /// Sorts the records of `from` into `to`.
    ///
    /// # Panics
    /// When the two are not of one length, a whole number of records and fewer than 2^32 of them.
    pub(super) fn sort(&mut self, from: &[u8], to: &mut [u8]) {
        assert!(from.len() == to.len() && from.len().is_multiple_of(self.format.bytes()));
        assert!(u32::try_from(from.len() / self.format.bytes()).is_ok());
        if self.format.key_bytes() <= 4 {
            sort(self.format, self.stable, &mut self.short, from, to);
        } else {
            sort(self.format, self.stable, &mut self.long, from, to);
        }
    }
}

fn sort<E: Entry>(format: &RecordFormat, stable: bool, entries: &mut Vec<E>, from: &[u8], to: &mut [u8]) {
    let bytes = format.bytes();
    entries.resize(from.len() / bytes, E::default());
    let tasks = entries
        .par_chunks_mut(TASK_RECORDS)
        .zip(from.par_chunks(TASK_RECORDS * bytes));
    tasks.enumerate().for_each(|(task, (entries, records))| {
        let first = (task * TASK_RECORDS) as u32;
        for (at, (entry, record)) in entries.iter_mut().zip(records.chunks_exact(bytes)).enumerate() {
            *entry = E::new(format.prefix(record), first + at as u32);
        }
    });
    entries.radix_sort_unstable();
    if stable || !format.prefix_decides() {
        order_equals(format, entries, from);
    }
    let tasks = to
        .par_chunks_mut(TASK_RECORDS * bytes)
        .zip(entries.par_chunks(TASK_RECORDS));
    tasks.for_each(|(records, entries)| {
        for (record, entry) in records.chunks_exact_mut(bytes).zip(entries) {
            copy_record(record, at(from, bytes, entry.index()));
        }
    });
}

/// Orders entries of equal prefix by their whole keys, then by their place.
fn order_equals<E: Entry>(format: &RecordFormat, entries: &mut [E], from: &[u8]) {
    let (bytes, decides) = (format.bytes(), format.prefix_decides());
    let groups = entries
        .chunk_by_mut(|a, b| a.prefix() == b.prefix())
        .filter(|group| group.len() > 1);
    groups.par_bridge().for_each(|group| {
        if decides {
            group.sort_unstable_by_key(Entry::index);
        } else {
            group.sort_unstable_by(|a, b| {
                let by_key = format.compare(at(from, bytes, a.index()), at(from, bytes, b.index()));
                by_key.then(a.index().cmp(&b.index()))
            });
        }
    });
}

/// Copies a record; those of usual lengths without asking how long they are.
#[inline]
pub(super) fn copy_record(to: &mut [u8], from: &[u8]) {
    match from.len() {
        8 => to[..8].copy_from_slice(&from[..8]),
        16 => to[..16].copy_from_slice(&from[..16]),
        24 => to[..24].copy_from_slice(&from[..24]),
        32 => to[..32].copy_from_slice(&from[..32]),
        100 => to[..100].copy_from_slice(&from[..100]),
        _ => to.copy_from_slice(from),
    }
}

fn at(records: &[u8], bytes: usize, index: u32) -> &[u8] {
    &records[index as usize * bytes..][..bytes]
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Against a stable sort of the standard library, over keys with many equals.
    #[test]
    fn runs_are_sorted_stably_whatever_the_key() {
        let mut rng = StdRng::seed_from_u64(7);
        for (bytes, keys) in [
            (24, vec!["0:4:u32le"]),
            (8, vec!["0:8:f64be"]),
            (100, vec!["0:10:bytes"]),
            (13, vec!["3:1:i8:desc", "5:8:bytes"]),
        ] {
            let keys = keys.iter().map(|key| key.parse().expect("a key")).collect();
            let format = RecordFormat::new(bytes, keys).expect("a format");
            let mut sorter = RunSorter::new(&format, true);
            for records in [0, 1, 2, 1000, 40_000] {
                let from: Vec<u8> = (0..records * bytes).map(|_| rng.random_range(0..4) * 85).collect();
                let mut to = vec![0; from.len()];
                sorter.sort(&from, &mut to);
                let mut expected: Vec<&[u8]> = from.chunks_exact(bytes).collect();
                expected.sort_by(|a, b| format.compare(a, b));
                assert!(to == expected.concat(), "{bytes}-byte records, {records} of them");
            }
        }
    }
}
