//! Inputs for sorts, made from a seed, and the check of what came out: in order, and a permutation of what went in.
//!
//! ```text
//!   s24    24 bytes: six u32le, the first is the key
//!   r100   100 bytes: the first ten are the key, as bytes
//!   text   98 printable bytes and a newline: the key is the line (a key in front and the line as last resort are the same)
//! ```
//!
//! The checksum is a sum over all records, so it does not depend on their order; a record that is lost, doubled or
//! changed changes it.

use std::io::{self, Read, Write};

use serde::Serialize;

/// Read and written at once: a multiple of every record's size (24, 99 and 100 bytes).
const PIECE_BYTES: usize = 24 * 99 * 100 * 4;

/// What the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RecordKind {
    /// 24 bytes, a little-endian number of four bytes in front is the key.
    S24,
    /// 100 bytes, the first ten are the key.
    R100,
    /// Lines of 98 bytes and a newline.
    Text,
}

/// What a file of records is.
///
/// ```
/// use elbow_testkit::sortable::{RecordKind, check, make};
///
/// let mut file = Vec::new();
/// let made = make(RecordKind::S24, 10_000, 1, &mut file)?;
/// let found = check(RecordKind::S24, &file[..])?;
/// assert_eq!((found.records, found.checksum), (416, made.checksum));
/// assert!(!found.is_sorted);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Records {
    /// How many records there are.
    pub records: u64,
    /// The sum over all records, in hexadecimal.
    pub checksum: String,
    /// No key is less than the one before.
    pub is_sorted: bool,
}

impl RecordKind {
    /// The size of a record, in bytes.
    #[must_use]
    pub fn record_bytes(self) -> usize {
        match self {
            Self::S24 => 24,
            Self::R100 => 100,
            Self::Text => 99,
        }
    }

    /// Fills a record.
    fn fill(self, record: &mut [u8], random: &mut u64) {
        record.chunks_mut(8).for_each(|part| {
            let bytes = next(random).to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        });
        if self == Self::Text {
            let (newline, line) = record.split_last_mut().expect("a record is not empty");
            line.iter_mut().for_each(|byte| *byte = b' ' + *byte % 95);
            *newline = b'\n';
        }
    }

    fn is_in_order(self, before: &[u8], after: &[u8]) -> bool {
        match self {
            Self::S24 => number(before) <= number(after),
            Self::R100 => before[..10] <= after[..10],
            Self::Text => before <= after,
        }
    }
}

/// Writes as many records as `bytes` holds; the same seed gives the same. They are not sorted, and not looked at for that.
///
/// # Errors
/// Those of the writer.
pub fn make(kind: RecordKind, bytes: u64, seed: u64, to: &mut dyn Write) -> io::Result<Records> {
    let (size, mut random, mut sum) = (kind.record_bytes(), seed, 0_u64);
    let records = bytes / size as u64;
    let mut piece = vec![0; PIECE_BYTES];
    let mut left = records;
    while left > 0 {
        let now = left.min((PIECE_BYTES / size) as u64);
        let part = &mut piece[..usize::try_from(now).expect("at most a piece") * size];
        for record in part.chunks_exact_mut(size) {
            kind.fill(record, &mut random);
            sum = sum.wrapping_add(hash(record));
        }
        to.write_all(part)?;
        left -= now;
    }
    Ok(Records {
        records,
        checksum: format!("{sum:016x}"),
        is_sorted: false,
    })
}

/// Reads records to the end.
///
/// # Errors
/// Those of the reader; `InvalidData` when the last record is not whole.
pub fn check(kind: RecordKind, mut from: impl Read) -> io::Result<Records> {
    let size = kind.record_bytes();
    let mut piece = vec![0; PIECE_BYTES];
    let mut last: Option<Vec<u8>> = None;
    let (mut records, mut sum, mut is_sorted) = (0_u64, 0_u64, true);
    loop {
        let got = fill(&mut from, &mut piece)?;
        if got % size != 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the last record is not whole",
            ));
        }
        let part = &piece[..got];
        sum = part
            .chunks_exact(size)
            .fold(sum, |sum, record| sum.wrapping_add(hash(record)));
        is_sorted &= last
            .iter()
            .all(|last| got == 0 || kind.is_in_order(last, &part[..size]));
        let pairs = part.chunks_exact(size).zip(part.chunks_exact(size).skip(1));
        is_sorted &= pairs.into_iter().all(|(before, after)| kind.is_in_order(before, after));
        records += (got / size) as u64;
        if got < PIECE_BYTES {
            let checksum = format!("{sum:016x}");
            return Ok(Records {
                records,
                checksum,
                is_sorted,
            });
        }
        last = Some(part[got - size..].to_vec());
    }
}

/// Reads until the buffer is full or there is no more.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match from.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn number(record: &[u8]) -> u32 {
    u32::from_le_bytes([record[0], record[1], record[2], record[3]])
}

/// splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mix(*state)
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Depends on every byte and on where it is in the record.
fn hash(record: &[u8]) -> u64 {
    let sum = record.chunks(8).fold(0_u64, |sum, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        (sum.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    });
    mix(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [RecordKind; 3] = [RecordKind::S24, RecordKind::R100, RecordKind::Text];
    /// More than one piece.
    const BYTES: u64 = PIECE_BYTES as u64 + 50_000;

    fn made(kind: RecordKind) -> (Vec<u8>, Records) {
        let mut file = Vec::new();
        let made = make(kind, BYTES, 7, &mut file).expect("memory");
        (file, made)
    }

    fn sorted(kind: RecordKind) -> Vec<u8> {
        let (file, _) = made(kind);
        let mut records: Vec<&[u8]> = file.chunks_exact(kind.record_bytes()).collect();
        records.sort_by(|a, b| match kind.is_in_order(a, b) {
            true => std::cmp::Ordering::Less.then(a.cmp(b)),
            false => std::cmp::Ordering::Greater,
        });
        records.concat()
    }

    #[test]
    fn what_is_sorted_is_found_sorted_and_the_same() {
        for kind in KINDS {
            let found = check(kind, &sorted(kind)[..]).expect("whole records");
            let (_, made) = made(kind);
            assert_eq!(
                found,
                Records {
                    is_sorted: true,
                    ..made
                },
                "{kind:?}"
            );
        }
    }

    #[test]
    fn one_wrong_pair_is_found_also_between_pieces() {
        for kind in KINDS {
            let size = kind.record_bytes();
            let in_pieces = PIECE_BYTES / size;
            for at in [0, 1000, in_pieces - 1, in_pieces] {
                let mut file = sorted(kind);
                let (left, right) = file.split_at_mut((at + 1) * size);
                left[at * size..].swap_with_slice(&mut right[..size]);
                let found = check(kind, &file[..]).expect("whole records");
                assert!(!found.is_sorted, "{kind:?} at {at}");
                assert_eq!(found.checksum, made(kind).1.checksum, "the same records");
            }
        }
    }

    #[test]
    fn a_lost_a_doubled_and_a_changed_record_are_found() {
        for kind in KINDS {
            let (file, made) = made(kind);
            let size = kind.record_bytes();
            let sum = |file: &[u8]| check(kind, file).expect("whole records").checksum;
            assert_eq!(sum(&file), made.checksum);
            let (mut doubled, mut changed) = (file.clone(), file.clone());
            doubled.copy_within(..size, size);
            changed[size - 2] ^= 1;
            for wrong in [&file[size..], &doubled, &changed] {
                assert_ne!(sum(wrong), made.checksum, "{kind:?}");
            }
        }
    }

    #[test]
    fn half_a_record_is_an_error() {
        assert!(check(RecordKind::S24, &[0; 25][..]).is_err());
    }
}
