//! Range devices for tests: one that counts, one that fails.

use std::time::Duration;

use super::{Completion, RangeDevice, RangeError, Request, Shape, Ticket, leave_to_device};
use crate::Errno;

/// How often each kind of request was submitted to a [`CountingDevice`], refused or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes to a fixed place.
    pub writes: u64,
    /// Range writes.
    pub range_writes: u64,
    /// Barriers.
    pub barriers: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of all writes.
    pub bytes_written: u64,
    /// The most requests outstanding at a time.
    pub outstanding_max: u64,
}

/// Counts what goes through it.
///
/// ```
/// use elbow_file::range_device::{Blocking, CountingDevice, MemoryDevice};
///
/// let mut device = Blocking::new(CountingDevice::new(MemoryDevice::new(512, 8)));
/// device.write(3, &[1; 512])?;
/// device.flush()?;
/// let (device, _) = device.into_parts();
/// assert_eq!((device.counts().writes, device.counts().flushes), (1, 1));
/// # Ok::<(), elbow_file::range_device::RangeError>(())
/// ```
#[derive(Debug)]
pub struct CountingDevice<D> {
    device: D,
    counts: Counts,
    outstanding: u64,
}

impl<D: RangeDevice> CountingDevice<D> {
    /// Counts from 0.
    pub fn new(device: D) -> Self {
        Self {
            device,
            counts: Counts::default(),
            outstanding: 0,
        }
    }

    /// What was counted.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn count(&mut self, request: &Request<'_>) {
        let counts = &mut self.counts;
        match *request {
            Request::Read { .. } => counts.reads += 1,
            Request::Write { data, .. } => {
                counts.writes += 1;
                counts.bytes_written += data.len() as u64;
            }
            Request::WriteRange { data, .. } => {
                counts.range_writes += 1;
                counts.bytes_written += data.len() as u64;
            }
            Request::Barrier => counts.barriers += 1,
            Request::Flush => counts.flushes += 1,
        }
    }

    fn submitted(&mut self, submitted: Result<Ticket, RangeError>) -> Result<Ticket, RangeError> {
        self.outstanding += u64::from(submitted.is_ok());
        self.counts.outstanding_max = self.counts.outstanding_max.max(self.outstanding);
        submitted
    }

    fn completed(&mut self, completion: Option<Completion>) -> Option<Completion> {
        self.outstanding -= u64::from(completion.is_some());
        completion
    }
}

impl<D: RangeDevice> RangeDevice for CountingDevice<D> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.count(&request);
        let submitted = self.device.submit(request);
        self.submitted(submitted)
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.count(&request);
        let submitted = self.device.submit_by(request, begin_by);
        self.submitted(submitted)
    }

    leave_to_device!(device);

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.device.poll();
        self.completed(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        let completion = self.device.wait();
        self.completed(completion)
    }
}

/// Refuses some requests at their submission, without passing them on. A test asks [`fired`](Self::fired) in the end,
/// since a fault that never came proves nothing.
///
/// ```
/// use elbow_file::Errno;
/// use elbow_file::range_device::{Blocking, FaultyDevice, MemoryDevice, RangeError};
///
/// let mut device = Blocking::new(FaultyDevice::new(MemoryDevice::new(512, 8), Errno::IO, |number, _| number == 2));
/// device.write(3, &[1; 512])?;
/// assert_eq!(device.write(3, &[2; 512]), Err(RangeError::from(Errno::IO)));
/// assert_eq!(device.read(3, 1)?, [1; 512]);
/// assert_eq!(device.into_parts().0.fired(), 1);
/// # Ok::<(), RangeError>(())
/// ```
pub struct FaultyDevice<D, P> {
    device: D,
    errno: Errno,
    fails: P,
    seen: u64,
    fired: u64,
}

impl<D: RangeDevice, P: FnMut(u64, &Request<'_>) -> bool> FaultyDevice<D, P> {
    /// Fails those requests, counted from 1, that `fails` says.
    pub fn new(device: D, errno: Errno, fails: P) -> Self {
        Self {
            device,
            errno,
            fails,
            seen: 0,
            fired: 0,
        }
    }

    fn let_pass(&mut self, request: &Request<'_>) -> Result<(), RangeError> {
        self.seen += 1;
        if !(self.fails)(self.seen, request) {
            return Ok(());
        }
        self.fired += 1;
        Err(self.errno.into())
    }

    /// Number of requests refused so far.
    pub fn fired(&self) -> u64 {
        self.fired
    }
}

impl<D: RangeDevice, P: FnMut(u64, &Request<'_>) -> bool> RangeDevice for FaultyDevice<D, P> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.let_pass(&request)?;
        self.device.submit(request)
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.let_pass(&request)?;
        self.device.submit_by(request, begin_by)
    }

    leave_to_device!(device);

    fn poll(&mut self) -> Option<Completion> {
        self.device.poll()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.device.wait()
    }
}
