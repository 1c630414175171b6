//! Run formation: the input, a memory load at a time, becomes sorted runs.
//!
//! ```text
//!   reader --> sorter --> writer --> Formed        3 buffers: one is read or written, one sorted, one spare
//! ```

use std::sync::mpsc::{Receiver, Sender, channel};

use tracing::debug;

use super::RecordFormat;
use super::entries::RunSorter;
use super::error::{Result, SortError};
use super::files::Sink;
use super::lane::first_cause;
use super::memory::{Buffer, RUN_BUFFERS, buffer};
use super::meter::Meter;

/// Gives the input, one stretch after the other.
pub(super) trait RecordSource: Send {
    /// Fills the buffer as far as the input goes; fewer bytes only at its end.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize>;
}

/// Run formation from a certain offset on.
pub(super) struct Formation<'a> {
    pub(super) sink: &'a dyn Sink,
    pub(super) format: &'a RecordFormat,
    pub(super) stable: bool,
    pub(super) run_bytes: usize,
    pub(super) meter: &'a Meter,
}

struct Load {
    buffer: Buffer,
    bytes: usize,
}

impl Formation<'_> {
    /// Writes runs from offset `at` on until the input ends; `formed` hears of the end of each that is written.
    pub(super) fn run(
        &self,
        source: &mut dyn RecordSource,
        at: u64,
        formed: &mut (dyn FnMut(u64) -> Result<()> + Send),
    ) -> Result<()> {
        let (empties, empty) = channel::<Buffer>();
        let (loads, loaded) = channel::<Load>();
        let (sorted, to_write) = channel::<Load>();
        for _ in 1..RUN_BUFFERS {
            let _ = empties.send(buffer(self.run_bytes)?); // its receiver is here
        }
        let mut spare = buffer(self.run_bytes)?;
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || self.read(source, &empty, &loads));
            let writer = scope.spawn(move || self.write(at, &to_write, &empties, formed));
            self.sort(&loaded, &sorted, &mut spare);
            drop((loaded, sorted));
            let written = writer.join().expect("no panic");
            first_cause([written, reader.join().expect("no panic")])
        })
    }

    fn read(&self, source: &mut dyn RecordSource, empty: &Receiver<Buffer>, loads: &Sender<Load>) -> Result<()> {
        for mut buffer in empty {
            self.meter.go_on()?;
            let bytes = source.fill(&mut buffer)?;
            self.meter.note_read(bytes as u64);
            let is_last = bytes < buffer.len();
            if bytes > 0 && loads.send(Load { buffer, bytes }).is_err() {
                return Err(SortError::Stopped); // the writer failed, and says why
            }
            if is_last {
                break;
            }
        }
        Ok(())
    }

    /// Sorts each load against the spare buffer, which thereby stays: the load's own goes to the writer.
    fn sort(&self, loaded: &Receiver<Load>, sorted: &Sender<Load>, spare: &mut Buffer) {
        let sorter = RunSorter::new(self.format, self.stable);
        for Load { mut buffer, bytes } in loaded {
            sorter.sort(&mut buffer[..bytes], &mut spare[..bytes]);
            if sorted.send(Load { buffer, bytes }).is_err() {
                break;
            }
        }
    }

    fn write(
        &self,
        mut at: u64,
        to_write: &Receiver<Load>,
        empties: &Sender<Buffer>,
        formed: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<()> {
        for Load { buffer, bytes } in to_write {
            self.sink.write(&buffer[..bytes], at)?;
            self.meter.note_written(bytes as u64);
            at += bytes as u64;
            debug!(bytes, end = at, "a run is formed");
            let _ = empties.send(buffer); // there may be no more to read
            formed(at)?;
        }
        Ok(())
    }
}
