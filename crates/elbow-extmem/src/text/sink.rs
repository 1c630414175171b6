//! Lines into a stream of bytes, written by a thread of their own.
//!
//! ```text
//!   merge -> [ buffer being filled ]   [ full ] -> thread -> [ being written ]
//!                     ^-------- empty buffers --------'
//! ```
//!
//! Buffers are full to the last byte, in the middle of a line if need be, and end on pages of the file: all but the ends
//! of a file go past the page cache.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use elbow_file::DIRECT_ALIGNMENT;

use super::buffer::{Buffer, buffer};
use super::error::Result;
use crate::sort::Meter;

/// Buffers: one is filled, one waits, one is written.
pub(super) const BUFFERS: usize = 3;

/// How lines are written.
#[derive(Clone)]
pub(super) struct OutputFlow {
    pub(super) terminator: u8,
    /// Of each of the [`BUFFERS`].
    pub(super) buffer_bytes: usize,
    pub(super) meter: Arc<Meter>,
}

/// Takes lines, and gives the stream back at the end.
pub(super) struct Sink<W> {
    buffer: Buffer,
    filled: usize,
    /// Where the buffer is passed on: the first time earlier, so that all others begin on a page.
    limit: usize,
    terminator: u8,
    full: SyncSender<Full>,
    empty: Receiver<Buffer>,
    writer: JoinHandle<io::Result<W>>,
}

struct Full {
    buffer: Buffer,
    bytes: usize,
}

/// The writing thread has ended; [`Sink::finish`] says why.
#[derive(Debug)]
pub(super) struct Closed;

impl<W: Write + Send + 'static> Sink<W> {
    /// For a stream that begins at an offset of its file.
    pub(super) fn new(stream: W, at: u64, flow: &OutputFlow) -> Result<Self> {
        // One buffer is filled, one waits, one is written: more would only take memory.
        let (full, full_buffers) = sync_channel(1);
        let (give_back, empty) = sync_channel(BUFFERS);
        for _ in 1..BUFFERS {
            give_back
                .send(buffer(flow.buffer_bytes)?)
                .expect("the other end is here");
        }
        let buffer = buffer(flow.buffer_bytes)?;
        // The first buffer ends where a page does: all after it are written past the page cache.
        let odd = (at % DIRECT_ALIGNMENT as u64) as usize;
        let limit = if buffer.len() > odd {
            buffer.len() - odd
        } else {
            buffer.len()
        };
        let meter = flow.meter.clone();
        let writer = std::thread::spawn(move || write_all(stream, &full_buffers, &give_back, &meter));
        Ok(Self {
            buffer,
            filled: 0,
            limit,
            terminator: flow.terminator,
            full,
            empty,
            writer,
        })
    }

    /// Takes a line without its terminator.
    #[inline]
    pub(super) fn push(&mut self, line: &[u8]) -> std::result::Result<(), Closed> {
        let end = self.filled + line.len();
        if end >= self.limit {
            return self.push_in_parts(line);
        }
        self.buffer[self.filled..end].copy_from_slice(line);
        self.buffer[end] = self.terminator;
        self.filled = end + 1;
        Ok(())
    }

    #[cold]
    fn push_in_parts(&mut self, line: &[u8]) -> std::result::Result<(), Closed> {
        for mut part in [line, &[self.terminator]] {
            while !part.is_empty() {
                if self.filled == self.limit {
                    self.pass_on()?;
                }
                let (now, later) = part.split_at(part.len().min(self.limit - self.filled));
                self.buffer[self.filled..][..now.len()].copy_from_slice(now);
                self.filled += now.len();
                part = later;
            }
        }
        Ok(())
    }

    fn pass_on(&mut self) -> std::result::Result<(), Closed> {
        // The writer ends early only if it has failed; `finish` says why.
        let next = self.empty.recv().map_err(|_| Closed)?;
        let full = Full {
            buffer: std::mem::replace(&mut self.buffer, next),
            bytes: std::mem::take(&mut self.filled),
        };
        self.limit = self.buffer.len();
        self.full.send(full).map_err(|_| Closed)
    }

    /// Waits until all is written.
    pub(super) fn finish(self) -> io::Result<W> {
        let last = Full {
            buffer: self.buffer,
            bytes: self.filled,
        };
        let _ = self.full.send(last); // what went wrong is what the thread says
        drop((self.full, self.empty));
        self.writer.join().expect("writing does not panic")
    }
}

fn write_all<W: Write>(
    mut stream: W,
    full: &Receiver<Full>,
    give_back: &SyncSender<Buffer>,
    meter: &Meter,
) -> io::Result<W> {
    for Full { buffer, bytes } in full {
        stream.write_all(&buffer[..bytes])?;
        meter.note_written(bytes as u64);
        let _ = give_back.send(buffer); // nobody needs it at the end
    }
    // The stream may have a buffer of its own, whose error must not be lost.
    stream.flush()?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(buffer_bytes: usize) -> OutputFlow {
        OutputFlow {
            terminator: b'\n',
            buffer_bytes,
            meter: Arc::default(),
        }
    }

    #[test]
    fn lines_of_any_length_arrive_in_order() {
        let lines: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; usize::from(n) * 7 % 50]).collect();
        let expected: Vec<u8> = lines.iter().flat_map(|line| [&line[..], b"\n"].concat()).collect();
        for (buffer_bytes, at) in [(1, 0), (10, 0), (10, 4095), (100, 7), (10_000, 100)] {
            let mut sink = Sink::new(Vec::new(), at, &flow(buffer_bytes)).expect("memory");
            lines.iter().for_each(|line| sink.push(line).expect("memory takes all"));
            assert_eq!(sink.finish().expect("memory takes all"), expected, "{buffer_bytes}");
        }
    }

    #[test]
    fn an_error_is_told_once_and_ends_the_taking() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut sink = Sink::new(Full, 0, &flow(10)).expect("memory");
        assert!((0..1000).any(|_| sink.push(b"a line").is_err()));
        assert_eq!(
            sink.finish().err().map(|error| error.kind()),
            Some(io::ErrorKind::StorageFull)
        );
    }
}
