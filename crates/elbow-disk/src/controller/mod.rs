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
//! sector of a write is written only if its data has arrived, and costs a whole turn if it has not. Without a write cache a write is complete
//! when the medium has it; `write_back` is about drives with one, `shingled` about those whose tracks overlap. What was read ahead, and written back, is worked out when the next request
//! arrives, so nothing runs in between.
//!
//! Always: requests come in order of time, each after the end of the one before; the parts of an answer add up to its whole. What a write that is
//! reported before the medium has it costs there is in none of them.
//!
//! Not modelled: a request larger than a segment waiting for room in it, several commands in the drive at once.
//!
//! Source: the behaviour of DiskSim 4.0's disk controller (its files `disksim_diskctlr.c` and `disksim_diskcache.c`) for one
//! outstanding request; Bucy, Schindler, Schlosser, Ganger, *The DiskSim Simulation Environment Version 4.0 Reference Manual*
//! (CMU-PDL-08-101); Worthington, Ganger, Patt, Wilkes, *On-Line Extraction of SCSI Disk Drive Parameters* (SIGMETRICS 1995).

mod head;
mod medium;
mod read;
mod segments;
mod shingled;
mod shingles;
mod write;
mod write_back;

use std::collections::VecDeque;

use elbow_ranges::RangeSet;

use crate::drive::{Arm, Drive, Lbn, Ps, WriteCache};

use head::Ahead;
use medium::{Dirty, MediumWrite};
use segments::Segments;
use shingles::Shingles;

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

impl Last {
    fn is_write(self) -> bool {
        matches!(self, Last::Write(_))
    }
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
    /// Writes that were reported before the medium had them, in the order in which they came; those that it has are dropped as
    /// the next one comes.
    dirty: VecDeque<Dirty>,
    /// The last write that was not.
    last_write: Option<MediumWrite>,
    /// Until then the arm writes back.
    busy: Ps,
    /// The end of the last request.
    idle_since: Ps,
    /// The write cache is not used.
    write_through: bool,
    /// Of a shingled drive.
    shingles: Option<Box<Shingles>>,
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
            dirty: VecDeque::new(),
            last_write: None,
            busy: Ps::ZERO,
            idle_since: Ps::ZERO,
            write_through: false,
            shingles: Shingles::new(drive),
        }
    }

    /// The same with nothing but mechanics: each request takes what [`Drive::service`] says, on a shingled drive as if it were none.
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

    /// The same where the arm stands there at first.
    ///
    /// # Panics
    /// Where that is not on the drive.
    ///
    /// ```
    /// use elbow_disk::{Arm, Controller, Drive, Ps};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let arm = Arm { cylinder: 700, head: 3 };
    /// assert_eq!(Controller::mechanical(&drive).standing_at(arm).arm(Ps::ZERO), arm);
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn standing_at(self, arm: Arm) -> Controller<'d> {
        assert!(self.drive.has(arm), "{arm:?} is not on {}", self.drive.name());
        Controller { arm, ..self }
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
        let served = if self.mechanical {
            self.serve_mechanically(now, request)
        } else if self.shingles.is_some() {
            self.serve_shingled(now, request)
        } else if !write {
            self.read(now, lbn.0, sectors)
        } else if let Some(cache) = self.write_cache(sectors) {
            self.write_cached(cache, now, lbn.0, sectors)
        } else {
            self.write(now, lbn.0, sectors)
        };
        self.idle_since = served.end;
        served
    }

    fn serve_mechanically(&mut self, now: Ps, request: Request) -> Served {
        let Request { lbn, sectors, write } = request;
        let service = self.drive.service(self.arm, now, lbn, sectors, write);
        self.arm = service.end;
        if write {
            self.last_write = Some(MediumWrite::with_all_data(now + service.seek, lbn.0, sectors));
        }
        let parts = [service.seek, service.rotation, service.transfer];
        served(now, now + service.total(), parts, false)
    }

    /// The write cache, if a write of so many sectors goes through it.
    fn write_cache(&self, sectors: u32) -> Option<&'d WriteCache> {
        let electronics = &self.drive.electronics;
        let fits = electronics
            .cache
            .as_ref()
            .is_some_and(|cache| sectors <= cache.segment_sectors);
        electronics.write_cache.as_ref().filter(|_| fits && !self.write_through)
    }

    /// Whether reads find in the cache what was written.
    fn keeps_written(&self) -> bool {
        let cache = self.drive.electronics.cache.as_ref();
        cache.is_some_and(|cache| cache.keep_written)
    }

    /// A write that is complete only when the medium has it (*forced unit access*), whatever the drive caches.
    ///
    /// # Panics
    /// Where the request is no write, is empty or passes the drive's end.
    ///
    /// ```
    /// use elbow_disk::{Controller, Drive, Lbn, Ps, Request};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let write = Request { lbn: Lbn(1000), sectors: 8, write: true };
    /// let served = Controller::new(&drive).serve_through(Ps::ZERO, write);
    /// assert_eq!(served, Controller::new(&drive).serve(Ps::ZERO, write), "this drive has no write cache");
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    pub fn serve_through(&mut self, now: Ps, request: Request) -> Served {
        assert!(request.write, "{request:?} is no write");
        let was = std::mem::replace(&mut self.write_through, true);
        let served = self.serve(now, request);
        self.write_through = was;
        served
    }

    /// Turns the write cache off or on again. What is in it stays there until it is written back, or flushed.
    pub fn set_write_through(&mut self, write_through: bool) {
        self.write_through = write_through;
    }

    /// Has the drive write all that it reported and the medium does not have; says when that is done.
    ///
    /// A flush that arrives at `now`, after the end of the request before it, takes a write's completion beside that.
    ///
    /// ```
    /// use elbow_disk::{Controller, Drive, Ps};
    /// let drive = Drive::named("generic-7200")?;
    /// assert_eq!(Controller::new(&drive).flush(Ps(5)), Ps(5), "nothing to write, and this drive's commands take no time");
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    pub fn flush(&mut self, now: Ps) -> Ps {
        let now = self.catch_up_shingles(now, true);
        self.write_back_idle(now);
        let end = self.write_back_all(now) + self.drive.electronics.command.write_completion_ms.0;
        self.idle_since = end;
        end
    }

    /// The sectors that a power cut at `time` finds written, as the requests so far go, and not on the medium: those keep what they had before.
    ///
    /// `time` is not before the arrival of the last request. Sectors of a write that the host has not been told of yet are among
    /// them; a disk writes whole sectors, so none is torn.
    ///
    /// ```
    /// use elbow_disk::{Controller, Drive, Lbn, Ps, Request};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let mut controller = Controller::new(&drive);
    /// let end = controller.serve(Ps::ZERO, Request { lbn: Lbn(1000), sectors: 8, write: true }).end;
    /// assert_eq!(controller.lost_by_power_cut(Ps::ZERO).iter().collect::<Vec<_>>(), [1000..1008]);
    /// assert!(controller.lost_by_power_cut(end).is_empty());
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn lost_by_power_cut(&self, time: Ps) -> RangeSet {
        let mut then = self.clone();
        then.catch_up_shingles(time, false);
        then.write_back_idle(time);
        then.lost_to_host(then.missing_at(time))
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
