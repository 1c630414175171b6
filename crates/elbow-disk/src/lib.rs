//! Disks (floor 2): a rotating drive modelled to the microsecond, schedulers for requests that name a range of places,
//! a device that takes such requests, and a write-ahead region on it.
//!
//! Source: Anand, Sen, Krioukov, Popovici, Akella, Arpaci-Dusseau, Arpaci-Dusseau, Banerjee, *Avoiding File System Micromanagement
//! with Range Writes* (OSDI 2008).

mod controller;
pub mod device;
mod drive;
pub mod import;
mod media_cache;
mod percentiles;
pub mod profile;
pub mod region;
mod replay;
pub mod sched;
pub mod timeline;
pub mod trace;
pub mod workload;
pub mod zoned;

pub use controller::{Controller, Request, Served};
pub use drive::{
    Arm, Drive, DriveError, Lbn, PositioningTime, Ps, SECTOR_BYTES, SectorAddress, Service, ShingledSummary, Summary,
    Track, TrackPart, ZoneSummary,
};
pub use percentiles::{Percentiles, Times};
pub use replay::{Figures, QueuedReplay, Report, replay};
