//! The bytes of a region: its header, in two copies, and its records.
//!
//! ```text
//!   header   magic 8 | version 4 | sector bytes 4 | id 8 | incarnation 8 | logical sectors 8 | sectors 8 | CRC 4
//!            | and of a copy among others its mark:  set 8 | tag 8 | previous 8 | base 8 | copies 4 | CRC of all 88 bytes before 4
//!   record   magic 8 | id 8 | incarnation 8 | sequence 8 | first logical sector 8 | logical sectors 8
//!            | payload bytes 4 | CRC of the payload 4 | moves 4 | CRC of these 60 bytes 4 | payload | zeros to the end of the sector
//! ```
//!
//! Integers are little-endian, the CRC is CRC-32 (IEEE 802.3). Zeros at the end of what is written are no part of the
//! payload; so a record without payload says that its sectors are zeros, and is what a trim leaves.

use std::ops::Range;

use super::error::RegionError;
use super::planted::{Bug, has};

/// Logical sectors of one record. A track of a drive has about as many: a longer one would not be written any quicker.
pub const RECORD_SECTORS_MAX: u64 = 256;
/// Sectors of the two copies of the header, in front of all places.
pub const HEADER_SECTORS: u64 = 2;
/// Logical sectors of a log: at a million a second they last for nine years.
pub(super) const LOG_SECTORS: u64 = 1 << 48;
/// A header never says so many: nobody opens a region so often, and the next one is still a number.
pub(super) const INCARNATIONS: u64 = 1 << 63;
/// Bytes of a record in front of its payload.
pub(super) const HEAD_BYTES: usize = 64;
/// Where a record's head says how often it was moved, and where its checksum is.
const MOVES_AT: usize = 56;
const HEAD_CRC_AT: usize = 60;
const HEADER_MAGIC: &[u8; 8] = b"ELBREGN\0";
const RECORD_MAGIC: &[u8; 8] = b"ELBRCRD\x01";
const HEADER_BYTES: usize = 52;
const MARKED_BYTES: usize = 92;
const VERSION: u32 = 1;

/// What one copy of the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) sector_bytes: u32,
    pub(super) id: u64,
    pub(super) incarnation: u64,
    pub(super) logical_sectors: u64,
    /// All sectors of the region, its headers among them.
    pub(super) sectors: u64,
    pub(super) mark: Option<Mark>,
}

/// What a copy says of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Random, of all copies from their making on.
    pub(super) set: u64,
    /// Random, of the copies that were made equal together; 0 of one that is being made.
    pub(super) tag: u64,
    /// The tag of before.
    pub(super) previous: u64,
    /// The tag of when all copies were there.
    pub(super) base: u64,
    pub(super) copies: u32,
}

impl Mark {
    /// Behind the bytes of a header.
    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend(self.set.to_le_bytes());
        bytes.extend(self.tag.to_le_bytes());
        bytes.extend(self.previous.to_le_bytes());
        bytes.extend(self.base.to_le_bytes());
        bytes.extend(self.copies.to_le_bytes());
        bytes.extend(crc32fast::hash(bytes).to_le_bytes());
    }

    /// `None` where it is not whole.
    fn of(bytes: &[u8]) -> Option<Mark> {
        let is_whole = u32_at(bytes, 88) == crc32fast::hash(&bytes[..88]);
        let mark = Mark {
            set: u64_at(bytes, 52),
            tag: u64_at(bytes, 60),
            previous: u64_at(bytes, 68),
            base: u64_at(bytes, 76),
            copies: u32_at(bytes, 84),
        };
        (is_whole && mark.copies > 1).then_some(mark)
    }
}

/// Which of two records is newer: by incarnation, then by sequence number, which counts from 0 in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Age {
    pub(super) incarnation: u64,
    pub(super) sequence: u64,
}

impl Age {
    /// By what records are sorted.
    pub(super) fn order(self) -> (u64, u64) {
        let incarnation = if has(Bug::NoIncarnation) { 0 } else { self.incarnation };
        (incarnation, self.sequence)
    }
}

/// What a record says in front of its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) age: Age,
    pub(super) logical: Range<u64>,
    pub(super) payload_bytes: u32,
    payload_crc: u32,
    /// How often it was moved as it is, with its age; of two that differ in nothing else, the one with more is the newer.
    pub(super) moves: u32,
}

impl Header {
    /// One sector of it.
    pub(super) fn to_sector(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.sector_bytes as usize);
        bytes.extend(HEADER_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(self.sector_bytes.to_le_bytes());
        let numbers = [self.id, self.incarnation, self.logical_sectors, self.sectors];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        if let Some(mark) = self.mark {
            mark.append_to(&mut bytes);
        }
        bytes.resize(self.sector_bytes as usize, 0);
        bytes
    }

    /// What a sector says; `None` where it is no whole header.
    ///
    /// # Errors
    /// [`RegionError::Version`] for a whole header of a version that is not known here.
    pub(super) fn from_sector(bytes: &[u8]) -> Result<Option<Header>, RegionError> {
        let Some(bytes) = bytes.get(..MARKED_BYTES) else {
            return Ok(None);
        };
        let mark = Mark::of(bytes);
        // A mark that is damaged is not none: the copy would be taken for a region by itself.
        let is_as_written = mark.is_some() || bytes[HEADER_BYTES..].iter().all(|&byte| byte == 0);
        let is_whole =
            is_as_written && bytes.starts_with(HEADER_MAGIC) && u32_at(bytes, 48) == crc32fast::hash(&bytes[..48]);
        if !is_whole {
            return Ok(None);
        }
        match u32_at(bytes, 8) {
            VERSION => Ok(Some(Header {
                sector_bytes: u32_at(bytes, 12),
                id: u64_at(bytes, 16),
                incarnation: u64_at(bytes, 24),
                logical_sectors: u64_at(bytes, 32),
                sectors: u64_at(bytes, 40),
                mark,
            })),
            found => Err(RegionError::Version { found }),
        }
    }
}

impl Head {
    /// Reads the head of a record; `None` where there is none of this region.
    pub(super) fn parse(bytes: &[u8], id: u64) -> Option<Head> {
        let bytes = bytes.get(..HEAD_BYTES)?;
        let is_whole =
            bytes.starts_with(RECORD_MAGIC) && u32_at(bytes, HEAD_CRC_AT) == crc32fast::hash(&bytes[..HEAD_CRC_AT]);
        let first = u64_at(bytes, 32);
        let head = Head {
            id: u64_at(bytes, 8),
            age: Age {
                incarnation: u64_at(bytes, 16),
                sequence: u64_at(bytes, 24),
            },
            logical: first..first.checked_add(u64_at(bytes, 40))?,
            payload_bytes: u32_at(bytes, 48),
            payload_crc: u32_at(bytes, 52),
            moves: u32_at(bytes, MOVES_AT),
        };
        (is_whole && head.id == id).then_some(head)
    }

    /// By what records are sorted.
    pub(super) fn order(&self) -> (u64, u64, u32) {
        let (incarnation, sequence) = self.age.order();
        (incarnation, sequence, self.moves)
    }

    /// Whether a payload is the one that was written.
    pub(super) fn is_of(&self, payload: &[u8]) -> bool {
        has(Bug::NoChecksum) || crc32fast::hash(payload) == self.payload_crc
    }

    /// Sectors of the whole record.
    pub(super) fn record_sectors(&self, sector_bytes: u32) -> u64 {
        record_sectors(self.payload_bytes as usize, sector_bytes)
    }

    /// The payload of the record that these bytes begin with, if all of its sectors are as they were written. The zeros behind the payload count:
    /// the last sector may have been written over by another record that begins with the same bytes.
    pub(super) fn payload<'a>(&self, bytes: &'a [u8], sector_bytes: u32) -> Option<&'a [u8]> {
        let record_bytes = self.record_sectors(sector_bytes) as usize * sector_bytes as usize;
        let (payload, padding) = bytes
            .get(HEAD_BYTES..record_bytes)?
            .split_at(self.payload_bytes as usize);
        let is_padded = has(Bug::PaddingUnchecked) || padding.iter().all(|&byte| byte == 0);
        (is_padded && self.is_of(payload)).then_some(payload)
    }
}

/// A record as it is written, of whole sectors.
pub(super) fn record(id: u64, age: Age, logical: &Range<u64>, data: &[u8], sector_bytes: u32) -> Vec<u8> {
    let payload = without_zeros(data);
    let mut bytes = Vec::with_capacity(record_sectors(payload.len(), sector_bytes) as usize * sector_bytes as usize);
    bytes.extend(RECORD_MAGIC);
    let length = logical.end - logical.start;
    let numbers = [id, age.incarnation, age.sequence, logical.start, length];
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(sector_bytes as usize), 0);
    bytes
}

/// Makes of a record's bytes those of one that was moved so often.
pub(super) fn set_moves(bytes: &mut [u8], moves: u32) {
    bytes[MOVES_AT..HEAD_CRC_AT].copy_from_slice(&moves.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..HEAD_CRC_AT]);
    bytes[HEAD_CRC_AT..HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Sectors of a record with such a payload.
pub(super) fn record_sectors(payload_bytes: usize, sector_bytes: u32) -> u64 {
    (HEAD_BYTES + payload_bytes).div_ceil(sector_bytes as usize) as u64
}

/// Data without the zeros at its end.
pub(super) fn without_zeros(data: &[u8]) -> &[u8] {
    let end = data.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &data[..end]
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

const _: () = assert!(
    HEADER_BYTES <= HEAD_BYTES && MARKED_BYTES <= super::SECTOR_BYTES_MIN as usize,
    "a sector with room for a record has room for a header"
);

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Age = Age {
        incarnation: 3,
        sequence: 9,
    };

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut data = vec![7; 700];
        data.resize(1024, 0);
        let bytes = record(5, AGE, &(40..42), &data, 512);
        assert_eq!(bytes.len(), 1024, "64 + 700 bytes");
        let head = Head::parse(&bytes, 5).expect("a record");
        assert_eq!((head.age, head.logical.clone(), head.payload_bytes), (AGE, 40..42, 700));
        assert_eq!(head.payload(&bytes, 512), Some(&data[..700]));
        assert_eq!(head.payload(&bytes[..1023], 512), None, "a part of it");
        assert_eq!(Head::parse(&bytes, 6), None, "of another region");
    }

    #[test]
    fn any_bit_of_a_record_counts() {
        let bytes = record(5, AGE, &(40..41), &[7; 100], 512);
        assert_eq!(bytes.len(), 512);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let head = Head::parse(&changed, 5);
            let payload = head.as_ref().and_then(|head| head.payload(&changed, 512));
            assert_eq!(payload, None, "bit {bit}");
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written_or_not_at_all() {
        let plain = Header {
            sector_bytes: 512,
            id: 1,
            incarnation: 2,
            logical_sectors: 3,
            sectors: 4,
            mark: None,
        };
        let (set, tag, previous, base, copies) = (5, 6, 7, 8, 2);
        let marked = Header {
            mark: Some(Mark {
                set,
                tag,
                previous,
                base,
                copies,
            }),
            ..plain
        };
        for header in [plain, marked] {
            let bytes = header.to_sector();
            assert!(matches!(Header::from_sector(&bytes), Ok(Some(read)) if read == header));
            for bit in 0..MARKED_BYTES * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                let read = Header::from_sector(&changed).expect("no other version is whole");
                assert_eq!(read, None, "bit {bit}");
            }
        }
    }
}
