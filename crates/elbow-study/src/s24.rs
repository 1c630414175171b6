//! The second application of *A Holesome File System*: a sort of 24-byte records by a key of four bytes.
//!
//! ```text
//!   random records --> stream --sort--> stream --scan--> in order? a permutation?
//! ```
//!
//! On disk are the records and their runs, then runs and result: twice the records where the input is kept, once where it
//! is freed as it is read.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 5.2.

use elbow_extmem::sort::{Meter, RecordFormat, Result};
use elbow_extmem::stream::Scratch;

/// A record: six numbers, the first is the key.
pub type Record = [u32; 6];

/// What a run gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Records that were sorted.
    pub records: u64,
    /// Every key was at least the one before.
    pub in_order: bool,
    /// The records that came out are those that went in, by a checksum that does not depend on their order.
    pub same_records: bool,
}

/// Makes so many records from a seed, sorts them and checks the result. `consumes`: records are freed as they are read.
///
/// ```
/// use std::sync::Arc;
/// use elbow_study::s24;
/// use elbow_extmem::sort::Meter;
/// use elbow_extmem::stream::{MemoryBudget, Scratch};
/// use elbow_file::RealStorage;
///
/// let directory = tempfile::tempdir()?;
/// let dir = RealStorage::open_root(directory.path())?;
/// let scratch = Scratch::new(Arc::new(RealStorage), dir, directory.path().into(), MemoryBudget::new(32 << 20));
/// let checked = s24::run(&scratch, 10_000, 1, true, 2, &Meter::default())?;
/// assert!(checked.in_order && checked.same_records);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A storage error, or too small a memory budget.
pub fn run(
    scratch: &Scratch,
    records: u64,
    seed: u64,
    consumes: bool,
    threads: usize,
    meter: &Meter,
) -> Result<Checked> {
    let format = RecordFormat::new(size_of::<Record>(), vec!["0:4:u32le".parse()?])?;
    let mut writer = scratch.writer()?;
    let mut went_in = 0_u64;
    for number in 0..records {
        let record = record(seed, number);
        went_in = went_in.wrapping_add(checksum(&record));
        writer.push(record)?;
    }
    let made = writer.finish()?;
    let kept = (!consumes).then(|| made.share());
    let sorted = if consumes {
        made.sort(&format, threads, meter)?
    } else {
        made.sorted_copy(&format, threads, meter)?
    };
    drop(kept);
    let (mut came_out, mut in_order, mut before) = (0_u64, true, 0);
    let count = sorted.records();
    for record in sorted.consume()? {
        let record: Record = record?;
        came_out = came_out.wrapping_add(checksum(&record));
        in_order &= before <= record[0];
        before = record[0];
    }
    Ok(Checked {
        records: count,
        in_order,
        same_records: count == records && came_out == went_in,
    })
}

fn record(seed: u64, number: u64) -> Record {
    let random = mix(seed ^ number);
    let [key, rest, low, high] = bytemuck::cast([random, number]);
    [key, rest, low, high, !key, !rest]
}

fn checksum(record: &Record) -> u64 {
    let words: [u64; 3] = bytemuck::cast(*record);
    mix(words[0] ^ mix(words[1] ^ mix(words[2])))
}

/// SplitMix64: Steele, Lea, Flood, *Fast splittable pseudorandom number generators*, OOPSLA 2014.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use elbow_file::RealStorage;

    use super::*;
    use elbow_extmem::stream::MemoryBudget;

    #[test]
    fn records_are_sorted_whether_they_are_kept_or_consumed() {
        let place = tempfile::tempdir().expect("a directory");
        let dir = RealStorage::open_root(place.path()).expect("the directory");
        let scratch = Scratch::new(
            Arc::new(RealStorage),
            dir,
            place.path().into(),
            MemoryBudget::new(20 << 20),
        );
        for consumes in [false, true] {
            let checked = run(&scratch, 700_000, 3, consumes, 2, &Meter::default()).expect("a run");
            assert_eq!(
                (checked.records, checked.in_order, checked.same_records),
                (700_000, true, true)
            );
        }
    }
}
