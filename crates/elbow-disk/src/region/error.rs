//! What can go wrong with a region.

use std::fmt;

use elbow_file::range_device::RangeError;

/// Where an entry is in a [`Log`](super::Log): later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a region or a log refused, or failed. Places and lengths are in sectors unless they say bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The device below refused or failed.
    #[error("the device of the region: {0}")]
    Device(#[from] RangeError),
    /// Neither copy of the header is whole.
    #[error(
        "no region is on this device: neither of its first two sectors is a header; format it, or name the device that has one"
    )]
    NoRegion,
    /// A header of a version that is not known here.
    #[error("the region's format is of version {found}, and this program knows 1; use a newer one")]
    Version {
        /// The version in the header.
        found: u32,
    },
    /// One of several copies, opened by itself.
    #[error(
        "this is one of {copies} copies of a region, which are opened together; name the others, or say that they are missing"
    )]
    Copy {
        /// How many there are.
        copies: u32,
    },
    /// Copies that are not of one set.
    #[error(
        "these are not the {count} copies of one region: one of them is of another region, or there are more or fewer; name those that were made together"
    )]
    OtherCopies {
        /// How many were named.
        count: usize,
    },
    /// Copies were opened without each other, and may have different writes.
    #[error(
        "copies of this region went on without each other: choose one of them, and name an empty device in the place of each other, which becomes a copy of it"
    )]
    Diverged,
    /// A copy whose making has not come to its end.
    #[error("this copy of the region is not complete: it was being made when it was last written; name a copy that is")]
    Incomplete,
    /// A device that shares a region in place of the one that it was made on.
    #[error(
        "device {number} is not the one that shares this region: name those that it was made on, in the same order"
    )]
    OtherDevice {
        /// Counted from 1, as they were named.
        number: usize,
    },
    /// A header that no region comes to have.
    #[error("the header says that the region was opened {found} times, which cannot be; the device has damaged it")]
    Incarnation {
        /// The number in the header.
        found: u64,
    },
    /// The header describes another device.
    #[error(
        "the region was made with {made} sectors of {made_bytes} bytes, and the device has {found} of {found_bytes}; name the whole device that it was made on"
    )]
    Shape {
        /// Sectors in the header.
        made: u64,
        /// Bytes of a sector in the header.
        made_bytes: u32,
        /// Sectors of the device.
        found: u64,
        /// Bytes of a sector of the device.
        found_bytes: u32,
    },
    /// A device with too few or too small sectors.
    #[error(
        "a region needs at least {needed} sectors of 128 bytes or more, and the device has {sectors} of {sector_bytes}"
    )]
    TooSmall {
        /// Sectors needed.
        needed: u64,
        /// Sectors of the device.
        sectors: u64,
        /// Bytes of one.
        sector_bytes: u32,
    },
    /// An address beyond the logical size.
    #[error("{sectors} sectors at {at} do not lie in a log of {logical_sectors} sectors")]
    Outside {
        /// First sector.
        at: u64,
        /// Their number.
        sectors: u64,
        /// The logical size.
        logical_sectors: u64,
    },
    /// Data that is no whole number of sectors, or more bytes than a record holds.
    #[error("{bytes} bytes cannot be written here: {allowed}")]
    Length {
        /// Length of the data in bytes.
        bytes: u64,
        /// What could be.
        allowed: String,
    },
    /// No place is left, and none could be made by a flush or by moving records.
    #[error(
        "the region is full: no {sectors} sectors in a row are free, of {free} free ones; trim or truncate what is not needed, or format a larger region"
    )]
    Full {
        /// Sectors of the record.
        sectors: u64,
        /// Free sectors.
        free: u64,
    },
    /// A record that was whole when the region was opened is not any more.
    #[error(
        "the record at sector {at} does not have the checksum that it was written with; the device has changed or damaged it"
    )]
    Damaged {
        /// First sector of the record.
        at: u64,
    },
    /// A region that is no log.
    #[error("the region on this device has {logical_sectors} logical sectors, and is no log; open it as a region")]
    NoLog {
        /// Its logical size.
        logical_sectors: u64,
    },
    /// A region that is no log, on a device that writes zone by zone.
    #[error(
        "a region of {logical_sectors} logical sectors frees its places one by one, and this device frees whole zones; make a log of it, or take a device without zones"
    )]
    Zones {
        /// Its logical size.
        logical_sectors: u64,
    },
    /// An entry of a log is not there any more.
    #[error("the log has no entry at LSN {lsn}, and had one when it was opened; the device has changed")]
    Missing {
        /// Where it was.
        lsn: Lsn,
    },
    /// A write or flush has failed before, and what is durable is not known.
    #[error(
        "a write or flush of this region has failed ({0}); open the device again, and then the region, to learn what is durable"
    )]
    Failed(RangeError),
}
