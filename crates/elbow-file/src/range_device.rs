//! Devices that may choose where a write lands.
//!
//! ```text
//!   write_range({10..14, 40..60}, alignment 2, 4 sectors)
//!        10..14 fits           40 42 44 46 48 50 52 54 56 fit: the device takes one of the ten, and says which
//! ```
//!
//! A range write names every acceptable place; the device picks the one that is quickest for it (a disk) or simply the
//! first ([`FileDevice`], [`ThreadedDevice`], [`MemoryDevice`]), or the member with the least to do ([`Members`]), and
//! its answer says where the data went.
//!
//! The interface is submit and complete, so that many requests can be outstanding, and so that a device that is only
//! modelled, with a clock of its own, can stand behind it. A request is *outstanding* from its submission until its
//! completion has been handed out. What always holds:
//!
//! - the sectors of one write are contiguous and in order, and its start is a multiple of its alignment;
//! - a place that a range write was given is not given again before a barrier that the host submits when it has been
//!   told of that place, whatever targets say until then; so two writes that are outstanding at the same time never get
//!   the same place;
//! - a range with no aligned free place is [`RangeError::NoPlace`], at submission or at completion, and then nothing
//!   was written;
//! - what was submitted before a barrier or a flush completes before it, what is submitted after completes after it
//!   (but what is cancelled or too late completes at once);
//! - reads and writes of fixed places that overlap are done in the order in which they were submitted;
//! - each ticket completes exactly once.
//!
//! What the barrier is for: a host names targets by its lists of free places, and those are old as soon as a write is
//! under way.
//!
//! ```text
//!   host    lists: 8, 9 are free
//!           R1 {8, 9} ------------------+            R3 {8, 9}, made before the host knew of R1's place
//!   device            R1 gets 8 --------|- "8" ->    R3 gets 9: 8 was given, and no barrier has come since
//!           "R1 lies at 8": lists: 9 is free         barrier: "my lists know of 8"
//!           8 is freed again, R4 {8} ----------->    R4 gets 8
//! ```
//!
//! A barrier orders and makes the device forget; it makes nothing durable, which is what a flush is for, and does not
//! order what a power cut leaves of the writes since the last flush. A host that never
//! submits one runs out of places, and is told so ([`RangeError::NoPlace`]).
//!
//! Whoever submits a write to a *fixed* place keeps it away from the targets of range writes that are outstanding:
//! those may already lie there. [`contract::check`] tests all of this on any device.
//!
//! Each device has a [`Clock`], in which completions are dated and deadlines given: real ones from their making on,
//! modelled ones in their own time, which goes on when somebody waits, or by [`RangeDevice::pass_until`]. What a device
//! cannot do (cancel, deadlines, waking) is [`RangeError::Unsupported`], so that four methods make a device.
//!
//! Not here: which place is quickest (the disk model), and who owns which sector (the file system above).
//!
//! Source: Anand et al., *Avoiding File System Micromanagement with Range Writes* (OSDI 2008), section 3.

mod blocking;
pub mod contract;
mod double;
mod error;
mod file;
mod first_sectors;
mod members;
mod memory;
mod owned;
mod places;
mod tearing;
mod threaded;
mod volatile;

use std::ops::Range;
use std::task::Waker;
use std::time::Duration;

pub use elbow_ranges::RangeSet;

pub use blocking::Blocking;
pub use double::{CountingDevice, Counts, FaultyDevice};
pub use error::RangeError;
pub use file::FileDevice;
pub use first_sectors::FirstSectors;
pub use members::Members;
pub use memory::MemoryDevice;
pub use places::{GivenPlaces, first_aligned_fit, free_targets};
pub use tearing::TearingDevice;
pub use threaded::{THREADS_MAX, ThreadedDevice};
pub use volatile::{CutImage, PowerCut, VolatileDevice};

/// Size of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a sector, the unit of all addresses and lengths of the device.
    pub sector_bytes: u32,
    /// Number of sectors.
    pub sectors: u64,
}

/// Names a request from its submission to its completion; never used twice by a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What a device is asked; places and lengths are in sectors, data is a whole number of them.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Reads sectors.
    Read {
        /// First sector.
        at: u64,
        /// Number of sectors, at least 1.
        sectors: u64,
    },
    /// Writes at one place.
    Write {
        /// First sector.
        at: u64,
        /// What is written, at least one sector.
        data: &'a [u8],
    },
    /// Writes somewhere within targets.
    WriteRange {
        /// All sectors that may be written. A [`BlockBitmap`](elbow_ranges::BlockBitmap) becomes one by
        /// `bitmap.iter().collect()`.
        targets: &'a RangeSet,
        /// The first sector is a multiple of this, at least 1.
        alignment: u64,
        /// What is written, at least one sector.
        data: &'a [u8],
    },
    /// Separates what was submitted before from what is submitted after, and says that the host's lists of free places
    /// know of all places that it has been told.
    Barrier,
    /// A barrier, and what was written before it is durable when it completes.
    Flush,
}

/// What a completed request gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// The bytes that were read.
    Read(Vec<u8>),
    /// The sectors that were written, wherever they were asked to be.
    Written(Range<u64>),
    /// A barrier or flush is behind us.
    Passed,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which one.
    pub ticket: Ticket,
    /// What came of it.
    pub result: Result<Done, RangeError>,
    /// When, by the clock of the device; 0 where it has none.
    pub at: Duration,
}

/// What time it is for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It does not know.
    None,
    /// Since it was made; it goes on by itself.
    Real(Duration),
    /// In its own time, which goes on when somebody waits for a completion or lets it [pass](RangeDevice::pass_until).
    Modelled(Duration),
}

impl Clock {
    /// What it says; 0 where there is none.
    #[must_use]
    pub fn time(self) -> Duration {
        match self {
            Self::None => Duration::ZERO,
            Self::Real(time) | Self::Modelled(time) => time,
        }
    }
}

/// What range writes could still be given by a device that writes in order, zone by zone; lengths in sectors. See [`RangeDevice::room_in_zones`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRoom {
    /// What is left of the zone that is written now.
    pub head: u64,
    /// Other zones that are targets as a whole, so that they can be begun anew.
    pub fresh: u64,
    /// Sectors of the smallest zone.
    pub zone: u64,
}

/// A device that may choose where a write lands. See the [module](self) for what holds.
///
/// ```
/// use elbow_file::range_device::{Done, MemoryDevice, RangeDevice, Request};
/// use elbow_ranges::RangeSet;
///
/// let mut device = MemoryDevice::new(512, 100);
/// let targets: RangeSet = [3..8, 20..40].into_iter().collect();
/// let write = Request::WriteRange { targets: &targets, alignment: 4, data: &[7; 2048] };
/// let (first, second) = (device.submit(write)?, device.submit(write)?);
/// assert_eq!(device.wait().map(|done| (done.ticket, done.result)), Some((first, Ok(Done::Written(4..8)))));
/// assert_eq!(device.wait().map(|done| (done.ticket, done.result)), Some((second, Ok(Done::Written(20..24)))));
/// # Ok::<(), elbow_file::range_device::RangeError>(())
/// ```
pub trait RangeDevice {
    /// How large it is.
    fn shape(&self) -> Shape;

    /// Takes a request, and may begin with it.
    ///
    /// # Errors
    /// A request that cannot be: outside the device, no whole sectors, no alignment, or no aligned place. Then there is
    /// no ticket, and nothing was changed.
    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError>;

    /// Hands out a completion that is there; `None` when there is none (yet).
    fn poll(&mut self) -> Option<Completion>;

    /// Waits for the next completion and hands it out; `None` when nothing is outstanding.
    fn wait(&mut self) -> Option<Completion>;

    /// Like [`submit`](Self::submit), for a request that is of no use later: if it has not begun by then it completes
    /// as [`RangeError::Late`], and nothing was written. The time is one of the device's [`clock`](Self::clock).
    ///
    /// # Errors
    /// Those of [`submit`](Self::submit); [`RangeError::Unsupported`] for a device that has no clock or cannot tell
    /// what has begun, and for barriers and flushes, on which rests what comes after them.
    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        let _ = (request, begin_by);
        Err(RangeError::Unsupported("a deadline"))
    }

    /// Takes back a request that has not begun. It still completes, as [`RangeError::Cancelled`], and nothing was
    /// written.
    ///
    /// # Errors
    /// [`RangeError::Begun`] for one that has begun (or completed, or is a barrier or flush): it goes on.
    /// [`RangeError::Unsupported`] for a device that takes nothing back.
    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        let _ = ticket;
        Err(RangeError::Unsupported("cancelling a request"))
    }

    /// What time it is.
    fn clock(&self) -> Clock {
        Clock::None
    }

    /// The time at which [`poll`](Self::poll) will have something, if it is known that it will: for a modelled device
    /// always when something is outstanding.
    fn next_completion_at(&mut self) -> Option<Duration> {
        None
    }

    /// Lets modelled time go by until then, while the host does something else: the device goes on with what it has,
    /// and [`poll`](Self::poll) then hands out what was done meanwhile. Does nothing where time goes by without being
    /// told, or has come so far.
    fn pass_until(&mut self, time: Duration) {
        let _ = time;
    }

    /// Sectors at which no range write crosses from the one before: where one part of the device ends and the next begins. In their order.
    fn borders(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Of a device that writes in order, zone by zone: what range writes to these targets could be given. `None` of one that writes any of them.
    ///
    /// Such a device takes the next sectors of the zone that it writes, or begins another, of which *all* sectors are targets: what was written there is
    /// freed then, since a host that would have any of it written over has no use for any of it.
    fn room_in_zones(&self, targets: &RangeSet) -> Option<ZoneRoom> {
        let _ = targets;
        None
    }

    /// Has a waker called each time that there may be something for [`poll`](Self::poll), instead of the one before.
    /// `false` where the device cannot do that, because everything happens in its methods.
    fn wake(&mut self, waker: &Waker) -> bool {
        let _ = waker;
        false
    }
}

/// The methods of a [`RangeDevice`] that its wrappers leave to the device inside, which is named as a field of `self`.
#[macro_export]
macro_rules! leave_to_device {
    ($($device:tt)+) => {
        fn cancel(&mut self, ticket: $crate::range_device::Ticket) -> Result<(), $crate::range_device::RangeError> {
            self.$($device)+.cancel(ticket)
        }

        fn clock(&self) -> $crate::range_device::Clock {
            self.$($device)+.clock()
        }

        fn next_completion_at(&mut self) -> Option<::std::time::Duration> {
            self.$($device)+.next_completion_at()
        }

        fn pass_until(&mut self, time: ::std::time::Duration) {
            self.$($device)+.pass_until(time);
        }

        fn borders(&self) -> Vec<u64> {
            self.$($device)+.borders()
        }

        fn room_in_zones(&self, targets: &$crate::range_device::RangeSet) -> Option<$crate::range_device::ZoneRoom> {
            self.$($device)+.room_in_zones(targets)
        }

        fn wake(&mut self, waker: &::std::task::Waker) -> bool {
            self.$($device)+.wake(waker)
        }
    };
}
pub use leave_to_device;

/// A device that is lent, or in a box, is that device.
macro_rules! is_device {
    ($pointer:ty) => {
        impl<D: RangeDevice + ?Sized> RangeDevice for $pointer {
            fn shape(&self) -> Shape {
                (**self).shape()
            }

            fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
                (**self).submit(request)
            }

            fn poll(&mut self) -> Option<Completion> {
                (**self).poll()
            }

            fn wait(&mut self) -> Option<Completion> {
                (**self).wait()
            }

            fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
                (**self).submit_by(request, begin_by)
            }

            fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
                (**self).cancel(ticket)
            }

            fn clock(&self) -> Clock {
                (**self).clock()
            }

            fn next_completion_at(&mut self) -> Option<Duration> {
                (**self).next_completion_at()
            }

            fn pass_until(&mut self, time: Duration) {
                (**self).pass_until(time);
            }

            fn borders(&self) -> Vec<u64> {
                (**self).borders()
            }

            fn room_in_zones(&self, targets: &RangeSet) -> Option<ZoneRoom> {
                (**self).room_in_zones(targets)
            }

            fn wake(&mut self, waker: &Waker) -> bool {
                (**self).wake(waker)
            }
        }
    };
}
is_device!(Box<D>);
is_device!(&mut D);
