//! The head on its way along consecutive sectors, and what it reads ahead.

use crate::drive::{Arm, Drive, Lbn, Ps};

/// No sectors are there before those that come before them.
pub(super) const NONE_AHEAD: (u64, u64) = (u64::MAX, u64::MAX);

/// The head of a running read: it stood at `arm` when, at `time`, it was free to go for the sector `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) arm: Arm,
    pub(super) time: Ps,
    pub(super) next: u64,
    /// Sectors that passed before those that come before them, and are there already.
    pub(super) ahead_of_turn: (u64, u64),
}

/// A read that goes on by itself until `limit`, into a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) head: Head,
    pub(super) limit: u64,
    pub(super) segment: Option<usize>,
    /// Only whole sectors: what is under way, or being waited for, ends before the arm can be had.
    pub(super) whole_sectors: bool,
}

impl Head {
    /// Reads one sector.
    pub(super) fn read_one(&mut self, drive: &Drive) {
        let reach = drive.reach(self.arm, self.time, Lbn(self.next), false);
        self.arm = drive.locate(Lbn(self.next)).arm;
        self.time = self.time + reach.total() + drive.passing(Lbn(self.next), 1);
        self.next += 1;
        if self.next == self.ahead_of_turn.0 {
            self.next = self.ahead_of_turn.1;
        }
    }

    /// Notes which of the `here` sectors from the next on pass before it does, where the head lands among them.
    pub(super) fn land(&mut self, drive: &Drive, rotation: Ps, here: u32) {
        if let Some(part) = passed_before(drive, rotation, Lbn(self.next), here) {
            self.ahead_of_turn = (self.next + u64::from(part), self.next + u64::from(here));
        }
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

impl Head {
    /// When the next sector has passed, or has come where it has not at `now`.
    fn sector_end(&self, drive: &Drive, now: Ps) -> Ps {
        let next = Lbn(self.next);
        let comes = self.time + drive.reach(self.arm, self.time, next, false).rotation;
        if comes > now {
            comes
        } else {
            comes + drive.passing(next, 1)
        }
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
                let free = if self.whole_sectors {
                    self.head.sector_end(drive, now)
                } else {
                    now
                };
                return (self, free);
            }
        }
        (self, now)
    }

    pub(super) fn is_done(&self) -> bool {
        self.head.next >= self.limit
    }
}

/// The largest count up to `wanted` that holds, where it holds for all smaller ones and for 0.
pub(super) fn count_by(wanted: u32, holds: impl Fn(u32) -> bool) -> u32 {
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

/// How many whole or begun sectors from `first` on have passed when the head lands among `here` of them, `rotation` before the
/// first comes (again); none where it lands elsewhere.
pub(super) fn passed_before(drive: &Drive, rotation: Ps, first: Lbn, here: u32) -> Option<u32> {
    let passed = drive.rotation().saturating_sub(rotation);
    // The head landed just in time for the first, or after the last.
    if rotation == Ps::ZERO || passed > drive.passing(first, here) {
        return None;
    }
    let begun_before = count_by(here, |count| drive.passing(first, count) < passed);
    let part = begun_before + 1;
    (part < here).then_some(part)
}
