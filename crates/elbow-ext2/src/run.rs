//! Processes, the file system and a disk, in simulated time.
//!
//! Operations begin in the order of the trace, each when the one before has ended; or, where the processes are
//! [`concurrent`](Run::concurrent), when the process's own last one has. An operation that waits is tried again after each completion. The
//! file system looks at the age of what is dirty when that is due. In the end all is synced.
//!
//! At one moment the disk comes first, then the write-back, then processes, in the order of the trace.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::filesystem::Ext2;
use crate::trace::{Action, Operation, Outcome, Trace};
use crate::{Disk, Ext2Error, Statistics};
use elbow_disk::Ps;

/// A file system on a disk.
///
/// ```
/// use elbow_disk::Ps;
/// use elbow_ext2::{ConstantDisk, Ext2, Options, Run, Trace};
///
/// let trace = Trace::parse("demo", "1 create /a\n1 write /a 0 100000\n")?;
/// let mut run = Run::new(Ext2::new(Options::new(40_000))?, ConstantDisk::new(Ps::from_ms(10.0)));
/// let report = run.replay(&trace)?;
/// assert_eq!(report.elapsed.ms(), 10.0 * report.statistics.requests_written() as f64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Run<D> {
    fs: Ext2,
    disk: D,
    now: Ps,
    /// Time that an operation takes a processor.
    pub operation_time: Ps,
    /// Time that it takes for each block written or read.
    pub block_time: Ps,
    /// Does each process go on by itself?
    pub concurrent: bool,
}

/// How a trace went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// From the first operation until all was on the disk.
    pub elapsed: Ps,
    /// Until the last operation had ended.
    pub processes: Ps,
    /// What was asked of the disk, all traces of this file system together.
    pub statistics: Statistics,
}

/// Operations of one process, by their numbers.
struct Process {
    left: VecDeque<usize>,
    /// When it can go on; `None` while it waits for the disk.
    ready: Option<Ps>,
}

impl<D: Disk> Run<D> {
    /// A file system on a disk that has nothing to do, and processors that take no time.
    pub fn new(fs: Ext2, disk: D) -> Self {
        Self {
            now: Ps::ZERO,
            fs,
            disk,
            operation_time: Ps::ZERO,
            block_time: Ps::ZERO,
            concurrent: false,
        }
    }

    /// The file system.
    pub fn fs(&mut self) -> &mut Ext2 {
        &mut self.fs
    }

    /// The file system and the disk.
    pub fn into_parts(self) -> (Ext2, D) {
        (self.fs, self.disk)
    }

    /// Does all operations of a trace, and syncs.
    ///
    /// # Errors
    /// The first operation that fails.
    pub fn replay(&mut self, trace: &Trace) -> Result<Report, Ext2Error> {
        self.replay_while(trace, &mut || true)
    }

    /// As [`replay`](Self::replay), as long as whoever watches wants it: asked with each operation, write-back and completion.
    ///
    /// # Errors
    /// The first operation that fails; [`Ext2Error::Interrupted`] where it is not wanted any more.
    pub fn replay_while(&mut self, trace: &Trace, goes_on: &mut dyn FnMut() -> bool) -> Result<Report, Ext2Error> {
        let start = self.now;
        self.work(&trace.operations, goes_on)?;
        let processes = self.now;
        let sync = Operation {
            pid: 0,
            action: Action::Sync,
        };
        self.work(std::slice::from_ref(&sync), goes_on)?;
        Ok(Report {
            elapsed: self.now - start,
            processes: processes - start,
            statistics: self.fs.statistics().clone(),
        })
    }

    fn work(&mut self, operations: &[Operation], goes_on: &mut dyn FnMut() -> bool) -> Result<(), Ext2Error> {
        let mut processes = self.processes(operations);
        let mut tried_again = false;
        loop {
            if !goes_on() {
                return Err(Ext2Error::Interrupted);
            }
            while let Some(request) = self.fs.next_request() {
                self.disk.submit(self.now, &request);
            }
            let next = processes
                .iter()
                .filter_map(|(&key, process)| Some((process.ready?, *process.left.front()?, key)))
                .min();
            let (disk, tick) = (self.disk.next_at(), self.fs.next_tick());
            match (next, disk) {
                // What was waited for may have been struck from the queue, with its file.
                (None, None) if !tried_again && processes.values().any(|process| process.ready.is_none()) => {
                    tried_again = true;
                    processes.values_mut().for_each(|process| {
                        process.ready.get_or_insert(self.now);
                    });
                    continue;
                }
                (None, None) => return self.ended(&processes, operations),
                (next, Some(at)) if at <= tick && next.is_none_or(|(ready, ..)| at <= ready) => {
                    self.complete(&mut processes);
                    tried_again = false;
                }
                (next, _) if next.is_none_or(|(ready, ..)| tick <= ready) => self.advance(tick),
                (Some((ready, number, key)), _) => {
                    self.advance(ready.max(self.now));
                    let process = processes.get_mut(&key).expect("just found");
                    self.step(process, number, &operations[number])?;
                }
                (None, Some(_)) => unreachable!("the disk or the write-back comes first"),
            }
        }
    }

    fn processes(&self, operations: &[Operation]) -> BTreeMap<usize, Process> {
        let mut keys = HashMap::new();
        let mut processes: BTreeMap<usize, Process> = BTreeMap::new();
        for (number, operation) in operations.iter().enumerate() {
            let pid = if self.concurrent { operation.pid } else { 0 };
            let key = *keys.entry(pid).or_insert(number);
            let process = processes.entry(key).or_insert_with(|| Process {
                left: VecDeque::new(),
                ready: Some(self.now),
            });
            process.left.push_back(number);
        }
        processes
    }

    fn advance(&mut self, at: Ps) {
        self.now = at;
        self.fs.advance(at);
    }

    fn complete(&mut self, processes: &mut BTreeMap<usize, Process>) {
        let completed = self.disk.complete().expect("the disk said when");
        self.advance(completed.at.max(self.now));
        self.fs.complete(completed);
        for process in processes.values_mut() {
            process.ready.get_or_insert(self.now);
        }
    }

    fn step(&mut self, process: &mut Process, number: usize, operation: &Operation) -> Result<(), Ext2Error> {
        let outcome = self.fs.apply(operation.pid, &operation.action);
        let outcome = outcome.map_err(|error| Ext2Error::Operation {
            number: number + 1,
            operation: operation.to_string(),
            error: Box::new(error),
        })?;
        process.ready = match outcome {
            Outcome::Wait => None,
            Outcome::Done => {
                process.left.pop_front();
                Some(Ps(self.now.0.saturating_add(self.time(&operation.action).0)))
            }
        };
        Ok(())
    }

    /// Time that an operation takes a processor.
    fn time(&self, action: &Action) -> Ps {
        let bytes = match action {
            Action::Think(nanoseconds) => return Ps(nanoseconds.saturating_mul(1000)),
            Action::Write { bytes, .. } | Action::Append { bytes, .. } | Action::Read { bytes, .. } => *bytes,
            _ => 0,
        };
        let blocks = bytes.div_ceil(crate::BLOCK_BYTES as u64);
        Ps(self
            .operation_time
            .0
            .saturating_add(self.block_time.0.saturating_mul(blocks)))
    }

    /// Nothing will happen any more: all is done, or somebody waits in vain.
    fn ended(&mut self, processes: &BTreeMap<usize, Process>, operations: &[Operation]) -> Result<(), Ext2Error> {
        // The last operation of each takes its time as well.
        let last = processes.values().filter_map(|process| process.ready).max();
        if let Some(last) = last.filter(|&last| last > self.now) {
            self.advance(last);
        }
        match processes.values().find_map(|process| process.left.front()) {
            None => Ok(()),
            Some(&number) => Err(Ext2Error::Stuck {
                number: number + 1,
                operation: operations[number].to_string(),
            }),
        }
    }
}
