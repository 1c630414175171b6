//! A device whose places a profile chooses.
//!
//! ```text
//!   write_range(free places) ──> think = now - end of the last write ──> cheapest by the profile ──> write at that place
//!                                      completion: place and time are where the next one counts from
//! ```
//!
//! Always: what holds for every [`RangeDevice`]; the place is chosen when the write is submitted, and known to nobody before its completion. While a write is under way, the next is
//! chosen from where and when it is expected to end.

use std::task::Waker;
use std::time::Duration;

use elbow_file::range_device::{
    Clock, Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket, first_aligned_fit,
    free_targets,
};
use elbow_ranges::RangeSet;

use super::{EndsWith, Predictor, Profile, ProfileError};

/// A device that takes writes at fixed places, with range writes by a profile on top.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::Drive;
/// use elbow_disk::device::{ModelledDevice, Setup};
/// use elbow_disk::profile::{DeviceProbe, Identity, Kind, Plan, ProfiledDevice, measure};
/// use elbow_disk::region::Log;
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let mut probe = DeviceProbe::new(ModelledDevice::new(&drive, Setup::default()))?;
/// let identity = Identity { kind: Kind::Model, model: None, serial: None, partition_start_bytes: None, bytes: drive.sectors() * 512 };
/// let profile = measure(&mut probe, &Plan { samples: 2, ..Plan::new(0..8192) }, identity, &mut |_| true)?;
///
/// let mut log = Log::format(ProfiledDevice::new(probe.into_device(), &profile)?, 7)?;
/// log.append(b"debit 5")?;
/// log.sync()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ProfiledDevice<D> {
    device: D,
    predictor: Predictor,
    ends_with: EndsWith,
    last: Option<LastWrite>,
    given: GivenPlaces,
    /// The flush behind the last write.
    flush: Option<Ticket>,
}

/// Where the head was last.
#[derive(Clone, Copy, Debug)]
struct LastWrite {
    ticket: Ticket,
    /// Behind its last sector.
    end: u64,
    /// When it ended, or is expected to.
    at: Duration,
}

impl<D: RangeDevice> ProfiledDevice<D> {
    /// Takes a device over, to which nobody else writes. That the profile is of this device, [`Identity::check`](super::Identity::check) says.
    ///
    /// # Errors
    /// [`ProfileError::NoRotation`]; [`ProfileError::NoClock`]; [`ProfileError::SectorBytes`].
    pub fn new(device: D, profile: &Profile) -> Result<Self, ProfileError> {
        let (of_profile, found) = (profile.sector_bytes, device.shape().sector_bytes);
        let predictor = Predictor::new(profile)?.with_sectors_of(of_profile, found);
        let predictor = predictor.ok_or(ProfileError::SectorBytes {
            profile: of_profile,
            found,
        })?;
        if device.clock() == Clock::None {
            return Err(ProfileError::NoClock);
        }
        Ok(Self {
            device,
            predictor,
            ends_with: profile.ends_with,
            last: None,
            given: GivenPlaces::default(),
            flush: None,
        })
    }

    /// The device below.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The device again.
    pub fn into_device(self) -> D {
        self.device
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        self.shape().check(&request)?;
        match request {
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => self.take_range_write(targets, alignment, data, begin_by),
            Request::Write { at, data } => {
                let ticket = self.pass_on(request, begin_by)?;
                let end = at + self.sectors(data);
                self.expect(ticket, end, 0.0);
                Ok(ticket)
            }
            Request::Barrier | Request::Flush => {
                let ticket = self.pass_on(request, begin_by)?;
                // Whoever comes behind it is ordered behind it below, at whatever place.
                let known = self.given.barrier();
                self.given.forget(&known);
                if matches!(request, Request::Flush) {
                    self.flush.get_or_insert(ticket);
                }
                Ok(ticket)
            }
            Request::Read { .. } => self.pass_on(request, begin_by),
        }
    }

    fn take_range_write(
        &mut self,
        targets: &RangeSet,
        alignment: u64,
        data: &[u8],
        begin_by: Option<Duration>,
    ) -> Result<Ticket, RangeError> {
        let sectors = self.sectors(data);
        let free = free_targets(targets, self.given.all(), sectors, alignment)?;
        let (at, cost_ms) = self.choose(&free, sectors, alignment);
        let ticket = self.pass_on(Request::Write { at, data }, begin_by)?;
        let place = at..at + sectors;
        self.expect(ticket, place.end, cost_ms);
        self.given.give(ticket, place);
        Ok(ticket)
    }

    fn choose(&self, free: &RangeSet, sectors: u64, alignment: u64) -> (u64, f64) {
        let first = || first_aligned_fit(free, sectors, alignment).expect("there is one");
        let Some(last) = self.last else {
            return (first(), 0.0);
        };
        let think_ms = self.now().saturating_sub(last.at).as_secs_f64() * 1000.0;
        let choice = self.predictor.choose(free, sectors, alignment, last.end, think_ms);
        let choice = choice.unwrap_or_else(|| unreachable!("there is a place"));
        (choice.at, choice.cost_ms.unwrap_or(0.0))
    }

    fn pass_on(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        match begin_by {
            None => self.device.submit(request),
            Some(begin_by) => self.device.submit_by(request, begin_by),
        }
    }

    /// A write is under way, behind those that are.
    fn expect(&mut self, ticket: Ticket, end: u64, cost_ms: f64) {
        let free_at = self.last.map_or(Duration::ZERO, |last| last.at);
        let at = self.now().max(free_at) + Duration::from_secs_f64(cost_ms / 1000.0);
        self.last = Some(LastWrite { ticket, end, at });
        self.flush = None;
    }

    /// What the host will be told.
    fn hear(&mut self, completion: Completion) -> Completion {
        self.given.tell(&completion);
        let Completion { ticket, result, at } = &completion;
        let awaited = match (self.ends_with, &self.last) {
            (EndsWith::Write, Some(last)) => Some(last.ticket),
            (EndsWith::Flush, _) => self.flush,
            (EndsWith::Write, None) => None,
        };
        if let (Some(last), true, Ok(Done::Written(_) | Done::Passed)) =
            (&mut self.last, awaited == Some(*ticket), result)
        {
            last.at = *at;
        }
        completion
    }

    fn now(&self) -> Duration {
        self.device.clock().time()
    }

    fn sectors(&self, data: &[u8]) -> u64 {
        data.len() as u64 / u64::from(self.shape().sector_bytes)
    }
}

impl<D: RangeDevice> RangeDevice for ProfiledDevice<D> {
    fn shape(&self) -> Shape {
        self.device.shape()
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.take(request, None)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.device.poll()?;
        Some(self.hear(completion))
    }

    fn wait(&mut self) -> Option<Completion> {
        let completion = self.device.wait()?;
        Some(self.hear(completion))
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.take(request, Some(begin_by))
    }

    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        self.device.cancel(ticket)
    }

    fn clock(&self) -> Clock {
        self.device.clock()
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        self.device.next_completion_at()
    }

    fn pass_until(&mut self, time: Duration) {
        self.device.pass_until(time);
    }

    fn wake(&mut self, waker: &Waker) -> bool {
        self.device.wake(waker)
    }
}
