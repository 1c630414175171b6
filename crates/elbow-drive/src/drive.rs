//! The drive in real time: requests come from any thread, one thread of its own answers them.
//!
//! ```text
//!   attachments ──> inbox ──> DriveModel says when ──> Medium, just before ──> sleep until then ──> answer
//! ```
//!
//! Each request gets the time at which it was submitted, and is answered at the moment that the model says for it, never before. How much
//! after is the *lateness*, counted for each. A late answer delays nothing in the model: it goes on from its own times.
//!
//! How many requests may be outstanding is bounded by the attachments.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use elbow_disk::{Drive, Ps, SECTOR_BYTES, Times};
use serde::{Deserialize, Serialize};

use crate::block_device::{Answer, Ask, BlockDevice, DriveFault, Link, Reply, whole_sectors};
use crate::clock::{Moment, wake_first, wake_without_slack};
use crate::log::{AnsweredRequest, RequestLog};
use crate::medium::{CutReport, Medium};
use crate::model::{DriveModel, Driving, Motion};
use crate::unflushed::{Content, Write};

/// The last part of a wait is slept without looking at the inbox, and the backing file is read or written before it.
const MARGIN_NS: u64 = 150_000;
/// What reading or writing a byte of the backing file takes at most, if it is in memory, in thousandths of a nanosecond.
const MARGIN_PS_PER_BYTE: u64 = 2000;
/// And each write that a flush stores.
const MARGIN_NS_PER_WRITE: u64 = 20_000;
/// The drive's clock ends; it is the same bound as that of simulations.
const POWERED_MAX: Ps = Ps(Ps::SERVED_MAX.0 / 2);

/// What a drive is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model.
    pub drive: Arc<Drive>,
    /// How it is driven.
    pub driving: Driving,
    /// Sectors that are offered: the first ones of the model's.
    pub sectors: u64,
    /// Answers that are later than this are counted as too late.
    pub lateness_max: Option<Duration>,
}

/// How late answers were, in microseconds after the model's moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lateness {
    /// Half of them were no later.
    pub p50: f64,
    /// All but one in a hundred were no later.
    pub p99: f64,
    /// None was later.
    pub max: f64,
    /// How many were given.
    pub served: u64,
}

/// What the model says that requests took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// From submission to the model's moment of completion.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: f64,
    /// All but one in a hundred.
    pub p99: f64,
    /// None took longer.
    pub max: f64,
}

/// What a drive has done since it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// Requests that were answered at a moment of the model's.
    pub served: u64,
    /// Of those, reads.
    pub reads: u64,
    /// Writes, of zeros too.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// How late they were answered.
    pub lateness_us: Lateness,
    /// Answers later than the bound, if there is one.
    pub too_late: u64,
    /// What they took in the model.
    pub response_ms: Response,
    /// Writes that a power cut may lose, without those under way.
    pub unflushed_writes: usize,
    /// What they take in memory.
    pub unflushed_bytes: u64,
    /// Whether its thread is woken before all that is not real-time.
    pub realtime: bool,
    /// How often its power was cut.
    pub power_cuts: u64,
    /// Rows that its log could not take.
    pub log_rows_lost: u64,
}

enum Message {
    Ask {
        generation: u64,
        at: Moment,
        ask: Ask,
        reply: Reply,
    },
    Status(Sender<DriveStatus>),
    PowerCut {
        torn: bool,
        seed: u64,
        report: Sender<Result<CutReport, DriveFault>>,
    },
    Sync(Sender<Result<(), DriveFault>>),
    Stop(Sender<Result<DriveStatus, DriveFault>>),
}

/// The drive from when it was powered on until its power is cut.
struct PoweredDrive {
    inbox: Sender<Message>,
    generation: u64,
    sectors: u64,
}

impl BlockDevice for PoweredDrive {
    fn submit(&self, ask: Ask, reply: Reply) {
        let message = Message::Ask {
            generation: self.generation,
            at: Moment::now(),
            ask,
            reply,
        };
        if let Err(mpsc::SendError(Message::Ask { reply, .. })) = self.inbox.send(message) {
            reply(Err(DriveFault::NoPower));
        }
    }

    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn is_rotational(&self) -> bool {
        true
    }
}

/// A drive at work.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::Drive;
/// use elbow_drive::{Ask, Driving, EmulatedDrive, Settings};
///
/// let backing = tempfile::tempfile()?;
/// backing.set_len(1 << 20)?;
/// let settings = Settings {
///     drive: Arc::new(Drive::named("generic-7200")?.caching_writes()),
///     driving: Driving { scheduler: "sptf".parse()?, depth: 32, write_through: false },
///     sectors: 2048,
///     lateness_max: None,
/// };
/// let drive = EmulatedDrive::start(settings, backing)?;
/// let link = drive.link();
/// link.ask(Ask::Write { at: 8, data: vec![7; 512], through: false })?;
/// assert_eq!(link.ask(Ask::Read { at: 8, sectors: 1 })?, [7; 512]);
/// assert_eq!(drive.status()?.unflushed_writes, 1);
/// link.ask(Ask::Flush)?;
/// drive.power_cut(true, 1)?;
/// assert!(link.ask(Ask::Flush).is_err(), "of before the power cut");
/// assert_eq!(drive.link().ask(Ask::Read { at: 8, sectors: 1 })?, [7; 512]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EmulatedDrive {
    inbox: Sender<Message>,
    generation: Arc<AtomicU64>,
    sectors: u64,
    thread: Option<JoinHandle<()>>,
}

impl EmulatedDrive {
    /// Powers it on. The backing file has at least as many bytes as are offered.
    ///
    /// # Errors
    /// The thread cannot be started.
    ///
    /// # Panics
    /// Where more sectors are offered than the model has, or none.
    pub fn start(settings: Settings, backing: File) -> io::Result<Self> {
        Self::power_on(settings, backing, None)
    }

    /// The same, and writes a row for each read and write that is answered: `arrival_ms` since it was started, `op` (R or W), `lbn`, `sectors`, `response_ms` of the model and
    /// `late_us`, in the order in which they came. It is a trace that [`elbow_disk::trace`] reads. After a power cut the drive's angle begins anew, and the log's time goes on.
    ///
    /// # Errors
    /// A thread cannot be started, or the line of names not be written.
    ///
    /// # Panics
    /// As [`EmulatedDrive::start`].
    pub fn start_logged(settings: Settings, backing: File, log: Box<dyn io::Write + Send>) -> io::Result<Self> {
        Self::power_on(settings, backing, Some(RequestLog::start(log)?))
    }

    fn power_on(settings: Settings, backing: File, log: Option<RequestLog>) -> io::Result<Self> {
        let sectors = settings.sectors;
        assert!((1..=settings.drive.sectors()).contains(&sectors), "{sectors} sectors");
        let (inbox, messages) = mpsc::channel();
        let generation = Arc::new(AtomicU64::new(0));
        let mut worker = Worker::new(settings, Medium::new(backing), messages, Arc::clone(&generation));
        worker.log = log;
        let thread = std::thread::Builder::new()
            .name("elbow-drive".into())
            .spawn(move || worker.run())?;
        Ok(Self {
            inbox,
            generation,
            sectors,
            thread: Some(thread),
        })
    }

    /// A way to it, until its power is cut.
    #[must_use]
    pub fn link(&self) -> Link {
        Link::to(PoweredDrive {
            inbox: self.inbox.clone(),
            generation: self.generation.load(Ordering::Acquire),
            sectors: self.sectors,
        })
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// It is gone.
    pub fn status(&self) -> Result<DriveStatus, DriveFault> {
        self.tell(Message::Status)
    }

    /// Cuts its power, and gives it back: of what was not flushed any part is lost, by a seed; what is outstanding fails, and the drive
    /// is as when it was started.
    ///
    /// # Errors
    /// The backing file cannot be written.
    pub fn power_cut(&self, torn: bool, seed: u64) -> Result<CutReport, DriveFault> {
        self.tell(|report| Message::PowerCut { torn, seed, report })?
    }

    /// Stores all that is complete, safe from a crash of this machine, in no time of the model's.
    ///
    /// # Errors
    /// The backing file cannot be written; what it could not take is kept.
    pub fn sync(&self) -> Result<(), DriveFault> {
        self.tell(Message::Sync)?
    }

    /// Ends it: all that was written is stored, and safe from a crash of this machine. What is outstanding fails.
    ///
    /// # Errors
    /// The backing file cannot be written.
    pub fn stop(mut self) -> Result<DriveStatus, DriveFault> {
        let last = self.tell(Message::Stop)?;
        self.thread.take().map(JoinHandle::join);
        last
    }

    fn tell<T>(&self, message: impl FnOnce(Sender<T>) -> Message) -> Result<T, DriveFault> {
        let (tell, told) = mpsc::channel();
        // Where the thread has ended there is no answer.
        let _ = self.inbox.send(message(tell));
        told.recv().map_err(|_| DriveFault::NoPower)
    }
}

impl Drop for EmulatedDrive {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.tell(Message::Stop);
            let _ = thread.join();
        }
    }
}

/// What was counted.
#[derive(Debug, Default)]
struct Tally {
    lateness: Times,
    response: Times,
    response_sum_ms: f64,
    reads: u64,
    writes: u64,
    flushes: u64,
    too_late: u64,
}

impl Tally {
    fn add(&mut self, ask: &Ask, response: Ps, late: Ps, late_max: Option<Duration>) {
        self.lateness.add(late);
        self.response.add(response);
        self.response_sum_ms += response.ms();
        self.too_late += u64::from(late_max.is_some_and(|max| late.ms() > max.as_secs_f64() * 1e3));
        match ask {
            Ask::Read { .. } => self.reads += 1,
            Ask::Flush => self.flushes += 1,
            _ => self.writes += 1,
        }
    }

    fn lateness(&self) -> Lateness {
        let of = self.lateness.percentiles();
        let [p50, p99, max] = [of.p50, of.p99, of.max].map(|ms| ms * 1e3);
        let served = self.lateness.count();
        Lateness { p50, p99, max, served }
    }

    fn response(&self) -> Response {
        let of = self.response.percentiles();
        Response {
            mean: self.response_sum_ms / self.response.count().max(1) as f64,
            p50: of.p50,
            p99: of.p99,
            max: of.max,
        }
    }
}

/// The thread's own.
struct Worker {
    settings: Settings,
    medium: Medium,
    inbox: Receiver<Message>,
    /// Has come, and was not handled.
    unhandled: VecDeque<Message>,
    generation: Arc<AtomicU64>,
    tally: Tally,
    realtime: bool,
    power_cuts: u64,
    log: Option<RequestLog>,
    /// When its power came on first.
    attached: Option<Moment>,
}

/// Why the drive is not powered any more.
enum PowerEnd {
    Cut,
    Stopped,
}

impl Worker {
    fn new(settings: Settings, medium: Medium, inbox: Receiver<Message>, generation: Arc<AtomicU64>) -> Self {
        Self {
            settings,
            medium,
            inbox,
            unhandled: VecDeque::new(),
            generation,
            tally: Tally::default(),
            realtime: false,
            power_cuts: 0,
            log: None,
            attached: None,
        }
    }

    fn run(mut self) {
        self.realtime = wake_first();
        if !self.realtime {
            wake_without_slack();
        }
        let drive = Arc::clone(&self.settings.drive);
        let mut before = None;
        loop {
            before = Powered::on(&mut self, &drive, before.as_ref()).run();
            if before.is_none() {
                return;
            }
        }
    }

    fn status(&self) -> DriveStatus {
        let unflushed = self.medium.unflushed();
        DriveStatus {
            served: self.tally.lateness.count(),
            reads: self.tally.reads,
            writes: self.tally.writes,
            flushes: self.tally.flushes,
            lateness_us: self.tally.lateness(),
            too_late: self.tally.too_late,
            response_ms: self.tally.response(),
            unflushed_writes: unflushed.at_risk(),
            unflushed_bytes: unflushed.bytes(),
            realtime: self.realtime,
            power_cuts: self.power_cuts,
            log_rows_lost: self.log.as_ref().map_or(0, RequestLog::lost),
        }
    }

    /// Whether a write is on the medium when it is complete.
    fn is_durable(&self, through: bool) -> bool {
        through || self.settings.driving.write_through || !self.settings.drive.caches_writes()
    }
}

struct Pending {
    ask: Ask,
    submitted: Ps,
    reply: Reply,
    /// Its number in the log, if it has one.
    logged: Option<u64>,
}

/// From power on to power off.
struct Powered<'w, 'd> {
    worker: &'w mut Worker,
    model: DriveModel<'d>,
    /// When its power came on.
    since: Moment,
    /// How long after the first time that was.
    powered_after: Ps,
    pending: BTreeMap<u64, Pending>,
    next: u64,
    /// The time of the last request.
    last: Ps,
}

impl<'w, 'd> Powered<'w, 'd> {
    /// With what a power cut has left of the model `before`, if there was one.
    fn on(worker: &'w mut Worker, drive: &'d Arc<Drive>, before: Option<&(DriveModel<'d>, Ps)>) -> Self {
        let mut model = DriveModel::new(drive, worker.settings.driving);
        if let Some((before, cut)) = before {
            model = model.with_media_cache_of(before, *cut);
        }
        let since = Moment::now();
        let powered_after = since.since(*worker.attached.get_or_insert(since));
        Self {
            worker,
            model,
            since,
            powered_after,
            pending: BTreeMap::new(),
            next: 0,
            last: Ps::ZERO,
        }
    }

    /// The model as its power was cut, and when; none where it was stopped.
    fn run(mut self) -> Option<(DriveModel<'d>, Ps)> {
        loop {
            if let ControlFlow::Break(end) = self.step() {
                let cut = Moment::now().since(self.since).max(self.last);
                return matches!(end, PowerEnd::Cut).then_some((self.model, cut));
            }
        }
    }

    /// One message, or one answer.
    fn step(&mut self) -> ControlFlow<PowerEnd> {
        let message = match self.model.serving() {
            // All who could ask are gone: nothing comes any more.
            None => Some(self.next_message()),
            Some((id, end)) => self.wait(self.since.after(end).earlier(self.margin(id))),
        };
        match message {
            Some(Ok(message)) => self.handle(message),
            Some(Err(end)) => ControlFlow::Break(end),
            None => {
                self.serve();
                ControlFlow::Continue(())
            }
        }
    }

    fn next_message(&mut self) -> Result<Message, PowerEnd> {
        let unhandled = self.worker.unhandled.pop_front().map(Ok);
        unhandled.unwrap_or_else(|| self.worker.inbox.recv().map_err(|_| PowerEnd::Stopped))
    }

    /// A message that comes before a moment.
    fn wait(&mut self, until: Moment) -> Option<Result<Message, PowerEnd>> {
        if let Some(message) = self.worker.unhandled.pop_front() {
            return Some(Ok(message));
        }
        let left = until.0.saturating_sub(Moment::now().0);
        // Also where nothing is left: what has come meanwhile is known to the drive when it picks.
        match self.worker.inbox.recv_timeout(Duration::from_nanos(left)) {
            Ok(message) => Some(Ok(message)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(PowerEnd::Stopped)),
        }
    }

    /// How long before its end a request's work on the backing file begins.
    fn margin(&self, id: u64) -> u64 {
        let bytes_and_writes = match &self.pending[&id].ask {
            Ask::Read { sectors, .. } => (u64::from(*sectors) * SECTOR_BYTES, 1),
            Ask::Write { data, .. } => (data.len() as u64, 1),
            Ask::Flush => (
                self.worker.medium.unflushed().bytes(),
                self.worker.medium.unflushed().len() as u64,
            ),
            Ask::WriteZeros { .. } | Ask::Trim { .. } => (0, 1),
        };
        let (bytes, writes) = bytes_and_writes;
        MARGIN_NS + bytes * MARGIN_PS_PER_BYTE / 1000 + writes * MARGIN_NS_PER_WRITE
    }

    fn handle(&mut self, message: Message) -> ControlFlow<PowerEnd> {
        match message {
            Message::Ask {
                generation,
                at,
                ask,
                reply,
            } => match generation == self.worker.generation.load(Ordering::Relaxed) {
                true => self.accept(at, ask, reply),
                false => reply(Err(DriveFault::NoPower)),
            },
            Message::Status(tell) => drop(tell.send(self.worker.status())),
            Message::PowerCut { torn, seed, report } => {
                let _ = report.send(self.cut(torn, seed));
                return ControlFlow::Break(PowerEnd::Cut);
            }
            Message::Sync(tell) => drop(tell.send(self.sync())),
            Message::Stop(tell) => {
                self.refuse_all();
                if let Some(log) = &mut self.worker.log {
                    log.finish();
                }
                let last = self.sync();
                let _ = tell.send(last.map(|()| self.worker.status()));
                return ControlFlow::Break(PowerEnd::Stopped);
            }
        }
        ControlFlow::Continue(())
    }

    fn accept(&mut self, at: Moment, ask: Ask, reply: Reply) {
        let now = at.since(self.since).max(self.last);
        // The model has to be where the request finds it, however late this thread is.
        while self.model.serving().is_some_and(|(_, end)| end <= now) {
            self.serve();
        }
        self.last = now;
        if now > POWERED_MAX {
            return reply(Err(DriveFault::NoPower));
        }
        let motion = match self.motion(&ask) {
            Ok(Some(motion)) => motion,
            Ok(None) => return reply(self.carry_out(&ask)),
            Err(fault) => return reply(Err(fault)),
        };
        let id = self.next;
        self.next += 1;
        let submitted = now;
        let log = self.worker.log.as_mut().filter(|_| !matches!(motion, Motion::Flush));
        let logged = log.map(RequestLog::begin);
        let pending = Pending {
            ask,
            submitted,
            reply,
            logged,
        };
        self.pending.insert(id, pending);
        self.model.submit(now, id, motion);
    }

    /// What the mechanics do for a request; nothing for a trim.
    fn motion(&self, ask: &Ask) -> Result<Option<Motion>, DriveFault> {
        let (at, sectors, motion) = match *ask {
            Ask::Flush => return Ok(Some(Motion::Flush)),
            Ask::Read { at, sectors } => (at, sectors, Some(Motion::Read { at, sectors })),
            Ask::Write { at, ref data, through } => {
                let sectors = whole_sectors(data)?;
                (at, sectors, Some(Motion::Write { at, sectors, through }))
            }
            Ask::WriteZeros { at, sectors, through } => (at, sectors, Some(Motion::Write { at, sectors, through })),
            Ask::Trim { at, sectors, .. } => (at, sectors, None),
        };
        let end = at.checked_add(u64::from(sectors));
        let is_there = sectors > 0 && end.is_some_and(|end| end <= self.worker.settings.sectors);
        is_there.then_some(motion).ok_or(DriveFault::NoSuchSectors)
    }

    /// Answers what is being served, at its moment.
    fn serve(&mut self) {
        let Some((id, end)) = self.model.serving() else { return };
        let moment = self.since.after(end);
        let pending = self.pending.remove(&id).expect("it was submitted");
        let answer = self.carry_out(&pending.ask);
        moment.sleep_until();
        let late = Moment::now().since(moment);
        let lateness_max = self.worker.settings.lateness_max;
        let response = end - pending.submitted;
        self.worker.tally.add(&pending.ask, response, late, lateness_max);
        self.log(&pending, response, late);
        (pending.reply)(answer);
        self.take_in(end);
        self.model.complete();
    }

    /// Takes what came before a time and was not heard of while this slept: the drive knows of it when it picks.
    fn take_in(&mut self, before: Ps) {
        let worker = &mut self.worker;
        worker.unhandled.extend(worker.inbox.try_iter());
        let (since, generation) = (self.since, self.worker.generation.load(Ordering::Relaxed));
        let is_earlier = |message: &Message| match message {
            Message::Ask { generation: of, at, .. } => *of == generation && at.since(since) < before,
            _ => false,
        };
        while self.worker.unhandled.front().is_some_and(is_earlier)
            && let Some(Message::Ask { at, ask, reply, .. }) = self.worker.unhandled.pop_front()
        {
            self.accept(at, ask, reply);
        }
    }

    fn log(&self, pending: &Pending, response: Ps, late: Ps) {
        let (Some(log), Some(number)) = (&self.worker.log, pending.logged) else {
            return;
        };
        let (is_write, lbn, sectors) = match pending.ask {
            Ask::Read { at, sectors } => (false, at, sectors),
            Ask::Write { at, ref data, .. } => (true, at, (data.len() as u64 / SECTOR_BYTES) as u32),
            Ask::WriteZeros { at, sectors, .. } | Ask::Trim { at, sectors, .. } => (true, at, sectors),
            Ask::Flush => unreachable!("a flush has no number"),
        };
        let answered = AnsweredRequest {
            arrival: self.powered_after + pending.submitted,
            is_write,
            lbn,
            sectors,
            response,
            late,
        };
        log.end(number, Some(answered));
    }

    fn carry_out(&mut self, ask: &Ask) -> Answer {
        let medium = &mut self.worker.medium;
        let done = match ask {
            Ask::Read { at, sectors } => medium.read(*at..at + u64::from(*sectors)),
            Ask::Flush => medium.flush().map(|()| Vec::new()),
            _ => match self.write_of(ask) {
                Some(write) => self.worker.medium.write(write).map(|()| Vec::new()),
                None => Ok(Vec::new()),
            },
        };
        done.map_err(|error| DriveFault::backing(&error))
    }

    /// What a request writes, if it does.
    fn write_of(&self, ask: &Ask) -> Option<Write> {
        let (at, content, through) = match ask {
            Ask::Write { at, data, through } => (*at, Content::Bytes(data.clone()), *through),
            Ask::WriteZeros { at, sectors, through } | Ask::Trim { at, sectors, through } => {
                (*at, Content::Zeros(u64::from(*sectors)), *through)
            }
            Ask::Read { .. } | Ask::Flush => return None,
        };
        let durable = self.worker.is_durable(through);
        Some(Write { at, content, durable })
    }

    fn cut(&mut self, torn: bool, seed: u64) -> Result<CutReport, DriveFault> {
        let at_risk = |write: Write| Write {
            durable: false,
            ..write
        };
        let under_way = self.pending.values().filter_map(|pending| self.write_of(&pending.ask));
        let under_way = under_way.map(at_risk).collect();
        let report = self.worker.medium.power_cut(under_way, torn, seed);
        self.worker.generation.fetch_add(1, Ordering::Release);
        self.worker.power_cuts += 1;
        self.refuse_all();
        report.map_err(|error| DriveFault::backing(&error))
    }

    fn sync(&mut self) -> Result<(), DriveFault> {
        let stored = self.worker.medium.sync();
        stored.map_err(|error| DriveFault::backing(&error))
    }

    fn refuse_all(&mut self) {
        for (_, pending) in std::mem::take(&mut self.pending) {
            if let (Some(log), Some(number)) = (&self.worker.log, pending.logged) {
                log.end(number, None);
            }
            (pending.reply)(Err(DriveFault::NoPower));
        }
    }
}
