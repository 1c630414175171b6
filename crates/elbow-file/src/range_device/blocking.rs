//! One request at a time, or several with the answers taken in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use elbow_ranges::RangeSet;

use super::{Clock, Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket, ZoneRoom};

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
    /// Outstanding range writes, and those that are kept.
    range_writes: BTreeSet<Ticket>,
    /// Places of range writes that were kept: the device thinks that the caller has been told.
    given: GivenPlaces,
}

impl<D: RangeDevice> Blocking<D> {
    /// Takes a device over.
    pub fn new(device: D) -> Self {
        Self {
            device,
            kept: BTreeMap::new(),
            range_writes: BTreeSet::new(),
            given: GivenPlaces::default(),
        }
    }

    /// The device, for what only it has: its clock, its counts.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The device again, with what was completed and not asked for.
    pub fn into_parts(self) -> (D, Vec<Completion>) {
        (self.device, self.kept.into_values().collect())
    }

    /// How large the device is.
    pub fn shape(&self) -> Shape {
        self.device.shape()
    }

    /// Where no range write crosses; see [`RangeDevice::borders`].
    pub fn borders(&self) -> Vec<u64> {
        self.device.borders()
    }

    /// Of a device that writes zone by zone; see [`RangeDevice::room_in_zones`].
    pub fn room_in_zones(&self, targets: &RangeSet) -> Option<ZoneRoom> {
        self.device.room_in_zones(targets)
    }

    /// What time it is for the device.
    pub fn clock(&self) -> Clock {
        self.device.clock()
    }

    /// Submits without waiting.
    ///
    /// # Errors
    /// Those of [`RangeDevice::submit`].
    pub fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.take(request, None)
    }

    /// Submits a request that must begin by then; see [`RangeDevice::submit_by`].
    ///
    /// # Errors
    /// Those of [`RangeDevice::submit_by`].
    pub fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.take(request, Some(begin_by))
    }

    /// Takes back a request that has not begun; see [`RangeDevice::cancel`].
    ///
    /// # Errors
    /// Those of [`RangeDevice::cancel`].
    pub fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        self.device.cancel(ticket)
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        match request {
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => {
                let request = Request::WriteRange {
                    targets: &self.given.without(targets),
                    alignment,
                    data,
                };
                let ticket = self.pass_on(request, begin_by)?;
                self.range_writes.insert(ticket);
                Ok(ticket)
            }
            Request::Barrier | Request::Flush => {
                let ticket = self.pass_on(request, begin_by)?;
                let known = self.given.barrier();
                self.given.forget(&known); // the targets of whoever is before the barrier were looked at when they came
                Ok(ticket)
            }
            Request::Read { .. } | Request::Write { .. } => self.pass_on(request, begin_by),
        }
    }

    fn pass_on(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        match begin_by {
            None => self.device.submit(request),
            Some(begin_by) => self.device.submit_by(request, begin_by),
        }
    }

    /// Waits for one request.
    ///
    /// # Errors
    /// What became of the request.
    ///
    /// # Panics
    /// For a ticket that is not outstanding.
    pub fn wait_for(&mut self, ticket: Ticket) -> Result<Done, RangeError> {
        self.complete(ticket).result
    }

    /// Waits for one request, and says when it was complete.
    ///
    /// ```
    /// use std::time::Duration;
    /// use elbow_file::range_device::{Blocking, MemoryDevice, RangeDevice, Request};
    ///
    /// let mut device = Blocking::new(MemoryDevice::new(512, 64));
    /// device.device().pass_until(Duration::from_millis(3));
    /// let ticket = device.submit(Request::Read { at: 0, sectors: 1 })?;
    /// let completion = device.complete(ticket);
    /// assert!(completion.at > Duration::from_millis(3) && completion.at <= device.device().clock().time());
    /// # Ok::<(), elbow_file::range_device::RangeError>(())
    /// ```
    ///
    /// # Panics
    /// For a ticket that is not outstanding.
    pub fn complete(&mut self, ticket: Ticket) -> Completion {
        if let Some(completion) = self.kept.remove(&ticket) {
            self.given.tell(&completion);
            self.range_writes.remove(&ticket);
            return completion;
        }
        loop {
            let completion = self.device.wait();
            let completion = completion.unwrap_or_else(|| panic!("{ticket:?} is not outstanding"));
            if completion.ticket == ticket {
                self.range_writes.remove(&ticket);
                return completion;
            }
            if let Some(place) = self.range_place(&completion) {
                self.given.give(completion.ticket, place);
            }
            self.kept.insert(completion.ticket, completion);
        }
    }

    /// Where a range write went.
    fn range_place(&self, completion: &Completion) -> Option<Range<u64>> {
        match &completion.result {
            Ok(Done::Written(place)) if self.range_writes.contains(&completion.ticket) => Some(place.clone()),
            _ => None,
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
