//! Faults that come at completion, and writes of which a part is on the medium.
//!
//! ```text
//!   write of 4 sectors at 10, torn after 1:   |new|old|old|old|    the completion: an I/O error at sectors 11 to 14
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use elbow_ranges::RangeSet;

use super::{Completion, Done, RangeDevice, RangeError, Request, Shape, Ticket, leave_to_device};
use crate::Errno;

/// Lets some requests fail when they complete: of a write the first sectors are written, as many as are said (of a range
/// write at least one, which gives it its place; where none is said, all of that place has failed); a read gives nothing, a barrier has ordered, a flush has made nothing durable. [`FaultyDevice`](super::FaultyDevice)
/// refuses at submission. A test asks [`fired`](Self::fired) in the end, since a fault that never came proves nothing.
///
/// ```
/// use elbow_file::Errno;
/// use elbow_file::range_device::{Blocking, MemoryDevice, RangeError, TearingDevice};
///
/// let torn = TearingDevice::new(MemoryDevice::new(512, 8), Errno::IO, |number, _| (number == 2).then_some(1));
/// let mut device = Blocking::new(torn);
/// device.write(3, &[1; 1024])?;
/// let place = Some(4..5);
/// assert_eq!(device.write(3, &[2; 1024]), Err(RangeError::Io { errno: Errno::IO, place }));
/// assert_eq!(device.read(3, 2)?, [[2; 512], [1; 512]].concat());
/// assert_eq!(device.device().fired(), 1);
/// # Ok::<(), RangeError>(())
/// ```
pub struct TearingDevice<D, P> {
    device: D,
    errno: Errno,
    tears: P,
    seen: u64,
    fired: u64,
    torn: BTreeMap<Ticket, Torn>,
}

/// What a request would have touched, from the first sector of its place on.
#[derive(Clone, Debug)]
struct Torn {
    /// Known at submission.
    at: Option<u64>,
    /// The sectors after those that were written.
    failed: Option<Range<u64>>,
}

impl<D: RangeDevice, P: FnMut(u64, &Request<'_>) -> Option<u64>> TearingDevice<D, P> {
    /// Fails those requests, counted from 1, for which `tears` says how many sectors are written; more than it has are
    /// all of them.
    pub fn new(device: D, errno: Errno, tears: P) -> Self {
        Self {
            device,
            errno,
            tears,
            seen: 0,
            fired: 0,
            torn: BTreeMap::new(),
        }
    }

    /// Number of requests that have failed so far.
    pub fn fired(&self) -> u64 {
        self.fired
    }

    /// The device behind it.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        self.seen += 1;
        let Some(written) = (self.tears)(self.seen, &request) else {
            return self.pass_on(request, begin_by);
        };
        self.device.shape().check(&request)?;
        match request {
            Request::Read { at, sectors } => self.fail(request, begin_by, Some(at), 0..sectors),
            Request::Write { at, data } => {
                let (first, failed) = self.split(data, written);
                let request = match first {
                    [] => Request::Read { at, sectors: 1 },
                    data => Request::Write { at, data },
                };
                self.fail(request, begin_by, Some(at), failed)
            }
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => {
                // A write to which the device gives no place has none to fail at that another could not get.
                let (first, rest) = self.split(data, written.max(1));
                let failed = if written == 0 { 0..rest.end } else { rest.clone() };
                // Where the first sectors find a place the whole write does.
                let narrow = narrowed(targets, rest.end - rest.start);
                let request = Request::WriteRange {
                    targets: &narrow,
                    alignment,
                    data: first,
                };
                self.fail(request, begin_by, None, failed)
            }
            Request::Barrier | Request::Flush => {
                let ticket = self.pass_on(Request::Barrier, begin_by)?;
                let (at, failed) = (None, None);
                self.torn.insert(ticket, Torn { at, failed });
                Ok(ticket)
            }
        }
    }

    /// The part of data that is written, and the sectors of the write that are not.
    fn split<'a>(&self, data: &'a [u8], written: u64) -> (&'a [u8], Range<u64>) {
        let sector_bytes = u64::from(self.device.shape().sector_bytes);
        let sectors = data.len() as u64 / sector_bytes;
        let written = written.min(sectors);
        (&data[..(written * sector_bytes) as usize], written..sectors)
    }

    fn fail(
        &mut self,
        request: Request<'_>,
        begin_by: Option<Duration>,
        at: Option<u64>,
        failed: Range<u64>,
    ) -> Result<Ticket, RangeError> {
        let ticket = self.pass_on(request, begin_by)?;
        let failed = Some(failed);
        self.torn.insert(ticket, Torn { at, failed });
        Ok(ticket)
    }

    fn pass_on(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        match begin_by {
            None => self.device.submit(request),
            Some(begin_by) => self.device.submit_by(request, begin_by),
        }
    }

    fn completed(&mut self, completion: Option<Completion>) -> Option<Completion> {
        let mut completion = completion?;
        let Some(Torn { at, failed }) = self.torn.remove(&completion.ticket) else {
            return Some(completion);
        };
        let at = match &completion.result {
            Ok(Done::Written(place)) => Some(place.start),
            Ok(_) => at,
            Err(_) => return Some(completion), // cancelled, for example
        };
        self.fired += 1;
        let place = at.zip(failed).map(|(at, failed)| at + failed.start..at + failed.end);
        completion.result = Err(RangeError::Io {
            errno: self.errno,
            place,
        });
        Some(completion)
    }
}

/// Targets in which so many sectors more fit behind each place.
fn narrowed(targets: &RangeSet, more: u64) -> RangeSet {
    targets
        .iter()
        .map(|range| range.start..range.end.saturating_sub(more))
        .collect()
}

impl<D: RangeDevice, P: FnMut(u64, &Request<'_>) -> Option<u64>> RangeDevice for TearingDevice<D, P> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.take(request, None)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.device.poll();
        self.completed(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        let completion = self.device.wait();
        self.completed(completion)
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.take(request, Some(begin_by))
    }

    leave_to_device!(device);
}
