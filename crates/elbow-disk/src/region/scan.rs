//! What a crash left: the header, and the newest record of each logical sector.
//!
//! Each sector is looked at as the first of a record, but those within a whole record: what is in there was written as data.

use std::ops::Range;

use elbow_file::range_device::{Blocking, RangeDevice};
use elbow_ranges::RangeSet;

use super::error::RegionError;
use super::format::{HEADER_SECTORS, Head, Header, INCARNATIONS, RECORD_SECTORS_MAX};
use super::image::{Image, Record};
use super::label;
use super::planted::{Bug, has};

/// Sectors read at a time; more than a record has.
const WINDOW_SECTORS: u64 = 1024;
const _: () = assert!(WINDOW_SECTORS > RECORD_SECTORS_MAX + 1);

/// By what records are put into the image: incarnation, sequence number, and how often it was moved.
type Order = (u64, u64, u32);

/// What a scan found.
pub(super) struct Found {
    pub(super) image: Image,
    /// The highest of the header and of all heads of records.
    pub(super) incarnation: u64,
    /// Whole records, superseded ones among them.
    pub(super) records: u64,
    /// Heads without their whole payload.
    pub(super) torn: u64,
    /// Logical sectors of such heads that no later record covers: what was written there last is torn, or damaged.
    pub(super) doubtful: RangeSet,
}

/// The newer copy of the header, and the sector that has it.
pub(super) fn header<D: RangeDevice>(device: &mut Blocking<D>) -> Result<(Header, u64), RegionError> {
    let (header, copy) = newest_header(device)?.ok_or(RegionError::NoRegion)?;
    let found = device.shape();
    let is_made_here = header.sector_bytes == found.sector_bytes && header.sectors == found.sectors;
    if !is_made_here {
        return Err(RegionError::Shape {
            made: header.sectors,
            made_bytes: header.sector_bytes,
            found: found.sectors,
            found_bytes: found.sector_bytes,
        });
    }
    label::check(device, &header)?;
    match header.incarnation < INCARNATIONS {
        true => Ok((header, copy)),
        false => Err(RegionError::Incarnation {
            found: header.incarnation,
        }),
    }
}

/// What the newer copy says, of whatever device, and the sector that has it.
pub(super) fn newest_header<D: RangeDevice>(device: &mut Blocking<D>) -> Result<Option<(Header, u64)>, RegionError> {
    let mut newest: Option<(Header, u64)> = None;
    for copy in 0..HEADER_SECTORS.min(device.shape().sectors) {
        let found = Header::from_sector(&device.read(copy, 1)?)?.map(|header| (header, copy));
        newest = newest
            .into_iter()
            .chain(found)
            .max_by_key(|(header, _)| header.incarnation);
    }
    Ok(newest)
}

/// The same, of devices that were made to share that region.
pub(super) fn checked_header<D: RangeDevice>(device: &mut Blocking<D>) -> Result<Option<(Header, u64)>, RegionError> {
    let newest = newest_header(device)?;
    if let Some((header, _)) = &newest {
        label::check(device, header)?;
    }
    Ok(newest)
}

/// The image that the records make; all places without a newest record are free.
pub(super) fn records<D: RangeDevice>(device: &mut Blocking<D>, header: &Header) -> Result<Found, RegionError> {
    let mut scan = Scan {
        window: Vec::new(),
        first: 0,
        header,
        incarnation: header.incarnation,
        torn: Vec::new(),
        impossible: 0,
    };
    let mut records = Vec::new();
    let mut at = HEADER_SECTORS;
    while at < header.sectors {
        scan.read_ahead(device, at)?;
        match scan.record_at(at) {
            Some((order, record)) => {
                let next = at + record.sectors;
                records.push((order, at, record));
                at = next;
            }
            None => at += 1,
        }
    }
    Ok(found(records, scan, &device.borders()))
}

fn found(mut records: Vec<(Order, u64, Record)>, scan: Scan<'_>, borders: &[u64]) -> Found {
    if !has(Bug::NoSequence) {
        records.sort_unstable_by_key(|&(order, ..)| order);
    }
    let count = records.len() as u64;
    let torn = scan.torn.len() as u64 + scan.impossible;
    let doubtful = doubtful(&records, scan.torn);
    let mut image = Image::new(HEADER_SECTORS..scan.header.sectors, borders);
    records.into_iter().for_each(|(_, at, record)| image.add(at, record));
    image.durable();
    Found {
        image,
        incarnation: scan.incarnation,
        records: count,
        torn,
        doubtful,
    }
}

/// What torn heads say of sectors that no whole record of a later order does; records in order.
fn doubtful(records: &[(Order, u64, Record)], mut torn: Vec<(Order, Range<u64>)>) -> RangeSet {
    torn.sort_unstable_by_key(|&(order, _)| order);
    let (mut torn, mut doubtful) = (torn.into_iter().peekable(), RangeSet::default());
    for (order, _, record) in records {
        while let Some((_, logical)) = torn.next_if(|(of_torn, _)| of_torn < order) {
            doubtful.insert(logical.start, logical.end);
        }
        doubtful.remove(record.logical.start, record.logical.end);
    }
    torn.for_each(|(_, logical)| doubtful.insert(logical.start, logical.end));
    doubtful
}

struct Scan<'a> {
    window: Vec<u8>,
    /// First sector in the window.
    first: u64,
    header: &'a Header,
    /// The highest so far.
    incarnation: u64,
    torn: Vec<(Order, Range<u64>)>,
    /// Heads that nobody has written.
    impossible: u64,
}

impl Scan<'_> {
    fn sector_bytes(&self) -> usize {
        self.header.sector_bytes as usize
    }

    /// Reads on where the longest record at a place could end outside the window.
    fn read_ahead<D: RangeDevice>(&mut self, device: &mut Blocking<D>, at: u64) -> Result<(), RegionError> {
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
    fn record_at(&mut self, at: u64) -> Option<(Order, Record)> {
        let bytes = &self.window[(at - self.first) as usize * self.sector_bytes()..];
        let head = Head::parse(bytes, self.header.id)?;
        let sector_bytes = self.header.sector_bytes;
        let payload = head.payload(bytes, sector_bytes);
        if !self.is_possible(&head) {
            self.impossible += 1;
            return None;
        }
        self.incarnation = self.incarnation.max(head.age.incarnation); // of torn ones too: none has the same age again
        if payload.is_none() {
            self.torn.push((head.order(), head.logical));
            return None;
        }
        let sectors = head.record_sectors(sector_bytes);
        Some((head.order(), Record::new(head.logical, sectors, head.payload_bytes)))
    }

    fn is_possible(&self, head: &Head) -> bool {
        let sectors = u64::from(head.payload_bytes).div_ceil(u64::from(self.header.sector_bytes));
        let length = head.logical.end - head.logical.start;
        let is_trim = head.payload_bytes == 0;
        length > 0
            && head.logical.end <= self.header.logical_sectors
            && sectors <= length
            && (is_trim || length <= RECORD_SECTORS_MAX)
            // One copy of the header may be damaged and the other one behind.
            && head.age.incarnation <= self.header.incarnation + 1
    }
}
