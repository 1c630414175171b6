//! Reading a stream, two blocks ahead; and freeing what was read.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use bytemuck::Pod;
use elbow_file::frees_whole_extents;

use super::{BLOCK_BYTES, BLOCKS, Block, Reservation, SYNC_BYTES_MIN, SYNCS_MAX, StreamFile};
use crate::sort::{Result, SortError, failed};

/// Gives the bytes of a file in order.
pub(super) struct BlockReader {
    block: Block,
    offset: usize,
    full: Receiver<Result<Block>>,
    empty: Sender<Block>,
    _memory: Reservation,
}

impl BlockReader {
    pub(super) fn new(file: Arc<StreamFile>, bytes: u64, consumes: bool) -> Result<Self> {
        let memory = file.scratch.budget.reserve(BLOCKS * BLOCK_BYTES)?;
        let (blocks, full) = channel();
        let (empty, wanted) = channel();
        for _ in 1..BLOCKS {
            let _ = empty.send(Block::new()?); // its receiver is here
        }
        let path = file.path.clone();
        let thread = std::thread::Builder::new().name("elbow-stream".into());
        let started = thread.spawn(move || {
            let freeing = consumes.then(|| Freeing::new(&file, bytes));
            read(&file, bytes, freeing, &wanted, &blocks);
        });
        let errno =
            |error: std::io::Error| elbow_file::Errno::from_io_error(&error).unwrap_or(elbow_file::Errno::AGAIN);
        started.map_err(|error| failed("starting a thread for", &path)(errno(error)))?;
        Ok(Self {
            block: Block::new()?,
            offset: 0,
            full,
            empty,
            _memory: memory,
        })
    }

    /// Fills the buffer.
    #[inline]
    pub(super) fn take(&mut self, into: &mut [u8]) -> Result<()> {
        let block = &self.block;
        if let Some(bytes) = block.buffer[..block.bytes].get(self.offset..self.offset + into.len()) {
            into.copy_from_slice(bytes);
            self.offset += into.len();
            return Ok(());
        }
        self.take_in_parts(into)
    }

    fn take_in_parts(&mut self, mut into: &mut [u8]) -> Result<()> {
        while !into.is_empty() {
            if self.offset == self.block.bytes {
                let next = self.full.recv().map_err(|_| SortError::Stopped)??;
                let read = std::mem::replace(&mut self.block, next);
                self.offset = 0;
                let _ = self.empty.send(read); // the thread may have come to the end
            }
            let bytes = into.len().min(self.block.bytes - self.offset);
            let (part, rest) = into.split_at_mut(bytes);
            part.copy_from_slice(&self.block.buffer[self.offset..self.offset + bytes]);
            self.offset += bytes;
            into = rest;
        }
        Ok(())
    }
}

/// Reads block after block, as long as somebody gives back blocks; frees those that were given back. The first block
/// that comes back is the one that the reader began with, and was never read.
fn read(
    file: &StreamFile,
    bytes: u64,
    mut freeing: Option<Freeing<'_>>,
    wanted: &Receiver<Block>,
    blocks: &Sender<Result<Block>>,
) {
    let mut at = 0;
    for (given, mut block) in wanted.iter().enumerate() {
        // So many whole blocks have been used up: all that came but those given at first and the empty one.
        let used = (given.saturating_sub(BLOCKS - 1) * BLOCK_BYTES) as u64;
        if let Some(Err(error)) = freeing.as_mut().map(|freeing| freeing.free_to(used)) {
            let _ = blocks.send(Err(error)); // nobody may be listening any more
            return;
        }
        let length = (bytes - at).min(BLOCK_BYTES as u64) as usize;
        if length == 0 {
            continue;
        }
        block.bytes = length;
        let got = file.read(&mut block, at).map(|()| block);
        at += length as u64;
        if blocks.send(got).is_err() {
            return;
        }
    }
}

/// Frees what was read.
struct Freeing<'a> {
    file: &'a StreamFile,
    freed: u64,
    synced: u64,
    /// So much is freed between two syncs, where that needs any.
    sync_bytes: Option<u64>,
}

impl<'a> Freeing<'a> {
    fn new(file: &'a StreamFile, bytes: u64) -> Self {
        let waits = frees_whole_extents(&file.file.handle);
        Self {
            file,
            freed: 0,
            synced: 0,
            sync_bytes: waits.then(|| SYNC_BYTES_MIN.max(bytes / SYNCS_MAX)),
        }
    }

    fn free_to(&mut self, used: u64) -> Result<()> {
        if used > self.freed {
            self.file.free(self.freed, used)?;
            self.freed = used;
        }
        if self.sync_bytes.is_some_and(|bytes| used - self.synced >= bytes) {
            self.file.sync_freed();
            self.synced = used;
        }
        Ok(())
    }
}

/// Reads a stream: an iterator over its records, or the storage error that ended it.
pub struct Reader<T> {
    blocks: BlockReader,
    left: u64,
    of: PhantomData<T>,
}

impl<T: Pod> Reader<T> {
    pub(super) fn new(file: Arc<StreamFile>, records: u64, consumes: bool) -> Result<Self> {
        let bytes = records * size_of::<T>() as u64;
        Ok(Self {
            blocks: BlockReader::new(file, bytes, consumes)?,
            left: records,
            of: PhantomData,
        })
    }

    /// Records that are left.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.left
    }
}

impl<T: Pod> Iterator for Reader<T> {
    type Item = Result<T>;

    #[inline]
    fn next(&mut self) -> Option<Result<T>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let mut record = T::zeroed();
        let taken = self.blocks.take(bytemuck::bytes_of_mut(&mut record));
        if taken.is_err() {
            self.left = 0; // what comes after an error is not known
        }
        Some(taken.map(|()| record))
    }
}
