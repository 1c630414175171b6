//! Zeroing a set of ranges: extend, punch, overwrite what cannot be punched, see to the times.

use std::io::IoSlice;
use std::ops::Range;

use elbow_ranges::RangeSet;
use rustix::time::ClockId;

use super::zeroed::Zeroed;
use super::zeros::ZEROS;
use crate::blocks::{Piece, zero_blocks};
use crate::extents::data_runs;
use crate::{Errno, Handle, Result, Stat, Storage, Time};

/// Bytes read and overwritten at once where holes cannot be punched: enough for a disk to be busy, little enough to
/// be forgotten.
const PIECE_BYTES: u64 = 1 << 20;
/// What is looked at as one when data is overwritten, and what `O_DIRECT` wants writes to begin and end at.
const PAGE_BYTES: u64 = 4096;
/// Runs of data that are punched one by one on a full disk; what lies behind them is one more.
const RUNS_MAX: usize = 1 << 16;

/// Writes zeros over a range, page-aligned in memory.
pub(crate) fn write_zeros(storage: &dyn Storage, file: &Handle, range: Range<u64>) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        let length = (range.end - at).min(PIECE_BYTES);
        let mut slices = vec![IoSlice::new(&ZEROS.0); (length as usize).div_ceil(ZEROS.0.len())];
        if let Some(last) = slices.last_mut() {
            *last = IoSlice::new(&ZEROS.0[..(length as usize - 1) % ZEROS.0.len() + 1]);
        }
        storage.write(file, &slices, at)?;
        at += length;
    }
    Ok(())
}

/// Zeroes ranges of a regular file, none of which is empty or ends beyond what a file can hold.
pub(super) fn run(storage: &dyn Storage, file: &Handle, before: &Stat, ranges: &RangeSet) -> Result<Zeroed> {
    let began = time_of(ClockId::RealtimeCoarse); // as the kernel stamps files: it lags by up to a tick
    let mut zeroing = Zeroing {
        storage,
        file,
        punches: true,
        may_give_back: true,
        done: Zeroed::default(),
    };
    let beyond = zeroing.extend(before.size, ranges)?;
    ranges
        .difference(&beyond)
        .iter()
        .try_for_each(|range| zeroing.free(range))?;
    zeroing.extend_late(&beyond)?;
    zeroing.stamp(before, began, ranges)?;
    let mut done = zeroing.done;
    done.zeroed_bytes = ranges.total_bytes() - done.deferred.total_bytes();
    Ok(done)
}

struct Zeroing<'a> {
    storage: &'a dyn Storage,
    file: &'a Handle,
    /// Until the file system says that it cannot.
    punches: bool,
    /// Whether something was freed since the last sync, as far as we know: if not, another one gives nothing back.
    may_give_back: bool,
    done: Zeroed,
}

impl Zeroing<'_> {
    /// Extends the file to the end of the last range. Not by ftruncate(2), which would cut off what somebody else has
    /// appended since we looked, but by writing the last zeros, which are ours to write. Gives what lies past the
    /// end, if the disk has no room for that.
    fn extend(&self, size: u64, ranges: &RangeSet) -> Result<RangeSet> {
        match ranges.iter().next_back() {
            Some(last) if last.end > size => match self.write_end(&last) {
                Err(errno) if is_full(errno) => Ok(ranges.difference(&all_of(0..size))),
                other => other.map(|()| RangeSet::new()),
            },
            _ => Ok(RangeSet::new()),
        }
    }

    /// Writes the last page of a range, or as much of it as is inside.
    fn write_end(&self, range: &Range<u64>) -> Result<()> {
        let page = (range.end - 1) / PAGE_BYTES * PAGE_BYTES;
        write_zeros(self.storage, self.file, page.max(range.start)..range.end)
    }

    /// Extends the file after all, now that something was freed.
    fn extend_late(&mut self, beyond: &RangeSet) -> Result<()> {
        let Some(last) = beyond.iter().next_back() else {
            return Ok(());
        };
        self.sync_all()?;
        match self.write_end(&last) {
            Err(errno) if is_full(errno) => self.done.deferred.extend(beyond),
            Err(errno) => return Err(errno),
            Ok(()) => self.free(last)?,
        }
        Ok(())
    }

    /// Makes a range read as zeros in the cheapest way that there is.
    fn free(&mut self, range: Range<u64>) -> Result<()> {
        if !self.punches {
            return self.overwrite(range);
        }
        match self.punch(&range) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.punches = false;
                self.overwrite(range)
            }
            Err(errno) if is_full(errno) => self.free_when_full(range),
            other => other,
        }
    }

    fn punch(&mut self, range: &Range<u64>) -> Result<()> {
        self.storage.punch(self.file, range.start, range.end - range.start)?;
        self.done.punched_bytes += range.end - range.start;
        self.may_give_back = true;
        Ok(())
    }

    /// The file system has no room to write down what is free. In this order: let the journal go, which gives back what was
    /// freed before; punch whole runs of data in whole blocks, which splits nothing and copies no edge; and once
    /// more what that made room for. The rest is overwritten.
    fn free_when_full(&mut self, range: Range<u64>) -> Result<()> {
        if self.may_give_back && self.punched_after_sync(&range)? {
            return Ok(());
        }
        let block_bytes = self.storage.space(self.file)?.fragment_bytes.max(1);
        let runs = data_runs(self.storage, self.file, range, RUNS_MAX)?;
        let blocks = runs.iter().map(|run| whole_blocks(run, block_bytes));
        let blocks: RangeSet = blocks.collect();
        let mut left: RangeSet = runs.into_iter().collect();
        for run in &blocks {
            if self.punched_though_full(&run)? {
                left.remove(run.start, run.end);
            }
        }
        if self.may_give_back {
            for run in &blocks.intersection(&left) {
                if self.punched_after_sync(&run)? {
                    left.remove(run.start, run.end);
                }
            }
        }
        left.iter().try_for_each(|rest| self.overwrite(rest))
    }

    fn punched_after_sync(&mut self, range: &Range<u64>) -> Result<bool> {
        if self.may_give_back {
            self.sync_all()?;
        }
        self.punched_though_full(range)
    }

    fn punched_though_full(&mut self, range: &Range<u64>) -> Result<bool> {
        match self.punch(range) {
            Err(errno) if is_full(errno) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// A full disk may be told of a sync, too; what it meant for our ranges, the next call says.
    fn sync_all(&mut self) -> Result<()> {
        self.may_give_back = false;
        match self.storage.sync_all(self.file) {
            Err(errno) if is_full(errno) => Ok(()),
            other => other,
        }
    }

    /// Writes zeros where there is something else, piece by piece. Holes are read as zeros, and stay.
    fn overwrite(&mut self, range: Range<u64>) -> Result<()> {
        let mut piece = Piece::new(PIECE_BYTES);
        let mut at = range.start;
        while at < range.end {
            let end = (at / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES).min(range.end);
            let data = match piece.read(self.storage, self.file, at..end) {
                Ok(bytes) => zero_blocks(at, bytes, PAGE_BYTES).complement(at..at + bytes.len() as u64),
                Err(Errno::BADF) => all_of(at..end), // open for writing only
                Err(errno) => return Err(errno),
            };
            data.iter().try_for_each(|data| self.overwrite_data(data))?;
            at = end;
        }
        Ok(())
    }

    fn overwrite_data(&mut self, data: Range<u64>) -> Result<()> {
        match write_zeros(self.storage, self.file, data.clone()) {
            Err(errno) if is_full(errno) => self.done.deferred.extend([data]),
            Err(errno) => return Err(errno),
            Ok(()) => self.done.written_bytes += data.end - data.start,
        }
        Ok(())
    }

    /// Sets the times where nothing has: btrfs leaves them alone when all of a punch was a hole before, and so does whoever
    /// found nothing to overwrite.
    fn stamp(&mut self, before: &Stat, began: Time, ranges: &RangeSet) -> Result<()> {
        let after = self.storage.stat_handle(self.file)?;
        let is_new = after.mtime != before.mtime || (began..=time_of(ClockId::Realtime)).contains(&after.mtime);
        if is_new || !self.done.deferred.is_empty() {
            return Ok(());
        }
        match self.storage.set_times_handle(self.file, None, Some(began)) {
            Err(Errno::PERM | Errno::ACCESS) => self.stamp_by_writing(ranges),
            other => other,
        }
    }

    /// Who may write but does not own the file has its times set by writing.
    fn stamp_by_writing(&mut self, ranges: &RangeSet) -> Result<()> {
        let Some(first) = ranges.iter().next() else {
            return Ok(());
        };
        write_zeros(self.storage, self.file, first.start..first.start + 1)?;
        let counted = self.done.clone();
        self.free(first)?;
        self.done = counted;
        Ok(())
    }
}

fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::DQUOT)
}

fn all_of(range: Range<u64>) -> RangeSet {
    RangeSet::new().complement(range)
}

/// The whole blocks inside a range; empty when there is none.
fn whole_blocks(range: &Range<u64>, block_bytes: u64) -> Range<u64> {
    let start = range.start.div_ceil(block_bytes).saturating_mul(block_bytes);
    let end = range.end / block_bytes * block_bytes;
    start..end.max(start)
}

fn time_of(clock: ClockId) -> Time {
    let now = rustix::time::clock_gettime(clock);
    Time {
        seconds: now.tv_sec,
        nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_lie_inside() {
        for (range, inside) in [
            (0..4096, 0..4096),
            (1..8192, 4096..8192),
            (1..8191, 4096..4096),
            (5000..5001, 8192..8192),
        ] {
            assert_eq!(whole_blocks(&range, 4096), inside, "{range:?}");
        }
        assert!(whole_blocks(&(i64::MAX as u64 - 5..i64::MAX as u64), 4096).is_empty());
    }

    #[test]
    fn zeros_know_zeros() {
        assert!(ZEROS.equal(&[0; 200_000]) && ZEROS.equal(&[]));
        for place in [0, 65_535, 65_536, 199_999] {
            let mut bytes = vec![0; 200_000];
            bytes[place] = 1;
            assert!(!ZEROS.equal(&bytes), "{place}");
        }
    }
}
