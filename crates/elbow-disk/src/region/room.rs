//! Room for a record: a free place, else one after a flush, else one that a [sliding](super::slide) run makes; and where there is too little for that, the
//! place in which the least has to be moved.
//!
//! ```text
//!   a record of 4 sectors, no 4 free in a row      A A A . . B B B B .
//!   the window with the least of records           A A A[. . B B]B B .     B is written anew elsewhere, and flushed
//! ```

use std::ops::Range;

use elbow_file::range_device::{RangeDevice, ZoneRoom};

use super::format::HEADER_SECTORS;
use super::{OUTSTANDING_MAX, Region, RegionError, TRIM_SECTORS};

/// Whether a record fits into the zone that is written, or into another one. Where something is to be kept for trims, a zone is: one has room for as many
/// as there are records in another, so that a log which is full and is truncated entry by entry has freed a zone before.
fn fits_in_zones(room: ZoneRoom, sectors: u64, kept: u64) -> bool {
    let begun = u64::from(sectors > room.head);
    sectors <= room.zone && room.fresh >= begun + kept.min(1)
}

impl<D: RangeDevice> Region<D> {
    /// Sees to it that the device finds a place for a record of so many sectors, and that so many are left free.
    pub(super) fn make_room(&mut self, sectors: u64, kept: u64) -> Result<(), RegionError> {
        // Where nothing is ever refused one sector is always left, which moving may need.
        let kept = if self.sliders.is_held() { TRIM_SECTORS } else { kept };
        if self.outstanding.len() >= OUTSTANDING_MAX {
            self.settle_oldest()?;
        }
        if self.fits_beside_outstanding(sectors, kept) {
            return Ok(());
        }
        self.settle()?;
        if self.fits(sectors, kept) {
            return Ok(());
        }
        // Also where nothing is superseded: to write a part of a record elsewhere would tear it, while what supersedes the rest is not durable.
        if !self.is_flushed {
            self.statistics.forced_flushes += 1;
            self.make_durable()?;
        }
        if let Some(room) = self.room_in_zones() {
            return self.check_fits_in_zones(room, sectors, kept);
        }
        let has_room = self.fits(sectors, kept) || self.slide(sectors)?;
        match has_room && self.fits(sectors, kept) {
            true => Ok(()),
            false => self.move_least(sectors, kept),
        }
    }

    fn fits(&self, sectors: u64, kept: u64) -> bool {
        match self.room_in_zones() {
            Some(room) => fits_in_zones(room, sectors, kept),
            None => self.free_sectors() >= sectors + kept && self.image.free().first_fit(sectors).is_some(),
        }
    }

    fn room_in_zones(&self) -> Option<ZoneRoom> {
        self.device.room_in_zones(self.image.free())
    }

    /// Nothing is moved there: a log is truncated, and the zones in front of its start become free.
    fn check_fits_in_zones(&self, room: ZoneRoom, sectors: u64, kept: u64) -> Result<(), RegionError> {
        let sector_bytes = u64::from(self.header.sector_bytes);
        if sectors > room.zone {
            let allowed = format!("a zone of this device has {} bytes", room.zone * sector_bytes);
            let bytes = sectors * sector_bytes;
            return Err(RegionError::Length { bytes, allowed });
        }
        let free = room.head + room.fresh * room.zone;
        match fits_in_zones(room, sectors, kept) {
            true => Ok(()),
            false => Err(RegionError::Full { sectors, free }),
        }
    }

    /// Whether it and those that are outstanding fit, in whatever order they are carried out and wherever they go: `n` writes of up to `m` sectors
    /// cut a free range into `n + 1` parts, and one more must fit into one of them.
    fn fits_beside_outstanding(&self, sectors: u64, kept: u64) -> bool {
        let outstanding = self.outstanding.iter().map(|(_, record)| record.sectors);
        let longest = outstanding.fold(sectors, u64::max);
        let count = self.outstanding.len() as u64;
        let range = (2 * count + 1) * longest;
        self.fits(sectors, kept) && self.image.free().first_fit(range).is_some()
    }

    /// Makes the place free in which the least lies, by writing that anew elsewhere.
    fn move_least(&mut self, sectors: u64, kept: u64) -> Result<(), RegionError> {
        let free = self.image.free().total_bytes();
        let full = RegionError::Full { sectors, free };
        if free < sectors + kept {
            return Err(full);
        }
        let places = HEADER_SECTORS..self.header.sectors;
        let window = self.image.least_taken(sectors, &places).ok_or_else(|| full.clone())?;
        let records: Vec<u64> = self.image.records_in(&window).collect();
        for record in records {
            if !self.move_record(record, &window)? {
                return Err(full);
            }
        }
        self.make_durable()?;
        match self.fits(sectors, kept) {
            true => Ok(()),
            false => Err(full),
        }
    }

    /// Writes what is newest of a record anew, outside of a place; `false` where there is no room for it. Nothing is outstanding.
    fn move_record(&mut self, record: u64, away_from: &Range<u64>) -> Result<bool, RegionError> {
        let logical = self.image.record(record).logical.clone();
        let pieces: Vec<_> = self.image.pieces(&logical).filter(|&(_, at)| at == record).collect();
        for (piece, _) in pieces {
            let data = self.read_piece(record, &piece)?;
            let mut targets = self.image.free().clone();
            targets.remove(away_from.start, away_from.end);
            if targets.first_fit(self.record_sectors(&data)).is_none() {
                return Ok(false);
            }
            self.submit(&targets, piece, &data)?;
            self.settle()?;
            self.statistics.moved += 1;
        }
        Ok(true)
    }
}
