//! Sorted text, block by block: from a stream, or from a run that is read ahead.
//!
//! ```text
//!   merge  <- lines <- [ block ]     <--- filled ---  reader: one thread for all runs of a lane, in the order
//!                      [ the next ]  ---- asked for ->        in which they were asked for
//! ```
//!
//! Blocks of a run end on pages of its file, so that all but its ends go past the page cache.

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use elbow_file::DIRECT_ALIGNMENT;

use super::buffer::{Buffer, buffer};
use super::error::Result;
use super::input::read_some;
use super::run::ConsumedRun;
use crate::sort::Meter;

/// Blocks of a run: one is merged, the other read.
pub(super) const BLOCKS_PER_RUN: usize = 2;

/// Bytes that follow each other.
pub(super) struct Block {
    buffer: Buffer,
    filled: Range<usize>,
}

impl Block {
    /// Nothing, with room for so many bytes.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        let buffer = buffer(bytes)?;
        Ok(Self { buffer, filled: 0..0 })
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.filled.clone()]
    }
}

/// Where blocks come from.
pub(super) trait Blocks: Send {
    /// Replaces a block by the next; an empty one at the end.
    fn next(&mut self, block: &mut Block) -> io::Result<()>;
}

/// A stream, read when more is wanted.
pub(super) struct StreamBlocks<R>(pub(super) R);

impl<R: Read + Send> Blocks for StreamBlocks<R> {
    fn next(&mut self, block: &mut Block) -> io::Result<()> {
        block.filled = 0..read_some(&mut self.0, &mut block.buffer)?;
        Ok(())
    }
}

/// Counts what is read.
pub(super) struct Metered<R> {
    pub(super) stream: R,
    pub(super) meter: Arc<Meter>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.meter.note_read(read as u64);
        Ok(read)
    }
}

/// A wish to read a part of a run.
pub(super) struct Request {
    run: Arc<ConsumedRun>,
    /// From the page on in which `start` lies.
    start: u64,
    end: u64,
    buffer: Buffer,
    reply: Sender<io::Result<Block>>,
}

/// A run that is read ahead.
pub(super) struct RunBlocks {
    run: Arc<ConsumedRun>,
    requests: Sender<Request>,
    reply: Sender<io::Result<Block>>,
    filled: Receiver<io::Result<Block>>,
    /// What is asked for next; before it lies what has been read or will be.
    at: u64,
    is_asked_for: bool,
}

impl RunBlocks {
    /// Asks for the first block.
    pub(super) fn new(run: ConsumedRun, requests: Sender<Request>, block_bytes: usize) -> Result<Self> {
        let (reply, filled) = channel();
        let mut blocks = Self {
            at: run.range().start,
            run: Arc::new(run),
            requests,
            reply,
            filled,
            is_asked_for: false,
        };
        blocks.ask(buffer(block_bytes)?);
        Ok(blocks)
    }

    fn ask(&mut self, buffer: Buffer) {
        let start = self.at;
        // What is read past the page cache begins at a page, so the bytes before the line are read with it.
        let page = start / DIRECT_ALIGNMENT as u64 * DIRECT_ALIGNMENT as u64;
        let end = (page + buffer.len() as u64).min(self.run.range().end);
        self.is_asked_for = start < end;
        if self.is_asked_for {
            self.at = end;
            let (run, reply) = (self.run.clone(), self.reply.clone());
            // The reader lives as long as anybody may ask.
            let _ = self.requests.send(Request {
                run,
                start,
                end,
                buffer,
                reply,
            });
        }
    }
}

impl Blocks for RunBlocks {
    fn next(&mut self, block: &mut Block) -> io::Result<()> {
        if !self.is_asked_for {
            block.filled = 0..0;
            return Ok(());
        }
        let next = self
            .filled
            .recv()
            .map_err(|_| io::Error::other("the reader has ended"))??;
        let last = std::mem::replace(block, next);
        // Asked for while this one is merged: the next is there when it is needed.
        self.ask(last.buffer);
        Ok(())
    }
}

/// Reads what is asked for, until nobody can ask any more.
pub(super) fn read_ahead(requests: &Receiver<Request>, meter: &Meter) {
    for request in requests {
        let Request {
            run,
            start,
            end,
            mut buffer,
            reply,
        } = request;
        let page = start / DIRECT_ALIGNMENT as u64 * DIRECT_ALIGNMENT as u64;
        let read = run.read(&mut buffer[..(end - page) as usize], page);
        // Counted whether or not it could be read: the sort ends at an error, and shows no more progress.
        meter.note_read(end - start);
        // Whoever does not wait for it any more has failed, and says why.
        let _ = reply.send(read.map(|()| Block {
            filled: (start - page) as usize..(end - page) as usize,
            buffer,
        }));
        // After the read: the run has no other copy.
        run.free_before(end);
    }
}
