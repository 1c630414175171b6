//! What others know of an attached drive, and what its process is asked.

use elbow_drive::{CutReport, DriveStatus};
use serde::{Deserialize, Serialize};

use crate::attached::registry::{Attached, Kind};

pub(super) const DRIVES: Kind = Kind {
    directory: "drives",
    what: "drive",
    command: "elbow disk",
};

/// What only a drive is asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ask {
    PowerCut { torn: bool, seed: u64 },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// Also the last one, to a detach.
    Status(Box<Status>),
    PowerCut(CutReport),
}

/// A drive at work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Status {
    #[serde(flatten)]
    pub(super) attached: AttachedDrive,
    #[serde(flatten)]
    pub(super) done: DriveStatus,
}

/// What was attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AttachedDrive {
    /// A path, or the address of NBD.
    pub(super) device: String,
    pub(super) model: String,
    pub(super) backing: String,
    pub(super) bytes: u64,
    pub(super) cache: String,
    pub(super) depth: usize,
    pub(super) scheduler: String,
    pub(super) max_lateness_us: Option<f64>,
    pub(super) pid: u32,
}

impl Attached for AttachedDrive {
    fn device(&self) -> &str {
        &self.device
    }
}
