//! Emulated drives (floor 3): a modelled disk that answers in real time, and loses at a power cut what was not flushed.
//!
//! ```text
//!   file (FUSE)   block device (loop on such a file)   NBD          attachments: each request becomes an `Ask`
//!        └──────────────────┬──────────────────────────┘
//!                     EmulatedDrive                                 answers at the model's moment, and counts how late
//!               DriveModel        Medium                            when it is complete; the bytes, and what is not flushed
//!            (elbow-disk)         backing file
//! ```
//!
//! What it costs to ask is real: the time until a request has come here, and from the answer to the program, is not taken off. Lateness is what
//! the answer left here after its moment.
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), section 6, which emulates its drive in the
//! same way.

mod attachment;
mod clock;
mod drive;
mod fuse;
mod loop_device;
mod medium;
mod model;
mod mounts;
mod nbd;
mod unflushed;

pub use attachment::{Attachment, AttachmentKind};
pub use drive::{Answer, Ask, DriveFault, DriveStatus, EmulatedDrive, Lateness, Link, Response, Settings};
pub use loop_device::file_of_loop_device;
pub use medium::CutReport;
pub use model::{DriveModel, Driving, Motion};
pub use nbd::{NbdAddress, NbdAddressError};
