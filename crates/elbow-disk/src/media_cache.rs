//! The media cache of a shingled drive: what was written lies there, one write behind the other, until its band is rewritten.
//!
//! ```text
//!   sectors of the host      | band 0 | band 1 | band 2 | ...        each lies where its number says (static mapping),
//!                                 ^ newer ones are in the log        and is written only as a whole
//!   media cache, at the OD   | map | scratch | log: write, entry | write, entry | ... the oldest is reclaimed first |
//! ```
//!
//! A band's tracks overlap, so none of them can be written without those behind it; a write goes to the log, which is not shingled, and an entry
//! behind it says whose sectors it has. To *clean* a band is to read it, to bring in what the log has of it, to write all of that to the scratch area, and
//! then in place; what the log had of it is then dead. Here is what lies where; what that costs is in `controller::shingled`.
//!
//! Always: a sector has one newest place. A write counts once its entry is on the medium, which comes behind its data, so that a power cut
//! leaves all of it or nothing; and a band is on the medium twice while it is written in place. The log never overwrites what is not dead.
//!
//! Source: Aghayev and Desnoyers, *Skylight: A Window on Shingled Disk Operation* (FAST 2015), which found such a cache, such a mapping, and the cleaning of the
//! oldest bands first, in drives that one could buy. The scratch area is ours: without one a power cut would leave a torn band.

use std::collections::VecDeque;
use std::ops::Range;

use elbow_ranges::{Piece, RangeMap, RangeSet};

use crate::drive::Shingled;

/// Where in the log a sector of the host begins to lie; those behind it follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CachedAt(u64);

impl Piece for CachedAt {
    fn slice(&self, start: u64, _end: u64) -> CachedAt {
        CachedAt(self.0 + start)
    }
}

/// A write in the log; its entry lies behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LoggedWrite {
    at: u64,
    host: Range<u64>,
}

impl LoggedWrite {
    fn sectors(&self) -> u64 {
        self.host.end - self.host.start
    }
}

/// A stretch of the host's sectors that lies at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Where it lies.
    pub(crate) at: u64,
    pub(crate) sectors: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct MediaCache {
    shape: Shingled,
    /// Sectors of the host.
    host: u64,
    map: RangeMap<CachedAt>,
    log: Range<u64>,
    /// Where the next write goes.
    head: u64,
    /// Oldest first; those at the front that are dead have been dropped.
    written: VecDeque<LoggedWrite>,
    /// Since the map was last written.
    entries_since_map: u32,
}

impl MediaCache {
    pub(crate) fn new(shape: &Shingled, host: u64) -> MediaCache {
        let log = shape.log();
        MediaCache {
            shape: shape.clone(),
            host,
            map: RangeMap::new(),
            head: log.start,
            log,
            written: VecDeque::new(),
            entries_since_map: 0,
        }
    }

    pub(crate) fn shape(&self) -> &Shingled {
        &self.shape
    }

    /// The most sectors that one write of the log may have: so that a few of them always fit.
    pub(crate) fn write_max(&self) -> u64 {
        (self.log.end - self.log.start) / 4 - u64::from(self.shape.entry_sectors)
    }

    /// The band of a sector.
    pub(crate) fn band(&self, sector: u64) -> Range<u64> {
        let size = u64::from(self.shape.band_sectors);
        let start = sector / size * size;
        start..(start + size).min(self.host)
    }

    /// Where sectors lie, in their order.
    pub(crate) fn fragments(&self, host: Range<u64>) -> Vec<Fragment> {
        let mut fragments = Vec::new();
        let mut next = host.start;
        let mut push = |at, end: u64, next: &mut u64| {
            if end > *next {
                fragments.push(Fragment {
                    at,
                    sectors: (end - *next) as u32,
                });
                *next = end;
            }
        };
        for (range, CachedAt(at)) in self.map.overlapping(host.start, host.end) {
            push(next, range.start, &mut next);
            push(at, range.end, &mut next);
        }
        push(next, host.end, &mut next);
        fragments
    }

    /// What of a band lies in the log.
    pub(crate) fn cached_fragments(&self, band: &Range<u64>) -> Vec<Fragment> {
        let cached = self.map.overlapping(band.start, band.end);
        cached
            .map(|(range, CachedAt(at))| Fragment {
                at,
                sectors: (range.end - range.start) as u32,
            })
            .collect()
    }

    /// Where in the log a write of so many sectors goes, if there is room for it.
    fn room(&self, sectors: u64) -> Option<u64> {
        let need = sectors + u64::from(self.shape.entry_sectors);
        let Some(oldest) = self.written.front() else {
            return Some(self.log.start);
        };
        if self.written.len() >= self.shape.map_entries as usize {
            return None;
        }
        if self.head <= oldest.at {
            return (self.head + need <= oldest.at).then_some(self.head);
        }
        if self.head + need <= self.log.end {
            return Some(self.head);
        }
        (self.log.start + need <= oldest.at).then_some(self.log.start)
    }

    pub(crate) fn has_room(&self, sectors: u64) -> bool {
        self.room(sectors).is_some()
    }

    /// Puts a write into the log and says where.
    ///
    /// # Panics
    /// Where there is no room.
    pub(crate) fn append(&mut self, host: Range<u64>) -> u64 {
        let Some(at) = self.room(host.end - host.start) else {
            panic!("no room for {host:?} in the media cache");
        };
        self.map.insert(host.start, host.end, CachedAt(at));
        self.head = at + (host.end - host.start) + u64::from(self.shape.entry_sectors);
        self.written.push_back(LoggedWrite { at, host });
        self.entries_since_map += 1;
        self.drop_dead();
        at
    }

    /// Whether it is time to write the map; it counts anew from then on.
    pub(crate) fn map_is_due(&mut self) -> bool {
        let due = self.entries_since_map >= self.shape.map_every_writes;
        if due {
            self.entries_since_map = 0;
        }
        due
    }

    /// The band that has been waiting longest to be cleaned.
    pub(crate) fn oldest_band(&self) -> Option<Range<u64>> {
        let piece = self.living(self.written.front()?).next()?;
        Some(self.band(piece.start))
    }

    /// A band has been written in place: what the log has of it is dead.
    pub(crate) fn forget(&mut self, band: &Range<u64>) {
        self.map.remove(band.start, band.end);
        self.drop_dead();
    }

    /// The sectors of a write of which the log has the newest.
    fn living(&self, write: &LoggedWrite) -> impl Iterator<Item = Range<u64>> {
        let places = write.at..write.at + write.sectors();
        let pieces = self.map.overlapping(write.host.start, write.host.end);
        pieces
            .filter(move |(_, CachedAt(at))| places.contains(at))
            .map(|(range, _)| range)
    }

    fn drop_dead(&mut self) {
        while let Some(oldest) = self.written.front()
            && self.living(oldest).next().is_none()
        {
            self.written.pop_front();
        }
    }

    /// The host's sectors whose newest content is lost where the medium does not have `missing`.
    pub(crate) fn lost(&self, missing: &Range<u64>) -> RangeSet {
        let mut lost = RangeSet::default();
        lost.insert(missing.start, missing.end.min(self.host));
        let entry = u64::from(self.shape.entry_sectors);
        let touched =
            |write: &&LoggedWrite| missing.start < write.at + write.sectors() + entry && write.at < missing.end;
        for range in self.written.iter().filter(touched).flat_map(|write| self.living(write)) {
            lost.insert(range.start, range.end);
        }
        lost
    }

    /// Forgets the writes that the medium does not have. What they had replaced in the log is taken to lie in its place: it is, or is not far away in time.
    pub(crate) fn lose(&mut self, missing: &[Range<u64>]) {
        let in_log = missing.iter().filter(|missing| missing.start >= self.host);
        let lost: Vec<RangeSet> = in_log.map(|missing| self.lost(missing)).collect();
        for range in lost.iter().flat_map(RangeSet::iter) {
            self.map.remove(range.start, range.end);
        }
        self.drop_dead();
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of ranges may have one")]
mod tests {
    use std::collections::HashMap;

    use elbow_testkit::cases::for_each_seed;
    use rand::Rng;

    use super::*;

    const HOST: u64 = 400;

    fn cache() -> MediaCache {
        let shape = Shingled {
            band_sectors: 30,
            map_entries: 12,
            entry_sectors: 2,
            map_sectors: 3,
            media_cache: HOST..HOST + 3 + 30 + 150,
            ..Shingled::default()
        };
        MediaCache::new(&shape, HOST)
    }

    /// Each sector's newest place is where it was last written, the log overwrites nothing that is needed, and there is room again once enough
    /// bands have been cleaned.
    #[test]
    fn every_sector_has_its_newest_content() {
        for_each_seed(300, |rng| {
            let mut cache = cache();
            // What lies where, and what each sector should have: the number of the write.
            let (mut medium, mut newest) = (HashMap::new(), HashMap::new());
            for number in 1..120 {
                let start = rng.random_range(0..HOST - 20);
                let host = start..start + rng.random_range(1..=20);
                while !cache.has_room(host.end - host.start) {
                    clean(&mut cache, &mut medium);
                }
                let at = cache.append(host.clone());
                assert!(cache.log.start <= at && at + (host.end - host.start) + 2 <= cache.log.end);
                for (place, sector) in (at..).zip(host) {
                    medium.insert(place, number);
                    newest.insert(sector, number);
                }
                check(&cache, &medium, &newest);
            }
        });
    }

    fn clean(cache: &mut MediaCache, medium: &mut HashMap<u64, i32>) {
        let band = cache.oldest_band().expect("it is full");
        assert!(!cache.cached_fragments(&band).is_empty());
        let mut sector = band.start;
        for fragment in cache.fragments(band.clone()) {
            for place in fragment.at..fragment.at + u64::from(fragment.sectors) {
                if let Some(&number) = medium.get(&place) {
                    medium.insert(sector, number);
                }
                sector += 1;
            }
        }
        assert_eq!(sector, band.end);
        cache.forget(&band);
        assert!(cache.cached_fragments(&band).is_empty());
    }

    fn check(cache: &MediaCache, medium: &HashMap<u64, i32>, newest: &HashMap<u64, i32>) {
        assert!(cache.written.len() <= 12);
        for (&sector, number) in newest {
            let places = cache.fragments(sector..sector + 1);
            assert_eq!(medium.get(&places[0].at), Some(number), "sector {sector}");
        }
    }

    #[test]
    fn a_write_is_lost_as_a_whole_where_its_entry_is_missing() {
        let mut cache = cache();
        let first = cache.append(10..20);
        cache.append(15..18);
        let lost = |missing: Range<u64>| cache.lost(&missing).iter().collect::<Vec<_>>();
        assert_eq!(
            lost(first + 10..first + 11),
            [10..15, 18..20],
            "the newer write has the rest"
        );
        assert_eq!(lost(first + 12..first + 13), [15..18]);
        assert_eq!(lost(50..60), [50..60], "in place");
    }
}
