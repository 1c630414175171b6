//! Requests checked, and places among targets.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use elbow_ranges::RangeSet;

use super::{Completion, Done, RangeError, Request, Shape, Ticket};

/// The first multiple of `alignment` from which `sectors` lie in `targets`, in sectors.
///
/// ```
/// use elbow_file::range_device::first_aligned_fit;
///
/// let free = [3..9, 21..30].into_iter().collect();
/// assert_eq!(first_aligned_fit(&free, 4, 4), Some(4));
/// assert_eq!(first_aligned_fit(&free, 6, 6), Some(24));
/// assert_eq!(first_aligned_fit(&free, 7, 6), None);
/// ```
#[must_use]
pub fn first_aligned_fit(targets: &RangeSet, sectors: u64, alignment: u64) -> Option<u64> {
    targets.iter().find_map(|range| fits(&range, sectors, alignment).next())
}

/// The places within one range.
pub(super) fn fits(range: &Range<u64>, sectors: u64, alignment: u64) -> impl Iterator<Item = u64> + use<> {
    let first = range.start.checked_next_multiple_of(alignment);
    let end = range.end.checked_sub(sectors).map_or(0, |last| last + 1);
    first
        .into_iter()
        .flat_map(move |first| (first..end).step_by(usize::try_from(alignment).unwrap_or(usize::MAX)))
}

/// Targets without what is taken, for whoever writes a device.
///
/// ```
/// use elbow_file::range_device::free_targets;
///
/// let (targets, taken) = ([0..8].into_iter().collect(), [2..4].into_iter().collect());
/// let free = free_targets(&targets, &taken, 4, 2)?;
/// assert_eq!(free.iter().collect::<Vec<_>>(), [0..2, 4..8]);
/// assert!(free_targets(&targets, &taken, 5, 1).is_err());
/// # Ok::<(), elbow_file::range_device::RangeError>(())
/// ```
///
/// # Errors
/// [`RangeError::NoPlace`] where the rest has no aligned place for so many sectors.
pub fn free_targets(
    targets: &RangeSet,
    taken: &RangeSet,
    sectors: u64,
    alignment: u64,
) -> Result<RangeSet, RangeError> {
    let free = targets.difference(taken);
    match first_aligned_fit(&free, sectors, alignment) {
        Some(_) => Ok(free),
        None => Err(RangeError::NoPlace {
            sectors,
            alignment,
            targets: targets.total_bytes(),
            taken: targets.total_bytes() - free.total_bytes(),
        }),
    }
}

/// The places that range writes were given, until the host says that it knows of them: the memory of a device between
/// barriers.
///
/// A place is *handed out* with the completion that names it, when that goes to the host. A barrier says that the host has taken all those off its
/// lists of free places that were handed out before the barrier was submitted; so these are forgotten when the barrier
/// passes, and no others. It has as many ranges as there were writes since the last barrier, at most.
///
/// ```
/// use std::time::Duration;
/// use elbow_file::range_device::{Completion, Done, GivenPlaces, Ticket};
///
/// let (mut given, ticket) = (GivenPlaces::default(), Ticket(1));
/// given.give(ticket, 3..5);
/// assert_eq!(given.without(&[0..8].into_iter().collect()), [0..3, 5..8].into_iter().collect());
/// let barrier = given.barrier(); // whoever submitted it did not know of 3..5
/// given.tell(&Completion { ticket, result: Ok(Done::Written(3..5)), at: Duration::ZERO });
/// given.forget(&barrier);
/// assert_eq!(given.without(&[3..5].into_iter().collect()).total_bytes(), 0);
/// ```
///
/// Source: Anand et al., *Range Writes* (OSDI 2008), section 3.
#[derive(Clone, Debug, Default)]
pub struct GivenPlaces {
    all: RangeSet,
    not_told: BTreeMap<Ticket, Range<u64>>,
    handed_out: RangeSet,
}

impl GivenPlaces {
    /// A range write has got a place.
    pub fn give(&mut self, ticket: Ticket, place: Range<u64>) {
        self.all.insert(place.start, place.end);
        self.not_told.insert(ticket, place);
    }

    /// A request was carried out as soon as it was submitted, by a device that knows no other way.
    pub fn carried_out(&mut self, ticket: Ticket, request: &Request<'_>, result: &Result<Done, RangeError>) {
        match (request, result) {
            (Request::WriteRange { .. }, Ok(Done::Written(place))) => self.give(ticket, place.clone()),
            (Request::Barrier | Request::Flush, _) => {
                let known = self.barrier();
                self.forget(&known); // all that was submitted before is done
            }
            _ => {}
        }
    }

    /// A completion goes to the host. The place of a range write that was not begun is free again, for nobody has heard of it.
    pub fn tell(&mut self, completion: &Completion) {
        let Some(place) = self.not_told.remove(&completion.ticket) else {
            return;
        };
        match completion.result {
            Err(RangeError::Cancelled | RangeError::Late { .. }) => self.all.remove(place.start, place.end),
            _ => self.handed_out.insert(place.start, place.end),
        }
    }

    /// A barrier is submitted: what is to be forgotten when it passes.
    pub fn barrier(&mut self) -> RangeSet {
        std::mem::take(&mut self.handed_out)
    }

    /// A barrier passes.
    pub fn forget(&mut self, known: &RangeSet) {
        self.all = self.all.difference(known);
    }

    /// Targets without what others have been given.
    #[must_use]
    pub fn without(&self, targets: &RangeSet) -> RangeSet {
        targets.difference(&self.all)
    }

    /// All that must not be given.
    #[must_use]
    pub fn all(&self) -> &RangeSet {
        &self.all
    }
}

/// Refuses a deadline for what others rely on.
pub(super) fn check_deadline(request: &Request<'_>, begin_by: Option<Duration>) -> Result<(), RangeError> {
    match (request, begin_by) {
        (Request::Barrier | Request::Flush, Some(_)) => {
            Err(RangeError::Unsupported("a deadline of a barrier or flush"))
        }
        _ => Ok(()),
    }
}

impl Shape {
    /// Refuses what cannot be asked of a device of this shape: a place or a target outside, no whole sectors, alignment
    /// 0, or targets where nothing would fit if all of them were free.
    ///
    /// # Errors
    /// What is wrong.
    ///
    /// ```
    /// use elbow_file::range_device::{RangeError, Request, Shape};
    ///
    /// let shape = Shape { sector_bytes: 512, sectors: 10 };
    /// assert!(shape.check(&Request::Read { at: 8, sectors: 2 }).is_ok());
    /// let outside = RangeError::Outside { at: 9, sectors: 2, device: 10 };
    /// assert_eq!(shape.check(&Request::Read { at: 9, sectors: 2 }), Err(outside));
    /// ```
    pub fn check(&self, request: &Request<'_>) -> Result<(), RangeError> {
        match *request {
            Request::Read { at, sectors } => self.check_place(at, sectors, 1),
            Request::Write { at, data } => self.check_place(at, self.length(data)?, 1),
            Request::WriteRange { alignment: 0, .. } => Err(RangeError::Alignment),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => {
                let sectors = self.length(data)?;
                let span = targets.span().unwrap_or(0..0);
                self.check_place(span.start, span.end - span.start, 0)?;
                free_targets(targets, &RangeSet::new(), sectors, alignment).map(drop)
            }
            Request::Barrier | Request::Flush => Ok(()),
        }
    }

    /// Length of data in sectors.
    pub(super) fn length(&self, data: &[u8]) -> Result<u64, RangeError> {
        let (bytes, sector_bytes) = (data.len() as u64, self.sector_bytes);
        match bytes.is_multiple_of(sector_bytes.into()) && bytes > 0 {
            true => Ok(bytes / u64::from(sector_bytes)),
            false => Err(RangeError::Length { bytes, sector_bytes }),
        }
    }

    /// Where a place lies in bytes.
    pub(super) fn bytes(&self, place: &Range<u64>) -> Range<u64> {
        let sector_bytes = u64::from(self.sector_bytes);
        place.start * sector_bytes..place.end * sector_bytes
    }

    fn check_place(&self, at: u64, sectors: u64, sectors_min: u64) -> Result<(), RangeError> {
        if sectors < sectors_min {
            let (bytes, sector_bytes) = (0, self.sector_bytes);
            return Err(RangeError::Length { bytes, sector_bytes });
        }
        match at.checked_add(sectors).is_some_and(|end| end <= self.sectors) {
            true => Ok(()),
            false => Err(RangeError::Outside {
                at,
                sectors,
                device: self.sectors,
            }),
        }
    }
}
