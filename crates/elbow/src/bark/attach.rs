//! `elbow bark attach`: the content of a region as a device, and the process that serves it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueHint};
use elbow_disk::SECTOR_BYTES;
use elbow_disk::region::{Copies, Identity};
use elbow_drive::{Attachment, ServedRegion};
use elbow_file::range_device::RangeDevice;

use super::devices::{DeviceArgs, DeviceSet};
use super::known::{Ask, AttachedRegion, REGIONS, Status};
use super::placement::NamedProfile;
use crate::attached::registry::Place;
use crate::attached::server::{self, OfferArgs, Service};
use crate::size;

pub(crate) const EXAMPLES: &str = "\
Examples:
  A region for 64 MiB in a new file of 256 MiB, as a block device (as root):
      JOURNAL=$(elbow bark attach region.img --size 64M)

  An ext4 whose journal lies there; it is recovered before ext4 reads it:
      mke2fs -q -b 4096 -O journal_dev $JOURNAL
      mkfs.ext4 -q -b 4096 -J device=$JOURNAL /dev/sdb1

  After a crash or restart the same region again, and then the file system:
      elbow bark attach region.img
      mount -o journal_path=$JOURNAL /dev/sdb1 /mnt

  As a file, or for qemu, libnbd, fio and nbd-client, without root:
      elbow bark attach region.img --size 64M --file journal
      elbow bark attach region.img --size 64M --nbd unix:journal.sock

  Twice, on two disks; when one is lost, the other has all that was flushed:
      elbow bark attach /dev/sda3 /dev/sdb3 --copies 2 --size 64M
      elbow bark attach /dev/sda3 /dev/sdb3 --copies 2 --degraded

  Shared by two disks, each record on the one that will be done first:
      elbow bark attach /dev/sda3 /dev/sdb3 --size 64M

  On a disk that turns, each record where the platter comes next (as root):
      elbow bark profile --size 64M /dev/sda3
      elbow bark attach /dev/sda3 --size 16M --profile sda3.profile.toml

It prints the device, and goes on in the background. Each write goes to a free place of the region and carries its address, its age and a checksum; \
attaching finds the newest of each by one scan, before anybody can read.

What fsync(2), a flush or forced unit access has returned for is on the device below, and is found again after kill -9 or a power cut, with nothing older instead. \
A write of up to 128 KiB is found whole or not at all.

A profile is of one drive, by model, serial number, beginning and size; for another it is refused. Without one, the first free place is taken: on a disk that turns, most of a turn may pass until it comes by.

Which of several devices will be done first says what each took for its last writes and flushes, and what it has to do. Without copies all of them are needed.

With copies a flush waits for all; when a device fails nothing more is taken, and what is there can still be read. Attach then again with --degraded, or with an empty \
device in its place, which gets a copy. A device that was away gets one, too.

A region that is there is attached as it is; --size then only has to be right. Where the first or last MiB holds something else, attach \
refuses.

SIGTERM ends the server when the device is not in use any more, a second one at once: then its users get errors. Clients of NBD are disconnected by the first. A service manager has to unmount first.";

#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    devices: DeviceArgs,
    /// Bytes of its content; where DEV is empty or not there, a region of that size is made.
    #[arg(long, value_name = "S", value_parser = size::parse)]
    size: Option<u64>,
    /// Choose the free place of each write by a profile (`elbow bark profile`); once for each DEV, in their order [default: the first that fits].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    profile: Vec<PathBuf>,
    /// Go on without copies whose devices are not there or dead; those have to be made anew when they come back.
    #[arg(long)]
    degraded: bool,
    #[command(flatten)]
    offer: OfferArgs,
}

/// Starts the server, and prints what the device is called.
pub(super) fn run(args: &AttachArgs) -> Result<ExitCode> {
    server::start(&args.offer, || serve(args))
}

fn serve(args: &AttachArgs) -> Result<ExitCode> {
    server::prepare();
    let place = Place::plan(REGIONS)?;
    // Nothing is made for a device that cannot be.
    server::check(&args.offer, &place)?;
    if let Some(size) = args.size {
        args.devices.check(size)?;
    }
    let profiles = args.profile.iter().map(|file| NamedProfile::load(file));
    let profiles: Vec<NamedProfile> = profiles.collect::<Result<_>>()?;
    let profile_names: Vec<String> = profiles.iter().map(NamedProfile::name).collect();
    // A place is given up when it is reached too late. Where it is not allowed, more of them are.
    let _is_first = !profile_names.is_empty() && elbow_drive::wake_first();
    let mut devices = args.devices.open(args.size.is_some(), args.degraded)?;
    devices.place_by(profiles, args.devices.on.len())?;
    let mut region = region(args, &mut devices)?;
    let sectors: u64 = region.devices().map(|device| device.shape().sectors).sum();
    let served = ServedRegion::start(region).context("cannot serve the region")?;
    let mut attached = AttachedRegion {
        device: server::planned_name(&args.offer, &place),
        on: devices.names(),
        profiles: profile_names,
        copies: devices.copies(),
        bytes: served.link().bytes(),
        region_bytes: sectors * SECTOR_BYTES,
        pid: std::process::id(),
    };
    let registration = place.register(&attached)?;
    let attachment = server::open(&args.offer, &place, served.link())?;
    attached.device = attachment.name();
    let service = RegionService {
        attached: attached.clone(),
        attachment,
        served,
        devices,
    };
    server::serve(&args.offer, registration, &attached, service)
}

/// The region that is there, or a new one.
fn region(args: &AttachArgs, devices: &mut DeviceSet) -> Result<Copies<impl RangeDevice + Send + use<>>> {
    let names = devices.names().join(", ");
    if let Some(identity) = devices.identity()? {
        devices.check(identity)?;
        check_size(args, identity, &names)?;
        args.devices.check_factor(identity).with_context(|| names.clone())?;
        return devices.recover(identity);
    }
    devices.check_blank()?;
    let size = args.size;
    devices.format(size.with_context(|| format!("{names}: no region lies there; --size makes one"))?)
}

fn check_size(args: &AttachArgs, found: Identity, names: &str) -> Result<()> {
    let found = found.logical_sectors.saturating_mul(SECTOR_BYTES);
    ensure!(
        args.size.is_none_or(|size| size == found),
        "{names}: a region of {found} bytes lies there; leave --size away, or make it anew with `elbow bark format --force`"
    );
    Ok(())
}

struct RegionService {
    attached: AttachedRegion,
    attachment: Attachment,
    served: ServedRegion,
    /// Nobody else has it as long as it is served.
    devices: DeviceSet,
}

impl RegionService {
    fn status(&self) -> Result<Status> {
        let done = self.served.status()?;
        let attached = self.attached.clone();
        Ok(Status { attached, done })
    }
}

impl Service for RegionService {
    type Attached = AttachedRegion;
    type Request = Ask;
    type Answer = Status;
    /// A file system that has lost its journal has lost what it has not stored yet.
    const ENDS_IN_USE: bool = false;

    fn ready(&mut self) {
        self.devices.keep();
    }

    fn status(&mut self) -> Result<Status> {
        RegionService::status(self)
    }

    fn own(&mut self, request: Ask) -> Result<Status> {
        match request {}
    }

    /// One that has failed is taken away all the same: it takes nothing more.
    fn close(&mut self) -> Result<()> {
        let closed = self.attachment.close().or_else(|error| {
            let has_failed = self.served.status().is_ok_and(|done| done.failure.is_some());
            match has_failed {
                true => self.attachment.close_failed(),
                false => Err(error),
            }
        });
        closed.map_err(|error| server::not_closed(&error))
    }

    fn end(self) -> Result<Status> {
        drop(self.attachment);
        let on = self.attached.on.join(", ");
        let failed = |fault| anyhow!("{on}: a write or flush has failed ({fault}): what was flushed before is there");
        let done = self.served.stop().map_err(failed)?;
        Ok(Status {
            attached: self.attached,
            done,
        })
    }

    fn code(_: &Status) -> u8 {
        0
    }
}
