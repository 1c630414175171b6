//! The block store: blocks of one size in one file, which is as large as its blocks.
//!
//! ```text
//!   BlockStore ── blocks     which block is free, allocated, written; the lowest free one
//!              ── transfer   content of blocks, with checksums
//!              ── release    freed blocks become holes, a free tail is cut off; sync
//!              ── emptied    a store without blocks takes one of the disk's
//!              ── open       the header; which blocks a file has
//!              ── layout, bitmap, probe        where things lie; the free map: holes, or pages in the file
//! ```
//!
//! **The hole map is the free list.** A block that was written is data in the file, a free one is a hole, and that is
//! all there is to keep: nothing to compact, nothing to recover. Where the file system does not keep track of holes
//! exactly (asked by a probe when the store is made), a bitmap in the file takes their place.
//!
//! What can be relied on:
//! - Between two syncs the store is what the calls made it. After [`sync`](BlockStore::sync) or
//!   [`close`](BlockStore::close) it is on the storage. Dropping a store without either is a crash that loses nothing
//!   that the operating system had been given.
//! - After a crash, every block that was not touched since the last sync is as it was then. A block written for the
//!   first time since is there or not; one overwritten since holds the old content, the new, or some sectors of each,
//!   which a checksum finds out (with a bitmap, a new block is found only if it is whole).
//! - The content of a block that was freed is gone at once. The freeing itself is durable at the next sync; a crash
//!   before can bring the block back as an allocated one, with any content. [`allocated`](BlockStore::allocated) lists
//!   what is there, for an owner to free what it does not know.
//! - A block that was allocated and not written reads as zeros, and is free when the store is next opened.
//!
//! What does not hold: a store is not open twice (a lock on its file sees to that, where there are such locks); a copy
//! of the file is a store only if the program that copied it kept the holes; blocks that one thread frees while another
//! writes them have no defined content.
//!
//! Source: Vengroff & Kotz, *A Holesome File System*, section 4; fallocate(2), lseek(2).

mod bitmap;
mod bitset;
mod block_id;
mod blocks;
mod emptied;
mod error;
mod layout;
mod open;
mod probe;
mod release;
mod release_state;
mod transfer;

use std::fmt;
use std::sync::Arc;

use elbow_file::{Handle, Storage, unlock};
use elbow_ranges::RangeSet;
use parking_lot::{Condvar, Mutex, MutexGuard};

use bitmap::Versions;
use blocks::{Blocks, Fault};
use layout::Layout;
use release_state::ReleaseState;
use transfer::Transfer;

pub use block_id::BlockId;
pub use error::{Result, StoreError};

/// Where a store keeps which blocks are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FreeMap {
    /// In its holes, where the file system can be trusted with that; else in a bitmap.
    #[default]
    Probe,
    /// In its holes, or there is no store.
    Holes,
    /// In a bitmap in the file.
    Bitmap,
}

/// How a store is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Bytes that a block takes in the file: a multiple of 512, at most 2^30; `None` for the unit of the file system.
    pub block_bytes: Option<u64>,
    /// Where it is kept which blocks are free.
    pub free_map: FreeMap,
    /// Whether blocks carry a checksum, which takes 8 of their bytes and is checked when they are read.
    pub checksums: bool,
}

/// A file of blocks. All methods may be called from any thread.
///
/// ```
/// use std::ffi::OsStr;
/// use std::sync::Arc;
///
/// use elbow_extmem::store::{BlockStore, Options};
/// use elbow_file::RealStorage;
///
/// let directory = tempfile::tempdir()?;
/// let root = RealStorage::open_root(directory.path())?;
/// let store = BlockStore::create(Arc::new(RealStorage), &root, OsStr::new("blocks"), Options::default())?;
/// let (a, b) = (store.alloc()?, store.alloc()?);
/// store.write(b, &vec![7; store.block_bytes()])?;
/// store.free(a)?; // a hole from the start
/// store.close()?;
///
/// let store = BlockStore::open(Arc::new(RealStorage), &root, OsStr::new("blocks"))?;
/// assert_eq!(store.len(), 1);
/// let mut content = vec![0; store.block_bytes()];
/// store.read(b, &mut content)?;
/// assert!(content.iter().all(|&byte| byte == 7));
/// assert_eq!(store.alloc()?, a); // the lowest free block
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BlockStore {
    storage: Arc<dyn Storage>,
    file: Handle,
    is_open: bool,
    /// For messages.
    name: String,
    layout: Layout,
    blocks: Mutex<Blocks>,
    /// Told when a release has ended.
    released: Condvar,
    /// Held while blocks are released or the map is written: one at a time.
    release_state: Mutex<ReleaseState>,
}

impl BlockStore {
    fn new(
        storage: Arc<dyn Storage>,
        file: Handle,
        name: String,
        layout: Layout,
        blocks: Blocks,
        versions: Versions,
    ) -> Self {
        Self {
            storage,
            file,
            is_open: true,
            name,
            layout,
            blocks: Mutex::new(blocks),
            released: Condvar::new(),
            release_state: Mutex::new(ReleaseState::new(versions)),
        }
    }

    /// Bytes that a block holds: what [`read`](Self::read) and [`write`](Self::write) take. Eight fewer than the block
    /// takes in the file, where blocks have checksums.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.layout.payload() as usize
    }

    /// Where this store keeps which blocks are free: [`FreeMap::Holes`] or [`FreeMap::Bitmap`].
    #[must_use]
    pub fn free_map(&self) -> FreeMap {
        if self.layout.has_bitmap {
            FreeMap::Bitmap
        } else {
            FreeMap::Holes
        }
    }

    /// How many blocks are allocated.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks.lock().count()
    }

    /// Whether no block is allocated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the file takes on the storage, in bytes.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn bytes_taken(&self) -> Result<u64> {
        let stat = self.storage.stat_handle(&self.file);
        let blocks = stat
            .map_err(|errno| StoreError::io(&self.name, "ask for its size", errno))?
            .blocks;
        Ok(blocks * 512)
    }

    /// The numbers of the allocated blocks.
    #[must_use]
    pub fn allocated(&self) -> RangeSet {
        self.blocks.lock().allocated().ranges().collect()
    }

    /// Allocates the lowest free block. No space is taken before it is written.
    ///
    /// # Errors
    /// When the store has 2^34 blocks, or 2^62 bytes.
    pub fn alloc(&self) -> Result<BlockId> {
        self.blocks.lock().alloc().map(BlockId).ok_or_else(|| self.full())
    }

    /// Allocates the lowest free blocks, so many; all or none.
    ///
    /// # Errors
    /// As [`alloc`](Self::alloc).
    pub fn alloc_many(&self, count: usize) -> Result<Vec<BlockId>> {
        let mut blocks = self.blocks.lock();
        if count as u64 > self.layout.blocks_max() - blocks.count() {
            return Err(self.full());
        }
        let ids = std::iter::from_fn(|| blocks.alloc().map(BlockId));
        Ok(ids.take(count).collect())
    }

    fn full(&self) -> StoreError {
        StoreError::Full {
            file: self.name.clone(),
            blocks: self.layout.blocks_max(),
        }
    }

    /// Frees a block; its content is gone. The file shrinks soon, and a crash cannot bring the block back after the
    /// next [`sync`](Self::sync). Now and then this takes as long as punching 8 MiB of freed blocks.
    ///
    /// # Errors
    /// When the block is free already.
    pub fn free(&self, block: BlockId) -> Result<()> {
        self.free_many(&[block])
    }

    /// Frees blocks; all or none.
    ///
    /// # Errors
    /// When one of them is free already, or is named twice.
    pub fn free_many(&self, blocks: &[BlockId]) -> Result<()> {
        let many_are_stale = {
            let mut state = self.blocks.lock();
            let freed = match blocks {
                [block] => state.free(&[block.0]),
                blocks => state.free(&blocks.iter().map(|block| block.0).collect::<Vec<_>>()),
            };
            freed.map_err(|fault| self.fault(fault, true))?;
            state.has_stale(self.stale_max())
        };
        if many_are_stale {
            self.release_some();
        }
        Ok(())
    }

    /// Reads a block into a buffer of [`block_bytes`](Self::block_bytes).
    ///
    /// # Errors
    /// Those of the storage; a free block; a buffer of another size; a block that its checksum does not fit.
    pub fn read(&self, block: BlockId, buffer: &mut [u8]) -> Result<()> {
        self.read_many(&[block], buffer)
    }

    /// Reads blocks one behind the other; neighbours are read together.
    ///
    /// # Errors
    /// As [`read`](Self::read). What is in the buffer then is undefined.
    pub fn read_many(&self, blocks: &[BlockId], buffer: &mut [u8]) -> Result<()> {
        self.check_length(blocks, buffer.len())?;
        let is_written = {
            let state = self.blocks.lock();
            let is_written = blocks.iter().map(|block| state.is_written(block.0));
            let is_written: std::result::Result<Vec<bool>, Fault> = is_written.collect();
            is_written.map_err(|fault| self.fault(fault, false))?
        };
        let mut from = 0;
        for same in is_written.chunk_by(|one, next| one == next) {
            let to = from + same.len();
            let buffer = &mut buffer[from * self.block_bytes()..to * self.block_bytes()];
            if same[0] {
                self.transfer().read(&blocks[from..to], buffer)?;
            } else {
                buffer.fill(0);
            }
            from = to;
        }
        Ok(())
    }

    /// Writes a block from a buffer of [`block_bytes`](Self::block_bytes).
    ///
    /// # Errors
    /// Those of the storage; a free block; a buffer of another size. The content of the block is then undefined.
    pub fn write(&self, block: BlockId, data: &[u8]) -> Result<()> {
        self.write_many(&[block], data)
    }

    /// Writes blocks one behind the other; neighbours are written together.
    ///
    /// # Errors
    /// As [`write`](Self::write), for any of the blocks.
    pub fn write_many(&self, blocks: &[BlockId], data: &[u8]) -> Result<()> {
        self.check_length(blocks, data.len())?;
        let all_were_written = self.begin_writes(blocks)?;
        let result = self.transfer().write(blocks, data);
        if !all_were_written {
            self.end_writes(blocks, result.is_ok());
        }
        result
    }

    /// Waits until none of the blocks is being released, and says that they are being written; whether all of them hold
    /// data already.
    fn begin_writes(&self, blocks: &[BlockId]) -> Result<bool> {
        let mut state = self.blocks.lock();
        while blocks.iter().any(|block| state.is_being_released(block.0)) {
            self.released.wait(&mut state);
        }
        for block in blocks {
            state.is_written(block.0).map_err(|fault| self.fault(fault, false))?;
        }
        let were_written = blocks.iter().filter(|block| state.begin_write(block.0)).count();
        Ok(were_written == blocks.len())
    }

    fn end_writes(&self, blocks: &[BlockId], done: bool) {
        let many_are_stale = {
            let mut state = self.blocks.lock();
            blocks.iter().for_each(|block| state.end_write(block.0, done));
            state.has_stale(self.stale_max())
        };
        if many_are_stale {
            self.release_some();
        }
    }

    fn transfer(&self) -> Transfer<'_> {
        Transfer {
            storage: &*self.storage,
            file: &self.file,
            name: &self.name,
            layout: &self.layout,
        }
    }

    fn check_length(&self, blocks: &[BlockId], given: usize) -> Result<()> {
        let expected = blocks.len() as u64 * self.layout.payload();
        if expected == given as u64 {
            return Ok(());
        }
        Err(StoreError::Length {
            file: self.name.clone(),
            blocks: blocks.len() as u64,
            expected,
            given: given as u64,
        })
    }

    fn fault(&self, fault: Fault, freeing: bool) -> StoreError {
        let file = self.name.clone();
        match fault {
            Fault::OutOfRange { block, blocks } => StoreError::OutOfRange {
                file,
                block: BlockId(block),
                blocks,
            },
            Fault::Free(block) if freeing => StoreError::DoubleFree {
                file,
                block: BlockId(block),
            },
            Fault::Free(block) => StoreError::NotAllocated {
                file,
                block: BlockId(block),
            },
        }
    }

    fn lock_blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock()
    }
}

impl Drop for BlockStore {
    fn drop(&mut self) {
        if self.is_open {
            let _ = unlock(&self.file); // where there are no locks there is none to give up
        }
    }
}

impl fmt::Debug for BlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, layout) = (&self.name, &self.layout);
        f.debug_struct("BlockStore")
            .field("name", name)
            .field("layout", layout)
            .finish_non_exhaustive()
    }
}
