//! A trace of a user's on a file system of a user's choice: what can be chosen, in the units of people, and what came of it.
//!
//! Nothing here decides anything: it puts [`Options`], [`Setup`], [`Ext2`] and [`ModelledDisk`] together, and counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use elbow_disk::device::Setup;
use elbow_disk::sched::Scheduler;
use elbow_disk::workload::Overheads;
use elbow_disk::{Drive, Ps, SECTOR_BYTES};
use serde::Serialize;

use crate::{
    Action, BLOCK_BYTES, BLOCKS_PER_GROUP, Completed, Disk, Ext2, Ext2Error, ModelledDisk, Options, Policy, Purpose,
    Request, RequestTarget, Run, TraceFile, Work, Writeback,
};

/// A file system is no larger than this if nobody says how large: what a trace does not use only takes memory.
const PARTITION_BYTES_MAX: u64 = 16 << 30;
/// Dirty bytes that a cache has room for at least.
const DIRTY_BYTES_MIN: u64 = 64 << 10;
/// Longest time between two looks at a cache, and longest age of what it holds: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// Shortest time between two looks.
const INTERVAL_S_MIN: f64 = 0.001;
/// Fullest partition.
const FULL_PERCENT_MAX: f64 = 99.0;
/// Longest run of blocks that are taken.
const RUN_BLOCKS_MAX: u32 = 32_768;
/// Most requests that the drive knows: more would never be in flight.
const DEPTH_MAX: u32 = 128;

/// What a trace is replayed on.
///
/// ```
/// use std::sync::Arc;
/// use elbow_disk::Drive;
/// use elbow_ext2::{FileReplay, Policy, Region, TraceFile};
///
/// let drive = Arc::new(Drive::named("hp-c2247a")?);
/// let file = TraceFile::parse("demo", "1 create /a\n1 write /a 0 100000\n1 fsync /a\n")?;
/// let classic = FileReplay::default().run(&drive, &file, &mut || true)?;
/// assert_eq!((classic.allocated.files, classic.allocated.blocks), (1, 25));
/// let ranges = FileReplay { policy: Policy::Range(Region::MiniGroup), ..FileReplay::default() };
/// assert!(ranges.run(&drive, &file, &mut || true)?.range_writes > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FileReplay {
    /// How places for data are found.
    pub policy: Policy,
    /// Size of the file system; without one, the drive's, and at most 16 GiB.
    pub partition_bytes: Option<u64>,
    /// How much of it is in use before, in percent of each group, from 0 to 99.
    pub full_percent: f64,
    /// In runs of so many blocks, at random places.
    pub full_run_blocks: u32,
    /// File data that is kept in memory, dirty data included; from 1 MiB on.
    pub memory_bytes: u64,
    /// With more dirty data than this processes wait; without one, two fifths of the memory. From 64 KiB on. A quarter of it is written
    /// whatever its age.
    pub dirty_bytes: Option<u64>,
    /// Data that has been dirty for so many seconds is written; 0: all at once.
    pub age_s: f64,
    /// Seconds between two looks for such data, and for directories, inodes and bitmaps.
    pub interval_s: f64,
    /// Are neighbours in the queue merged?
    pub merge: bool,
    /// Who picks among the requests that the drive knows.
    pub scheduler: Scheduler,
    /// How many the drive knows.
    pub depth: u32,
    /// What a request costs beside the mechanics.
    pub overheads: Overheads,
    /// Does each process go on by itself, rather than all in the order of the trace?
    pub concurrent: bool,
    /// Other numbers give other groups to directories, and other places to what is in use before.
    pub seed: u64,
}

impl Default for FileReplay {
    /// Linux 2.6 on a machine with 512 MiB, on an empty disk that knows 16 requests.
    fn default() -> Self {
        let setup = Setup::default();
        Self {
            policy: Policy::Classic,
            partition_bytes: None,
            full_percent: 0.0,
            full_run_blocks: 8,
            memory_bytes: 512 << 20,
            dirty_bytes: None,
            age_s: 30.0,
            interval_s: 5.0,
            merge: true,
            scheduler: setup.scheduler,
            depth: setup.depth as u32,
            overheads: Overheads::Controller,
            concurrent: false,
            seed: 1,
        }
    }
}

/// How a trace went. Times are those of the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileReport {
    /// Operations of the trace, and the bytes that they wrote and asked to read.
    pub operations: u64,
    #[allow(missing_docs, reason = "see operations")]
    pub bytes_written: u64,
    #[allow(missing_docs, reason = "see operations")]
    pub bytes_read: u64,
    /// Until all was on the disk.
    pub seconds: f64,
    /// Until the last operation had ended.
    pub processes_seconds: f64,
    /// What the drive spent on requests.
    pub busy_seconds: f64,
    /// Requests, by what they hold.
    pub requests: Kinds,
    /// Writes of data that named a range.
    pub range_writes: u64,
    /// Those that had to wait because their region was promised to others.
    pub range_waits: u64,
    /// Writes that continued a file where it ended rather than by a range.
    pub continued: u64,
    /// What lies where.
    pub allocated: Allocated,
    /// What the trace left out, in sentences.
    pub notes: Vec<String>,
}

/// Requests of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "their names are those of Purpose")]
pub struct Kinds {
    pub all: KindReport,
    pub reads: KindReport,
    pub data: KindReport,
    pub directories: KindReport,
    pub inodes: KindReport,
    pub indirect: KindReport,
    pub bitmaps: KindReport,
    pub superblocks: KindReport,
}

/// Requests of one kind, and what they took together, from pick to completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[allow(missing_docs, reason = "as in Work")]
pub struct KindReport {
    pub requests: u64,
    /// Of 4 KiB.
    pub blocks: u64,
    /// The sum of the parts that follow.
    pub time_ms: f64,
    pub seek_ms: f64,
    pub rotation_ms: f64,
    pub transfer_ms: f64,
    pub overhead_ms: f64,
}

/// What lies where in the end, and what was written where meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Allocated {
    /// Files of the trace that are there in the end.
    pub files: u64,
    /// Their blocks.
    pub blocks: u64,
    /// Runs of neighbouring blocks that those are; as many as files at best.
    pub extents: u64,
    /// Groups of which something was written.
    pub groups: Vec<GroupReport>,
}

/// What was written to a group (128 MiB), blocks that were freed again included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupReport {
    /// Its number, from 0.
    pub group: u32,
    /// Blocks of files.
    pub data_blocks: u64,
    /// All others.
    pub metadata_blocks: u64,
}

impl FileReplay {
    /// Replays a trace; `goes_on` is asked now and then.
    ///
    /// # Errors
    /// [`Ext2Error::Geometry`] for a choice that cannot be, [`Ext2Error::Line`] for the first operation that fails,
    /// [`Ext2Error::Interrupted`] where `goes_on` says so.
    pub fn run(
        &self,
        drive: &Arc<Drive>,
        file: &TraceFile,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<FileReport, Ext2Error> {
        let mut fs = Ext2::new(self.options(drive)?)?;
        self.fill(&mut fs)?;
        let setup = Setup {
            scheduler: self.scheduler,
            depth: self.depth as usize,
            overheads: self.overheads,
            ..Setup::default()
        };
        let mut run = Run::new(fs, Counted::new(ModelledDisk::new(drive, setup)));
        run.concurrent = self.concurrent;
        let done = run.replay_while(&file.trace, goes_on);
        let report = done.map_err(|error| file.located(error))?;
        let (fs, disk) = run.into_parts();
        let (summary, statistics) = (file.trace.summary(), &report.statistics);
        Ok(FileReport {
            operations: file.trace.operations.len() as u64,
            bytes_written: summary.bytes_written,
            bytes_read: summary.bytes_read,
            seconds: report.elapsed.ms() / 1000.0,
            processes_seconds: report.processes.ms() / 1000.0,
            busy_seconds: disk.disk.busy().ms() / 1000.0,
            requests: Kinds::of(&disk.disk),
            range_writes: statistics.range_writes,
            range_waits: statistics.range_waits,
            continued: statistics.continued,
            allocated: allocated(&fs, file, disk.groups),
            notes: file.notes.clone(),
        })
    }

    /// Files that were there before, in each group.
    fn fill(&self, fs: &mut Ext2) -> Result<(), Ext2Error> {
        let groups = if self.full_percent > 0.0 { fs.groups() } else { 0 };
        (0..groups).try_for_each(|group| fs.occupy(group, self.full_percent / 100.0, self.full_run_blocks))
    }

    fn options(&self, drive: &Drive) -> Result<Options, Ext2Error> {
        self.check()?;
        let memory_blocks = blocks(self.memory_bytes);
        let limit_blocks = self.dirty_bytes.map_or(memory_blocks * 2 / 5, blocks);
        Ok(Options {
            policy: self.policy,
            merge: self.merge,
            memory_blocks,
            writeback: Writeback {
                interval: Ps::from_ms(self.interval_s * 1000.0),
                age: Ps::from_ms(self.age_s * 1000.0),
                background_blocks: if self.age_s > 0.0 { limit_blocks / 4 } else { 0 },
                limit_blocks,
            },
            seed: self.seed,
            ..Options::new(self.partition_blocks(drive)?)
        })
    }

    fn partition_blocks(&self, drive: &Drive) -> Result<u32, Ext2Error> {
        let drive_bytes = drive.sectors() * SECTOR_BYTES;
        let bytes = self.partition_bytes.unwrap_or(drive_bytes.min(PARTITION_BYTES_MAX));
        if bytes > drive_bytes {
            return Err(Ext2Error::Geometry(format!(
                "a partition of {bytes} bytes is not on {}, which has {drive_bytes}",
                drive.name()
            )));
        }
        u32::try_from(blocks(bytes))
            .map_err(|_| Ext2Error::Geometry(format!("a partition of {bytes} bytes: 16 TiB are the most")))
    }

    fn check(&self) -> Result<(), Ext2Error> {
        let numbers = [
            ("age in seconds", self.age_s, 0.0..=SECONDS_MAX),
            ("interval in seconds", self.interval_s, INTERVAL_S_MIN..=SECONDS_MAX),
            ("part in use in percent", self.full_percent, 0.0..=FULL_PERCENT_MAX),
            (
                "run of blocks in use",
                self.full_run_blocks.into(),
                1.0..=RUN_BLOCKS_MAX.into(),
            ),
            ("depth of the queue", self.depth.into(), 1.0..=DEPTH_MAX.into()),
            (
                "memory in bytes",
                self.memory_bytes as f64,
                1048576.0..=(1_u64 << 42) as f64,
            ),
            (
                "dirty data in bytes",
                self.dirty_bytes.unwrap_or(DIRTY_BYTES_MIN) as f64,
                DIRTY_BYTES_MIN as f64..=self.memory_bytes as f64,
            ),
        ];
        let wrong = numbers.iter().find(|(_, value, range)| !range.contains(value));
        wrong.map_or(Ok(()), |(what, value, range)| {
            let (least, most) = (range.start(), range.end());
            Err(Ext2Error::Geometry(format!(
                "the {what} is {value}: it has to be from {least} to {most}"
            )))
        })
    }
}

fn blocks(bytes: u64) -> u64 {
    bytes / BLOCK_BYTES as u64
}

impl Kinds {
    fn of(disk: &ModelledDisk<'_>) -> Self {
        let writes = |purpose| KindReport::from(disk.writes(purpose));
        let mut kinds = Self {
            all: KindReport::default(),
            reads: disk.reads().into(),
            data: writes(Purpose::Data),
            directories: writes(Purpose::Directory),
            inodes: writes(Purpose::Inodes),
            indirect: writes(Purpose::Indirect),
            bitmaps: writes(Purpose::Bitmap),
            superblocks: writes(Purpose::Super),
        };
        for (_, kind) in kinds.named() {
            kinds.all.add(&kind);
        }
        kinds
    }

    /// Each kind and its name, all of them together at last.
    #[must_use]
    pub fn named(&self) -> [(&'static str, KindReport); 8] {
        [
            ("reads", self.reads),
            ("data", self.data),
            ("directories", self.directories),
            ("inodes", self.inodes),
            ("indirect", self.indirect),
            ("bitmaps", self.bitmaps),
            ("superblocks", self.superblocks),
            ("all", self.all),
        ]
    }
}

impl From<Work> for KindReport {
    fn from(work: Work) -> Self {
        Self {
            requests: work.requests,
            blocks: work.blocks,
            time_ms: work.time().ms(),
            seek_ms: work.seek.ms(),
            rotation_ms: work.rotation.ms(),
            transfer_ms: work.transfer.ms(),
            overhead_ms: work.overhead.ms(),
        }
    }
}

impl KindReport {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.blocks += other.blocks;
        self.time_ms += other.time_ms;
        self.seek_ms += other.seek_ms;
        self.rotation_ms += other.rotation_ms;
        self.transfer_ms += other.transfer_ms;
        self.overhead_ms += other.overhead_ms;
    }
}

/// What lies where of the files that a trace made, under any of their names.
fn allocated(fs: &Ext2, file: &TraceFile, groups: BTreeMap<u32, GroupReport>) -> Allocated {
    let names: BTreeSet<&str> = file
        .trace
        .operations
        .iter()
        .filter_map(|operation| named(&operation.action))
        .collect();
    let mut allocated = Allocated {
        groups: groups.into_values().collect(),
        ..Allocated::default()
    };
    for places in names.into_iter().filter_map(|name| fs.places_of_file(name)) {
        let placed: Vec<u32> = places.into_iter().flatten().collect();
        let continued = placed.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        allocated.files += 1;
        allocated.blocks += placed.len() as u64;
        allocated.extents += (placed.len() - continued) as u64;
    }
    allocated
}

/// The path that a file has after an action that gives it one.
fn named(action: &Action) -> Option<&str> {
    match action {
        Action::Create(path) | Action::Rename { to: path, .. } => Some(path),
        _ => None,
    }
}

/// Counts what is written to which group.
struct Counted<'d> {
    disk: ModelledDisk<'d>,
    /// Writes on their way: blocks, and whether they are data.
    asked: HashMap<u64, (u32, bool)>,
    groups: BTreeMap<u32, GroupReport>,
}

impl<'d> Counted<'d> {
    fn new(disk: ModelledDisk<'d>) -> Self {
        Self {
            disk,
            asked: HashMap::new(),
            groups: BTreeMap::new(),
        }
    }

    fn count(&mut self, completed: &Completed) {
        let Some((blocks, is_data)) = self.asked.remove(&completed.id.0) else {
            return;
        };
        let group = completed.place / BLOCKS_PER_GROUP;
        let counted = self.groups.entry(group).or_default();
        counted.group = group;
        match is_data {
            true => counted.data_blocks += u64::from(blocks),
            false => counted.metadata_blocks += u64::from(blocks),
        }
    }
}

impl Disk for Counted<'_> {
    fn submit(&mut self, now: Ps, request: &Request) {
        if !matches!(request.target, RequestTarget::Read(_)) {
            let is_data = request.purpose == Purpose::Data;
            self.asked.insert(request.id.0, (request.blocks, is_data));
        }
        self.disk.submit(now, request);
    }

    fn next_at(&mut self) -> Option<Ps> {
        self.disk.next_at()
    }

    fn complete(&mut self) -> Option<Completed> {
        let completed = self.disk.complete()?;
        self.count(&completed);
        Some(completed)
    }
}
