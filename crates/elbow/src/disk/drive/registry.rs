//! Which drives are attached, and how their processes are asked.
//!
//! ```text
//!   RUNTIME/elbow-UID/drives/PID.sock     listened at by the process of a drive; one JSON object a line, as of jobs
//!                            PID.json     what it is called, and what has to be taken away should the process die
//!                            PID.disk     where the file of a block device is mounted
//! ```

#![allow(clippy::disallowed_methods)] // sockets and what lies beside them, not storage

use std::fs::DirBuilder;
use std::io::{BufReader, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use elbow_drive::{CutReport, DriveStatus};
use serde::{Deserialize, Serialize};

use crate::messages;
use crate::runtime_directory::{candidates, is_private, runtime_directory};

/// What a client asks for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    Status,
    PowerCut { torn: bool, seed: u64 },
    Detach,
}

/// What the process of a drive answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(super) enum Reply {
    /// To `status`, and the last one to `detach`.
    Status {
        status: Box<Status>,
    },
    PowerCut {
        report: CutReport,
    },
    Refused {
        message: String,
    },
}

/// A drive at work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Status {
    #[serde(flatten)]
    pub(super) attached: Attached,
    #[serde(flatten)]
    pub(super) done: DriveStatus,
}

/// What was attached.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Attached {
    /// A path, or the address of NBD.
    pub(super) device: String,
    pub(super) model: String,
    pub(super) backing: String,
    pub(super) bytes: u64,
    pub(super) cache: String,
    pub(super) depth: usize,
    pub(super) scheduler: String,
    pub(super) max_lateness_us: Option<f64>,
    pub(super) pid: u32,
}

/// Where one process is known.
#[derive(Clone, Debug)]
pub(super) struct Place {
    directory: PathBuf,
    pid: u32,
}

impl Place {
    /// For this process.
    pub(super) fn plan() -> anyhow::Result<Self> {
        let directory = runtime_directory(&[])?.join("drives");
        DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let pid = std::process::id();
        Ok(Self { directory, pid })
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", self.pid))
    }

    /// Where a block device's file is mounted.
    pub(super) fn hidden_file(&self) -> PathBuf {
        self.file("disk")
    }

    /// Listens, and is found from now on.
    pub(super) fn listen(&self, attached: &Attached) -> anyhow::Result<UnixListener> {
        let socket = self.file("sock");
        // Left over from a process of the same number, if anything.
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?;
        let draft = self.file("new");
        std::fs::write(&draft, serde_json::to_vec(attached)?)?;
        std::fs::rename(draft, self.file("json"))?;
        Ok(listener)
    }

    /// Nobody finds it any more.
    pub(super) fn forget(&self) {
        for ending in ["json", "sock"] {
            // It may never have been there.
            let _ = std::fs::remove_file(self.file(ending));
        }
    }

    fn attached(&self) -> Option<Attached> {
        serde_json::from_slice(&std::fs::read(self.file("json")).ok()?).ok()
    }

    fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.file("sock"))
    }

    /// Whether its process is gone.
    pub(super) fn is_dead(&self) -> bool {
        let gone = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
        self.connect().is_err_and(|error| gone.contains(&error.kind()))
    }

    /// Asks its process, and waits for the answer.
    pub(super) fn ask(&self, device: &str, request: Request) -> anyhow::Result<Reply> {
        let lost = || format!("{device}: lost the process of the drive");
        let mut stream = self.connect().with_context(lost)?;
        messages::send(&mut stream, request).with_context(lost)?;
        match messages::receive(&mut BufReader::new(stream)).with_context(lost)? {
            Some(Reply::Refused { message }) => bail!("{device}: {message}"),
            Some(reply) => Ok(reply),
            None => bail!(lost()),
        }
    }
}

/// All that are attached, or whose process has died.
pub(super) fn all() -> Vec<(Place, Attached)> {
    let directories = candidates().into_iter().filter(|place| is_private(place));
    let directories = directories.map(|place| place.join("drives"));
    directories.flat_map(|directory| within(&directory)).collect()
}

fn within(directory: &Path) -> Vec<(Place, Attached)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let places = entries.filter_map(|entry| {
        let name = entry.file_name();
        let pid = name.to_str()?.strip_suffix(".json")?.parse().ok()?;
        let directory = directory.to_owned();
        Some(Place { directory, pid })
    });
    places
        .filter_map(|place| place.attached().map(|attached| (place, attached)))
        .collect()
}

/// The drive of that name: one whose process has died only where there is no other.
pub(super) fn find(device: &str) -> anyhow::Result<(Place, Attached)> {
    let names = [Some(device.to_owned()), absolute(device)];
    let named = |(_, attached): &(Place, Attached)| names.iter().flatten().any(|name| *name == attached.device);
    let found = all().into_iter().filter(named).min_by_key(|(place, _)| place.is_dead());
    found.with_context(|| {
        let known: Vec<String> = all().into_iter().map(|(_, attached)| attached.device).collect();
        match known.is_empty() {
            true => format!("{device}: no drive is attached (`elbow disk attach` does that)"),
            false => format!(
                "{device}: no drive of that name is attached; there is {}",
                known.join(", ")
            ),
        }
    })
}

/// As a drive calls itself.
fn absolute(device: &str) -> Option<String> {
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
