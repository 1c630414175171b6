//! How a write gets onto the medium, stretch by stretch, and what waits to get there.

use std::ops::Range;

use crate::drive::{Arm, Drive, Lbn, Ps};

use super::head::{count_by, passed_before};

/// A write's data on the bus.
#[derive(Clone, Copy, Debug)]
pub(super) struct BusTransfer {
    pub(super) from: Ps,
    pub(super) sector: Ps,
    /// Sectors that have to be there before any is written.
    pub(super) start: u64,
    pub(super) sectors: u64,
}

impl BusTransfer {
    /// When the sector `index` may be written.
    fn ready(&self, index: u64) -> Ps {
        self.from + Ps(self.sector.0 * (index + 1).max(self.start))
    }

    pub(super) fn end(&self) -> Ps {
        self.from + Ps(self.sector.0 * self.sectors)
    }
}

/// A write whose time on the medium is settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct MediumWrite {
    /// When the arm is on the first sector's track.
    pub(super) arrived: Ps,
    pub(super) lbn: u64,
    pub(super) data: BusTransfer,
    /// Sectors are written from where the head lands, not from the first on.
    pub(super) immediate: bool,
}

/// Sectors that pass the head one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct SectorPass {
    first: u64,
    sectors: u64,
    start: Ps,
}

/// How the medium was written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// The first sector's start.
    pub(super) begun: Ps,
    pub(super) end: Ps,
    /// Whole turns spent waiting for data.
    pub(super) lost: Ps,
    /// Where the arm is left.
    pub(super) arm: Arm,
}

/// A write that was reported before the medium had it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dirty {
    pub(super) lbn: u64,
    pub(super) data: BusTransfer,
    /// From then on the arm may move for it.
    pub(super) ready: Ps,
    /// It shares the segment of the one before it.
    pub(super) is_appended: bool,
    /// The cache's segment that keeps it for reads.
    pub(super) segment: Option<usize>,
    /// Its way onto the medium and the end of it, once that has begun.
    pub(super) written: Option<(MediumWrite, Ps)>,
}

impl Dirty {
    pub(super) fn range(&self) -> Range<u64> {
        self.lbn..self.lbn + self.data.sectors
    }

    pub(super) fn is_dirty(&self, now: Ps) -> bool {
        self.written.is_none_or(|(_, end)| end > now)
    }
}

impl MediumWrite {
    /// A write whose data is no question.
    pub(super) fn with_all_data(arrived: Ps, lbn: u64, sectors: u32) -> MediumWrite {
        MediumWrite {
            arrived,
            lbn,
            data: BusTransfer {
                from: Ps::ZERO,
                sector: Ps::ZERO,
                start: 0,
                sectors: u64::from(sectors),
            },
            immediate: false,
        }
    }

    /// Writes it, telling `each` what passes the head when.
    pub(super) fn write(&self, drive: &Drive, mut each: impl FnMut(SectorPass)) -> Written {
        let (lbn, data) = (self.lbn, &self.data);
        let mut track = drive.track(Lbn(lbn));
        let mut arm = track.arm;
        let (mut at, mut done, mut lost) = (self.arrived, 0, Ps::ZERO);
        let mut begun = None;
        loop {
            let reach = drive.reach(arm, at, Lbn(lbn + done), true);
            arm = track.arm;
            let start = at + reach.total();
            // Up to here it is rotation; switches of tracks later count as transfer.
            begun.get_or_insert(start);
            let here = (data.sectors - done).min(track.first.0 + u64::from(track.sectors) - lbn - done);
            if let Some(late_part) = self.landed_within(drive, start, reach.rotation, done..done + here) {
                // The rest of it passes first, then the platter comes round to the beginning.
                let (length, turn) = (drive.passing(Lbn(lbn + done), late_part as u32), drive.rotation());
                each(self.passing(done + late_part..done + here, start + length - turn));
                each(self.passing(done..done + late_part, start));
                at = start + length;
            } else {
                let late = self.wait_for_data(drive, start, done..done + here, &mut each);
                lost += late;
                at = start + late + drive.passing(Lbn(lbn + done), here as u32);
            }
            done += here;
            if done == data.sectors {
                return Written {
                    begun: begun.unwrap_or(start),
                    end: at,
                    lost,
                    arm,
                };
            }
            track = drive.track(Lbn(lbn + done));
        }
    }

    fn passing(&self, these: Range<u64>, start: Ps) -> SectorPass {
        SectorPass {
            first: self.lbn + these.start,
            sectors: these.end - these.start,
            start,
        }
    }

    /// How many of the sectors `these` have passed when the head lands among them, if it does, may use that, and has the data.
    fn landed_within(&self, drive: &Drive, start: Ps, rotation: Ps, these: Range<u64>) -> Option<u64> {
        if !self.immediate || start - rotation < self.data.end() {
            return None;
        }
        let (first, here) = (Lbn(self.lbn + these.start), (these.end - these.start) as u32);
        let part = passed_before(drive, rotation, first, here)?;
        Some(u64::from(part))
    }

    /// Whole turns lost while the sectors `these` of a write pass: those whose data is not there come round again.
    fn wait_for_data(&self, drive: &Drive, start: Ps, these: Range<u64>, each: &mut impl FnMut(SectorPass)) -> Ps {
        let mut lost = Ps::ZERO;
        // All of it is in the buffer: no sector can be late.
        if start >= self.data.end() {
            each(self.passing(these, start));
            return lost;
        }
        let first = Lbn(self.lbn + these.start);
        let since = |index: u64| drive.passing(first, (index - these.start) as u32);
        let mut from = these.start;
        for index in these.clone() {
            let passes = start + lost + since(index);
            let late = self.data.ready(index).saturating_sub(passes);
            if late > Ps::ZERO {
                each(self.passing(from..index, start + lost + since(from)));
                from = index;
                // A sector that passes before its data is there comes round again only after a whole turn.
                lost += Ps(late.0.div_ceil(drive.rotation().0) * drive.rotation().0);
            }
        }
        each(self.passing(from..these.end, start + lost + since(from)));
        lost
    }

    /// The sectors that the medium does not have at a time.
    pub(super) fn missing_at(&self, drive: &Drive, time: Ps) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        self.write(drive, |part| {
            let there = |count: u32| part.start + drive.passing(Lbn(part.first), count) <= time;
            let written = if part.sectors == 0 || time < part.start {
                0
            } else {
                u64::from(count_by(part.sectors as u32, there))
            };
            if written < part.sectors {
                missing.push(part.first + written..part.first + part.sectors);
            }
        });
        missing
    }
}
