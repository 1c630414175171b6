//! The write cache: a write is reported when the drive has its data, and gets onto the medium afterwards.
//!
//! ```text
//!   at once          command | data | completion
//!                            | arm, wait ...... write                    (its segment is dirty until then)
//!   the arm busy     command | ........ until it is not | back to the bus | data | completion
//!   appended         command | data | completion         the medium goes on with it where the last one ended
//!   idle_ms > 0      command | data | completion ... idle ... | arm, wait ...... write
//! ```
//!
//! Always: dirty writes get onto the medium in the order in which they came, one after the other; what is read from the medium is not older
//! than what was written. A write that is longer than a segment is not cached.
//!
//! Not modelled: dirty writes ordered by place; one that replaces another before that is on the medium.
//!
//! Source: the behaviour of DiskSim 4.0's `Fast write level`, `Combine seq writes` and `Allow write prebuffering` (its file
//! `disksim_diskctlr.c`), and its reference manual (CMU-PDL-08-101). DiskSim writes at once; `idle_ms` is ours.

use std::ops::Range;

use crate::drive::{Lbn, Ps, WriteCache};

use super::medium::Dirty;
use super::{Controller, Last, Served, served};

/// How a write is taken.
struct WriteAdmission {
    is_appended: bool,
    /// It has to wait until then.
    room: Option<Ps>,
}

impl Controller<'_> {
    /// Takes a write into the cache.
    pub(super) fn write_cached(&mut self, cache: &WriteCache, now: Ps, lbn: u64, sectors: u32) -> Served {
        let end = lbn + u64::from(sectors);
        self.write_back_overlaps(now, &(lbn..end));
        let free = self.catch_up(now);
        self.dirty.retain(|dirty| dirty.is_dirty(now));
        let command = &self.drive.electronics.command;
        let accepted = now + cache.command(self.last.is_write());
        let taken = self.take(cache, now, lbn, sectors);
        let from = match taken.room {
            None => accepted,
            Some(room) => room.max(accepted + command.write_disconnect_ms.0) + command.reselect_ms.0,
        } + command.data_preparation_ms.0;
        let data = self.arriving(from, sectors);
        let done = data.end() + command.write_completion_ms.0;
        let ready = accepted.max(taken.room.unwrap_or(Ps::ZERO)).max(free);
        let segment = self.segment_for(taken.is_appended, now, lbn..end);
        self.dirty.push_back(Dirty {
            lbn,
            data,
            ready,
            is_appended: taken.is_appended,
            segment,
            written: None,
        });
        if cache.idle_ms.0 == Ps::ZERO {
            self.ahead = None;
            self.write_back_next(ready);
        }
        self.last = Last::Write(Some(end));
        served(now, done, [Ps::ZERO; 3], false)
    }

    /// Where a write goes: behind the last one, into a segment, or into the first that gets clean.
    fn take(&mut self, cache: &WriteCache, now: Ps, lbn: u64, sectors: u32) -> WriteAdmission {
        if cache.append && self.can_append(now, lbn, sectors) {
            return WriteAdmission {
                is_appended: true,
                room: None,
            };
        }
        let busy = (self.busy > now && !cache.take_while_busy).then_some(self.busy);
        let room = self.room(cache, now).max(busy);
        WriteAdmission {
            is_appended: false,
            room,
        }
    }

    /// Whether a write goes on from the last one, which is dirty and leaves room in its segment.
    fn can_append(&self, now: Ps, lbn: u64, sectors: u32) -> bool {
        let size = self
            .drive
            .electronics
            .cache
            .as_ref()
            .map_or(0, |cache| cache.segment_sectors);
        let Some(last) = self
            .dirty
            .back()
            .filter(|last| last.range().end == lbn && last.is_dirty(now))
        else {
            return false;
        };
        let stream = self.dirty.iter().rev().scan(last.lbn, |start, dirty| {
            let continues = dirty.range().end == *start || dirty.lbn == last.lbn;
            *start = dirty.lbn;
            continues.then_some(dirty.data.sectors)
        });
        stream.sum::<u64>() + u64::from(sectors) <= u64::from(size)
    }

    /// When a segment gets clean, if all that may be dirty are: the oldest is written now if nothing is yet.
    fn room(&mut self, cache: &WriteCache, now: Ps) -> Option<Ps> {
        let segments = self.dirty.iter().filter(|dirty| !dirty.is_appended).count();
        if segments < cache.segments as usize {
            return None;
        }
        // With the oldest go those that were appended to it.
        let mut end = self.end_of(0, now);
        for next in 1..self.dirty.len() {
            if !self.dirty[next].is_appended {
                break;
            }
            end = self.end_of(next, now);
        }
        Some(end)
    }

    /// When a dirty write is on the medium; those before it are.
    fn end_of(&mut self, index: usize, now: Ps) -> Ps {
        if self.dirty[index].written.is_none() {
            self.write_back_next(now);
        }
        self.dirty[index].written.map_or(now, |(_, end)| end)
    }

    /// The segment that keeps a write for reads, if the drive does that.
    fn segment_for(&mut self, is_appended: bool, now: Ps, written: Range<u64>) -> Option<usize> {
        let keeps = self.keeps_written();
        let last = self.dirty.back().and_then(|last| last.segment).filter(|_| is_appended);
        self.segments.overwrite(&written, last);
        let segment = last.or_else(|| self.segments.take(written.start, now).filter(|_| keeps))?;
        self.segments.fill(segment, written.end);
        self.segments.soil(segment);
        Some(segment)
    }

    /// Writes the first that is not yet, from `start` on at the earliest.
    fn write_back_next(&mut self, start: Ps) {
        let Some(index) = self.dirty.iter().position(|dirty| dirty.written.is_none()) else {
            return;
        };
        let dirty = self.dirty[index];
        let free = self.read_ahead_until(start);
        self.ahead = None;
        let begun = free.max(self.busy).max(dirty.ready).max(start);
        let place = self.drive.locate(Lbn(dirty.lbn)).arm;
        let least = self.drive.electronics.command.write_seek_min_ms.0;
        let seek = self.drive.arm_time(self.arm, place, true);
        let seek = if dirty.is_appended { seek } else { seek.max(least) };
        let on_medium = self.on_medium(begun + seek, dirty.lbn, dirty.data);
        let written = on_medium.write(self.drive, |_| ());
        self.arm = written.arm;
        self.busy = written.end;
        self.dirty[index].written = Some((on_medium, written.end));
        if let Some(segment) = dirty.segment {
            self.segments.clean(segment, written.end);
        }
    }

    /// Writes what the drive has begun to write by itself before `now`.
    pub(super) fn write_back_idle(&mut self, now: Ps) {
        let Some(cache) = &self.drive.electronics.write_cache else {
            return;
        };
        while let Some(next) = self.dirty.iter().find(|dirty| dirty.written.is_none()) {
            let start = next.ready.max(self.idle_since + cache.idle_ms.0).max(self.busy);
            if start >= now {
                return;
            }
            self.write_back_next(start);
        }
    }

    /// Writes everything up to the last write that a request touches, so that it finds on the medium what it should.
    pub(super) fn write_back_overlaps(&mut self, now: Ps, wanted: &Range<u64>) {
        let touches = |dirty: &Dirty| {
            let range = dirty.range();
            dirty.written.is_none() && range.start < wanted.end && wanted.start < range.end
        };
        while self.dirty.iter().any(touches) {
            self.write_back_next(now);
        }
    }

    /// Writes everything, and says when the medium has it.
    pub(super) fn write_back_all(&mut self, now: Ps) -> Ps {
        while self.dirty.iter().any(|dirty| dirty.written.is_none()) {
            self.write_back_next(now);
        }
        self.busy.max(now)
    }

    /// What the medium does not have at a time, of all that was written.
    pub(super) fn missing_at(&self, time: Ps) -> Vec<Range<u64>> {
        let begun = self
            .dirty
            .iter()
            .filter_map(|dirty| dirty.written.map(|(on_medium, _)| on_medium));
        let missing = begun
            .chain(self.last_write)
            .flat_map(|write| write.missing_at(self.drive, time));
        let waiting = self.dirty.iter().filter(|dirty| dirty.written.is_none());
        missing.chain(waiting.map(Dirty::range)).collect()
    }
}
