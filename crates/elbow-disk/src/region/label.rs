//! The labels of devices that share a region: what the first sector of each but the first says, so that no other device is taken for it and written over.
//!
//! ```text
//!   magic 8 | id of the region 8 | number of the device 4 | devices 4 | first sector of it 8 | sectors of the region 8 | CRC-32 of these 40 bytes 4
//! ```
//!
//! Integers are little-endian. No record lies there: those sectors are of no place.

use elbow_file::range_device::{Blocking, RangeDevice};

use super::error::RegionError;
use super::format::Header;

const MAGIC: &[u8; 8] = b"ELBPART\x01";

/// Writes them, durably.
pub(super) fn write<D: RangeDevice>(device: &mut Blocking<D>, header: &Header) -> Result<(), RegionError> {
    let labels = all(&device.borders(), header);
    for (first, label) in &labels {
        device.write(*first, label)?;
    }
    match labels.is_empty() {
        true => Ok(()),
        false => Ok(device.flush()?),
    }
}

/// Refuses a device that was not made to share this region, or has another place among the others.
pub(super) fn check<D: RangeDevice>(device: &mut Blocking<D>, header: &Header) -> Result<(), RegionError> {
    for (number, (first, label)) in (2..).zip(all(&device.borders(), header)) {
        let found = device.read(first, 1)?;
        if found != label && !(is_unfinished(header) && is_replaceable(&found, &label)) {
            return Err(RegionError::OtherDevice { number });
        }
    }
    Ok(())
}

/// Whether a copy was being made when a crash came, perhaps before its labels. It is made anew.
fn is_unfinished(header: &Header) -> bool {
    header.mark.is_some_and(|mark| mark.tag == 0)
}

/// Whether nothing was there before, or the label of a copy that lay on these devices.
fn is_replaceable(found: &[u8], label: &[u8]) -> bool {
    let is_blank = found.iter().all(|&byte| byte == 0);
    let is_label = found[..8] == *MAGIC && found[40..44] == crc32fast::hash(&found[..40]).to_le_bytes();
    is_blank || (is_label && found[16..40] == label[16..40])
}

/// Of each device but the first: its first sector, and what that says.
fn all(borders: &[u64], header: &Header) -> Vec<(u64, Vec<u8>)> {
    let is_inside = |first: &u64| *first < header.sectors;
    let firsts: Vec<u64> = borders.iter().copied().filter(is_inside).collect();
    let devices = firsts.len() as u32 + 1;
    let label = |(number, first)| (first, sector(header, [number, devices], first));
    (2..).zip(firsts).map(label).collect()
}

fn sector(header: &Header, numbers: [u32; 2], first: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(header.id.to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.extend(first.to_le_bytes());
    bytes.extend(header.sectors.to_le_bytes());
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes.resize(header.sector_bytes as usize, 0);
    bytes
}
