//! Synthetic loads for a drive and a scheduler, and what came of them.
//!
//! ```text
//!   source ──asks──> Queue ──pick──> overhead before │ seek │ rotation │ transfer │ overhead after ──> Served ──> Summary
//!     ^                                                                                     │
//!     └───────────── closed loop: a replacement for each request that is done ──────────────┘
//! ```
//!
//! Closed loop: `depth` requests are in the system. When one is done, the scheduler picks the next one *before* the host's
//! replacement arrives (as a host that is told of the completion and then asks again), or after it. Picking before, it chooses
//! among `depth - 1`, so a depth of 2 gives what 1 gives. Open loop: arrivals at random moments, whatever the drive does.
//!
//! Always: no time wraps; a load for which the clock has no time is refused, at the start where that can be known. The same workload, seed and scheduler give the same requests and times; memory does not grow with their number.
//! Reads want one place. Writes may land on any aligned place of their targets; for a scheduler that ignores ranges they want one
//! random place of the first target, as a file system that chose itself.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), sections 3.4 and 4; confidence by batch means: Law
//! and Kelton, *Simulation Modeling and Analysis*, section 9.5.

mod config;
mod drive_side;
mod run;
mod sectors;
mod served;
mod source;
mod summary;

pub use config::{Arrivals, GROUP_SECTORS, Moment, Overheads, RangeSize, Span, Workload, WorkloadError};
pub(crate) use drive_side::DriveSide;
pub use run::{Phase, simulate};
pub use served::Served;
pub use summary::{Estimate, Summary};
