//! Which request the arm serves next, and where on the disk a request that leaves it free lands.
//!
//! ```text
//!   host ──push──> Queue ──pick(arm, now)──> Pick { lbn, reach }
//!                   │ fixed    requests for one place, in columns (`fixed`)
//!                   │ regions  sets of free places that range writes may land on (`targets`); who waits for each
//!                   └ one of   FCFS, SSTF, SPTF    `fixed`     each request has one place
//!                              ASPTF, SCAN, C-LOOK
//!                              expand-and-cancel   `expand`    every place of every range is a request, the rest is cancelled
//!                              hierarchical-range  `walk`      cylinder, then track, then the next free place of the track
//! ```
//!
//! A scheduler compares positioning times (seek and rotation). Among equals the oldest request wins, then the lowest LBN, so
//! that two schedulers which find the same best time pick the same place. Positions within one request are contiguous and
//! served in ascending order; nothing here cuts or reorders a request. Who waits in a region waits in the order of arrival.
//!
//! It does not know what happens before or after the mechanics (commands, bus, cache), nor when requests arrive:
//! see [`workload`](crate::workload).
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), sections 3.2 and 3.3; Worthington, Ganger,
//! Patt, *Scheduling Algorithms for Modern Disk Drives* (SIGMETRICS 1994).

mod arms;
mod best;
mod expand;
mod fixed;
mod policy;
mod queue;
mod sweep;
mod targets;
mod tracks;
mod walk;

pub use arms::CommandLead;
pub use policy::{Ageing, Scheduler, UnknownScheduler, Walk};
pub use queue::{Pick, Queue, QueueRequest, RegionId};
pub use targets::{NoPlace, Targets};
