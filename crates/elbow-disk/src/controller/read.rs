//! Reads: from the medium, from a segment, or from one into the other while it is being filled.

use crate::drive::{Lbn, Ps};

use super::head::{Ahead, Head};
use super::{Controller, Last, Served, served};

impl Controller<'_> {
    pub(super) fn read(&mut self, now: Ps, lbn: u64, sectors: u32) -> Served {
        let free = self.catch_up(now);
        let served = match self.segments.find(lbn) {
            Some(segment) => self.read_hit(now, free, lbn..lbn + u64::from(sectors), segment),
            None => self.read_miss(now, free, lbn, sectors),
        };
        self.last = Last::Read;
        served
    }

    /// Reads ahead up to `now`, and says when the arm can be had.
    pub(super) fn catch_up(&mut self, now: Ps) -> Ps {
        let Some(ahead) = self.ahead else { return now };
        let (ahead, free) = ahead.until(self.drive, now);
        if let Some(segment) = ahead.segment {
            self.segments.fill(segment, ahead.head.next);
        }
        self.arm = ahead.head.arm;
        self.ahead = (!ahead.is_done()).then_some(ahead);
        free
    }

    /// Where a read that ends at `end` stops to read ahead.
    fn limit(&self, end: u64) -> u64 {
        let ahead = self
            .drive
            .electronics
            .cache
            .as_ref()
            .map_or(0, |cache| cache.read_ahead_sectors);
        (end + u64::from(ahead)).min(self.drive.sectors())
    }

    /// The first sector is in a segment. Its filling goes on, or begins again behind what is there.
    fn read_hit(&mut self, now: Ps, free: Ps, wanted: std::ops::Range<u64>, segment: usize) -> Served {
        let command = &self.drive.electronics.command;
        let limit = self.limit(wanted.end);
        match &mut self.ahead {
            // It is being filled already: reading goes on, only further.
            Some(ahead) if ahead.segment == Some(segment) => ahead.limit = ahead.limit.max(limit),
            _ => {
                // Another read may be under way; the arm is free when its movement has ended.
                let time = free.max(now + command.read_miss_ms.0);
                let head = Head {
                    arm: self.arm,
                    time,
                    next: self.segments.end(segment),
                };
                self.ahead = (head.next < limit).then_some(Ahead {
                    head,
                    limit,
                    segment: Some(segment),
                });
            }
        }
        let ready = now + command.read_hit_ms.0 + command.data_preparation_ms.0;
        let sent = self.send(ready, wanted);
        served(now, sent + command.read_completion_ms.0, [Ps::ZERO; 3], true)
    }

    /// The medium is read; the drive comes back to the bus when a part is there.
    fn read_miss(&mut self, now: Ps, free: Ps, lbn: u64, sectors: u32) -> Served {
        let (command, cache) = (&self.drive.electronics.command, self.drive.electronics.cache.as_ref());
        let disconnect = match self.last {
            Last::Read => command.read_disconnect_after_read_ms.0,
            Last::Write(_) => command.read_disconnect_after_write_ms.0,
        };
        let begun = free.max(now + command.read_miss_ms.0);
        let mut head = Head {
            arm: self.arm,
            time: begun,
            next: lbn,
        };
        let reach = self.drive.reach(head.arm, begun, Lbn(lbn), false);
        // The bus is not taken before so much is there, for it waits for the medium from then on.
        let water = cache.map_or(sectors, |cache| cache.water(sectors));
        for _ in 0..water {
            head.read_one(self.drive);
        }
        let off_the_bus = now + command.read_miss_ms.0 + disconnect;
        let back = command.reselect_ms.0 + command.data_preparation_ms.0;
        let ready = (off_the_bus + back).max(head.time + command.read_return_ms.map_or(back, |ms| ms.0));
        let wanted = lbn..lbn + u64::from(sectors);
        let segment = self.segments.take(lbn);
        // Without a segment there is nowhere to put what is read ahead.
        let limit = if segment.is_some() {
            self.limit(wanted.end)
        } else {
            wanted.end
        };
        let ahead = Ahead { head, limit, segment };
        let read_at = ahead.head.read_all(self.drive, wanted.end);
        self.ahead = Some(ahead);
        let sent = self.send(ready, wanted);
        let parts = [reach.seek, reach.rotation, read_at - begun - reach.total()];
        served(now, sent + command.read_completion_ms.0, parts, false)
    }

    /// Puts what is wanted on the bus from `ready` on, as it comes in; says when the last of it has been sent.
    fn send(&mut self, ready: Ps, wanted: std::ops::Range<u64>) -> Ps {
        let sector = self.drive.electronics.bus.read_sector_ms.0;
        let (mut next, mut time) = (wanted.start, ready);
        while next < wanted.end {
            let mut there = wanted.end;
            if let Some(ahead) = &mut self.ahead {
                ahead.head.read_by(self.drive, time, wanted.end);
                // The bus is quicker than the medium: it waits for the next sector.
                if ahead.head.next <= next {
                    ahead.head.read_one(self.drive);
                    time = ahead.head.time;
                }
                there = there.min(ahead.head.next);
            }
            time += Ps(sector.0 * (there - next));
            next = there;
        }
        time
    }
}
