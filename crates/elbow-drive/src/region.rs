//! A write-ahead region as a block device: requests come from any thread, one thread of its own answers them, in order.
//!
//! ```text
//!   attachments ──> inbox ──> Region: a write is a record, a trim frees places, a flush is one of the device below
//! ```
//!
//! Flushes that wait together are one: their answers are held back until nothing more is in the inbox, or [`ASKED_BEHIND_MAX`] requests came since the
//! first of them, or for [`HELD_BACK_MAX`].
//!
//! How many requests may be outstanding is bounded by the attachments. Not here: which device it lies on, and where on it a record is quickest.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use elbow_disk::region::{Copies, RegionError};
use elbow_disk::{Ps, SECTOR_BYTES, Times};
use elbow_file::range_device::{RangeDevice, RangeError};
use serde::{Deserialize, Serialize};

use crate::block_device::{Answer, Ask, BlockDevice, DriveFault, Link, Reply, whole_sectors};

/// As many as a file system's journal has writers; one that waited for more would wait for those behind it.
const ASKED_BEHIND_MAX: usize = 64;
/// A flush of a quick device takes less; by one of a slow disk nobody would notice.
const HELD_BACK_MAX: Duration = Duration::from_millis(1);

/// How long requests took, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of them took no longer.
    pub p50: f64,
    /// All but one in a hundred.
    pub p99: f64,
    /// None took longer.
    pub max: f64,
}

/// What a region has done since it was attached; lengths in sectors of 512 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegionStatus {
    /// Copies that have not failed; what follows of records is of the first.
    pub whole_copies: u64,
    /// Reads that were answered.
    pub reads: u64,
    /// Writes that were answered.
    pub writes: u64,
    /// Trims, and writes of zeros.
    pub trims: u64,
    /// Flushes that were answered; several may have been one of the device.
    pub flushes: u64,
    /// Records that went to a free place of the device's choice.
    pub range_writes: u64,
    /// Sectors of those.
    pub range_write_sectors: u64,
    /// Flushes of the device below that somebody asked for.
    pub device_flushes: u64,
    /// Flushes because no free place was left.
    pub forced_flushes: u64,
    /// Records that were written anew elsewhere, because no free place was left: the least bad place was taken.
    pub moved: u64,
    /// Writes that were refused, because there was no room at all.
    pub refused_full: u64,
    /// Sectors on which a record can go.
    pub free_sectors: u64,
    /// Records that hold something of the content.
    pub live_records: u64,
    /// Records that the scan found.
    pub found_records: u64,
    /// Records of which the scan found a part.
    pub torn_records: u64,
    /// From submission to answer, of writes that need not be durable.
    pub write_us: Spread,
    /// Of flushes, and writes with forced unit access.
    pub flush_us: Spread,
    /// Why it takes nothing more, if it does not.
    pub failure: Option<String>,
}

enum Message {
    Ask { ask: Ask, since: Instant, reply: Reply },
    Status(Sender<RegionStatus>),
    Stop(Sender<Result<RegionStatus, DriveFault>>),
}

/// A region at work.
///
/// ```
/// use elbow_disk::region::Region;
/// use elbow_drive::{Ask, ServedRegion};
/// use elbow_file::range_device::MemoryDevice;
///
/// let region = Region::format(MemoryDevice::new(512, 1000), 300, 7)?;
/// let served = ServedRegion::start(region)?;
/// let link = served.link();
/// link.ask(Ask::Write { at: 8, data: vec![7; 512], through: false })?;
/// link.ask(Ask::Flush)?;
/// assert_eq!(link.ask(Ask::Read { at: 8, sectors: 1 })?, [7; 512]);
/// assert_eq!(served.stop()?.range_writes, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ServedRegion {
    inbox: Sender<Message>,
    sectors: u64,
    thread: Option<JoinHandle<()>>,
}

impl ServedRegion {
    /// Begins to serve it, in one copy or several.
    ///
    /// # Errors
    /// The thread cannot be started.
    ///
    /// # Panics
    /// Where a sector of it has other than 512 bytes.
    pub fn start<D: RangeDevice + Send + 'static>(region: impl Into<Copies<D>>) -> io::Result<Self> {
        let region: Copies<D> = region.into();
        assert_eq!(
            u64::from(region.sector_bytes()),
            SECTOR_BYTES,
            "sectors of a block device"
        );
        let sectors = region.logical_sectors();
        let (inbox, messages) = mpsc::channel();
        let thread = std::thread::Builder::new().name("elbow-region".into());
        let thread = thread.spawn(move || Worker::new(region, messages).run())?;
        Ok(Self {
            inbox,
            sectors,
            thread: Some(thread),
        })
    }

    /// A way to it, as long as it is served.
    #[must_use]
    pub fn link(&self) -> Link {
        Link::to(RegionClient {
            inbox: self.inbox.clone(),
            sectors: self.sectors,
        })
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// It is gone.
    pub fn status(&self) -> Result<RegionStatus, DriveFault> {
        self.tell(Message::Status)
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn sync(&self) -> Result<(), DriveFault> {
        self.link().ask(Ask::Flush).map(drop)
    }

    /// Ends it: all that was written is durable.
    ///
    /// # Errors
    /// Those of a flush.
    pub fn stop(mut self) -> Result<RegionStatus, DriveFault> {
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

impl Drop for ServedRegion {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = self.tell(Message::Stop);
            let _ = thread.join();
        }
    }
}

struct RegionClient {
    inbox: Sender<Message>,
    sectors: u64,
}

impl BlockDevice for RegionClient {
    fn submit(&self, ask: Ask, reply: Reply) {
        let since = Instant::now();
        if let Err(mpsc::SendError(Message::Ask { reply, .. })) = self.inbox.send(Message::Ask { ask, since, reply }) {
            reply(Err(DriveFault::NoPower));
        }
    }

    fn sectors(&self) -> u64 {
        self.sectors
    }

    fn is_rotational(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Tally {
    reads: u64,
    writes: u64,
    trims: u64,
    flushes: u64,
    refused_full: u64,
    cached: Times,
    durable: Times,
}

/// A request that is answered when a flush is done.
struct Waiting {
    since: Instant,
    reply: Reply,
}

/// The thread's own.
struct Worker<D> {
    region: Copies<D>,
    inbox: Receiver<Message>,
    /// Up to [`ASKED_BEHIND_MAX`].
    waiting: Vec<Waiting>,
    /// Requests that were taken since the first of them, that one counted.
    asked: usize,
    /// When the first of them was carried out; not when it came, since all that came during the last flush have waited for that.
    held_back: Instant,
    held_back_max: Duration,
    tally: Tally,
}

impl<D: RangeDevice> Worker<D> {
    fn new(region: Copies<D>, inbox: Receiver<Message>) -> Self {
        Self {
            region,
            inbox,
            waiting: Vec::new(),
            asked: 0,
            held_back: Instant::now(),
            held_back_max: HELD_BACK_MAX,
            tally: Tally::default(),
        }
    }

    fn run(mut self) {
        while let Some(message) = self.next() {
            match message {
                Message::Ask { ask, since, reply } => self.answer(&ask, since, reply),
                Message::Status(tell) => drop(tell.send(self.status())),
                Message::Stop(tell) => {
                    let last = self.region.flush().map_err(|error| fault(&error));
                    let _ = tell.send(last.map(|()| self.status()));
                    return;
                }
            }
        }
    }

    /// What came next; `None` when all who could ask are gone. Whoever waits for a flush gets it when there is nothing else to do before, or it has
    /// been held back for long enough: a reader that never stops must not stop writers.
    fn next(&mut self) -> Option<Message> {
        if !self.waiting.is_empty() {
            match self.inbox.try_recv() {
                Ok(message) if self.may_hold_back() && is_asked(&message) => {
                    self.asked += 1;
                    return Some(message);
                }
                Ok(message) => {
                    self.flush();
                    return Some(message);
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => self.flush(),
            }
        }
        self.inbox.recv().ok()
    }

    fn may_hold_back(&self) -> bool {
        self.asked < ASKED_BEHIND_MAX && self.held_back.elapsed() < self.held_back_max
    }

    fn hold_back(&mut self, waiting: Waiting) {
        if self.waiting.is_empty() {
            (self.asked, self.held_back) = (1, Instant::now());
        }
        self.waiting.push(waiting);
    }

    fn answer(&mut self, ask: &Ask, since: Instant, reply: Reply) {
        let done = self.carry_out(ask);
        self.count(ask);
        match (done, ask) {
            (Ok(_), ask) if has_to_be_durable(ask) => self.hold_back(Waiting { since, reply }),
            (done, Ask::Write { .. } | Ask::WriteZeros { .. }) => {
                self.tally.cached.add(elapsed(since));
                reply(done);
            }
            (done, _) => reply(done),
        }
    }

    fn carry_out(&mut self, ask: &Ask) -> Answer {
        self.check(ask)?;
        let done = match *ask {
            Ask::Read { at, sectors } => self.region.read(at, u64::from(sectors)),
            Ask::Write { at, ref data, .. } => self.region.write(at, data).map(|()| Vec::new()),
            Ask::WriteZeros { at, sectors, .. } | Ask::Trim { at, sectors, .. } => {
                let range = at..at + u64::from(sectors);
                self.region.trim(range).map(|()| Vec::new())
            }
            Ask::Flush => Ok(Vec::new()),
        };
        self.tally.refused_full += u64::from(matches!(done, Err(RegionError::Full { .. })));
        done.map_err(|error| fault(&error))
    }

    fn check(&self, ask: &Ask) -> Result<(), DriveFault> {
        let (at, sectors) = match *ask {
            Ask::Flush => return Ok(()),
            Ask::Write { at, ref data, .. } => (at, whole_sectors(data)?),
            Ask::Read { at, sectors } | Ask::WriteZeros { at, sectors, .. } | Ask::Trim { at, sectors, .. } => {
                (at, sectors)
            }
        };
        let end = at.checked_add(u64::from(sectors));
        let is_there = sectors > 0 && end.is_some_and(|end| end <= self.region.logical_sectors());
        is_there.then_some(()).ok_or(DriveFault::NoSuchSectors)
    }

    fn count(&mut self, ask: &Ask) {
        match ask {
            Ask::Read { .. } => self.tally.reads += 1,
            Ask::Write { .. } => self.tally.writes += 1,
            Ask::WriteZeros { .. } | Ask::Trim { .. } => self.tally.trims += 1,
            Ask::Flush => self.tally.flushes += 1,
        }
    }

    /// One for all that wait.
    fn flush(&mut self) {
        let flushed = self.region.flush().map_err(|error| fault(&error));
        for Waiting { since, reply } in std::mem::take(&mut self.waiting) {
            self.tally.durable.add(elapsed(since));
            reply(flushed.map(|()| Vec::new()));
        }
    }

    fn status(&self) -> RegionStatus {
        let done = self.region.statistics().next().unwrap_or_default();
        RegionStatus {
            whole_copies: self.region.whole() as u64,
            reads: self.tally.reads,
            writes: self.tally.writes,
            trims: self.tally.trims,
            flushes: self.tally.flushes,
            range_writes: done.writes + done.trims + done.moved,
            range_write_sectors: done.sectors,
            device_flushes: done.flushes,
            forced_flushes: done.forced_flushes,
            moved: done.moved,
            refused_full: self.tally.refused_full,
            free_sectors: self.region.free_sectors(),
            live_records: self.region.live_records() as u64,
            found_records: done.found,
            torn_records: done.torn,
            write_us: spread(&self.tally.cached),
            flush_us: spread(&self.tally.durable),
            failure: self.region.failure().map(ToString::to_string),
        }
    }
}

fn has_to_be_durable(ask: &Ask) -> bool {
    match *ask {
        Ask::Flush => true,
        Ask::Write { through, .. } | Ask::WriteZeros { through, .. } | Ask::Trim { through, .. } => through,
        Ask::Read { .. } => false,
    }
}

fn is_asked(message: &Message) -> bool {
    matches!(message, Message::Ask { .. })
}

fn elapsed(since: Instant) -> Ps {
    Ps::from_ms(since.elapsed().as_secs_f64() * 1e3)
}

fn spread(times: &Times) -> Spread {
    let of = times.percentiles();
    let [p50, p99, max] = [of.p50, of.p99, of.max].map(|ms| ms * 1e3);
    Spread { p50, p99, max }
}

/// As a system call says it.
fn fault(error: &RegionError) -> DriveFault {
    match error {
        RegionError::Full { .. } => DriveFault::Backing(libc::ENOSPC),
        RegionError::Outside { .. } | RegionError::Length { .. } => DriveFault::NoSuchSectors,
        RegionError::Device(RangeError::Io { errno, .. }) => DriveFault::Backing(errno.raw_os_error()),
        _ => DriveFault::Backing(libc::EIO),
    }
}

#[cfg(test)]
mod tests {
    use elbow_disk::region::Region;
    use elbow_file::Errno;
    use elbow_file::range_device::{CountingDevice, MemoryDevice, Request, TearingDevice};

    use super::*;

    fn write(at: u64, byte: u8, through: bool) -> Ask {
        let data = vec![byte; 1024];
        Ask::Write { at, data, through }
    }

    fn formatted() -> MemoryDevice {
        let mut device = MemoryDevice::new(512, 400);
        drop(Region::format(&mut device, 100, 1).expect("there is room"));
        device
    }

    #[test]
    fn what_was_written_is_read_trimmed_and_counted() {
        let served = ServedRegion::start(Region::open(formatted()).expect("a region")).expect("it starts");
        let link = served.link();
        assert_eq!(link.bytes(), 51_200);
        link.ask(write(3, 7, false)).expect("it writes");
        link.ask(write(4, 8, true)).expect("it writes");
        let read = |at| link.ask(Ask::Read { at, sectors: 1 }).expect("it reads");
        assert_eq!([read(3)[0], read(4)[0], read(5)[0]], [7, 8, 8]);
        let free = served.status().expect("it is there").free_sectors;
        let (at, sectors, through) = (0, 100, false);
        link.ask(Ask::Trim { at, sectors, through }).expect("it trims");
        link.ask(Ask::Flush).expect("it flushes");
        assert_eq!(read(4), [0; 512]);
        let outside = Ask::Read { at: 99, sectors: 2 };
        assert_eq!(link.ask(outside), Err(DriveFault::NoSuchSectors));
        let last = served.stop().expect("it stops");
        assert!(last.free_sectors > free, "{last:?}");
        assert_eq!((last.writes, last.trims, last.flushes, last.range_writes), (2, 1, 1, 3));
    }

    /// Eight writers that each want a flush share one, and none is told before it.
    #[test]
    fn flushes_that_wait_together_are_one_of_the_device() {
        let (inbox, messages) = mpsc::channel();
        let region = Region::open(CountingDevice::new(formatted())).expect("a region");
        let mut worker = Worker::new(region.into(), messages);
        worker.held_back_max = Duration::MAX;
        let flushes = |worker: &mut Worker<CountingDevice<MemoryDevice>>| {
            let mut devices = worker.region.devices();
            devices.next().expect("one").counts().flushes
        };
        let before = flushes(&mut worker);
        let (tell, told) = mpsc::channel();
        let client = RegionClient { inbox, sectors: 100 };
        for at in 0..8 {
            let tell = tell.clone();
            client.submit(write(at, 1, true), Box::new(move |answer| drop(tell.send(answer))));
        }
        drop(client);
        for _ in 0..8 {
            let Some(Message::Ask { ask, since, reply }) = worker.next() else {
                panic!("eight were asked")
            };
            worker.answer(&ask, since, reply);
            assert!(told.try_recv().is_err(), "nothing is durable yet");
        }
        assert!(worker.next().is_none());
        assert_eq!(told.try_iter().filter(Result::is_ok).count(), 8);
        assert_eq!(flushes(&mut worker), before + 1);
    }

    /// A reader that never stops used to keep everybody waiting whose write has to be durable: the flush waited for an empty inbox.
    #[test]
    fn a_flush_does_not_wait_for_all_that_is_asked_behind_it() {
        is_flushed_within(2 + ASKED_BEHIND_MAX, Duration::MAX);
        is_flushed_within(3, Duration::ZERO);
    }

    /// A write, a flush and many reads are asked; so many of them are carried out.
    fn is_flushed_within(requests: usize, held_back_max: Duration) {
        let (inbox, messages) = mpsc::channel();
        let mut worker = Worker::new(Region::open(formatted()).expect("a region").into(), messages);
        worker.held_back_max = held_back_max;
        let (tell, told) = mpsc::channel();
        let client = RegionClient { inbox, sectors: 100 };
        client.submit(write(0, 1, false), Box::new(drop));
        client.submit(Ask::Flush, Box::new(move |answer| drop(tell.send(answer))));
        for _ in 0..1000 {
            client.submit(Ask::Read { at: 0, sectors: 1 }, Box::new(drop));
        }
        for _ in 0..requests {
            let Some(Message::Ask { ask, since, reply }) = worker.next() else {
                panic!("there is more")
            };
            worker.answer(&ask, since, reply);
        }
        assert_eq!(told.try_recv(), Ok(Ok(Vec::new())), "it is answered");
        assert!(worker.inbox.try_recv().is_ok(), "the inbox was never empty");
    }

    #[test]
    fn after_a_failed_flush_everything_fails_and_says_why() {
        let mut flushes = 0;
        let tears = move |_: u64, request: &Request<'_>| {
            flushes += u64::from(matches!(request, Request::Flush));
            (flushes == 3).then_some(0) // Opening has two.
        };
        let device = TearingDevice::new(formatted(), Errno::IO, tears);
        let served = ServedRegion::start(Region::open(device).expect("a region")).expect("it starts");
        let link = served.link();
        link.ask(write(0, 1, false)).expect("it writes");
        let failed = Err(DriveFault::Backing(libc::EIO));
        assert_eq!(link.ask(Ask::Flush), failed);
        assert_eq!(link.ask(Ask::Flush), failed);
        assert_eq!(link.ask(write(0, 1, false)), failed);
        let status = served.status().expect("it is there");
        assert!(status.failure.is_some(), "{status:?}");
        assert!(served.stop().is_err());
    }
}
