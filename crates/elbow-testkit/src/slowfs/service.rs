//! The service: a queue of requests and the workers that make each of them slow.
//!
//! Sans policy about files: a request here is an operation, a name, a number of bytes and something to do.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::thread::{UnshareFlags, set_current_timer_slack, unshare_unsafe};

use super::counters::{Counters, FaultCount, Op, RunningCounters};
use super::fault::{Fault, FaultPlan};
use super::{SlowOptions, UNLIMITED};

/// One request of the kernel.
pub(super) struct Request {
    pub(super) op: Op,
    /// What the operation is about, for faults that go by name.
    pub(super) name: OsString,
    /// Bytes of data that it carries.
    pub(super) bytes: u64,
    /// Does it and answers; `Some(errno)` means: answer with that error and do nothing.
    pub(super) serve: Box<dyn FnOnce(Option<i32>) + Send>,
}

/// The workers and what they share.
#[derive(Debug)]
pub(super) struct Service {
    shared: Arc<Shared>,
    workers: Mutex<Vec<JoinHandle<()>>>,
}

/// What the workers share.
struct Shared {
    state: Mutex<QueueState>,
    changed: Condvar,
    counters_now: Mutex<RunningCounters>,
    faults: Mutex<FaultPlan>,
    /// Nanoseconds per byte, and when the line is free again.
    line: Mutex<Bandwidth>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("tally", &self.counters_now)
            .finish_non_exhaustive()
    }
}

struct QueueState {
    queue: VecDeque<Request>,
    latency: Duration,
    paused: bool,
    stopped: bool,
}

struct Bandwidth {
    bytes_per_second: Option<u64>,
    free_at: Instant,
}

impl Service {
    pub(super) fn start(options: &SlowOptions) -> io::Result<Self> {
        let now = Instant::now();
        let shared = Arc::new(Shared {
            state: Mutex::new(QueueState {
                queue: VecDeque::new(),
                latency: options.latency,
                paused: false,
                stopped: false,
            }),
            changed: Condvar::new(),
            counters_now: Mutex::new(RunningCounters::new(now)),
            faults: Mutex::new(FaultPlan::new(options.faults.clone())),
            line: Mutex::new(Bandwidth {
                bytes_per_second: options.bandwidth,
                free_at: now,
            }),
        });
        let service = Self {
            shared,
            workers: Mutex::new(Vec::new()),
        };
        let limit = if options.concurrent == 0 {
            UNLIMITED
        } else {
            options.concurrent
        };
        for number in 0..limit {
            service.add_worker(number).inspect_err(|_| service.stop())?;
        }
        Ok(service)
    }

    fn add_worker(&self, number: usize) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let worker = thread::Builder::new()
            .name(format!("slowfs-{number}"))
            .spawn(move || shared.work())?;
        self.workers.lock().push(worker);
        Ok(())
    }

    /// Queues a request; the kernel bounds how many there can be.
    pub(super) fn submit(&self, request: Request) {
        self.shared.state.lock().queue.push_back(request);
        self.shared.changed.notify_one();
    }

    pub(super) fn moved(&self, op: Op, bytes: u64) {
        self.shared.counters_now.lock().moved(op, bytes);
    }

    /// Lets the workers finish what is queued and waits for them.
    pub(super) fn stop(&self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_all();
        let me = thread::current().id();
        for worker in self
            .workers
            .lock()
            .drain(..)
            .filter(|worker| worker.thread().id() != me)
        {
            if worker.join().is_err() {
                eprintln!("slowfs: a worker has panicked");
            }
        }
    }

    pub(super) fn counters(&self) -> Counters {
        let count = |(fault, fired): (&Fault, u64)| FaultCount {
            fault: fault.to_string(),
            fired,
        };
        let faults = self.shared.faults.lock().fired().map(count).collect();
        self.shared.counters_now.lock().snapshot(Instant::now(), faults)
    }

    pub(super) fn reset_counters(&self) {
        self.shared.faults.lock().reset();
        self.shared.counters_now.lock().reset(Instant::now());
    }

    pub(super) fn set_faults(&self, faults: Vec<Fault>) {
        *self.shared.faults.lock() = FaultPlan::new(faults);
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        self.shared.state.lock().latency = latency;
    }

    pub(super) fn set_paused(&self, paused: bool) {
        self.shared.state.lock().paused = paused;
        self.shared.changed.notify_all();
    }

    pub(super) fn waiting(&self) -> usize {
        self.shared.state.lock().queue.len()
    }
}

/// How late a sleep may end; the default of 50 microseconds would be a part of a short latency.
const TIMER_SLACK_NS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

impl Shared {
    fn work(&self) {
        prepare_thread();
        while let Some((request, latency)) = self.next() {
            self.counters_now.lock().begin(request.op, Instant::now());
            thread::sleep(latency + self.transfer_time(request.bytes));
            let struck = self.faults.lock().strike(request.op, &request.name);
            (request.serve)(struck);
            self.counters_now.lock().end(Instant::now());
        }
    }

    /// The next request, or `None` when there will be no more.
    fn next(&self) -> Option<(Request, Duration)> {
        let mut state = self.state.lock();
        loop {
            if !state.paused
                && let Some(request) = state.queue.pop_front()
            {
                return Some((request, state.latency));
            }
            if state.stopped {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// How long from now the last of these bytes is through, given all that were sent before.
    fn transfer_time(&self, bytes: u64) -> Duration {
        let mut line = self.line.lock();
        let Some(rate) = line.bytes_per_second.filter(|_| bytes > 0) else {
            return Duration::ZERO;
        };
        let now = Instant::now();
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        line.free_at = line.free_at.max(now) + Duration::from_nanos(nanoseconds.try_into().unwrap_or(u64::MAX));
        line.free_at - now
    }
}

/// Gives the thread a umask of its own and exact sleeps.
fn prepare_thread() {
    // SAFETY: only the attributes of `fs_struct` (umask, current directory) are unshared; descriptors stay shared.
    #[allow(unsafe_code)]
    let unshared = unsafe { unshare_unsafe(UnshareFlags::FS) };
    if let Err(error) = unshared {
        eprintln!("slowfs: cannot give a worker its own umask: {error}");
    }
    // An inexact sleep is only a slower storage.
    let _ = set_current_timer_slack(Some(TIMER_SLACK_NS));
}
