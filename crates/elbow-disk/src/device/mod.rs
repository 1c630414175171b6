//! A modelled drive as a device: requests are given to it, and in its own time it completes them.
//!
//! ```text
//!   host ──submit──> outside, in order ──up to the depth──> Queue ──pick──> running ──complete──> host
//!                    └ every range write that waits belongs to a region: its free places, kept in step
//! ```
//!
//! The drive knows `depth` requests, the one that it serves among them; what else was given to it waits outside in the order of the host.
//! A range write goes where the scheduler finds the least positioning time. That place is struck at once from the targets of all who
//! are outstanding with it, wherever they wait and also if they come while it is being written. Requests with the same free places share one
//! region, and so one walk.
//!
//! What always holds: one request at a time is served, from its pick on without a pause; times never go back; each request completes once.
//!
//! [`QueuedDrive`] is that; it keeps no bytes. [`ModelledDevice`] is a
//! [`RangeDevice`](elbow_file::range_device::RangeDevice) on top that keeps them.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), sections 3 and 4.

mod queued_drive;
mod range_device;
mod regions;

pub use queued_drive::{FinishedRequest, QueuedDrive, QueuedRequest};
pub use range_device::ModelledDevice;
pub use regions::PlaceNeed;

use crate::Ps;
use crate::sched::{Scheduler, Walk};
use crate::workload::{Moment, Overheads};

/// How a modelled drive is driven.
///
/// ```
/// use elbow_disk::device::Setup;
/// assert_eq!(Setup::default().depth, 16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Who picks.
    pub scheduler: Scheduler,
    /// Requests that the scheduler knows, the one that is being served among them; at least 1.
    pub depth: usize,
    /// Whether it picks before or after the replacement of a completed request has come.
    pub pick: Moment,
    /// What a request costs beside the mechanics.
    pub overheads: Overheads,
}

/// Overhead of a write beside the mechanics, one at a time, on the HP C2247A.
const OVERHEAD_MS: f64 = 1.07;

impl Default for Setup {
    /// As in section 4.3 of *Range Writes*: hierarchical-range scheduling, a depth of 16.
    fn default() -> Setup {
        Setup {
            scheduler: Scheduler::Hierarchical(Walk::Pruned),
            depth: 16,
            pick: Moment::Before,
            overheads: Overheads::Fixed(Ps::from_ms(OVERHEAD_MS)),
        }
    }
}
