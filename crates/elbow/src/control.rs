//! How `elbow status`, `diff`, `commit` and `rollback` talk to the daemon of a mount.
//!
//! The daemon listens on a Unix socket, whose path is the value of a virtual extended attribute of the mount's
//! root ([`CONTROL_XATTR`]). The client sends one JSON object on one line and gets such lines back: any number of
//! [`Reply::Progress`], then one other. Both sides name the version of the protocol; an unknown one is refused.
//! The socket lies in a directory that only its owner can enter.

#![allow(clippy::disallowed_methods)] // sockets and mount roots, not the storage of a job

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use elbow_file::Errno;
use elbow_job::{ChangeKind, Counts};
use elbow_mount::{CONTROL_XATTR, runtime_parents};
use serde::{Deserialize, Serialize};

use crate::json::InWords;
use crate::names::{FromName, MountPointName, PathName, SourceName};
use crate::progress::Position;
use crate::report::{Failure, Report};

/// What both sides speak; this is not the version of what is printed.
const VERSION: u32 = 2;
/// No request or reply line is longer; a longer one is not from us.
const LINE_BYTES_MAX: u64 = 256 << 20;
/// Longest path of a socket that is looked up.
const PATH_BYTES_MAX: usize = 4096;

/// One line from a client.
#[derive(Debug, Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    #[serde(flatten)]
    body: T,
}

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(crate) enum Request {
    Status,
    Diff,
    Commit,
    Rollback,
}

/// What the daemon answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// The end is under way.
    Progress {
        sentence: String,
        /// Missing from those that only tell a sentence.
        #[serde(default)]
        position: Option<Position>,
    },
    /// To `status`.
    Status { status: Box<Status> },
    /// To `diff`.
    Changes { changes: Vec<Change> },
    /// To `commit` and `rollback`.
    Ended { report: Box<Report> },
    /// To anything that cannot be done.
    Refused { message: String },
}

/// A mount at work.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) elbow: String,
    #[serde(flatten)]
    pub(crate) source: SourceName,
    #[serde(flatten)]
    pub(crate) mount_point: MountPointName,
    /// The name of its staging directories.
    pub(crate) job: String,
    pub(crate) started_unix_seconds: f64,
    pub(crate) pid: u32,
    /// `running`, or what the end is doing.
    pub(crate) phase: String,
    pub(crate) counts: serde_json::Map<String, serde_json::Value>,
    pub(crate) errors: Vec<Failure>,
}

/// One changed name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    #[serde(flatten)]
    pub(crate) path: PathName,
    /// The old name of something renamed.
    #[serde(flatten)]
    pub(crate) from: FromName,
}

impl From<&elbow_job::Change> for Change {
    fn from(change: &elbow_job::Change) -> Self {
        Self {
            kind: change.kind,
            path: PathName::of(&change.path),
            from: change.from.as_ref().map(FromName::of).unwrap_or_default(),
        }
    }
}

/// Counts as a JSON object.
pub(crate) fn counts_object(counts: &Counts) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(counts) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    }
}

/// One line out.
pub(crate) fn send<T: Serialize>(stream: &mut UnixStream, body: T) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(&Envelope { version: VERSION, body })?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One line in; `None` at the end.
pub(crate) fn receive<T: for<'a> Deserialize<'a>>(from: &mut impl BufRead) -> anyhow::Result<Option<T>> {
    let mut line = Vec::new();
    if from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let value: serde_json::Value = serde_json::from_slice(&line).context("not a line of JSON")?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => {}
        other => bail!("the other side speaks version {other:?} of the protocol, this is version {VERSION}"),
    }
    let envelope: Envelope<T> = serde_json::from_value(value).context("not a message of this protocol")?;
    Ok(Some(envelope.body))
}

/// A socket of this process; gone when dropped.
pub(crate) struct Socket {
    pub(crate) listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens in the runtime directory of the user.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let path = runtime_directory()?.join(format!("{}.sock", std::process::id()));
        // Left over from a process of the same number, if anything.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen at {}", path.display()))?;
        Ok(Self { listener, path })
    }

    pub(crate) fn path(&self) -> OsString {
        self.path.clone().into_os_string()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A socket that nobody listens at is harmless.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A directory of the user's own that nobody else can enter.
fn runtime_directory() -> anyhow::Result<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    let made = runtime_parents().into_iter().find_map(|parent| {
        let directory = parent.join(format!("elbow-{own}"));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
        let there = made.is_ok() || is_private(&directory, own);
        there.then_some(directory)
    });
    made.context("no directory for a control socket; set XDG_RUNTIME_DIR or TMPDIR to a directory of yours")
}

fn is_private(directory: &Path, own: u32) -> bool {
    std::fs::symlink_metadata(directory)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == own && metadata.mode() & 0o077 == 0)
}

/// Sends a request to the daemon of a mount and waits for its last reply; `show` gets the progress before it.
pub(crate) fn ask(mount_point: &Path, request: Request, show: &mut dyn FnMut(&Position)) -> anyhow::Result<Reply> {
    let mut stream = connect(mount_point)?;
    let lost = || format!("{}: lost the process that serves the mount", mount_point.display());
    send(&mut stream, request).with_context(lost)?;
    let mut lines = BufReader::new(stream);
    loop {
        match receive(&mut lines).with_context(lost)? {
            Some(Reply::Progress { position, .. }) => position.iter().for_each(&mut *show),
            Some(Reply::Refused { message }) => bail!("{}: {message}", mount_point.display()),
            Some(reply) => return Ok(reply),
            None => bail!(lost()),
        }
    }
}

fn connect(mount_point: &Path) -> anyhow::Result<UnixStream> {
    let path = socket_of(mount_point)?;
    UnixStream::connect(&path).with_context(|| {
        format!(
            "{}: cannot reach its process at {}",
            mount_point.display(),
            path.display()
        )
    })
}

fn socket_of(mount_point: &Path) -> anyhow::Result<PathBuf> {
    let mut value = vec![0; PATH_BYTES_MAX];
    let got = rustix::fs::getxattr(mount_point, OsStr::new(CONTROL_XATTR), value.as_mut_slice());
    match got {
        Ok(length) => {
            value.truncate(length);
            Ok(OsString::from_vec(value).into())
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => {
            bail!(
                "{}: not a mount of elbow (name the MNT of `elbow mount SRC MNT`)",
                mount_point.display()
            )
        }
        Err(Errno::NOTCONN | Errno::CONNABORTED) => bail!(
            "{}: the process that served it is gone; unmount it (umount, or fusermount3 -u), then run `elbow recover` \
             on its source",
            mount_point.display()
        ),
        Err(errno) => Err(InWords::of(mount_point, errno).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_the_way() {
        let (mut here, there) = UnixStream::pair().expect("a socket pair");
        send(&mut here, Request::Commit).expect("sent");
        drop(here);
        let mut lines = BufReader::new(there);
        assert_eq!(
            receive::<Request>(&mut lines).expect("a request"),
            Some(Request::Commit)
        );
        assert_eq!(receive::<Request>(&mut lines).expect("the end"), None);
    }

    #[test]
    fn other_versions_and_noise_are_refused() {
        let receive = |line: &str| receive::<Request>(&mut line.as_bytes());
        assert!(receive("{\"version\":1,\"request\":\"commit\"}\n").is_err_and(|e| e.to_string().contains("version")));
        assert!(receive("{\"request\":\"commit\"}\n").is_err());
        assert!(receive("{\"version\":2,\"request\":\"frob\"}\n").is_err());
        assert!(receive("GET / HTTP/1.1\n").is_err());
    }

    #[test]
    fn progress_may_be_a_sentence_and_nothing_else() {
        let line = "{\"version\":2,\"reply\":\"progress\",\"sentence\":\"publishing\"}\n";
        let reply = receive::<Reply>(&mut line.as_bytes()).expect("a reply");
        assert!(
            matches!(reply, Some(Reply::Progress { position: None, .. })),
            "{reply:?}"
        );
    }

    #[test]
    fn a_directory_that_is_no_mount_is_said_so() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error = ask(directory.path(), Request::Status, &mut |_| {}).expect_err("no mount");
        assert!(error.to_string().contains("not a mount of elbow"), "{error}");
    }
}
