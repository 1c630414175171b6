//! A file or block device with many requests really in flight: threads with ordinary reads and writes.
//!
//! ```text
//!   submit ──place chosen──> waiting, in order ──first that may begin──> one of the threads ──> done ──> poll, wait
//!                            └ behind a barrier, or a place that overlaps one before it
//! ```
//!
//! What always holds: at most as many requests are in flight as there are threads; two whose places overlap are not,
//! unless both read. The place of a range write is chosen when it is submitted, so that it is ordered by it from then
//! on.
//!
//! Not here: io_uring, which needs kernels that containers often forbid.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use elbow_ranges::RangeSet;
use parking_lot::{Condvar, Mutex};

use super::file::{Sectors, open};
use super::places::{check_deadline, first_aligned_fit, free_targets};
use super::{Clock, Completion, Done, GivenPlaces, RangeDevice, RangeError, Request, Shape, Ticket};
use crate::{Handle, RealStorage, Storage};

/// Threads of one device: devices with longer queues gain nothing by more, and each has a stack.
pub const THREADS_MAX: usize = 256;

/// A file or block device as a range device with so many requests in flight. A range write gets the first place that
/// fits. A barrier waits for what was submitted before it, and does not sync; a flush is fsync(2) besides.
///
/// When it is dropped, what has begun is finished, and what has not is forgotten.
///
/// ```
/// use elbow_file::range_device::{RangeDevice, Request, ThreadedDevice};
///
/// let file = tempfile::NamedTempFile::new()?;
/// file.as_file().set_len(1 << 20)?;
/// let mut device = ThreadedDevice::open(file.path(), 4096, 8)?;
/// let targets = [0..256].into_iter().collect();
/// for _ in 0..16 {
///     device.submit(Request::WriteRange { targets: &targets, alignment: 4, data: &[1; 4 * 4096] })?;
/// }
/// assert_eq!(std::iter::from_fn(|| device.wait()).filter(|done| done.result.is_ok()).count(), 16);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ThreadedDevice {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    tickets: u64,
    given: GivenPlaces,
}

struct Shared {
    sectors: Sectors,
    started: Instant,
    state: Mutex<State>,
    /// For threads: something may begin.
    may_begin: Condvar,
    /// For the owner: something is done.
    is_done: Condvar,
}

#[derive(Default)]
struct State {
    /// Not begun, in the order of submission; as long as the caller makes it.
    waiting: VecDeque<Job>,
    running: BTreeMap<Ticket, Place>,
    done: VecDeque<Completion>,
    waker: Option<Waker>,
    closing: bool,
}

struct Job {
    ticket: Ticket,
    work: Work,
    begin_by: Option<Duration>,
}

enum Work {
    Read(Range<u64>),
    Write(u64, Vec<u8>),
    Barrier,
    Flush,
}

/// What others must not touch while it is in use.
#[derive(Clone, PartialEq, Eq)]
enum Place {
    Read(Range<u64>),
    Write(Range<u64>),
    Everything,
}

impl Place {
    fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Everything, _) | (_, Self::Everything) => true,
            (Self::Read(_), Self::Read(_)) => false,
            (Self::Read(a) | Self::Write(a), Self::Read(b) | Self::Write(b)) => a.start < b.end && b.start < a.end,
        }
    }
}

impl ThreadedDevice {
    /// Opens a regular file or block device like [`FileDevice::open`](super::FileDevice::open).
    ///
    /// # Errors
    /// Those of [`FileDevice::open`](super::FileDevice::open), and of making threads.
    ///
    /// # Panics
    /// Like [`new`](Self::new).
    pub fn open(path: &Path, sector_bytes: u32, threads: usize) -> crate::Result<Self> {
        let (file, bytes) = open(path, sector_bytes)?;
        Self::new(Arc::new(RealStorage), file, sector_bytes, bytes, threads)
    }

    /// Takes an open file of so many bytes on any storage, a double for example.
    ///
    /// # Errors
    /// EAGAIN where a thread cannot be made.
    ///
    /// # Panics
    /// If a sector has no bytes, or there are no threads or more than [`THREADS_MAX`].
    pub fn new(
        storage: Arc<dyn Storage>,
        file: Handle,
        sector_bytes: u32,
        bytes: u64,
        threads: usize,
    ) -> crate::Result<Self> {
        assert!(sector_bytes > 0, "a sector has bytes");
        assert!((1..=THREADS_MAX).contains(&threads), "1 to {THREADS_MAX} threads");
        let sectors = bytes / u64::from(sector_bytes);
        let shape = Shape { sector_bytes, sectors };
        let mut device = Self {
            shared: Arc::new(Shared {
                sectors: Sectors::new(storage, file, shape),
                started: Instant::now(),
                state: Mutex::default(),
                may_begin: Condvar::new(),
                is_done: Condvar::new(),
            }),
            threads: Vec::new(),
            tickets: 0,
            given: GivenPlaces::default(),
        };
        for _ in 0..threads {
            let shared = Arc::clone(&device.shared);
            let thread = std::thread::Builder::new().name("elbow-range".into());
            let thread = thread.spawn(move || shared.serve()).map_err(|_| crate::Errno::AGAIN)?;
            device.threads.push(thread);
        }
        Ok(device)
    }

    fn take(&mut self, request: Request<'_>, begin_by: Option<Duration>) -> Result<Ticket, RangeError> {
        let shape = self.shape();
        shape.check(&request)?;
        check_deadline(&request, begin_by)?;
        let ticket = Ticket(self.tickets + 1);
        let work = match request {
            Request::Read { at, sectors } => Work::Read(at..at + sectors),
            Request::Write { at, data } => Work::Write(at, data.to_vec()),
            Request::WriteRange {
                targets,
                alignment,
                data,
            } => {
                let sectors = shape.length(data)?;
                let at = self.pick(targets, alignment, sectors)?;
                self.given.give(ticket, at..at + sectors);
                Work::Write(at, data.to_vec())
            }
            Request::Barrier | Request::Flush => {
                let known = self.given.barrier();
                self.given.forget(&known); // who is before it has its place already
                match request {
                    Request::Flush => Work::Flush,
                    _ => Work::Barrier,
                }
            }
        };
        self.tickets += 1;
        let job = Job { ticket, work, begin_by };
        self.shared.state.lock().waiting.push_back(job);
        self.shared.may_begin.notify_one();
        Ok(ticket)
    }

    fn pick(&self, targets: &RangeSet, alignment: u64, sectors: u64) -> Result<u64, RangeError> {
        let free = free_targets(targets, self.given.all(), sectors, alignment)?;
        Ok(first_aligned_fit(&free, sectors, alignment).expect("there is one"))
    }

    fn hand_out(&mut self, completion: Completion) -> Completion {
        self.given.tell(&completion);
        completion
    }
}

impl Drop for ThreadedDevice {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.waiting.clear();
        state.closing = true;
        drop(state);
        self.shared.may_begin.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // its panic was told
        }
    }
}

impl Work {
    fn place(&self, shape: Shape) -> Place {
        match self {
            Self::Read(place) => Place::Read(place.clone()),
            Self::Write(at, data) => Place::Write(*at..*at + data.len() as u64 / u64::from(shape.sector_bytes)),
            Self::Barrier | Self::Flush => Place::Everything,
        }
    }
}

impl State {
    /// Takes out the first request that may begin, and ends those that are too late on the way.
    fn next(&mut self, shape: Shape, now: Duration) -> Option<Job> {
        self.end_late(now);
        let mut before: Vec<Place> = self.running.values().cloned().collect();
        for index in 0..self.waiting.len() {
            let place = self.waiting[index].work.place(shape);
            if !before.iter().any(|other| other.excludes(&place)) {
                let job = self.waiting.remove(index).expect("it is there");
                self.running.insert(job.ticket, place);
                return Some(job);
            }
            if place == Place::Everything {
                return None; // nothing passes it
            }
            before.push(place);
        }
        None
    }

    /// Whether there were any.
    fn end_late(&mut self, now: Duration) -> bool {
        let before = self.done.len();
        let Self { waiting, done, .. } = self;
        waiting.retain(|job| {
            let late = job.begin_by.filter(|&begin_by| begin_by < now);
            if let Some(begin_by) = late {
                let (ticket, result) = (job.ticket, Err(RangeError::Late { begin_by }));
                done.push_back(Completion {
                    ticket,
                    result,
                    at: now,
                });
            }
            late.is_none()
        });
        self.done.len() > before
    }

    /// The first deadline of those that have not begun.
    fn deadline(&self) -> Option<Duration> {
        self.waiting.iter().filter_map(|job| job.begin_by).min()
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty() && self.done.is_empty()
    }
}

impl Shared {
    /// What each thread does.
    fn serve(&self) {
        while let Some(job) = self.next() {
            let result = self.carry_out(&job.work);
            let mut state = self.state.lock();
            state.running.remove(&job.ticket);
            let (ticket, at) = (job.ticket, self.started.elapsed());
            state.done.push_back(Completion { ticket, result, at });
            self.tell(state);
        }
    }

    /// Something is done, and so something else may begin.
    fn tell(&self, state: parking_lot::MutexGuard<'_, State>) {
        let waker = state.waker.clone();
        drop(state);
        self.is_done.notify_one();
        self.may_begin.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits for a request that may begin; `None` when the device is dropped.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if state.closing {
                return None;
            }
            let done = state.done.len();
            let job = state.next(self.sectors.shape, self.started.elapsed());
            if state.done.len() > done {
                self.tell(state); // of those that came too late
                state = self.state.lock();
            }
            if job.is_some() {
                return job;
            }
            if state.done.len() == done && !state.closing {
                self.may_begin.wait(&mut state);
            }
        }
    }

    fn carry_out(&self, work: &Work) -> Result<Done, RangeError> {
        match work {
            Work::Read(place) => self.sectors.read(place),
            Work::Write(at, data) => self.sectors.write(*at, data),
            Work::Barrier => Ok(Done::Passed),
            Work::Flush => self.sectors.flush(),
        }
    }
}

impl RangeDevice for ThreadedDevice {
    fn shape(&self) -> Shape {
        self.shared.sectors.shape
    }

    fn submit(&mut self, request: Request<'_>) -> Result<Ticket, RangeError> {
        self.take(request, None)
    }

    fn poll(&mut self) -> Option<Completion> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        if state.end_late(shared.started.elapsed()) {
            shared.may_begin.notify_all();
        }
        let completion = state.done.pop_front();
        drop(state);
        completion.map(|completion| self.hand_out(completion))
    }

    fn wait(&mut self) -> Option<Completion> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.state.lock();
        let completion = loop {
            if state.end_late(shared.started.elapsed()) {
                shared.may_begin.notify_all();
            }
            if let Some(completion) = state.done.pop_front() {
                break completion;
            }
            if state.is_idle() {
                return None;
            }
            let until = state
                .deadline()
                .and_then(|deadline| shared.started.checked_add(deadline));
            match until.and_then(|until| until.checked_add(Duration::from_nanos(1))) {
                None => shared.is_done.wait(&mut state),
                Some(until) => drop(shared.is_done.wait_until(&mut state, until)),
            }
        };
        drop(state);
        Some(self.hand_out(completion))
    }

    fn submit_by(&mut self, request: Request<'_>, begin_by: Duration) -> Result<Ticket, RangeError> {
        self.take(request, Some(begin_by))
    }

    fn cancel(&mut self, ticket: Ticket) -> Result<(), RangeError> {
        let mut state = self.shared.state.lock();
        let waits = |job: &Job| job.ticket == ticket && !matches!(job.work, Work::Barrier | Work::Flush);
        let index = state
            .waiting
            .iter()
            .position(waits)
            .ok_or(RangeError::Begun { ticket })?;
        state.waiting.remove(index);
        let (result, at) = (Err(RangeError::Cancelled), self.shared.started.elapsed());
        state.done.push_back(Completion { ticket, result, at });
        self.shared.tell(state); // a barrier behind it may begin
        Ok(())
    }

    fn clock(&self) -> Clock {
        Clock::Real(self.shared.started.elapsed())
    }

    fn next_completion_at(&mut self) -> Option<Duration> {
        let state = self.shared.state.lock();
        let done = state.done.front().map(|completion| completion.at);
        done.or_else(|| {
            state
                .deadline()
                .map(|deadline| deadline.saturating_add(Duration::from_nanos(1)))
        })
    }

    fn wake(&mut self, waker: &Waker) -> bool {
        let mut state = self.shared.state.lock();
        state.waker = Some(waker.clone());
        true
    }
}
