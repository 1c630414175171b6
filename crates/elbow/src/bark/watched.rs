//! A device of which one knows whether it has failed: a region on several says only that one has.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use elbow_file::range_device::{Clock, Completion, RangeDevice, RangeError, Request, Shape, Ticket};

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

    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        self.device.cancel(ticket)
    }

    fn clock(&self) -> Clock {
        self.device.clock()
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        self.device.next_completion_at()
    }

    fn pass_until(&mut self, time: Duration) {
        self.device.pass_until(time);
    }

    fn borders(&self) -> Vec<u64> {
        self.device.borders()
    }

    fn wake(&mut self, waker: &Waker) -> bool {
        self.device.wake(waker)
    }
}
