//! Room for a record: a free place, else one after a flush, else the place in which the least has to be moved.
//!
//! ```text
//!   a record of 4 sectors, no 4 free in a row      A A A . . B B B B .
//!   the window with the least of records           A A A[. . B B]B B .     B is written anew elsewhere, and flushed
//! ```

use std::ops::Range;

use elbow_file::range_device::{RangeDevice, RangeError};

use super::format::HEADER_SECTORS;
use super::{OUTSTANDING_MAX, Region, RegionError};

impl<D: RangeDevice> Region<D> {
    /// Sees to it that the device finds a place for a record of so many sectors.
    pub(super) fn make_room(&mut self, sectors: u64) -> Result<(), RegionError> {
        if self.outstanding.len() >= OUTSTANDING_MAX {
            self.settle_oldest()?;
        }
        if self.fits_beside_outstanding(sectors) {
            return Ok(());
        }
        self.settle()?;
        if self.fits(sectors) {
            return Ok(());
        }
        if self.image.has_superseded() {
            self.statistics.forced_flushes += 1;
            self.make_durable()?;
        }
        match self.fits(sectors) {
            true => Ok(()),
            false => self.move_least(sectors),
        }
    }

    fn fits(&self, sectors: u64) -> bool {
        self.image.free().first_fit(sectors).is_some()
    }

    /// Whether it fits wherever the writes that are outstanding have gone: `n` writes of `m` sectors cut a free range into `n + 1` parts.
    fn fits_beside_outstanding(&self, sectors: u64) -> bool {
        let longest = self
            .outstanding
            .iter()
            .map(|(_, record)| record.sectors)
            .max()
            .unwrap_or(0);
        let count = self.outstanding.len() as u64;
        self.fits(count * longest + (count + 1) * sectors)
    }

    /// Makes the place free in which the least lies, by writing that anew elsewhere.
    fn move_least(&mut self, sectors: u64) -> Result<(), RegionError> {
        let free = self.image.free().total_bytes();
        let full = RegionError::Full { sectors, free };
        let places = HEADER_SECTORS..self.header.sectors;
        let window = self.image.least_taken(sectors, &places).ok_or_else(|| full.clone())?;
        let records: Vec<u64> = self.image.records_in(&window).collect();
        for record in records {
            match self.move_record(record, &window) {
                Err(RegionError::Device(RangeError::NoPlace { .. })) => return Err(full),
                moved => moved?,
            }
        }
        self.make_durable()?;
        match self.fits(sectors) {
            true => Ok(()),
            false => Err(full),
        }
    }

    /// Writes what is newest of a record anew, outside of a place.
    fn move_record(&mut self, record: u64, away_from: &Range<u64>) -> Result<(), RegionError> {
        let logical = self.image.record(record).logical.clone();
        let pieces: Vec<_> = self.image.pieces(&logical).filter(|&(_, at)| at == record).collect();
        for (piece, _) in pieces {
            let data = self.read_piece(record, &piece)?;
            let mut targets = self.image.free().clone();
            targets.remove(away_from.start, away_from.end);
            self.submit(&targets, piece, &data)?;
            self.settle()?;
            self.statistics.moved += 1;
        }
        Ok(())
    }
}
