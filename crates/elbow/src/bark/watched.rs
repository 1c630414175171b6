//! A device of which one knows whether it has failed: a region on several says only that one has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elbow_file::range_device::{Completion, RangeDevice, RangeError, Request, Shape, Ticket, leave_to_device};

/// Tells others that it has failed.
pub(super) struct WatchedDevice<D> {
    device: D,
    has_failed: Arc<AtomicBool>,
}

impl<D> WatchedDevice<D> {
    /// Sets the flag when an I/O error comes of a request.
    pub(super) fn new(device: D, has_failed: Arc<AtomicBool>) -> Self {
        Self { device, has_failed }
    }

    fn look_at<T>(&self, result: &Result<T, RangeError>) {
        if matches!(result, Err(RangeError::Io { .. })) {
            self.has_failed.store(true, Ordering::Release);
        }
    }

    fn look_at_completion(&self, completion: Option<Completion>) -> Option<Completion> {
        completion.inspect(|completion| self.look_at(&completion.result))
    }
}

impl<D: RangeDevice> RangeDevice for WatchedDevice<D> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        let submitted = self.device.submit(request);
        self.look_at(&submitted);
        submitted
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.device.poll();
        self.look_at_completion(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        let completion = self.device.wait();
        self.look_at_completion(completion)
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        let submitted = self.device.submit_by(request, begin_by);
        self.look_at(&submitted);
        submitted
    }

    leave_to_device!(device);
}
