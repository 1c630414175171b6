//! Copies of a region on several devices: a flush is one of all of them, and any one is enough to go on from.
//!
//! ```text
//!   write ──> record on A, record on B      each at a place of its device's choice
//!   flush ──> of A and of B, at once        acknowledged when both have it
//!   open     A 7 tag x           B 6 tag x             equal, but for what was not flushed
//!            A 9 tag y base x    B 7 tag x             B was away: it is made from A
//!            A 9 tag y base x    B 8 tag z base x      each went on without the other: refused
//! ```
//!
//! Each copy is a whole region by itself. Its header has a mark besides: the set that it belongs to, how many copies that has, a *tag* that is drawn anew
//! whenever the copies have been made equal, the tag of before, and the *base*, the tag of when all were there. What always holds: *of the copies with the tag of the one with the highest
//! incarnation each has all that was acknowledged.*
//!
//! 1. Opening opens those copies first, by which their incarnations rise and their tag stays.
//! 2. What is torn or damaged in the first of them is taken from another, where it is whole. The others are made equal to it, durably; one that was away, which has the base or the tag of before, is made anew.
//! 3. Only then each gets the next incarnation and the new tag, and only then anything is acknowledged. A copy that is not there stays behind, and one that is being made
//!    has the tag 0: by itself it is refused.
//!
//! A crash between these steps leaves some copies behind that were equal, which costs another copying. After a write or flush of one copy has failed nothing more is
//! taken; what is there is read from the others.
//!
//! Not here: copying while the set is in use, and a write that was not flushed when a crash came *and* whose whole copy is lost before the others were made equal: it may be
//! found in part.

use std::cmp::Reverse;
use std::ops::Range;

use elbow_file::range_device::RangeDevice;
use elbow_ranges::RangeSet;

use super::format::{Header, Mark};
use super::image::Image;
use super::planted::{Bug, has};
use super::{Region, RegionError, Statistics, TRIM_SECTORS, records, scan, taken_over};

/// A region in one copy or several. See the [module](self).
///
/// ```
/// use elbow_disk::region::Copies;
/// use elbow_file::range_device::MemoryDevice;
///
/// let (mut a, mut b) = (MemoryDevice::new(512, 1000), MemoryDevice::new(512, 1000));
/// let mut copies = Copies::format(vec![&mut a, &mut b], 300, 7)?;
/// copies.write(40, &[1; 512])?;
/// copies.flush()?;
///
/// drop(a); // The other has all that was flushed.
/// let mut left = Copies::open(vec![None, Some(&mut b)], 8)?;
/// assert_eq!(left.read(40, 1)?, [1; 512]);
/// # Ok::<(), elbow_disk::region::RegionError>(())
/// ```
#[derive(Debug)]
pub struct Copies<D> {
    /// At least one.
    regions: Vec<Region<D>>,
    /// A write or flush of a copy that failed.
    failed: Option<RegionError>,
}

impl<D> From<Region<D>> for Copies<D> {
    fn from(region: Region<D>) -> Self {
        let (regions, failed) = (vec![region], None);
        Self { regions, failed }
    }
}

impl<D: RangeDevice> Copies<D> {
    /// Makes an empty region with a copy on each device; what these held is lost. `id` is a random number; see [`Region::format`].
    ///
    /// # Errors
    /// Those of [`Region::format`].
    ///
    /// # Panics
    /// Without devices.
    pub fn format(devices: Vec<D>, logical_sectors: u64, id: u64) -> Result<Self, RegionError> {
        assert!(!devices.is_empty(), "a copy has a device");
        let mark = Mark {
            set: id,
            tag: id | 1,
            previous: id | 1,
            base: id | 1,
            copies: devices.len() as u32,
        };
        let mark = (devices.len() > 1).then_some(mark);
        // Each has an id of its own, by which the devices that share one are not taken for those that share another.
        let regions = (id..=u64::MAX).chain(0..).zip(devices);
        let regions = regions.map(|(id, device)| Region::format_copy(device, logical_sectors, id, mark));
        let (regions, failed) = (regions.collect::<Result<_, _>>()?, None);
        Ok(Self { regions, failed })
    }

    /// Finds the newest image on the devices of all copies; `None` stands for one that is not there, which then is behind for good. All that are there are equal
    /// then: a copy that was away, and a device without a region, is made anew. `tag` is a random number.
    ///
    /// After [`RegionError::Device`] it can be opened again without the copy whose device failed: none has got a mark by which that would be newer.
    ///
    /// With one device it is [`Region::open`].
    ///
    /// # Errors
    /// [`RegionError::NoRegion`] where no device has one; [`RegionError::OtherCopies`] for copies of different sets or another number of them;
    /// [`RegionError::Diverged`] where copies went on without each other; [`RegionError::Failed`] where a device failed at the end; those of [`Region::open`], and of copying.
    pub fn open(devices: Vec<Option<D>>, tag: u64) -> Result<Self, RegionError> {
        let count = devices.len();
        let mut devices: Vec<D> = devices.into_iter().flatten().collect();
        if count == 1 {
            return Ok(Region::open(devices.pop().ok_or(RegionError::NoRegion)?)?.into());
        }
        let headers = devices.iter_mut().map(header_of).collect::<Result<Vec<_>, _>>()?;
        let newest = newest(&headers, count)?;
        let (mut regions, mut behind) = (Vec::new(), Vec::new());
        for (device, header) in devices.into_iter().zip(headers) {
            let mark = header.and_then(|header| header.mark);
            match mark.is_some_and(|mark| mark.tag == newest.tag || has(Bug::StaleCopy)) {
                true => regions.push(Region::open_copy(device)?),
                false => behind.push(device),
            }
        }
        // One copy of a header may have been damaged, and the other behind: the scan knows better.
        regions.sort_by_key(|region| Reverse(region.header.incarnation));
        if has(Bug::StaleCopy) {
            regions.reverse();
        }
        let (first, others) = regions.split_first_mut().expect("the newest");
        others.iter_mut().try_for_each(|other| mend(first, other))?;
        others.iter_mut().try_for_each(|other| resync(first, other))?;
        for device in behind {
            // An id of its own: older records that lie there are none of its.
            let id = newest.set.wrapping_add(tag | 1).wrapping_add(regions.len() as u64);
            let region = rebuilt(device, &mut regions[0], newest, id)?;
            regions.push(region);
        }
        let incarnation = regions[0].header.incarnation + 1;
        let tag = tag | 1;
        let base = if regions.len() == count { tag } else { newest.base };
        let mark = Mark {
            tag,
            previous: newest.tag,
            base,
            ..newest
        };
        let marked = regions
            .iter_mut()
            .try_for_each(|region| region.write_mark(incarnation, mark));
        marked.map_err(after_a_mark)?;
        let failed = None;
        Ok(Self { regions, failed })
    }

    /// How many copies there are, failed ones among them.
    #[must_use]
    pub fn copies(&self) -> usize {
        self.regions.len()
    }

    /// Those that have not failed.
    #[must_use]
    pub fn whole(&self) -> usize {
        self.regions.iter().filter(|region| region.failure().is_none()).count()
    }

    /// As [`Region::write`], on all copies.
    ///
    /// # Errors
    /// Those of [`Region::write`]. [`RegionError::Full`] where one copy is full, and then none has changed.
    pub fn write(&mut self, at: u64, data: &[u8]) -> Result<(), RegionError> {
        self.check_not_failed()?;
        self.regions[0].check_write(at, data)?;
        for (at, data) in records(at, data, self.sector_bytes()) {
            self.for_each_copy(|region| region.prepare(data, TRIM_SECTORS))?;
            self.for_each_copy(|region| region.write_record(at, data))?;
        }
        Ok(())
    }

    /// As [`Region::trim`], on all copies.
    ///
    /// # Errors
    /// Those of [`Region::trim`].
    pub fn trim(&mut self, range: Range<u64>) -> Result<(), RegionError> {
        self.check_not_failed()?;
        self.for_each_copy(|region| region.prepare_trim(&range))?;
        self.for_each_copy(|region| region.trim(range.clone()))
    }

    /// As [`Region::read`], from the first copy that can.
    ///
    /// # Errors
    /// Those of [`Region::read`], of the last copy that was tried.
    pub fn read(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>, RegionError> {
        let read = self.read_any(at, sectors);
        // It may have been the first to hear of a write that failed.
        self.note_failure();
        read
    }

    fn read_any(&mut self, at: u64, sectors: u64) -> Result<Vec<u8>, RegionError> {
        let mut refusal = None;
        // One that has failed may lack what the others have.
        let (whole, failed): (Vec<_>, Vec<_>) = self.regions.iter_mut().partition(|region| region.failure().is_none());
        for region in whole.into_iter().chain(failed) {
            match region.read(at, sectors) {
                Ok(data) => return Ok(data),
                Err(error @ RegionError::Outside { .. }) => return Err(error),
                Err(error) => refusal = Some(error),
            }
        }
        Err(refusal.expect("at least one copy"))
    }

    /// As [`Region::flush`]: acknowledged when all copies have it.
    ///
    /// # Errors
    /// Those of [`Region::flush`]; then the copies differ in what was written since the last, until the set is opened again.
    pub fn flush(&mut self) -> Result<(), RegionError> {
        self.check_not_failed()?;
        // All are busy with it before one is waited for.
        self.for_each_copy(Region::start_flush)?;
        match has(Bug::OneCopyFlushed) {
            true => self.regions[0].finish_flush(),
            false => self.for_each_copy(Region::finish_flush),
        }
    }

    /// Logical sectors.
    #[must_use]
    pub fn logical_sectors(&self) -> u64 {
        self.regions[0].logical_sectors()
    }

    /// Bytes of a sector.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        self.regions[0].sector_bytes()
    }

    /// Of the copy that has the fewest: see [`Region::free_sectors`].
    #[must_use]
    pub fn free_sectors(&self) -> u64 {
        self.regions.iter().map(Region::free_sectors).min().unwrap_or(0)
    }

    /// Of the first copy: see [`Region::live_records`].
    #[must_use]
    pub fn live_records(&self) -> usize {
        self.regions[0].live_records()
    }

    /// Of each copy.
    pub fn statistics(&self) -> impl Iterator<Item = Statistics> + '_ {
        self.regions.iter().map(Region::statistics)
    }

    /// Of the write or flush that failed, if one has.
    #[must_use]
    pub fn failure(&self) -> Option<&RegionError> {
        self.failed.as_ref()
    }

    /// The devices below. Nobody else may write to them.
    pub fn devices(&mut self) -> impl Iterator<Item = &mut D> {
        self.regions.iter_mut().map(Region::device)
    }

    /// A copy that has not failed, whose image is that of all.
    pub(super) fn first(&self) -> &Region<D> {
        let whole = self.regions.iter().find(|region| region.failure().is_none());
        whole.unwrap_or(&self.regions[0])
    }

    /// Waits for all writes that are outstanding.
    pub(super) fn settle(&mut self) -> Result<(), RegionError> {
        self.for_each_copy(Region::settle)
    }

    /// Does something to each copy, also after one has failed; the first error is told. What ends a copy ends the set.
    fn for_each_copy(
        &mut self,
        mut act: impl FnMut(&mut Region<D>) -> Result<(), RegionError>,
    ) -> Result<(), RegionError> {
        let mut result = Ok(());
        for region in &mut self.regions {
            let acted = act(region);
            result = result.and(acted);
        }
        self.note_failure();
        result
    }

    fn note_failure(&mut self) {
        let failure = self.regions.iter().find_map(Region::failure).cloned();
        self.failed = self.failed.take().or(failure.map(RegionError::Device));
    }

    fn check_not_failed(&self) -> Result<(), RegionError> {
        let failures = self.regions.iter().find_map(Region::failure);
        failures.map_or(Ok(()), |error| Err(RegionError::Failed(error.clone())))
    }
}

/// A part and around it all that the writes of either image wrote that lie in it: what was written at once is taken from one of them.
fn whole_writes(mut part: Range<u64>, images: [&Image; 2]) -> Range<u64> {
    loop {
        let pieces = images
            .into_iter()
            .flat_map(|image| image.pieces(&part).map(|(_, at)| &image.record(at).logical));
        let wider = pieces.fold(part.clone(), |part, of| part.start.min(of.start)..part.end.max(of.end));
        if wider == part {
            return part;
        }
        part = wider;
    }
}

/// A copy of a region on a device that has none, or has one that was away. Until it has all it is none by itself.
fn rebuilt<D: RangeDevice>(device: D, from: &mut Region<D>, mark: Mark, id: u64) -> Result<Region<D>, RegionError> {
    let tag = 0;
    let mark = Mark { tag, ..mark };
    let mut region = Region::format_copy(device, from.header.logical_sectors, id, Some(mark))?;
    resync(from, &mut region)?;
    Ok(region)
}

/// Some may have the mark by then, and be newer than the others.
fn after_a_mark(error: RegionError) -> RegionError {
    match error {
        RegionError::Device(error) => RegionError::Failed(error),
        other => other,
    }
}

/// What the newer copy of the header says; nothing where the device has no region.
fn header_of<D: RangeDevice>(device: &mut D) -> Result<Option<Header>, RegionError> {
    Ok(scan::checked_header(&mut taken_over(device)?)?.map(|(header, _)| header))
}

/// The mark of the newest copy, if all belong together.
fn newest(headers: &[Option<Header>], count: usize) -> Result<Mark, RegionError> {
    let found = || headers.iter().flatten();
    let newest = found()
        .max_by_key(|header| header.incarnation)
        .ok_or(RegionError::NoRegion)?;
    let other = RegionError::OtherCopies { count };
    let mark = newest.mark.ok_or_else(|| other.clone())?;
    let is_of_set = |header: &Header| {
        let of = header
            .mark
            .map(|mark| (mark.set, mark.copies as usize, header.logical_sectors));
        of == Some((mark.set, count, newest.logical_sectors))
    };
    if !found().all(is_of_set) {
        return Err(other);
    }
    if mark.tag == 0 {
        return Err(RegionError::Incomplete);
    }
    // What was acknowledged under those tags this copy has, too: it was among those that had to have it.
    let is_before = |other: Mark| [mark.tag, mark.previous, mark.base, 0].contains(&other.tag);
    match found().filter_map(|header| header.mark).all(is_before) || has(Bug::TagIgnored) {
        true => Ok(mark),
        false => Err(RegionError::Diverged),
    }
}

impl<D: RangeDevice> Region<D> {
    /// Both copies of the header say so, durably. Ages begin anew.
    fn write_mark(&mut self, incarnation: u64, mark: Mark) -> Result<(), RegionError> {
        self.flush()?;
        let mark = Some(mark);
        self.header = Header {
            incarnation,
            mark,
            ..self.header
        };
        self.sequence = 0;
        self.write_headers(0)
    }
}

/// Takes from a copy with the same tag what is torn or damaged in the truth and whole there. It has all that was acknowledged, so that nothing of that is lost, even if it
/// has something older where the last write to the truth was torn by a crash.
fn mend<D: RangeDevice>(truth: &mut Region<D>, other: &mut Region<D>) -> Result<(), RegionError> {
    if has(Bug::DamageIsTruth) {
        return Ok(());
    }
    for doubtful in truth.doubtful.clone().iter() {
        let part = whole_writes(doubtful, [&truth.image, &other.image]);
        if !other.doubtful.overlaps(part.start, part.end) {
            copy_part(other, truth, &part)?;
            truth.doubtful.remove(part.start, part.end);
        }
    }
    Ok(())
}

/// Writes what differs, and makes it durable: the other then reads as the truth, and has zeros by a record where that has.
fn resync<D: RangeDevice>(truth: &mut Region<D>, other: &mut Region<D>) -> Result<(), RegionError> {
    let all = 0..truth.header.logical_sectors;
    copy_part(truth, other, &all)?;
    other.flush()
}

/// Writes what differs in a part.
fn copy_part<D: RangeDevice>(from: &mut Region<D>, to: &mut Region<D>, part: &Range<u64>) -> Result<(), RegionError> {
    from.settle()?;
    to.settle()?;
    let pieces: Vec<(Range<u64>, u64)> = from.image.pieces(part).collect();
    let written: RangeSet = pieces.iter().map(|(range, _)| range.clone()).collect();
    let elsewhere: Vec<Range<u64>> = to.image.pieces(part).map(|(range, _)| range).collect();
    for range in elsewhere.into_iter().collect::<RangeSet>().difference(&written).iter() {
        to.trim(range)?;
    }
    for (range, at) in pieces {
        match from.image.record(at).payload_bytes {
            0 if to.image.is_zeros_in(&range) => {}
            0 => to.put(range, &[], 0)?,
            _ => {
                let sectors = range.end - range.start;
                let data = from.read(range.start, sectors)?;
                if to.read(range.start, sectors)? != data {
                    to.write(range.start, &data)?;
                }
            }
        }
    }
    Ok(())
}
