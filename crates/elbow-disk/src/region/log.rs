//! A log of byte strings on a region.
//!
//! ```text
//!   logical sectors   0 ......... start | entry | entry | entry |  end  nothing
//!                     one trim                  one record each
//! ```
//!
//! An entry is one record, in as many logical sectors as it needs; its LSN is the first. The addresses only rise: a log of 2^48 sectors does not
//! come to its end. Entries are found after a crash up to the first that is missing. What lies behind is trimmed durably before anything is
//! appended, so that an entry which was not there once does not come back behind new ones. New ones go behind what was trimmed; so an address without
//! any record is that of an entry that was lost, and one with zeros is passed by.

use elbow_file::range_device::RangeDevice;

use super::error::Lsn;
use super::format::{LOG_SECTORS, RECORD_SECTORS_MAX};
use super::planted::{Bug, has};
use super::{Copies, Region, RegionError, Statistics};

/// Bytes in front of each entry, in its record.
pub const ENTRY_HEAD_BYTES: usize = 16;
const ENTRY_MAGIC: &[u8; 4] = b"ELBE";

/// A log.
///
/// ```
/// use elbow_disk::region::Log;
/// use elbow_file::range_device::MemoryDevice;
///
/// let mut device = MemoryDevice::new(512, 1000);
/// let mut log = Log::format(&mut device, 7)?;
/// let first = log.append(b"debit 5")?;
/// let second = log.append(b"credit 5")?;
/// log.sync()?;
/// log.truncate_before(second)?;
///
/// let mut log = Log::open(&mut device)?;
/// let entries: Result<Vec<_>, _> = log.iter_from(first).collect();
/// assert_eq!(entries?, [(second, b"credit 5".to_vec())]);
/// # Ok::<(), elbow_disk::region::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Log<D> {
    region: Copies<D>,
    start: u64,
    end: u64,
}

/// Entries of a log in order; see [`Log::iter_from`].
#[derive(Debug)]
pub struct Entries<'a, D> {
    log: &'a mut Log<D>,
    at: u64,
    is_begun: bool,
}

impl<D: RangeDevice> Log<D> {
    /// Makes an empty log of a whole device; what that held is lost. `id` is a random number.
    ///
    /// # Errors
    /// Those of [`Region::format`].
    pub fn format(device: D, id: u64) -> Result<Self, RegionError> {
        Self::format_copies(vec![device], id)
    }

    /// Makes an empty log with a copy on each device, so that each has all that was synced; see [`Copies`].
    ///
    /// # Errors
    /// Those of [`Copies::format`].
    ///
    /// # Panics
    /// Without devices.
    pub fn format_copies(devices: Vec<D>, id: u64) -> Result<Self, RegionError> {
        let region = Copies::format(devices, LOG_SECTORS, id)?;
        Ok(Self {
            region,
            start: 0,
            end: 0,
        })
    }

    /// Finds the entries on a device: all that was there at the last [`sync`](Self::sync), and what was appended since up to the first entry that
    /// is missing.
    ///
    /// # Errors
    /// Those of [`Region::open`]; [`RegionError::NoLog`] for a region that is none.
    pub fn open(device: D) -> Result<Self, RegionError> {
        Self::open_copies(vec![Some(device)], 0)
    }

    /// Finds the entries on the devices of all copies; `None` stands for one that is not there. `tag` is a random number.
    ///
    /// # Errors
    /// Those of [`Copies::open`]; [`RegionError::NoLog`] for a region that is none.
    pub fn open_copies(devices: Vec<Option<D>>, tag: u64) -> Result<Self, RegionError> {
        let region = Copies::open(devices, tag)?;
        let logical_sectors = region.logical_sectors();
        if logical_sectors != LOG_SECTORS {
            return Err(RegionError::NoLog { logical_sectors });
        }
        let start = region.first().zeros_from_0();
        let mut log = Self {
            region,
            start,
            end: start,
        };
        while let Some((_, next)) = log.entry(log.end)? {
            log.end = log.behind_zeros(next);
        }
        log.cut_tail()?;
        Ok(log)
    }

    /// Appends an entry, which is durable when a [`sync`](Self::sync) has succeeded.
    ///
    /// # Errors
    /// [`RegionError::Length`] for more than [`entry_bytes_max`](Self::entry_bytes_max); [`RegionError::Full`]: truncate first; those of
    /// [`Region::write`].
    pub fn append(&mut self, entry: &[u8]) -> Result<Lsn, RegionError> {
        let (bytes, most) = (entry.len() as u64, self.entry_bytes_max());
        if bytes > most {
            let allowed = format!("an entry has at most {most} bytes");
            return Err(RegionError::Length { bytes, allowed });
        }
        let lsn = Lsn(self.end);
        let mut data = Vec::with_capacity(ENTRY_HEAD_BYTES + entry.len());
        data.extend(ENTRY_MAGIC);
        data.extend((entry.len() as u32).to_le_bytes());
        data.extend(lsn.0.to_le_bytes());
        data.extend(entry);
        let sector_bytes = self.region.sector_bytes() as usize;
        data.resize(data.len().next_multiple_of(sector_bytes), 0);
        self.region.write(lsn.0, &data)?;
        self.end += (data.len() / sector_bytes) as u64;
        Ok(lsn)
    }

    /// Makes all entries, and how the log was truncated, durable.
    ///
    /// # Errors
    /// Those of [`Region::flush`]; then any entries since the last sync may be lost.
    pub fn sync(&mut self) -> Result<(), RegionError> {
        self.region.flush()
    }

    /// The entries from an LSN on, or from the first that is left.
    pub fn iter_from(&mut self, lsn: Lsn) -> Entries<'_, D> {
        let at = lsn.0.clamp(self.start, self.end);
        Entries {
            log: self,
            at,
            is_begun: false,
        }
    }

    /// Gives up all entries before an LSN, and frees their places at the next [`sync`](Self::sync). Until then a crash may bring them back.
    ///
    /// # Errors
    /// Those of [`Region::trim`].
    pub fn truncate_before(&mut self, lsn: Lsn) -> Result<(), RegionError> {
        let before = lsn.0.clamp(self.start, self.end);
        self.region.settle()?;
        let before = self.entry_start(before);
        self.region.trim(0..before)?;
        self.start = before;
        Ok(())
    }

    /// The first entry that is left; [`end`](Self::end) where there is none.
    #[must_use]
    pub fn start(&self) -> Lsn {
        Lsn(self.start)
    }

    /// What the next entry gets.
    #[must_use]
    pub fn end(&self) -> Lsn {
        Lsn(self.end)
    }

    /// Bytes of the longest entry.
    #[must_use]
    pub fn entry_bytes_max(&self) -> u64 {
        RECORD_SECTORS_MAX * u64::from(self.region.sector_bytes()) - ENTRY_HEAD_BYTES as u64
    }

    /// What the region below has done.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.region.first().statistics()
    }

    /// The device below, the first of several, for its clock or its counts. Nobody else may write to it.
    pub fn device(&mut self) -> &mut D {
        self.region.devices().next().expect("at least one")
    }

    /// The start of the entry in which a sector of the log lies; all writes are complete.
    fn entry_start(&self, at: u64) -> u64 {
        let entry = self.region.first().image.piece_at(at).filter(|_| at < self.end);
        entry.map_or(at, |(range, _)| range.start.max(self.start))
    }

    /// The entry at an LSN and where the next one is; `None` where there is none.
    fn entry(&mut self, at: u64) -> Result<Option<(Vec<u8>, u64)>, RegionError> {
        let Some(end) = self.region.first().piece_from(at) else {
            return Ok(None);
        };
        let data = self.region.read(at, end - at)?;
        let (head, data) = data.split_at(ENTRY_HEAD_BYTES);
        let length = u32::from_le_bytes(head[4..8].try_into().expect("four bytes")) as usize;
        let is_entry = head.starts_with(ENTRY_MAGIC) && head[8..] == at.to_le_bytes();
        Ok(data
            .get(..length)
            .filter(|_| is_entry)
            .map(|entry| (entry.to_vec(), end)))
    }

    /// Where the next entry is, behind what was trimmed at an address.
    fn behind_zeros(&self, at: u64) -> u64 {
        let mut at = at;
        while let Some(end) = self.region.first().zeros_from(at) {
            at = end;
        }
        at
    }

    /// Makes durable that nothing is behind the end. What is appended goes behind that, not over it: else zeros where an entry was lost would look like
    /// what was trimmed, and later ones that are there would follow the gap.
    fn cut_tail(&mut self) -> Result<(), RegionError> {
        let last = self.region.first().end();
        if last > self.end && !has(Bug::TailKept) {
            self.region.trim(self.end..last)?;
            self.region.flush()?;
            self.end = if has(Bug::TailWrittenOver) { self.end } else { last };
        }
        Ok(())
    }
}

impl<D: RangeDevice> Region<D> {
    /// The end of what was trimmed from sector 0 on.
    fn zeros_from_0(&self) -> u64 {
        self.image.with_zeros_around(&(0..0)).end
    }

    /// The end of the zeros that a record says to be at a logical sector; `None` where none does.
    fn zeros_from(&self, at: u64) -> Option<u64> {
        let (range, record) = self.image.piece_at(at)?;
        let is_zeros = self.image.record(record).payload_bytes == 0;
        is_zeros.then_some(range.end)
    }

    /// The end of the last record.
    fn end(&self) -> u64 {
        self.image.end()
    }

    /// The end of the record that begins at a logical sector; `None` where none does, or zeros do.
    fn piece_from(&self, at: u64) -> Option<u64> {
        let (range, record) = self.image.piece_at(at)?;
        let is_data = self.image.record(record).payload_bytes > 0;
        (is_data && range.start == at).then_some(range.end)
    }
}

impl<D: RangeDevice> Iterator for Entries<'_, D> {
    type Item = Result<(Lsn, Vec<u8>), RegionError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.begin().and_then(|()| self.step()).transpose();
        if let Some(Err(_)) = entry {
            self.at = self.log.end;
        }
        entry
    }
}

impl<D: RangeDevice> Entries<'_, D> {
    fn begin(&mut self) -> Result<(), RegionError> {
        if !self.is_begun {
            self.is_begun = true;
            self.log.region.settle()?;
            self.at = self.log.entry_start(self.at);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<(Lsn, Vec<u8>)>, RegionError> {
        self.at = self.log.behind_zeros(self.at);
        let lsn = Lsn(self.at);
        if self.at >= self.log.end {
            return Ok(None);
        }
        let (entry, next) = self.log.entry(self.at)?.ok_or(RegionError::Missing { lsn })?;
        self.at = next;
        Ok(Some((lsn, entry)))
    }
}
