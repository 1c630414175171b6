//! One run in memory, between two buffers.
//!
//! ```text
//!   records: R0 R1 R2 ...  --scatter by prefix-->  spare: | bucket 0 | bucket 1 | ... | bucket 255 |
//!   records in order       <------- gather ------  entries (prefix, index) of one bucket, radix sorted
//! ```
//!
//! A bucket fits into a processor's cache, where gathering records in any order costs little; over a whole run it would
//! cost more than all the rest. Where prefixes are equal, the whole keys decide, and where these are equal too (and
//! order matters) the index. Buckets divide the range of the prefixes that are there evenly; where nearly all
//! prefixes fall into one, sorting is slower, and nothing else.

use rayon::prelude::*;
use rdst::{RadixKey, RadixSort};

use super::RecordFormat;

/// Few enough that a processor writes to all of them at once, and many enough that each is small.
const BUCKETS: usize = 256;
/// Records that are looked at to find the range of the prefixes.
const SAMPLES: usize = 4096;

/// A record by its prefix and its place.
trait Entry: RadixKey + Copy + Send + Sync {
    fn new(prefix: u64, index: u32) -> Self;
    fn prefix(&self) -> u64;
    fn index(&self) -> u32;
}

/// For keys of up to four bytes.
#[derive(Clone, Copy)]
struct ShortEntry {
    prefix: u32,
    index: u32,
}

#[derive(Clone, Copy)]
struct LongEntry {
    prefix: u64,
    index: u32,
}

impl RadixKey for ShortEntry {
    const LEVELS: usize = 4;

    fn get_level(&self, level: usize) -> u8 {
        self.prefix.get_level(level)
    }
}

impl RadixKey for LongEntry {
    const LEVELS: usize = 8;

    fn get_level(&self, level: usize) -> u8 {
        self.prefix.get_level(level)
    }
}

impl Entry for ShortEntry {
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

impl Entry for LongEntry {
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

/// Sorts runs in memory.
pub(super) struct RunSorter<'a> {
    format: &'a RecordFormat,
    stable: bool,
}

impl<'a> RunSorter<'a> {
    pub(super) fn new(format: &'a RecordFormat, stable: bool) -> Self {
        Self { format, stable }
    }

    /// Bytes of working space per record: the entry, and twice as much again while the radix sort moves entries.
    pub(super) fn bytes_per_record(format: &RecordFormat) -> usize {
        3 * if format.key_bytes() <= 4 {
            size_of::<ShortEntry>()
        } else {
            size_of::<LongEntry>()
        }
    }

    /// Sorts records; `spare` is as long, and has other bytes in it afterwards.
    ///
    /// # Panics
    /// When the two are not of one length, a whole number of records and fewer than 2^32 of them.
    pub(super) fn sort(&self, records: &mut [u8], spare: &mut [u8]) {
        assert!(records.len() == spare.len() && records.len().is_multiple_of(self.format.bytes()));
        assert!(u32::try_from(records.len() / self.format.bytes()).is_ok());
        let scatter = Scatter::plan(self.format, records);
        let counts = scatter.counts(records);
        scatter.scatter(records, spare, &counts);
        let lengths = (0..BUCKETS).map(|bucket| counts.iter().map(|of_task| of_task[bucket]).sum::<usize>());
        let lengths: Vec<usize> = lengths.map(|count| count * self.format.bytes()).collect();
        let buckets = split(spare, &lengths).into_iter().zip(split(records, &lengths));
        buckets
            .collect::<Vec<_>>()
            .into_par_iter()
            .for_each(|(from, to)| self.sort_bucket(from, to));
    }

    fn sort_bucket(&self, from: &[u8], to: &mut [u8]) {
        if self.format.key_bytes() <= 4 {
            gather::<ShortEntry>(self.format, self.stable, from, to);
        } else {
            gather::<LongEntry>(self.format, self.stable, from, to);
        }
    }
}

/// Divides the prefixes among the buckets.
struct Scatter<'a> {
    format: &'a RecordFormat,
    least: u64,
    shift: u32,
    task_bytes: usize,
}

/// Records of one task in each bucket.
type Counts = [usize; BUCKETS];

impl<'a> Scatter<'a> {
    /// Looks at a part of the records only: the others go into the first or last bucket at worst.
    fn plan(format: &'a RecordFormat, records: &[u8]) -> Self {
        let bytes = format.bytes();
        let step = (records.len() / bytes / SAMPLES).max(1);
        let prefixes = records
            .chunks_exact(bytes)
            .step_by(step)
            .map(|record| format.prefix(record));
        let (least, most) = prefixes.fold((u64::MAX, 0), |(least, most), prefix| {
            (least.min(prefix), most.max(prefix))
        });
        let range_bits = 64 - most.saturating_sub(least).leading_zeros();
        let tasks = rayon::current_num_threads();
        Self {
            format,
            least,
            shift: range_bits.saturating_sub(BUCKETS.ilog2()),
            task_bytes: (records.len() / bytes).div_ceil(tasks).max(1) * bytes,
        }
    }

    #[inline]
    fn bucket(&self, record: &[u8]) -> usize {
        let above = self.format.prefix(record).saturating_sub(self.least) >> self.shift;
        above.min(BUCKETS as u64 - 1) as usize
    }

    fn counts(&self, records: &[u8]) -> Vec<Counts> {
        let tasks = records.par_chunks(self.task_bytes);
        let count = |records: &[u8]| {
            let mut counts = [0; BUCKETS];
            for record in records.chunks_exact(self.format.bytes()) {
                counts[self.bucket(record)] += 1;
            }
            counts
        };
        tasks.map(count).collect()
    }

    /// Each task has a place of its own in each bucket, in the order of the tasks: records keep their order.
    fn scatter(&self, records: &[u8], spare: &mut [u8], counts: &[Counts]) {
        let bytes = self.format.bytes();
        let lengths = (0..BUCKETS).flat_map(|bucket| counts.iter().map(move |of_task| of_task[bucket] * bytes));
        let mut places: Vec<Vec<&mut [u8]>> = counts.iter().map(|_| Vec::with_capacity(BUCKETS)).collect();
        for (at, place) in split(spare, &lengths.collect::<Vec<_>>()).into_iter().enumerate() {
            places[at % counts.len()].push(place);
        }
        let tasks = records.par_chunks(self.task_bytes).zip(places.into_par_iter());
        tasks.for_each(|(records, mut places)| {
            for record in records.chunks_exact(bytes) {
                let place = &mut places[self.bucket(record)];
                let (to, rest) = std::mem::take(place).split_at_mut(bytes);
                copy_record(to, record);
                *place = rest;
            }
        });
    }
}

/// Parts of these lengths, one after the other.
fn split<'a>(mut bytes: &'a mut [u8], lengths: &[usize]) -> Vec<&'a mut [u8]> {
    let mut parts = Vec::with_capacity(lengths.len());
    for length in lengths {
        let (part, rest) = bytes.split_at_mut(*length);
        parts.push(part);
        bytes = rest;
    }
    parts
}

/// Sorts one bucket into its place.
fn gather<E: Entry>(format: &RecordFormat, stable: bool, from: &[u8], to: &mut [u8]) {
    let bytes = format.bytes();
    let records = from.chunks_exact(bytes).enumerate();
    let mut entries: Vec<E> = records
        .map(|(at, record)| E::new(format.prefix(record), at as u32))
        .collect();
    entries.radix_sort_unstable();
    if stable || !format.prefix_decides() {
        order_equals(format, &mut entries, from);
    }
    for (record, entry) in to.chunks_exact_mut(bytes).zip(&entries) {
        copy_record(record, at(from, bytes, entry.index()));
    }
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
            let sorter = RunSorter::new(&format, true);
            for records in [0, 1, 2, 1000, 40_000] {
                let mut from: Vec<u8> = (0..records * bytes).map(|_| rng.random_range(0..4) * 85).collect();
                let mut expected: Vec<&[u8]> = from.chunks_exact(bytes).collect();
                expected.sort_by(|a, b| format.compare(a, b));
                let expected = expected.concat();
                sorter.sort(&mut from, &mut vec![0; expected.len()]);
                assert!(from == expected, "{bytes}-byte records, {records} of them");
            }
        }
    }
}
