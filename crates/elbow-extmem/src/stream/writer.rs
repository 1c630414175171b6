//! Writing a stream, two blocks behind.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bytemuck::Pod;

use super::{BLOCK_BYTES, BLOCKS, Block, Reservation, Stream, StreamFile};
use crate::sort::{Result, SortError, failed};

/// Takes bytes and writes them in the background.
pub(super) struct BlockWriter {
    file: Arc<StreamFile>,
    block: Block,
    /// `None` once it failed or is finished.
    full: Option<Sender<Block>>,
    empty: Receiver<Block>,
    thread: Option<JoinHandle<Result<()>>>,
    _memory: Reservation,
}

impl BlockWriter {
    pub(super) fn new(file: Arc<StreamFile>) -> Result<Self> {
        let memory = file.scratch.budget.reserve(BLOCKS * BLOCK_BYTES)?;
        let (full, blocks) = channel::<Block>();
        let (back, empty) = channel::<Block>();
        for _ in 1..BLOCKS {
            let _ = back.send(Block::new()?); // its receiver is here
        }
        let to = file.clone();
        let thread = std::thread::Builder::new()
            .name("elbow-stream".into())
            .spawn(move || write(&to, &blocks, &back));
        let errno =
            |error: std::io::Error| elbow_file::Errno::from_io_error(&error).unwrap_or(elbow_file::Errno::AGAIN);
        let thread = thread.map_err(|error| failed("starting a thread for", &file.path)(errno(error)))?;
        Ok(Self {
            file,
            block: Block::new()?,
            full: Some(full),
            empty,
            thread: Some(thread),
            _memory: memory,
        })
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        let block = &mut self.block;
        if let Some(room) = block.buffer.get_mut(block.bytes..block.bytes + bytes.len()) {
            room.copy_from_slice(bytes);
            block.bytes += bytes.len();
            return Ok(());
        }
        self.push_in_parts(bytes)
    }

    fn push_in_parts(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.block.bytes == BLOCK_BYTES {
                self.send()?;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.bytes));
            self.block.buffer[self.block.bytes..][..part.len()].copy_from_slice(part);
            self.block.bytes += part.len();
            bytes = rest;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let Ok(next) = self.empty.recv() else {
            return end(&mut self.full, &mut self.thread);
        };
        let block = std::mem::replace(&mut self.block, next);
        // A thread that is gone has failed; the next call hears why.
        let _ = self.full.as_ref().map(|full| full.send(block));
        Ok(())
    }

    /// Writes the rest; everything is in the file then.
    pub(super) fn finish(mut self) -> Result<Arc<StreamFile>> {
        // A thread that is gone has failed, which its end says.
        let _ = self.full.as_ref().map(|full| full.send(self.block));
        end(&mut self.full, &mut self.thread)?;
        Ok(self.file)
    }
}

/// Waits for the thread and hears how it ended.
fn end(full: &mut Option<Sender<Block>>, thread: &mut Option<JoinHandle<Result<()>>>) -> Result<()> {
    *full = None;
    match thread.take() {
        Some(thread) => thread.join().expect("no panic"),
        None => Err(SortError::Stopped),
    }
}

fn write(file: &StreamFile, blocks: &Receiver<Block>, back: &Sender<Block>) -> Result<()> {
    let mut at = 0;
    for mut block in blocks {
        file.write(&block, at)?;
        at += block.bytes as u64;
        block.bytes = 0;
        let _ = back.send(block); // there may be no more to write
    }
    Ok(())
}

/// Writes a stream of fixed-size records. Dropped without [`finish`](Self::finish), there is no stream.
pub struct Writer<T> {
    blocks: BlockWriter,
    records: u64,
    of: PhantomData<T>,
}

impl<T: Pod> Writer<T> {
    pub(super) fn new(file: Arc<StreamFile>) -> Result<Self> {
        let (blocks, of) = (BlockWriter::new(file)?, PhantomData);
        let records = 0;
        Ok(Self { blocks, records, of })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// A storage error, of this record or an earlier one.
    #[inline]
    pub fn push(&mut self, record: T) -> Result<()> {
        self.records += 1;
        self.blocks.push(bytemuck::bytes_of(&record))
    }

    /// Ends the stream: everything is in its file.
    ///
    /// # Errors
    /// A storage error, of any record.
    pub fn finish(self) -> Result<Stream<T>> {
        Ok(Stream::new(self.blocks.finish()?, self.records))
    }
}
