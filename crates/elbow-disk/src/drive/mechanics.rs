//! Seek, rotation, transfer: where the head is and when.
//!
//! The platter turns for ever at one speed: at time `t` the angle under the heads is `t mod rotation`. A head that arrives
//! exactly when a sector starts catches it.

use super::{Arm, Drive, Lbn, PositioningTime, Ps, Service, TrackPart};

impl Drive {
    /// How long the arm takes from track to track: the longer of the seek and, where the head changes, its switch; a write then
    /// has to settle, or needs less (a settle below 0, as of drives that read only when the head is calm). Nothing where it stands already.
    ///
    /// ```
    /// use elbow_disk::{Arm, Drive, Ps};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let (here, there) = (Arm { cylinder: 7, head: 0 }, Arm { cylinder: 8, head: 3 });
    /// assert_eq!(drive.arm_time(here, there, false), Ps::from_ms(2.89));
    /// assert_eq!(drive.arm_time(here, there, true), Ps::from_ms(2.89 + 0.65));
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn arm_time(&self, from: Arm, to: Arm, write: bool) -> Ps {
        if from == to {
            return Ps::ZERO;
        }
        let seek = self.seek.time(from.cylinder, to.cylinder);
        let switch = if from.head == to.head {
            Ps::ZERO
        } else {
            self.head_switch
        };
        self.write_settle.after(seek.max(switch), write)
    }

    /// When the arm gets to `lbn` and how long it waits there: what a scheduler asks of each request in its queue.
    ///
    /// # Panics
    /// Where `lbn` or `from` is not on the drive.
    ///
    /// ```
    /// use elbow_disk::{Arm, Drive, Lbn, Ps};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let reach = drive.reach(Arm::default(), Ps::ZERO, Lbn(1_000_000), false);
    /// assert!(reach.seek > Ps::from_ms(7.0) && reach.rotation < drive.rotation());
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn reach(&self, from: Arm, now: Ps, lbn: Lbn, write: bool) -> PositioningTime {
        let (place, angle) = self.geometry.find(lbn);
        let seek = self.arm_time(from, place.arm, write);
        PositioningTime {
            seek,
            rotation: self.wait(now + seek, angle),
        }
    }

    /// From `now` until `angle` is under the head.
    #[inline]
    fn wait(&self, now: Ps, angle: Ps) -> Ps {
        let under = self.turn.remainder(now.0);
        Ps(if angle.0 >= under {
            angle.0 - under
        } else {
            angle.0 + self.rotation().0 - under
        })
    }

    /// What a request of `sectors` sectors takes from `now` on, with nothing but mechanics: no command, bus or cache.
    ///
    /// # Panics
    /// Where it is empty, passes the drive's end or `from` is not on the drive.
    ///
    /// ```
    /// use elbow_disk::{Arm, Drive, Lbn, Ps};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let service = drive.service(Arm::default(), Ps::ZERO, Lbn(0), 96, true);
    /// assert_eq!(service.transfer, drive.rotation(), "the first zone has 96 sectors on a track");
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn service(&self, from: Arm, now: Ps, lbn: Lbn, sectors: u32, write: bool) -> Service {
        let mut legs = self.legs(from, now, lbn, sectors, write);
        let Some(first) = legs.next() else {
            panic!("a request of no sectors");
        };
        let alone = Service {
            seek: first.seek,
            rotation: first.rotation,
            transfer: first.passing,
            end: first.arm,
        };
        legs.fold(alone, |service, leg| Service {
            transfer: service.transfer + leg.total(),
            end: leg.arm,
            ..service
        })
    }

    /// The same request track by track: what [`service`](Self::service) adds up.
    ///
    /// ```
    /// use elbow_disk::{Arm, Drive, Lbn, Ps};
    /// let drive = Drive::named("hp-c2247a")?;
    /// let legs: Vec<_> = drive.legs(Arm::default(), Ps::ZERO, Lbn(90), 10, true).collect();
    /// assert_eq!((legs[0].sectors, legs[1].first, legs[1].sectors), (6, Lbn(96), 4), "96 sectors on a track");
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    ///
    /// # Panics
    /// As [`service`](Self::service), as far as it is asked.
    #[inline]
    pub fn legs(&self, from: Arm, now: Ps, lbn: Lbn, sectors: u32, write: bool) -> impl Iterator<Item = TrackPart> {
        let (mut arm, mut time, mut first, mut left) = (from, now, lbn, sectors);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let track = self.geometry.track(first);
            let PositioningTime { seek, rotation } = self.reach(arm, time, first, write);
            let sectors = left.min((track.first.0 + u64::from(track.sectors) - first.0) as u32);
            let leg = TrackPart {
                seek,
                rotation,
                passing: self.geometry.passing(first, sectors),
                first,
                sectors,
                arm: track.arm,
            };
            time += leg.total();
            (arm, first, left) = (leg.arm, Lbn(first.0 + u64::from(sectors)), left - sectors);
            Some(leg)
        })
    }
}
