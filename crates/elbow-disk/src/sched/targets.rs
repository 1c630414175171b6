//! A set of places on which a write of one size may land: a region.

use std::fmt;
use std::ops::Range;

use elbow_ranges::RangeSet;

use super::tracks::Row;
use crate::drive::{Drive, Lbn};

/// Places where a write of `sectors` sectors may begin: the aligned ones from which so many sectors in a row are free.
///
/// Kept by cylinder, by track, and in a bitmap per track; making it takes time in the number of places, taking and giving back
/// in the number that change.
///
/// ```
/// use elbow_disk::{Drive, Lbn};
/// use elbow_disk::sched::Targets;
/// use elbow_ranges::RangeSet;
/// let drive = Drive::named("hp-c2247a")?;
/// let group = RangeSet::from_unsorted([(0, 32_768)]).ok_or("too large")?;
/// let mut targets = Targets::new(&drive, &group, 8, 8)?;
/// assert_eq!(targets.places(), 4096);
/// targets.take(0, 8);
/// assert_eq!((targets.places(), targets.first()), (4095, Some(Lbn(8))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Targets {
    pub(super) sectors: u32,
    pub(super) align: u32,
    /// What it was made of, sorted and disjoint.
    ranges: Vec<Range<u64>>,
    /// What is free now, from the first change on: most sets serve one request and never change.
    free: Option<RangeSet>,
    /// In the order of LBNs.
    pub(super) rows: Vec<Row>,
    pub(super) bits: Vec<u64>,
    /// Those that have rows, ascending.
    pub(super) cylinders: Vec<Cylinder>,
    places: u64,
}

/// The rows of a cylinder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cylinder {
    pub(super) number: u32,
    pub(super) first: u32,
    pub(super) end: u32,
}

/// A range write that can land nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "none of the ranges holds {sectors} sectors in a row from a multiple of {align} on (the largest has {largest}); \
     make the ranges larger, or the alignment smaller"
)]
pub struct NoPlace {
    /// Sectors of the write.
    pub sectors: u32,
    /// Its alignment, in sectors.
    pub align: u32,
    /// Sectors of the largest range.
    pub largest: u64,
}

impl Targets {
    /// The places within `free`, half-open ranges of sectors.
    ///
    /// # Errors
    /// Where no write can land in it.
    ///
    /// # Panics
    /// Where `sectors` or `align` is 0, or `free` passes the end of the drive.
    pub fn new(drive: &Drive, free: &RangeSet, sectors: u32, align: u32) -> Result<Targets, NoPlace> {
        Targets::of_sorted(drive, free.iter().collect(), sectors, align)
    }

    /// The same for ranges that are sorted and do not touch.
    pub(crate) fn of_sorted(
        drive: &Drive,
        ranges: Vec<Range<u64>>,
        sectors: u32,
        align: u32,
    ) -> Result<Targets, NoPlace> {
        assert!(sectors > 0 && align > 0, "a write has sectors and an alignment");
        let mut targets = Targets {
            sectors,
            align,
            ranges: Vec::new(),
            free: None,
            rows: Vec::with_capacity(ranges.len()),
            bits: Vec::with_capacity(ranges.len()),
            cylinders: Vec::with_capacity(ranges.len()),
            places: 0,
        };
        for range in &ranges {
            targets.lay_out(drive, range.start, range.end);
        }
        if targets.places == 0 {
            let largest = ranges.iter().map(|range| range.end - range.start).max().unwrap_or(0);
            return Err(NoPlace {
                sectors,
                align,
                largest,
            });
        }
        targets.ranges = ranges;
        targets.index();
        Ok(targets)
    }

    /// How many places there are now.
    #[must_use]
    pub fn places(&self) -> u64 {
        self.places
    }

    /// On how many tracks there are any.
    #[must_use]
    pub fn tracks(&self) -> usize {
        self.rows.iter().filter(|row| row.free > 0).count()
    }

    /// Sectors of a write.
    #[must_use]
    pub fn sectors(&self) -> u32 {
        self.sectors
    }

    /// The lowest place: where a device that ignores the freedom writes.
    #[must_use]
    pub fn first(&self) -> Option<Lbn> {
        self.iter().next()
    }

    /// All places, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Lbn> + '_ {
        let align = u64::from(self.align);
        let free = self.rows.iter().filter(|row| row.free > 0);
        free.flat_map(move |row| {
            row.places(&self.bits)
                .map(move |start| Lbn(row.first + u64::from(start) * align))
        })
    }

    /// The sectors are in use from now on.
    pub fn take(&mut self, start: u64, end: u64) {
        self.change(start, end, |free| free.remove(start, end));
    }

    /// The sectors are free again. They must lie in what the set was made of.
    pub fn give(&mut self, start: u64, end: u64) {
        self.change(start, end, |free| free.insert(start, end));
    }

    /// Changes what is free, and corrects the places of which a sector lies in `[start, end)`.
    fn change(&mut self, start: u64, end: u64, change: impl FnOnce(&mut RangeSet)) {
        let mut free = self.free.take().unwrap_or_else(|| set_of(&self.ranges));
        change(&mut free);
        let (align, sectors) = (u64::from(self.align), u64::from(self.sectors));
        // A write that begins before `start` may reach into what has changed.
        let mut at = start.saturating_sub(sectors - 1).next_multiple_of(align);
        while at < end {
            if let Some(row) = self.row_of(at) {
                let row = &mut self.rows[row];
                let before = row.free;
                row.set(
                    &mut self.bits,
                    ((at - row.first) / align) as u32,
                    // Places overlap where the alignment is finer than a write: each is looked at anew.
                    free.covers(at, at + sectors),
                );
                self.places = self.places + u64::from(row.free) - u64::from(before);
            }
            at += align;
        }
        self.free = Some(free);
    }

    /// Adds the rows and places of one range; ranges come in ascending order.
    fn lay_out(&mut self, drive: &Drive, start: u64, end: u64) {
        let mut at = start.next_multiple_of(u64::from(self.align));
        while at + u64::from(self.sectors) <= end {
            if self
                .rows
                .last()
                .is_none_or(|row| at >= row.first + u64::from(row.starts) * u64::from(self.align))
            {
                let row = Row::new(drive, &drive.track(Lbn(at)), self.align, self.bits.len())
                    .expect("an aligned sector lies on it");
                self.bits.resize(self.bits.len() + row.words(), 0);
                self.rows.push(row);
            }
            at = self.fill(at, end);
        }
    }

    /// Sets the places of the last row from `at` on; returns the first aligned sector after the row.
    fn fill(&mut self, at: u64, end: u64) -> u64 {
        let align = u64::from(self.align);
        let row = self.rows.last_mut().expect("a row was made");
        // A write may run on into the next track, but must end in the range.
        let last = (end - u64::from(self.sectors) - row.first) / align;
        let starts = ((at - row.first) / align) as u32..(last + 1).min(u64::from(row.starts)) as u32;
        self.places += u64::from(starts.end - starts.start);
        row.fill(&mut self.bits, starts);
        row.first + u64::from(row.starts) * align
    }

    /// Groups the rows by cylinder.
    fn index(&mut self) {
        for (number, row) in (0..).zip(&self.rows) {
            match self.cylinders.last_mut() {
                // LBNs go cylinder by cylinder, so equal ones are neighbours.
                Some(last) if last.number == row.arm.cylinder => last.end = number + 1,
                last => {
                    assert!(
                        last.is_none_or(|last| last.number < row.arm.cylinder),
                        "cylinders ascend with LBNs"
                    );
                    self.cylinders.push(Cylinder {
                        number: row.arm.cylinder,
                        first: number,
                        end: number + 1,
                    });
                }
            }
        }
    }

    fn row_of(&self, lbn: u64) -> Option<usize> {
        let row = self.rows.partition_point(|row| row.first <= lbn).checked_sub(1)?;
        (lbn < self.rows[row].first + u64::from(self.rows[row].starts) * u64::from(self.align)).then_some(row)
    }
}

fn set_of(ranges: &[Range<u64>]) -> RangeSet {
    let mut set = RangeSet::new();
    ranges.iter().for_each(|range| set.insert(range.start, range.end));
    set
}

impl fmt::Debug for Targets {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "Targets({} places of {} sectors on {} tracks)",
            self.places,
            self.sectors,
            self.tracks()
        )
    }
}
