//! How a memory budget is divided.
//!
//! ```text
//!   forming   3 buffers of a run (one is read, one sorted, one written) + entries for one run
//!   merging   per lane: 3 output buffers, and 2 blocks for each run (one is merged, one read ahead)
//! ```

use memmap2::{Advice, MmapMut};

use super::RecordFormat;
use super::entries::RunSorter;
use super::error::{Result, SortError, TooLittleMemory};
use super::state::Pass;

/// What file systems and devices like best; also the alignment that O_DIRECT asks for.
const PAGE_BYTES: usize = 4096;
/// Offsets and lengths are multiples of a record and of a page where that is no more than this.
const UNIT_BYTES_MAX: usize = 1 << 20;
/// A run is read in blocks at least this long, or seeking costs more than merging.
const BLOCK_BYTES_MIN: usize = 64 << 10;
/// Longer blocks make nothing faster.
const BLOCK_BYTES_MAX: usize = 4 << 20;
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// Stacks, channels and code.
const OVERHEAD_BYTES: usize = 4 << 20;
/// A lane makes its output durable and frees what it has merged once per so many bytes of output: less where little
/// space is free, so that a nearly full file system suffices, and not so little that syncing costs more than merging.
const WINDOW_BYTES_MIN: u64 = 1 << 20;
const WINDOW_BYTES_MAX: u64 = 64 << 20;
/// All lanes together free late at most this part of the data.
pub(super) const DATA_SHARE: u64 = 64;
/// What a sort in place has beside its records: the manifest, and metadata of the file system.
const BESIDE_BYTES: u64 = 1 << 20;
/// A sort with less is refused.
pub const BUDGET_BYTES_MIN: usize = 8 << 20;
pub(super) const RUN_BUFFERS: usize = 3;
pub(super) const OUTPUT_BUFFERS: usize = 3;
/// Blocks of each run: one is merged, the other read.
pub(super) const BLOCKS_PER_RUN: usize = 2;
/// One process needs no more; bounds the manifest.
pub(super) const FAN_IN_MAX: usize = 1024;

/// Bytes on a page boundary; in huge pages where that is possible, since a sort jumps about in them.
pub(crate) type Buffer = MmapMut;

pub(crate) fn buffer(bytes: usize) -> Result<Buffer> {
    let mapped = MmapMut::map_anon(bytes);
    let buffer =
        mapped.map_err(|error| SortError::Refused(format!("{bytes} bytes of memory cannot be had: {error}")))?;
    // Only a wish.
    let _ = buffer.advise(Advice::HugePage);
    Ok(buffer)
}

/// A memory budget, and what it is worth to sort one kind of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All lengths and offsets are multiples of this many bytes.
    pub(super) unit_bytes: usize,
    /// Bytes of one run as it is formed.
    pub run_bytes: usize,
    /// Runs that are merged at once, at most.
    pub fan_in_max: usize,
    left: usize,
    lanes_max: usize,
    /// Least and most output between two times that a lane frees what it has merged.
    pub(super) window_bytes: (u64, u64),
}

/// What a sort will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordSortEstimate {
    /// Runs that it will form.
    pub runs: u64,
    /// Passes over all records, after run formation.
    pub passes: u64,
    /// Bytes of disk space beside the file that is sorted in place; less where less is free.
    pub headroom_bytes: u64,
}

/// How one merge uses the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MergeMemory {
    pub(super) lanes: usize,
    pub(super) block_bytes: usize,
    pub(super) output_bytes: usize,
}

impl Memory {
    /// Divides `budget_bytes` for records of a format among `lanes_max` merging threads.
    ///
    /// # Errors
    /// A budget that is too small for such records; it says how much is needed.
    pub fn divide(
        budget_bytes: usize,
        format: &RecordFormat,
        lanes_max: usize,
    ) -> std::result::Result<Self, TooLittleMemory> {
        let bytes = format.bytes();
        let common = bytes / gcd(bytes, PAGE_BYTES) * PAGE_BYTES;
        let unit = if common <= UNIT_BYTES_MAX { common } else { bytes };
        let needed = (BUDGET_BYTES_MIN).max(OVERHEAD_BYTES + 16 * unit);
        if budget_bytes < needed {
            return Err(TooLittleMemory {
                budget_bytes,
                record_bytes: bytes,
                needed_bytes: needed,
            });
        }
        let left = budget_bytes - OVERHEAD_BYTES;
        let run = (left / bytes_per_record(format)).min(u32::MAX as usize) * bytes / unit * unit;
        let mut memory = Self {
            unit_bytes: unit,
            run_bytes: run.max(unit),
            fan_in_max: 0,
            left,
            lanes_max: lanes_max.max(1),
            window_bytes: (WINDOW_BYTES_MIN, WINDOW_BYTES_MAX),
        };
        let block = memory.rounded(BLOCK_BYTES_MIN);
        let runs = (left - OUTPUT_BUFFERS * memory.output_bytes(1)) / (BLOCKS_PER_RUN * block);
        memory.fan_in_max = runs.clamp(2, FAN_IN_MAX);
        Ok(memory)
    }

    /// How to merge so many runs: in as many lanes (at most `lanes_max`) as leave each run a block worth reading.
    pub(super) fn for_merge(&self, runs: usize, lanes_max: usize) -> MergeMemory {
        let enough = self.rounded(BLOCK_BYTES_MIN);
        let mut lanes = (1..=self.lanes_max.min(lanes_max)).rev();
        let lanes = lanes
            .find(|lanes| self.block_bytes(*lanes, runs) >= enough)
            .unwrap_or(1);
        self.for_lanes(lanes, runs)
    }

    /// How to merge so many runs in just so many lanes.
    pub(super) fn for_lanes(&self, lanes: usize, runs: usize) -> MergeMemory {
        let block = self.block_bytes(lanes, runs);
        MergeMemory {
            lanes,
            block_bytes: block.clamp(self.unit_bytes, self.rounded(BLOCK_BYTES_MAX)),
            output_bytes: self.output_bytes(lanes),
        }
    }

    /// The longest blocks for which there is memory.
    fn block_bytes(&self, lanes: usize, runs: usize) -> usize {
        let inputs = (self.left / lanes).saturating_sub(OUTPUT_BUFFERS * self.output_bytes(lanes));
        inputs / (BLOCKS_PER_RUN * runs.max(1)) / self.unit_bytes * self.unit_bytes
    }

    /// Can runs of so many bytes be formed? If not, gives the budget that would do.
    pub(super) fn can_form(&self, format: &RecordFormat, run_bytes: usize) -> std::result::Result<(), usize> {
        let needed = run_bytes / format.bytes() * bytes_per_record(format);
        if needed <= self.left {
            Ok(())
        } else {
            Err(needed + OVERHEAD_BYTES)
        }
    }

    /// Can so many runs be merged in so many lanes? If not, gives a budget that would do.
    pub(super) fn can_merge(&self, lanes: usize, runs: usize) -> std::result::Result<(), usize> {
        if self.block_bytes(lanes, runs) > 0 {
            return Ok(());
        }
        // Blocks and output buffers of one unit, and the eighth that output may take.
        let needed = lanes * self.unit_bytes * (OUTPUT_BUFFERS + BLOCKS_PER_RUN * runs.max(1));
        Err(needed + needed.div_ceil(7) + OVERHEAD_BYTES)
    }

    pub(super) fn budget_bytes(&self) -> usize {
        self.left + OVERHEAD_BYTES
    }

    /// What a sort of so many bytes will need.
    #[must_use]
    pub fn need(&self, bytes: u64) -> RecordSortEstimate {
        let runs = bytes.div_ceil(self.run_bytes as u64);
        let lanes = self.lanes_max as u64;
        // What a lane has written since it last freed something is at most a window and a buffer.
        let late = lanes * (self.window(bytes / DATA_SHARE, self.lanes_max) + self.output_bytes(1) as u64);
        RecordSortEstimate {
            runs,
            passes: Pass::count(runs, self.fan_in_max),
            headroom_bytes: bytes.min((self.run_bytes as u64).max(late)) + BESIDE_BYTES,
        }
    }

    /// How much each lane writes before it frees what it has merged, if all together may free so much late.
    pub(super) fn window(&self, late_bytes: u64, lanes: usize) -> u64 {
        let (least, most) = self.window_bytes;
        (late_bytes / lanes as u64).clamp(least, most)
    }

    /// So little that a few kilobytes take several runs, passes and windows.
    #[cfg(test)]
    pub(super) fn tiny(format: &RecordFormat, fan_in_max: usize, lanes_max: usize) -> Self {
        let unit = format.bytes() / gcd(format.bytes(), PAGE_BYTES) * PAGE_BYTES;
        Self {
            unit_bytes: unit,
            run_bytes: unit,
            fan_in_max,
            left: 64 * unit,
            lanes_max,
            window_bytes: (unit as u64, unit as u64),
        }
    }

    /// With so many units for all buffers.
    #[cfg(test)]
    pub(super) fn with_units(self, units: usize) -> Self {
        let left = units * self.unit_bytes;
        Self { left, ..self }
    }

    /// Most lanes of a merge.
    pub(super) fn lanes_max(&self) -> usize {
        self.lanes_max
    }

    /// Length of one output buffer: an eighth of the memory for all of them.
    fn output_bytes(&self, lanes: usize) -> usize {
        let share = self.left / 8 / lanes / OUTPUT_BUFFERS;
        (share.min(OUTPUT_BYTES_MAX) / self.unit_bytes * self.unit_bytes).max(self.unit_bytes)
    }

    /// The next multiple of the unit.
    fn rounded(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.unit_bytes) * self.unit_bytes
    }
}

/// Bytes that a record takes while runs are formed.
fn bytes_per_record(format: &RecordFormat) -> usize {
    RUN_BUFFERS * format.bytes() + RunSorter::bytes_per_record(format)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_division_exceeds_its_budget() {
        for bytes in [1, 4, 24, 100, 4095, 4096, 65_537] {
            let format = RecordFormat::new(bytes, Vec::new()).expect("a format");
            for budget in [8 << 20, 31 << 20, 256 << 20, 2 << 30] {
                let Ok(memory) = Memory::divide(budget, &format, 2) else {
                    continue;
                };
                let per_record = RunSorter::bytes_per_record(&format);
                let forming = RUN_BUFFERS * memory.run_bytes + memory.run_bytes / bytes * per_record;
                assert!(forming + OVERHEAD_BYTES <= budget, "{bytes} {budget}: {memory:?}");
                for runs in [1, 2, memory.fan_in_max / 2, memory.fan_in_max] {
                    let merge = memory.for_merge(runs, usize::MAX);
                    let lane = OUTPUT_BUFFERS * merge.output_bytes + BLOCKS_PER_RUN * runs.max(1) * merge.block_bytes;
                    assert!(
                        merge.lanes * lane + OVERHEAD_BYTES <= budget,
                        "{bytes} {budget} {runs}: {merge:?}"
                    );
                    assert!(merge.block_bytes.is_multiple_of(bytes) && merge.output_bytes.is_multiple_of(bytes));
                }
            }
        }
    }

    /// A merge that was begun with more memory: what is said to be enough is, and what is let pass keeps to its budget.
    #[test]
    fn what_a_merge_needs_is_enough_for_it() {
        for (bytes, lanes, runs) in [(24, 1, 2), (24, 2, 1000), (100, 3, 77), (65_537, 2, 40), (1, 4, 1024)] {
            let format = RecordFormat::new(bytes, Vec::new()).expect("a format");
            let memory = |budget| Memory::divide(budget, &format, 2);
            let Ok(least) = memory(BUDGET_BYTES_MIN) else { continue };
            let budget = least.can_merge(lanes, runs).err().unwrap_or(BUDGET_BYTES_MIN);
            for budget in [budget, budget + 1000, budget * 2] {
                let memory = memory(budget).expect("enough");
                assert_eq!(memory.can_merge(lanes, runs), Ok(()), "{bytes} {lanes} {runs} {budget}");
                let merge = memory.for_lanes(lanes, runs);
                let lane = OUTPUT_BUFFERS * merge.output_bytes + BLOCKS_PER_RUN * runs * merge.block_bytes;
                assert!(
                    lanes * lane + OVERHEAD_BYTES <= budget,
                    "{bytes} {lanes} {runs} {budget}"
                );
            }
        }
    }

    #[test]
    fn too_little_memory_is_refused_with_what_is_needed() {
        let format = RecordFormat::new(24, Vec::new()).expect("a format");
        let error = Memory::divide(1 << 20, &format, 1).expect_err("too little");
        assert!(error.to_string().contains("at least 8388608"), "{error}");
    }
}
