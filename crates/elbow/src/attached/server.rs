//! The process behind `attach`: serves what it was given, and ends when that is detached.
//!
//! Clients are answered one after the other. A signal that ends programs takes the attachment away, and stores all that it was given: of an emulated
//! drive whoever uses it; of a region when nobody uses it any more, or at the next such signal.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, ValueHint};
use elbow_drive::{Attachment, AttachmentKind, Link, NbdAddress};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::registry::{Attached, Place, Registration, Reply, Request, absolute};
use crate::background::start_again;
use crate::output::{answer, print_message, sentence};
use crate::signals::{self, Event};
use crate::{exit, messages};

/// A client says what it wants at once.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// How often one that is to end looks whether it is still in use.
const CLOSE_RETRY: Duration = Duration::from_secs(1);

/// Where it is offered, and how it is served.
#[derive(Args, Debug)]
pub(crate) struct OfferArgs {
    /// Offer it as a file, which is made at this path.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, conflicts_with = "nbd")]
    pub(crate) file: Option<PathBuf>,
    /// Offer it as a network block device: unix:SOCKET, or tcp:ADDRESS:PORT.
    #[arg(long, value_name = "WHERE")]
    pub(crate) nbd: Option<NbdAddress>,
    /// Stay in the foreground.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Where the server tells its parent that the device is ready (internal).
    #[arg(long, hide = true, value_name = "FD")]
    pub(crate) ready_fd: Option<i32>,
}

/// What a process serves.
pub(crate) trait Service {
    type Attached: Attached;
    type Request: DeserializeOwned + Send + 'static;
    type Answer: Serialize;
    /// Whether the first signal that ends programs ends it though it is in use. Else it waits until it is not, or for a second one.
    const ENDS_IN_USE: bool;

    /// Its device can be used from now on.
    fn ready(&mut self) {}

    /// What it has done.
    fn status(&mut self) -> Result<Self::Answer>;

    /// Does what only this kind knows.
    fn own(&mut self, request: Self::Request) -> Result<Self::Answer>;

    /// Takes it away from its users, or says why not: then it stays.
    fn close(&mut self) -> Result<()>;

    /// Ends it, whoever uses it, and says what it has done.
    fn end(self) -> Result<Self::Answer>;

    /// The exit code of the server, and of the client that detached it; says what is behind it.
    fn code(last: &Self::Answer) -> u8;
}

/// Starts the server in the background, unless we are it, and prints what the device is called.
pub(crate) fn start(offer: &OfferArgs, serve: impl FnOnce() -> Result<ExitCode>) -> Result<ExitCode> {
    if offer.foreground {
        return serve();
    }
    let (reading, mut child) = start_again().context("cannot start the process that serves it")?;
    let mut said = String::new();
    std::io::PipeReader::from(reading).read_to_string(&mut said)?;
    if let Some(device) = said.strip_suffix('\n') {
        answer(device)?;
        return Ok(ExitCode::SUCCESS);
    }
    child.wait()?;
    Ok(ExitCode::from(exit::ELBOW_FAILED))
}

/// What has to be so before the first thread starts.
pub(crate) fn prepare() {
    signals::block_all();
    // The kernel, short of memory, may wait for us to write what it has of our device: our own memory must not wait for that. It takes
    // CAP_SYS_RESOURCE, and who lacks that goes on without.
    let _ = rustix::process::configure_io_flusher_behavior(true);
}

fn kind(offer: &OfferArgs, place: &Place) -> AttachmentKind {
    match (&offer.file, &offer.nbd) {
        (Some(path), _) => AttachmentKind::File(path.clone()),
        (None, Some(address)) => AttachmentKind::Nbd(address.clone()),
        (None, None) => AttachmentKind::Loop(place.hidden_file()),
    }
}

/// Refuses what cannot be offered, as far as that is known before anything was done.
///
/// # Errors
/// There is no FUSE; a block device is wanted by somebody else than root.
#[allow(clippy::disallowed_methods, reason = "/dev/fuse")]
pub(crate) fn check(offer: &OfferArgs, place: &Place) -> Result<()> {
    let kind = kind(offer, place);
    let is_root = rustix::process::geteuid().is_root();
    ensure!(is_root || !matches!(kind, AttachmentKind::Loop(_)), refusal(&kind));
    if !matches!(kind, AttachmentKind::Nbd(_)) {
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        fuse.with_context(|| refusal(&kind))?;
    }
    Ok(())
}

/// What it will be called, before it is there; of a block device, where its file is mounted.
pub(crate) fn planned_name(offer: &OfferArgs, place: &Place) -> String {
    let name = match kind(offer, place) {
        AttachmentKind::Nbd(address) => return address.to_string(),
        AttachmentKind::File(path) | AttachmentKind::Loop(path) => path.display().to_string(),
    };
    absolute(&name).unwrap_or(name)
}

/// Opens the way to it that was asked for.
pub(crate) fn open(offer: &OfferArgs, place: &Place, link: Link) -> Result<Attachment> {
    let kind = kind(offer, place);
    Attachment::open(&kind, link).with_context(|| refusal(&kind))
}

fn refusal(kind: &AttachmentKind) -> String {
    match kind {
        AttachmentKind::File(path) => format!("cannot offer it as the file {}", path.display()),
        AttachmentKind::Nbd(address) => format!("cannot listen at {address}"),
        AttachmentKind::Loop(_) => "cannot make a block device (that takes root, FUSE and a free loop device; \
                              --file and --nbd take none)"
            .to_owned(),
    }
}

/// Serves until it is detached.
pub(crate) fn serve<S: Service>(
    offer: &OfferArgs,
    registration: Registration,
    attached: &S::Attached,
    mut service: S,
) -> Result<ExitCode> {
    registration.update(attached)?;
    let (calls, called) = mpsc::channel();
    listen(registration.listener()?, calls.clone())?;
    stop_by_signal(calls)?;
    warn_of_strangers(attached.device());
    say_ready(offer, attached.device())?;
    service.ready();
    let server = Server {
        service,
        registration,
        stopping: Stopping::No,
    };
    Ok(server.serve(&called))
}

/// NBD asks nobody who he is.
fn warn_of_strangers(device: &str) {
    let address = device.strip_prefix("tcp:").and_then(|address| address.parse().ok());
    if address.is_some_and(|address: SocketAddr| !address.ip().to_canonical().is_loopback()) {
        print_message(format_args!(
            "{device}: whoever reaches this address reads and writes it; tcp:127.0.0.1:PORT is for this machine alone"
        ));
    }
}

/// Tells the parent, and lets go of its terminal and directory.
#[allow(unsafe_code)]
#[allow(clippy::disallowed_methods, reason = "/dev/null")]
fn say_ready(offer: &OfferArgs, device: &str) -> Result<()> {
    let Some(ready) = offer.ready_fd else {
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

enum Call<Q> {
    Asked(Request<Q>, UnixStream),
    Stop,
}

fn listen<Q: DeserializeOwned + Send + 'static>(listener: UnixListener, calls: Sender<Call<Q>>) -> Result<()> {
    spawn("elbow-ask", move || {
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
fn call_of<Q: DeserializeOwned>(stream: UnixStream) -> Option<Call<Q>> {
    stream.set_read_timeout(Some(CLIENT_PATIENCE)).ok()?;
    let request = messages::receive(&mut BufReader::new(stream.try_clone().ok()?)).ok()??;
    Some(Call::Asked(request, stream))
}

fn stop_by_signal<Q: Send + 'static>(calls: Sender<Call<Q>>) -> Result<()> {
    let (events, happenings) = mpsc::channel();
    signals::listen_to_all(events)?;
    spawn("elbow-stop", move || {
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// It ends when it is not in use any more.
    Asked,
    /// The same, and why it has not yet was said.
    Told,
}

struct Server<S> {
    service: S,
    registration: Registration,
    stopping: Stopping,
}

impl<S: Service> Server<S> {
    fn serve(mut self, calls: &mpsc::Receiver<Call<S::Request>>) -> ExitCode {
        loop {
            match self.next(calls) {
                Ok(Call::Asked(request, client)) => {
                    if let Some(client) = self.answer(request, client) {
                        return self.end(Some(client));
                    }
                }
                Ok(Call::Stop) if S::ENDS_IN_USE || self.stopping != Stopping::No => break,
                Ok(Call::Stop) => self.stopping = Stopping::Asked,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if self.stopping != Stopping::No && self.closes() {
                break;
            }
        }
        self.end(None)
    }

    fn next(&self, calls: &mpsc::Receiver<Call<S::Request>>) -> Result<Call<S::Request>, RecvTimeoutError> {
        match self.stopping {
            Stopping::No => calls.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Stopping::Asked | Stopping::Told => calls.recv_timeout(CLOSE_RETRY),
        }
    }

    /// Answers a client, unless it gets the last answer.
    fn answer(&mut self, request: Request<S::Request>, mut client: UnixStream) -> Option<UnixStream> {
        let answered = match request {
            Request::Detach => match self.service.close() {
                Ok(()) => return Some(client),
                Err(error) => Err(error),
            },
            Request::Status => self.service.status(),
            Request::Own { ask } => self.service.own(ask),
        };
        // A client that went away needs no answer.
        let _ = messages::send(&mut client, reply(answered));
        None
    }

    /// Whether it could be taken away from its users.
    fn closes(&mut self) -> bool {
        let Err(error) = self.service.close() else { return true };
        if self.stopping == Stopping::Asked {
            let why = sentence(&error);
            print_message(format_args!("{why}; it ends then, or at once with the next signal"));
            self.stopping = Stopping::Told;
        }
        false
    }

    fn end(self, client: Option<UnixStream>) -> ExitCode {
        let ended = self.service.end();
        // Before the client knows: nobody finds it any more.
        drop(self.registration);
        let code = match &ended {
            Ok(last) => S::code(last),
            Err(error) => exit_refused(error),
        };
        if let Some(mut client) = client {
            let _ = messages::send(&mut client, reply(ended));
        }
        ExitCode::from(code)
    }
}

fn exit_refused(error: &anyhow::Error) -> u8 {
    print_message(sentence(error));
    exit::ELBOW_FAILED
}

fn reply<R>(answered: Result<R>) -> Reply<R> {
    match answered {
        Ok(answer) => Reply::Done { answer },
        Err(error) => Reply::Refused {
            message: sentence(&error),
        },
    }
}

/// Why an attachment could not be closed.
pub(crate) fn not_closed(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::ResourceBusy => anyhow!("it is in use ({error}): close or unmount it first"),
        _ => anyhow!("it cannot be taken away: {error}"),
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).context("cannot start a thread")
}
