//! What a crash left: the header, and the newest record of each logical sector.
//!
//! Each sector is looked at as the first of a record, but those within a whole record: what is in there was written as data.

use elbow_file::range_device::{Blocking, RangeDevice};

use super::error::RegionError;
use super::format::{Age, HEAD_BYTES, HEADER_SECTORS, Head, Header, RECORD_SECTORS_MAX, record_sectors};
use super::image::{Image, Record};
use super::planted::{Bug, has};

/// Sectors read at a time; more than a record has.
const WINDOW_SECTORS: u64 = 1024;
const _: () = assert!(WINDOW_SECTORS > RECORD_SECTORS_MAX + 1);

/// What a scan found.
pub(super) struct Found {
    pub(super) image: Image,
    /// For the next record.
    pub(super) sequence: u64,
    /// Whole records, superseded ones among them.
    pub(super) records: u64,
    /// Heads without their whole payload.
    pub(super) torn: u64,
}

/// The newer copy of the header.
pub(super) fn header<D: RangeDevice>(device: &mut Blocking<D>) -> Result<Header, RegionError> {
    let shape = device.shape();
    let mut newest: Option<Header> = None;
    for copy in 0..HEADER_SECTORS.min(shape.sectors) {
        let found = Header::from_sector(&device.read(copy, 1)?)?;
        newest = newest.into_iter().chain(found).max_by_key(|header| header.incarnation);
    }
    let header = newest.ok_or(RegionError::NoRegion)?;
    let is_made_here = header.sector_bytes == shape.sector_bytes && header.sectors == shape.sectors;
    match is_made_here {
        true => Ok(header),
        false => Err(RegionError::Shape {
            made: header.sectors,
            made_bytes: header.sector_bytes,
            found: shape.sectors,
            found_bytes: shape.sector_bytes,
        }),
    }
}

/// The image that the records make; all places without a newest record are free.
pub(super) fn records<D: RangeDevice>(device: &mut Blocking<D>, header: &Header) -> Result<Found, RegionError> {
    let mut scan = Scan {
        window: Vec::new(),
        first: 0,
        header,
        torn: 0,
    };
    let mut records = Vec::new();
    let mut at = HEADER_SECTORS;
    while at < header.sectors {
        scan.see(device, at)?;
        match scan.record_at(at) {
            Some((age, record)) => {
                let next = at + record.sectors;
                records.push((age, at, record));
                at = next;
            }
            None => at += 1,
        }
    }
    let torn = scan.torn;
    Ok(found(records, header, torn))
}

fn found(mut records: Vec<(Age, u64, Record)>, header: &Header, torn: u64) -> Found {
    if !has(Bug::NoSequence) {
        records.sort_unstable_by_key(|&(age, ..)| age);
    }
    let sequence = records.iter().map(|(age, ..)| age.sequence + 1).max().unwrap_or(0);
    let count = records.len() as u64;
    let mut image = Image::new(HEADER_SECTORS..header.sectors);
    records.into_iter().for_each(|(_, at, record)| image.add(at, record));
    image.durable();
    Found {
        image,
        sequence,
        records: count,
        torn,
    }
}

struct Scan<'a> {
    window: Vec<u8>,
    /// First sector in the window.
    first: u64,
    header: &'a Header,
    torn: u64,
}

impl Scan<'_> {
    fn sector_bytes(&self) -> usize {
        self.header.sector_bytes as usize
    }

    /// Reads on where the longest record at a place could end outside the window.
    fn see<D: RangeDevice>(&mut self, device: &mut Blocking<D>, at: u64) -> Result<(), RegionError> {
        let end = self.first + (self.window.len() / self.sector_bytes()) as u64;
        let needed = (at + RECORD_SECTORS_MAX + 1).min(self.header.sectors);
        if end < needed {
            let sectors = WINDOW_SECTORS.min(self.header.sectors - at);
            self.window = device.read(at, sectors)?;
            self.first = at;
        }
        Ok(())
    }

    /// The record that begins at a place, if it is whole.
    fn record_at(&mut self, at: u64) -> Option<(Age, Record)> {
        let bytes = &self.window[(at - self.first) as usize * self.sector_bytes()..];
        let head = Head::parse(bytes, self.header.id)?;
        let payload = bytes[HEAD_BYTES..].get(..head.payload_bytes as usize);
        let is_whole = payload.is_some_and(|payload| head.is_of(payload)) && self.is_possible(&head);
        if !is_whole {
            self.torn += 1;
            return None;
        }
        let sectors = record_sectors(head.payload_bytes as usize, self.header.sector_bytes);
        Some((head.age, Record::new(head.logical, sectors, head.payload_bytes)))
    }

    fn is_possible(&self, head: &Head) -> bool {
        let sectors = u64::from(head.payload_bytes).div_ceil(u64::from(self.header.sector_bytes));
        let length = head.logical.end - head.logical.start;
        length > 0
            && head.logical.end <= self.header.logical_sectors
            && sectors <= length.min(RECORD_SECTORS_MAX)
            && head.age.incarnation <= self.header.incarnation
            && head.age.sequence < u64::MAX
    }
}
