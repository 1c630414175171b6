//! A plain file or a block device: takes the first place that fits.

#![allow(
    clippy::disallowed_methods,
    reason = "this is the edge that the rule keeps everybody else behind"
)]

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use elbow_ranges::RangeSet;
use rustix::fs::{Advice, Mode, OFlags, SeekFrom};
use rustix::io::retry_on_intr;

use super::places::{check_deadline, first_aligned_fit, free_targets};
use super::{Clock, Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket};
use crate::{Errno, FileType, Handle, RealStorage, Storage};

/// A file or block device as a range device. Requests are carried out as they are submitted, by ordinary reads and
/// writes, so a barrier has nothing to wait for. A flush is fsync(2): what a crash leaves of writes since the last one
/// is anybody's guess, whatever barriers lie between them. After a flush that failed all later ones of this device fail:
/// the system may have forgotten what it could not write. Opening the device asks it to forget what else it has in memory,
/// so that what is read then is what the medium has; pages that others have in use stay.
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
    sectors: Sectors,
    started: Instant,
    tickets: u64,
    /// Carried out and not handed out; as long as the caller makes it.
    done: VecDeque<Completion>,
    given: GivenPlaces,
}

impl FileDevice {
    /// Opens a regular file or block device for reading and writing; what is beyond the last whole sector is left
    /// alone. The system is asked to forget what it has of it in memory and takes for written, so that it is read anew.
    ///
    /// # Errors
    /// Those of open(2); EINVAL for anything else than a regular file or a block device, or a sector of 0 bytes.
    pub fn open(path: &Path, sector_bytes: u32) -> crate::Result<Self> {
        let (file, bytes) = open(path, sector_bytes)?;
        Ok(Self::new(Arc::new(RealStorage), file, sector_bytes, bytes))
    }

    /// Takes an open file of so many bytes on any storage, a double for example.
    ///
    /// # Panics
    /// If a sector has no bytes.
    pub fn new(storage: Arc<dyn Storage>, file: Handle, sector_bytes: u32, bytes: u64) -> Self {
        assert!(sector_bytes > 0, "a sector has bytes");
        let sectors = bytes / u64::from(sector_bytes);
        let shape = Shape { sector_bytes, sectors };
        Self {
            sectors: Sectors::new(storage, file, shape),
            started: Instant::now(),
            tickets: 0,
            done: VecDeque::new(),
            given: GivenPlaces::default(),
        }
    }

    fn carry_out(&self, request: &Request<'_>) -> Result<Done, RangeError> {
        match *request {
            Request::Read { at, sectors } => self.sectors.read(&(at..at + sectors)),
            Request::Write { at, data } => self.sectors.write(at, data),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => {
                let at = self.pick(targets, alignment, self.shape().length(data)?)?;
                self.sectors.write(at, data)
            }
            Request::Barrier => Ok(Done::Passed),
            Request::Flush => self.sectors.flush(),
        }
    }

    fn pick(&self, targets: &RangeSet, alignment: u64, sectors: u64) -> Result<u64, RangeError> {
        let free = free_targets(targets, self.given.all(), sectors, alignment)?;
        Ok(first_aligned_fit(&free, sectors, alignment).expect("there is one"))
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        self.shape().check(&request)?;
        check_deadline(&request, begin_by)?;
        let late = begin_by.filter(|&begin_by| begin_by < self.started.elapsed());
        let result = match late {
            Some(begin_by) => Err(RangeError::Late { begin_by }),
            None => self.carry_out(&request),
        };
        if let Err(refusal @ RangeError::NoPlace { .. }) = result {
            return Err(refusal);
        }
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.given.carried_out(ticket, &request, &result);
        let at = self.started.elapsed();
        self.done.push_back(Completion { ticket, result, at });
        Ok(ticket)
    }
}

/// A file or block device, and its length in bytes.
pub(super) fn open(path: &Path, sector_bytes: u32) -> crate::Result<(Handle, u64)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
    let file = Handle::new(fd);
    let kind = RealStorage.stat_handle(&file)?.kind;
    if !matches!(kind, FileType::File | FileType::BlockDevice) || sector_bytes == 0 {
        return Err(Errno::INVAL);
    }
    // After an fsync(2) that failed, Linux keeps pages that the medium does not have, and takes them for clean: whoever
    // read them would build on what a crash loses. Pages that are dirty or in use stay.
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed)?;
    let bytes = rustix::fs::seek(&file, SeekFrom::End(0))?;
    Ok((file, bytes))
}

/// The file of a device, with errors that say where.
pub(super) struct Sectors {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) file: Handle,
    pub(super) shape: Shape,
    /// Of the first flush that failed.
    flush_error: OnceLock<Errno>,
}

impl Sectors {
    pub(super) fn new(storage: Arc<dyn Storage>, file: Handle, shape: Shape) -> Self {
        Self {
            storage,
            file,
            shape,
            flush_error: OnceLock::new(),
        }
    }

    pub(super) fn read(&self, place: &Range<u64>) -> Result<Done, RangeError> {
        let mut data = vec![0; self.bytes(place)];
        let mut sectors = 0; // that are there
        while sectors < place.end - place.start {
            let rest = place.start + sectors..place.end;
            let filled = self.bytes(&(place.start..rest.start));
            sectors += self
                .fill(&mut data[filled..], &rest)
                .or_else(|error| self.first_bad(&mut data[filled..], &rest, error))?;
        }
        Ok(Done::Read(data))
    }

    /// Reads some whole sectors from the start of a place on, and returns how many.
    fn fill(&self, data: &mut [u8], place: &Range<u64>) -> Result<u64, RangeError> {
        let failed = |errno| RangeError::Io {
            errno,
            place: Some(place.clone()),
        };
        let mut filled = 0_usize;
        let sector = self.shape.sector_bytes as usize;
        while filled == 0 || !filled.is_multiple_of(sector) {
            let at = self.shape.bytes(place).start + filled as u64;
            match self.storage.read(&self.file, &mut data[filled..], at).map_err(failed)? {
                0 => return Err(failed(Errno::IO)), // somebody made the file shorter
                read => filled += read,
            }
        }
        Ok((filled / sector) as u64)
    }

    /// After a read of several sectors has failed: reads one after the other up to the one that cannot be read. Returns
    /// their number where all can.
    fn first_bad(&self, data: &mut [u8], place: &Range<u64>, error: RangeError) -> Result<u64, RangeError> {
        if place.end - place.start == 1 {
            return Err(error);
        }
        let sector = self.shape.sector_bytes as usize;
        for (at, data) in (place.start..).zip(data.chunks_mut(sector)) {
            self.fill(data, &(at..at + 1)).map_err(|error| match error {
                RangeError::Io { errno, .. } => RangeError::Io {
                    errno,
                    place: Some(at..place.end),
                },
                other => other,
            })?;
        }
        Ok(place.end - place.start)
    }

    pub(super) fn write(&self, at: u64, data: &[u8]) -> Result<Done, RangeError> {
        let place = at..at + self.shape.length(data)?;
        let bytes = self.shape.bytes(&place);
        let written = self.storage.write(&self.file, &[IoSlice::new(data)], bytes.start);
        written.map_err(|errno| RangeError::Io {
            errno,
            place: Some(place.clone()),
        })?;
        Ok(Done::Written(place))
    }

    pub(super) fn flush(&self) -> Result<Done, RangeError> {
        if let Some(&errno) = self.flush_error.get() {
            return Err(errno.into()); // fsync(2) tells an error once, and succeeds the next time
        }
        let synced = self.storage.sync(&self.file);
        synced.map_err(|errno| *self.flush_error.get_or_init(|| errno))?;
        Ok(Done::Passed)
    }

    fn bytes(&self, place: &Range<u64>) -> usize {
        let bytes = self.shape.bytes(place);
        (bytes.end - bytes.start) as usize
    }
}

impl RangeDevice for FileDevice {
    fn shape(&self) -> Shape {
        self.sectors.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.take(request, None)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.done.pop_front()?;
        self.given.tell(&completion);
        Some(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        self.poll()
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.take(request, Some(begin_by))
    }

    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        Err(RangeError::Begun { ticket }) // it began when it was submitted
    }

    fn clock(&self) -> Clock {
        Clock::Real(self.started.elapsed())
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        self.done.front().map(|completion| completion.at)
    }
}
