//! Where a running job is asked: by `elbow status`, `diff`, `commit`, `rollback` and `jobs`.
//!
//! A responder has a socket and a thread that answers clients, each in a thread of its own. What it cannot answer itself, the end of the
//! job, it hands on. Only the user whose job it is, and root, are answered.

use std::ffi::OsString;
use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use elbow_job::Job;

use crate::control::{self, Change, JobKind, Reply, Request, Status};
use crate::messages;
use crate::names::{CommandWords, MountPointName, SourceName};
use crate::output::sentence;
use crate::report::Failure;

/// What a job is known by at its responder.
pub(crate) struct JobServer {
    pub(crate) kind: JobKind,
    pub(crate) source: PathBuf,
    pub(crate) mount_point: PathBuf,
    pub(crate) command: Vec<OsString>,
    /// The process of the command while it runs, else 0.
    pub(crate) process: Arc<AtomicI32>,
    pub(crate) started: SystemTime,
    pub(crate) job: Job,
    pub(crate) phase: Mutex<String>,
}

/// Takes a request for the end of the job; what it cannot do, it gives back as a refusal.
pub(crate) trait EndHandler:
    Fn(Request, UnixStream) -> Result<(), (String, UnixStream)> + Send + Sync + 'static
{
}
impl<F: Fn(Request, UnixStream) -> Result<(), (String, UnixStream)> + Send + Sync + 'static> EndHandler for F {}

impl JobServer {
    /// Answers clients from now on.
    pub(crate) fn open(self: &Arc<Self>, listener: &UnixListener, end: impl EndHandler) -> anyhow::Result<()> {
        let (responder, listener, end) = (self.clone(), listener.try_clone()?, Arc::new(end));
        start("elbow-control", move || {
            for stream in listener.incoming().map_while(Result::ok).filter(is_of_ours) {
                let (responder, end) = (responder.clone(), end.clone());
                // A client that gets no thread sees its connection closed.
                let _ = start("elbow-client", move || responder.serve(stream, &*end));
            }
        })
    }

    fn serve(&self, mut stream: UnixStream, end: &impl EndHandler) {
        let request = stream.try_clone().map_err(anyhow::Error::from);
        let request = request.and_then(|stream| messages::receive(&mut BufReader::new(stream)));
        let reply = match request {
            Ok(Some(Request::Status)) => Reply::Status {
                status: Box::new(self.status()),
            },
            Ok(Some(Request::Diff)) => Reply::Changes {
                changes: self
                    .job
                    .changes()
                    .iter()
                    .map(|change| Change::of(&self.job, change))
                    .collect(),
            },
            Ok(Some(asked @ (Request::Commit | Request::Rollback))) => match end(asked, stream) {
                Ok(()) => return,
                Err((message, back)) => {
                    stream = back;
                    Reply::Refused { message }
                }
            },
            Ok(None) => return,
            Err(error) => Reply::Refused {
                message: sentence(&error),
            },
        };
        // A client that went away needs no answer.
        let _ = messages::send(&mut stream, reply);
    }

    fn status(&self) -> Status {
        let process = u32::try_from(self.process.load(Ordering::Relaxed)).unwrap_or_default();
        Status {
            kind: self.kind,
            source: SourceName::of(&self.source),
            mount_point: MountPointName::of(&self.mount_point),
            command: CommandWords::of(&self.command),
            command_pid: (process != 0).then_some(process),
            job: self.job.name().to_string_lossy().into_owned(),
            elbow: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_seconds: unix_seconds(self.started),
            pid: std::process::id(),
            phase: self.phase().clone(),
            counts: control::counts_object(&self.job.counts()),
            errors: self.failures(&self.source),
        }
    }

    fn failures(&self, source: &Path) -> Vec<Failure> {
        let errors = self.job.deferred_errors();
        errors.iter().map(|error| Failure::new(source, error)).collect()
    }

    /// `running`, or how far the end is.
    pub(crate) fn phase(&self) -> std::sync::MutexGuard<'_, String> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn is_of_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

/// Starts a thread.
pub(crate) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .context("cannot start a thread")?;
    Ok(())
}
