//! A lock that Python holds.

use std::sync::{Arc, Weak};

use elbow_lock::LockError;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors;
use crate::pending::Pending;
use crate::process_local::{ProcessLocal, at_work};
use crate::threads::Threads;

/// A lock as it was granted, not yet handed to Python.
pub(crate) struct Lock {
    held: ProcessLocal<elbow_lock::Hold>,
    token: u64,
    threads: Weak<Threads>,
}

impl Lock {
    pub(crate) fn new(hold: elbow_lock::Hold, has_lease: bool, threads: Weak<Threads>) -> Self {
        Self {
            token: hold.token().0,
            held: ProcessLocal::new(hold, has_lease),
            threads,
        }
    }
}

/// A lock that is held. It is released when its `with` block ends, or nobody refers to it any more.
#[pyclass(frozen, module = "elbowroom", weakref)]
pub(crate) struct Hold {
    token: u64,
    process: u32,
    threads: Weak<Threads>,
    held: Arc<Held>,
}

/// Nothing after it was released.
type Held = Mutex<Option<ProcessLocal<elbow_lock::Hold>>>;

impl Hold {
    pub(crate) fn new(lock: Lock) -> Self {
        Self {
            token: lock.token,
            process: std::process::id(),
            threads: lock.threads,
            held: Arc::new(Mutex::new(Some(lock.held))),
        }
    }

    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn is_here(&self, py: Python<'_>) -> PyResult<()> {
        match self.is_ours() {
            true => Ok(()),
            false => Err(errors::lost(
                py,
                "this lock is held by the process that forked this one",
            )),
        }
    }

    fn later(&self, py: Python<'_>, then: Py<PyAny>, work: fn(&Held) -> Result<bool, LockError>) -> PyResult<Pending> {
        self.is_here(py)?;
        let ended = || errors::lost(py, "its session has ended");
        let (held, threads) = (Arc::clone(&self.held), self.threads.upgrade().ok_or_else(ended)?);
        Pending::start(&threads, Some(then), move |_| work(&held).map(|_| None))
    }
}

#[pymethods]
impl Hold {
    /// The fencing token: larger than that of any grant before that excluded this one.
    #[getter]
    fn token(&self) -> u64 {
        self.token
    }

    /// Whether somebody waits for this lock, as far as the service has said.
    #[getter]
    fn wanted(&self, py: Python<'_>) -> bool {
        let is_wanted = |held: &ProcessLocal<elbow_lock::Hold>| held.get().is_some_and(elbow_lock::Hold::is_wanted);
        self.is_ours() && py.detach(|| at_work(|| self.held.lock().as_ref().is_some_and(is_wanted)))
    }

    /// Whether it is ours by our own clock: another thread took it, and this one may have been stopped for longer than the lease since.
    #[getter]
    fn current(&self, py: Python<'_>) -> bool {
        let is_current = |held: &ProcessLocal<elbow_lock::Hold>| held.get().is_some_and(elbow_lock::Hold::is_current);
        self.is_ours() && py.detach(|| at_work(|| self.held.lock().as_ref().is_some_and(is_current)))
    }

    /// Raises `Lost` if the lock is not ours any more. To be called just before each I/O under it. No round trip, except
    /// after the connection broke.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        self.is_here(py)?;
        let checked = py.detach(|| at_work(|| check(&self.held)));
        match checked.map_err(|error| errors::exception(py, &error))? {
            true => Ok(()),
            false => Err(errors::lost(py, "this lock was released")),
        }
    }

    /// Releases it. Once is enough, more is harmless.
    fn release(&self, py: Python<'_>) {
        if self.is_ours() {
            py.detach(|| at_work(|| drop(self.held.lock().take())));
        }
    }

    /// Releases it, and raises `Lost` if it was not ours to the end.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_ours() {
            return Ok(());
        }
        let finished = py.detach(|| at_work(|| finish(&self.held)));
        finished.map(|_| ()).map_err(|error| errors::exception(py, &error))
    }

    /// As `check`, in another thread, which then calls `then`.
    fn check_later(&self, py: Python<'_>, then: Py<PyAny>) -> PyResult<Pending> {
        self.later(py, then, check)
    }

    /// As `finish`, in another thread, which then calls `then`.
    fn finish_later(&self, py: Python<'_>, then: Py<PyAny>) -> PyResult<Pending> {
        self.later(py, then, finish)
    }

    fn __repr__(&self) -> String {
        format!("<elbowroom.Hold, token {}>", self.token)
    }
}

/// Whether it was not released.
fn check(held: &Held) -> Result<bool, LockError> {
    match held.lock().as_ref().and_then(ProcessLocal::get) {
        Some(hold) => hold.check().map(|()| true),
        None => Ok(false),
    }
}

/// Whether it was not released before.
fn finish(held: &Held) -> Result<bool, LockError> {
    let taken = held.lock().take();
    match taken.and_then(ProcessLocal::take) {
        Some(hold) => hold.finish().map(|()| true),
        None => Ok(false),
    }
}
