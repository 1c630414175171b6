//! The write-ahead region (Bark): a log whose writes go where the device is quickest, and a scan that finds the newest of each.
//!
//! ```text
//!   write(logical 40, 2 sectors) ──> record: head | payload ──> write_range(all free places) ──> the device says where
//!   crash ──> scan all places ──> of each logical sector the record with the highest incarnation and sequence number
//! ```
//!
//! A region of some sectors holds an image of logical sectors. Each write is one record, at any free place; the device chooses, so that a
//! write does not wait for a rotation. What always holds:
//!
//! - a write, up to [`RECORD_SECTORS_MAX`] sectors, is found whole after a crash or not at all;
//! - what was written before a [`flush`](Region::flush) that succeeded is found after a crash, or something newer;
//! - nothing older comes back: the place of a superseded record is used again only when what superseded it is durable;
//! - no write finds a region of [`least_sectors`] full, however writes overlap;
//! - after a write or flush that failed the region takes nothing more until the device and it are opened again.
//!
//! [`Copies`] has such an image several times, on several devices. [`Log`] is a log of byte strings on top.
//!
//! Not here: which place is quickest (the device's business), and whoever writes into the device beside the region.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), section 6; it leaves recovery out.
//! Why it is so: `docs/design/region.md`.

#[cfg(test)]
mod case_test;
mod copies;
#[cfg(test)]
mod copies_test;
#[cfg(test)]
mod crash_test;
mod error;
mod format;
#[cfg(test)]
mod full_test;
mod image;
mod label;
mod log;
pub(crate) mod planted;
mod room;
mod scan;
mod slide;
mod sliders;

use std::collections::VecDeque;
use std::ops::Range;

use elbow_file::range_device::{Blocking, Done, RangeDevice, RangeError, Request, Shape, Ticket};
use elbow_ranges::RangeSet;

pub use copies::Copies;
pub use error::{Lsn, RegionError};
pub use format::{HEADER_SECTORS, RECORD_SECTORS_MAX};
pub use log::{ENTRY_HEAD_BYTES, Entries, Log};

use format::{Age, HEAD_BYTES, Head, Header, Mark};
use image::{Image, Record};
use planted::{Bug, has};
use sliders::{Sliders, TRIM_SECTORS};

/// Writes that are outstanding at a time; as many as a drive's queue has (section 4.3 of the paper).
const OUTSTANDING_MAX: usize = 16;
/// A record's head and one byte of payload fit into the smallest sector.
const SECTOR_BYTES_MIN: u32 = 128;

/// How often something was done since the region was opened; lengths in sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Records written for [`Region::write`].
    pub writes: u64,
    /// Records written for [`Region::trim`].
    pub trims: u64,
    /// Sectors of all records, their heads among them.
    pub sectors: u64,
    /// Flushes that the caller asked for and the device was asked for.
    pub flushes: u64,
    /// Flushes because no free place was left: for superseded ones, or before records are moved.
    pub forced_flushes: u64,
    /// Records that were written anew elsewhere, because no free place was left.
    pub moved: u64,
    /// Records that the scan took when the region was opened, superseded ones among them.
    pub found: u64,
    /// Heads of records that the scan found without their whole payload: torn, written over in part, or damaged while the region was closed.
    pub torn: u64,
}

/// What a header says of a region, without a look at its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Sectors of the image; 2^48 of a [`Log`].
    pub logical_sectors: u64,
    /// Sectors of the device that it was made on.
    pub sectors: u64,
    /// Bytes of a sector.
    pub sector_bytes: u32,
    /// How often it was opened.
    pub incarnation: u64,
    /// As how many [`Copies`] it was made; 1 for one that is whole by itself.
    pub copies: u32,
}

/// What is said of a region on a device, if one is there; nothing is written. The device may be larger than the one that it was made on.
///
/// ```
/// use elbow_disk::region::{Region, probe};
/// use elbow_file::range_device::MemoryDevice;
///
/// let mut device = MemoryDevice::new(512, 1000);
/// assert_eq!(probe(&mut device)?, None);
/// drop(Region::format(&mut device, 300, 7)?);
/// assert_eq!(probe(&mut device)?.map(|region| region.logical_sectors), Some(300));
/// # Ok::<(), elbow_disk::region::RegionError>(())
/// ```
///
/// # Errors
/// [`RegionError::Version`], [`RegionError::TooSmall`], [`RegionError::OtherDevice`]; those of reading.
pub fn probe<D: RangeDevice>(device: D) -> Result<Option<Identity>, RegionError> {
    let newest = scan::checked_header(&mut taken_over(device)?)?;
    Ok(newest.map(|(header, _)| Identity {
        logical_sectors: header.logical_sectors,
        sectors: header.sectors,
        sector_bytes: header.sector_bytes,
        incarnation: header.incarnation,
        copies: header.mark.map_or(1, |mark| mark.copies),
    }))
}

/// The fewest sectors of a device on which a region takes any writes of its logical sectors, however they overlap: [`least_sectors_shared`] by one device.
///
/// ```
/// assert_eq!(elbow_disk::region::least_sectors(1000), 2774);
/// ```
#[must_use]
pub fn least_sectors(logical_sectors: u64) -> u64 {
    least_sectors_shared(logical_sectors, 1)
}

/// The fewest sectors of all devices together on which a region that they share takes any writes of its logical sectors: the headers, two sectors for each
/// that was written alone, and on each device room for three of the longest records. With no more than these most writes may have to move others; a region
/// with fewer may find itself [`Full`](RegionError::Full).
///
/// ```
/// assert_eq!(elbow_disk::region::least_sectors_shared(1000, 2), 2774 + 772);
/// ```
#[must_use]
pub fn least_sectors_shared(logical_sectors: u64, devices: u64) -> u64 {
    let borders = devices.saturating_sub(1);
    sliders::places_needed(logical_sectors, devices).saturating_add(HEADER_SECTORS + borders)
}

/// A region on a device. See the [module](self) for what holds.
///
/// ```
/// use elbow_disk::region::Region;
/// use elbow_file::range_device::MemoryDevice;
///
/// let mut device = MemoryDevice::new(512, 1000);
/// let mut region = Region::format(&mut device, 300, 7)?; // 300 logical sectors in 1000
/// region.write(40, &[1; 1024])?;
/// region.write(41, &[2; 512])?;
/// region.flush()?;
///
/// let mut region = Region::open(&mut device)?; // a scan
/// assert_eq!(region.read(40, 3)?, [[1; 512], [2; 512], [0; 512]].concat());
/// assert_eq!(region.statistics().found, 2);
/// # Ok::<(), elbow_disk::region::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Region<D> {
    device: Blocking<D>,
    header: Header,
    /// Of the next record; from 0 on in each incarnation.
    sequence: u64,
    image: Image,
    sliders: Sliders,
    /// Outstanding, the oldest first; at most [`OUTSTANDING_MAX`].
    outstanding: VecDeque<(Ticket, Record)>,
    is_flushed: bool,
    /// A flush of the device that is not waited for yet.
    flushing: Option<Ticket>,
    failed: Option<RangeError>,
    statistics: Statistics,
    /// What was written there last the scan found torn or damaged.
    doubtful: RangeSet,
}

impl<D: RangeDevice> Region<D> {
    /// Makes an empty region of a whole device, for so many logical sectors; all of them are zeros. What the device held is lost.
    ///
    /// `id` tells the records of this region from those of an earlier one on the same device: a random number. Where that one's header is still
    /// there its id goes into it, so that the same number does no harm.
    ///
    /// # Errors
    /// [`RegionError::TooSmall`] for a device on which no record fits; [`RegionError::Zones`]; those of the device.
    pub fn format(device: D, logical_sectors: u64, id: u64) -> Result<Self, RegionError> {
        Self::format_copy(device, logical_sectors, id, None)
    }

    /// The same of one that is a copy among others, if it has a mark.
    fn format_copy(device: D, logical_sectors: u64, id: u64, mark: Option<Mark>) -> Result<Self, RegionError> {
        let mut device = taken_over(device)?;
        check_zones(&device, logical_sectors)?;
        let Shape { sector_bytes, sectors } = device.shape();
        // One that cannot be read, or not be understood, is no reason not to make a new one.
        let earlier = scan::newest_header(&mut device).ok().flatten();
        let header = Header {
            sector_bytes,
            id: earlier.map_or(id, |(earlier, _)| earlier.id.wrapping_add(id | 1)),
            incarnation: 0,
            logical_sectors,
            sectors,
            mark,
        };
        (0..HEADER_SECTORS).try_for_each(|copy| device.write(copy, &header.to_sector()))?;
        device.flush()?;
        // Behind the header: it says what is being made here, if this ends in between.
        label::write(&mut device, &header)?;
        let borders = device.borders();
        Ok(Self::with(
            device,
            header,
            Image::new(HEADER_SECTORS..sectors, &borders),
        ))
    }

    /// Finds the newest image on a device, by reading all of it. What it found is durable then. What was outstanding on the device is waited for.
    ///
    /// After a failure the *device* has to be opened again before: the memory of the system may hold writes that its medium does not.
    ///
    /// # Errors
    /// [`RegionError::NoRegion`], [`RegionError::Version`], [`RegionError::Incarnation`], [`RegionError::Shape`], [`RegionError::OtherDevice`] and
    /// [`RegionError::TooSmall`] for what is no region of this device; [`RegionError::Copy`] for one of several copies; those of the device: a sector that cannot be read is an error, since what it held may be the newest.
    pub fn open(device: D) -> Result<Self, RegionError> {
        let mut device = taken_over(device)?;
        let (header, copy) = scan::header(&mut device)?;
        match header.mark {
            Some(Mark { copies, .. }) => Err(RegionError::Copy { copies }),
            None => Self::recover(device, &header, copy),
        }
    }

    /// The same of one that is a copy among others.
    fn open_copy(device: D) -> Result<Self, RegionError> {
        let mut device = taken_over(device)?;
        let (header, copy) = scan::header(&mut device)?;
        Self::recover(device, &header, copy)
    }

    /// By the header, of which that copy was read.
    fn recover(mut device: Blocking<D>, header: &Header, copy: u64) -> Result<Self, RegionError> {
        check_zones(&device, header.logical_sectors)?;
        let scan::Found {
            image,
            incarnation,
            records,
            torn,
            doubtful,
        } = scan::records(&mut device, header)?;
        let incarnation = incarnation + 1;
        let header = Header { incarnation, ..*header };
        let mut region = Self::with(device, header, image);
        // The copy that was read stays until the other is durable. Then both are new, so that either is enough.
        region.write_headers(HEADER_SECTORS - 1 - copy)?;
        (region.statistics.found, region.statistics.torn) = (records, torn);
        region.doubtful = doubtful;
        Ok(region)
    }

    /// Writes both copies of the header, this one first, each durably.
    fn write_headers(&mut self, first: u64) -> Result<(), RegionError> {
        for copy in [first, HEADER_SECTORS - 1 - first] {
            self.device.write(copy, &self.header.to_sector())?;
            // What a process that died had left in a cache must not be lost once it is read.
            if !has(Bug::NoFlushAfterScan) {
                self.device.flush()?;
            }
        }
        Ok(())
    }

    fn with(device: Blocking<D>, header: Header, mut image: Image) -> Self {
        let places = HEADER_SECTORS..header.sectors;
        let sliders = Sliders::new(&mut image, header.logical_sectors, &places);
        Self {
            device,
            header,
            sequence: 0,
            image,
            sliders,
            outstanding: VecDeque::new(),
            is_flushed: true,
            flushing: None,
            failed: None,
            statistics: Statistics::default(),
            doubtful: RangeSet::default(),
        }
    }

    /// Writes whole sectors from a logical sector on. It is found by whoever reads from now on, and after a crash when a
    /// [`flush`](Self::flush) has succeeded. Up to [`RECORD_SECTORS_MAX`] sectors are found whole after a crash or not at all; more are
    /// several writes.
    ///
    /// The device may still be busy with it on return; what comes of it is told by a later call, at the latest by the flush.
    ///
    /// # Errors
    /// [`RegionError::Length`], [`RegionError::Outside`]; [`RegionError::Full`] with fewer than [`least_sectors`], and then no logical sector was changed (of several writes the first
    /// may be done; records may lie elsewhere than before); [`RegionError::Failed`] after a failure; those of the device.
    pub fn write(&mut self, at: u64, data: &[u8]) -> Result<(), RegionError> {
        self.check_write(at, data)?;
        for (at, data) in records(at, data, self.header.sector_bytes) {
            self.write_record(at, data)?;
        }
        Ok(())
    }

    fn check_write(&self, at: u64, data: &[u8]) -> Result<(), RegionError> {
        let sector_bytes = self.header.sector_bytes as usize;
        if data.is_empty() || !data.len().is_multiple_of(sector_bytes) {
            return Err(RegionError::Length {
                bytes: data.len() as u64,
                allowed: format!("whole sectors of {sector_bytes} bytes"),
            });
        }
        self.check_place(at, (data.len() / sector_bytes) as u64)
    }

    fn write_record(&mut self, at: u64, data: &[u8]) -> Result<(), RegionError> {
        let sectors = data.len() as u64 / u64::from(self.header.sector_bytes);
        self.put(at..at + sectors, data, TRIM_SECTORS)?;
        self.statistics.writes += 1;
        Ok(())
    }

    /// Reads logical sectors; those that were never written or were trimmed are zeros.
    ///
    /// # Errors
    /// [`RegionError::Outside`]; [`RegionError::Damaged`] for a record that is not whole any more; those of the device.
    ///
    /// # Panics
    /// Where the sectors do not fit into memory.
    pub fn read(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>, RegionError> {
        self.check_place(at, sectors)?;
        self.settle()?;
        let sector_bytes = u64::from(self.header.sector_bytes);
        let bytes = |sectors: u64| usize::try_from(sectors * sector_bytes).expect("it fits into memory");
        let mut data = vec![0; bytes(sectors)];
        let pieces: Vec<_> = self.image.pieces(&(at..at + sectors)).collect();
        for (range, record) in pieces {
            let to = bytes(range.start - at)..bytes(range.end - at);
            let payload = self.read_piece(record, &range)?;
            data[to][..payload.len()].copy_from_slice(&payload);
        }
        Ok(data)
    }

    /// Makes logical sectors zeros, and frees the places that held them at the next flush. It counts as a write, which is found after a crash when
    /// a flush has succeeded; where all is zeros already nothing is written. One sector is kept free for it where writes find the region full.
    ///
    /// # Errors
    /// Those of [`write`](Self::write).
    pub fn trim(&mut self, range: Range<u64>) -> Result<(), RegionError> {
        self.check_place(range.start, range.end.saturating_sub(range.start))?;
        self.settle()?;
        if self.image.has_data(&range) {
            // Trims side by side are one record, so that a log cut again and again has one.
            let range = self.image.with_zeros_around(&range);
            self.put(range, &[], 0)?;
            self.statistics.trims += 1;
        }
        Ok(())
    }

    /// Makes all that was written and trimmed durable: a crash leaves it, or something newer.
    ///
    /// # Errors
    /// What a write since the last flush came to, or the flush itself; then any of those writes may be found after a crash or not.
    pub fn flush(&mut self) -> Result<(), RegionError> {
        self.start_flush()?;
        self.finish_flush()
    }

    /// Asks the device for a flush, which [`finish_flush`](Self::finish_flush) waits for.
    fn start_flush(&mut self) -> Result<(), RegionError> {
        self.settle()?;
        self.check_not_failed()?;
        if self.is_flushed {
            return Ok(());
        }
        self.statistics.flushes += 1;
        if !has(Bug::EarlyFlush) {
            let ticket = self.device.submit(Request::Flush).map_err(|error| self.fail(error))?;
            self.flushing = Some(ticket);
        }
        Ok(())
    }

    fn finish_flush(&mut self) -> Result<(), RegionError> {
        self.check_not_failed()?;
        if let Some(ticket) = self.flushing.take() {
            self.device.wait_for(ticket).map_err(|error| self.fail(error))?;
        }
        self.is_flushed = true;
        self.image.durable();
        Ok(())
    }

    /// Logical sectors of the region.
    #[must_use]
    pub fn logical_sectors(&self) -> u64 {
        self.header.logical_sectors
    }

    /// Bytes of a sector.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        self.header.sector_bytes
    }

    /// Sectors of the device on which the next record could go, without a flush; the last of them is for a trim alone, or for moving records. What is
    /// always kept for moving does not count.
    #[must_use]
    pub fn free_sectors(&self) -> u64 {
        let outstanding: u64 = self.outstanding.iter().map(|(_, record)| record.sectors).sum();
        self.image.free().total_bytes().saturating_sub(outstanding)
    }

    /// Records that hold something of the image, outstanding ones not counted.
    #[must_use]
    pub fn live_records(&self) -> usize {
        self.image.records()
    }

    /// What was done since the region was opened.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Of the write or flush that failed, if one has.
    #[must_use]
    pub fn failure(&self) -> Option<&RangeError> {
        self.failed.as_ref()
    }

    /// The device below, for its clock or its counts. Nobody else may write to it.
    pub fn device(&mut self) -> &mut D {
        self.device.device()
    }

    /// Sees to it that a record of such data has a place, and that so many sectors are left free.
    fn prepare(&mut self, data: &[u8], kept: u64) -> Result<(), RegionError> {
        self.check_not_failed()?;
        self.make_room(self.record_sectors(data), kept)
    }

    /// The same for a trim, where one writes something.
    fn prepare_trim(&mut self, range: &Range<u64>) -> Result<(), RegionError> {
        self.settle()?;
        match self.image.has_data(range) {
            true => self.prepare(&[], 0),
            false => Ok(()),
        }
    }

    /// Writes one record, at any free place, and leaves so many free sectors.
    fn put(&mut self, logical: Range<u64>, data: &[u8], kept: u64) -> Result<(), RegionError> {
        self.prepare(data, kept)?;
        let free = self.image.free().clone();
        self.submit(&free, logical, data)
    }

    fn submit(&mut self, targets: &RangeSet, logical: Range<u64>, data: &[u8]) -> Result<(), RegionError> {
        let Header {
            id,
            sector_bytes,
            incarnation,
            ..
        } = self.header;
        let sequence = self.sequence;
        let bytes = format::record(id, Age { incarnation, sequence }, &logical, data, sector_bytes);
        let sectors = bytes.len() as u64 / u64::from(sector_bytes);
        let request = Request::WriteRange {
            targets,
            alignment: 1,
            data: &bytes,
        };
        let ticket = self.device.submit(request)?;
        let payload_bytes = format::without_zeros(data).len() as u32;
        self.outstanding
            .push_back((ticket, Record::new(logical, sectors, payload_bytes)));
        self.sequence += 1;
        self.is_flushed = false;
        self.statistics.sectors += sectors;
        Ok(())
    }

    /// Waits for the oldest write that is outstanding. In their order, since the later one is the newer.
    fn settle_oldest(&mut self) -> Result<(), RegionError> {
        let Some((ticket, record)) = self.outstanding.pop_front() else {
            return Ok(());
        };
        match self.device.wait_for(ticket) {
            Ok(Done::Written(place)) => self.image.add(place.start, record),
            Ok(other) => panic!("a write gave {other:?}"),
            Err(error) => return Err(self.fail(error)),
        }
        Ok(())
    }

    /// Waits for all writes that are outstanding.
    fn settle(&mut self) -> Result<(), RegionError> {
        let mut result = Ok(());
        while !self.outstanding.is_empty() {
            result = result.and(self.settle_oldest());
        }
        result
    }

    fn make_durable(&mut self) -> Result<(), RegionError> {
        self.check_not_failed()?;
        if !self.is_flushed && !has(Bug::EarlyFlush) {
            self.device.flush().map_err(|error| self.fail(error))?;
        }
        self.is_flushed = true;
        self.image.durable();
        Ok(())
    }

    /// What a piece of a record holds, without zeros at its end.
    fn read_piece(&mut self, at: u64, piece: &Range<u64>) -> Result<Vec<u8>, RegionError> {
        let record = self.image.record(at).clone();
        if record.payload_bytes == 0 {
            return Ok(Vec::new());
        }
        let (_, bytes) = self.whole_record(at)?;
        let payload = &bytes[HEAD_BYTES..][..record.payload_bytes as usize];
        let byte = |sector: u64| ((sector - record.logical.start) * u64::from(self.header.sector_bytes)) as usize;
        let part = byte(piece.start).min(payload.len())..byte(piece.end).min(payload.len());
        Ok(payload[part].to_vec())
    }

    /// Reads a record of the image.
    fn whole_record(&mut self, at: u64) -> Result<(Head, Vec<u8>), RegionError> {
        let record = self.image.record(at).clone();
        let bytes = self.device.read(at, record.sectors)?;
        let is_whole = |head: &Head| {
            head.logical == record.logical
                && head.payload_bytes == record.payload_bytes
                && head.payload(&bytes, self.header.sector_bytes).is_some()
        };
        let head = Head::parse(&bytes, self.header.id).filter(is_whole);
        Ok((head.ok_or(RegionError::Damaged { at })?, bytes))
    }

    fn record_sectors(&self, data: &[u8]) -> u64 {
        format::record_sectors(format::without_zeros(data).len(), self.header.sector_bytes)
    }

    fn check_place(&self, at: u64, sectors: u64) -> Result<(), RegionError> {
        let logical_sectors = self.header.logical_sectors;
        match at.checked_add(sectors).is_some_and(|end| end <= logical_sectors) {
            true => Ok(()),
            false => Err(RegionError::Outside {
                at,
                sectors,
                logical_sectors,
            }),
        }
    }

    fn check_not_failed(&self) -> Result<(), RegionError> {
        self.failed
            .clone()
            .map_or(Ok(()), |error| Err(RegionError::Failed(error)))
    }

    fn fail(&mut self, error: RangeError) -> RegionError {
        self.failed.get_or_insert_with(|| error.clone());
        RegionError::Device(error)
    }
}

/// The records that a write of whole sectors becomes, with their first sectors.
fn records(at: u64, data: &[u8], sector_bytes: u32) -> impl Iterator<Item = (u64, &[u8])> {
    let records = data.chunks(RECORD_SECTORS_MAX as usize * sector_bytes as usize);
    (at..).step_by(RECORD_SECTORS_MAX as usize).zip(records)
}

/// Refuses what moves records where zones are freed as a whole.
fn check_zones<D: RangeDevice>(device: &Blocking<D>, logical_sectors: u64) -> Result<(), RegionError> {
    let has_zones = device.room_in_zones(&RangeSet::new()).is_some();
    match has_zones && logical_sectors != format::LOG_SECTORS {
        true => Err(RegionError::Zones { logical_sectors }),
        false => Ok(()),
    }
}

/// A device that is large enough and on which nothing is outstanding: a scan would miss that.
fn taken_over<D: RangeDevice>(mut device: D) -> Result<Blocking<D>, RegionError> {
    let Shape { sector_bytes, sectors } = device.shape();
    let needed = HEADER_SECTORS + 2;
    if sectors < needed || sector_bytes < SECTOR_BYTES_MIN {
        return Err(RegionError::TooSmall {
            needed,
            sectors,
            sector_bytes,
        });
    }
    while device.wait().is_some() {}
    Ok(Blocking::new(device))
}
