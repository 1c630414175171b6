//! Which chunks of the memory are resident, and where the others are.
//!
//! ```text
//!             fault: zeros, or the block      write
//!    absent ───────────────────────> clean ─────────> dirty
//!      ^                               │                │ protect, copy, write to a block
//!      └───────────────────────────────┴────────────────┘ (zeros: free the block)
//! ```
//!
//! Invariants: a clean chunk equals its block and is write-protected, so that a write to it is seen; a chunk of zeros
//! that was never written has no block; chunks leave in the order in which they came.

use std::collections::VecDeque;

use super::faults::{Fault, Faults, Region};
use crate::store::{BlockId, BlockStore, StoreError};
use elbow_file::Errno;

/// What is known of one chunk.
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    is_resident: bool,
    is_dirty: bool,
    block: Option<BlockId>,
}

/// See the module's header.
pub(super) struct ResidentSet {
    chunks: Vec<Chunk>,
    /// The resident chunks, in the order in which they came.
    queue: VecDeque<usize>,
    /// How many chunks may be resident.
    most: usize,
    store: BlockStore,
    buffer: Vec<u8>,
    stats: PagerStats,
    /// Why a chunk could not leave.
    failure: Option<StoreError>,
}

/// Why a fault could not be served: the thread that waits would wait for ever.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("userfaultfd: {0}")]
    System(#[from] Errno),
}

impl ResidentSet {
    pub(super) fn new(region: &Region, most: usize, store: BlockStore) -> Self {
        Self {
            chunks: vec![Chunk::default(); region.length / CHUNK_BYTES],
            queue: VecDeque::new(),
            most,
            store,
            buffer: vec![0; CHUNK_BYTES],
            stats: PagerStats::default(),
            failure: None,
        }
    }

    pub(super) fn stats(&self) -> PagerStats {
        PagerStats {
            resident_bytes: (self.queue.len() * CHUNK_BYTES) as u64,
            stored_bytes: self.store.len() * CHUNK_BYTES as u64,
            ..self.stats
        }
    }

    pub(super) fn store(&self) -> &BlockStore {
        &self.store
    }

    pub(super) fn take_failure(&mut self) -> Option<StoreError> {
        self.failure.take()
    }

    /// Does what a thread waits for.
    pub(super) fn serve(&mut self, fault: Fault, faults: &Faults, region: &Region) -> Result<(), ServeError> {
        let index = (fault.address - region.address) / CHUNK_BYTES;
        let address = region.address + index * CHUNK_BYTES;
        let chunk = &mut self.chunks[index];
        match (chunk.is_resident, fault.is_protected) {
            (true, true) => {
                chunk.is_dirty = true;
                faults.unprotect(address, CHUNK_BYTES)?;
            }
            // It came or went since, and a second try will do or tell more.
            (true, false) | (false, true) => faults.wake(address, CHUNK_BYTES)?,
            (false, false) => self.load(index, fault.writes, faults, region)?,
        }
        Ok(())
    }

    fn load(&mut self, index: usize, writes: bool, faults: &Faults, region: &Region) -> Result<(), ServeError> {
        self.stats.faults += 1;
        // More than one has to leave where some could not before.
        while self.queue.len() >= self.most && self.evict(faults, region)? {}
        let address = region.address + index * CHUNK_BYTES;
        let chunk = &mut self.chunks[index];
        match chunk.block {
            Some(block) => {
                self.store.read(block, &mut self.buffer)?;
                self.stats.read_bytes += CHUNK_BYTES as u64;
                // Protected unless it is being written, so that the first write is told: a clean chunk leaves without
                // being saved.
                faults.give(address, &self.buffer, !writes)?;
                chunk.is_dirty = writes;
            }
            None => {
                faults.give_zeros(address, CHUNK_BYTES)?;
                chunk.is_dirty = true; // a write to zeros of the kernel's is not told
            }
        }
        chunk.is_resident = true;
        self.queue.push_back(index);
        Ok(())
    }

    /// Makes the oldest chunk leave; whether it could.
    fn evict(&mut self, faults: &Faults, region: &Region) -> Result<bool, ServeError> {
        let Some(index) = self.queue.pop_front() else {
            return Ok(false);
        };
        let address = region.address + index * CHUNK_BYTES;
        if self.chunks[index].is_dirty {
            // Nobody may write between what is saved and what is thrown away: who tries waits, and then loads it again.
            faults.protect(address, CHUNK_BYTES)?;
            region.read(address, &mut self.buffer);
            if let Err(error) = self.save(index) {
                // It stays, beyond the budget, rather than being lost.
                self.failure = Some(error);
                self.queue.push_back(index);
                faults.unprotect(address, CHUNK_BYTES)?;
                return Ok(false);
            }
        }
        region.empty(address, CHUNK_BYTES)?;
        let chunk = &mut self.chunks[index];
        (chunk.is_resident, chunk.is_dirty) = (false, false);
        Ok(true)
    }

    /// Writes what is in the buffer to the block of a chunk; frees the block where that is all zeros.
    fn save(&mut self, index: usize) -> Result<(), StoreError> {
        let block = &mut self.chunks[index].block;
        if self.buffer.iter().all(|&byte| byte == 0) {
            return block.take().map_or(Ok(()), |block| self.store.free(block));
        }
        let to = match *block {
            Some(block) => block,
            None => self.store.alloc()?,
        };
        let written = self.store.write(to, &self.buffer);
        // A block that was made for this has nothing of the chunk in it when the write fails.
        if written.is_err() && block.is_none() {
            self.store.free(to)?;
        } else {
            *block = Some(to);
        }
        self.stats.written_bytes += CHUNK_BYTES as u64;
        written
    }

    /// Forgets chunks: they are zeros again.
    pub(super) fn discard(&mut self, chunks: std::ops::Range<usize>, region: &Region) -> Result<(), ServeError> {
        let address = region.address + chunks.start * CHUNK_BYTES;
        region.empty(address, chunks.len() * CHUNK_BYTES)?;
        self.queue.retain(|index| !chunks.contains(index));
        for chunk in &mut self.chunks[chunks] {
            if let Some(block) = std::mem::take(chunk).block {
                self.store.free(block)?;
            }
        }
        Ok(())
    }
}

/// What is moved at a time: one fault of some microseconds for sixteen pages.
pub const CHUNK_BYTES: usize = 64 << 10;

/// What a pager has done and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagerStats {
    /// Bytes in memory now.
    pub resident_bytes: u64,
    /// Bytes in the store now.
    pub stored_bytes: u64,
    /// Chunks that were not resident when they were needed.
    pub faults: u64,
    /// Bytes read from the store.
    pub read_bytes: u64,
    /// Bytes written to the store.
    pub written_bytes: u64,
}
