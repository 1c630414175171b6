//! Writing a trace: whoever has something to tell makes a line of it, and one thread writes the lines.
//!
//! ```text
//!   workers, front end, the end of a job ──> queue of LINES_MAX lines ──> thread ──> FILE
//! ```
//!
//! What is written waits in memory for [`FLUSH`] at most, so that a process that is killed leaves all but its last moment. When the queue is full
//! whoever has something to tell waits: the trace is whole, and takes no more memory however long the job is. The first write that fails ends the
//! trace, and not the job.

#![allow(
    clippy::disallowed_methods,
    reason = "a file named on the command line, not the storage of a job"
)]

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use elbow_job::{ActionRecord, Counts, EndStep, Recorder, WaitRecord, Worker};

use super::event::{Args, Begin, COMMAND, Category, Event, Phase, RUN, STEPS, Scope, VERSION};
use crate::control::counts_object;
use crate::job_server::unix_seconds;
use crate::names::CommandWords;

/// Lines that wait to be written, of some 200 bytes each.
const LINES_MAX: usize = 4096;
/// What is written reaches the file after this time at the latest.
const FLUSH: Duration = Duration::from_millis(200);
/// Where nothing happens for so long, it is told that nothing does: a job that was killed while it waited has waited until then.
const ALIVE: Duration = Duration::from_secs(5);
/// Numbers of what carries actions out far away begin here, above those of all threads.
const FAR_TID: u32 = 10_000_000;

/// The file of a trace that has not begun.
pub(crate) struct OpenTrace {
    path: PathBuf,
    file: File,
}

/// A trace that is being written.
pub(crate) struct TraceFile {
    path: PathBuf,
    lines: Lines,
    jobs: AtomicU32,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What a job tells its trace.
#[derive(Debug)]
pub(crate) struct JobTrace {
    lines: Lines,
    pid: u32,
}

/// Where lines go.
#[derive(Clone, Debug)]
struct Lines {
    began: Instant,
    /// `None` is the last.
    queue: SyncSender<Option<String>>,
    /// Threads that have been named.
    named: Arc<Mutex<HashSet<(u32, u32)>>>,
}

impl OpenTrace {
    /// Opens the file; what was in it is gone.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        ensure!(
            path != Path::new("-"),
            "--trace -: standard output is the command's; name a file, or write ./- for one of this name"
        );
        let file = File::create(path).with_context(|| format!("--trace {}: cannot write the trace", path.display()))?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    /// Begins the trace of a command. From here on there is a thread.
    pub(crate) fn begin(self, command: &[OsString], started: SystemTime) -> anyhow::Result<TraceFile> {
        let Self { path, file } = self;
        let (queue, lines) = sync_channel(LINES_MAX);
        let began = Instant::now();
        let thread = std::thread::Builder::new()
            .name("elbow-trace".into())
            .spawn(move || write_all(&lines, BufWriter::new(file), began))
            .context("cannot start a thread")?;
        let trace = TraceFile {
            path,
            lines: Lines {
                began,
                queue,
                named: Arc::default(),
            },
            jobs: AtomicU32::new(RUN),
            thread: Some(thread),
        };
        trace.lines.tell(&begin_of(command, started));
        trace.lines.name("process_name", RUN, STEPS, "elbow run".to_owned());
        trace.lines.name("thread_name", RUN, STEPS, "command".to_owned());
        Ok(trace)
    }
}

impl TraceFile {
    /// One more job, over this directory.
    pub(crate) fn job(&self, directory: &Path) -> Arc<JobTrace> {
        let pid = self.jobs.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("job over {}", directory.display());
        self.lines.name("process_name", pid, STEPS, name);
        self.lines.name("thread_name", pid, STEPS, "end of the job".to_owned());
        Arc::new(JobTrace {
            lines: self.lines.clone(),
            pid,
        })
    }

    /// The command runs from here on.
    pub(crate) fn command_begins(&self) {
        self.lines.step(COMMAND, Phase::Begin, RUN, Args::default());
    }

    /// The command has ended.
    pub(crate) fn command_ends(&self) {
        self.lines.step(COMMAND, Phase::End, RUN, Args::default());
    }

    /// Nothing more is told: the file is complete when this returns. What kept it from that, in a sentence for people.
    pub(crate) fn end(mut self) -> Option<String> {
        // The thread may have given up: then it says so.
        let _ = self.lines.queue.send(None);
        let ended = self.thread.take()?.join().unwrap_or(Ok(()));
        let error = ended.err()?;
        Some(format!(
            "--trace {}: the trace is not complete: {error}",
            self.path.display()
        ))
    }
}

impl JobTrace {
    /// The numbers of the job, which has ended.
    pub(crate) fn ended(&self, counts: &Counts) {
        let mut event = Event::new("job", Category::Job, Phase::Instant, self.pid, STEPS, self.lines.now());
        event.s = Some(Scope::Process);
        event.args.counts = Some(counts_object(counts));
        self.lines.tell(&event);
    }
}

impl Recorder for JobTrace {
    fn action(&self, action: &ActionRecord<'_>) {
        let (tid, name) = match action.worker {
            Worker::Thread(tid) => (tid, "worker"),
            Worker::Far(lane) => (FAR_TID + lane, "far end"),
        };
        self.lines.name_thread(self.pid, tid, name);
        let args = Args {
            path: Some(shown(action.path)),
            bytes: Some(action.bytes),
            calls: Some(action.calls),
            merged: Some(action.merged),
            queued: Some(self.lines.at(action.queued)),
            errno: action.refused.map(|errno| errno.raw_os_error()),
            ..Args::default()
        };
        let span = (action.began, action.ended);
        self.lines
            .complete(action.operation, Category::Action, (self.pid, tid), span, args);
    }

    fn wait(&self, wait: &WaitRecord<'_>) {
        self.lines.name_thread(self.pid, wait.thread, "command waits");
        let args = Args {
            path: Some(shown(wait.path)),
            bytes: Some(wait.bytes),
            ..Args::default()
        };
        let span = (wait.began, wait.ended);
        self.lines
            .complete(wait.reason.name(), Category::Wait, (self.pid, wait.thread), span, args);
    }

    fn step_begins(&self, step: EndStep) {
        self.lines.step(step.name(), Phase::Begin, self.pid, Args::default());
    }

    fn step_ends(&self, step: EndStep, done: u64, bytes: u64) {
        let args = Args {
            done: Some(done),
            bytes: Some(bytes),
            ..Args::default()
        };
        self.lines.step(step.name(), Phase::End, self.pid, args);
    }
}

impl Lines {
    fn at(&self, instant: Instant) -> f64 {
        microseconds(self.began, instant)
    }

    fn now(&self) -> f64 {
        self.at(Instant::now())
    }

    fn tell(&self, event: &Event) {
        // Numbers and text: there is nothing that JSON does not have.
        if let Ok(line) = serde_json::to_string(event) {
            // The thread may have given up, or be gone with the trace: then nobody wants to know.
            let _ = self.queue.send(Some(line));
        }
    }

    fn complete(
        &self,
        name: &str,
        cat: Category,
        (pid, tid): (u32, u32),
        (began, ended): (Instant, Instant),
        args: Args,
    ) {
        let mut event = Event::new(name, cat, Phase::Complete, pid, tid, self.at(began));
        event.dur = Some(microseconds(began, ended));
        event.args = args;
        self.tell(&event);
    }

    fn step(&self, name: &str, ph: Phase, pid: u32, args: Args) {
        let mut event = Event::new(name, Category::Step, ph, pid, STEPS, self.now());
        event.args = args;
        self.tell(&event);
    }

    fn name(&self, what: &str, pid: u32, tid: u32, name: String) {
        self.tell(&Event::naming(what, pid, tid, name));
    }

    /// Names a thread when it is told of first.
    fn name_thread(&self, pid: u32, tid: u32, name: &str) {
        let is_new = self
            .named
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert((pid, tid));
        if is_new {
            self.name("thread_name", pid, tid, format!("{name} {tid}"));
        }
    }
}

fn begin_of(command: &[OsString], started: SystemTime) -> Event {
    let mut event = Event::new("elbow run", Category::Trace, Phase::Instant, RUN, STEPS, 0.0);
    event.s = Some(Scope::Global);
    event.args.begin = Some(Begin {
        version: VERSION,
        elbow: env!("CARGO_PKG_VERSION").to_owned(),
        command: CommandWords::of(command),
        started_unix_seconds: unix_seconds(started),
    });
    event
}

/// A path below the directory of a job; the directory itself is `.`.
fn shown(path: &Path) -> String {
    match path.as_os_str().is_empty() {
        true => ".".to_owned(),
        false => path.to_string_lossy().into_owned(),
    }
}

/// Writes lines until the last one.
fn write_all(lines: &Receiver<Option<String>>, mut file: impl Write, began: Instant) -> io::Result<()> {
    let mut before = "[\n";
    let mut write = |file: &mut dyn Write, line: &str| {
        file.write_all(before.as_bytes())?;
        before = ",\n";
        file.write_all(line.as_bytes())
    };
    let (mut flushed, mut told) = (Instant::now(), Instant::now());
    loop {
        match lines.recv_timeout(FLUSH) {
            Ok(None) | Err(RecvTimeoutError::Disconnected) => break,
            Ok(Some(line)) => {
                write(&mut file, &line)?;
                told = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) if told.elapsed() >= ALIVE => {
                let ts = microseconds(began, Instant::now());
                let alive = Event::new("alive", Category::Trace, Phase::Instant, RUN, STEPS, ts);
                write(&mut file, &serde_json::to_string(&alive)?)?;
                told = Instant::now();
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if flushed.elapsed() >= FLUSH {
            file.flush()?;
            flushed = Instant::now();
        }
    }
    file.write_all(b"\n]\n")?;
    file.flush()
}

/// Microseconds since the beginning, in whole nanoseconds.
fn microseconds(began: Instant, at: Instant) -> f64 {
    at.saturating_duration_since(began).as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(send: impl FnOnce(&TraceFile)) -> String {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("trace");
        let opened = OpenTrace::open(&path).expect("a file");
        let trace = opened.begin(&["make".into()], SystemTime::UNIX_EPOCH).expect("a trace");
        send(&trace);
        assert_eq!(trace.end(), None);
        std::fs::read_to_string(path).expect("text")
    }

    #[test]
    fn a_whole_trace_is_json_with_an_event_a_line() {
        let text = written(|trace| {
            trace.command_begins();
            trace.job(Path::new("/a \"b\"")).step_begins(EndStep::Sync);
            trace.command_ends();
        });
        let all: Vec<Event> = serde_json::from_str(&text).expect("JSON");
        assert_eq!(text.lines().count(), all.len() + 2, "{text}");
        assert_eq!(all[0].args.begin.as_ref().map(|begin| begin.version), Some(VERSION));
        assert!(all.iter().any(|event| event.name == "sync" && event.pid == RUN + 1));
    }

    #[test]
    fn a_full_disk_ends_the_trace_and_not_the_job() {
        let opened = OpenTrace::open(Path::new("/dev/full")).expect("a full device");
        let trace = opened.begin(&[], SystemTime::UNIX_EPOCH).expect("a trace");
        let job = trace.job(Path::new("/a"));
        (0..10_000).for_each(|_| job.step_begins(EndStep::Drain));
        let said = trace.end().expect("it says so");
        assert!(said.contains("not complete") && said.contains("No space"), "{said}");
        job.step_begins(EndStep::Drain); // nobody waits
    }
}
