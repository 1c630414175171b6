//! What stays the same as long as a job lives, and what all parts of its model call by one name.

use std::ffi::OsStr;
use std::sync::Arc;

use elbow_file::Time;

use crate::api::Ino;
use crate::options::Publish;

/// One path component.
pub(crate) type Name = Arc<OsStr>;

/// The job's own directory (`.elbow-<id>`), as a container for what has no place in the tree for a moment.
pub(crate) const IN_TRANSIT: Ino = Ino(0);

/// What stays the same as long as a job lives.
#[derive(Debug)]
pub(crate) struct ModelConfig {
    /// The name of the job's own directory.
    pub(crate) staging_name: Name,
    /// The name of its staging directories below that of the job.
    pub(crate) part_name: Name,
    /// Written data that may be in memory, in bytes.
    pub(crate) memory_limit: u64,
    pub(crate) publish: Publish,
    /// When the job began, by the clock of this machine.
    pub(crate) began: Time,
    /// What the storage gives to objects that this process creates.
    pub(crate) own_uid: u32,
    pub(crate) own_gid: u32,
    /// Descriptors of directories that may be kept open.
    pub(crate) handles_max: usize,
    /// The storage is at the far end of a connection, which hears of closed files in passing.
    pub(crate) has_far_end: bool,
    /// It is on another machine, which copies files by itself.
    pub(crate) copies_there: bool,
}
