//! What others know of an attached region, and what its process is asked.

use elbow_drive::RegionStatus;
use serde::{Deserialize, Serialize};

use crate::attached::registry::{Attached, Kind};

pub(super) const REGIONS: Kind = Kind {
    directory: "regions",
    what: "region",
    command: "elbow bark",
};

/// Nothing but what every attachment is asked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Ask {}

/// A region at work; also the last answer, to a detach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Status {
    #[serde(flatten)]
    pub(super) attached: AttachedRegion,
    #[serde(flatten)]
    pub(super) done: RegionStatus,
}

/// What was attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct AttachedRegion {
    /// A path, or the address of NBD.
    pub(super) device: String,
    /// The devices or files that it lies on.
    pub(super) on: Vec<String>,
    /// The profiles by which places on them are chosen, if they are; in the same order.
    pub(super) profiles: Vec<String>,
    /// As how many copies it was made.
    pub(super) copies: usize,
    /// Of its content.
    pub(super) bytes: u64,
    /// That it takes, of all copies.
    pub(super) region_bytes: u64,
    pub(super) pid: u32,
}

impl Attached for AttachedRegion {
    fn device(&self) -> &str {
        &self.device
    }
}
