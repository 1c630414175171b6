//! The head on its way along consecutive sectors, and what it reads ahead.

use crate::drive::{Arm, Drive, Lbn, Ps};

/// The head of a running read: it stood at `arm` when, at `time`, it was free to go for the sector `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) arm: Arm,
    pub(super) time: Ps,
    pub(super) next: u64,
}

/// A read that goes on by itself until `limit`, into a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) head: Head,
    pub(super) limit: u64,
    pub(super) segment: Option<usize>,
}

impl Head {
    /// Reads one sector.
    pub(super) fn read_one(&mut self, drive: &Drive) {
        let reach = drive.reach(self.arm, self.time, Lbn(self.next), false);
        self.arm = drive.locate(Lbn(self.next)).arm;
        self.time = self.time + reach.total() + drive.passing(Lbn(self.next), 1);
        self.next += 1;
    }

    /// Reads what ends by `time`, up to `end`.
    pub(super) fn read_by(&mut self, drive: &Drive, time: Ps, end: u64) {
        while self.next < end {
            let mut after = *self;
            after.read_one(drive);
            if after.time > time {
                return;
            }
            *self = after;
        }
    }

    /// When the sector before `end` has been read.
    pub(super) fn read_all(mut self, drive: &Drive, end: u64) -> Ps {
        while self.next < end {
            self.read_one(drive);
        }
        self.time
    }

    /// Reads up to `wanted` sectors of the track below it, those that end by `now`; says whether all of them.
    fn read_until(&mut self, drive: &Drive, wanted: u32, now: Ps) -> bool {
        let first = Lbn(self.next);
        let start = self.time + drive.reach(self.arm, self.time, first, false).rotation;
        let count = count_by(wanted, |count| start + drive.passing(first, count) <= now);
        if count > 0 {
            self.time = start + drive.passing(first, count);
            self.next += u64::from(count);
        }
        count == wanted
    }
}

impl Ahead {
    /// How far it has come at `now`, and from when on the arm can do something else: a sector under way is given up at once, a
    /// movement of the arm ends first.
    pub(super) fn until(mut self, drive: &Drive, now: Ps) -> (Ahead, Ps) {
        while self.head.next < self.limit {
            let track = drive.track(Lbn(self.head.next));
            let moved = self.head.time + drive.arm_time(self.head.arm, track.arm, false);
            // A sector under way is given up at once.
            if self.head.time >= now {
                return (self, now);
            }
            self.head = Head {
                arm: track.arm,
                time: moved,
                ..self.head
            };
            // A movement of the arm cannot be broken off.
            if moved > now {
                return (self, moved);
            }
            let wanted = (self.limit.min(track.first.0 + u64::from(track.sectors)) - self.head.next) as u32;
            if !self.head.read_until(drive, wanted, now) {
                break;
            }
        }
        (self, now)
    }

    pub(super) fn is_done(&self) -> bool {
        self.head.next >= self.limit
    }
}

/// The largest count up to `wanted` that holds, where it holds for all smaller ones and for 0.
fn count_by(wanted: u32, holds: impl Fn(u32) -> bool) -> u32 {
    if holds(wanted) {
        return wanted;
    }
    let (mut low, mut high) = (0, wanted);
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle } else { high = middle }
    }
    low
}
