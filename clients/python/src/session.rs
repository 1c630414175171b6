//! A session with a lock service.

use std::path::PathBuf;
use std::sync::Arc;

use elbow_lock::{
    Address, Client, Credentials, FileName, LockError, LockMode, Options, Owner, PendingLock, Posix, Wait,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors;
use crate::footprint::Footprint;
use crate::hold::{Hold, Lock};
use crate::pending::Pending;
use crate::process_local::{ProcessLocal, at_work};
use crate::threads::Threads;

/// A session: its locks end with it, and with its process.
#[pyclass(frozen, module = "elbowroom._native", weakref)]
pub(crate) struct Session {
    client: ProcessLocal<Client>,
    has_lease: bool,
    threads: ProcessLocal<Arc<Threads>>,
}

/// What is asked for.
struct LockCall {
    owner: Owner,
    file: FileName,
    footprint: elbow_ranges::Footprint,
    mode: LockMode,
    timeout_ms: Option<u32>,
}

#[pymethods]
impl Session {
    /// Connects to a service.
    #[new]
    #[pyo3(signature = (url, key_file, ttl_ms))]
    fn new(py: Python<'_>, url: &str, key_file: Option<PathBuf>, ttl_ms: Option<u32>) -> PyResult<Self> {
        let raise = |error: LockError| errors::exception(py, &error);
        let address: Address = url.parse().map_err(|error| raise(LockError::BadAddress(error)))?;
        let mut options = Options::for_address(&address).map_err(raise)?;
        options.name = format!("python, process {}", std::process::id());
        if let Some(path) = key_file {
            let credentials = Credentials::read(&path).map_err(|error| errors::bad_credentials(&path, error));
            options.credentials = Some(credentials?);
        }
        options.ttl_ms = ttl_ms.unwrap_or(options.ttl_ms);
        let has_lease = options.ttl_ms > 0;
        let client = py.detach(|| at_work(|| Client::connect_with(address, options)));
        Ok(Self {
            client: ProcessLocal::new(client.map_err(raise)?, has_lease),
            has_lease,
            threads: ProcessLocal::new(Arc::default(), true),
        })
    }

    /// Waits for a lock, deaf to signals. No timeout: as long as it takes; 0: not at all.
    #[pyo3(signature = (file, footprint, shared, timeout_ms, owner))]
    fn lock(
        &self,
        py: Python<'_>,
        file: &[u8],
        footprint: &Footprint,
        shared: bool,
        timeout_ms: Option<u32>,
        owner: u64,
    ) -> PyResult<Hold> {
        let lock_call = LockCall::new(file, footprint, shared, timeout_ms, owner)?;
        let (client, threads) = self.parts(py)?;
        let lock = py.detach(|| at_work(|| lock_call.send(client)?.wait()));
        let lock = lock.map_err(|error| errors::exception(py, &error))?;
        Ok(Hold::new(Lock::new(lock, self.has_lease, Arc::downgrade(threads))))
    }

    /// Has another thread wait for a lock, and call `then`.
    #[pyo3(signature = (file, footprint, shared, timeout_ms, owner, then))]
    #[allow(clippy::too_many_arguments, reason = "they are arguments of a lock")]
    fn lock_later(
        &self,
        py: Python<'_>,
        file: &[u8],
        footprint: &Footprint,
        shared: bool,
        timeout_ms: Option<u32>,
        owner: u64,
        then: Option<Py<PyAny>>,
    ) -> PyResult<Pending> {
        let lock_call = LockCall::new(file, footprint, shared, timeout_ms, owner)?;
        let (client, threads) = self.parts(py)?;
        let (client, has_lease, theirs) = (client.clone(), self.has_lease, Arc::downgrade(threads));
        Pending::start(threads, then, move |call| {
            let asked = lock_call.send(&client)?;
            call.can_be_cancelled_by(asked.canceller());
            Ok(Some(Lock::new(asked.wait()?, has_lease, theirs)))
        })
    }

    /// Whether anybody holds any byte of a file exclusively or not.
    fn is_locked(&self, py: Python<'_>, file: &[u8]) -> PyResult<bool> {
        let file = name(file)?;
        let (client, _) = self.parts(py)?;
        let all = Posix {
            owner: Owner(u64::MAX),
            file: &file,
            start: 0,
            end: u64::MAX,
        };
        let blocker = py.detach(|| at_work(|| client.query(&all, LockMode::Exclusive)));
        Ok(blocker.map_err(|error| errors::exception(py, &error))?.is_some())
    }

    /// What the service holds and who waits: a JSON object.
    fn status(&self, py: Python<'_>) -> PyResult<String> {
        let (client, _) = self.parts(py)?;
        let status = py.detach(|| at_work(|| client.status()));
        status.map_err(|error| errors::exception(py, &error))
    }
}

impl Session {
    fn parts(&self, py: Python<'_>) -> PyResult<(&Client, &Arc<Threads>)> {
        let parts = self.client.get().zip(self.threads.get());
        parts.ok_or_else(|| errors::lost(py, "this session belongs to the process that forked this one"))
    }
}

impl LockCall {
    fn new(file: &[u8], footprint: &Footprint, shared: bool, timeout_ms: Option<u32>, owner: u64) -> PyResult<Self> {
        Ok(Self {
            owner: Owner(owner),
            file: name(file)?,
            footprint: footprint.0.clone(),
            mode: if shared { LockMode::Shared } else { LockMode::Exclusive },
            timeout_ms,
        })
    }

    fn send(self, client: &Client) -> Result<PendingLock, LockError> {
        let wait = match self.timeout_ms {
            None => Wait::Forever,
            Some(0) => Wait::Try,
            Some(timeout_ms) => Wait::For(timeout_ms),
        };
        client.ask(self.owner, self.file, self.footprint, self.mode, wait)
    }
}

/// The name under which a file is locked: its absolute path without symbolic links.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "that is how arguments come")]
pub(crate) fn file_name(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyBytes>> {
    let name = py.detach(|| elbow_lock::file_name(&path));
    let name = name.map_err(|error| errors::exception(py, &error))?;
    Ok(PyBytes::new(py, name.as_bytes()))
}

fn name(file: &[u8]) -> PyResult<FileName> {
    let bytes = file.len();
    let bad = || PyValueError::new_err(LockError::BadName { bytes }.to_string());
    FileName::new(file).ok_or_else(bad)
}
