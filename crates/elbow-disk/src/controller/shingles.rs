//! What a shingled drive knows beside where its head is: its media cache, and a stream that is on its way into a band.

use std::ops::Range;

use crate::drive::Drive;
use crate::media_cache::MediaCache;

/// A shingled drive's state beside that of its medium.
#[derive(Clone, Debug)]
pub(super) struct Shingles {
    pub(super) cache: MediaCache,
    /// A stream's sectors from a band's start on, in the write cache alone.
    pub(super) held: Range<u64>,
    /// Bands, so far.
    pub(super) cleaned: u64,
}

impl Shingles {
    /// Nothing has been written yet.
    pub(super) fn new(drive: &Drive) -> Option<Box<Shingles>> {
        let shape = drive.shingled.as_ref()?;
        Some(Box::new(Shingles {
            cache: MediaCache::new(shape, drive.sectors()),
            held: 0..0,
            cleaned: 0,
        }))
    }

    /// Whether a write goes on with the stream that is held.
    pub(super) fn goes_on(&self, host: &Range<u64>) -> bool {
        !self.held.is_empty() && self.held.end == host.start
    }

    /// The first band of what is held, if all of it is; it is held no more.
    pub(super) fn whole_band(&mut self) -> Option<Range<u64>> {
        let band = self.cache.band(self.held.start);
        let is_whole = !self.held.is_empty() && band.end <= self.held.end;
        is_whole.then(|| {
            self.held.start = band.end;
            band
        })
    }
}
