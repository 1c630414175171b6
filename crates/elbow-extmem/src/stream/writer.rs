//! Writing a stream, two blocks behind.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use bytemuck::Pod;

use super::{BLOCK_BYTES, BLOCKS, Reservation, Stream, StreamFile};
use crate::sort::{Result, SortError, failed};

/// Takes bytes and writes them in the background.
pub(super) struct BlockWriter {
    file: Arc<StreamFile>,
    block: Vec<u8>,
    /// `None` once it failed or is finished.
    full: Option<Sender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    thread: Option<JoinHandle<Result<()>>>,
    _memory: Reservation,
}

impl BlockWriter {
    pub(super) fn new(file: Arc<StreamFile>) -> Result<Self> {
        let memory = file.scratch.budget.reserve(BLOCKS * BLOCK_BYTES)?;
        let (full, blocks) = channel::<Vec<u8>>();
        let (back, empty) = channel::<Vec<u8>>();
        for _ in 1..BLOCKS {
            let _ = back.send(Vec::with_capacity(BLOCK_BYTES)); // its receiver is here
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
            block: Vec::with_capacity(BLOCK_BYTES),
            full: Some(full),
            empty,
            thread: Some(thread),
            _memory: memory,
        })
    }

    #[inline]
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if self.block.len() + bytes.len() <= BLOCK_BYTES {
            self.block.extend_from_slice(bytes);
            return Ok(());
        }
        self.push_in_parts(bytes)
    }

    fn push_in_parts(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.block.len() == BLOCK_BYTES {
                self.send()?;
            }
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK_BYTES - self.block.len()));
            self.block.extend_from_slice(part);
            bytes = rest;
        }
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        let Ok(next) = self.empty.recv() else { return self.end() };
        let block = std::mem::replace(&mut self.block, next);
        // A thread that is gone has failed; the next call hears why.
        let _ = self.full.as_ref().map(|full| full.send(block));
        Ok(())
    }

    /// Waits for the thread and hears how it ended.
    fn end(&mut self) -> Result<()> {
        self.full = None;
        match self.thread.take() {
            Some(thread) => thread.join().expect("no panic"),
            None => Err(SortError::Stopped),
        }
    }

    /// Writes the rest; everything is in the file then.
    pub(super) fn finish(mut self) -> Result<Arc<StreamFile>> {
        let block = std::mem::take(&mut self.block);
        let _ = self.full.as_ref().map(|full| full.send(block)); // as above
        self.end()?;
        Ok(self.file)
    }
}

fn write(file: &StreamFile, blocks: &Receiver<Vec<u8>>, back: &Sender<Vec<u8>>) -> Result<()> {
    let mut at = 0;
    for mut block in blocks {
        file.write(&block, at)?;
        at += block.len() as u64;
        block.clear();
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
