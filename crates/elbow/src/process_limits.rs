//! What a process needs that works for another one: a umask that changes nothing, and many open files.

#![allow(clippy::disallowed_methods)] // limits are read from /proc

use elbow_mount::ChildState;
use rustix::process::{Resource, Rlimit};

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
