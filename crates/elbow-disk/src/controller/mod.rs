//! One drive at work: commands, bus, segment cache, read-ahead, one request after the other.
//!
//! ```text
//!   read, not cached    command | arm, wait, read ............ read ahead until the next request
//!                                            | back to the bus | data | completion
//!   read, cached        command             | data | completion       (reading ahead goes on)
//!   write               command | arm, wait ...... write | back to the bus | completion
//!                               | data, disconnect |
//! ```
//!
//! Data crosses the bus while the medium moves: a read comes back to the bus when a part of it is there and then keeps it; a
//! sector of a write is written only if its data has arrived, and costs a whole turn if it has not. There is no fast write: a write is complete
//! when the medium has it. What was read ahead is worked out when the next request arrives, so nothing runs in between.
//!
//! Always: requests come in order of time, each after the end of the one before; the parts of an answer add up to its whole.
//!
//! Not modelled: a request larger than a segment waiting for room in it, several commands in the drive at once.
//!
//! Source: the behaviour of DiskSim 4.0's disk controller (its files `disksim_diskctlr.c` and `disksim_diskcache.c`) for one
//! outstanding request; Bucy, Schindler, Schlosser, Ganger, *The DiskSim Simulation Environment Version 4.0 Reference Manual*
//! (CMU-PDL-08-101); Worthington, Ganger, Patt, Wilkes, *On-Line Extraction of SCSI Disk Drive Parameters* (SIGMETRICS 1995).

mod head;
mod read;
mod segments;
mod write;

use crate::drive::{Arm, Drive, Lbn, Ps};

use head::Ahead;
use segments::Segments;

/// What is asked of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The first sector.
    pub lbn: Lbn,
    /// How many; at least one, and all of them on the drive.
    pub sectors: u32,
    /// A write, or a read.
    pub write: bool,
}

/// How a request went. The four parts add up to the time from its arrival to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// When the host was told that it is complete.
    pub end: Ps,
    /// The arm's first movement.
    pub seek: Ps,
    /// The wait for the first sector, with whole turns lost for want of data.
    pub rotation: Ps,
    /// The sectors passing the head, with the changes of track between.
    pub transfer: Ps,
    /// All that these three did not hide: commands, bus, completion.
    pub overhead: Ps,
    /// A read whose first sector was cached.
    pub hit: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Read,
    /// A write, and the sector after it; the drive wakes up as if after one that nothing continues.
    Write(Option<u64>),
}

/// A drive with its state.
///
/// ```
/// use elbow_disk::{Controller, Drive, Lbn, Ps, Request};
/// let drive = Drive::named("hp-c2247a")?;
/// let mut controller = Controller::new(&drive);
/// let read = Request { lbn: Lbn(1000), sectors: 8, write: false };
/// let first = controller.serve(Ps::ZERO, read);
/// let again = controller.serve(first.end, read);
/// assert!(again.hit && !first.hit);
/// assert_eq!(again.end, first.end + Ps::from_ms(0.95343 + 0.02519 + 8.0 * 0.1701 + 0.05665));
/// # Ok::<(), elbow_disk::DriveError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Controller<'d> {
    drive: &'d Drive,
    /// Commands, bus and cache cost nothing and do nothing.
    mechanical: bool,
    arm: Arm,
    last: Last,
    segments: Segments,
    ahead: Option<Ahead>,
}

impl<'d> Controller<'d> {
    /// The drive, just started: the arm is at cylinder 0, head 0, the platter at angle 0 at time 0, the cache empty.
    #[must_use]
    pub fn new(drive: &'d Drive) -> Controller<'d> {
        let segments = Segments::new(drive.electronics.cache.as_ref());
        Controller {
            drive,
            mechanical: false,
            arm: Arm::default(),
            last: Last::Write(None),
            segments,
            ahead: None,
        }
    }

    /// The same with nothing but mechanics: each request takes what [`Drive::service`] says.
    ///
    /// ```
    /// use elbow_disk::{Controller, Drive, Lbn, Ps, Request};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let served = Controller::mechanical(&drive).serve(Ps::ZERO, Request { lbn: Lbn(7), sectors: 8, write: true });
    /// assert_eq!(served.overhead, Ps::ZERO);
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn mechanical(drive: &'d Drive) -> Controller<'d> {
        Controller {
            mechanical: true,
            ..Controller::new(drive)
        }
    }

    /// The drive whose controller it is.
    #[must_use]
    pub fn drive(&self) -> &'d Drive {
        self.drive
    }

    /// Where the arm will be found by a request that arrives at `now`: reading ahead moves it.
    #[must_use]
    pub fn arm(&self, now: Ps) -> Arm {
        match self.ahead {
            Some(ahead) => ahead.until(self.drive, now).0.head.arm,
            None => self.arm,
        }
    }

    /// Serves a request that arrives at `now`.
    ///
    /// # Panics
    /// Where the request is empty or passes the drive's end, or comes after [`Ps::SERVED_MAX`].
    pub fn serve(&mut self, now: Ps, request: Request) -> Served {
        let Request { lbn, sectors, write } = request;
        assert!(
            sectors > 0 && lbn.0 + u64::from(sectors) <= self.drive.sectors(),
            "{request:?} is not on the drive"
        );
        assert!(now <= Ps::SERVED_MAX, "a drive serves for 106 days, not at {now}");
        if self.mechanical {
            let service = self.drive.service(self.arm, now, lbn, sectors, write);
            self.arm = service.end;
            return served(
                now,
                now + service.total(),
                [service.seek, service.rotation, service.transfer],
                false,
            );
        }
        if write {
            self.write(now, lbn.0, sectors)
        } else {
            self.read(now, lbn.0, sectors)
        }
    }
}

/// The answer, with the overhead as the rest.
fn served(now: Ps, end: Ps, [seek, rotation, transfer]: [Ps; 3], hit: bool) -> Served {
    Served {
        end,
        seek,
        rotation,
        transfer,
        overhead: (end - now).saturating_sub(seek + rotation + transfer),
        hit,
    }
}
