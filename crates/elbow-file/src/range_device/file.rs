//! A plain file or a block device: takes the first place that fits.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use elbow_ranges::RangeSet;
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::retry_on_intr;

use super::places::{first_aligned_fit, free_targets};
use super::{Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket};
use crate::{Errno, FileType, Handle, RealStorage, Storage};

/// A file or block device as a range device. Requests are carried out as they are submitted, by ordinary reads and writes. A flush is
/// fsync(2). A barrier is only what it says: after it others see nothing of what was submitted later without what was submitted before; of
/// what a power cut leaves of a page cache it says nothing.
///
/// ```
/// use std::sync::Arc;
/// use elbow_file::RealStorage;
/// use elbow_file::range_device::{Blocking, FileDevice};
///
/// let file = tempfile::NamedTempFile::new()?;
/// file.as_file().set_len(1 << 20)?;
/// let mut device = Blocking::new(FileDevice::open(file.path(), 4096)?);
/// let free = [5..9, 100..200].into_iter().collect();
/// assert_eq!(device.write_range(&free, 8, &[1; 8 * 4096])?, 104);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileDevice {
    storage: Arc<dyn Storage>,
    file: Handle,
    shape: Shape,
    tickets: u64,
    /// Carried out and not handed out; as long as the caller makes it.
    done: VecDeque<Completion>,
    /// Where the range writes among those went.
    not_told: BTreeMap<Ticket, Range<u64>>,
    given: GivenPlaces,
}

impl FileDevice {
    /// Opens a regular file or block device for reading and writing; what is beyond the last whole sector is left alone.
    ///
    /// # Errors
    /// Those of open(2); EINVAL for anything else than a regular file or a block device, or a sector of 0 bytes.
    pub fn open(path: &Path, sector_bytes: u32) -> crate::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        let file = Handle::new(fd);
        let kind = RealStorage.stat_handle(&file)?.kind;
        if !matches!(kind, FileType::File | FileType::BlockDevice) || sector_bytes == 0 {
            return Err(Errno::INVAL);
        }
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0))?;
        Ok(Self::new(Arc::new(RealStorage), file, sector_bytes, bytes))
    }

    /// Takes an open file of so many bytes on any storage, a double for example.
    ///
    /// # Panics
    /// If a sector has no bytes.
    pub fn new(storage: Arc<dyn Storage>, file: Handle, sector_bytes: u32, bytes: u64) -> Self {
        assert!(sector_bytes > 0, "a sector has bytes");
        let sectors = bytes / u64::from(sector_bytes);
        Self {
            storage,
            file,
            shape: Shape { sector_bytes, sectors },
            tickets: 0,
            done: VecDeque::new(),
            not_told: BTreeMap::new(),
            given: GivenPlaces::default(),
        }
    }

    fn carry_out(&mut self, request: &Request<'_>) -> Result<Done, RangeError> {
        match *request {
            Request::Read { at, sectors } => self.read(&(at..at + sectors)).map(Done::Read),
            Request::Write { at, data } => self.write(at, data),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => self.write(self.pick(targets, alignment, self.shape.length(data)?)?, data),
            Request::Barrier => Ok(self.pass()),
            Request::Flush => {
                self.storage.sync(&self.file)?;
                Ok(self.pass())
            }
        }
    }

    /// All that was submitted before is done, and what the host knows of is forgotten.
    fn pass(&mut self) -> Done {
        let known = self.given.barrier();
        self.given.forget(&known);
        Done::Passed
    }

    fn pick(&self, targets: &RangeSet, alignment: u64, sectors: u64) -> Result<u64, RangeError> {
        let free = free_targets(targets, self.given.all(), sectors, alignment)?;
        Ok(first_aligned_fit(&free, sectors, alignment).expect("free_targets found one"))
    }

    fn read(&self, place: &Range<u64>) -> Result<Vec<u8>, RangeError> {
        let bytes = self.shape.bytes(place);
        let mut data = vec![0; (bytes.end - bytes.start) as usize];
        let mut filled = 0;
        while filled < data.len() {
            match self
                .storage
                .read(&self.file, &mut data[filled..], bytes.start + filled as u64)?
            {
                0 => return Err(RangeError::Io(Errno::IO)), // somebody made the file shorter
                read => filled += read,
            }
        }
        Ok(data)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<Done, RangeError> {
        let place = at..at + self.shape.length(data)?;
        self.storage
            .write(&self.file, &[IoSlice::new(data)], self.shape.bytes(&place).start)?;
        Ok(Done::Written(place))
    }
}

impl RangeDevice for FileDevice {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.shape.check(&request)?;
        let result = match self.carry_out(&request) {
            Err(refusal @ RangeError::NoPlace { .. }) => return Err(refusal),
            result => result,
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if let (Request::WriteRange { .. }, Ok(Done::Written(place))) = (&request, &result) {
            self.given.give(place);
            self.not_told.insert(ticket, place.clone());
        }
        self.done.push_back(Completion { ticket, result });
        Ok(ticket)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.done.pop_front()?;
        if let Some(place) = self.not_told.remove(&completion.ticket) {
            self.given.hand_out(&place);
        }
        Some(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        self.poll()
    }
}
