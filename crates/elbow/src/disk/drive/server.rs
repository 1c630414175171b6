//! The process behind `elbow disk attach`: serves the drive, and ends when it is detached.

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use elbow_disk::SECTOR_BYTES;
use elbow_drive::{Attachment, DriveStatus, EmulatedDrive, Settings};

use super::known::{Answer, Ask, AttachedDrive, DRIVES, Status};
use super::options::AttachArgs;
use crate::attached::registry::Place;
use crate::attached::server::{self, Service};
use crate::exit;
use crate::output::print_message;

/// A drive that is served.
pub(super) struct ServedDrive {
    attached: AttachedDrive,
    attachment: Attachment,
    drive: EmulatedDrive,
}

/// Serves a drive until it is detached.
pub(super) fn run(args: &AttachArgs) -> Result<ExitCode> {
    server::prepare();
    let place = Place::plan(DRIVES)?;
    // Nothing is made for a device that cannot be.
    server::check(&args.offer, &place)?;
    let (settings, backing) = args.settings()?;
    // The threads that pass requests on to the drive have it from this one: what they wait is in no lateness. Where it is not allowed, `status` says so.
    let _is_first = elbow_drive::wake_first();
    let drive = match args.log()? {
        None => EmulatedDrive::start(settings.clone(), backing),
        Some(log) => EmulatedDrive::start_logged(settings.clone(), backing, Box::new(log)),
    };
    let drive = drive.context("cannot start the drive")?;
    let planned = server::planned_name(&args.offer, &place);
    let registration = place.register(&attached(args, &settings, planned))?;
    let attachment = server::open(&args.offer, &place, drive.link())?;
    let attached = attached(args, &settings, attachment.name());
    let served = ServedDrive {
        attached: attached.clone(),
        attachment,
        drive,
    };
    server::serve(&args.offer, registration, &attached, served)
}

fn attached(args: &AttachArgs, settings: &Settings, device: String) -> AttachedDrive {
    let is_cached = settings.drive.caches_writes() && !settings.driving.write_through;
    let backing = std::path::absolute(&args.backing).unwrap_or_else(|_| args.backing.clone());
    AttachedDrive {
        device,
        model: settings.drive.name().to_owned(),
        backing: backing.display().to_string(),
        bytes: settings.sectors * SECTOR_BYTES,
        cache: if is_cached { "write-back" } else { "write-through" }.to_owned(),
        depth: settings.driving.depth,
        scheduler: args.scheduler.to_string(),
        max_lateness_us: args.max_lateness.map(|max| max.as_secs_f64() * 1e6),
        pid: std::process::id(),
    }
}

impl Service for ServedDrive {
    type Attached = AttachedDrive;
    type Request = Ask;
    type Answer = Answer;
    const ENDS_IN_USE: bool = true;

    fn status(&mut self) -> Result<Answer> {
        Ok(answer(self.attached.clone(), self.drive.status()?))
    }

    fn own(&mut self, request: Ask) -> Result<Answer> {
        let Ask::PowerCut { torn, seed } = request;
        let report = self.drive.power_cut(torn, seed)?;
        let replugged = self.attachment.replug(self.drive.link());
        replugged.map_err(|error| {
            let told = self.how_to_go_on(&error);
            anyhow::Error::new(error).context(told)
        })?;
        Ok(Answer::PowerCut(report))
    }

    /// What it has is stored before: a drive that cannot be stored stays.
    fn close(&mut self) -> Result<()> {
        let name = &self.attached.backing;
        let kept = |fault| {
            anyhow!("not all of it can be stored in {name} ({fault}), so it stays: make room, and detach it again")
        };
        self.drive.sync().map_err(kept)?;
        self.attachment.close().map_err(|error| server::not_closed(&error))
    }

    fn end(self) -> Result<Answer> {
        drop(self.attachment);
        let stopped = self.drive.stop();
        let done = stopped.map_err(|fault| anyhow!("not all of it could be stored: {fault}"))?;
        Ok(answer(self.attached, done))
    }

    fn code(last: &Answer) -> u8 {
        code(last)
    }
}

impl ServedDrive {
    /// After a power cut, where the drive could not be offered again.
    fn how_to_go_on(&self, error: &io::Error) -> &'static str {
        let is_device = self.attached.device.starts_with("/dev/loop");
        match error.kind() {
            ErrorKind::ResourceBusy if is_device => {
                "its power is cut, and stays so while a process uses a file on it: end that, and cut the power again"
            }
            _ => "its power is cut, and it could not be offered again: mend that, and cut the power again",
        }
    }
}

fn answer(attached: AttachedDrive, done: DriveStatus) -> Answer {
    Answer::Status(Box::new(Status { attached, done }))
}

/// That of the server in the foreground, and of the client that detached it.
pub(super) fn code(last: &Answer) -> u8 {
    match last {
        Answer::Status(status) if status.done.too_late > 0 => {
            let (late, of) = (status.done.too_late, status.done.served);
            let worst = status.done.lateness_us.max;
            print_message(format_args!(
                "{}: {late} of {of} answers were later than --max-lateness, the latest by {worst:.0} us: its times are not those of the drive",
                status.attached.device
            ));
            exit::ELBOW_FAILED
        }
        _ => 0,
    }
}
