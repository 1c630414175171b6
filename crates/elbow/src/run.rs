//! `elbow run`: a command and its jobs, from the first check to the last line.
//!
//! ```text
//!   check, open, recover ── begin a job per directory ── mount it nowhere ── start the command in its namespace
//!        wait for its end (signals go on to it) ── sync, freeze ── commit in order, or roll back ── report
//! ```
//!
//! Whoever has asked for the end is not kept waiting by a storage that does not answer ([`crate::stall`]).
//!
//! With several directories every job is brought to the point just before its commit record before the first has one; when one of them does
//! not come so far, none is committed. What is refused only then, after another one has committed, is kept, and the report says which is which.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SendError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use elbow_job::{Job, Keep, Outcome, Progress, Recorder};
use elbow_mount::{
    Anchor, ChildState, Connection, Front, FrontOptions, PassedThrough, Session, Watcher, end_connection,
};
use rustix::process::Signal;

use crate::child::{self, NotStarted, Running};
use crate::cli::RunArgs;
use crate::control::{self, JobKind, KeptJob, Reply, Request, Socket};
use crate::exit;
use crate::job::{self, Site};
use crate::job_end::{self, JobEnd, Joint, JointStep};
use crate::job_server::{JobServer, unix_seconds};
use crate::messages;
use crate::names::{CommandWords, DirectoryName};
use crate::output::{print_message, strerror};
use crate::process_limits::{expect_threads_of_job, prepare_process};
use crate::progress::{self, Display, Position};
use crate::report::Report;
use crate::report_file::ReportFile;
use crate::signal_probe::{SHORT, SignalProbe, pass_on};
use crate::signals::{self, Arrival, Event};
use crate::stall::{GLANCE, HURRIED_STALL_MAX, STALL_MAX, StallClock, Steps, leave_files};
use crate::trace::{JobTrace, OpenTrace, TraceFile};
use crate::via::Reached;

/// A command that was told to end has so long to do so.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// What comes so soon after the end of a command that has succeeded was sent to it, too. Slurm and others send to each process of a job, one by
/// one, and may be held up between two of them: a command that saves its state at SIGTERM has ended by then.
const LATE_MAX: Duration = Duration::from_secs(1);
/// What is said at the end reaches whoever reads it within this time, or not at all.
const LAST_WORDS: Duration = Duration::from_secs(2);
const RUNNING: &str = "running";
const ASKED: &str = "as `elbow rollback` asked";
const ANOTHER: &str = "another directory of the job could not be committed";
const IN_DOUBT: &str = "another directory of the job has committed, or may have";
const LOOSE: &str = "somebody has removed the directory at which the job was shown, or taken its mount away: what the command has written there \
    since then is not part of the job, and lies in whatever has that name now";
const LOST: &str = "nobody waits for the command";
/// Runs the command; the exit code is its own, or says what Elbowroom made of it.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    let so_far = RunState::default();
    let ended = open_report(args).and_then(|file| {
        so_far.file.replace(file);
        let trace = args.trace.as_deref().map(OpenTrace::open).transpose()?;
        attempts(args, started, trace, &so_far)
    });
    let mut report = ended.unwrap_or_else(|error| {
        let mut report = Report::new(&args.command, started);
        report.fail(&error);
        report
    });
    so_far.tell(&mut report, args);
    Ok(ExitCode::from(report.exit_code))
}

fn open_report(args: &RunArgs) -> anyhow::Result<Option<ReportFile>> {
    let Some(target) = &args.report else { return Ok(None) };
    ensure!(
        !(args.json && target.is_stderr()),
        "--report 2 is where --json writes; leave one of them out"
    );
    ReportFile::open(target).map(Some)
}

/// What has happened, however the run ends.
#[derive(Default)]
struct RunState {
    tries: Cell<u32>,
    notes: RefCell<Vec<String>>,
    reached: Cell<Reached>,
    /// Where the report goes.
    file: RefCell<Option<ReportFile>>,
    /// Where what is done is told, if somebody wants to know.
    trace: RefCell<Option<TraceFile>>,
}

impl RunState {
    fn note(&self, notes: impl IntoIterator<Item = String>) {
        self.notes.borrow_mut().extend(notes);
    }

    /// Tells how the run ended.
    fn tell(&self, report: &mut Report, args: &RunArgs) {
        if let Some(incomplete) = self.trace.take().and_then(TraceFile::end) {
            print_message(&incomplete);
            self.note([incomplete]);
        }
        report.attempts = self.tries.get();
        report.notes = self.notes.take();
        report.via = self.reached.get();
        if let Some(file) = self.file.take() {
            file.write_or_say(&report.json());
        }
        report.print(args.json, args.quiet);
    }
}

/// Runs the command as often as is asked.
fn attempts(
    args: &RunArgs,
    started: SystemTime,
    trace: Option<OpenTrace>,
    so_far: &RunState,
) -> anyhow::Result<Report> {
    let state = prepare_process();
    signals::block_all();
    signals::block_stop();
    let watcher = Watcher::start().context("cannot start a process")?; // before any thread
    expect_threads_of_job()?;
    if let Some(opened) = trace {
        so_far.trace.replace(Some(opened.begin(&args.command, started)?));
    }
    let directories = if args.on.is_empty() {
        vec![PathBuf::from(".")]
    } else {
        args.on.clone()
    };
    let passed = PassedThrough::check(&args.pass_through, &directories)?;
    if !args.pass_through_is_set {
        expect_within(&args.pass_through, &directories)?;
    }
    let (sites, notes) = Site::open_via(&directories, &args.by, &passed)?;
    sites.iter().try_for_each(Site::check_writable)?;
    let (scratch, note) = job::scratch(&args.job)?;
    so_far.note(job::memory_note(&args.job).into_iter().chain(note));
    if !args.quiet {
        so_far.note(notes);
    }
    let reached = sites.iter().map(|site| site.reached).min();
    so_far.reached.set(reached.unwrap_or_default());
    if !args.json {
        so_far.notes.borrow().iter().for_each(print_message);
    }
    let (events, happenings) = mpsc::channel();
    signals::listen_to_all(events.clone()).context("cannot start a thread")?;
    let command = Arc::new(AtomicI32::new(0));
    signals::on_stop(command.clone(), events.clone(), progress::pause).context("cannot start a thread")?;
    let runner = Runner {
        args,
        started,
        sites,
        passed,
        scratch,
        state,
        events,
        happenings,
        command,
        clients: RefCell::default(),
        watcher: &watcher,
        so_far,
        told: Cell::default(),
        is_hurried: Cell::default(),
        steps: Steps::default(),
    };
    let mut left = args.retry;
    loop {
        so_far.tries.set(so_far.tries.get() + 1);
        let attempt = runner.attempt(keep_of(args))?;
        if left == 0 || !attempt.may_be_retried {
            return Ok(attempt.report);
        }
        if !args.json {
            attempt.report.print(false, args.quiet);
            print_message(format_args!("running it again ({left} more times)"));
        }
        left -= 1;
    }
}

/// What is passed through and lies in none of the directories is a mistake, where somebody has just said it: it would change nothing.
#[allow(
    clippy::disallowed_methods,
    reason = "where directories are, and not what is in them"
)]
fn expect_within(passed: &[PathBuf], directories: &[PathBuf]) -> anyhow::Result<()> {
    let real: Vec<PathBuf> = directories.iter().filter_map(|path| path.canonicalize().ok()).collect();
    // One that is not here is reached elsewhere, or is told of by itself.
    if real.len() < directories.len() {
        return Ok(());
    }
    for path in passed {
        let is_within = |found: PathBuf| real.iter().any(|directory| found.starts_with(directory));
        if !path.canonicalize().is_ok_and(is_within) {
            let names: Vec<String> = real.iter().map(|path| path.display().to_string()).collect();
            let (path, names) = (path.display(), names.join(", "));
            bail!("{path}: cannot be passed through: it does not lie in the directory of the job, {names}");
        }
    }
    Ok(())
}

struct Runner<'a> {
    args: &'a RunArgs,
    started: SystemTime,
    sites: Vec<Site>,
    passed: PassedThrough,
    scratch: Option<PathBuf>,
    state: ChildState,
    events: Sender<Event>,
    happenings: Receiver<Event>,
    /// The process of the command while it runs, else 0.
    command: Arc<AtomicI32>,
    /// Who has asked for a roll back, and waits to hear how it went.
    clients: RefCell<Vec<UnixStream>>,
    watcher: &'a Watcher,
    so_far: &'a RunState,
    /// The command, or all of it, was asked to end: the code of that, should nothing else come of it.
    told: Cell<Option<u8>>,
    /// It was asked for once more.
    is_hurried: Cell<bool>,
    steps: Steps,
}

/// One run of the command.
struct Attempt {
    report: Report,
    may_be_retried: bool,
}

/// A job that is mounted.
struct Mounted<'a> {
    site: &'a Site,
    job: Job,
    trace: Option<Arc<JobTrace>>,
    connection: Connection,
    /// Where it lies in the namespace of the command.
    anchor: Option<Anchor>,
    responder: Arc<JobServer>,
    /// Where the responder is, or will be.
    socket: Option<Mutex<Socket>>,
    /// Keeps the file system alive.
    root: OwnedFd,
    session: Session,
}

/// How the command ended.
struct CommandEnd {
    code: u8,
    /// Why the job is rolled back; empty when it is not.
    why: String,
    took: Duration,
    /// It makes sense to run it again.
    may_be_retried: bool,
}

impl Runner<'_> {
    fn attempt(&self, keep: Keep) -> anyhow::Result<Attempt> {
        self.told.set(None);
        self.is_hurried.set(false);
        let mut mounted = self
            .sites
            .iter()
            .map(|site| self.mount(site))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let jobs = mounted.iter().map(|m| m.job.clone()).collect();
        let mut display = Display::of_run(jobs, self.args.progress, self.args.quiet || self.args.json);
        self.so_far.trace.borrow().iter().for_each(TraceFile::command_begins);
        let command_end = self.command(&mut mounted).inspect_err(|_| forget(&mounted))?;
        self.so_far.trace.borrow().iter().for_each(TraceFile::command_ends);
        let (report, may_be_retried) = self.end(&mounted, &command_end, keep, &mut display);
        drop(display);
        self.answer(&report);
        let may_be_retried = may_be_retried && command_end.may_be_retried && !mounted.iter().any(Mounted::is_loose);
        Ok(Attempt { report, may_be_retried })
    }

    fn mount<'s>(&self, site: &'s Site) -> anyhow::Result<Mounted<'s>> {
        let found = site.recover(false)?;
        let (recovered, kept) = (job::recovered_lines(site, &found), job::kept_line(site, &found));
        if !self.args.json {
            recovered.iter().for_each(print_message);
            kept.iter().filter(|_| !self.args.quiet).for_each(print_message);
        }
        self.so_far.note(recovered.into_iter().chain(kept));
        let mut options = job::options(&self.args.job, self.scratch.clone(), &self.args.command);
        let trace = self.so_far.trace.borrow().as_ref().map(|trace| trace.job(site.path()));
        options.recorder = trace.clone().map(|trace| trace as Arc<dyn Recorder>);
        let job = site.begin(options)?;
        let mut connection = Connection::private(&site.place, self.watcher)?;
        // Without a place for it nobody can ask, and the job goes on.
        let directories: Vec<&Path> = self.sites.iter().map(Site::path).collect();
        let socket = Socket::plan(&directories).ok();
        let options = FrontOptions {
            control: socket.as_ref().map(Socket::path),
            durable: self.args.job.durable,
        };
        let session = connection
            .serve(Front::new(job.clone(), options))
            .context("cannot serve the FUSE mount")?;
        let root = connection.open_root()?;
        Ok(Mounted {
            site,
            responder: Arc::new(self.responder(site, &job)),
            socket: socket.map(Mutex::new),
            job,
            trace,
            connection,
            anchor: None,
            root,
            session,
        })
    }

    fn responder(&self, site: &Site, job: &Job) -> JobServer {
        JobServer {
            kind: JobKind::Run,
            source: site.path().to_owned(),
            mount_point: site.path().to_owned(),
            command: self.args.command.clone(),
            process: self.command.clone(),
            started: self.started,
            job: job.clone(),
            phase: Mutex::new(RUNNING.into()),
        }
    }

    /// Tells those who have asked for the end how it went.
    fn answer(&self, report: &Report) {
        for mut client in self.clients.take() {
            let report = Box::new(report.clone());
            // A client that went away needs no answer.
            let _ = messages::send(&mut client, Reply::Ended { report });
        }
    }

    /// Runs the command to its end.
    fn command(&self, mounted: &mut [Mounted<'_>]) -> anyhow::Result<CommandEnd> {
        let early = self.early();
        if let Some(end) = early.iter().find(|arrival| arrival.is_ending()) {
            return Ok(CommandEnd::interrupted(end.number()));
        }
        let began = Instant::now();
        let mounts: Vec<_> = mounted.iter().map(|m| (&m.connection, &m.site.place)).collect();
        let events = self.events.clone();
        match child::start(
            &self.args.command,
            &mounts,
            &self.passed,
            self.state,
            events,
            self.watcher,
        ) {
            Ok((running, anchors)) => {
                for (m, anchor) in mounted.iter_mut().zip(anchors) {
                    m.connection.hide();
                    m.anchor = anchor;
                }
                self.command.store(running.process(), Ordering::Relaxed);
                early.iter().for_each(|arrival| running.pass_on(arrival));
                let command_end = self.wait(&running, mounted, began);
                self.command.store(0, Ordering::Relaxed);
                command_end
            }
            Err(NotStarted::Exec(error)) => Ok(self.not_run(&error)),
            Err(NotStarted::Namespace(error)) => Err(error.into()),
            Err(NotStarted::Other(error)) => Err(error).context("cannot start the command"),
        }
    }

    /// Signals that came before there was a command to get them.
    fn early(&self) -> Vec<Arrival> {
        let arrivals = self.happenings.try_iter().filter_map(|event| match event {
            Event::Signal(arrival) => Some(arrival),
            _ => None,
        });
        arrivals.collect()
    }

    fn not_run(&self, error: &std::io::Error) -> CommandEnd {
        let program = self
            .args
            .command
            .first()
            .map(|program| program.display().to_string())
            .unwrap_or_default();
        let what = error.raw_os_error().map_or_else(|| error.to_string(), strerror);
        CommandEnd {
            code: exit::of_exec_error(error),
            why: format!("cannot run {program}: {what}"),
            took: Duration::ZERO,
            may_be_retried: false,
        }
    }

    /// Waits like a shell. A signal to us alone goes on to the command; one to all of our process group it has already.
    fn wait(&self, running: &Running, mounted: &[Mounted<'_>], began: Instant) -> anyhow::Result<CommandEnd> {
        let mut stopped = false;
        let mut watch = CommandWatch::default();
        loop {
            match self.next(&mut watch, running, mounted)? {
                Event::Signal(arrival) => {
                    stopped |= arrival.is_ending();
                    self.tell_if_ending(&arrival);
                    pass_on(&arrival, running, &mut watch.signal_probe);
                }
                Event::RollBack(client) => {
                    self.clients.borrow_mut().push(client);
                    self.told.set(Some(exit::ELBOW_FAILED));
                    running.end(Signal::TERM);
                    watch.kill_at.get_or_insert(Instant::now() + END_PATIENCE);
                }
                Event::Ended(status) => {
                    let status = status.context("cannot wait for the command")?;
                    let command_end = CommandEnd::of(status, began.elapsed(), stopped);
                    let is_asked = !self.clients.borrow().is_empty();
                    return Ok(if is_asked {
                        command_end.but_roll_back()
                    } else {
                        command_end
                    });
                }
                Event::Over => {}
            }
        }
    }

    /// The next event. When the command has run for a moment, a signal probe is started and the job can be asked: a short one does not pay for
    /// them. One that is to end and does not is killed.
    fn next(&self, watch: &mut CommandWatch, running: &Running, mounted: &[Mounted<'_>]) -> anyhow::Result<Event> {
        loop {
            let short = watch.signal_probe.is_none().then_some(SHORT);
            let left = watch.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
            let glance = self.told.get().map(|_| GLANCE);
            let Some(patience) = short.into_iter().chain(left).chain(glance).min() else {
                return self.happenings.recv().context(LOST);
            };
            let event = self.happenings.recv_timeout(patience);
            // Also between events: signals that come one after the other are no sign of life of the storage.
            self.give_up_if_silent(&mut watch.silence, mounted, None);
            match event {
                Err(RecvTimeoutError::Timeout) => {}
                event => return event.context(LOST),
            }
            if watch.kill_at.take_if(|at| Instant::now() >= *at).is_some() {
                running.end(Signal::KILL);
            }
            if watch.signal_probe.is_none() {
                // Without one, signals are judged as in the first moment.
                watch.signal_probe = SignalProbe::start().ok();
                mounted
                    .iter()
                    .for_each(|m| m.open_responder(self.watcher, &self.events));
            }
        }
    }

    /// Commits or rolls back all jobs; also says whether another run could end otherwise.
    fn end(
        &self,
        mounted: &[Mounted<'_>],
        command_end: &CommandEnd,
        keep: Keep,
        display: &mut Display,
    ) -> (Report, bool) {
        if command_end.code == 0 {
            // It has saved what it had, which is worth any wait until somebody asks for the end again.
            self.told.set(None);
            self.is_hurried.set(false);
        }
        let (endings, interrupted) = std::thread::scope(|scope| {
            let over = NotifyOnDrop(self.events.clone());
            let steps = &self.steps;
            let ending = scope.spawn(move || {
                let _over = over;
                end_all(keep, mounted, command_end, display, steps)
            });
            let interrupted = self.listen(mounted, command_end);
            (
                ending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                interrupted,
            )
        });
        let is_interrupted = interrupted.is_some();
        let is_earned = command_end.code == 0 && is_earned(&endings);
        let report = self.report(mounted, command_end, &endings, interrupted);
        let is_over = report.is_committed() || report.is_any_stored();
        let may_be_retried = !is_interrupted && !is_earned && report.is_ended() && !is_over;
        (report, may_be_retried)
    }

    fn report(
        &self,
        mounted: &[Mounted<'_>],
        command_end: &CommandEnd,
        endings: &[JobEnd],
        interrupted: Option<String>,
    ) -> Report {
        let why = match interrupted {
            Some(why) => why,
            None if command_end.code == 0 => ANOTHER.to_owned(),
            None => command_end.why.clone(),
        };
        let mut report = Report::new(&self.args.command, self.started);
        report.took(command_end.took);
        for (m, ending) in mounted.iter().zip(endings) {
            report.add(m.site.path(), m.job.name(), ending, &why);
            report.retell(|text| m.site.told(text));
            m.remember(ending, &self.args.command, self.started);
        }
        report.tell_apart();
        report.exit_code = if command_end.code == 0 && !report.is_committed() {
            exit::ELBOW_FAILED
        } else {
            command_end.code
        };
        report
    }

    /// Until the end is over, a signal that ends programs makes jobs roll back that are still being stored. Who has made us
    /// ignore one means that, too.
    fn listen(&self, mounted: &[Mounted<'_>], command_end: &CommandEnd) -> Option<String> {
        let mut interrupted = None;
        let mut silence = None;
        let mut patience = SHORT;
        let began = Instant::now();
        loop {
            if self.told.get().is_some() {
                patience = patience.min(GLANCE);
            }
            let event = self.happenings.recv_timeout(patience);
            if !matches!(event, Ok(Event::Over)) {
                self.give_up_if_silent(&mut silence, mounted, Some(command_end));
            }
            match event {
                Ok(Event::Signal(arrival)) if rolls_back(&arrival) => {
                    if command_end.code == 0 && began.elapsed() < LATE_MAX {
                        self.pass_over(&arrival);
                        continue;
                    }
                    self.tell_if_ending(&arrival);
                    interrupted = Some(format!("interrupted by {}", signals::name(arrival.number())));
                    mounted.iter().for_each(|m| m.job.interrupt());
                }
                Ok(Event::RollBack(client)) => {
                    self.clients.borrow_mut().push(client);
                    self.told.set(Some(exit::ELBOW_FAILED));
                    interrupted = Some(ASKED.to_owned());
                    mounted.iter().for_each(|m| m.job.interrupt());
                }
                Ok(Event::Signal(_) | Event::Ended(_)) => {}
                Err(RecvTimeoutError::Timeout) => {
                    mounted
                        .iter()
                        .for_each(|m| m.open_responder(self.watcher, &self.events));
                    patience = Duration::MAX;
                }
                Ok(Event::Over) | Err(RecvTimeoutError::Disconnected) => return interrupted,
            }
        }
    }
}

impl Runner<'_> {
    /// Takes a signal as the command's own, which has ended.
    fn pass_over(&self, arrival: &Arrival) {
        let name = signals::name(arrival.number());
        let note = format!(
            "{name} came as the command ended with 0, and is taken as sent to it: what it made is stored; another {name} rolls back"
        );
        if !self.args.quiet && !self.args.json {
            print_message(&note);
        }
        self.so_far.note([note]);
    }

    fn tell_if_ending(&self, arrival: &Arrival) {
        if arrival.is_ending() {
            let code = u8::try_from(128 + arrival.number()).unwrap_or(exit::ELBOW_FAILED);
            self.is_hurried.set(self.told.get().is_some());
            self.told.set(self.told.get().or(Some(code)));
        }
    }

    /// Leaves the jobs as they are, if their end was asked for, and what it waits for does not come. The command has a verdict if it has ended.
    fn give_up_if_silent(
        &self,
        silence: &mut Option<StallClock>,
        mounted: &[Mounted<'_>],
        command_end: Option<&CommandEnd>,
    ) {
        let Some(code) = self.told.get() else { return };
        let now = Instant::now();
        let (heard, is_waiting) = self.steps.listen(mounted.iter().map(|m| &m.job));
        let silence = silence.get_or_insert_with(|| StallClock::began(now));
        // An end waits for nothing but the storage.
        let is_by_ssh = self.sites.iter().all(|site| site.reached != Reached::Mount);
        let most = match self.is_hurried.get() && is_by_ssh {
            true => HURRIED_STALL_MAX,
            false => STALL_MAX,
        };
        if silence.is_longer(most, heard, is_waiting || command_end.is_some(), now) {
            let code = command_end.map_or(code, |command_end| match command_end.code {
                0 => exit::ELBOW_FAILED,
                code => code,
            });
            self.give_up(
                mounted,
                command_end.map_or(Duration::ZERO, |command_end| command_end.took),
                code,
                most,
            );
        }
    }

    /// Ends as if we were killed, but says so: the watcher clears up, and the next recovery ends the jobs.
    fn give_up(&self, mounted: &[Mounted<'_>], took: Duration, code: u8, silent: Duration) -> ! {
        leave_files(mounted.iter().filter_map(|m| m.site.descriptor()));
        let end = move || -> ! { std::process::exit(code.into()) };
        // Whoever reads what is said may be stopped, too, and the report lie on that storage.
        std::thread::spawn(move || {
            std::thread::sleep(LAST_WORDS);
            end()
        });
        progress::pause();
        mounted.iter().for_each(|m| end_connection(&m.root));
        self.sites.iter().for_each(Site::hang_up);
        let mut report = Report::new(&self.args.command, self.started);
        report.took(took);
        for m in mounted {
            report.add(m.site.path(), m.job.name(), &JobEnd::of_stalled(&m.job, silent), "");
            report.retell(|text| m.site.told(text));
        }
        report.exit_code = code;
        self.so_far.tell(&mut report, self.args);
        self.answer(&report);
        end()
    }
}

/// What is waited with.
#[derive(Default)]
struct CommandWatch {
    signal_probe: Option<SignalProbe>,
    silence: Option<StallClock>,
    /// When a command that was told to end is killed.
    kill_at: Option<Instant>,
}

fn rolls_back(arrival: &Arrival) -> bool {
    let signal = arrival.number();
    arrival.is_ending() && signal != libc::SIGQUIT && !signals::is_ignored(signal)
}

fn why_not_commit(phase: &str) -> String {
    match phase {
        RUNNING => "a job of `elbow run`, which is stored when its command ends with 0 and rolled back otherwise; wait for that, or end \
            it now with `elbow rollback`"
            .to_owned(),
        phase => format!("its command has ended, and it is being ended already ({phase})"),
    }
}

/// Leaves nothing behind of jobs whose command could not be started or was lost.
fn forget(mounted: &[Mounted<'_>]) {
    for m in mounted {
        // The error that brought us here is told; what is left, the next run cleans up.
        let _ = m.job.roll_back(false, &mut |_| {});
    }
}

/// Says that there is no more to wait for, even if its thread panics.
struct NotifyOnDrop(Sender<Event>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        // Nobody may be listening; that is fine.
        let _ = self.0.send(Event::Over);
    }
}

/// The command has succeeded, and what it made waits until it can be stored: there is nothing that another run would have to make.
fn is_earned(endings: &[JobEnd]) -> bool {
    endings.iter().any(JobEnd::is_kept_whole) && !endings.iter().any(JobEnd::is_conflict)
}

/// What is kept of jobs that cannot be stored.
fn keep_of(args: &RunArgs) -> Keep {
    match (args.keep, args.no_keep) {
        (true, _) => Keep::Everything,
        (false, true) => Keep::Nothing,
        (false, false) => Keep::Complete,
    }
}

/// Ends all jobs.
fn end_all(
    keep: Keep,
    mounted: &[Mounted<'_>],
    command_end: &CommandEnd,
    display: &mut Display,
    steps: &Steps,
) -> Vec<JobEnd> {
    for m in mounted {
        "ending".clone_into(&mut m.responder.phase());
        m.settle(command_end.code == 0);
    }
    let mut show = |m: &Mounted<'_>, progress: &Progress| {
        display.show(progress);
        steps.see(progress);
        *m.responder.phase() = Position::of(progress).sentence();
    };
    // What they have is not all that the command has written.
    let is_loose: Vec<bool> = mounted.iter().map(Mounted::is_loose).collect();
    let later = is_loose.contains(&true);
    let endings = match mounted {
        _ if command_end.code != 0 || later => {
            let later = later && command_end.code == 0;
            let end = |(m, is_loose): (&Mounted<'_>, bool)| {
                let show = &mut |progress: &Progress| show(m, progress);
                if is_loose && later {
                    job_end::postpone_or_roll_back(&m.job, LOOSE, show)
                } else if later {
                    job_end::postpone(&m.job, ANOTHER, show)
                } else {
                    job_end::roll_back(&m.job, keep == Keep::Everything, show)
                }
            };
            mounted.iter().zip(is_loose).map(end).collect()
        }
        [m] => vec![job_end::commit(&m.job, keep, &mut |progress| show(m, progress))],
        all => commit_together(keep, all, &mut show),
    };
    for (m, ending) in mounted.iter().zip(&endings) {
        m.trace.iter().for_each(|trace| trace.ended(&ending.counts));
    }
    endings
}

/// Commits jobs in order, once each of them could. When one has to be stored later, so have the others that are not; when one is rolled back, so are
/// they.
fn commit_together(keep: Keep, mounted: &[Mounted<'_>], show: &mut dyn FnMut(&Mounted<'_>, &Progress)) -> Vec<JobEnd> {
    let mut all: Vec<Joint<'_>> = mounted.iter().map(|m| Joint::of(&m.job)).collect();
    // Something is stored, or may be: nobody knows of a commit that ended in an error whether its record is there.
    let (mut is_bound, mut is_in_doubt) = (false, false);
    'steps: for step in [JointStep::Stage, JointStep::Look, JointStep::Commit] {
        for (joint, m) in all.iter_mut().zip(mounted) {
            joint.take(step, keep, is_bound, &mut |progress| show(m, progress));
            if !joint.is_good() {
                is_in_doubt = step == JointStep::Commit && joint.has_failed();
                break 'steps;
            }
            is_bound |= step == JointStep::Commit && joint.has_stored();
        }
    }
    let why = if is_in_doubt { IN_DOUBT } else { ANOTHER };
    let is_later = is_in_doubt && keep != Keep::Nothing || all.iter().any(Joint::is_kept_whole);
    for (joint, m) in all.iter_mut().zip(mounted) {
        joint.give_up(is_later, keep, why, &mut |progress| show(m, progress));
    }
    all.into_iter().map(Joint::end).collect()
}

impl Mounted<'_> {
    /// It lies no more where the command was to find it.
    fn is_loose(&self) -> bool {
        self.anchor.as_ref().is_some_and(Anchor::is_loose)
    }

    /// From now on the job can be asked, unless it can already. Where it cannot, it goes on all the same.
    fn open_responder(&self, watcher: &Watcher, events: &Sender<Event>) {
        let Some(socket) = &self.socket else { return };
        let mut socket = socket.lock().unwrap_or_else(PoisonError::into_inner);
        if socket.listener().is_err() && watcher.file(&socket.path()).is_ok() {
            let (responder, events) = (self.responder.clone(), events.clone());
            let end = move |request, client| match request {
                Request::Rollback => match events.send(Event::RollBack(client)) {
                    Err(SendError(Event::RollBack(client))) => Err(("it has ended".to_owned(), client)),
                    _ => Ok(()),
                },
                _ => Err((why_not_commit(&responder.phase()), client)),
            };
            let _ = socket.listen().and_then(|listener| self.responder.open(listener, end));
        }
    }

    /// Lets `elbow jobs` know of a job that was kept. Who is told by that alone can be without it.
    fn remember(&self, ending: &JobEnd, command: &[OsString], started: SystemTime) {
        if let Ok(Outcome::Kept(..)) = &ending.outcome {
            let _ = control::remember_kept(&KeptJob {
                job: self.job.name().to_string_lossy().into_owned(),
                directory: DirectoryName::of(self.site.path()),
                mount_point: control::mount_point_of(self.site.path()),
                command: CommandWords::of(command),
                started_unix_seconds: unix_seconds(started),
            });
        }
    }

    /// Stops changes. Before that, what processes left in the background have written through memory maps is
    /// fetched from the kernel, if it is to be kept.
    fn settle(&self, keep: bool) {
        if keep {
            self.session.written_back().fetch();
        }
        self.job.freeze();
    }
}

impl CommandEnd {
    fn interrupted(signal: i32) -> Self {
        let code = u8::try_from(128 + signal).unwrap_or(exit::ELBOW_FAILED);
        let why = format!("interrupted by {} before the command began", signals::name(signal));
        Self {
            code,
            why,
            took: Duration::ZERO,
            may_be_retried: false,
        }
    }

    /// Whatever the command made of its end.
    fn but_roll_back(self) -> Self {
        let code = if self.code == 0 { exit::ELBOW_FAILED } else { self.code };
        Self {
            code,
            why: ASKED.to_owned(),
            may_be_retried: false,
            ..self
        }
    }

    fn of(status: ExitStatus, took: Duration, stopped: bool) -> Self {
        let why = match (status.code(), status.signal()) {
            (_, Some(signal)) => format!("the command was ended by {}", signals::name(signal)),
            (Some(0), None) => String::new(),
            (code, None) => format!("the command exited with {}", code.unwrap_or_default()),
        };
        Self {
            code: exit::of_status(status),
            why,
            took,
            may_be_retried: !stopped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_names_codes_and_signals() {
        let of = |raw| CommandEnd::of(ExitStatus::from_raw(raw), Duration::ZERO, false);
        assert_eq!((of(0).code, of(0).why.as_str()), (0, ""));
        assert_eq!(
            (of(3 << 8).code, of(3 << 8).why.as_str()),
            (3, "the command exited with 3")
        );
        assert_eq!(
            (of(2).code, of(2).why.as_str()),
            (130, "the command was ended by SIGINT")
        );
    }

    #[test]
    fn a_stopped_command_is_not_run_again() {
        assert!(!CommandEnd::of(ExitStatus::from_raw(15), Duration::ZERO, true).may_be_retried);
        assert!(CommandEnd::of(ExitStatus::from_raw(1 << 8), Duration::ZERO, false).may_be_retried);
    }
}
