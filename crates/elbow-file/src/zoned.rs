//! Storage in zones, which are written in order and freed as a whole.
//!
//! ```text
//!   zone      start ......... write pointer ............ capacity ....... start of the next
//!             written, in order      the next append          never there
//!
//!   empty ──append──> open ──append──> full           finish makes a zone full, reset makes it empty
//!     ^──────────────── reset ───────────┘            read-only and offline: what the medium makes of a zone that it gives up
//! ```
//!
//! [`ZonedStorage`] is what such a device offers, in the words of the host that writes it: an append to a zone goes to the write pointer, and the answer
//! says which place that was. [`KernelZones`] is a block device of Linux, [`ZonesDouble`] one in memory that knows what a power cut would leave. What
//! always holds:
//!
//! - a sector is written once between two resets of its zone, and the sectors of a zone in order;
//! - what was appended and not flushed may be lost in a power cut, in each zone from its end; zones have no order among each other;
//! - whoever appends has a [`Zone`] of their own, which says what is known of it after each call, also after one that failed.
//!
//! Not here: which zone is written next, and what is freed (`elbow_disk::zoned`).
//!
//! Source: linux/blkzoned.h; NVM Express, *Zoned Namespace Command Set*, sections 2.1 and 3; INCITS *Zoned Block Commands*.

mod double;
mod kernel;

use std::ops::Range;

use crate::Result;

pub use double::{ZoneCut, ZoneFault, ZoneGeometry, ZonesDouble};
pub use kernel::{KernelZones, OpenZonesError, is_zoned};

/// What a zone is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// No zone of this kind: written anywhere, any number of times.
    Conventional,
    /// Nothing is written.
    Empty,
    /// Written in part. A device has a bound for how many are.
    Open,
    /// Written to its end, or finished.
    Full,
    /// Can be read, and not be written or reset any more.
    ReadOnly,
    /// Can neither be read nor written any more.
    Offline,
}

/// What is known of a zone; all in sectors of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// The first one.
    pub start: u64,
    /// How many can be written; the zone may be longer than that.
    pub capacity: u64,
    /// Where the next append goes; of a full one the end of what can be read.
    pub write_pointer: u64,
    /// What it is in.
    pub state: ZoneState,
}

impl Zone {
    /// What can be written.
    ///
    /// ```
    /// use elbow_file::zoned::{Zone, ZoneState};
    ///
    /// let zone = Zone { start: 16, capacity: 10, write_pointer: 19, state: ZoneState::Open };
    /// assert_eq!((zone.places(), zone.written(), zone.rest()), (16..26, 16..19, 19..26));
    /// ```
    #[must_use]
    pub fn places(&self) -> Range<u64> {
        self.start..self.start + self.capacity
    }

    /// What was written since the last reset.
    #[must_use]
    pub fn written(&self) -> Range<u64> {
        self.start..self.write_pointer
    }

    /// What the next appends write; nothing where there can be none.
    #[must_use]
    pub fn rest(&self) -> Range<u64> {
        let is_writable = matches!(self.state, ZoneState::Empty | ZoneState::Open);
        let end = if is_writable {
            self.places().end
        } else {
            self.write_pointer
        };
        self.write_pointer..end
    }

    /// Whether it is one that is written in order, and can be reset.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        matches!(self.state, ZoneState::Empty | ZoneState::Open | ZoneState::Full)
    }

    /// Some sectors were written at the write pointer.
    fn advance(&mut self, sectors: u64) {
        self.write_pointer += sectors;
        self.state = match self.write_pointer {
            end if end == self.places().end => ZoneState::Full,
            start if start == self.start => self.state,
            _ => ZoneState::Open,
        };
    }

    fn reset(&mut self) {
        (self.write_pointer, self.state) = (self.start, ZoneState::Empty);
    }

    fn finish(&mut self) {
        (self.write_pointer, self.state) = (self.places().end, ZoneState::Full);
    }
}

/// A device whose storage lies in zones. Places and lengths are in sectors. Calls are done when they return; of one zone one is made at a time.
pub trait ZonedStorage {
    /// Bytes of a sector: what is written is a whole number of them.
    fn sector_bytes(&self) -> u32;

    /// How many zones may be written in part at a time; `None` where there is no bound.
    fn active_max(&self) -> Option<u32>;

    /// All zones, in their order.
    ///
    /// # Errors
    /// Those of asking the device.
    fn report(&mut self) -> Result<Vec<Zone>>;

    /// Reads sectors of one zone, below its write pointer.
    ///
    /// # Errors
    /// EIO for what cannot be read.
    fn read(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>>;

    /// Writes at the write pointer of a zone, and says where that was.
    ///
    /// # Errors
    /// Those of writing; any number of sectors may have been written then, in order. The zone says how many, and whether it can be written any more.
    fn append(&mut self, zone: &mut Zone, data: &[u8]) -> Result<Range<u64>>;

    /// Writes in a conventional zone.
    ///
    /// # Errors
    /// Those of writing.
    fn overwrite(&mut self, at: u64, data: &[u8]) -> Result<()>;

    /// Frees a zone: nothing is written there any more.
    ///
    /// # Errors
    /// Those of the device; the zone says what it is in then.
    fn reset(&mut self, zone: &mut Zone) -> Result<()>;

    /// Makes a zone full that was written in part, so that it does not count for [`active_max`](Self::active_max). What lies behind what was written
    /// reads as anything.
    ///
    /// # Errors
    /// Those of the device; the zone says what it is in then.
    fn finish(&mut self, zone: &mut Zone) -> Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// Those of fsync(2); what is durable then is not known.
    fn flush(&mut self) -> Result<()>;
}

impl<Z: ZonedStorage + ?Sized> ZonedStorage for &mut Z {
    fn sector_bytes(&self) -> u32 {
        (**self).sector_bytes()
    }

    fn active_max(&self) -> Option<u32> {
        (**self).active_max()
    }

    fn report(&mut self) -> Result<Vec<Zone>> {
        (**self).report()
    }

    fn read(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>> {
        (**self).read(at, sectors)
    }

    fn append(&mut self, zone: &mut Zone, data: &[u8]) -> Result<Range<u64>> {
        (**self).append(zone, data)
    }

    fn overwrite(&mut self, at: u64, data: &[u8]) -> Result<()> {
        (**self).overwrite(at, data)
    }

    fn reset(&mut self, zone: &mut Zone) -> Result<()> {
        (**self).reset(zone)
    }

    fn finish(&mut self, zone: &mut Zone) -> Result<()> {
        (**self).finish(zone)
    }

    fn flush(&mut self) -> Result<()> {
        (**self).flush()
    }
}
