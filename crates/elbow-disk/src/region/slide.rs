//! Moving records out of the way so that a write inside the region is never refused: a run of free sectors slides through the records.
//!
//! ```text
//!   a run of free sectors, then records     A . . . . . B B . C C C C . D        D is newer than most of C
//!   B goes to its other side                A B B . . . . . . C C C C . D        the run takes in the hole behind B
//!   of C what is left, and D over it        A B B c c . . . . . . . . . .        one record, no longer than C
//! ```
//!
//! A run as long as the longest record can slide past any record: to the other side it never overlaps itself, and it only grows. Two times that is *held*
//! on each device, given to no write: the second one is for moving many small records between two flushes. What always holds:
//!
//! - Whatever is lost in a crash, a run as long as the longest record is left: while what was moved is not durable the rest is as long, or there is one such
//!   record, and it lay next to the run.
//! - A record that takes more than its newest sectors and a head is wasteful. It is written anew with all that is newer between the first and the last of
//!   them. What lies there is newer than it and ends before its newest sectors: so it is superseded whole, and there are fewer sectors of records than before.
//! - When the run has gone through all, no record is wasteful, and they take at most two sectors for each logical one.
//!
//! A record that is not wasteful is moved as it is, with its age; its count of moves makes it the newer of the two. Zeros at the end of a record take no room,
//! so a wasteful record gives them to one of their own before, which says the same of them and is as old.
//!
//! Why this is enough: `docs/design/region.md`.

use std::ops::Range;

use elbow_file::range_device::{Done, RangeDevice, Request};
use elbow_ranges::RangeSet;

use super::format::{self, Head, Header};
use super::image::Record;
use super::planted::{Bug, has};
use super::sliders::{HELD_RECORDS, Slider, TRIM_SECTORS, held};
use super::{Region, RegionError};

/// Ends that the run comes to before it gives up: twice the whole way, from wherever it begins.
const ENDS_MAX: u32 = 4;

/// The part of a run for a record that comes to its other side.
fn slot(run: &Range<u64>, sectors: u64, is_backwards: bool) -> Range<u64> {
    match is_backwards {
        true => run.end - sectors..run.end,
        false => run.start..run.start + sectors,
    }
}

fn exactly(slot: &Range<u64>) -> RangeSet {
    std::iter::once(slot.clone()).collect()
}

impl<D: RangeDevice> Region<D> {
    /// Slides runs until one has room for so many sectors besides what is held. Nothing is outstanding, and all is durable.
    pub(super) fn slide(&mut self, sectors: u64) -> Result<bool, RegionError> {
        self.sliders.hold(&mut self.image);
        for index in 0..self.sliders.sliders.len() {
            if let Some(held) = self.sliders.sliders[index].held.take() {
                self.image.release(&held);
                let slid = self.slide_run(index, held.start, sectors);
                if slid? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Slides the run in which a free sector lies, and holds what it is to.
    fn slide_run(&mut self, index: usize, mut at: u64, sectors: u64) -> Result<bool, RegionError> {
        let needed = HELD_RECORDS * self.sliders.longest + sectors + TRIM_SECTORS;
        let mut ends = 0;
        let mut is_enough = false;
        while ends < ENDS_MAX && !is_enough {
            let run = self.image.free().range_at(at).expect("a free sector");
            is_enough = run.end - run.start >= needed;
            if !is_enough {
                at = match self.next_to(index, &run) {
                    Some(record) => self.pass(record, &run, self.sliders.sliders[index].is_backwards)?,
                    None => {
                        // What was superseded behind the last record may be enough.
                        self.moved_is_durable()?;
                        ends += 1;
                        self.sliders.sliders[index].is_backwards ^= true;
                        at
                    }
                };
            }
        }
        self.moved_is_durable()?;
        let run = self.image.free().range_at(at).expect("a free sector");
        let slider = &mut self.sliders.sliders[index];
        slider.held = held(&run, self.sliders.longest, slider.is_backwards);
        slider.held.iter().for_each(|held| self.image.hold(held));
        self.is_flushed &= !has(Bug::EarlyMove);
        Ok(is_enough)
    }

    /// Makes durable what was moved; only then its old places are free.
    fn moved_is_durable(&mut self) -> Result<(), RegionError> {
        if has(Bug::EarlyMove) {
            self.is_flushed = true;
            self.image.durable();
        }
        self.make_durable()
    }

    /// The next record in the way of a run.
    fn next_to(&self, index: usize, run: &Range<u64>) -> Option<u64> {
        let Slider {
            places, is_backwards, ..
        } = &self.sliders.sliders[index];
        match is_backwards {
            true => self.image.next_record(places.start..run.start, true),
            false => self.image.next_record(run.end..places.end, false),
        }
    }

    /// Brings a record to the other side of a run, or waits for what was brought there; a sector that is still free comes back.
    fn pass(&mut self, record: u64, run: &Range<u64>, is_backwards: bool) -> Result<u64, RegionError> {
        let stays = if is_backwards { run.start } else { run.end - 1 };
        let left = (run.end - run.start).checked_sub(self.image.record(record).sectors);
        let is_last = left.is_none_or(|left| left < self.sliders.longest);
        if is_last && !self.is_flushed {
            self.moved_is_durable()?;
            return Ok(stays);
        }
        assert!(left.is_some(), "a run is as long as the longest record");
        if self.is_wasteful(record) {
            self.rewrite(record, run, is_backwards)?;
        } else {
            self.relocate(record, run, is_backwards)?;
        }
        if !is_last {
            return Ok(stays);
        }
        self.moved_is_durable()?;
        // The whole run may be taken. The place of the record was next to it.
        Ok(if self.image.free().contains(record) {
            record
        } else {
            stays
        })
    }

    fn is_wasteful(&self, record: u64) -> bool {
        let record = self.image.record(record);
        record.sectors > record.live + 1
    }

    /// Writes what is left of a record anew, with all that is newer in between. Zeros behind its payload get a record of their own before.
    fn rewrite(&mut self, at: u64, run: &Range<u64>, is_backwards: bool) -> Result<(), RegionError> {
        let zeros = self.zeros_behind_payload(at);
        let pieces = self.image.live_pieces(at);
        let newest = pieces.reduce(|first, last| first.start..last.end).expect("it is live");
        if newest.end > zeros.start {
            return match self.places_for_zeros(run, is_backwards) {
                Some(targets) => self.split_zeros(at, &zeros, &targets),
                None => self.relocate(at, run, is_backwards),
            };
        }
        let data = self.read(newest.start, newest.end - newest.start)?;
        let slot = slot(run, self.record_sectors(&data), is_backwards);
        self.submit(&exactly(&slot), newest, &data)?;
        self.settle()?;
        self.statistics.moved += 1;
        Ok(())
    }

    fn zeros_behind_payload(&self, at: u64) -> Range<u64> {
        let record = self.image.record(at);
        let payload_sectors = u64::from(record.payload_bytes).div_ceil(u64::from(self.header.sector_bytes));
        record.logical.start + payload_sectors..record.logical.end
    }

    /// Anywhere but in the run, or in what it has beyond the longest record.
    fn places_for_zeros(&self, run: &Range<u64>, is_backwards: bool) -> Option<RangeSet> {
        let mut elsewhere = self.image.free().clone();
        elsewhere.remove(run.start, run.end);
        if !elsewhere.is_empty() {
            return Some(elsewhere);
        }
        let is_long = run.end - run.start > self.sliders.longest;
        is_long.then(|| exactly(&slot(run, 1, is_backwards)))
    }

    /// Writes a record that says of a part of another that it is zeros, and is as old.
    fn split_zeros(&mut self, at: u64, zeros: &Range<u64>, targets: &RangeSet) -> Result<(), RegionError> {
        let (head, _) = self.whole_record(at)?;
        let Header { id, sector_bytes, .. } = self.header;
        let bytes = format::record(id, head.age, zeros, &[], sector_bytes);
        self.write_as_old(at, &head, bytes, Record::new(zeros.clone(), 1, 0), targets)
    }

    /// Writes a record anew as it is, as old as it was.
    fn relocate(&mut self, at: u64, run: &Range<u64>, is_backwards: bool) -> Result<(), RegionError> {
        let (head, bytes) = self.whole_record(at)?;
        let record = self.image.record(at).clone();
        let slot = slot(run, record.sectors, is_backwards);
        self.write_as_old(at, &head, bytes, record, &exactly(&slot))
    }

    /// Writes what takes the place of a record, or of a part of it, without being newer than what supersedes that.
    fn write_as_old(
        &mut self,
        at: u64,
        head: &Head,
        mut bytes: Vec<u8>,
        record: Record,
        targets: &RangeSet,
    ) -> Result<(), RegionError> {
        format::set_moves(&mut bytes, head.moves.saturating_add(1));
        let request = Request::WriteRange {
            targets,
            alignment: 1,
            data: &bytes,
        };
        let ticket = self.device.submit(request)?;
        self.is_flushed = false;
        self.statistics.sectors += record.sectors;
        self.statistics.moved += 1;
        match self.device.wait_for(ticket) {
            Ok(Done::Written(place)) => self.image.relocate(at, place.start, record),
            Ok(other) => panic!("a write gave {other:?}"),
            Err(error) => return Err(self.fail(error)),
        }
        Ok(())
    }
}
