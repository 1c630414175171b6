//! How the memory for a sort of text is divided.
//!
//! ```text
//!   forming   3 chunks (one is read, one sorted, one written)  + 3 output buffers + what was read too far
//!   merging   in each lane: 2 blocks for each source (one is merged, one read)  + 3 output buffers
//! ```

use elbow_file::DIRECT_ALIGNMENT;
use rustix::process::{Resource, getrlimit};

use super::blocks::BLOCKS_PER_RUN;
use super::buffer::whole_pages;
use super::chunk::READ_BYTES_MAX;
use super::options::SortOptions;
use super::sink::BUFFERS;

/// Chunks of run formation: one is filled, one sorted, one written.
pub(super) const CHUNKS: usize = 3;
/// Less memory is taken for this much.
const MEMORY_BYTES_MIN: usize = 4 << 10;
/// Code, stacks and channels; out of a small budget, a part.
const PROGRAM_BYTES: usize = 4 << 20;
/// More in a buffer or a block makes nothing faster.
const BUFFER_BYTES_MAX: usize = 2 << 20;
/// Lanes that would leave a source less are not worth it ...
const LANE_BLOCK_BYTES_MIN: usize = 8 << 10;
/// ... and more than the disk can feed neither; each has three threads.
const LANES_MAX: usize = 8;
/// Merging more sources at once is worth no smaller buffers than this ...
const BUFFER_BYTES_WANTED: usize = 128 << 10;
/// ... but for a few, any will do.
const FAN_IN_MIN: usize = 16;
/// Matches per line grow with it; and inputs of a merge take a descriptor each, of which there are often 1,024.
const FAN_IN_MAX: usize = 512;
/// Descriptors of a process that are not those of sources.
const DESCRIPTORS_KEPT: u64 = 24;
/// Packed runs take a process each.
const FAN_IN_PACKED: usize = 16;

/// How the budget is divided.
pub(super) struct Memory {
    /// All of it, but for the program itself.
    all_bytes: usize,
    pub(super) chunk_bytes: usize,
    /// Of each of the [`BUFFERS`] of an output.
    pub(super) buffer_bytes: usize,
    pub(super) fan_in: usize,
}

/// How one merge uses the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MergeMemory {
    pub(super) lanes: usize,
    /// Of each of the [`BLOCKS_PER_RUN`] of a run that is read ahead.
    pub(super) block_bytes: usize,
}

impl MergeMemory {
    /// Smaller blocks are read when they are needed: asking for them costs more.
    pub(super) fn reads_ahead(&self) -> bool {
        self.block_bytes >= DIRECT_ALIGNMENT
    }

    /// The one block of what is not read ahead.
    pub(super) fn whole_bytes(&self) -> usize {
        self.block_bytes * BLOCKS_PER_RUN
    }
}

impl Memory {
    pub(super) fn divide(options: &SortOptions) -> Self {
        let given = options.memory_bytes.max(MEMORY_BYTES_MIN);
        let all_bytes = given - PROGRAM_BYTES.min(given / 16);
        let buffer_bytes = whole_pages((all_bytes / 64).clamp(64, BUFFER_BYTES_MAX));
        let read_bytes = (all_bytes / 64).min(READ_BYTES_MAX);
        let wanted = match (options.fan_in, &options.compress_program) {
            (Some(fan_in), _) => fan_in,
            (None, Some(_)) => FAN_IN_PACKED,
            (None, None) => (all_bytes / BUFFER_BYTES_WANTED).max(FAN_IN_MIN),
        };
        Self {
            all_bytes,
            chunk_bytes: (all_bytes - BUFFERS * buffer_bytes - read_bytes) / CHUNKS,
            buffer_bytes,
            fan_in: wanted.clamp(2, FAN_IN_MAX.min(all_bytes / 64).min(sources_open_max())),
        }
    }

    /// How to merge so many sources, in as many lanes as leave each of them blocks worth reading.
    pub(super) fn for_merge(&self, sources: usize, lanes_max: usize) -> MergeMemory {
        let block_bytes = |lanes: &usize| {
            let inputs = (self.all_bytes / lanes).saturating_sub(BUFFERS * self.buffer_bytes);
            (inputs / (BLOCKS_PER_RUN * sources.max(1))).clamp(8, BUFFER_BYTES_MAX)
        };
        let mut lanes = (1..=lanes_max.min(LANES_MAX)).rev();
        let lanes = lanes
            .find(|lanes| block_bytes(lanes) >= LANE_BLOCK_BYTES_MIN)
            .unwrap_or(1);
        MergeMemory {
            lanes,
            block_bytes: whole_pages(block_bytes(&lanes)),
        }
    }
}

/// A source takes a descriptor.
fn sources_open_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit.saturating_sub(DESCRIPTORS_KEPT)).map_or(usize::MAX, |open| open.max(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_division_exceeds_the_budget() {
        for memory_bytes in [1, 4096, 100_000, 1 << 20, 64 << 20, 1 << 34] {
            let memory = Memory::divide(&SortOptions {
                memory_bytes,
                ..SortOptions::default()
            });
            let budget = memory_bytes.max(MEMORY_BYTES_MIN);
            let outputs = BUFFERS * memory.buffer_bytes;
            assert!(CHUNKS * memory.chunk_bytes + outputs < budget, "{memory_bytes}");
            for (sources, lanes_max) in [(1, 1), (2, 8), (memory.fan_in, 1), (memory.fan_in, 3)] {
                let merge = memory.for_merge(sources, lanes_max);
                assert!(
                    merge.lanes * (sources * merge.whole_bytes() + outputs) <= budget,
                    "{memory_bytes} {sources} {merge:?}"
                );
            }
        }
    }

    #[test]
    fn lanes_are_worth_it_where_their_blocks_are() {
        let of = |memory_bytes, sources| {
            let options = SortOptions {
                memory_bytes,
                ..SortOptions::default()
            };
            Memory::divide(&options).for_merge(sources, 2)
        };
        assert_eq!(of(256 << 20, 30).lanes, 2);
        assert_eq!(of(20_000, 16).lanes, 1);
        assert!(of(256 << 20, 30).reads_ahead() && !of(20_000, 16).reads_ahead());
    }
}
