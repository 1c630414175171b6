//! The process behind `elbow disk attach`: serves the drive, and ends when it is detached.
//!
//! Clients are answered one after the other. A signal that ends programs takes the drive away, whoever uses it, and stores all that it was
//! given.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use elbow_disk::SECTOR_BYTES;
use elbow_drive::{Attachment, AttachmentKind, DriveStatus, EmulatedDrive, Settings};

use super::options::AttachArgs;
use super::registry::{Attached, Place, Reply, Request, Status};
use crate::say::{answer, say};
use crate::signals::{self, Event};
use crate::{exit, messages};

/// A client says what it wants at once.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);

enum Call {
    Asked(Request, UnixStream),
    Stop,
}

struct Server {
    attached: Attached,
    place: Place,
    attachment: Attachment,
    drive: EmulatedDrive,
}

/// Serves a drive until it is detached.
pub(super) fn run(args: &AttachArgs) -> Result<ExitCode> {
    signals::block_all();
    let (settings, backing) = args.settings()?;
    let place = Place::plan()?;
    let kind = match (&args.file, &args.nbd) {
        (Some(path), _) => AttachmentKind::File(path.clone()),
        (None, Some(address)) => AttachmentKind::Nbd(address.clone()),
        (None, None) => AttachmentKind::Loop(place.hidden_file()),
    };
    let drive = EmulatedDrive::start(settings.clone(), backing).context("cannot start the drive")?;
    let attachment = Attachment::open(&kind, drive.link()).with_context(|| refusal(&kind))?;
    let attached = attached(args, &settings, attachment.name());
    let listener = place.listen(&attached)?;
    let (calls, called) = mpsc::channel();
    listen(listener, calls.clone())?;
    stop_by_signal(calls)?;
    warn_of_strangers(&attached.device);
    say_ready(args, &attached.device)?;
    let server = Server {
        attached,
        place,
        attachment,
        drive,
    };
    Ok(server.serve(&called))
}

/// NBD asks nobody who he is.
fn warn_of_strangers(device: &str) {
    let address = device.strip_prefix("tcp:").and_then(|address| address.parse().ok());
    if address.is_some_and(|address: SocketAddr| !address.ip().to_canonical().is_loopback()) {
        say(format_args!(
            "{device}: whoever reaches this address reads and writes the drive; tcp:127.0.0.1:PORT is for this machine alone"
        ));
    }
}

fn refusal(kind: &AttachmentKind) -> String {
    match kind {
        AttachmentKind::File(path) => format!("cannot offer the drive as the file {}", path.display()),
        AttachmentKind::Nbd(address) => format!("cannot listen at {address}"),
        AttachmentKind::Loop(_) => "cannot make a block device (that takes root, FUSE and a free loop device; \
                              --file and --nbd take none)"
            .to_owned(),
    }
}

fn attached(args: &AttachArgs, settings: &Settings, device: String) -> Attached {
    let is_cached = settings.drive.caches_writes() && !settings.driving.write_through;
    let backing = std::path::absolute(&args.backing).unwrap_or_else(|_| args.backing.clone());
    Attached {
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

/// Tells the parent, and lets go of its terminal and directory.
#[allow(unsafe_code)]
#[allow(clippy::disallowed_methods, reason = "/dev/null")]
fn say_ready(args: &AttachArgs, device: &str) -> Result<()> {
    let Some(ready) = args.ready_fd else {
        return Ok(answer(device)?);
    };
    rustix::process::chdir("/")?;
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stderr(&null)?;
    // SAFETY: our parent passed this descriptor to us and to nobody else.
    let mut pipe = File::from(unsafe { OwnedFd::from_raw_fd(ready) });
    pipe.write_all(format!("{device}\n").as_bytes())?;
    Ok(())
}

fn listen(listener: UnixListener, calls: Sender<Call>) -> Result<()> {
    start("elbow-ask", move || {
        for stream in listener.incoming().flatten() {
            if let Some(call) = call_of(stream)
                && calls.send(call).is_err()
            {
                return;
            }
        }
    })
}

/// What a client wants; nothing where it does not say.
fn call_of(stream: UnixStream) -> Option<Call> {
    stream.set_read_timeout(Some(CLIENT_PATIENCE)).ok()?;
    let request = messages::receive(&mut BufReader::new(stream.try_clone().ok()?)).ok()??;
    Some(Call::Asked(request, stream))
}

fn stop_by_signal(calls: Sender<Call>) -> Result<()> {
    let (events, happenings) = mpsc::channel();
    signals::listen_to_all(events)?;
    start("elbow-stop", move || {
        while let Ok(event) = happenings.recv() {
            if let Event::Signal(arrival) = event
                && arrival.is_ending()
            {
                // It may be ending already.
                let _ = calls.send(Call::Stop);
            }
        }
    })
}

impl Server {
    fn serve(mut self, calls: &mpsc::Receiver<Call>) -> ExitCode {
        while let Ok(Call::Asked(request, mut stream)) = calls.recv() {
            if let Request::Detach = request {
                match self.close() {
                    Ok(()) => return self.end(Some(stream)),
                    Err(error) => drop(messages::send(&mut stream, refused(&error))),
                }
            } else {
                let reply = self.reply(request).unwrap_or_else(|error| refused(&error));
                // A client that went away needs no answer.
                let _ = messages::send(&mut stream, reply);
            }
        }
        self.end(None)
    }

    /// Takes it away from its users, or says why not. What it has is stored before: a drive that cannot be stored stays.
    fn close(&mut self) -> Result<()> {
        let name = &self.attached.backing;
        let kept = |fault| {
            anyhow!("not all of it can be stored in {name} ({fault}), so it stays: make room, and detach it again")
        };
        self.drive.sync().map_err(kept)?;
        self.attachment.close().map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => anyhow!("it is in use ({error}): close or unmount it first"),
            _ => anyhow!("it cannot be taken away: {error}"),
        })
    }

    fn reply(&mut self, request: Request) -> Result<Reply> {
        match request {
            Request::PowerCut { torn, seed } => {
                let report = self.drive.power_cut(torn, seed)?;
                let replugged = self.attachment.replug(self.drive.link());
                replugged.map_err(|error| {
                    let told = self.how_to_go_on(&error);
                    anyhow::Error::new(error).context(told)
                })?;
                Ok(Reply::PowerCut { report })
            }
            Request::Status | Request::Detach => Ok(self.status(self.drive.status()?)),
        }
    }

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

    fn status(&self, done: DriveStatus) -> Reply {
        let attached = self.attached.clone();
        let status = Box::new(Status { attached, done });
        Reply::Status { status }
    }

    fn end(self, client: Option<UnixStream>) -> ExitCode {
        let Server {
            attached,
            place,
            attachment,
            drive,
        } = self;
        drop(attachment);
        let stopped = drive.stop();
        place.forget();
        let reply = match stopped {
            Ok(done) => Reply::Status {
                status: Box::new(Status { attached, done }),
            },
            Err(fault) => Reply::Refused {
                message: format!("not all of it could be stored: {fault}"),
            },
        };
        let code = code(&reply);
        if let Some(mut client) = client {
            let _ = messages::send(&mut client, reply);
        }
        ExitCode::from(code)
    }
}

fn refused(error: &anyhow::Error) -> Reply {
    let message = crate::say::sentence(error);
    Reply::Refused { message }
}

/// That of the server in the foreground, and of the client that detached it.
pub(super) fn code(last: &Reply) -> u8 {
    match last {
        Reply::Status { status } if status.done.too_late > 0 => {
            let (late, of) = (status.done.too_late, status.done.served);
            let worst = status.done.lateness_us.max;
            say(format_args!(
                "{}: {late} of {of} answers were later than --max-lateness, the latest by {worst:.0} us: its times are not those of the drive",
                status.attached.device
            ));
            exit::ELBOW_FAILED
        }
        Reply::Refused { message } => {
            say(message);
            exit::ELBOW_FAILED
        }
        _ => 0,
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).context("cannot start a thread")
}
