//! Block devices of our own (floor 3): emulated drives, which answer in real time and lose at a power cut what was not flushed, and write-ahead regions.
//!
//! ```text
//!   file (FUSE)   block device (loop on such a file)   NBD          attachments: each request becomes an `Ask`
//!        └──────────────────┬──────────────────────────┘
//!                          Link                                     to whatever is served
//!             ┌─────────────┴──────────────┐
//!       EmulatedDrive                 ServedRegion                  answers at the model's moment, and counts how late │ a region on any device
//!    DriveModel    Medium           elbow_disk::region              when it is complete; the bytes, and what is not flushed
//!   (elbow-disk)   backing file       RangeDevice
//! ```
//!
//! What it costs to ask is real: the time until a request has come here, and from the answer to the program, is not taken off. Lateness is what
//! the answer left here after its moment.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), section 6, which emulates its drive in the
//! same way.

mod attachment;
mod block_device;
mod clock;
mod drive;
mod fuse;
mod log;
mod loop_device;
mod loop_file;
mod medium;
mod model;
mod mounts;
mod nbd;
mod region;
mod unflushed;

pub use attachment::{Attachment, AttachmentKind};
pub use block_device::{Answer, Ask, BlockDevice, DriveFault, Link, Reply};
pub use clock::wake_first;
pub use drive::{DriveStatus, EmulatedDrive, Lateness, Response, Settings};
pub use loop_device::{bound_loop_devices, file_of_loop_device, remove_loop_device};
pub use loop_file::{LoopAnswer, LoopFile, files_of_loop_devices};
pub use medium::CutReport;
pub use model::{DriveModel, Driving, Motion};
pub use mounts::device_below;
pub use nbd::{NbdAddress, NbdAddressError};
pub use region::{RegionStatus, ServedRegion, Spread};
