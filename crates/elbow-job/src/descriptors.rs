//! How many descriptors this process may have.

/// Half of them are for directories.
pub(crate) fn directory_handles() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| limit as usize) / 2
}
