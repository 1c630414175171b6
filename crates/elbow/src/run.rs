//! `elbow run`: a command and its jobs, from the first check to the last line.
//!
//! ```text
//!   check, open, recover ── begin a job per directory ── mount it nowhere ── start the command in its namespace
//!        wait for its end (signals go on to it) ── sync, freeze ── commit in order, or roll back ── report
//! ```
//!
//! With several directories the jobs commit one after the other. When one of them cannot, those after it are
//! rolled back; those before it are committed already, and the report says which is which.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use elbow_job::Job;
use elbow_mount::{ChildState, Connection, Front, FrontOptions, Session, Watcher};

use crate::child::{self, NotStarted, Running};
use crate::cli::RunArgs;
use crate::ending::{self, Ending};
use crate::exit;
use crate::job::{self, Site};
use crate::progress::{self, Display};
use crate::report::Report;
use crate::report_file::ReportFile;
use crate::say::{say, strerror};
use crate::signals::{self, Arrival, Event};
use crate::witness::Witness;

/// Commands that end within this time have no witness of their signals.
const SHORT: Duration = Duration::from_millis(20);
const LOST: &str = "nobody waits for the command";
/// What a terminal sends to all of a process group.
const FROM_A_TERMINAL: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGWINCH];

/// Runs the command; the exit code is its own, or says what Elbowroom made of it.
pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    let mut so_far = SoFar::default();
    let (file, ended) = match open_report(args) {
        Ok(file) => (file, attempts(args, started, &mut so_far)),
        Err(error) => (None, Err(error)),
    };
    let mut report = ended.unwrap_or_else(|error| {
        let mut report = Report::new(&args.command, started);
        report.fail(&error);
        report
    });
    report.attempts = so_far.tries;
    report.notes = so_far.notes;
    if let Some(file) = file {
        file.write_or_say(&report.json());
    }
    report.print(args.json, args.quiet);
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
struct SoFar {
    tries: u32,
    notes: Vec<String>,
}

/// Runs the command as often as is asked.
fn attempts(args: &RunArgs, started: SystemTime, so_far: &mut SoFar) -> anyhow::Result<Report> {
    let state = job::prepare_process();
    signals::block_all();
    signals::block_stop();
    let watcher = Watcher::start().context("cannot start a process")?; // before any thread
    let directories = if args.on.is_empty() {
        vec![PathBuf::from(".")]
    } else {
        args.on.clone()
    };
    let sites = Site::open_all(&directories)?;
    let (scratch, note) = job::scratch(&args.job)?;
    so_far.notes.extend(note);
    if !args.json {
        so_far.notes.iter().for_each(say);
    }
    let (events, happenings) = mpsc::channel();
    signals::listen_to_all(events.clone()).context("cannot start a thread")?;
    let command = Arc::new(AtomicI32::new(0));
    signals::on_stop(command.clone(), events.clone(), progress::pause).context("cannot start a thread")?;
    let runner = Runner {
        args,
        started,
        sites,
        scratch,
        state,
        events,
        happenings,
        command,
        watcher: &watcher,
    };
    let mut left = args.retry;
    loop {
        so_far.tries += 1;
        let attempt = runner.attempt(&mut so_far.notes)?;
        if left == 0 || !attempt.may_be_retried {
            return Ok(attempt.report);
        }
        if !args.json {
            attempt.report.print(false, args.quiet);
            say(format_args!("running it again ({left} more times)"));
        }
        left -= 1;
    }
}

struct Runner<'a> {
    args: &'a RunArgs,
    started: SystemTime,
    sites: Vec<Site>,
    scratch: Option<PathBuf>,
    state: ChildState,
    events: Sender<Event>,
    happenings: Receiver<Event>,
    /// The process of the command while it runs, else 0.
    command: Arc<AtomicI32>,
    watcher: &'a Watcher,
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
    connection: Connection,
    /// Keeps the file system alive, and is what is synced.
    root: OwnedFd,
    _session: Session,
}

/// How the command ended.
struct Verdict {
    code: u8,
    /// Why the job is rolled back; empty when it is not.
    why: String,
    took: Duration,
    /// It makes sense to run it again.
    may_be_retried: bool,
}

impl Runner<'_> {
    fn attempt(&self, notes: &mut Vec<String>) -> anyhow::Result<Attempt> {
        let mut mounted = self
            .sites
            .iter()
            .map(|site| self.mount(site, notes))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let jobs = mounted.iter().map(|m| m.job.clone()).collect();
        let mut display = Display::of_run(jobs, self.args.progress, self.args.quiet || self.args.json);
        let verdict = self.command(&mut mounted).inspect_err(|_| forget(&mounted))?;
        let (report, interrupted) = self.end(&mounted, &verdict, &mut display);
        drop(display);
        let may_be_retried = verdict.may_be_retried && !interrupted && report.is_ended() && !report.is_committed();
        Ok(Attempt { report, may_be_retried })
    }

    fn mount<'s>(&self, site: &'s Site, notes: &mut Vec<String>) -> anyhow::Result<Mounted<'s>> {
        let found = site.recover(false)?;
        let (recovered, kept) = (job::recovered_lines(&found), job::kept_line(site, &found));
        if !self.args.json {
            recovered.iter().for_each(say);
            kept.iter().filter(|_| !self.args.quiet).for_each(say);
        }
        notes.extend(recovered.into_iter().chain(kept));
        let job = site.begin(job::options(&self.args.job, self.scratch.clone(), &self.args.command))?;
        let mut connection = Connection::private(&site.place, self.watcher)?;
        let options = FrontOptions {
            control: None,
            durable: self.args.job.durable,
        };
        let session = connection
            .serve(Front::new(job.clone(), options))
            .context("cannot serve the FUSE mount")?;
        let root = connection.open_root()?;
        Ok(Mounted {
            site,
            job,
            connection,
            root,
            _session: session,
        })
    }

    /// Runs the command to its end.
    fn command(&self, mounted: &mut [Mounted<'_>]) -> anyhow::Result<Verdict> {
        let early = self.early();
        if let Some(end) = early.iter().find(|arrival| arrival.is_ending()) {
            return Ok(Verdict::interrupted(end.number()));
        }
        let began = Instant::now();
        let mounts: Vec<_> = mounted.iter().map(|m| (&m.connection, &m.site.place)).collect();
        let events = self.events.clone();
        match child::start(&self.args.command, &mounts, self.state, events, self.watcher) {
            Ok(running) => {
                mounted.iter_mut().for_each(|m| m.connection.hide());
                self.command.store(running.process(), Ordering::Relaxed);
                early.iter().for_each(|arrival| running.pass_on(arrival));
                let verdict = self.wait(&running, began);
                self.command.store(0, Ordering::Relaxed);
                verdict
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

    fn not_run(&self, error: &std::io::Error) -> Verdict {
        let program = self
            .args
            .command
            .first()
            .map(|program| program.display().to_string())
            .unwrap_or_default();
        let what = error.raw_os_error().map_or_else(|| error.to_string(), strerror);
        Verdict {
            code: exit::of_exec_error(error),
            why: format!("cannot run {program}: {what}"),
            took: Duration::ZERO,
            may_be_retried: false,
        }
    }

    /// Waits like a shell. A signal to us alone goes on to the command; one to all of our process group it has already.
    fn wait(&self, running: &Running, began: Instant) -> anyhow::Result<Verdict> {
        let mut stopped = false;
        let mut witness = None;
        loop {
            match self.next(&mut witness)? {
                Event::Signal(arrival) => {
                    stopped |= arrival.is_ending();
                    pass_on(&arrival, running, &mut witness);
                }
                Event::Ended(status) => {
                    let status = status.context("cannot wait for the command")?;
                    return Ok(Verdict::of(status, began.elapsed(), stopped));
                }
                Event::Over => {}
            }
        }
    }

    /// The next event. A witness comes when the command has run for a moment: a short one does not pay for it.
    fn next(&self, witness: &mut Option<Witness>) -> anyhow::Result<Event> {
        if witness.is_none() {
            match self.happenings.recv_timeout(SHORT) {
                Err(RecvTimeoutError::Timeout) => *witness = Witness::start().ok(),
                event => return event.context(LOST),
            }
        }
        self.happenings.recv().context(LOST)
    }

    /// Commits or rolls back all jobs; also says whether a signal made it roll back.
    fn end(&self, mounted: &[Mounted<'_>], verdict: &Verdict, display: &mut Display) -> (Report, bool) {
        let (endings, interrupted) = std::thread::scope(|scope| {
            let (args, over) = (self.args, SayOver(self.events.clone()));
            let ending = scope.spawn(move || {
                let _over = over;
                end_all(args, mounted, verdict, display)
            });
            let interrupted = self.listen(mounted);
            (
                ending.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                interrupted,
            )
        });
        let report = self.report(mounted, verdict, &endings, interrupted);
        (report, interrupted.is_some())
    }

    fn report(
        &self,
        mounted: &[Mounted<'_>],
        verdict: &Verdict,
        endings: &[Ending],
        interrupted: Option<i32>,
    ) -> Report {
        let why = match interrupted {
            Some(signal) => format!("interrupted by {}", signals::name(signal)),
            None if verdict.code == 0 => "another directory of the job could not be committed".to_owned(),
            None => verdict.why.clone(),
        };
        let mut report = Report::new(&self.args.command, self.started);
        report.took(verdict.took);
        for (m, ending) in mounted.iter().zip(endings) {
            report.add(m.site.path(), m.job.name(), ending, &why);
        }
        report.exit_code = if verdict.code == 0 && !report.is_committed() {
            exit::ELBOW_FAILED
        } else {
            verdict.code
        };
        report
    }

    /// Until the end is over, a signal that ends programs makes jobs roll back that are still being stored. Who has made us
    /// ignore one means that, too.
    fn listen(&self, mounted: &[Mounted<'_>]) -> Option<i32> {
        let mut interrupted = None;
        loop {
            match self.happenings.recv() {
                Ok(Event::Signal(arrival)) if rolls_back(&arrival) => {
                    interrupted = Some(arrival.number());
                    mounted.iter().for_each(|m| m.job.interrupt());
                }
                Ok(Event::Signal(_) | Event::Ended(_)) => {}
                Ok(Event::Over) | Err(_) => return interrupted,
            }
        }
    }
}

fn rolls_back(arrival: &Arrival) -> bool {
    let signal = arrival.number();
    arrival.is_ending() && signal != libc::SIGQUIT && !signals::is_ignored(signal)
}

/// Passes a signal on to the command that has not got it yet.
fn pass_on(arrival: &Arrival, running: &Running, witness: &mut Option<Witness>) {
    let signal = arrival.number();
    if signal == libc::SIGXFSZ && !arrival.is_sent() {
        return; // what we write is too large, which the call has told
    }
    let came_to_all = match witness {
        Some(witness) => witness.saw(signal),
        None => FROM_A_TERMINAL.contains(&signal),
    };
    if came_to_all {
        // It has this signal for good now, and can witness it no more.
        *witness = None;
    } else if arrival.is_ending() || !running.has_sent(arrival) {
        running.pass_on(arrival);
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
struct SayOver(Sender<Event>);

impl Drop for SayOver {
    fn drop(&mut self) {
        // Nobody may be listening; that is fine.
        let _ = self.0.send(Event::Over);
    }
}

/// Ends all jobs in order.
fn end_all(args: &RunArgs, mounted: &[Mounted<'_>], verdict: &Verdict, display: &mut Display) -> Vec<Ending> {
    for m in mounted {
        m.settle(verdict.code == 0);
    }
    let mut good = verdict.code == 0;
    let end = |m: &Mounted<'_>| {
        let show = &mut |progress: &_| display.show(progress);
        let ending = if good {
            ending::commit(&m.job, args.keep, show)
        } else {
            ending::roll_back(&m.job, args.keep, show)
        };
        good &= ending.is_committed();
        ending
    };
    mounted.iter().map(end).collect()
}

impl Mounted<'_> {
    /// Stops changes. Before that, what processes left in the background have written through memory maps is
    /// fetched from the kernel, if it is to be kept.
    #[allow(clippy::disallowed_methods)] // the mount is synced, not the storage
    fn settle(&self, keep: bool) {
        if keep {
            // An error here is one of the job, which it has noted itself.
            let _ = rustix::fs::syncfs(&self.root);
        }
        self.job.freeze();
    }
}

impl Verdict {
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
        let of = |raw| Verdict::of(ExitStatus::from_raw(raw), Duration::ZERO, false);
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
        assert!(!Verdict::of(ExitStatus::from_raw(15), Duration::ZERO, true).may_be_retried);
        assert!(Verdict::of(ExitStatus::from_raw(1 << 8), Duration::ZERO, false).may_be_retried);
    }
}
