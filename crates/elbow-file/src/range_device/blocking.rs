//! One request at a time, or several with the answers taken in any order.

use std::collections::BTreeMap;

use elbow_ranges::RangeSet;

use super::{Completion, Done, RangeDevice, RangeError, Request, Shape, Ticket};

/// Keeps completions until they are asked for by ticket, so that one can wait for a certain request.
///
/// ```
/// use elbow_file::range_device::{Blocking, MemoryDevice};
///
/// let mut device = Blocking::new(MemoryDevice::new(512, 64));
/// let free = [8..16].into_iter().collect();
/// let at = device.write_range(&free, 1, &[1; 1024])?;
/// device.flush()?;
/// assert_eq!(device.read(at, 2)?, [1; 1024]);
/// # Ok::<(), elbow_file::range_device::RangeError>(())
/// ```
#[derive(Debug)]
pub struct Blocking<D> {
    device: D,
    /// Completed, but not asked for yet; bounded by what the caller leaves outstanding.
    kept: BTreeMap<Ticket, Completion>,
}

impl<D: RangeDevice> Blocking<D> {
    /// Takes a device over.
    pub fn new(device: D) -> Self {
        let kept = BTreeMap::new();
        Self { device, kept }
    }

    /// The device again, with what was completed and not asked for.
    pub fn into_parts(self) -> (D, Vec<Completion>) {
        (self.device, self.kept.into_values().collect())
    }

    /// How large the device is.
    pub fn shape(&self) -> Shape {
        self.device.shape()
    }

    /// Submits without waiting.
    ///
    /// # Errors
    /// Those of [`RangeDevice::submit`].
    pub fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.device.submit(request)
    }

    /// Waits for one request.
    ///
    /// # Errors
    /// What became of the request.
    ///
    /// # Panics
    /// For a ticket that is not outstanding.
    pub fn wait_for(&mut self, ticket: Ticket) -> Result<Done, RangeError> {
        loop {
            if let Some(completion) = self.kept.remove(&ticket) {
                return completion.result;
            }
            let completion = self.device.wait();
            let completion = completion.unwrap_or_else(|| panic!("{ticket:?} is not outstanding"));
            self.kept.insert(completion.ticket, completion);
        }
    }

    /// Reads sectors.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn read(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>, RangeError> {
        match self.run(Request::Read { at, sectors })? {
            Done::Read(data) => Ok(data),
            other => panic!("a read gave {other:?}"),
        }
    }

    /// Writes at one place.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn write(&mut self, at: u64, data: &[u8]) -> Result<(), RangeError> {
        self.run(Request::Write { at, data }).map(drop)
    }

    /// Writes somewhere within targets and says at which sector.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn write_range(&mut self, targets: &RangeSet, alignment: u64, data: &[u8]) -> Result<u64, RangeError> {
        let request = Request::WriteRange {
            targets,
            alignment,
            data,
        };
        match self.run(request)? {
            Done::Written(place) => Ok(place.start),
            other => panic!("a write gave {other:?}"),
        }
    }

    /// Waits until all that was submitted is done.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn barrier(&mut self) -> Result<(), RangeError> {
        self.run(Request::Barrier).map(drop)
    }

    /// Makes all that was submitted durable.
    ///
    /// # Errors
    /// See [`RangeError`].
    pub fn flush(&mut self) -> Result<(), RangeError> {
        self.run(Request::Flush).map(drop)
    }

    fn run(&mut self, request: Request<'_>) -> Result<Done, RangeError> {
        let ticket = self.submit(request)?;
        self.wait_for(ticket)
    }
}
