//! A device that says what a power cut would leave of it, and that can make the mistakes of a log that is wrong.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use elbow_file::range_device::{
    Clock, Completion, CutImage, Done, RangeDevice, RangeError, Request, Shape, Ticket, VolatileDevice,
};

use crate::SLOT_SECTORS;
use crate::small_log::seal;

/// A mistake made on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Whatever lies in a slot is a record.
    NoChecksum,
    /// A flush is acknowledged before anything is durable.
    FlushesAreBarriers,
    /// Slots of records that a trim ends are given away before the trim is durable.
    ReusesEarly,
    /// A log that is opened again goes on with the incarnation from before.
    SameIncarnation,
    /// What is read is told before it is durable.
    OpensWithoutFlush,
}

/// The device of a log in a test.
pub(crate) struct Rig<D> {
    device: D,
    fault: Fault,
    /// Whether the log is being opened.
    pub(crate) opens: Rc<Cell<bool>>,
}

/// One that remembers everything.
pub(crate) type Remembering = Rig<VolatileDevice<Box<dyn RangeDevice>>>;

impl Remembering {
    /// On a device that is all zeros.
    pub(crate) fn empty(device: Box<dyn RangeDevice>, fault: Fault) -> Self {
        Self::new(VolatileDevice::new(device), fault)
    }

    /// On what a power cut has left.
    pub(crate) fn found(image: &CutImage, fault: Fault) -> Self {
        let device: Box<dyn RangeDevice> = Box::new(image.to_memory());
        Self::new(VolatileDevice::holding(device).unwrap(), fault)
    }

    /// What it remembers.
    pub(crate) fn volatile(&self) -> &VolatileDevice<Box<dyn RangeDevice>> {
        &self.device
    }
}

impl<D: RangeDevice> Rig<D> {
    pub(crate) fn new(device: D, fault: Fault) -> Self {
        let opens = Rc::default();
        Self { device, fault, opens }
    }

    fn changed<'a>(&self, request: Request<'a>) -> Request<'a> {
        match (request, self.fault) {
            (Request::Flush, Fault::FlushesAreBarriers) => Request::Barrier,
            (Request::Flush, Fault::OpensWithoutFlush) if self.opens.get() => Request::Barrier,
            _ => request,
        }
    }

    /// For a log that checks no checksum: one that is right.
    fn sealed(&self, completion: Option<Completion>) -> Option<Completion> {
        let mut completion = completion?;
        if let (Ok(Done::Read(bytes)), Fault::NoChecksum) = (&mut completion.result, self.fault) {
            let slot_bytes = (SLOT_SECTORS * u64::from(self.shape().sector_bytes)) as usize;
            bytes.chunks_mut(slot_bytes).for_each(seal);
        }
        Some(completion)
    }
}

impl<D: RangeDevice> RangeDevice for Rig<D> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.device.submit(self.changed(request))
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.device.poll();
        self.sealed(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        let completion = self.device.wait();
        self.sealed(completion)
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.device.submit_by(request, begin_by)
    }

    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        self.device.cancel(ticket)
    }

    fn clock(&self) -> Clock {
        self.device.clock()
    }
}
