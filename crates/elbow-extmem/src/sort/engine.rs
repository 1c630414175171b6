//! The sort itself: forms runs, merges them pass by pass, and frees what was used, from any state on.
//!
//! With a manifest (in place) nothing is freed before a state that does not need it is durable. Without one nothing
//! is synced, and what is temporary is gone with the process.

use elbow_file::{Errno, Storage};
use parking_lot::Mutex;
use tracing::debug;

use super::RecordFormat;
use super::error::{Result, failed};
use super::files::{Files, RecordFile, Sink};
use super::form::{Formation, RecordSource};
use super::lane::{Checkpoint, Merge};
use super::manifest::Manifest;
use super::memory::{DATA_SHARE, Memory, MergeMemory};
use super::meter::{Meter, Step};
use super::select::cut;
use super::state::{LaneTask, Pass, RunSlice, SortState, TAIL_BYTES_MAX, Tail};

/// What a file system frees at a time.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// All lanes together free late at most this part of the free space.
const FREE_SHARE: u64 = 4;

/// What became of a range that was to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Freed {
    Done,
    /// A full file system has no room to note what is free.
    Later,
    /// The file system has no holes. It costs space, and nothing else.
    Never,
}

pub(super) struct Engine<'a> {
    pub(super) storage: &'a dyn Storage,
    pub(super) format: &'a RecordFormat,
    pub(super) stable: bool,
    pub(super) memory: Memory,
    pub(super) run_bytes: usize,
    pub(super) files: Files<'a>,
    /// Sorted records that go elsewhere than to file 0, in order.
    pub(super) stream: Option<&'a dyn Sink>,
    pub(super) manifest: Option<Mutex<Manifest<'a>>>,
    /// Up to where the input is freed, in place; durably, once that is noted.
    pub(super) freed: u64,
    pub(super) meter: &'a Meter,
    /// What the first sync said that failed.
    pub(super) unsynced: Mutex<Option<Errno>>,
}

impl Engine<'_> {
    /// Brings the sort from a state to its end; file 0 is then complete, and durable if there is a manifest.
    pub(super) fn run(&mut self, mut state: SortState, source: &mut dyn RecordSource) -> Result<()> {
        loop {
            state = match state {
                SortState::Forming { formed } => {
                    let total = self.form(formed, source)?;
                    let passes = Pass::count(total.div_ceil(self.run_bytes as u64), self.memory.fan_in_max);
                    self.meter.expect(total, total * (1 + passes), total);
                    match total {
                        0 => SortState::Finishing,
                        _ => SortState::Merging(Pass::first(total, self.run_bytes, self.memory.fan_in_max)),
                    }
                }
                SortState::Merging(mut pass) => {
                    self.merge_all(&mut pass)?;
                    pass.next(self.memory.fan_in_max)
                        .map_or(SortState::Finishing, SortState::Merging)
                }
                SortState::Finishing => break,
            };
            self.note(&state)?;
        }
        self.meter.begin(Step::Finishing);
        Ok(())
    }

    /// Forms runs in file 1; the number of bytes in all runs.
    fn form(&mut self, formed: u64, source: &mut dyn RecordSource) -> Result<u64> {
        self.meter.begin(Step::Forming);
        self.files.make(1)?;
        let formation = Formation {
            sink: self.files.get(1)?,
            format: self.format,
            stable: self.stable,
            run_bytes: self.run_bytes,
            meter: self.meter,
        };
        let (mut total, mut freed) = (formed, self.freed);
        formation.run(source, formed, &mut |end| {
            total = end;
            self.formed(&mut freed, end)
        })?;
        self.freed = freed;
        Ok(total)
    }

    /// A run is written: once it is durable, its input is not needed any more. What a full file system does not let
    /// go is freed with the input of the next run.
    fn formed(&self, freed: &mut u64, end: u64) -> Result<()> {
        if self.manifest.is_none() {
            return self.meter.go_on();
        }
        // Durable, noted, freed, in this order: a manifest that spoke of a run which a power cut takes away would let
        // go of the only copy of its records.
        self.sync(1)?;
        let state = SortState::Forming { formed: end };
        self.note_freed(&state, *freed)?;
        let was = *freed;
        if self.free_input(was, end)? == Freed::Done {
            *freed = end;
        }
        // The first time at once, and not with the next run: as long as nothing is known to be freed, the file is known by little.
        if was == 0 {
            self.note_freed(&state, *freed)?;
        }
        self.meter.go_on()
    }

    /// Frees the input between two places.
    fn free_input(&self, start: u64, end: u64) -> Result<Freed> {
        // Down at both ends: the block with the end holds records that are still to be read, and was left the last
        // time.
        self.free(0, start / BLOCK_BYTES * BLOCK_BYTES, end / BLOCK_BYTES * BLOCK_BYTES)
    }

    /// Merges all groups of a pass that are left.
    fn merge_all(&mut self, pass: &mut Pass) -> Result<()> {
        self.meter.begin(Step::Merging);
        if !self.is_streamed(pass) {
            self.files.make(pass.to)?;
        }
        while pass.merged < pass.groups() {
            let memory = self.merge_memory(pass);
            if pass.lanes.is_empty() {
                pass.lanes = self.lanes(pass, memory.lanes)?;
            }
            debug!(
                group = pass.merged,
                of = pass.groups(),
                lanes = pass.lanes.len(),
                "merges a group"
            );
            self.merge_group(pass, memory)?;
            pass.lanes.clear();
            pass.merged += 1;
            // The last group is noted by `run`, as the beginning of the next pass.
            if pass.merged < pass.groups() {
                self.note(&SortState::Merging(pass.clone()))?;
            }
        }
        Ok(())
    }

    fn is_streamed(&self, pass: &Pass) -> bool {
        self.stream.is_some() && pass.to == 0
    }

    /// What is left of a group that was begun is merged in the lanes it was begun with.
    fn merge_memory(&self, pass: &Pass) -> MergeMemory {
        let runs = pass.group(pass.merged).len() - 1;
        let lanes_max = match (self.is_streamed(pass), pass.lanes.len()) {
            (true, _) => 1,
            (false, 0) => usize::MAX,
            (false, begun) => return self.memory.for_lanes(begun, runs),
        };
        self.memory.for_merge(runs, lanes_max)
    }

    /// Splits a group so that each lane has about the same number of whole units to write.
    fn lanes(&self, pass: &Pass, lanes: usize) -> Result<Vec<LaneTask>> {
        let from = self.files.get(pass.from)?;
        let bounds = pass.group(pass.merged);
        let runs: Vec<_> = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
        let (start, end) = (bounds[0], bounds[bounds.len() - 1]);
        let unit = self.memory.unit_bytes as u64;
        let share = ((end - start) / lanes as u64).next_multiple_of(unit);
        let mut read = |at: u64, into: &mut [u8]| from.read(into, at);
        let (mut tasks, mut before) = (Vec::new(), bounds[..runs.len()].to_vec());
        let mut out_at = start;
        while out_at < end {
            let out_end = if tasks.len() + 1 == lanes {
                end
            } else {
                (out_at + share).min(end)
            };
            let cuts = cut(&runs, out_end - start, self.format, &mut read)?;
            let slices = before.iter().zip(&cuts).map(|(start, end)| RunSlice {
                start: *start,
                at: *start,
                end: *end,
            });
            tasks.push(LaneTask {
                slices: slices.collect(),
                out_at,
                tail: Tail::default(),
            });
            (before, out_at) = (cuts, out_end);
        }
        Ok(tasks)
    }

    fn merge_group(&self, pass: &mut Pass, memory: MergeMemory) -> Result<()> {
        let sink: &dyn Sink = match self.stream.filter(|_| self.is_streamed(pass)) {
            Some(stream) => stream,
            None => self.files.get(pass.to)?,
        };
        let tasks = pass.lanes.clone();
        let freed = |task: &LaneTask| Mutex::new(task.slices.iter().map(|slice| slice.at).collect());
        let source = self.files.get(pass.from)?;
        let progress = Progress {
            engine: self,
            window_bytes: self.window_bytes(pass, memory.lanes)?,
            freed: tasks.iter().map(freed).collect(),
            pass: Mutex::new(pass),
        };
        let merge = Merge {
            source,
            sink,
            format: self.format,
            memory,
            unit_bytes: self.memory.unit_bytes,
            meter: self.meter,
            checkpoint: &progress,
        };
        merge.run(&tasks)
    }

    /// How much a lane writes before it frees what it has merged: a small part of the data, and of the free space.
    fn window_bytes(&self, pass: &Pass, lanes: usize) -> Result<u64> {
        let file = self.files.get(pass.from)?;
        let space = self.storage.space(file.handle());
        let space = space.map_err(failed("asking for the free space of", &file.path))?;
        let free = space.blocks_available * space.fragment_bytes / FREE_SHARE;
        let data = pass.bounds[pass.runs()] / DATA_SHARE;
        Ok(self.memory.window(free.min(data), lanes))
    }

    /// Fails once it has failed for any lane: the kernel tells once that it could not write something, to whoever asks first, and takes it for written then.
    fn sync(&self, file: u8) -> Result<()> {
        let file = self.files.get(file)?;
        let mut unsynced = self.unsynced.lock();
        let synced = match *unsynced {
            Some(errno) => Err(errno),
            None => self.storage.sync(file.handle()),
        };
        *unsynced = synced.err();
        synced.map_err(failed("syncing", &file.path))
    }

    /// Makes a state durable, where that is wanted.
    fn note(&self, state: &SortState) -> Result<()> {
        self.note_freed(state, self.freed)
    }

    /// The same, with how far the input is freed. That is made durable before, and so is when it was written last, as long as nothing is freed.
    fn note_freed(&self, state: &SortState, freed: u64) -> Result<()> {
        let Some(manifest) = &self.manifest else {
            return Ok(());
        };
        let (mut manifest, freed) = (manifest.lock(), freed / BLOCK_BYTES * BLOCK_BYTES);
        let is_read = matches!(state, SortState::Forming { .. });
        if freed > manifest.mark.freed || freed == 0 && is_read {
            self.sync(0)?;
            let input = self.files.get(0)?;
            let stat = self.storage.stat_handle(input.handle());
            manifest.mark.mtime = stat.map_err(failed("looking at", &input.path))?.mtime;
            manifest.mark.freed = freed;
        }
        manifest.write(state)
    }

    /// Frees a range of a file.
    pub(super) fn free(&self, file: u8, start: u64, end: u64) -> Result<Freed> {
        if start >= end {
            return Ok(Freed::Done);
        }
        let file = self.files.get(file)?;
        let (handle, path) = (file.handle(), &file.path);
        let punch = || self.storage.punch(handle, start, end - start);
        let punched = match punch() {
            Err(Errno::NOSPC | Errno::DQUOT) => {
                // btrfs has the room of what was freed before only when that is committed, and a hole takes some
                // itself.
                self.storage.sync_all(handle).map_err(failed("syncing", path))?;
                punch()
            }
            other => other,
        };
        match punched {
            Ok(()) => {
                self.meter.note_freed(end - start);
                Ok(Freed::Done)
            }
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(Freed::Later),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Freed::Never),
            Err(errno) => Err(failed("punching", path)(errno)),
        }
    }

    /// Frees again what a state says is not needed, in case it was not freed when the sort ended.
    pub(super) fn free_again(&mut self, state: &SortState) -> Result<()> {
        match state {
            SortState::Forming { formed } => {
                if self.free_input(self.freed, *formed)? == Freed::Done {
                    self.freed = self.freed.max(*formed);
                }
            }
            SortState::Merging(pass) => {
                let merged = pass.bounds[(pass.merged * pass.fan_in).min(pass.runs())];
                self.free(pass.from, 0, merged / BLOCK_BYTES * BLOCK_BYTES)?;
                for slice in pass.lanes.iter().flat_map(|lane| &lane.slices) {
                    // As in `reached`: the block that it begins in may hold the end of another lane's.
                    let start = slice.start.next_multiple_of(BLOCK_BYTES);
                    self.free(pass.from, start, slice.at / BLOCK_BYTES * BLOCK_BYTES)?;
                }
            }
            SortState::Finishing => {}
        }
        Ok(())
    }

    /// The tail of what a lane has written up to a place since another one.
    fn tail(&self, to: u8, since: u64, out_at: u64) -> Result<Tail> {
        let bytes = (out_at - since).min(TAIL_BYTES_MAX);
        let mut written = vec![0; bytes as usize];
        self.files.get(to)?.read(&mut written, out_at - bytes)?;
        let checksum = crc32fast::hash(&written);
        Ok(Tail { bytes, checksum })
    }
}

/// Follows the lanes of one group, makes their progress durable and frees what they have merged.
struct Progress<'a, 'b> {
    engine: &'a Engine<'b>,
    window_bytes: u64,
    pass: Mutex<&'a mut Pass>,
    /// Up to where each slice of each lane is freed.
    freed: Vec<Mutex<Vec<u64>>>,
}

impl Checkpoint for Progress<'_, '_> {
    fn reached(&self, lane: usize, at: &[u64], out_at: u64, last: bool) -> Result<()> {
        let (from, to, since) = {
            let pass = self.pass.lock();
            let since = pass.lanes[lane].out_at;
            if !last && out_at - since < self.window_bytes {
                return Ok(());
            }
            (pass.from, pass.to, since)
        };
        // Without the lock: a sync takes long, and lanes that have not come so far need not wait for it.
        let mut tail = None;
        if self.engine.manifest.is_some() {
            self.engine.sync(to)?;
            tail = (out_at > since)
                .then(|| self.engine.tail(to, since, out_at))
                .transpose()?;
        }
        {
            let mut pass = self.pass.lock();
            let task = &mut pass.lanes[lane];
            task.out_at = out_at;
            task.tail = tail.unwrap_or(task.tail);
            for (slice, at) in task.slices.iter_mut().zip(at) {
                slice.at = *at;
            }
            // With the lock, so that no older state of another lane is noted after this one.
            if self.engine.manifest.is_some() {
                self.engine.note(&SortState::Merging(pass.clone()))?;
            }
        }
        let mut freed = self.freed[lane].lock();
        let starts: Vec<u64> = self.pass.lock().lanes[lane]
            .slices
            .iter()
            .map(|slice| slice.start)
            .collect();
        for ((freed, at), start) in freed.iter_mut().zip(at).zip(starts) {
            // The block that a slice begins in may hold the end of another lane's.
            let begin = start
                .next_multiple_of(BLOCK_BYTES)
                .max(*freed / BLOCK_BYTES * BLOCK_BYTES);
            if self.engine.free(from, begin, at / BLOCK_BYTES * BLOCK_BYTES)? != Freed::Later {
                *freed = *at;
            }
        }
        Ok(())
    }
}

/// The rest of an open file.
pub(super) struct FileSource<'a> {
    pub(super) file: RecordFile<'a>,
    pub(super) at: u64,
    pub(super) end: u64,
}

impl RecordSource for FileSource<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let bytes = (self.end - self.at).min(buffer.len() as u64) as usize;
        self.file.read(&mut buffer[..bytes], self.at)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}
