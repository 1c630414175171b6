//! Reads: from the medium, from a segment, or from one into the other while it is being filled.

use std::ops::Range;

use crate::drive::{Lbn, Ps, ReadAheadUntil};

use super::head::{Ahead, Head, NONE_AHEAD, count_by};
use super::{Controller, Last, Served, served};

impl Controller<'_> {
    pub(super) fn read(&mut self, now: Ps, lbn: u64, sectors: u32) -> Served {
        let wanted = lbn..lbn + u64::from(sectors);
        let found = self.find_segment(now, &wanted);
        let served = match found {
            Some((segment, free)) => self.read_hit(now, free, wanted, segment),
            None => {
                self.write_back_overlaps(now, &wanted);
                let free = self.catch_up(now);
                self.read_miss(now, free, lbn, sectors)
            }
        };
        self.last = Last::Read;
        served
    }

    /// The segment that has the first sector, and when the arm can be had; where the rest is not there, it will be needed.
    fn find_segment(&mut self, now: Ps, wanted: &Range<u64>) -> Option<(usize, Ps)> {
        let free = self.catch_up(now);
        let segment = self.segments.find(wanted)?;
        if self.segments.range(segment).end >= wanted.end {
            return Some((segment, free));
        }
        let rest = self.segments.range(segment).end..wanted.end;
        self.write_back_overlaps(now, &rest);
        Some((segment, self.catch_up(now)))
    }

    /// Lets the drive do by itself what it does up to `now`, and says when the arm can be had.
    pub(super) fn catch_up(&mut self, now: Ps) -> Ps {
        self.write_back_idle(now);
        self.read_ahead_until(now).max(self.busy)
    }

    /// Reads ahead up to `now`, and says when the arm is free of that.
    pub(super) fn read_ahead_until(&mut self, now: Ps) -> Ps {
        let Some(ahead) = self.ahead else { return now };
        let (ahead, free) = ahead.until(self.drive, now);
        if let Some(segment) = ahead.segment {
            self.segments.fill(segment, ahead.head.next);
        }
        self.arm = ahead.head.arm;
        self.ahead = (!ahead.is_done()).then_some(ahead);
        free
    }

    /// Where a read that ends at `end` stops to read ahead, in a segment that begins at `start`.
    fn limit(&self, start: u64, end: u64) -> u64 {
        let all = self.drive.sectors();
        let Some(cache) = &self.drive.electronics.cache else {
            return end;
        };
        let counted = (end + u64::from(cache.read_ahead_sectors)).min(all);
        match cache.read_ahead_until {
            ReadAheadUntil::Sectors => counted,
            ReadAheadUntil::Track => counted.min(self.drive.whole_track(Lbn(end - 1)).end),
            ReadAheadUntil::Cylinder => counted.min(self.drive.whole_cylinder(Lbn(end - 1)).end),
            ReadAheadUntil::NextTrack if end >= all => all,
            ReadAheadUntil::NextTrack => {
                let track = self.drive.whole_track(Lbn(end));
                let more = self.drive.track(Lbn(end)).sectors_per_track;
                let further = if start < track.start { u64::from(more) } else { 0 };
                (track.end + further).min(all)
            }
        }
    }

    /// The first sector is in a segment. Its filling goes on, or begins again behind what is there.
    fn read_hit(&mut self, now: Ps, free: Ps, wanted: Range<u64>, segment: usize) -> Served {
        let command = &self.drive.electronics.command;
        let after_write = self.last.is_write();
        let limit = self.limit(self.segments.range(segment).start, wanted.end);
        let is_whole = self.segments.range(segment).end >= wanted.end;
        let cache = self.drive.electronics.cache.as_ref();
        match &mut self.ahead {
            // It is being filled already: reading goes on, only further.
            Some(ahead) if ahead.segment == Some(segment) => ahead.limit = ahead.limit.max(limit),
            ahead if is_whole && cache.is_some_and(|cache| !cache.resume_on_hit) => *ahead = None,
            _ => {
                // Another read may be under way; the arm is free when its movement has ended.
                let time = free.max(now + command.read_miss(after_write));
                let head = Head {
                    arm: self.arm,
                    time,
                    next: self.segments.range(segment).end,
                    ahead_of_turn: NONE_AHEAD,
                };
                self.ahead = (head.next < limit).then_some(Ahead {
                    head,
                    limit,
                    segment: Some(segment),
                    whole_sectors: self.whole_sectors(),
                });
            }
        }
        let prepare = command.data_preparation_ms.0;
        let ready = if cache.is_some_and(|cache| cache.hits_wait_for_writes) && self.busy > now {
            self.busy
                .max(now + command.read_miss(after_write) + self.read_disconnect())
                + command.reselect_ms.0
        } else {
            now + command.read_hit(after_write)
        };
        let sent = self.send(ready + prepare, wanted);
        served(now, sent + command.read_completion_ms.0, [Ps::ZERO; 3], true)
    }

    fn whole_sectors(&self) -> bool {
        self.drive
            .electronics
            .cache
            .as_ref()
            .is_some_and(|cache| !cache.stop_in_sector)
    }

    fn read_disconnect(&self) -> Ps {
        let command = &self.drive.electronics.command;
        match self.last {
            Last::Read => command.read_disconnect_after_read_ms.0,
            Last::Write(_) => command.read_disconnect_after_write_ms.0,
        }
    }

    /// The medium is read; the drive comes back to the bus when a part is there.
    fn read_miss(&mut self, now: Ps, free: Ps, lbn: u64, sectors: u32) -> Served {
        let (command, cache) = (&self.drive.electronics.command, self.drive.electronics.cache.as_ref());
        let (disconnect, miss) = (self.read_disconnect(), command.read_miss(self.last.is_write()));
        let begun = free.max(now + miss);
        let mut head = Head {
            arm: self.arm,
            time: begun,
            next: lbn,
            ahead_of_turn: NONE_AHEAD,
        };
        let reach = self.drive.reach(head.arm, begun, Lbn(lbn), false);
        let track = self.drive.track(Lbn(lbn));
        if cache.is_some_and(|cache| cache.immediate_read) {
            let on_track = track.first.0 + u64::from(track.sectors) - lbn;
            head.land(self.drive, reach.rotation, u64::from(sectors).min(on_track) as u32);
        }
        // The bus is not taken before so much is there, for it waits for the medium from then on.
        let water = u64::from(cache.map_or(sectors, |cache| cache.water(sectors)));
        while head.next < lbn + water {
            head.read_one(self.drive);
        }
        let off_the_bus = now + miss + disconnect;
        let back = command.reselect_ms.0 + command.data_preparation_ms.0;
        let ready = (off_the_bus + back).max(head.time + command.read_return_ms.map_or(back, |ms| ms.0));
        let wanted = lbn..lbn + u64::from(sectors);
        let segment = self.segments.take(lbn, now);
        // Without a segment there is nowhere to put what is read ahead.
        let limit = if segment.is_some() {
            self.limit(lbn, wanted.end)
        } else {
            wanted.end
        };
        if let Some(segment) = segment.filter(|_| cache.is_some_and(|cache| cache.keep_passing)) {
            let before = (lbn - track.first.0) as u32;
            let passes = |count: u32| self.drive.passing(Lbn(lbn - u64::from(count)), count) <= reach.rotation;
            self.segments.begin(segment, lbn - u64::from(count_by(before, passes)));
        }
        let ahead = Ahead {
            head,
            limit,
            segment,
            whole_sectors: self.whole_sectors(),
        };
        let read_at = ahead.head.read_all(self.drive, wanted.end);
        self.ahead = Some(ahead);
        let sent = self.send(ready, wanted);
        let parts = [reach.seek, reach.rotation, read_at - begun - reach.total()];
        served(now, sent + command.read_completion_ms.0, parts, false)
    }

    /// Puts what is wanted on the bus from `ready` on, as it comes in; says when the last of it has been sent.
    fn send(&mut self, ready: Ps, wanted: Range<u64>) -> Ps {
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
