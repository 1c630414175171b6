//! What attachments ask of whatever they serve, and how it is reached.
//!
//! ```text
//!   file, block device, NBD ──Ask──> Link ──> BlockDevice: an emulated drive, or a region
//!                           <─Answer─ a reply is called, once, from any thread
//! ```

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use elbow_disk::SECTOR_BYTES;

/// What is asked of a block device; places and lengths are in sectors of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Reads.
    Read {
        /// First sector.
        at: u64,
        /// How many, at least 1.
        sectors: u32,
    },
    /// Writes whole sectors.
    Write {
        /// First sector.
        at: u64,
        /// At least one sector.
        data: Vec<u8>,
        /// Complete only when it is on the medium (forced unit access).
        through: bool,
    },
    /// Writes zeros: as long as a write of as many sectors.
    WriteZeros {
        /// First sector.
        at: u64,
        /// How many, at least 1.
        sectors: u32,
        /// As of a write.
        through: bool,
    },
    /// Forgets what sectors hold: they read as zeros. It takes no time.
    Trim {
        /// First sector.
        at: u64,
        /// How many, at least 1.
        sectors: u32,
        /// As of a write: that they are zeros is durable then.
        through: bool,
    },
    /// Makes durable what was complete when it was submitted.
    Flush,
}

/// Why a device did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriveFault {
    /// It is gone, its power was cut since the asker opened it, or it has been powered for 53 days.
    #[error("the drive has lost its power")]
    NoPower,
    /// It passes the end of the device, or is nothing, or no whole number of sectors.
    #[error("no such sectors")]
    NoSuchSectors,
    /// What is below, a backing file or another device, cannot be read or written, or has no room.
    #[error("what is below it: {}", io::Error::from_raw_os_error(*.0))]
    Backing(i32),
}

impl DriveFault {
    /// As a system call says it.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            DriveFault::NoPower => libc::EIO,
            DriveFault::NoSuchSectors => libc::EINVAL,
            DriveFault::Backing(errno) => errno,
        }
    }

    pub(crate) fn backing(error: &io::Error) -> Self {
        DriveFault::Backing(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// What came of a request: the bytes of a read, else nothing.
pub type Answer = Result<Vec<u8>, DriveFault>;

/// Who waits for an answer.
pub type Reply = Box<dyn FnOnce(Answer) + Send>;

/// What attachments serve: an emulated drive, or a region.
pub trait BlockDevice: Send + Sync {
    /// Takes a request; the reply is called once, on any thread, and does not block.
    fn submit(&self, ask: Ask, reply: Reply);

    /// Sectors of 512 bytes.
    fn sectors(&self) -> u64;

    /// Whether it takes longer for what lies farther away. Such a device is not asked to forget what a file's hole would be.
    fn is_rotational(&self) -> bool;
}

/// A way to a block device; to a drive from when it was powered on until its power is cut, after which all is refused.
#[derive(Clone)]
pub struct Link(Arc<dyn BlockDevice>);

impl Link {
    /// To a device.
    pub fn to(device: impl BlockDevice + 'static) -> Self {
        Self(Arc::new(device))
    }

    /// Submits a request; the reply is called on a thread of the device, and must not block.
    pub fn submit(&self, ask: Ask, reply: impl FnOnce(Answer) + Send + 'static) {
        self.0.submit(ask, Box::new(reply));
    }

    /// Submits a request, and waits for its answer.
    ///
    /// # Errors
    /// Those of the device.
    pub fn ask(&self, ask: Ask) -> Answer {
        let (tell, told) = mpsc::channel();
        self.submit(ask, move |answer| drop(tell.send(answer)));
        told.recv().unwrap_or(Err(DriveFault::NoPower))
    }

    /// How large the device is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.sectors() * SECTOR_BYTES
    }

    /// Whether it takes longer for what lies farther away.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        self.0.is_rotational()
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Of bytes, if they are whole sectors.
pub(crate) fn whole_sectors(data: &[u8]) -> Result<u32, DriveFault> {
    let bytes = data.len() as u64;
    let sectors = u32::try_from(bytes / SECTOR_BYTES).ok();
    sectors
        .filter(|_| bytes.is_multiple_of(SECTOR_BYTES))
        .ok_or(DriveFault::NoSuchSectors)
}
