//! The beginning of a device as a device.

use std::time::Duration;

use super::{Completion, RangeDevice, RangeError, Request, Shape, Ticket, leave_to_device};

/// The first sectors of a device: what lies behind them is never touched.
///
/// ```
/// use elbow_file::range_device::{Blocking, FirstSectors, MemoryDevice};
///
/// let mut device = Blocking::new(FirstSectors::of(MemoryDevice::new(512, 100), 10));
/// assert_eq!(device.shape().sectors, 10);
/// assert!(device.write(10, &[1; 512]).is_err());
/// ```
#[derive(Debug)]
pub struct FirstSectors<D> {
    device: D,
    sectors: u64,
}

impl<D: RangeDevice> FirstSectors<D> {
    /// So many, or as many as the device has.
    pub fn of(device: D, sectors: u64) -> Self {
        let sectors = sectors.min(device.shape().sectors);
        Self { device, sectors }
    }

    /// The whole device.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }
}

impl<D: RangeDevice> RangeDevice for FirstSectors<D> {
    fn shape(&self) -> Shape {
        Shape {
            sectors: self.sectors,
            ..self.device.shape()
        }
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.shape().check(&request)?;
        self.device.submit(request)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.device.poll()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.device.wait()
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.shape().check(&request)?;
        self.device.submit_by(request, begin_by)
    }

    leave_to_device!(device);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_device::{MemoryDevice, contract};

    #[test]
    fn it_keeps_the_contract() {
        contract::check(&mut || FirstSectors::of(MemoryDevice::new(512, 400), 128), 0..3);
    }
}
