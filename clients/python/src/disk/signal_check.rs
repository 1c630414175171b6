//! Ctrl-C while something runs without the interpreter's lock.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// How long Ctrl-C may have to wait.
const EVERY: Duration = Duration::from_millis(100);
/// The time is asked for once in so many requests: it takes as long as a tenth of a quick one.
const REQUESTS: u32 = 16;

/// Looks now and then whether a signal came.
pub(super) struct SignalCheck {
    next: Instant,
    requests: u32,
    /// What its handler raised.
    pub(super) raised: Option<PyErr>,
}

impl SignalCheck {
    pub(super) fn new() -> Self {
        Self {
            next: Instant::now() + EVERY,
            requests: 0,
            raised: None,
        }
    }

    /// To be asked with each request.
    #[inline]
    pub(super) fn is_over(&mut self) -> bool {
        self.requests += 1;
        self.requests.is_multiple_of(REQUESTS) && self.look()
    }

    fn look(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + EVERY;
            self.requests = 0;
            self.raised = Python::attach(|py| py.check_signals()).err();
        }
        self.raised.is_some()
    }
}

/// Input that ends with an error when a signal came, or the table that is made of it is full.
pub(super) struct InterruptibleInput<'p, R> {
    pub(super) input: R,
    pub(super) signal_check: &'p mut SignalCheck,
    pub(super) is_full: &'p AtomicBool,
}

impl<R: Read> Read for InterruptibleInput<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // Not `Interrupted`, after which one tries again.
        if self.signal_check.look() {
            return Err(io::Error::other("a signal came"));
        }
        if self.is_full.load(Relaxed) {
            return Err(io::Error::other("the table is full"));
        }
        self.input.read(into)
    }
}
