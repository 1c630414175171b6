//! What a region lies on: a device, several that share it, or several that have a copy each.
//!
//! ```text
//!   A B          --copies 1    one copy, shared by A and B: a record goes to the one that will be done first
//!   A B          --copies 2    a copy on A, one on B
//!   A B C D      --copies 2    a copy shared by A and B, one shared by C and D
//! ```

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use clap::{Args, ValueHint, value_parser};
use elbow_disk::SECTOR_BYTES;
use elbow_disk::region::{Copies, Identity, Region, RegionError, probe};
use elbow_file::range_device::{FirstSectors, Members, RangeError};
use rustix::io::Errno;

use super::locked_device::{Device, FACTOR_MAX, FACTOR_MIN, LockedDevice, NewRegion};
use super::placement::NamedProfile;
use super::watched::WatchedDevice;
use crate::output::{print_message, sentence};

/// More are no safer than they are slow.
const COPIES_MAX: u64 = 8;
/// A log has so many logical sectors.
const LOG_SECTORS: u64 = 1 << 48;

/// Which devices, and how.
#[derive(Args, Clone, Debug)]
pub(super) struct DeviceArgs {
    /// The block device or file that the region lies on; several share it, or have a copy each.
    #[arg(value_name = "DEV", required = true, value_hint = ValueHint::FilePath)]
    pub(super) on: Vec<PathBuf>,
    /// All of it is N times there; a flush is done when all copies have it.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=COPIES_MAX))]
    copies: u64,
    /// A new region takes K times its size [default: all of the device or file; of new files 4 times].
    #[arg(long, value_name = "K", value_parser = value_parser!(u64).range(FACTOR_MIN..=FACTOR_MAX))]
    factor: Option<u64>,
}

/// The devices of one copy.
struct CopyDevices(Vec<LockedDevice>);

/// The devices of all copies; nothing stands for a copy that is missing.
pub(super) struct DeviceSet {
    groups: Vec<Option<CopyDevices>>,
    factor: Option<u64>,
    /// A copy may be missing.
    degraded: bool,
}

impl DeviceArgs {
    /// Refuses what cannot be, whatever it is to lie on.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        let (factor, sharing) = (self.factor, 1);
        NewRegion { bytes, factor, sharing }.check()
    }

    /// What is said of a region that is there has to be true.
    pub(super) fn check_factor(&self, identity: Identity) -> Result<()> {
        let Identity {
            logical_sectors,
            sectors,
            ..
        } = identity;
        ensure!(
            self.factor
                .is_none_or(|factor| sectors / logical_sectors.max(1) == factor),
            "a region of {} bytes for {} lies there; leave --factor away, or make it anew with `elbow bark format --force`",
            sectors * SECTOR_BYTES,
            logical_sectors * SECTOR_BYTES
        );
        Ok(())
    }

    /// Opens all for this process alone. Files are made where there are none, if there is something to put into them. With `degraded`
    /// a copy may be missing.
    pub(super) fn open(&self, make: bool, degraded: bool) -> Result<DeviceSet> {
        let (devices, copies) = (self.on.len(), self.copies as usize);
        ensure!(
            devices.is_multiple_of(copies),
            "{devices} device(s) cannot be shared out to {copies} copies: name {copies} devices, or twice as many"
        );
        let opened = self.on.chunks(devices / copies).map(|paths| {
            let locked = paths
                .iter()
                .map(|path| LockedDevice::open(path, make))
                .collect::<Result<_>>();
            match locked {
                Ok(locked) => Ok(Some(CopyDevices(locked))),
                Err(error) if degraded && is_dead(&error) => {
                    tell_missing(&error);
                    Ok(None)
                }
                Err(error) if copies > 1 && is_dead(&error) => {
                    Err(error.context("--degraded goes on with the copies that are there"))
                }
                Err(error) => Err(error),
            }
        });
        Ok(DeviceSet {
            groups: opened.collect::<Result<_>>()?,
            factor: self.factor,
            degraded,
        })
    }
}

impl CopyDevices {
    /// Makes room for a new region, and removes by what something else would be known there.
    fn prepare(&mut self, bytes: u64, factor: Option<u64>) -> Result<u64> {
        let sectors = self.reserve(bytes, factor)?;
        for (number, locked_device) in self.0.iter().enumerate() {
            // Devices that share a region are taken whole.
            locked_device.wipe(sectors.min(locked_device.bytes() / SECTOR_BYTES), number == 0)?;
        }
        Ok(sectors)
    }

    fn identity(&self) -> Result<Option<Identity>> {
        match self.0[0].bytes() < 3 * SECTOR_BYTES {
            true => Ok(None),
            false => probe(self.device(u64::MAX, true)?).map_err(|error| self.named(error)),
        }
    }

    /// With the name of the device that it is about.
    fn named(&self, error: RegionError) -> Error {
        let name = match error {
            RegionError::OtherDevice { number } => self.0[number - 1].name(),
            _ => self.0.iter().map(LockedDevice::name).collect::<Vec<_>>().join(", "),
        };
        Error::new(error).context(name)
    }

    /// The first sectors of it; alone it is asked for one thing after the other.
    fn device(&self, sectors: u64, is_alone: bool) -> Result<Device> {
        if let ([locked_device], true) = (&self.0[..], is_alone) {
            return Ok(Box::new(FirstSectors::of(locked_device.for_records(true)?, sectors)));
        }
        let members = self.0.iter().map(|locked_device| locked_device.for_records(false));
        let members = members.collect::<Result<Vec<_>>>()?;
        Ok(Box::new(FirstSectors::of(Members::new(members), sectors)))
    }

    /// Makes room for a new region, and says how many sectors that takes.
    fn reserve(&mut self, bytes: u64, factor: Option<u64>) -> Result<u64> {
        let sharing = self.0.len() as u64;
        let new = NewRegion { bytes, factor, sharing };
        let parts = self.0.iter_mut().map(|locked_device| locked_device.reserve(new));
        let parts: Vec<u64> = parts.collect::<Result<_>>()?;
        let is_whole = self
            .0
            .iter()
            .zip(&parts)
            .all(|(locked_device, part)| locked_device.bytes() / SECTOR_BYTES == *part);
        ensure!(
            sharing == 1 || is_whole,
            "devices that share a region are taken whole: leave --factor away"
        );
        Ok(parts.iter().sum())
    }
}

impl DeviceSet {
    /// Files that were made stay.
    pub(super) fn keep(&mut self) {
        let locked = self.groups.iter_mut().flatten().flat_map(|group| &mut group.0);
        locked.for_each(LockedDevice::keep);
    }

    /// What the devices are called.
    pub(super) fn names(&self) -> Vec<String> {
        let locked = self.groups.iter().flatten().flat_map(|group| &group.0);
        locked.map(LockedDevice::name).collect()
    }

    /// Has the places on each device chosen by its profile, in their order; without profiles the first free one is taken.
    ///
    /// # Errors
    /// There are not as many as devices, or one is of another drive.
    pub(super) fn place_by(&mut self, profiles: Vec<NamedProfile>, devices: usize) -> Result<()> {
        ensure!(
            profiles.is_empty() || profiles.len() == devices,
            "{devices} device(s) and {} profile(s): name --profile once for each device, in their order",
            profiles.len()
        );
        let each = devices / self.groups.len().max(1);
        let mut profiles = profiles.into_iter();
        for group in &mut self.groups {
            let of_group = profiles.by_ref().take(each);
            // Of a copy that is missing nobody can say which drive it is on.
            let locked = group.iter_mut().flat_map(|group| &mut group.0);
            let of_group: Vec<NamedProfile> = of_group.collect();
            locked
                .zip(of_group)
                .try_for_each(|(device, profile)| device.place_by(profile))?;
        }
        Ok(())
    }

    /// As many copies as are new.
    pub(super) fn copies(&self) -> usize {
        self.groups.len()
    }

    /// The region that is there, if one is.
    pub(super) fn identity(&mut self) -> Result<Option<Identity>> {
        let mut found = Vec::new();
        for group in &mut self.groups {
            let Some(devices) = group else { continue };
            match devices.identity() {
                Err(error) if self.degraded && is_dead(&error) => {
                    tell_missing(&error);
                    *group = None;
                }
                identity => found.push(identity?),
            }
        }
        Ok(found.into_iter().flatten().max_by_key(|identity| identity.incarnation))
    }

    /// Refuses where something lies on any of them.
    pub(super) fn check_blank(&self) -> Result<()> {
        let mut locked = self.groups.iter().flatten().flat_map(|group| &group.0);
        locked.try_for_each(LockedDevice::check_blank)
    }

    /// Makes a region; what was there is lost.
    pub(super) fn format(&mut self, bytes: u64) -> Result<Copies<Device>> {
        let (is_alone, factor) = (self.groups.len() == 1, self.factor);
        let devices = self.groups.iter_mut().map(|group| {
            let group = group.as_mut().context("a new region has all its copies")?;
            let sectors = group.prepare(bytes, factor)?;
            group.device(sectors, is_alone)
        });
        let devices = devices.collect::<Result<_>>()?;
        let copies = Copies::format(devices, bytes / SECTOR_BYTES, random()?);
        let failed = || format!("cannot make a region on {}", self.names().join(", "));
        let copies = copies.with_context(failed)?;
        let mut locked = self.groups.iter().flatten().flat_map(|group| &group.0);
        locked.try_for_each(LockedDevice::sync_name).with_context(failed)?;
        Ok(copies)
    }

    /// Finds the region that is there; on devices that are empty it is copied. A copy that turns out to be dead meanwhile may be missing, too.
    pub(super) fn recover(&mut self, identity: Identity) -> Result<Copies<Device>> {
        loop {
            let failed: Vec<Arc<AtomicBool>> = self.groups.iter().map(|_| Arc::default()).collect();
            match self.recover_watched(identity, &failed) {
                Err(error) if self.degraded && is_dead(&error) && self.leave_out(&failed, &error) => {}
                recovered => return recovered,
            }
        }
    }

    /// Goes on without the copies that have failed; says whether that is possible.
    fn leave_out(&mut self, failed: &[Arc<AtomicBool>], error: &Error) -> bool {
        let is_left = |(group, failed): (&Option<CopyDevices>, &Arc<AtomicBool>)| {
            group.is_some() && !failed.load(Ordering::Acquire)
        };
        let left: Vec<bool> = self.groups.iter().zip(failed).map(is_left).collect();
        let before = self.groups.iter().flatten().count();
        let is_possible = left.contains(&true) && left.iter().filter(|&&is| is).count() < before;
        if is_possible {
            tell_missing(error);
            let groups = self.groups.iter_mut().zip(left);
            groups
                .filter(|(_, is_left)| !is_left)
                .for_each(|(group, _)| *group = None);
        }
        is_possible
    }

    fn recover_watched(&mut self, identity: Identity, failed: &[Arc<AtomicBool>]) -> Result<Copies<Device>> {
        let (is_alone, factor) = (self.groups.len() == 1, self.factor);
        let bytes = identity.logical_sectors * SECTOR_BYTES;
        let devices = self.groups.iter_mut().zip(failed).map(|(group, failed)| {
            let Some(group) = group else { return Ok(None) };
            let sectors = match group.identity()? {
                Some(found) => found.sectors,
                None => {
                    group.0.iter().try_for_each(LockedDevice::check_blank)?;
                    group.reserve(bytes, factor)?
                }
            };
            let device = group.device(sectors, is_alone)?;
            Ok(Some(Box::new(WatchedDevice::new(device, Arc::clone(failed))) as Device))
        });
        let mut devices: Vec<Option<Device>> = devices.collect::<Result<_>>()?;
        let copies = match &mut devices[..] {
            [device] => device.take().map_or_else(
                || bail!("the only copy is missing"),
                |device| Ok(Region::open(device)?.into()),
            ),
            _ => Ok(Copies::open(devices, random()?)?),
        };
        copies.with_context(|| format!("cannot recover the region on {}", self.names().join(", ")))
    }

    /// Refuses a region that cannot be a block device, or is not of these copies.
    pub(super) fn check(&self, identity: Identity) -> Result<()> {
        let names = self.names().join(", ");
        ensure!(
            u64::from(identity.sector_bytes) == SECTOR_BYTES,
            "{names}: a region of sectors of {} bytes; those of a block device have {SECTOR_BYTES}",
            identity.sector_bytes
        );
        ensure!(
            identity.logical_sectors < LOG_SECTORS,
            "{names}: a log lies there, which is no block device"
        );
        ensure!(
            identity.copies as usize == self.copies(),
            "{names}: a region of {} copies lies there: name the devices of all, and --copies {0}",
            identity.copies
        );
        Ok(())
    }
}

fn tell_missing(error: &Error) {
    print_message(format_args!("a copy is missing: {}", sentence(error)));
}

/// Whether a device is not there, or does not read and write. One that another process has is alive, and may be newer.
fn is_dead(error: &Error) -> bool {
    const GONE: [Errno; 3] = [Errno::NXIO, Errno::NODEV, Errno::IO];
    error.chain().any(|cause| {
        let opening = cause.downcast_ref::<io::Error>().is_some_and(|error| {
            error.kind() == ErrorKind::NotFound
                || Errno::from_io_error(error).is_some_and(|errno| GONE.contains(&errno))
        });
        let region = cause.downcast_ref::<RegionError>();
        opening || matches!(region, Some(RegionError::Device(RangeError::Io { .. })))
    })
}

/// A number that nobody has had before.
pub(super) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    got.map_err(|errno| anyhow!("no random number: {errno}"))?;
    Ok(u64::from_le_bytes(bytes))
}
