//! What a process needs that works for another one: a umask that changes nothing, many open files, and threads.

#![allow(clippy::disallowed_methods)] // limits are read from /proc

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use elbow_mount::ChildState;
use rustix::process::{Resource, Rlimit};

/// A job with the least of all is served by twelve threads, with the processes that are started for it; and those that have just been tried may
/// count for a moment longer.
pub(crate) const THREADS_LEAST: usize = 14;
/// Of a thread, as the runtime has it where nobody asks for another.
pub(crate) const STACK_BYTES: usize = 2 << 20;

/// Makes this process fit to work for another one, and says how the other is to find things.
///
/// The storage is called with umask 0, because the modes of a job are final; every new object costs a descriptor
/// for a while, so the limit of open files goes up as far as it may.
pub(crate) fn prepare_process() -> ChildState {
    let state = ChildState::current();
    rustix::process::umask(rustix::fs::Mode::empty());
    raise_open_files();
    state
}

/// Fails where a job could not be served: without a thread that answers, whatever uses its mount would wait without an end.
pub(crate) fn expect_threads_of_job() -> anyhow::Result<()> {
    expect_threads("a job", THREADS_LEAST)
}

/// Fails where so many threads cannot be started at once.
pub(crate) fn expect_threads(what: &str, needed: usize) -> anyhow::Result<()> {
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock().unwrap_or_else(PoisonError::into_inner);
    let mut started = Vec::new();
    let all = (0..needed).try_for_each(|_| {
        let gate = gate.clone();
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        started.push(thread.spawn(move || drop(gate.lock()))?);
        Ok::<(), std::io::Error>(())
    });
    drop(closed);
    let count = started.len();
    for thread in started {
        let _ = thread.join();
    }
    all.with_context(|| {
        format!(
            "{what} needs {needed} threads and processes, and no more than {count} can be started here \
             (`ulimit -u`, `-d` or `-v`, or pids.max of the control group)"
        )
    })
}

/// As far as may be: root beyond the hard limit, others up to it. A limit that cannot be raised is one to live with.
pub(crate) fn raise_open_files() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let to = |most| Rlimit {
        current: most,
        maximum: most,
    };
    let raised = rustix::process::setrlimit(Resource::Nofile, to(system_open_files_max()));
    if raised.is_err() {
        let _ = rustix::process::setrlimit(Resource::Nofile, to(limit.maximum));
    }
}

/// The most that the system gives to one process (proc_sys_fs(5)).
fn system_open_files_max() -> Option<u64> {
    std::fs::read_to_string("/proc/sys/fs/nr_open")
        .ok()?
        .trim()
        .parse()
        .ok()
}
