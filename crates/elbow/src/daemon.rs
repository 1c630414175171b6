//! The process behind `elbow mount`: serves the mount, answers clients, ends the job.
//!
//! ```text
//!   clients ──> a thread each: status, diff at once; commit, rollback ─┐
//!   signals, mount table, end of the session ──────────────────────────┴─> one queue ──> the end, once
//! ```
//!
//! The daemon holds an open directory in its own mount, so a plain umount(8) answers EBUSY and nothing is lost or
//! left half-way by accident. When the mount goes away all the same (lazily or by force), or the daemon is told to
//! stop by a signal, what was done in it is committed: its user has seen it succeed.
//! Nobody waits for the outcome then, so a failure goes to the system log.

#![allow(clippy::disallowed_methods)] // the mount and /proc, not the storage of a job

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context, bail};
use elbow_job::{Keep, Progress};
use elbow_mount::{Connection, Front, FrontOptions, Session, Watcher, WrittenBack, unmount};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{AtFlags, StatxFlags};

use crate::cli::MountArgs;
use crate::control::{self, JobKind, Reply, Request, Socket};
use crate::job::{self, Site};
use crate::job_server::{JobServer, start};
use crate::output::print_message;
use crate::process_limits::{expect_threads_of_job, prepare_process};
use crate::progress::Position;
use crate::report::Report;
use crate::signals::{self, Event};
use crate::{exit, job_end, messages};

/// Why the job ends.
enum EndReason {
    /// A client asks for it, and waits for the outcome.
    Asked(Request, UnixStream),
    /// The mount is gone, or we are to stop.
    Gone,
}

/// What the daemon says when the mount can be used.
pub(crate) const READY: &[u8] = b"ready";

/// What the threads share.
struct Serving {
    responder: Arc<JobServer>,
    written_back: WrittenBack,
    ends: Mutex<Sender<EndReason>>,
}

/// Serves a mount until it is gone.
pub(crate) fn run(args: &MountArgs) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    prepare_process();
    signals::block_all();
    let watcher = Watcher::start().context("cannot start a process")?;
    expect_threads_of_job()?;
    let mount_point = mount_point(&args.mount_point)?;
    let sites = Site::open_all(std::slice::from_ref(&args.source))?;
    let site = sites.first().context("no directory")?;
    if mount_point != site.path() && mount_point.starts_with(site.path()) {
        bail!(
            "{} is inside {}; mount it elsewhere, or over itself",
            mount_point.display(),
            site.path().display()
        );
    }
    control::expect_no_job_at(&mount_point, site.path())?;
    let (scratch, note) = job::scratch(&args.job)?;
    job::memory_note(&args.job).iter().chain(&note).for_each(print_message);
    let found = site.recover(false)?;
    job::recovered_lines(site, &found).iter().for_each(print_message);
    job::kept_line(site, &found).iter().for_each(print_message);
    let job = site.begin(job::options(&args.job, scratch, &[]))?;
    let mut socket = Socket::plan(&[])?;
    watcher.file(&socket.path())?;
    socket.listen()?;
    if rustix::process::geteuid().is_root() && site.place.is_closed_from(&mount_point)? {
        print_message(format_args!(
            "{}: a directory above it is closed to some users, so only root can use the mount; mount it below that directory \
             to let in those who may pass",
            site.path().display()
        ));
    }
    let mut connection = Connection::at(&site.place, &mount_point, &watcher)?;
    let options = FrontOptions {
        control: Some(socket.path()),
        durable: args.job.durable,
    };
    let session = connection
        .serve(Front::new(job.clone(), options))
        .context("cannot serve the FUSE mount")?;
    let root = connection.open_root()?;
    let (ends, asked) = mpsc::channel();
    let responder = JobServer {
        kind: JobKind::Mount,
        source: site.path().to_owned(),
        mount_point,
        command: Vec::new(),
        process: Arc::default(),
        started,
        job,
        phase: Mutex::new("running".into()),
    };
    let serving = Arc::new(Serving {
        responder: Arc::new(responder),
        written_back: session.written_back(),
        ends: Mutex::new(ends),
    });
    serving.start_threads(socket.listener()?, session, &root)?;
    say_ready(args)?;
    let code = serving.wait(&asked, root);
    drop(socket);
    Ok(ExitCode::from(code))
}

fn mount_point(path: &Path) -> anyhow::Result<PathBuf> {
    let real = path
        .canonicalize()
        .with_context(|| format!("{}: no mount point; create it first", path.display()))?;
    if !real.is_dir() {
        bail!("{}: not a directory", path.display());
    }
    Ok(real)
}

/// Tells the parent, and lets go of its terminal and directory.
#[allow(unsafe_code)]
fn say_ready(args: &MountArgs) -> anyhow::Result<()> {
    let Some(ready) = args.ready_fd else { return Ok(()) };
    rustix::process::chdir("/")?;
    let null = File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stderr(&null)?;
    // SAFETY: our parent passed this descriptor to us and to nobody else.
    let mut pipe = File::from(unsafe { OwnedFd::from_raw_fd(ready) });
    pipe.write_all(READY)?;
    Ok(())
}

impl Serving {
    fn start_threads(
        self: &Arc<Self>,
        listener: &UnixListener,
        session: Session,
        root: &OwnedFd,
    ) -> anyhow::Result<()> {
        let serving = self.clone();
        self.responder.open(listener, move |request, client| {
            serving.end(EndReason::Asked(request, client));
            Ok(())
        })?;
        let serving = self.clone();
        start("elbow-ended", move || {
            // By whatever it ended: the mount cannot be used any more.
            let _ = session.wait();
            serving.end(EndReason::Gone);
        })?;
        let mount_id = rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?.stx_mnt_id;
        let serving = self.clone();
        start("elbow-watch", move || {
            watch(mount_id);
            serving.end(EndReason::Gone);
        })?;
        let (events, happenings) = mpsc::channel();
        signals::listen_to_all(events)?;
        let serving = self.clone();
        start("elbow-stop", move || {
            while let Ok(event) = happenings.recv() {
                if let Event::Signal(arrival) = event
                    && arrival.is_ending()
                {
                    serving.end(EndReason::Gone);
                }
            }
        })
    }

    fn end(&self, end: EndReason) {
        // When nobody listens any more, the end has come already; a client then sees its connection closed.
        let _ = self.ends.lock().unwrap_or_else(PoisonError::into_inner).send(end);
    }

    /// Waits for the first reason to end, and ends.
    fn wait(&self, asked: &Receiver<EndReason>, root: OwnedFd) -> u8 {
        let (request, mut client) = match asked.recv() {
            Ok(EndReason::Asked(request, client)) => (request, Some(client)),
            Ok(EndReason::Gone) | Err(_) => (Request::Commit, None),
        };
        if request == Request::Commit {
            self.written_back.fetch();
        }
        self.responder.job.freeze();
        let mut show = |progress: &Progress| self.show(progress, client.as_mut());
        let ending = match request {
            Request::Rollback => job_end::roll_back(&self.responder.job, false, &mut show),
            _ => job_end::commit(&self.responder.job, Keep::Complete, &mut show),
        };
        drop(root);
        self.take_away();
        let mut report = Report::new(&[], self.responder.started);
        report.add(&self.responder.source, self.responder.job.name(), &ending, "as asked");
        report.exit_code = if report.is_committed() || request == Request::Rollback {
            0
        } else {
            exit::ELBOW_FAILED
        };
        let reply = Reply::Ended {
            report: Box::new(report.clone()),
        };
        let told = client.is_some_and(|mut client| messages::send(&mut client, reply).is_ok());
        if !told && report.exit_code != 0 {
            report.lines().iter().for_each(|line| log(line));
        }
        report.exit_code
    }

    fn show(&self, progress: &Progress, client: Option<&mut UnixStream>) {
        let position = Position::of(progress);
        let sentence = position.sentence();
        self.responder.phase().clone_from(&sentence);
        if let Some(client) = client.filter(|client| has_room(client)) {
            let position = Some(position);
            // Without its client the job ends all the same.
            let _ = messages::send(client, Reply::Progress { sentence, position });
        }
    }

    /// Unmounts; lazily when somebody still has a file or directory of it open, which can read no more.
    fn take_away(&self) {
        if unmount(&self.responder.mount_point, false).is_err() {
            // Gone already, then.
            let _ = unmount(&self.responder.mount_point, true);
        }
    }
}

/// A client that was stopped does not read what it is sent: the end of the job does not wait for it to go on.
fn has_room(client: &UnixStream) -> bool {
    let mut now = [PollFd::new(client, PollFlags::OUT)];
    poll(&mut now, Some(&rustix::event::Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Tells the system log (syslog(3)) what there is no client to tell, and standard error in the foreground.
#[allow(unsafe_code)]
fn log(line: &str) {
    print_message(line);
    let Ok(line) = CString::new(line) else { return };
    // SAFETY: both strings end with a zero byte, and the format takes one string.
    unsafe { libc::syslog(libc::LOG_ERR | libc::LOG_USER, c"elbow: %s".as_ptr(), line.as_ptr()) };
}

/// Returns when a mount is not in the mount table any more. The kernel says when the table changes (proc(5)).
fn watch(mount_id: u64) {
    let Ok(table) = File::open("/proc/self/mountinfo") else {
        return;
    };
    let id = mount_id.to_string();
    loop {
        let Ok(content) = std::fs::read_to_string("/proc/self/mountinfo") else {
            return;
        };
        if !content.lines().any(|line| line.split(' ').next() == Some(&id)) {
            return;
        }
        let mut waiting = [PollFd::new(&table, PollFlags::PRI)];
        if poll(&mut waiting, None).is_err_and(|errno| errno != rustix::io::Errno::INTR) {
            return;
        }
    }
}
