//! Lines into a stream of bytes, written by a thread of their own.
//!
//! ```text
//!   merge -> [ buffer being filled ]   [ full ] -> thread -> [ being written ]
//!                     ^-------- empty buffers --------'
//! ```

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Buffers: one is filled, one waits, one is written.
pub(super) const BUFFERS: usize = 3;

/// Takes lines, and gives the stream back at the end.
pub(super) struct Sink<W> {
    buffer: Vec<u8>,
    terminator: u8,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    writer: JoinHandle<io::Result<W>>,
}

/// The writing thread has ended; [`Sink::finish`] says why.
#[derive(Debug)]
pub(super) struct Closed;

impl<W: Write + Send + 'static> Sink<W> {
    pub(super) fn new(stream: W, terminator: u8, buffer_bytes: usize) -> Self {
        let (full, full_buffers) = sync_channel(1);
        let (give_back, empty) = sync_channel(BUFFERS);
        let new = || Vec::with_capacity(buffer_bytes);
        for _ in 1..BUFFERS {
            give_back.send(new()).expect("the other end is here");
        }
        let writer = std::thread::spawn(move || write_all(stream, &full_buffers, &give_back));
        Self {
            buffer: new(),
            terminator,
            full,
            empty,
            writer,
        }
    }

    /// Takes a line without its terminator.
    #[inline]
    pub(super) fn push(&mut self, line: &[u8]) -> Result<(), Closed> {
        if self.buffer.capacity() - self.buffer.len() <= line.len() {
            self.pass_on()?;
        }
        self.buffer.extend_from_slice(line);
        self.buffer.push(self.terminator);
        Ok(())
    }

    fn pass_on(&mut self) -> Result<(), Closed> {
        if self.buffer.is_empty() {
            return Ok(()); // a long line grows the buffer
        }
        let mut next = self.empty.recv().map_err(|_| Closed)?;
        next.clear();
        self.full
            .send(std::mem::replace(&mut self.buffer, next))
            .map_err(|_| Closed)
    }

    /// Waits until all is written.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let _ = self.pass_on(); // what went wrong is what the thread says
        let Self {
            full, empty, writer, ..
        } = self;
        drop((full, empty));
        writer.join().expect("writing does not panic")
    }
}

fn write_all<W: Write>(mut stream: W, full: &Receiver<Vec<u8>>, give_back: &SyncSender<Vec<u8>>) -> io::Result<W> {
    for buffer in full {
        stream.write_all(&buffer)?;
        let _ = give_back.send(buffer); // nobody needs it at the end
    }
    stream.flush()?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_any_length_arrive_in_order() {
        let lines: Vec<Vec<u8>> = (0..100_u8).map(|n| vec![n; usize::from(n) * 7 % 50]).collect();
        let expected: Vec<u8> = lines.iter().flat_map(|line| [&line[..], b"\n"].concat()).collect();
        for buffer_bytes in [1, 10, 100, 10_000] {
            let mut sink = Sink::new(Vec::new(), b'\n', buffer_bytes);
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
        let mut sink = Sink::new(Full, b'\n', 10);
        assert!((0..1000).any(|_| sink.push(b"a line").is_err()));
        assert_eq!(
            sink.finish().err().map(|error| error.kind()),
            Some(io::ErrorKind::StorageFull)
        );
    }
}
