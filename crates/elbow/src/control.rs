//! How `elbow status`, `diff`, `commit`, `rollback` and `jobs` talk to the process of a job.
//!
//! It listens on a Unix socket, whose path is the value of a virtual extended attribute of the mount's
//! root ([`CONTROL_XATTR`]); that leads to it from inside. From outside it is found among all sockets of the user
//! ([`running`]), of which each says what its job is over. The client sends one JSON object on one line and gets such lines back: any number of
//! [`Reply::Progress`], then one other. Both sides name the version of the protocol; an unknown one is refused.
//!
//! ```text
//!   RUNTIME/elbow-UID/PID-N.sock      of a running job; under another name until it is listened at
//!   RUNTIME/elbow-UID/JOB.kept        a kept job, and where it is
//! ```
//!
//! RUNTIME/elbow-UID can be entered by its owner alone, and nothing is believed of one that is not such. It is the same whatever
//! the environment says, so that a batch job is found from a login. What nobody listens at is left of a job that was killed together with its
//! watcher: whoever finds it removes it.

#![allow(clippy::disallowed_methods)] // sockets and mount roots, not the storage of a job

use std::ffi::{OsStr, OsString};
use std::io::{BufReader, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use elbow_file::{Errno, ShowName, ShownName};
use elbow_job::{Attr, ChangeKind, Counts, Ino, Job};
use elbow_mount::{CONTROL_XATTR, job_mounts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};

use crate::job::quoted;
use crate::json::WordedError;
use crate::messages::{receive, send};
use crate::names::{CommandWords, DirectoryName, FromName, MountPointName, PathName, SourceName};
use crate::progress::Position;
use crate::report::{Failure, Report};
use crate::runtime_directory::{candidates, is_private, runtime_directory};

/// Longest path of a socket that is looked up.
const PATH_BYTES_MAX: usize = 4096;

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

/// What a job was begun by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JobKind {
    /// `elbow run`.
    Run,
    /// `elbow mount`.
    Mount,
    /// `elbow run --keep`, and it has ended.
    Kept,
}

/// A job at work.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) elbow: String,
    pub(crate) kind: JobKind,
    #[serde(flatten)]
    pub(crate) command: CommandWords,
    /// While the command runs.
    pub(crate) command_pid: Option<u32>,
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
    /// Of what it is now; nothing of what is gone.
    pub(crate) size_bytes: Option<u64>,
    pub(crate) mtime_unix_seconds: Option<f64>,
}

impl Change {
    /// With what the job says of the object now; nothing of one that is gone.
    pub(crate) fn of(job: &Job, change: &elbow_job::Change) -> Self {
        let is_there = change.kind != ChangeKind::Removed;
        let attr = is_there.then(|| attributes(job, &change.path)).flatten();
        Self {
            kind: change.kind,
            path: PathName::of(&change.path),
            from: change.from.as_ref().map(FromName::of).unwrap_or_default(),
            size_bytes: attr.as_ref().map(|attr| attr.size),
            mtime_unix_seconds: attr.map(|attr| attr.mtime.seconds as f64 + f64::from(attr.mtime.nanoseconds) / 1e9),
        }
    }
}

/// Attributes of an object by its path below the directory of the job, where they are known.
fn attributes(job: &Job, path: &Path) -> Option<Attr> {
    if path.as_os_str().is_empty() {
        return job.getattr(Ino::ROOT).ok();
    }
    let mut at = None;
    for name in path {
        let parent = at.as_ref().map_or(Ino::ROOT, |attr: &Attr| attr.ino);
        at = Some(job.lookup(parent, name).ok()?);
        // We remember no numbers.
        at.iter().for_each(|attr| job.forget(attr.ino, 1));
    }
    at
}

/// Counts as a JSON object.
pub(crate) fn counts_object(counts: &Counts) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(counts) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    }
}

/// Where this process can be asked about one of its jobs; gone when dropped.
pub(crate) struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Socket {
    /// Chooses its place: outside of these directories, which the command sees in another way. Nothing is made there yet.
    pub(crate) fn plan(directories: &[&Path]) -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}.sock", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = runtime_directory(directories)?.join(name);
        Ok(Self { path, listener: None })
    }

    /// Listens there. It has its name only then, so that one which refuses is dead.
    pub(crate) fn listen(&mut self) -> anyhow::Result<&UnixListener> {
        let path = &self.path;
        clean(path);
        let draft = path.with_extension("new");
        // Left over from a process of the same number, if anything.
        let _ = std::fs::remove_file(&draft);
        let listener = UnixListener::bind(&draft).with_context(|| format!("cannot listen at {}", path.shown()))?;
        std::fs::rename(&draft, path).with_context(|| format!("cannot listen at {}", path.shown()))?;
        Ok(self.listener.insert(listener))
    }

    /// What is listened at, if anything is.
    pub(crate) fn listener(&self) -> anyhow::Result<&UnixListener> {
        self.listener.as_ref().context("nobody listens yet")
    }

    pub(crate) fn path(&self) -> OsString {
        self.path.clone().into_os_string()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.listener.is_some() {
            // A socket that nobody listens at is harmless.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A socket that has had no name of its own for so long never gets one.
const DRAFT_AGE: Duration = Duration::from_secs(60);

/// Removes what lies beside a new socket and is of the dead.
fn clean(socket: &Path) {
    let Some(directory) = socket.parent() else { return };
    let is_of_the_dead = |path: &PathBuf| {
        let name = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        let pid = name.split('-').next().unwrap_or_default();
        !Path::new("/proc").join(pid).exists()
    };
    for socket in names_in(directory, "sock").filter(is_of_the_dead) {
        drop(connect_to(&socket));
    }
    // The processes of another namespace are not seen here: what has just been made is somebody's who will give it its name.
    let is_old = |path: &PathBuf| {
        let made = path.symlink_metadata().and_then(|found| found.modified()).ok();
        made.is_some_and(|made| made.elapsed().is_ok_and(|age| age > DRAFT_AGE))
    };
    for draft in names_in(directory, "new").filter(is_of_the_dead).filter(is_old) {
        let _ = std::fs::remove_file(draft);
    }
}

/// What has an ending in a directory.
fn names_in(directory: &Path, ending: &'static str) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(move |path| path.extension() == Some(OsStr::new(ending)))
}

/// Connects; a socket that nobody listens at goes.
fn connect_to(path: &Path) -> std::io::Result<UnixStream> {
    let connected = UnixStream::connect(path);
    if connected
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    {
        let _ = std::fs::remove_file(path);
    }
    connected
}

/// A job that can be asked.
pub(crate) struct Found {
    socket: PathBuf,
    /// What it was asked for by.
    shown: PathBuf,
}

/// The job of a path: of the mount that it lies in, or one that runs over it or over a directory above it. Without a path, the job
/// around this process.
pub(crate) fn find(path: Option<&Path>) -> anyhow::Result<Found> {
    let named = path.filter(|path| path.file_name().is_some_and(elbow_job::is_staging_name));
    if let Some(found) = named.and_then(find_by_name) {
        return Ok(found);
    }
    match path {
        None => around().context("no job runs around this; name its directory, as `elbow jobs` lists it"),
        Some(path) => match socket_of(path)? {
            Some(socket) => Ok(Found {
                socket,
                shown: path.to_owned(),
            }),
            None => of_directory(path),
        },
    }
}

/// Of the mount that the current directory lies in; else of the last one of `elbow run` that this process sees.
fn around() -> Option<Found> {
    let found = |path: &Path| {
        let socket = socket_of(path).ok().flatten()?;
        let shown = path.to_owned();
        Some(Found { socket, shown })
    };
    let here = std::env::current_dir().ok()?;
    here.ancestors().find_map(found).or_else(|| {
        let mut all: Vec<_> = job_mounts().iter().filter_map(|point| found(point)).collect();
        all.retain(|job| matches!(job.status(), Ok(status) if status.kind == JobKind::Run));
        all.pop()
    })
}

/// From outside: jobs over the directory, or mounted there, or over one that holds it.
fn of_directory(path: &Path) -> anyhow::Result<Found> {
    let real = path.canonicalize()?;
    let (mut over, mut above) = (Vec::new(), Vec::new());
    let (answering, silent) = look_at_all();
    for (socket, status) in answering {
        let places = [status.source.path(), status.mount_point.path()];
        let mut places = places.into_iter().flatten();
        if places.clone().any(|place| place == real) {
            over.push((socket, status));
        } else if places.any(|place| real.starts_with(place)) {
            above.push((socket, status));
        }
    }
    let found = if over.is_empty() { above } else { over };
    if found.is_empty()
        && let Some(kept) = kept_among(|kept| kept.is_at(&real)).first()
    {
        bail!(kept.advice());
    }
    let pids: Vec<String> = found.iter().map(|(_, status)| status.pid.to_string()).collect();
    match found.len() {
        0 if silent > 0 => bail!(
            "{}: not a mount of elbow, and no job of yours that answers runs there; {silent} of your jobs, wherever they run, gave no answer \
             within {} s (stopped, or the machine is very busy): ask again",
            path.shown(),
            STATUS_PATIENCE.as_secs()
        ),
        0 => bail!(
            "{}: not a mount of elbow, and no job of yours runs there (`elbow jobs` lists them{})",
            path.shown(),
            hint_for_root()
        ),
        1 => Ok(Found {
            socket: found.into_iter().next().map(|(socket, _)| socket).unwrap_or_default(),
            shown: path.to_owned(),
        }),
        _ => bail!(
            "{}: several jobs run there (processes {}); name one by its staging directory, as `elbow jobs` lists it",
            path.shown(),
            pids.join(", ")
        ),
    }
}

/// Root does not look into the directories of others, where they could put anything in its way.
fn hint_for_root() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "; a job of another user is asked as that user: `sudo -u USER elbow ...`"
    } else {
        ""
    }
}

/// Fails where a job is mounted already. Root can begin one in that job, over its directory; fusermount3 mounts nothing over FUSE.
pub(crate) fn expect_no_job_at(mount_point: &Path, source: &Path) -> anyhow::Result<()> {
    if mount_point == source && rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let is_there =
        |status: &Status| status.kind == JobKind::Mount && status.mount_point.path().as_deref() == Some(mount_point);
    ensure!(
        !running().iter().any(|(_, status)| is_there(status)),
        "{}: a job is mounted there already (`elbow status {}`)",
        mount_point.shown(),
        quoted(mount_point)
    );
    Ok(())
}

/// The running job with this staging directory.
pub(crate) fn find_by_name(path: &Path) -> Option<Found> {
    let name = path.file_name()?.to_str()?;
    let (socket, _) = running().into_iter().find(|(_, status)| status.job == name)?;
    let shown = path.to_owned();
    Some(Found { socket, shown })
}

/// All running jobs of this user that answer, each with its socket, the oldest first.
pub(crate) fn running() -> Vec<(PathBuf, Status)> {
    look_at_all().0
}

/// The same, and how many did not answer.
fn look_at_all() -> (Vec<(PathBuf, Status)>, usize) {
    let directories = candidates().into_iter().filter(|directory| is_private(directory));
    let (mut all, mut silent) = (Vec::new(), 0);
    for socket in directories.flat_map(|directory| names_in(&directory, "sock")) {
        let shown = socket.clone();
        let found = Found { socket, shown };
        match found.look() {
            Look::Status(status) => all.push((found.socket, *status)),
            Look::Silent => silent += 1,
            Look::Gone => {}
        }
    }
    all.sort_by(|(_, a), (_, b)| a.started_unix_seconds.total_cmp(&b.started_unix_seconds));
    (all, silent)
}

/// Remembers a kept job, for `elbow jobs`.
pub(crate) fn remember_kept(kept: &KeptJob) -> anyhow::Result<()> {
    let path = runtime_directory(&[])?.join(format!("{}.kept", kept.job));
    std::fs::write(path, serde_json::to_vec(kept)?)?;
    Ok(())
}

/// Forgets a job that is not kept any more, wherever its directory was mounted when it was kept.
pub(crate) fn forget_kept(job: &str) {
    for directory in candidates().into_iter().filter(|directory| is_private(directory)) {
        let _ = std::fs::remove_file(directory.join(format!("{job}.kept")));
    }
}

/// The kept jobs that were remembered and are there still, or whose directory is out of sight.
pub(crate) fn kept() -> Vec<KeptJob> {
    kept_among(|_| true)
}

/// Of those only. Where the others are is not looked at: their storage may not answer.
fn kept_among(is_meant: impl Fn(&KeptJob) -> bool) -> Vec<KeptJob> {
    let directories = candidates().into_iter().filter(|directory| is_private(directory));
    let files = directories.flat_map(|directory| names_in(&directory, "kept"));
    let read = |file: PathBuf| {
        let kept: KeptJob = serde_json::from_slice(&std::fs::read(&file).ok()?).ok()?;
        if !is_meant(&kept) {
            return None;
        }
        let staging = kept.directory.path()?.join(&kept.job);
        match std::fs::symlink_metadata(&staging) {
            Err(error) if error.kind() == ErrorKind::NotFound && kept.is_mounted() => {
                // It was dropped.
                let _ = std::fs::remove_file(&file);
                None
            }
            _ => Some(kept),
        }
    };
    files.filter_map(read).collect()
}

/// A job that `elbow run --keep` has left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptJob {
    pub(crate) job: String,
    #[serde(flatten)]
    pub(crate) directory: DirectoryName,
    /// Of the file system of that directory, when the job was kept.
    #[serde(flatten)]
    pub(crate) mount_point: MountPointName,
    #[serde(flatten)]
    pub(crate) command: CommandWords,
    pub(crate) started_unix_seconds: f64,
}

impl KeptJob {
    /// Whether the directory is on what was mounted there when the job was kept: without that the job only cannot be seen.
    pub(crate) fn is_mounted(&self) -> bool {
        self.directory
            .path()
            .is_some_and(|directory| mount_point_of(&directory) == self.mount_point)
    }

    /// Whether a path is that of its directory, or of its staging directory.
    fn is_at(&self, path: &Path) -> bool {
        let directory = self.directory.path();
        directory.is_some_and(|directory| path == directory || path == directory.join(&self.job))
    }

    /// What can be done with it, for who takes it for one that runs.
    fn advice(&self) -> String {
        let directory = quoted(&self.directory.path().unwrap_or_default());
        format!(
            "{} is kept, and does not run any more; `elbow recover {directory} --show` says why, and whether `elbow resume {directory}` goes on with it; \
             `elbow recover {directory} --drop {}` gives it up",
            self.job, self.job
        )
    }
}

/// Where what a directory is on is mounted, or what it would be on if it were there.
pub(crate) fn mount_point_of(directory: &Path) -> MountPointName {
    let device = |path: &Path| std::fs::metadata(path).ok().map(|found| found.dev());
    let mut there = directory.ancestors().skip_while(|path| device(path).is_none());
    let own = there.clone().next().and_then(device);
    let point = there.by_ref().take_while(|path| device(path) == own).last();
    point.map(MountPointName::of).unwrap_or_default()
}

/// One look at a job.
pub(crate) enum Look {
    Status(Box<Status>),
    /// It does not answer.
    Silent,
    /// Its process has ended.
    Gone,
}

/// How long a status may take: a job that was stopped does not answer.
const STATUS_PATIENCE: Duration = Duration::from_secs(2);
/// The process of a job ends soon after it has told of the end.
const EXIT_PATIENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// A job that has just begun listens a moment later.
const BEGIN_PATIENCE: Duration = Duration::from_millis(500);

impl Found {
    /// What it was named by.
    pub(crate) fn shown(&self) -> ShownName<'_> {
        self.shown.shown()
    }

    /// What it was named by.
    pub(crate) fn path(&self) -> &Path {
        &self.shown
    }

    /// What the job is doing, if it is there still.
    pub(crate) fn look(&self) -> Look {
        let is_silence = |cause: &(dyn std::error::Error + 'static)| {
            let cause = cause.downcast_ref::<std::io::Error>();
            cause.is_some_and(|cause| matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
        };
        match self.status() {
            Ok(status) => Look::Status(Box::new(status)),
            Err(error) if error.chain().any(is_silence) => Look::Silent,
            Err(_) => Look::Gone,
        }
    }

    /// What the job is doing; an error also if that is not told soon.
    pub(crate) fn status(&self) -> anyhow::Result<Status> {
        let stream = self.connect()?;
        stream.set_read_timeout(Some(STATUS_PATIENCE))?;
        match self.ask_on(stream, Request::Status, &mut |_| {})? {
            Reply::Status { status } => Ok(*status),
            _ => bail!("{}: another answer", self.shown()),
        }
    }

    /// Sends a request to the process of the job and waits for its last reply; `show` gets the progress before it.
    pub(crate) fn ask(&self, request: Request, show: &mut dyn FnMut(&Position)) -> anyhow::Result<Reply> {
        let stream = self.connect()?;
        let process = process_behind(&stream);
        let reply = self.ask_on(stream, request, show)?;
        if let (Reply::Ended { .. }, Some(process)) = (&reply, process) {
            wait_for_exit(&process);
        }
        Ok(reply)
    }

    fn ask_on(
        &self,
        mut stream: UnixStream,
        request: Request,
        show: &mut dyn FnMut(&Position),
    ) -> anyhow::Result<Reply> {
        let lost = || format!("{}: lost the process of the job", self.shown());
        send(&mut stream, request).with_context(lost)?;
        let mut lines = BufReader::new(stream);
        loop {
            match receive(&mut lines).with_context(lost)? {
                Some(Reply::Progress { position, .. }) => position.iter().for_each(&mut *show),
                Some(Reply::Refused { message }) => bail!("{}: {message}", self.shown()),
                Some(reply) => return Ok(reply),
                None => bail!(lost()),
            }
        }
    }

    fn connect(&self) -> anyhow::Result<UnixStream> {
        let deadline = Instant::now() + BEGIN_PATIENCE;
        loop {
            match connect_to(&self.socket) {
                Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                connected => {
                    return connected.with_context(|| {
                        format!("{}: cannot reach its process at {}", self.shown(), self.socket.shown())
                    });
                }
            }
        }
    }
}

/// The process at the other end, if it can be seen from here.
fn process_behind(stream: &UnixStream) -> Option<OwnedFd> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    pidfd_open(peer.pid, PidfdFlags::empty()).ok()
}

/// Waits until a process that has ended its job is gone, and so whatever it had open on the storage: who hears of the end may unmount that.
fn wait_for_exit(process: &OwnedFd) {
    // If it was stopped it has ended the job all the same.
    let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&EXIT_PATIENCE));
}

/// The socket of the job whose mount has its root here.
fn socket_of(mount_point: &Path) -> anyhow::Result<Option<PathBuf>> {
    let mut value = vec![0; PATH_BYTES_MAX];
    let got = rustix::fs::getxattr(mount_point, OsStr::new(CONTROL_XATTR), value.as_mut_slice());
    match got {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(OsString::from_vec(value).into()))
        }
        // A mount whose top is closed to its user is found among the sockets.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::ACCESS) => Ok(None),
        Err(Errno::NOTCONN | Errno::CONNABORTED) => bail!(
            "{}: the process that served it is gone; unmount it (umount, or fusermount3 -u), then run `elbow recover` \
             on its source",
            mount_point.shown()
        ),
        Err(errno) => Err(WordedError::of(mount_point, errno).into()),
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
        assert!(receive("{\"version\":3,\"request\":\"frob\"}\n").is_err());
        assert!(receive("GET / HTTP/1.1\n").is_err());
    }

    #[test]
    fn progress_may_be_a_sentence_and_nothing_else() {
        let line = "{\"version\":3,\"reply\":\"progress\",\"sentence\":\"publishing\"}\n";
        let reply = receive::<Reply>(&mut line.as_bytes()).expect("a reply");
        assert!(
            matches!(reply, Some(Reply::Progress { position: None, .. })),
            "{reply:?}"
        );
    }

    #[test]
    fn a_directory_that_is_no_mount_is_said_so() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let error = find(Some(directory.path())).err().expect("no mount");
        assert!(error.to_string().contains("not a mount of elbow"), "{error}");
    }
}
