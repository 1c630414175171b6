//! Two sectors that are written anew in their place, on zones.
//!
//! ```text
//!   a conventional zone    sector 0, sector 1
//!   none                   zone A  | block 7 | block 8 | block 9 |     full: block 10 begins zone B, which is reset for it
//!                          zone B  | block 4 | block 5 | block 6 |     block: head (a sector) | sector 0 | sector 1
//! ```
//!
//! A block has both sectors and its number; the one with the highest number counts. Before a zone is reset the other one is flushed, so that a block which
//! was durable, or a newer one, is always there. Behind a block that is not whole nothing is written in that zone: the next one goes to the other.
//!
//! | head | bytes | |
//! |---|---|---|
//! | magic | 8 | `ELBFIXD` and a 1 |
//! | number | 8 | from 1 on |
//! | checksum | 4 | CRC-32 of the 16 bytes above and of both sectors |
//!
//! Integers are little-endian.

use std::ops::Range;

use elbow_file::Errno;
use elbow_file::zoned::{Zone, ZoneState, ZonedStorage};

use super::ZonedError;
use crate::region::HEADER_SECTORS;
use crate::region::planted::{Bug, has};

/// As many as a region has headers.
pub const FIXED_SECTORS: u64 = HEADER_SECTORS;
/// Sectors of a block.
const BLOCK_SECTORS: u64 = 1 + FIXED_SECTORS;
const MAGIC: &[u8; 8] = b"ELBFIXD\x01";
const SUMMED_BYTES: usize = 16;
const HEAD_BYTES: usize = 20;

/// Where the two sectors lie, and what is in them.
#[derive(Debug)]
pub(super) struct Fixed {
    place: Place,
    sector_bytes: usize,
    /// Of both.
    content: Vec<u8>,
}

#[derive(Debug)]
enum Place {
    /// In a conventional zone, from that sector on.
    InPlace(u64),
    Appended(Box<Pair>),
}

/// Two zones that take turns.
#[derive(Debug)]
struct Pair {
    zones: [Zone; 2],
    /// The one with the newest block.
    current: usize,
    /// Whether all that is written there are whole blocks.
    is_whole: bool,
    /// Of the newest block.
    number: u64,
}

impl Fixed {
    /// Finds them; zones that are used for that are taken out of the list.
    pub(super) fn open<Z: ZonedStorage>(storage: &mut Z, zones: &mut Vec<Zone>) -> Result<Self, ZonedError> {
        let read = |errno| {
            let what = "the zones of the headers are read";
            ZonedError::Storage { what, errno }
        };
        let sector_bytes = storage.sector_bytes() as usize;
        let conventional = zones.iter().find(|zone| zone.state == ZoneState::Conventional);
        if let Some(zone) = conventional.filter(|zone| zone.capacity >= FIXED_SECTORS) {
            return Ok(Self {
                place: Place::InPlace(zone.start),
                sector_bytes,
                content: storage.read(zone.start, FIXED_SECTORS).map_err(read)?,
            });
        }
        let has_room = |zone: &Zone| zone.state != ZoneState::Conventional && zone.capacity >= BLOCK_SECTORS;
        let found = zones.len();
        let mut pair = zones.extract_if(.., |zone| has_room(zone));
        let (Some(first), Some(second)) = (pair.next(), pair.next()) else {
            return Err(ZonedError::TooFew { found, needed: 2 });
        };
        drop(pair);
        let mut fixed = Self {
            place: Place::InPlace(0),
            sector_bytes,
            content: vec![0; sector_bytes * FIXED_SECTORS as usize],
        };
        let pair = Pair::find(storage, [first, second], &mut fixed.content).map_err(read)?;
        fixed.place = Place::Appended(Box::new(pair));
        Ok(fixed)
    }

    /// Whether zones are written for them in order.
    pub(super) fn is_appended(&self) -> bool {
        matches!(self.place, Place::Appended(_))
    }

    /// Bytes of some of them.
    pub(super) fn content(&self, sectors: &Range<u64>) -> &[u8] {
        let byte = |sector: u64| sector.min(FIXED_SECTORS) as usize * self.sector_bytes;
        &self.content[byte(sectors.start)..byte(sectors.end)]
    }

    /// Writes some of them; durable with the next flush of the storage.
    pub(super) fn write<Z: ZonedStorage>(&mut self, storage: &mut Z, at: u64, data: &[u8]) -> Result<(), Errno> {
        let from = at as usize * self.sector_bytes;
        let mut content = self.content.clone();
        content[from..from + data.len()].copy_from_slice(data);
        match &mut self.place {
            Place::InPlace(start) => storage.overwrite(*start + at, data)?,
            Place::Appended(pair) => pair.write(storage, &content)?,
        }
        self.content = content;
        Ok(())
    }
}

impl Pair {
    /// Looks for the newest block, whose sectors become the content. A zone that cannot be read any more has none.
    fn find<Z: ZonedStorage>(storage: &mut Z, zones: [Zone; 2], content: &mut [u8]) -> Result<Self, Errno> {
        let sector_bytes = storage.sector_bytes() as usize;
        let mut pair = Self {
            zones,
            current: 0,
            is_whole: true,
            number: 0,
        };
        for index in 0..2 {
            let zone = &pair.zones[index];
            if zone.state == ZoneState::Offline {
                continue;
            }
            let written = zone.written();
            let mut at = written.start;
            while at + BLOCK_SECTORS <= written.end {
                let bytes = storage.read(at, BLOCK_SECTORS)?;
                let Some(number) = number_of(&bytes, sector_bytes) else {
                    break;
                };
                if number > pair.number {
                    (pair.number, pair.current) = (number, index);
                    content.copy_from_slice(&bytes[sector_bytes..]);
                }
                at += BLOCK_SECTORS;
            }
            if pair.current == index {
                pair.is_whole = at == written.end;
            }
        }
        Ok(pair)
    }

    /// Writes both sectors behind the newest block, or into the other zone where that has no room, or fails.
    fn write<Z: ZonedStorage>(&mut self, storage: &mut Z, content: &[u8]) -> Result<(), Errno> {
        self.number += 1;
        let block = block(self.number, content, storage.sector_bytes() as usize);
        let rest = self.zones[self.current].rest();
        if self.is_whole && rest.end - rest.start >= BLOCK_SECTORS {
            match storage.append(&mut self.zones[self.current], &block) {
                Ok(_) => return Ok(()),
                Err(_) => self.is_whole = false, // it may be there in part; the other zone is as good
            }
        }
        self.begin_other(storage, &block)
    }

    fn begin_other<Z: ZonedStorage>(&mut self, storage: &mut Z, block: &[u8]) -> Result<(), Errno> {
        if !has(Bug::HeaderZoneResetEarly) {
            storage.flush()?; // the newest block may be durable in the other zone alone
        }
        // One that is written in part counts, and the device may have no room for one more.
        if self.zones[self.current].state == ZoneState::Open {
            let finished = storage.finish(&mut self.zones[self.current]);
            finished.or_else(|errno| {
                if self.zones[self.current].is_writable() {
                    Err(errno)
                } else {
                    Ok(())
                }
            })?;
        }
        let other = 1 - self.current;
        let zone = &mut self.zones[other];
        if zone.state != ZoneState::Empty {
            storage.reset(zone)?;
        }
        storage.append(zone, block)?;
        // Not before: where that fails, the newest block that is whole is still in the one before.
        (self.current, self.is_whole) = (other, true);
        Ok(())
    }
}

/// The bytes of a block.
fn block(number: u64, content: &[u8], sector_bytes: usize) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend(checksum(&bytes, content).to_le_bytes());
    bytes.resize(sector_bytes, 0);
    bytes.extend(content);
    bytes
}

/// The number of a block; `None` where it is not whole.
fn number_of(bytes: &[u8], sector_bytes: usize) -> Option<u64> {
    let (head, content) = bytes.split_at_checked(sector_bytes)?;
    let (summed, sum) = head.get(..HEAD_BYTES)?.split_at_checked(SUMMED_BYTES)?;
    let is_whole = summed.starts_with(MAGIC) && sum == checksum(summed, content).to_le_bytes();
    let number = summed.last_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes));
    number.filter(|_| is_whole)
}

fn checksum(summed: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(summed);
    hasher.update(content);
    hasher.finalize()
}
