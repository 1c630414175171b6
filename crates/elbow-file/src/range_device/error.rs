//! What can be wrong with a request, or go wrong with it.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::Ticket;
use crate::Errno;

/// Why a request was refused or failed. Lengths and places are in sectors unless they say bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeError {
    /// No aligned place among the targets is free.
    NoPlace {
        /// Length of the write.
        sectors: u64,
        /// The alignment asked for.
        alignment: u64,
        /// Sectors among the targets.
        targets: u64,
        /// Sectors of those that other writes have, or were given since the last barrier.
        taken: u64,
    },
    /// A place, or a target, beyond the end of the device.
    Outside {
        /// First sector of the place.
        at: u64,
        /// Its length.
        sectors: u64,
        /// Length of the device.
        device: u64,
    },
    /// A length that is no whole number of sectors, or none.
    Length {
        /// The length in bytes.
        bytes: u64,
        /// Bytes of a sector.
        sector_bytes: u32,
    },
    /// An alignment of 0.
    Alignment,
    /// The storage below failed. Of a write that failed any sectors of its place may have been written.
    Io {
        /// How.
        errno: Errno,
        /// The sectors that could not be read or written; `None` where it is not known, as of a flush. It begins with
        /// the first bad one where the device knows which that is.
        place: Option<Range<u64>>,
    },
    /// It was taken back before it began.
    Cancelled,
    /// It had not begun by its deadline.
    Late {
        /// The deadline.
        begin_by: Duration,
    },
    /// Too late to cancel it.
    Begun {
        /// Which request.
        ticket: Ticket,
    },
    /// The clock of a modelled device has come to its end, and it begins with nothing more.
    ClockEnded {
        /// The latest time at which it begins.
        end: Duration,
    },
    /// This device cannot do that.
    Unsupported(
        /// What it is.
        &'static str,
    ),
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPlace {
                sectors,
                alignment,
                targets,
                taken,
            } => write!(
                f,
                "no place for {sectors} contiguous sectors aligned to {alignment} among {targets} target sectors, \
                 {taken} of which were given away since the last barrier or are being written; name more targets, or submit a \
                 barrier once what was given away is no target any more"
            ),
            Self::Outside { at, sectors, device } => {
                write!(
                    f,
                    "{sectors} sectors at {at} do not lie in a device of {device} sectors"
                )
            }
            Self::Length { bytes, sector_bytes } => {
                write!(
                    f,
                    "{bytes} bytes are no whole number (from 1) of sectors of {sector_bytes} bytes"
                )
            }
            Self::Alignment => write!(f, "an alignment of 0 sectors; 1 allows every place"),
            Self::Io { errno, place: None } => write!(f, "the storage below: {errno}"),
            Self::Io {
                errno,
                place: Some(place),
            } => write!(
                f,
                "the storage below, at sectors {} to {}: {errno}",
                place.start, place.end
            ),
            Self::Cancelled => write!(f, "the request was cancelled before it began"),
            Self::Late { begin_by } => write!(f, "the request had not begun by its deadline, {begin_by:?}"),
            Self::Begun { ticket } => write!(
                f,
                "request {} has begun, or is complete; wait for its completion",
                ticket.0
            ),
            Self::ClockEnded { end } => write!(
                f,
                "the clock of the modelled device has passed {:.1} days, where it ends; make a new device",
                end.as_secs_f64() / (24.0 * 3600.0)
            ),
            Self::Unsupported(what) => write!(f, "this device does not know {what}"),
        }
    }
}

impl std::error::Error for RangeError {}

impl From<Errno> for RangeError {
    fn from(errno: Errno) -> Self {
        Self::Io { errno, place: None }
    }
}
