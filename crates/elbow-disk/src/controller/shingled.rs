//! A shingled drive at work: what goes to the media cache, what goes in place, and when bands are cleaned.
//!
//! ```text
//!   a write            to the log of the media cache, through the write cache as any other, with its entry
//!   a stream           from a band's start on: held in the write cache until the band is whole, then written in place
//!   a read             from the log and from its place, one fragment after the other
//!   idle, or no room   clean the oldest band: read what the log has of it | read it | write it to the scratch area | write it in place
//! ```
//!
//! As everything that a drive does by itself, cleaning is worked out when the next request comes; a band that is being cleaned is finished first.
//! A stream that ends within a band, a flush and an idle moment send what is held to the log.
//!
//! Not modelled: a cleaning that is broken off for a request, schedulers that know where in the log something lies, and guard tracks between bands.
//!
//! Source: as [`media_cache`](crate::media_cache). That whole bands of a stream pass the log by is what the sustained rate of sequential writes asks for.

use std::ops::Range;

use elbow_ranges::RangeSet;

use crate::drive::{Cleaning, Lbn, Ps};
use crate::media_cache::Fragment;

use super::medium::{BusTransfer, Dirty};
use super::shingles::Shingles;
use super::{Controller, Last, Request, Served, served};

/// An answer that is made of several accesses.
struct Accesses {
    end: Ps,
    seek: Ps,
    rotation: Ps,
    transfer: Ps,
    /// All of them were hits.
    hit: bool,
}

impl Accesses {
    fn from(now: Ps, hit: bool) -> Accesses {
        Accesses {
            end: now,
            seek: Ps::ZERO,
            rotation: Ps::ZERO,
            transfer: Ps::ZERO,
            hit,
        }
    }

    fn add(&mut self, access: &Served) {
        self.end = access.end;
        self.seek += access.seek;
        self.rotation += access.rotation;
        self.transfer += access.transfer;
        self.hit &= access.hit;
    }
}

impl Controller<'_> {
    /// How many bands have been cleaned; 0 on a drive without shingles.
    ///
    /// ```
    /// use elbow_disk::{Controller, Drive};
    /// let drive = Drive::named("hp-c2247a")?;
    /// assert_eq!(Controller::new(&drive).bands_cleaned(), 0);
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn bands_cleaned(&self) -> u64 {
        self.shingles.as_ref().map_or(0, |shingles| shingles.cleaned)
    }

    /// The drive just started, its media cache as a power cut at `cut` left it in another of the same drive: with all that was on the medium by then.
    ///
    /// ```
    /// use elbow_disk::{Controller, Drive, Lbn, Ps, Request};
    /// let drive = Drive::named("archive-8tb")?;
    /// let mut before = Controller::new(&drive);
    /// let write = Request { lbn: Lbn(9_000_000), sectors: 8, write: true };
    /// let end = before.serve_through(Ps::ZERO, write).end;
    /// let mut after = Controller::new(&drive).with_media_cache_of(&before, end);
    /// let read = after.serve(Ps::ZERO, Request { write: false, ..write });
    /// assert!(read.seek < Ps::from_ms(2.0), "it lies at the outer diameter");
    /// # Ok::<(), elbow_disk::DriveError>(())
    /// ```
    #[must_use]
    pub fn with_media_cache_of(mut self, before: &Controller<'_>, cut: Ps) -> Self {
        let mut then = before.clone();
        then.catch_up_shingles(cut, false);
        then.write_back_idle(cut);
        let missing = then.missing_at(cut);
        self.shingles = then.shingles;
        if let Some(shingles) = &mut self.shingles {
            shingles.held = 0..0;
            shingles.cache.lose(&missing);
        }
        self
    }

    /// Apart, so that it is not a part of what serves the requests of other drives.
    #[cold]
    #[inline(never)]
    pub(super) fn serve_shingled(&mut self, now: Ps, request: Request) -> Served {
        let Some(mut shingles) = self.shingles.take() else {
            unreachable!("only a shingled drive gets here");
        };
        let served = self.serve_with(&mut shingles, now, request);
        self.shingles = Some(shingles);
        served
    }

    fn serve_with(&mut self, shingles: &mut Shingles, now: Ps, request: Request) -> Served {
        self.clean_while_idle(shingles, now);
        let host = request.lbn.0..request.lbn.0 + u64::from(request.sectors);
        let parts = match request.write {
            false => self.read_fragments(shingles, now, host),
            true if self.may_hold(shingles, &host) => self.hold(shingles, now, host),
            true => {
                let from = self.release(shingles, now);
                self.log(shingles, from, host)
            }
        };
        served(now, parts.end, [parts.seek, parts.rotation, parts.transfer], parts.hit)
    }

    /// Reads from wherever it lies.
    fn read_fragments(&mut self, shingles: &mut Shingles, now: Ps, host: Range<u64>) -> Accesses {
        let is_held = shingles.held.start < host.end && host.start < shingles.held.end;
        let from = if is_held { self.release(shingles, now) } else { now };
        let mut all = Accesses::from(from, true);
        for Fragment { at, sectors } in shingles.cache.fragments(host) {
            all.add(&self.read(all.end, at, sectors));
        }
        all
    }

    /// Whether a write begins a stream at the start of a band, or goes on with it, in the write cache.
    fn may_hold(&self, shingles: &Shingles, host: &Range<u64>) -> bool {
        let begins = shingles.cache.band(host.start).start == host.start;
        let has_cache = self.drive.electronics.write_cache.is_some() && !self.write_through;
        has_cache && (begins || shingles.goes_on(host))
    }

    /// Takes a part of a stream; bands that are whole go onto the medium.
    fn hold(&mut self, shingles: &mut Shingles, now: Ps, host: Range<u64>) -> Accesses {
        let mut from = now;
        if !shingles.goes_on(&host) {
            from = self.release(shingles, now);
            shingles.held = host.start..host.start;
        }
        shingles.held.end = host.end;
        let electronics = &self.drive.electronics;
        let (command, prepare) = (electronics.write_command(self.last.is_write()), &electronics.command);
        let data = self.arriving(
            from + command + prepare.data_preparation_ms.0,
            (host.end - host.start) as u32,
        );
        let mut there = data.end();
        while let Some(band) = shingles.whole_band() {
            // Its room is that of the band before it, which has to be on the medium.
            there = there.max(self.busy);
            self.write_in_place(shingles, now, &band, there);
        }
        self.last = Last::Write(Some(host.end));
        Accesses::from(there + prepare.write_completion_ms.0, false)
    }

    /// Writes a band whose data the write cache has, from `ready` on.
    fn write_in_place(&mut self, shingles: &mut Shingles, now: Ps, band: &Range<u64>, ready: Ps) {
        self.dirty.retain(|dirty| dirty.is_dirty(now));
        self.segments.overwrite(band, None);
        shingles.cache.forget(band);
        let data = BusTransfer {
            from: ready,
            sector: Ps::ZERO,
            start: 0,
            sectors: band.end - band.start,
        };
        self.dirty.push_back(Dirty {
            lbn: band.start,
            data,
            ready,
            is_appended: false,
            segment: None,
            written: None,
        });
        self.write_back_all(ready);
    }

    /// Sends what is held to the log; says when the drive can take something else.
    fn release(&mut self, shingles: &mut Shingles, now: Ps) -> Ps {
        let held = std::mem::replace(&mut shingles.held, 0..0);
        self.log(shingles, now, held).end
    }

    /// Writes to the log, in as many writes as it takes.
    fn log(&mut self, shingles: &mut Shingles, now: Ps, host: Range<u64>) -> Accesses {
        let most = shingles.cache.write_max();
        let (mut all, mut next) = (Accesses::from(now, false), host.start);
        while next < host.end {
            let write = next..(next + most).min(host.end);
            next = write.end;
            let from = self.make_room(shingles, all.end, write.end - write.start);
            all.add(&self.append(shingles, from, write));
        }
        all
    }

    /// Cleans until there is room in the log; says when there is.
    fn make_room(&mut self, shingles: &mut Shingles, now: Ps, sectors: u64) -> Ps {
        let mut from = now;
        while !shingles.cache.has_room(sectors) {
            let Some(band) = shingles.cache.oldest_band() else {
                unreachable!("an empty log has room");
            };
            from = self.clean(shingles, &band, from);
        }
        from
    }

    fn append(&mut self, shingles: &mut Shingles, now: Ps, host: Range<u64>) -> Served {
        let entry = shingles.cache.shape().entry_sectors;
        let sectors = (host.end - host.start) as u32 + entry;
        let at = shingles.cache.append(host);
        let access = match self.write_cache(sectors) {
            Some(cache) => self.write_cached(cache, now, at, sectors),
            None => self.write(now, at, sectors),
        };
        if shingles.cache.map_is_due() {
            let map = shingles.cache.shape().map();
            self.access(&map, access.end, true);
        }
        access
    }

    /// What the drive has cleaned by itself before `now`.
    fn clean_while_idle(&mut self, shingles: &mut Shingles, now: Ps) {
        let shape = shingles.cache.shape();
        let (idle, is_lazy) = (shape.idle_ms.0, shape.cleaning == Cleaning::Lazy);
        let start = self.idle_since + idle;
        if start >= now {
            return;
        }
        self.release(shingles, start);
        self.write_back_idle(now);
        let is_settled = self.dirty.iter().all(|dirty| dirty.written.is_some());
        while !is_lazy
            && is_settled
            && start.max(self.busy) < now
            && let Some(band) = shingles.cache.oldest_band()
        {
            self.clean(shingles, &band, start);
        }
    }

    /// Cleans a band, from `from` on at the earliest; says when it is clean.
    fn clean(&mut self, shingles: &mut Shingles, band: &Range<u64>, from: Ps) -> Ps {
        self.write_back_all(from);
        let cache = &shingles.cache;
        let mut cached = cache.cached_fragments(band);
        let in_log: u64 = cached.iter().map(|fragment| u64::from(fragment.sectors)).sum();
        cached.sort_by_key(|fragment| fragment.at);
        for Fragment { at, sectors } in cached {
            self.access(&(at..at + u64::from(sectors)), from, false);
        }
        let scratch = cache.shape().scratch();
        let length = band.end - band.start;
        if in_log < length {
            self.access(band, from, false);
        }
        self.access(&(scratch.start..scratch.start + length), from, true);
        let end = self.access(band, from, true);
        self.segments.overwrite(band, None);
        shingles.cache.forget(band);
        shingles.cleaned += 1;
        end
    }

    /// Moves the head over sectors for the drive itself, when the arm can be had from `from` on; says when it is done.
    fn access(&mut self, place: &Range<u64>, from: Ps, write: bool) -> Ps {
        let begun = self.read_ahead_until(from).max(self.busy).max(from);
        assert!(begun <= Ps::SERVED_MAX, "a drive works for 106 days, not at {begun}");
        self.ahead = None;
        let sectors = (place.end - place.start) as u32;
        let service = self.drive.service(self.arm, begun, Lbn(place.start), sectors, write);
        self.arm = service.end;
        self.busy = begun + service.total();
        self.busy
    }

    /// What the drive has done by itself before `now`; says when it can take something else, with nothing held where all is `flushed`.
    pub(super) fn catch_up_shingles(&mut self, now: Ps, flushed: bool) -> Ps {
        let Some(mut shingles) = self.shingles.take() else {
            return now;
        };
        self.clean_while_idle(&mut shingles, now);
        let end = if flushed { self.release(&mut shingles, now) } else { now };
        self.shingles = Some(shingles);
        end
    }

    /// Of what the medium does not have, and of what is held: the host's sectors.
    pub(super) fn lost_to_host(&self, missing: Vec<Range<u64>>) -> RangeSet {
        let mut lost = RangeSet::default();
        let mut lose = |range: Range<u64>| lost.insert(range.start, range.end);
        match &self.shingles {
            None => missing.into_iter().for_each(lose),
            Some(shingles) => {
                lose(shingles.held.clone());
                for missing in &missing {
                    shingles.cache.lost(missing).iter().for_each(&mut lose);
                }
            }
        }
        lost
    }
}
