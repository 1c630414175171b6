//! What a job is asked to be.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use crate::recorder::Recorder;
use crate::root_id::Elsewhere;

/// Under which name a new object is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Publish {
    /// In a hidden staging directory; it gets its name at commit.
    #[default]
    Staged,
    /// Under its own name at once, so that others can follow it; still removed by a roll back.
    Eager,
}

/// What happens when an old object that the job changes was changed by somebody else meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The job rolls back and names the path.
    #[default]
    RollBack,
    /// The job wins. A file of which it has written only a part, and somebody else has written to, is named all the same: neither's content would be there.
    Overwrite,
}

/// Everything about a job that its user can choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Under which names new objects are created.
    pub publish: Publish,
    /// Who wins a conflict.
    pub on_conflict: OnConflict,
    /// Most storage calls under way at once; `None`: grown from the measured latency of the storage.
    pub in_flight: Option<usize>,
    /// Most bytes of written data kept in memory.
    pub memory_bytes: u64,
    /// Directory for data beyond that; `None`: writers wait instead.
    pub scratch: Option<PathBuf>,
    /// Most bytes of spilled data; beyond it writers wait.
    pub scratch_bytes: u64,
    /// Directories to save what the storage does not take at the end, tried in this order. Without any, such a job is rolled back.
    pub save: Vec<PathBuf>,
    /// Where the directory is, if it is not here: so what is saved of it is found again.
    pub elsewhere: Option<Elsewhere>,
    /// fsync(2) inside the job waits until the data is on the storage.
    pub durable: bool,
    /// The command, for the manifest that people may find in a staging directory.
    pub command: Vec<OsString>,
    /// Is told what the job does; `None` costs nothing.
    pub recorder: Option<Arc<dyn Recorder>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            publish: Publish::Staged,
            on_conflict: OnConflict::RollBack,
            in_flight: None,
            memory_bytes: 512 << 20,
            scratch: None,
            scratch_bytes: 1 << 40,
            save: Vec::new(),
            elsewhere: None,
            durable: false,
            command: Vec::new(),
            recorder: None,
        }
    }
}
