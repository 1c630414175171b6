//! What measuring needs of a device: to write durably, to know the time, to let it pass.

use std::thread;
use std::time::Duration;

use elbow_file::range_device::{Blocking, Clock, RangeDevice, RangeError, Request, Shape};

use super::ProfileError;

/// A device that is measured.
pub trait Probe {
    /// How large it is.
    fn shape(&self) -> Shape;

    /// Writes sectors, durably, and says how much of the time the flush took, after the write itself was done.
    ///
    /// # Errors
    /// Those of the device.
    fn write(&mut self, at: u64, data: &[u8]) -> Result<Duration, RangeError>;

    /// What time it is. It does not go back.
    fn now(&self) -> Duration;

    /// Lets time pass until then; does nothing where it has.
    fn sleep_until(&mut self, time: Duration);
}

/// Any range device, measured in its own time: a file or a block device in real time, a model in modelled time.
///
/// ```
/// use elbow_disk::profile::{DeviceProbe, Probe};
/// use elbow_file::range_device::MemoryDevice;
///
/// let mut probe = DeviceProbe::new(MemoryDevice::new(512, 64))?;
/// let begin = probe.now();
/// probe.write(8, &[1; 512])?;
/// assert!(probe.now() > begin);
/// # Ok::<(), elbow_disk::profile::ProfileError>(())
/// ```
#[derive(Debug)]
pub struct DeviceProbe<D>(Blocking<D>);

impl<D: RangeDevice> DeviceProbe<D> {
    /// A device that nobody else uses meanwhile.
    ///
    /// # Errors
    /// [`ProfileError::NoClock`].
    pub fn new(device: D) -> Result<Self, ProfileError> {
        match device.clock() {
            Clock::None => Err(ProfileError::NoClock),
            Clock::Real(_) | Clock::Modelled(_) => Ok(Self(Blocking::new(device))),
        }
    }

    /// The device again.
    pub fn into_device(self) -> D {
        self.0.into_parts().0
    }
}

impl<D: RangeDevice> Probe for DeviceProbe<D> {
    fn shape(&self) -> Shape {
        self.0.shape()
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<Duration, RangeError> {
        let write = self.0.submit(Request::Write { at, data })?;
        let written = self.0.complete(write);
        written.result?;
        let flush = self.0.submit(Request::Flush)?;
        let flushed = self.0.complete(flush);
        flushed.result?;
        Ok(flushed.at.saturating_sub(written.at))
    }

    fn now(&self) -> Duration {
        self.0.clock().time()
    }

    fn sleep_until(&mut self, time: Duration) {
        match self.0.clock() {
            Clock::Real(now) => thread::sleep(time.saturating_sub(now)),
            _ => self.0.device().pass_until(time),
        }
    }
}
