//! The Rust half of the Python package `elbowroom` (floor 5): sessions, holds and footprints for `python/elbowroom`, and the
//! simulated disk ([`disk`]), which needs no service.
//!
//! ```text
//!   python/elbowroom   LockClient, zarr, dask: paths, pickling, asyncio, whose turn it is
//!   here               waits without the interpreter's lock, errors, what fork(2) leaves behind
//!   elbow_lock         the session
//! ```
//!
//! Invariants: no thread waits for the lock service while it holds the interpreter's lock. What belongs to a process is
//! neither used nor ended by a child that it forked ([`process_local`]).

mod disk;
mod errors;
mod footprint;
mod hold;
mod pending;
mod process_local;
mod session;
mod threads;

/// The module `elbowroom._native`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::disk::{Drive, replay_files, replay_trace, simulate_disk};
    #[pymodule_export]
    use crate::footprint::Footprint;
    #[pymodule_export]
    use crate::hold::Hold;
    #[pymodule_export]
    use crate::pending::{Pending, after_fork, before_fork, shut_down};
    #[pymodule_export]
    use crate::process_local::forked;
    #[pymodule_export]
    use crate::session::{Session, file_name};
}
