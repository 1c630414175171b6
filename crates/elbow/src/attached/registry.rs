//! What is attached, and how the processes behind it are asked.
//!
//! ```text
//!   RUNTIME/elbow-UID/drives/PID.sock     listened at by the process of a drive; one JSON object a line, as of jobs
//!                     regions/            and so for regions
//!                            PID.json     what it is called, and what has to be taken away should the process die
//!                            PID.disk     where the file of a block device is mounted
//! ```

#![allow(clippy::disallowed_methods)] // sockets and what lies beside them, not storage

use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::messages;
use crate::runtime_directory::{candidates, is_private, runtime_directory};
use crate::signals::is_stopped;

/// How often whoever waits for an answer looks whether the process can give one.
const GLANCE: Duration = Duration::from_secs(1);
/// A status is there at once, unless another client is being served.
const STATUS_PATIENCE: Duration = Duration::from_secs(60);
/// Whatever else may have to store all that a drive has.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20 * 60);

/// A kind of attachments, each with a directory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Below the runtime directory.
    pub(crate) directory: &'static str,
    /// What one is called.
    pub(crate) what: &'static str,
    /// What attaches and detaches them.
    pub(crate) command: &'static str,
}

/// What was attached, as it is known to others.
pub(crate) trait Attached: Clone + Serialize + DeserializeOwned {
    /// A path, or the address of NBD.
    fn device(&self) -> &str;
}

/// One of all, for programs: what was attached, and whether its process has died.
#[derive(Serialize)]
pub(crate) struct Listed<A> {
    #[serde(flatten)]
    attached: A,
    died: bool,
}

impl<A> Listed<A> {
    pub(crate) fn of((place, attached): (Place, A)) -> Self {
        let died = place.is_dead();
        Self { attached, died }
    }
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum Request<Q> {
    Status,
    Detach,
    /// What only this kind knows.
    Own {
        ask: Q,
    },
}

impl<Q> Request<Q> {
    fn patience(&self) -> Duration {
        match self {
            Request::Status => STATUS_PATIENCE,
            Request::Detach | Request::Own { .. } => ANSWER_PATIENCE,
        }
    }
}

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply<R> {
    Done { answer: R },
    Refused { message: String },
}

/// Where one process is known.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    kind: Kind,
    directory: PathBuf,
    pid: u32,
}

impl Place {
    /// For this process.
    pub(crate) fn plan(kind: Kind) -> anyhow::Result<Self> {
        let directory = runtime_directory(&[])?.join(kind.directory);
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let pid = std::process::id();
        Ok(Self { kind, directory, pid })
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.pid))
    }

    /// Where a block device's file is mounted.
    pub(crate) fn hidden_file(&self) -> PathBuf {
        self.file("disk")
    }

    /// Listens, and is found from now on, before anything is there that would have to be taken away. Who asks is answered when it is served.
    pub(crate) fn register(&self, attached: &impl Attached) -> anyhow::Result<Registration> {
        let socket = self.file("sock");
        // Left over from a process of the same number, if anything.
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
        let place = self.clone();
        let registration = Registration { place, listener };
        registration.update(attached)?;
        Ok(registration)
    }

    /// Nobody finds it any more.
    pub(crate) fn forget(&self) {
        for ending in ["json", "new", "sock"] {
            // It may never have been there.
            let _ = std::fs::remove_file(self.file(ending));
        }
    }

    fn attached<A: Attached>(&self) -> Option<A> {
        serde_json::from_slice(&std::fs::read(self.file("json")).ok()?).ok()
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.file("sock"))
    }

    /// Whether its process is gone.
    pub(crate) fn is_dead(&self) -> bool {
        let gone = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
        self.connect().is_err_and(|error| gone.contains(&error.kind()))
    }

    /// Asks its process, and waits for the answer.
    pub(crate) fn ask<Q, R>(&self, device: &str, request: Request<Q>) -> anyhow::Result<R>
    where
        Q: Serialize,
        R: DeserializeOwned,
    {
        let lost = || format!("{device}: lost the process of the {}", self.kind.what);
        let mut stream = self.connect().with_context(lost)?;
        let patience = request.patience();
        messages::send(&mut stream, request).with_context(lost)?;
        stream.set_read_timeout(Some(GLANCE)).with_context(lost)?;
        let mut answers = BufReader::new(stream);
        if !self.begins_to_answer(&mut answers, patience).with_context(lost)? {
            bail!("{device}: its process does not answer (PID {})", self.pid);
        }
        match messages::receive(&mut answers).with_context(lost)? {
            Some(Reply::Refused { message }) => bail!("{device}: {message}"),
            Some(Reply::Done { answer }) => Ok(answer),
            None => bail!(lost()),
        }
    }

    /// Waits for an answer; `false` where none comes in time, or its process is stopped and cannot give one.
    fn begins_to_answer(&self, answers: &mut impl BufRead, patience: Duration) -> io::Result<bool> {
        let end = Instant::now() + patience;
        loop {
            match answers.fill_buf().map(drop) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if is_stopped(self.pid.cast_signed()) || Instant::now() > end {
                        return Ok(false);
                    }
                }
                answered => return answered.map(|()| true),
            }
        }
    }
}

/// What others find of this process, until it is dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    place: Place,
    listener: UnixListener,
}

impl Registration {
    /// Says what is attached, in place of what was said before.
    pub(crate) fn update(&self, attached: &impl Attached) -> anyhow::Result<()> {
        let draft = self.place.file("new");
        std::fs::write(&draft, serde_json::to_vec(attached)?)?;
        Ok(std::fs::rename(draft, self.place.file("json"))?)
    }

    /// Where clients come.
    pub(crate) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.place.forget();
    }
}

/// All of a kind that are attached, or whose process has died.
pub(crate) fn all<A: Attached>(kind: Kind) -> Vec<(Place, A)> {
    let directories = candidates().into_iter().filter(|place| is_private(place));
    let directories = directories.map(|place| place.join(kind.directory));
    directories.flat_map(|directory| within(kind, &directory)).collect()
}

fn within<A: Attached>(kind: Kind, directory: &Path) -> Vec<(Place, A)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let places = entries.filter_map(|entry| {
        let name = entry.file_name();
        let pid = name.to_str()?.strip_suffix(".json")?.parse().ok()?;
        let directory = directory.to_owned();
        Some(Place { kind, directory, pid })
    });
    places
        .filter_map(|place| place.attached().map(|attached| (place, attached)))
        .collect()
}

/// The one of that name: one whose process has died only where there is no other.
pub(crate) fn find<A: Attached>(kind: Kind, device: &str) -> anyhow::Result<(Place, A)> {
    let names = [Some(device.to_owned()), absolute(device)];
    let named = |(_, attached): &(Place, A)| names.iter().flatten().any(|name| *name == attached.device());
    let found = all(kind)
        .into_iter()
        .filter(named)
        .min_by_key(|(place, _)| place.is_dead());
    found.with_context(|| {
        let Kind { what, command, .. } = kind;
        let all = all::<A>(kind);
        let known: Vec<&str> = all.iter().map(|(_, attached)| attached.device()).collect();
        match known.is_empty() {
            true => format!("{device}: no {what} is attached (`{command} attach` does that)"),
            false => format!(
                "{device}: no {what} of that name is attached; there is {}",
                known.join(", ")
            ),
        }
    })
}

/// One whose process lives.
pub(crate) fn alive<A: Attached>(kind: Kind, device: &str) -> anyhow::Result<(Place, A)> {
    let (place, attached) = find(kind, device)?;
    if place.is_dead() {
        let command = kind.command;
        bail!("{device}: its process has died; `{command} detach {device}` takes away what it has left");
    }
    Ok((place, attached))
}

/// As it calls itself.
pub(super) fn absolute(device: &str) -> Option<String> {
    let absolute = |path: &str| Some(std::path::absolute(path).ok()?.to_str()?.to_owned());
    match device.strip_prefix("unix:") {
        Some(path) => Some(format!("unix:{}", absolute(path)?)),
        None => {
            // The file itself may be out of order, what it lies in is not.
            let path = std::path::absolute(device).ok()?;
            let parent = path.parent()?.canonicalize().ok()?;
            Some(parent.join(path.file_name()?).to_str()?.to_owned())
        }
    }
}
